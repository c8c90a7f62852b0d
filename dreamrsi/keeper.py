"""Ends whole trees of processes. As a script: runs one command, and ends all that it started, whoever dies first.

The script stands between a program of this package and the command of a user (:mod:`dreamrsi.commands`). It needs
the standard library only, so that it starts in a few hundredths of a second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PATIENCE = 5.0  # seconds for the killed to be gone; one that the system is busy with goes later
_LOOK = 0.5  # seconds between two looks at whether the parent is still there, where the system does not tell


def adopt() -> None:
    """Make this process the parent of all its descendants whose own parent dies. Linux only; elsewhere nothing."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """The living descendants of a process, parents first; those that only wait to be reaped do not count."""
    children: dict[int, list[int]] = {}
    dead = set()
    for child, parent, state in _processes():
        children.setdefault(parent, []).append(child)
        if state == "Z":
            dead.add(child)
    found = [pid]
    for one in found:  # grows while it is walked
        found += children.get(one, ())
    return [one for one in found[1:] if one not in dead]


def end_descendants(pid: int) -> bool:
    """Kill all descendants of a process, until there are none; False if some are left after five seconds.

    Those that left its process group or session are found too. Not found are those whose parent died before, where the
    process has not called :func:`adopt`.
    """
    pause, deadline = 0.001, time.monotonic() + _PATIENCE
    while found := descendants(pid):
        if time.monotonic() > deadline:
            return False
        for one in found:
            _send(one, signal.SIGKILL)
        if pid == os.getpid():
            _reap()
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return True


def end_own() -> None:
    """Kill all descendants of this process. Costs nothing where it has no children."""
    if _reap():
        end_descendants(os.getpid())


def end_tree(pid: int) -> None:
    """Kill a process and its descendants.

    It is stopped first: one that starts a new process for each that ends would be ahead of every look, and when it is
    killed itself what it started last would have no parent to be found by.
    """
    _send(pid, signal.SIGSTOP)
    end_descendants(pid)
    _send(pid, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _processes() -> list[tuple[int, int, str]]:
    """Number, parent and state of every process."""
    if sys.platform != "linux":
        with subprocess.Popen(["/bin/ps", "-axo", "pid=,ppid=,state="], stdout=subprocess.PIPE, text=True) as ps:
            rows = [line.split() for line in ps.communicate()[0].splitlines()]
        return [(int(row[0]), int(row[1]), row[2][0]) for row in rows if len(row) == 3 and int(row[0]) != ps.pid]
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]  # the name before it may hold anything
        except OSError:  # it has just ended
            continue
        found.append((int(name), int(parent), state.decode()))
    return found


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or another user's, as after sudo


def _reap() -> bool:
    """Take note of children that ended; say whether there may be others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


# What follows is the script.


class _Stop(BaseException):
    pass


def main(arguments: list[str]) -> int:
    """Run the command; its exit code, 127 if it cannot be started, or the negative number of the signal it died of.

    ``arguments``: number of the parent, names of the environment variables to pass on separated by commas, command.
    """
    parent, names, command = int(arguments[0]), arguments[1].split(","), arguments[2:]
    environment = {name: os.environ[name] for name in names if name in os.environ}
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)

    def stop(number: int, _: object) -> None:
        if number != signal.SIGALRM or os.getppid() != parent:
            raise _Stop

    status = None
    try:
        for number in signals:
            signal.signal(number, stop)
        adopt()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, _LOOK / 50, _LOOK)  # the first one for a parent that died before this line
        pid = os.fork()
        if pid == 0:
            _become(command, environment, signals)
        while status is None:
            ended, code = os.waitpid(-1, 0)  # adopted ones are reaped on the way
            status = os.waitstatus_to_exitcode(code) if ended == pid else None
    except _Stop:
        pass
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    end_own()
    return -signal.SIGTERM if status is None else status


def _become(command: list[str], environment: dict[str, str], signals: tuple[signal.Signals, ...]) -> None:
    """Turn the forked child into the command, in a session of its own; never returns."""
    try:
        for number in (*signals, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # the command may signal its own group without hitting the keeper
        os.execve(command[0], command, environment)
    except BaseException as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        os.write(2, f"{command[0]}: cannot be started ({reason})\n".encode())
    finally:
        os._exit(127)


def _leave(code: int) -> None:
    """End as the command did, without a second core dump."""
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


if __name__ == "__main__":
    _leave(main(sys.argv[1:]))
