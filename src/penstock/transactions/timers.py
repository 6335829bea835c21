"""What a coordinator of transactions wakes itself up for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LateCheck:
    """Look for transactions past their time; runs while any transaction is open."""


@dataclass(frozen=True, slots=True)
class ExpiryCheck:
    """Look for transactional ids that nobody uses; runs always."""


@dataclass(frozen=True, slots=True)
class CompletionRetry:
    """The markers are written, and the log did not take the record that says so: try again."""

    transactional_id: str
    producer_id: int
    epoch: int
