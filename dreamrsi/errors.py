"""Errors that a user can mend. The command line prints their text alone and exits with code 2."""


class UserError(ValueError):
    """Something the user gave is wrong; the text says what, where and what to do."""


class RecordError(UserError):
    """A tree file that is malformed or contradicts itself."""


class PolicyError(UserError):
    """A policy that raised, could not be loaded, or broke its contract."""


class IllegalBatch(PolicyError):
    """A batch that no policy may return; names the policy, the round and the pick."""
