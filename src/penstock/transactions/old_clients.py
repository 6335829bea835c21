"""Errors for clients that are older than the error."""

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidProducerEpoch, ProducerFenced

FENCED_FROM_INIT = 4
"""The first version of InitProducerId whose clients know ProducerFenced."""
FENCED_FROM = 2
"""Likewise of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""


def error_for_version(error: BrokerError, version: int, fenced_from: int) -> BrokerError:
    """A fenced producer that does not know the word learns that its epoch is old."""
    if version < fenced_from and isinstance(error, ProducerFenced):
        return InvalidProducerEpoch()
    return error
