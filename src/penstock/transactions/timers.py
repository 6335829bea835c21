"""The timers of the transaction coordinator."""

from dataclasses import dataclass

from penstock.model.ids import ProducerEpoch, ProducerId


@dataclass(frozen=True, slots=True)
class LateCheck:
    """Check for timed-out transactions; set while any transaction is open."""


@dataclass(frozen=True, slots=True)
class ExpiryCheck:
    """Check for unused transactional ids; always set."""


@dataclass(frozen=True, slots=True)
class CompletionRetry:
    """Retry the completion record of a transaction whose markers are written."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
