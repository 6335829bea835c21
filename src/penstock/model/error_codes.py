"""Maps error codes to exception types."""

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import ERRORS

ERRORS_BY_CODE: dict[int, type[BrokerError]] = {error.code: error for error in ERRORS}
