"""The policy developer that is a command: any coding agent's command line writes the next version of a policy."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dreamrsi.checkout import Checkout, Unusable
from dreamrsi.commands import Command, Ran
from dreamrsi.developers import DeveloperFailure, Draft, Request, Version
from dreamrsi.errors import PolicyError
from dreamrsi.grid_plan import summarise
from dreamrsi.record import Attempt, Header, Root
from dreamrsi.replay import Episode, replay
from dreamrsi.sandbox import MAX_SOURCE, Limits, SandboxedPolicy
from dreamrsi.screening import copied
from dreamrsi.tree import Tree

POLICY = "policy.py"

RULES = """\
# What a policy is

`policy.py` defines `class Policy`, whose constructor needs no argument:

- `name`: optional text.
- `start(self, width)`: a fresh episode with at most `width` picks a batch. It forgets everything.
- `choose(self, prefix)`: returns the next batch, a list of at most `width` picks. A pick is `OPEN` (from
  `dreamrsi.policies`; start a new branch; may occur several times) or the number of a branch that has not ended, each
  at most once. An empty list stops.
- `beta`: optional number from 0 to 1, the patience of the policy: a high one means wider, deeper, weaker pruning. It
  may be set from outside before an episode and then stays; the attribute's value is the default.
- `plan_grid(self, summaries)`: optional. From summaries of finished runs it proposes `{{"branches": ..., "steps":
  ..., "reason": ...}}` for the next run, or None to keep the grid.

`prefix` is the part of the search that has been seen, and all that a policy may know:

- `prefix.width`, `prefix.round` (rounds finished), `prefix.attempts` (seen so far), `prefix.best`, `prefix.root`
  (score of the start, or None), `prefix.can_open`, `prefix.advice` (a recommended tag, or None), `prefix.branches`.
- A branch has `number`, `attempts`, `scores` (-inf is a failure), `best`, `last`, `status`, `stalled` (attempts in a
  row without a new best of the branch), `failures` (in a row), `ended`, `tag`, `origin`.

# What it is judged by

{objective}

It is replayed on recorded runs: what it picks is revealed, one attempt a pick, and a batch is a round. The best score
found counts, every attempt costs, and attempts made in parallel are worth something. Then it drives a new run, whose
scores nobody knows yet. A batch holds at most {width} picks.

# What it must keep to

1. It decides from the prefix alone. No files, no clock, no network, nothing remembered from one episode to the next.
2. It is deterministic: the same prefix, the same batch. Randomness, if any, comes from `random.Random(seed)` with a
   fixed seed, made in `start`.
3. Its thresholds are relative to the prefix: shares of the best, of the spread, of the width, counts of attempts
   without progress. Never the scores of the traces, and never the numbers of their branches and attempts: the next
   run has others. A file with such numbers is refused.
4. It always terminates: it stops by itself when nothing seems worth an attempt, and no loop in it can run for ever.
   One choice may take {seconds:g} seconds.
5. It works on every prefix: no branches yet, nothing scored, all branches ended, an infinite best, no root score.
6. Imports stand at the top: the standard library, numpy, `dreamrsi.policies`. Nothing else is beside it.
"""

PROMPT = """\
You develop a policy that decides how a search spends its attempts. The folder that you are in holds all you need.
Nobody answers questions: read, decide, change `policy.py`, and stop. You have {seconds:g} seconds.

Read first:
1. RULES.md: what a policy is, what it is judged by, and what it must keep to.
2. versions.md: every version so far with its value; a higher value is better. Their sources are in versions/.
3. traces/: for each version what its replays revealed, run by run and round by round.

`policy.py` holds version {base}, which you revise.

Find out where the value was lost: attempts on branches that had stopped improving, branches given up just before they
improved, branches opened too late or in vain, rounds with few picks. Compare versions on the same run. Learn from
those that failed or lost, and do not repeat a version with other numbers: change the mechanism where the traces call
for it.

Then write version {number} into `policy.py`: one complete file that keeps to RULES.md and differs from every earlier
version. Say in its first line, a docstring, what it does and why. Change nothing else; no other file is read. Do not
leave processes running.
"""

REPAIR = """\
You wrote a policy into `policy.py`. It was checked and refused:

{problem}

Mend exactly that in `policy.py`, and check the rest of the file against RULES.md. This is the only repair: a file
that is refused again is dropped. You have {seconds:g} seconds. Change nothing else.
"""


class CommandDeveloper:
    """A developer that is a command line.

    The command runs in a temporary folder with the base version as ``policy.py``, the sources, values and traces of all
    versions, and the rules. Its ``policy.py`` is read back, compared with the earlier versions, screened for numbers
    copied from the traces (:mod:`dreamrsi.screening`), loaded in the sandbox and rehearsed on made-up trees. What is
    found wrong is handed to a second call, and there is no third. Prompts, outputs and files stay in the version's
    folder.

    Parameters
    ----------
    command : see :class:`~dreamrsi.commands.Command`.
    limits : of the policy while it is checked; the sandbox's defaults if None.
    """

    def __init__(self, command: Command, limits: Limits | None = None) -> None:
        self.command = command
        self.limits = limits or Limits()
        self.name = command.name

    def develop(self, request: Request) -> Draft:
        """Let the command write a version, and repair it at most once.

        Raises
        ------
        DeveloperFailure
            The command failed, or what it wrote was refused twice.
        """
        with tempfile.TemporaryDirectory(prefix="dreamrsi-developer-") as scratch:
            with Checkout(Path(scratch) / "policy", self._files(request)) as checkout:
                return self._develop(request, checkout)

    def _develop(self, request: Request, checkout: Checkout) -> Draft:
        seconds = self.command.seconds
        prompt = PROMPT.format(seconds=seconds, base=request.base.number, number=request.number)
        problem = None
        calls: list[dict[str, Any]] = []
        for call in (1, 2):
            ran = self._call(request, checkout, prompt, call)
            calls.append({"seconds": round(ran.seconds, 3), "output_bytes": ran.output_bytes})
            source, found = self._read(request, checkout, call)
            if found is None:
                return Draft(source, {"calls": calls, "repaired": problem})
            problem, prompt = found, REPAIR.format(seconds=seconds, problem=found)
        raise DeveloperFailure(f"its policy was refused, also after one repair: {problem}")

    def _files(self, request: Request) -> dict[str, bytes]:
        """What the command is given."""
        rules = RULES.format(objective=request.objective, width=request.width, seconds=self.limits.seconds)
        files = {POLICY: request.base.source, "RULES.md": rules.encode(), "versions.md": _table(request.versions)}
        for version in request.versions:
            files[f"versions/{version.number:03d}.py"] = version.source
            for number, trace in enumerate(request.traces.get(version.number, ())):
                files[f"traces/{version.number:03d}/run-{number:02d}.txt"] = trace.encode()
        return files

    def _call(self, request: Request, checkout: Checkout, prompt: str, call: int) -> Ran:
        ran = self.command.run(prompt, checkout.folder)
        (request.folder / f"prompt-{call}.md").write_text(prompt, encoding="utf-8")
        (request.folder / f"output-{call}.txt").write_text(ran.output, encoding="utf-8")
        if ran.problem is not None:
            raise DeveloperFailure(f"the command {ran.problem}")
        return ran

    def _read(self, request: Request, checkout: Checkout, call: int) -> tuple[bytes, str | None]:
        """The policy, and what is wrong with it."""
        try:
            source = checkout.read(POLICY, MAX_SOURCE)
        except Unusable as problem:
            return b"", f"{POLICY} {problem}"
        (request.folder / f"policy-{call}.py").write_bytes(source)
        return source, self._problem(request, source)

    def _problem(self, request: Request, source: bytes) -> str | None:
        same = next((version.number for version in request.versions if version.source == source), None)
        if same is not None:
            return f"{POLICY} is identical to version {same}; write one that differs"
        found = copied(source, (trace for traces in request.traces.values() for trace in traces))
        if found:
            few = "\n".join(found[:10])
            return (
                f"{POLICY} holds what looks copied from the traces:\n{few}\n"
                "Derive thresholds from the prefix, or write them with fewer than four digits, and do without tables"
            )
        try:
            rehearse(source, request.width, self.limits)
        except PolicyError as error:
            return str(error)
        return None


def rehearse(source: bytes, width: int, limits: Limits | None = None) -> None:
    """Load a policy in the sandbox and replay it on made-up trees, which say nothing about the history.

    Each replay is made twice, in a process of its own, at the policy's default beta and, where it has one, at 0 and 1.

    Raises
    ------
    PolicyError
        It cannot be loaded, fails, chooses otherwise the second time, has a beta that is no number from 0 to 1, or a
        plan_grid that raises.
    """
    with SandboxedPolicy(source, POLICY, limits=limits) as policy:
        default = policy.default_beta
        if default is not None and not 0 <= default <= 1:
            raise PolicyError(f"{POLICY}: beta is {default!r}; it must be a number from 0 to 1")
        policy.plan_grid([summarise(tree).to_json() for tree in made_up_trees()])
    for beta in (None,) if default is None else (None, 0.0, 1.0):
        for first, again in zip(*(_episodes(source, width, limits, beta) for _ in range(2)), strict=True):
            if first.picks != again.picks:
                raise PolicyError(
                    f"{POLICY}: chose otherwise when the same replay was repeated; it must be deterministic"
                )


def _episodes(source: bytes, width: int, limits: Limits | None, beta: float | None) -> Iterator[Episode]:
    with SandboxedPolicy(source, POLICY, limits=limits) as policy:
        policy.beta = beta
        for tree in made_up_trees():
            yield replay(policy, tree, width)


def made_up_trees() -> list[Tree]:
    """Small trees with what a policy has to cope with: failures, an early end, a tie, no score at all, forks."""
    rows: list[list[float | None]] = [[1, 2, 2, 4], [None, None, 3], [0, None, 5, 5], [None], [2, 1, 0, -1]]
    usual = _tree(rows, 0, "rehearsal")
    nothing = _tree([[None, None], [None]], None, "rehearsal without scores")
    forked = _tree(rows, None, "rehearsal with forks", {2: (0, 1), 3: (2, 0)})
    return [usual, nothing, forked]


def _tree(
    rows: Sequence[Sequence[float | None]],
    root: float | None,
    name: str,
    origins: dict[int, tuple[int, int]] | None = None,
) -> Tree:
    steps = max(map(len, rows))
    header = Header(task="rehearsal", width=4, branches=len(rows), steps=steps, synthetic=True, root=Root(root))
    places = [(branch, number) for branch, row in enumerate(rows) for number in range(len(row))]
    attempts = [
        Attempt(
            branch=branch,
            attempt=number,
            seq=seq,
            score=rows[branch][number],
            status="error" if rows[branch][number] is None else "ok",
            tag="a" if branch % 2 else None,
            origin=(origins or {}).get(branch) if number == 0 else None,
        )
        for seq, (branch, number) in enumerate(places)
    ]
    return Tree(header, attempts, name=name)


def _table(versions: Sequence[Version]) -> bytes:
    """The versions and their values, for the command to read."""
    lines = [
        "| version | revises | value | attempts, rounds and best of each run, or what went wrong |",
        "|---|---|---|---|",
    ]
    for version in versions:
        runs = "; ".join(f"{e.attempts}, {e.rounds}, {_number(e.best)}" for e in version.episodes)
        said = " ".join((version.error or runs or "not replayed").split()).replace("|", "/")
        base = "" if version.base is None else str(version.base)
        lines += [f"| {version.number} | {base} | {_number(version.value)} | {said} |"]
    return ("\n".join(lines) + "\n").encode(errors="replace")


def _number(value: float) -> str:
    return f"{value:.10g}" if math.isfinite(value) else str(value)
