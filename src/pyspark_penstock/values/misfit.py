"""Reasons why a row's value is null, for a column of strings."""

from __future__ import annotations

REASON_CHARS_MAX = 300
"""A reason may quote a value, and a value may be long."""


class Misfit(Exception):
    """A value that does not fit its schema."""


class Unfit(Exception):
    """Some values do not fit the column that is built of them."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} values do not fit their column")
        self.reasons = reasons
        """By the index of the value."""


def reason_of(error: Exception) -> str:
    """The message of an error, shortened and as valid UTF-8."""
    text = str(error) if isinstance(error, Misfit) else f"{type(error).__name__}: {error}"
    return text[:REASON_CHARS_MAX].encode("utf-8", "backslashreplace").decode()
