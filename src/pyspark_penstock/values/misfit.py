"""Why a row's value is null: reasons that fit a column of strings."""

from __future__ import annotations

REASON_CHARS_MAX = 300
"""A reason may quote a value, and a value may be long."""


class Misfit(Exception):
    """A value that is not what its schema says."""


class Unfit(Exception):
    """Some of the values that a column was to be built of do not fit it."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} values do not fit their column")
        self.reasons = reasons
        """By the place of the value."""


def reason_of(error: Exception) -> str:
    """The words of an error, cut to a length and without what UTF-8 cannot hold."""
    words = str(error) if isinstance(error, Misfit) else f"{type(error).__name__}: {error}"
    return words[:REASON_CHARS_MAX].encode("utf-8", "backslashreplace").decode()
