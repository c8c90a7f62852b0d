"""A task whose agents write programs, and such agents. Child processes import it, so it imports little."""

from dreamrsi.agents import Proposal
from dreamrsi.tasks import Evaluation, Program
from toy_task import Toy


class ProgramTask(Toy):
    """Its artifact is a number that a program makes."""

    program = Program("solve.py", "value", "Return a number.", b"def solve(seed): return 2.0\n", seconds=1.0)

    def evaluate(self, files):
        return Evaluation(score=float(files["value"]))


class Writer:
    """An agent that leaves one program after another, and an artifact of its own that claims too much."""

    name = "writer"

    def __init__(self, *sources):
        self.sources = sources

    def attempt(self, task, files, context):
        number = len(context.earlier)
        assert "solve.py" not in files or files["solve.py"] == self.sources[number - 1]
        return Proposal({**files, "solve.py": self.sources[number], "value": b"99"}, metrics={"number": number})


class Gone(Writer):
    """Leaves the program out."""

    def attempt(self, task, files, context):
        return Proposal({"value": b"7"})
