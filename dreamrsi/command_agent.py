"""The agent that is a command: any coding agent's command line writes the next proposal and program of a branch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dreamrsi.agents import AgentFailure, Context, Proposal
from dreamrsi.checkout import Checkout, Unusable
from dreamrsi.commands import Command, Ran, printable
from dreamrsi.errors import UserError
from dreamrsi.record import Attempt, Status
from dreamrsi.tasks import Program, Task, program_of
from dreamrsi.workspace import Files

MAX_PROGRAM = 2**20
"""Bytes that a program may have."""

MAX_PROPOSAL = 2**16
"""Bytes that a proposal may have."""

_MAX_TAG = 60
_TASK, _RESULTS, _GUIDANCE = "TASK.md", "RESULTS.md", "GUIDANCE.md"
_KEPT_RESULTS, _EARLIER_RESULTS = "proposals/results.md", "proposals/earlier-results.md"
_NUMBERED = re.compile(r"proposals/(\d{3,})([-.].*)")
_EARLIER = re.compile(r"proposals/earlier-(\d{3,})[-.].*")
_MENTIONED = re.compile(r"(attempt |proposals/)(\d{3,})", re.IGNORECASE)

PROMPT = """\
You are one step of a search for a better program. The folder that you are in holds all you need. Nobody answers
questions: read, decide, write the two files named below, and stop. You have {seconds:g} seconds.

Read first:
1. {task}: what the program must do, and how it is scored. A higher score is better.
2. {results}: every earlier attempt of this line of work with its measured result, also those that failed.
3. Every file in {proposals}: what each of those attempts meant to do and, beside it, the program that it led to. Files
   whose names begin with "earlier" come from the line of work that this one goes on from.
{guidance}
Then think:
- Which measured results contradict what a proposal expected, and why? Trust the numbers, not the promises.
- What exactly made each failed attempt fail? A bug or a time limit says little about the idea behind it: mend it, or
  leave the idea for that reason and say so. Do not run into the same cause again.
- Which mechanisms have been tried? If the earlier proposals are variations of one of them, choose another one, or
  combine what helped with something new. A small change of a number is a proposal only if the results call for it.

Then write:
- {proposal}: your proposal. Its first line is "# " and the name of the mechanism in a few words. Below it: what the
  earlier results have taught you, what you change, why that should score higher, what result would prove you wrong.
- {files}: the program, changed as proposed, complete and ready to run. You may start from any earlier program.

Change nothing else: no other file is kept. Do not leave processes running.
"""


class CommandAgent:
    """An agent that is a command line, for tasks with a :class:`~dreamrsi.tasks.Program`.

    An attempt is one call of the command, in a folder with the workspace, the task's statement, the measured results of
    the branch so far, and the round's guidance. What it may leave is ``proposals/NNN.md``, NNN being the number of the
    attempt in its branch, and the program; all else that it does to the folder is undone and listed in the attempt's
    metrics. The program of every attempt is kept as ``proposals/NNN-<its name>``, so that later ones can go back to it,
    and ``proposals/results.md`` is what the attempt was told of the earlier ones. What a branch inherits from another
    round is numbered apart, as ``proposals/earlier-NNN.md``.

    The tag is the first line of the proposal. An attempt without a proposal counts, without a tag and with a note in
    its metrics, as its score was measured like any other.

    Parameters
    ----------
    command : see :class:`~dreamrsi.commands.Command`.
    files : the files that the command may write beside the proposal; the program's alone if None.
    """

    def __init__(self, command: Command, *, files: Sequence[str] | None = None) -> None:
        self.command = command
        self.files = None if files is None else tuple(files)
        self.name = command.name if files is None else f"{command.name}, files {', '.join(files)}"

    def check(self, task: Task) -> Program:
        """The program of the task.

        Raises
        ------
        UserError
            It has none.
        """
        program = program_of(task)
        if program is None:
            raise UserError(f"task {task.name}: this task has no program for a command to edit; use its moves")
        return program

    def attempt(self, task: Task, files: Files, context: Context) -> Proposal:
        """Let the command write the next proposal and program.

        Raises
        ------
        AgentFailure
            The time was up (status ``timeout``); the exit code was not 0 (``error``); the program is gone, no plain
            file, or too large (``invalid``); nothing was changed (``rejected``).
        UserError
            The task has no program.
        """
        program = self.check(task)
        number = len(context.earlier)
        files = dict(files) if any(attempt.commit for attempt in context.earlier) else _inherited(files)
        files.setdefault(program.path, program.seed)
        for attempt in context.earlier:
            _restore_proposal(files, attempt)
        proposal = f"proposals/{number:03d}.md"
        editable = self.files or (program.path,)
        told = _told(program, files, context)
        with Checkout(Path("workspace").absolute(), {**files, **told}) as checkout:
            (checkout.folder / "proposals").mkdir(exist_ok=True)
            ran = self.command.run(self._prompt(proposal, editable, context), checkout.folder)
            metrics = _metrics(ran)
            text, note = _read_proposal(checkout, proposal)
            tag = None if text is None else tag_of(text.decode())
            undone = checkout.changes({*editable, proposal}) + ([] if note is None else [note])
            if undone:
                metrics["undone"] = undone
            if text is None:
                metrics["note"] = f"{proposal} was not written" if note is None else note
            failure: dict[str, Any] = metrics if text is None else {**metrics, "proposal": text.decode()}
            if ran.problem is not None:
                status: Status = "timeout" if ran.timed_out else "error"
                raise AgentFailure(f"the command {ran.problem}", status, failure, tag)
            written = _read_written(checkout, editable, program.path, failure, tag)
        made = {**files, **written, _KEPT_RESULTS: told[_RESULTS]}
        made[f"proposals/{number:03d}-{os.path.basename(program.path)}"] = made[program.path]
        if text is not None:
            made[proposal] = text
        return Proposal(made, tag, metrics)

    def _prompt(self, proposal: str, editable: Sequence[str], context: Context) -> str:
        guidance = f"4. {_GUIDANCE}: advice drawn from earlier rounds of the search.\n" if context.guidance else ""
        return PROMPT.format(
            seconds=self.command.seconds,
            task=_TASK,
            results=_RESULTS,
            proposals="proposals/",
            guidance=guidance,
            proposal=proposal,
            files=", ".join(editable),
        )


def tag_of(proposal: str) -> str | None:
    """The mechanism that a proposal names: its first line that says something, without markup and shortened."""
    for line in proposal.splitlines():
        words = "".join(c if c.isprintable() else " " for c in line).strip("#*_`->: \t").split()
        if words:
            tag = " ".join(words)
            return tag if len(tag) <= _MAX_TAG else tag[:_MAX_TAG].rpartition(" ")[0] or tag[:_MAX_TAG]
    return None


def _inherited(files: Files) -> dict[str, bytes]:
    """The files of a branch's start, in which what an earlier round left is numbered apart from what the branch writes.

    A later round may start at the best attempt of an earlier one, whose ``proposals/007.md`` becomes
    ``proposals/earlier-007.md``, or a higher number where there are such files already.
    """
    shift = 1 + max((int(found[1]) for name in files if (found := _EARLIER.fullmatch(name))), default=-1)

    def renumber(match: re.Match[str]) -> str:
        return f"{match[1]}earlier-{int(match[2]) + shift:03d}"

    inherited: dict[str, bytes] = {}
    for name, content in files.items():
        found = _NUMBERED.fullmatch(name)
        inherited[f"proposals/earlier-{int(found[1]) + shift:03d}{found[2]}" if found else name] = content
    results = inherited.pop(_KEPT_RESULTS, None)
    if results is not None:
        renumbered = _MENTIONED.sub(renumber, results.decode(errors="replace")).encode()
        inherited[_EARLIER_RESULTS] = inherited.get(_EARLIER_RESULTS, b"") + renumbered
    return inherited


def _restore_proposal(files: dict[str, bytes], attempt: Attempt) -> None:
    """Bring back what a failed attempt had proposed: it left no files, but a proposal in its metrics."""
    agent = attempt.metrics.get("agent")
    text = agent.get("proposal") if isinstance(agent, Mapping) else None
    if isinstance(text, str):
        files.setdefault(f"proposals/{attempt.attempt:03d}.md", text.encode(errors="replace"))


def _told(program: Program, files: Files, context: Context) -> dict[str, bytes]:
    """The files that tell the command about its task."""
    told = {_TASK: program.statement, _RESULTS: results(files, context)}
    if context.guidance is not None:
        told[_GUIDANCE] = context.guidance.text
    return {name: content.encode(errors="replace") for name, content in told.items()}


def results(files: Files, context: Context) -> str:
    """The measured results of a branch, for the command to read: every attempt, also those that left no files."""
    lines = ["# Measured results of the attempts so far", ""]
    if not context.earlier:
        lines += ["None yet: this is the first attempt of its line of work."]
    current = next((a.attempt for a in reversed(context.earlier) if a.commit is not None), None)
    score = "no score" if context.score is None else f"score {context.score!r}"
    lines += [f"The files here are those of {'the start' if current is None else f'attempt {current:03d}'} ({score})."]
    best = max((a.score for a in context.earlier if a.score is not None), default=None)
    for attempt in context.earlier:
        stem = f"proposals/{attempt.attempt:03d}"
        kept = sorted(name for name in files if name.startswith(stem)) or ["no file"]
        lines += ["", f"## Attempt {attempt.attempt:03d}: {attempt.tag or 'without a name'}", ""]
        if attempt.score is None:
            lines += [f"- failed, status {attempt.status}: {attempt.error or 'no reason was given'}"]
        else:
            lines += [f"- score {attempt.score!r}" + (", the best of this line" if attempt.score == best else "")]
        lines += [f"- see {', '.join(kept)}"]
    return "\n".join(lines) + "\n"


def _metrics(ran: Ran) -> dict[str, Any]:
    return {
        "seconds": round(ran.seconds, 3),
        "exitcode": ran.exitcode,
        "output": ran.output,
        "output_bytes": ran.output_bytes,
    }


def _read_proposal(checkout: Checkout, name: str) -> tuple[bytes | None, str | None]:
    """The proposal as valid text; else None, and why one that is there was not taken."""
    try:
        content = checkout.read(name, MAX_PROPOSAL)
    except Unusable as problem:
        return None, None if str(problem) == "is not there" else f"{name} {problem}"
    text = printable(content).strip()
    return (text + "\n").encode() if text else None, None


def _read_written(
    checkout: Checkout, editable: Sequence[str], path: str, metrics: dict[str, Any], tag: str | None
) -> dict[str, bytes]:
    """The files that the command has changed, of those that it may."""
    written: dict[str, bytes] = {}
    for name in editable:
        try:
            content = checkout.read(name, MAX_PROGRAM)
        except Unusable as problem:
            if name != path and name not in checkout.files and str(problem) == "is not there":
                continue
            raise AgentFailure(f"the command left no program: {name} {problem}", "invalid", metrics, tag) from None
        if content != checkout.files.get(name):
            written[name] = content
    if not written:
        files = ", ".join(editable)
        raise AgentFailure(f"the command changed nothing: {files} is as it was", "rejected", metrics, tag)
    return written
