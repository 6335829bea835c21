"""Expected failures are types that know their wire code; anything else is a bug.

The classes themselves, one per protocol error, are in `penstock.model.generated_errors`.
"""

import re
from collections.abc import Sequence

UNKNOWN_SERVER_ERROR = -1


class BrokerError(Exception):
    """A failure the protocol has a code for. Raise it with a message where the reader learns more from one."""

    code: int = UNKNOWN_SERVER_ERROR
    name: str = "UNKNOWN_SERVER_ERROR"
    retriable: bool = False
    record_errors: Sequence[tuple[int, str]] | None = None
    """Records of a refused batch, by index, and their faults. Produce tells its message only where this is set."""
    log_start: int = -1
    """Where the log begins that refused a batch, when the batch got as far as the log."""

    def __init_subclass__(cls, *, code: int | None = None, retriable: bool = False, name: str = "") -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code
            cls.retriable = retriable
            cls.name = name or re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()

    @property
    def wire_message(self) -> str:
        """What the client is told: this failure's own words, or the general meaning of its code."""
        return str(self) or type(self).meaning()

    @classmethod
    def meaning(cls) -> str:
        return " ".join((cls.__doc__ or "").split())


def wire_error(error: BaseException) -> tuple[int, str]:
    """The code and message a client gets for a failure: the only place where one becomes the other."""
    if isinstance(error, BrokerError):
        return error.code, error.wire_message
    return UNKNOWN_SERVER_ERROR, "The server experienced an unexpected error when processing the request."
