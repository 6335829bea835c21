"""How a command fails: one line that says what and where, and one that says what to do."""

from __future__ import annotations

from collections.abc import Sequence


class Failure(Exception):
    """Ends the command with exit code 1. `more` are further lines of the same kind as the first."""

    def __init__(self, what: str, hint: str = "", *, more: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.hint = hint
        self.lines = (what, *more)


def failure_in_lines(error: Exception, hint: str = "") -> Failure:
    """A failure for an error whose text has several lines, as Spark's have."""
    first, *more = str(error).splitlines() or [type(error).__name__]
    return Failure(first, hint, more=more)
