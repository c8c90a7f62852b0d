"""Runs a coding agent's command line: with a time limit, bounded output, few environment variables and no survivors.

The command is the user's own program and runs with the user's rights. Nothing here holds it back; see
``docs/agents.md``.
"""

from __future__ import annotations

import difflib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from dreamrsi import keeper
from dreamrsi.errors import UserError

PRESETS = {
    "claude": "claude -p {prompt} --permission-mode acceptEdits",
    "codex": "codex exec --sandbox workspace-write --skip-git-repo-check {prompt}",
    "gemini": "gemini -p {prompt} --approval-mode auto_edit --skip-trust",
}
"""Short names for command lines, from the programs' own documentation; none of them was run by us."""

PASSED = ("PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ")
"""The environment variables that every command gets, with those that start with ``LC_`` and those of proxies."""

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
_HEAD, _TAIL = 4_000, 8_000  # bytes of the output that are kept
_GRACE = 10.0  # seconds for the keeper to end all processes
_PLACES = ("prompt", "prompt_file")
_PLACEHOLDER = re.compile(r"\{prompt(_file)?\}")


@dataclass(frozen=True)
class Ran:
    """What became of a command.

    Attributes
    ----------
    exitcode : negative for the signal that it died of; None if its time was up.
    output : what it printed, standard error included: all of it if it is short, else the beginning and the end.
    output_bytes : how much it printed.
    timed_out : whether its time was up.
    seconds : wall time.
    """

    exitcode: int | None
    output: str
    output_bytes: int
    timed_out: bool
    seconds: float

    @property
    def problem(self) -> str | None:
        """What went wrong, in words, with the last line that it printed; None if its exit code is 0."""
        if self.exitcode == 0:
            return None
        if self.timed_out:
            problem = f"took longer than its {self.seconds:.0f} s"
        elif self.exitcode is not None and self.exitcode < 0:
            problem = f"died of {_signal_name(-self.exitcode)}"
        else:
            problem = f"ended with exit code {self.exitcode}"
        last = self.output.strip().rpartition("\n")[2].strip()[:300]
        return f"{problem}; its last line was: {last}" if last else f"{problem} and printed nothing"


@dataclass(frozen=True)
class Command:
    """The command line of a coding agent.

    Attributes
    ----------
    template : split as a shell would, without a shell. In every argument ``{prompt}`` stands for the text of the prompt
        and ``{prompt_file}`` for the path of a file with it; without either the prompt comes on standard input. Or one
        of the names in ``PRESETS``.
    seconds : wall time after which it is ended, with all that it started.
    environment : names of environment variables to pass on beside those of ``PASSED``, API keys say.

    Raises
    ------
    UserError
        The template is empty or malformed, the program is not there, ``seconds`` is not positive, or a variable is not
        set.
    """

    template: str
    seconds: float
    environment: Sequence[str] = ()
    program: str = field(init=False, repr=False)  # its absolute path: the command runs in another folder
    _values: dict[str, str] = field(init=False, repr=False, compare=False)  # of ``environment``

    def __post_init__(self) -> None:
        template = PRESETS.get(self.template.strip(), self.template.strip())
        try:
            words = shlex.split(template)
        except ValueError as error:
            raise UserError(f"command {template!r}: {error}; quote its parts as in a shell") from None
        if not words:
            raise UserError(f"the command is empty; give a command line, or one of {', '.join(PRESETS)}")
        for word in re.findall(r"\{(\w+)\}", template):
            meant = difflib.get_close_matches(word, _PLACES)
            if meant and word not in _PLACES:
                raise UserError(f"command {template!r}: {{{word}}} stands for nothing; did you mean {{{meant[0]}}}?")
        program = shutil.which(words[0])
        if program is None:
            raise UserError(
                f"command {template!r}: the program {words[0]!r} was not found; "
                "install it, see that its folder is in PATH, or give its path"
            )
        if not 0 < self.seconds < float("inf"):
            raise UserError(f"command {template!r}: seconds is {self.seconds!r}; give a positive number")
        for name in self.environment:
            if name not in os.environ or "," in name:
                raise UserError(
                    f"command {template!r}: the environment variable {name!r} is not set; set it, or omit it"
                )
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "environment", tuple(self.environment))
        object.__setattr__(self, "_values", {name: os.environ[name] for name in self.environment})
        object.__setattr__(self, "program", os.path.abspath(program))

    @property
    def name(self) -> str:
        """What identifies it in the configuration of a run: the template and the time limit, no variable's value."""
        return f"command:{self.template} ({self.seconds:g} s)"

    def run(self, prompt: str, folder: str | os.PathLike[str]) -> Ran:
        """Run the command in ``folder`` and wait for it.

        When this returns, or raises, all processes that the command started are gone, also those that left its process
        group and those that it left behind after it ended. On macOS one that left the group and whose parent has ended
        is not found.

        Raises
        ------
        UserError
            It cannot be started.
        """
        with _handed_over(prompt, self.template, Path(folder)) as (prompt_file, stdin):
            arguments = [self.program, *(_fill(word, prompt, prompt_file) for word in shlex.split(self.template)[1:])]
            # The keeper gets the whole environment, in case Python itself needs it, and passes on what is allowed.
            start = [
                sys.executable,
                "-I",
                "-S",
                keeper.__file__,
                str(os.getpid()),
                ",".join(self._passed()),
                *arguments,
            ]
            begun = time.monotonic()
            try:
                process = subprocess.Popen(
                    start,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    bufsize=0,
                    cwd=folder,
                    env={**os.environ, **self._values},
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise UserError(f"command {self.template!r}: cannot be started ({error})") from error
            printed = _Printed()
            try:
                timed_out = not _watch(process, printed, begun + self.seconds)
            finally:
                _end(process)
                _read_rest(process, printed)
        seconds = time.monotonic() - begun
        return Ran(None if timed_out else process.returncode, printed.text(), printed.size, timed_out, seconds)

    def _passed(self) -> list[str]:
        allowed = [n for n in os.environ if n in PASSED or n.startswith("LC_") or n.lower() in _PROXIES]
        return [*allowed, *self.environment]


@contextmanager
def _handed_over(prompt: str, template: str, folder: Path) -> Iterator[tuple[str, IO[bytes] | int]]:
    """The prompt as the template wants it: the path of a file in ``folder`` (or ""), and standard input."""
    kinds = {match.group(1) for match in _PLACEHOLDER.finditer(template)}
    if not kinds:
        with tempfile.TemporaryFile() as file:
            file.write(prompt.encode())
            file.seek(0)
            yield "", file
    elif "_file" not in kinds:
        yield "", subprocess.DEVNULL
    else:
        # Inside the folder, as some agents read nothing outside it.
        handle, path = tempfile.mkstemp(".md", "prompt-", folder)
        with open(handle, "w", encoding="utf-8") as text:
            text.write(prompt)
        try:
            yield path, subprocess.DEVNULL
        finally:
            with suppress(OSError):
                os.unlink(path)


def _fill(word: str, prompt: str, prompt_file: str) -> str:
    return _PLACEHOLDER.sub(lambda match: prompt_file if match.group(1) else prompt, word)


class _Printed:
    """The output: its size, its beginning and its end."""

    def __init__(self) -> None:
        self.size = 0
        self.head = b""
        self.tail = b""

    def add(self, part: bytes) -> None:
        self.size += len(part)
        room = _HEAD - len(self.head)
        self.head += part[:room]
        self.tail = (self.tail + part[room:])[-_TAIL:]

    def text(self) -> str:
        between = self.size - len(self.head) - len(self.tail)
        cut = f"\n... {between} bytes left out ...\n" if between else ""
        return printable(self.head) + cut + printable(self.tail) if cut else printable(self.head + self.tail)


def printable(content: bytes, limit: int | None = None) -> str:
    """Bytes as text that is safe to print, without control characters; cut at ``limit`` characters."""
    text = content.decode(errors="replace")[:limit]
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)


def _watch(process: subprocess.Popen[bytes], printed: _Printed, deadline: float) -> bool:
    """Read the output until the keeper has ended; False if the time is up before."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    ready = select.poll()
    ready.register(pipe, select.POLLIN)
    open_ = True
    while process.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        if open_ and ready.poll(1000 * min(left, 0.2)):
            part = os.read(pipe, 2**16)
            printed.add(part)
            open_ = bool(part)
        elif not open_:
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(left, 0.2))
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the keeper end all; where it does not answer, end it and what it has started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            keeper.end_tree(process.pid)
            process.wait()


def _read_rest(process: subprocess.Popen[bytes], printed: _Printed) -> None:
    """What is still in the pipe. Somebody may hold it open (a process under another user), so do not wait."""
    assert process.stdout is not None
    with process.stdout:
        pipe = process.stdout.fileno()
        os.set_blocking(pipe, False)
        with suppress(BlockingIOError):
            for _ in range(64):  # more than a pipe holds
                if not (part := os.read(pipe, 2**16)):
                    break
                printed.add(part)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
