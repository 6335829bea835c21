"""From a wire code back to what it means."""

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import ERRORS

ERRORS_BY_CODE: dict[int, type[BrokerError]] = {error.code: error for error in ERRORS}


def error_by_code(code: int) -> type[BrokerError] | None:
    """The failure a code stands for; None for 0, which is success, and for codes the protocol does not have."""
    return ERRORS_BY_CODE.get(code)
