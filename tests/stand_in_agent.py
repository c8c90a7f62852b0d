"""A stand-in for a coding agent: a program that behaves as its first argument says, in the folder it is started in.

The prompt is its last argument or, without one, standard input.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# ruff: noqa: T201

PROGRAM = b"def solve(seed):\n    return [seed, 1]\n"


def write(number=None, program=PROGRAM):
    number = len(list(Path("proposals").glob("[0-9]*.md"))) if number is None else number
    Path("proposals").mkdir(exist_ok=True)
    Path(f"proposals/{number:03d}.md").write_text("# Swap two circles\n\nBecause growing one alone is stuck.\n")
    Path("solve.py").write_bytes(program)
    print("done \x1b[31mred")


def note(name, content):
    """Tell the test something: a file in the folder that the environment names."""
    Path(os.environ["STAND_IN_NOTES"], name).write_text(str(content))


def sleeper(kind):
    """A process that sleeps: a plain child, one in a session of its own, or an orphan in a session of its own."""
    if kind == "orphan":
        script = "import subprocess; print(subprocess.Popen(['sleep', '1000'], start_new_session=True, stdout=2).pid)"
        pid = int(subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE).stdout)
    else:
        pid = subprocess.Popen(["sleep", "1000"], start_new_session=kind == "session").pid
    note(f"pid-{pid}", pid)


def good():
    write()


def tell():
    """What it was given: arguments, standard input, environment, files."""
    given = {
        "arguments": sys.argv[2:],
        "stdin": sys.stdin.read(),
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "files": {str(p): p.read_text() for p in Path(".").rglob("*") if p.is_file()},
    }
    note("given", json.dumps(given))
    write(number=2)


def fail():
    write()
    print("no such model")
    sys.exit(1)


def nothing():
    pass


def only_program():
    Path("solve.py").write_bytes(PROGRAM)


def only_proposal():
    write(program=Path("solve.py").read_bytes())


def forbidden():
    write()
    Path("notes.txt").write_text("edited")
    Path("new.txt").write_text("added")
    Path("gone.txt").unlink()
    Path("proposals/000.md").write_text("another history")
    Path("folder/deep").mkdir(parents=True)
    Path("folder/deep/x").write_text("x")
    os.mkfifo("pipe")
    os.symlink("/etc/passwd", "link")


def removes_program():
    write()
    Path("solve.py").unlink()


def huge():
    write()
    with open("solve.py", "wb") as file:
        file.truncate(2**33)


def fifo():
    write()
    Path("solve.py").unlink()
    os.mkfifo("solve.py")


def symlink():
    write()
    Path("solve.py").unlink()
    os.symlink(os.environ["STAND_IN_OUTSIDE"], "solve.py")


def linked_folder():
    """The proposals become a folder outside."""
    write()
    os.rename("proposals", "elsewhere")
    os.symlink(os.environ["STAND_IN_NOTES"], "proposals")
    Path("proposals/002.md").write_text("# From outside\n")


def locked():
    write()
    os.chmod("solve.py", 0)
    os.chmod("proposals", 0)
    os.chmod(".", 0)


def delete():
    write()
    import shutil

    shutil.rmtree(os.getcwd())


def flood():
    print("the beginning", flush=True)
    line = b"x" * 9999 + b"\n"
    for _ in range(10_000):
        os.write(1, line)
    print("the end", flush=True)
    write()


def hang(kind="child"):
    sleeper(kind)
    write()
    print("waiting", flush=True)
    time.sleep(1000)


def hang_session():
    hang("session")


def hang_orphan():
    hang("orphan")


def hang_deaf():
    """Ignores what can be ignored, and so does its child."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hang("session")


def leave():
    """Ends well and leaves three processes behind, one of which holds the output open."""
    for kind in ("child", "session", "orphan"):
        sleeper(kind)
    write()


def crash():
    ctypes.string_at(0)


def kill_group():
    """Ends what it had started in its group, as some do at their end, and then well itself."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    time.sleep(0.5)  # for the keeper to be hit, were it in the group
    write()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
