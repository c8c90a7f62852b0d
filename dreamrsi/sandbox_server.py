"""The caller's handle on the sandbox: the server that forks sandboxed processes, and the channel to each of them."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from dreamrsi.errors import UserError
from dreamrsi.sandbox_child import REPLY, REQUEST

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_START_SECONDS = 60.0
_KEPT_VARIABLES = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ", "SYSTEMROOT")
_SET_VARIABLES = {
    "PATH": "/usr/bin:/bin",
    # The order of a set of strings is the same in every process, so the same policy makes the same choices.
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    # One thread a library: a process may not start threads later, and must have none when it forks.
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "RAYON_NUM_THREADS"),
        "1",
    ),
}
# -P and -s are -I without -E, which would make Python ignore PYTHONHASHSEED; the environment is ours anyway.
_COMMAND = (
    "-P",
    "-s",
    "-c",
    "import sys\n"
    "if sys.argv[2] not in sys.path: sys.path.insert(0, sys.argv[2])\n"
    "from dreamrsi.sandbox_child import serve\n"
    "serve(int(sys.argv[1]))",
)


_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "SIGKILL: it closed its channel, or the system was out of memory",
    signal.SIGXCPU: "SIGXCPU: it used up its CPU time",
    signal.SIGSEGV: "SIGSEGV: a library crashed, perhaps out of memory",
    signal.SIGABRT: "SIGABRT: a library gave up, perhaps out of memory",
}


class Gone(Exception):
    """A sandboxed process ended, fell silent or talked nonsense; the text says which."""


class Late(Gone):
    """It took more time than it had."""


class Server:
    """An interpreter that has loaded what policies need and forks a process for each; it runs none of them itself."""

    def __init__(self, environment: dict[str, str] | None = None, folder: str | os.PathLike[str] | None = None) -> None:
        """Start it. ``folder`` is where the empty folder is made that its processes see; the system's if None."""
        self.environment = clean_environment() if environment is None else environment
        self._lock = threading.Lock()
        self._folder = tempfile.mkdtemp(prefix="dreamrsi-sandbox-", dir=folder)
        os.chmod(self._folder, 0o755)  # the whole file system of its processes; their filter of calls keeps it empty
        self._control, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *_COMMAND, str(theirs.fileno()), str(Path(__file__).resolve().parent.parent)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                env=self.environment,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C is for the caller, who then ends the server
            )
        self._control.settimeout(_START_SECONDS)
        try:
            self._reply()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def fork(self) -> Process:
        """Start a process that waits for its setup."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                pid, _ = self._request(b"f", 0, [theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        return Process(self, pid, ours)

    def end(self, pid: int, wait: bool) -> int:
        """Kill a process and its group; with ``wait`` it gets a moment to end by itself. Return its wait status."""
        return self._request(b"w" if wait else b"k", pid)[1]

    def close(self) -> None:
        """End all processes, then the server."""
        self._control.close()  # the server ends its processes and returns
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _request(self, command: bytes, pid: int, fds: Sequence[int] = ()) -> tuple[int, int]:
        with self._lock:
            try:
                socket.send_fds(self._control, [REQUEST.pack(command, pid)], fds)
                return self._reply()
            except BaseException:  # Ctrl-C too: request and reply would no longer go together
                self.close()
                raise

    def _reply(self) -> tuple[int, int]:
        body = b""
        while len(body) < REPLY.size:
            try:
                more = self._control.recv(REPLY.size - len(body))
            except OSError as error:
                raise UserError(f"the sandbox's server does not answer ({error})") from error
            if not more:
                self._process.wait(5.0)
                self._log.seek(0)
                said = self._log.read()[-2000:].decode(errors="replace").strip()
                raise UserError(f"the sandbox's server ended, exit code {self._process.returncode}: {said}")
            body += more
        pid, status = REPLY.unpack(body)
        return pid, status


class Process:
    """The channel to one sandboxed process. Every message is a length in four bytes and then as many bytes."""

    def __init__(self, server: Server, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._owner = os.getpid()
        self._server = server
        self._channel = channel
        self._buffer = bytearray()
        self.ended = False

    def send(self, body: bytes, seconds: float) -> None:
        """Send a message.

        Raises
        ------
        Gone
            The process ended, or did not take it within ``seconds``.
        """
        self._channel.settimeout(seconds)
        try:
            self._channel.sendall(len(body).to_bytes(4, "little") + body)
        except TimeoutError:
            self.end()
            raise Late(f"took no message for {seconds:g} s") from None
        except OSError:
            raise self._epitaph() from None

    def receive(self, seconds: float, what: str, cap: int | None, said: float | None = None) -> bytes:
        """Return the next message. ``said`` are the seconds that the error names, where they are others.

        Raises
        ------
        Gone
            The process ended; or ``what`` took longer than ``seconds``; or the message has more than ``cap`` bytes.
        """
        deadline = time.monotonic() + seconds
        late = f"{what} took longer than {seconds if said is None else said:g} s"
        self._fill(4, deadline, late)
        size = int.from_bytes(self._buffer[:4], "little")
        if cap is not None and size > cap:
            self.end()
            raise Gone(f"answered with {size} bytes; at most {cap} are read")
        self._fill(4 + size, deadline, late)
        body = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return body

    def _fill(self, size: int, deadline: float, late: str) -> None:
        while len(self._buffer) < size:
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                self._channel.settimeout(left)
                more = self._channel.recv(65536)
            except TimeoutError:
                self.end()
                raise Late(late) from None
            except OSError:
                more = b""
            if not more:
                raise self._epitaph()
            self._buffer += more

    def _epitaph(self) -> Gone:
        """How a process that hung up came to its end."""
        status = self._status(wait=True)
        if status is None:
            return Gone("the sandbox's server was ended from outside, or for want of memory, and the process with it")
        if os.WIFEXITED(status):
            return Gone(f"the process ended by itself with exit code {os.WEXITSTATUS(status)}")
        number = os.WTERMSIG(status)
        kind = Late if number == signal.SIGXCPU else Gone
        return kind(f"the process ended with {_SIGNALS.get(number, f'signal {number}')}")

    def end(self) -> None:
        """Kill the process and its group; harmless if it has ended."""
        if not self.ended:
            self._status(wait=False)

    @property
    def usable(self) -> bool:
        """Whether it can be asked: it and the server have not ended, and it is no copy that came with a fork."""
        return not self.ended and self._owner == os.getpid() and self._server.alive

    def _status(self, wait: bool) -> int | None:
        """Its wait status, and its end; None where the server, which knows it, is gone itself."""
        self.ended = True
        self._channel.close()
        if self._owner != os.getpid():
            return 0
        try:
            return self._server.end(self.pid, wait)
        except (OSError, UserError):  # it has taken its processes along
            return None


_MOST = {"memory": 2**50, "output": 2**31}  # of the others, which are seconds, 10^9


def check_limits(limits: DataclassInstance) -> None:
    """Check what a caller gave as limits; those whose default is a whole number are whole numbers.

    Raises
    ------
    UserError
        One is no positive number, or too large for the system.
    """
    for field in fields(limits):
        value, whole = getattr(limits, field.name), isinstance(field.default, int)
        most = _MOST.get(field.name, 10**9)
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not 0 < value <= most:
            kind = "whole number" if whole else "number"
            raise UserError(f"Limits: {field.name} is {value!r}; give a {kind} above 0, at most {most}")


def printable(text: str, size: int) -> str:
    """A text from a sandboxed process, safe to print: bounded, no control characters, so no tricks with terminals."""
    return "".join(c if c.isprintable() else " " for c in text[:size])


def clean_environment() -> dict[str, str]:
    """The variables a sandboxed process gets: a short list of the caller's, and fixed ones."""
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | _SET_VARIABLES


_servers: dict[int, Server] = {}  # by process: a forked process must not talk to its parent's server
_starting = threading.Lock()


def shared() -> Server:
    """The server that all policies and programs of this process share; started at the first call, ended at exit."""
    with _starting:
        server = _servers.get(os.getpid())
        if server is None or not server.alive:
            if server is not None:
                server.close()
            server = _servers[os.getpid()] = Server()
        return server


@atexit.register
def shutdown() -> None:
    """End the shared server and every sandboxed process. The next one starts a new server."""
    server = _servers.pop(os.getpid(), None)
    if server is not None:
        with suppress(OSError):
            server.close()
