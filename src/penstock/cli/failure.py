"""How a command fails: one line that says what and where, and one that says what to do."""

from __future__ import annotations


class Failure(Exception):
    """Ends the command with exit code 1."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint
