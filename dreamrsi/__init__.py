"""dreamrsi: replay exploration policies on recorded discovery runs, and see where the replay is blind."""

from dreamrsi import policies
from dreamrsi.errors import IllegalBatch, PolicyError, RecordError, UserError
from dreamrsi.exports import Exports
from dreamrsi.objective import Outcome, ScoreMap, history, outcome, scaled_betas, score, score_map, select, value
from dreamrsi.prefix import OPEN, Branch, Prefix
from dreamrsi.record import Attempt, Header, Root
from dreamrsi.replay import Episode, replay, replay_all
from dreamrsi.tree import Tree

__version__ = "0.1.0"
__all__ = [
    "OPEN",
    "Attempt",
    "Branch",
    "Episode",
    "Exports",
    "Header",
    "IllegalBatch",
    "Outcome",
    "PolicyError",
    "Prefix",
    "RecordError",
    "Root",
    "ScoreMap",
    "Tree",
    "UserError",
    "history",
    "outcome",
    "policies",
    "replay",
    "replay_all",
    "scaled_betas",
    "score",
    "score_map",
    "select",
    "value",
]
