"""What is deployed: a pointer file that changes atomically, the policies that it may point to, and every decision.

A deployment is a folder::

    deployed.json              the pointer: which policy is deployed, by its hash, and how
    policies/<sha256>.py       every policy that was ever deployed; these files never change
    pointers/<sha256>.json     the bytes of every earlier pointer, for rollback
    decisions/0001.json, .md   what was decided, in order

Everything that a new pointer needs is on disk before the pointer is renamed into place, so that a crash at any moment
leaves the old policy deployed or the new one, whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from dreamrsi.decision import Decision, Named, Settings, decode
from dreamrsi.errors import UserError
from dreamrsi.files import atomic_write, locked
from dreamrsi.guards import Frozen, frozen_numbers
from dreamrsi.suite import Suite, read_policy

FORMAT = "dreamrsi.deployed/1"
POINTER = "deployed.json"


class Pointer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``deployed.json`` says.

    ``settings`` is how the policy runs, ``frozen`` what a live round of it is held to, ``suite`` the suite that it was
    judged on, ``decision`` the number of the decision that deployed it, ``previous`` the hash of the pointer before it,
    ``seal`` that of everything else in it: a ceiling that was raised by hand is nothing that was decided.
    """

    format: str = FORMAT
    policy: Named
    settings: Settings
    frozen: Frozen
    suite: str
    decision: int
    previous: str | None = None
    seal: str = ""


class Deployment:
    """A deployment in a folder. Whoever changes it holds its lock: ``with deployment.lock("gate"):``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @property
    def pointer_file(self) -> Path:
        """The file whose bytes say what is deployed."""
        return self.folder / POINTER

    @contextlib.contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """Keep every other process that would change the deployment out; a UserError where one is at it."""
        with locked(self.folder, what):
            yield

    def pointer(self) -> Pointer | None:
        """What is deployed; None if nothing is.

        Raises
        ------
        UserError
            The pointer cannot be read or was changed by hand, or the policy is not there with the bytes that were
            deployed.
        """
        content = self._bytes()
        if content is None:
            return None
        return self.check(content, self.pointer_file)

    def deployed(self) -> Pointer:
        """What is deployed; as :meth:`pointer`, but a UserError, too, where nothing is."""
        pointer = self.pointer()
        if pointer is None:
            start = f"start with dreamrsi deploy {self.folder} --suite SUITE"
            raise UserError(f"{self.folder}: nothing is deployed; {start}")
        return pointer

    def check(self, content: bytes, path: Path) -> Pointer:
        """The pointer that these bytes, which ``path`` holds, are; errors as for :meth:`pointer`."""
        pointer = self._decode(content, path)
        if pointer.seal != _seal(pointer):
            raise UserError(f"{path}: was changed by hand; dreamrsi rollback restores what was deployed before")
        self.source(pointer)
        return pointer

    def source(self, pointer: Pointer) -> bytes:
        """The source of a pointer's policy, checked against its hash."""
        return _hashed(self._policy(pointer.policy.sha256), pointer.policy.sha256)

    def start(self, suite: Suite) -> Pointer:
        """Deploy a suite's current policy, where nothing is deployed yet: it is what runs already.

        Raises
        ------
        UserError
            Something is deployed.
        """
        if self._bytes() is not None:
            raise UserError(f"{self.pointer_file}: a policy is deployed; a gate replaces it")
        named = Named(suite.manifest.policy, suite.current_sha256)
        settings = suite.manifest.settings
        decision = _decision("first", "deployed", suite=suite.sha256, policy=named, settings=settings)
        return self._point(named, suite.current, settings, suite, self.record(decision), None)

    def promote(
        self, decision: Decision, number: int, policy: str | os.PathLike[str], suite: str | os.PathLike[str]
    ) -> Pointer:
        """Deploy the candidate of a gate's decision.

        Parameters
        ----------
        decision, number : of the gate, as it was recorded.
        policy, suite : the files that were judged. They are read and hashed once more: what was scored is what is
            deployed.

        Raises
        ------
        UserError
            The decision does not promote; the candidate, the suite or what is deployed is not what was judged. Nothing
            changes then.
        """
        if not decision.promoted or decision.policy is None or decision.settings is None or decision.current is None:
            raise UserError("the gate did not promote the candidate; nothing was changed")
        if self._record(number) != decision.json():
            raise UserError(f"decision {number} in {self.folder} is another one; nothing was changed")
        judged = Suite.load(suite)
        if judged.sha256 != decision.suite:
            raise UserError(f"{suite}: is not the suite that the candidate was judged on; nothing was changed")
        old = self.pointer()
        if old is None:
            raise UserError(f"{self.folder}: nothing is deployed yet; deploy the current policy first")
        if old.policy.sha256 != decision.current.sha256:
            raise UserError(f"{self.folder}: another policy was deployed meanwhile; run the gate again")
        source = read_policy(policy)
        if hashlib.sha256(source).hexdigest() != decision.policy.sha256:
            raise UserError(f"{policy}: changed after it was judged; run the gate again. Nothing was changed")
        return self._point(decision.policy, source, decision.settings, judged, number, self._bytes())

    def roll_back(self, fired: Sequence[str]) -> int:
        """Restore the exact bytes of the pointer before the present one.

        Parameters
        ----------
        fired : why.

        Returns
        -------
        int
            The number of the decision.

        Raises
        ------
        UserError
            There is no earlier pointer, or it or its policy is damaged. Nothing changes then.
        """
        content = self._bytes()
        if content is None:
            raise UserError(f"{self.folder}: nothing is deployed, so nothing can be rolled back")
        now = self._decode(content, self.pointer_file)
        if now.previous is None:
            raise UserError(f"{self.folder}: {now.policy.name} is the first policy here; there is none to go back to")
        earlier = self.folder / "pointers" / f"{now.previous}.json"
        restored = _hashed(earlier, now.previous)
        before = self._decode(restored, earlier)
        self.source(before)
        about = {"policy": now.policy, "current": before.policy, "settings": before.settings, "suite": now.suite}
        number = self.record(_decision("rollback", "rolled back", fired=tuple(fired), **about))
        atomic_write(self.pointer_file, restored)
        return number

    def killed(self, reason: str) -> int:
        """Record that a live round of the deployed policy was ended, and why; return the decision's number."""
        pointer = self.pointer()
        about = {"policy": pointer.policy, "settings": pointer.settings, "suite": pointer.suite} if pointer else {}
        return self.record(_decision("kill", "killed", fired=(reason,), **about))

    def record(self, decision: Decision) -> int:
        """Write a decision down, for programs and for people; return its number."""
        folder = self.folder / "decisions"
        number = 1 + max((int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()), default=0)
        atomic_write(folder / f"{number:04d}.md", decision.markdown())
        atomic_write(folder / f"{number:04d}.json", decision.json())
        return number

    def decisions(self) -> list[Decision]:
        """Every decision, in order."""
        paths = (self.folder / "decisions").glob("*.json")
        found = []
        for number in sorted(int(path.stem) for path in paths if path.stem.isdigit()):
            try:
                found.append(decode(self._record(number)))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise UserError(f"{self.folder}: decision {number} cannot be read ({error})") from error
        return found

    def _record(self, number: int) -> bytes:
        path = self.folder / "decisions" / f"{number:04d}.json"
        try:
            return path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error

    def _point(
        self, named: Named, source: bytes, settings: Settings, suite: Suite, number: int, old: bytes | None
    ) -> Pointer:
        """Put everything that the new pointer needs on disk, look at it once more, and rename the pointer."""
        path = atomic_write(self._policy(named.sha256), source)
        previous = None
        if old is not None:
            previous = hashlib.sha256(old).hexdigest()
            atomic_write(self.folder / "pointers" / f"{previous}.json", old)
        pointer = Pointer(
            policy=named,
            settings=settings,
            frozen=frozen_numbers(suite),
            suite=suite.sha256,
            decision=number,
            previous=previous,
        )
        pointer = msgspec.structs.replace(pointer, seal=_seal(pointer))
        _hashed(path, named.sha256)
        if self._bytes() != old:
            raise UserError(f"{self.pointer_file}: changed meanwhile; nothing was changed, run the gate again")
        atomic_write(self.pointer_file, msgspec.json.format(msgspec.json.encode(pointer), indent=1) + b"\n")
        return pointer

    def _policy(self, sha256: str) -> Path:
        return self.folder / "policies" / f"{sha256}.py"

    def _bytes(self) -> bytes | None:
        try:
            return self.pointer_file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{self.pointer_file}: cannot be read ({error.strerror})") from error

    def _decode(self, content: bytes, path: Path) -> Pointer:
        try:
            pointer = msgspec.json.decode(content, type=Pointer)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: is damaged ({error}); the decisions beside it say what was deployed") from error
        if pointer.format != FORMAT:
            raise UserError(f"{path}: has format {pointer.format!r}, not {FORMAT!r}")
        return pointer


def _decision(
    kind: Literal["first", "kill", "rollback"], outcome: Literal["deployed", "killed", "rolled back"], **about: Any
) -> Decision:
    return Decision(kind=kind, outcome=outcome, time=datetime.now(UTC).isoformat(timespec="seconds"), **about)


def _seal(pointer: Pointer) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(pointer, seal=""))).hexdigest()


def _hashed(path: Path, sha256: str) -> bytes:
    """The bytes of a file that is named after its hash."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); nothing was changed") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UserError(f"{path}: was changed since it was deployed; nothing was changed now")
    return content
