"""Expected failures are exception types with an error code; any other exception is a bug.

The classes themselves, one per protocol error, are in `penstock.model.generated_errors`.
"""

import re
from collections.abc import Sequence

from penstock.model.ids import NO_OFFSET, Offset

UNKNOWN_SERVER_ERROR = -1


class BrokerError(Exception):
    """An error of the Kafka protocol. Raise it with a message if that tells the client more than the code."""

    code: int = UNKNOWN_SERVER_ERROR
    name: str = "UNKNOWN_SERVER_ERROR"
    retriable: bool = False
    record_errors: Sequence[tuple[int, str]] | None = None
    """Records of a rejected batch, by index, and their faults. Produce sends the message only if this is set."""
    log_start: Offset = NO_OFFSET
    """The start offset of the log that rejected a batch, if the batch got as far as the log."""

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool = False, name: str = "") -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code
            cls.retriable = retriable
            cls.name = name or re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()

    @property
    def wire_message(self) -> str:
        """The message for the client: the error's own, or the general meaning of its code."""
        return str(self) or type(self).meaning()

    @classmethod
    def meaning(cls) -> str:
        return " ".join((cls.__doc__ or "").split())


def wire_error(error: BaseException) -> tuple[int, str]:
    """The error code and message of an exception for the client."""
    if isinstance(error, BrokerError):
        return error.code, error.wire_message
    return UNKNOWN_SERVER_ERROR, "The server experienced an unexpected error when processing the request."
