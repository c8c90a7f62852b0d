"""Workspaces: the files of every attempt are a commit in one bare git repository of the run.

The parent of a commit is the commit of the attempt that it resumed, so ``git log`` and ``git diff`` show how a
branch went. Author and date are fixed and the user's git settings are not read: equal runs give equal hashes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dreamrsi.errors import UserError

Files = Mapping[str, bytes]
"""A workspace: file name -> content. Names are relative, with ``/`` between folders."""

_COMMITTER = b"committer dreamrsi <dreamrsi@localhost> 0 +0000\n"


def check_files(files: object) -> dict[str, bytes]:
    """Return the workspace as a plain dictionary.

    Raises
    ------
    TypeError
        Not a mapping from text to bytes.
    ValueError
        A name that no git tree can hold, or that leads out of the workspace.
    """
    if not isinstance(files, Mapping):
        raise TypeError(f"a workspace maps file names to bytes; this is {type(files).__name__}")
    checked: dict[str, bytes] = {}
    for name, content in files.items():
        if not isinstance(name, str) or not isinstance(content, bytes):
            raise TypeError(f"a workspace maps file names to bytes; {name!r} maps to {type(content).__name__}")
        parts = name.split("/")
        if "\0" in name or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
            raise ValueError(f"{name!r} is not a file name inside a workspace")
        name.encode()  # git wants UTF-8; a lone surrogate raises here
        checked[name] = content
    for name in checked:
        folder = name.rpartition("/")[0]
        while folder:
            if folder in checked:
                raise ValueError(f"{folder!r} is a file and a folder at once")
            folder = folder.rpartition("/")[0]
    return checked


def require_git() -> None:
    """Raise a UserError where there is no git, before anything is written."""
    if shutil.which("git") is None:
        raise UserError("git was not found; a live run keeps its workspaces in a git repository. Install git")


class Workspaces:
    """The repository ``path``, made if it is not there.

    Raises
    ------
    UserError
        There is no git, or the repository cannot be made. Later, from every method: git fails, on a full disk say.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        require_git()
        self.path = Path(path).absolute()
        for pattern in ("*.lock", "refs/**/*.lock"):  # left by a power cut; the run's own lock keeps others away
            for lock in self.path.glob(pattern):
                lock.unlink(missing_ok=True)
        # No template: it could bring hooks. Repeating init is harmless and completes one that was cut off.
        self._git("init", "--quiet", "--bare", "--template=", "--initial-branch=root", str(self.path))

    def save(self, files: Files, ref: str, message: str, parent: str | None = None) -> str:
        """Commit a workspace, point ``ref`` to it and return the commit's hash.

        The ref keeps the commit from being collected as garbage. Saving the same again gives the same hash.
        """
        text = message.encode()
        stream = [b"commit %s\nmark :1\n%sdata %d\n%s\n" % (ref.encode(), _COMMITTER, len(text), text)]
        if parent is not None:
            stream.append(b"from %s\n" % parent.encode())
        stream.append(b"deleteall\n")
        for name, content in sorted(check_files(files).items()):
            quoted = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").encode()
            stream.append(b'M 100644 inline "%s"\ndata %d\n%s\n' % (quoted, len(content), content))
        stream.append(b"get-mark :1\ndone\n")
        # --force: a run that was cut off after a commit makes it again, maybe with other content after a timeout.
        answer = self._git("fast-import", "--quiet", "--force", "--done", "--date-format=raw", stdin=b"".join(stream))
        return answer.decode().strip()

    def load(self, commit: str) -> dict[str, bytes]:
        """The files of a commit.

        Raises
        ------
        UserError
            The repository does not hold the commit.
        """
        listing = self._git("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")[:-1]
        entries = [line.partition(b"\t") for line in listing]
        wanted = b"".join(entry.split()[2] + b"\n" for entry, _, _ in entries)
        content = self._git("cat-file", "--batch", stdin=wanted)
        files: dict[str, bytes] = {}
        start = 0
        for _, _, name in entries:
            head = content.index(b"\n", start) + 1
            end = head + int(content[start:head].split()[2])
            files[name.decode()] = content[head:end]
            start = end + 1
        return files

    def _git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        # The user's settings could sign commits or change the hash; GIT_* variables could point elsewhere.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
        command = ["git", "-c", "core.fsync=all"]  # the record names the commit, so it must be on disk first
        if arguments[0] != "init":
            command.append(f"--git-dir={self.path}")
        done = subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, env=environment, cwd=self.path.parent
        )
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
            ended = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
            raise UserError(
                f"{self.path}: git {arguments[0]} failed ({said or ended}); "
                "see that the folder is whole and writable and its disk has room, then resume the run"
            )
        return done.stdout
