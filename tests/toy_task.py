"""A small, fast task with moves that misbehave in every way. Child processes import it."""

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

from dreamrsi.tasks import Evaluation, invalid


def climb(files, seed):
    draw = random.Random(seed)
    return {**files, "value": repr(float(files["value"]) + draw.uniform(-0.2, 1)).encode()}


def spoil(files, seed):
    return {**files, "value": b"spoilt"}


def grow(files, seed):
    return {**climb(files, seed), "ballast": bytes(100_000)}


def crash(files, seed):
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(files, seed):
    os._exit(3)


class Hang:
    """A move that waits for a process of its own, which has to go too; leaves that one's id as a file in ``pids``."""

    __name__ = "hang"

    def __init__(self, pids):
        self.pids = Path(pids)
        self.pids.mkdir(exist_ok=True)

    def __call__(self, files, seed):
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        sleeper = subprocess.Popen(["sleep", "1000"])
        (self.pids / str(sleeper.pid)).touch()
        sleeper.wait()


class Gated:
    """A move that says in a file that it has begun, and climbs once the folder holds a file ``open``."""

    __name__ = "gated"

    def __init__(self, folder):
        self.folder = Path(folder)

    def __call__(self, files, seed):
        (self.folder / f"held-{os.getpid()}").touch()
        while not (self.folder / "open").exists():
            time.sleep(0.02)
        return climb(files, seed)


def fail(files, seed):
    raise RuntimeError(f"broken in {os.getcwd()}\udc80")


def fail_hard(files, seed):
    raise SystemExit("enough")


def nan(files, seed):
    return {**files, "value": b"nan"}


def infinite(files, seed):
    return {**files, "value": b"inf"}


def not_files(files, seed):
    return {"value": 1.0, "../escape": b""}


def kill_judge(files, seed):
    return {**files, "value": b"kill"}


def leave_thread(files, seed):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return climb(files, seed)


def chatter(files, seed):
    os.write(1, b"noise" * 100_000)
    return climb(files, seed)


class Toy:
    requires = ("toy_task",)

    def __init__(self, *moves, name="toy"):
        self.name = name
        self.moves = {move.__name__: move for move in (moves or (climb, spoil, fail))}

    def seed_workspace(self):
        return {"value": b"1.0"}

    def evaluate(self, files):
        text = files["value"]
        if text == b"spoilt":
            return invalid("the value is spoilt")
        if text == b"kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return Evaluation(score=float(text), metrics={"length": len(text)})


class Careless(Toy):
    """Its evaluator does not return an Evaluation."""

    def evaluate(self, files):
        return 1.0 if files["value"] != b"1.0" else super().evaluate(files)
