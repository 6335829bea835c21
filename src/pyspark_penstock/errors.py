"""Base classes of the errors that reach a Spark user.

All are PySpark error classes, so ``except PySparkException`` catches them and `getCondition` names them; refusals of
options and schemas are ValueErrors as well. Their message is a plain sentence: unlike PySpark's own, it does not repeat
the condition. They survive pickling, by their message alone.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import PySparkException, PySparkRuntimeError, PySparkValueError


class PenstockError(PySparkException):
    """Any error of this package."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        # BaseException does not store a message passed by keyword.
        self.args = (message,)

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # PySpark's own state holds its whole catalog of messages.
        return type(self), self.args

    def getCondition(self) -> str:
        """The error's name for programs, such as ``PENSTOCK_WRONG_OPTION``."""
        words = re.findall(r"[A-Z]+[a-z0-9]*", type(self).__name__)
        return "_".join(["PENSTOCK", *(word.upper() for word in words if word != "Penstock")])


class WrongOption(PenstockError, PySparkValueError):
    """A refused option or schema."""


class PenstockRuntimeError(PenstockError, PySparkRuntimeError):
    """A failure of a valid query."""


class CorruptBatch(PenstockRuntimeError):
    """A batch does not match its checksum: it was corrupted after its producer sent it."""
