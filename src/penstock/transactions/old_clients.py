"""Errors for clients that are older than the error."""

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidProducerEpoch, ProducerFenced

FENCED_FROM_INIT = 4
"""The first version of InitProducerId with PRODUCER_FENCED."""
FENCED_FROM = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn with PRODUCER_FENCED."""


def error_for_version(error: BrokerError, version: int, fenced_from: int) -> BrokerError:
    """Replace PRODUCER_FENCED by INVALID_PRODUCER_EPOCH for versions without it."""
    if version < fenced_from and isinstance(error, ProducerFenced):
        return InvalidProducerEpoch()
    return error
