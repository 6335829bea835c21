"""The events of the transaction coordinator: one per record of `__transaction_state`.

The key of a record is the transactional id, and the latest of a key counts.
"""

from dataclasses import dataclass

from penstock.transactions.state import Transaction


@dataclass(frozen=True, slots=True)
class TransactionSaved:
    """The new state of a transactional id."""

    transaction: Transaction

    @property
    def transactional_id(self) -> str:
        return self.transaction.transactional_id


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    """The tombstone of a transactional id."""

    transactional_id: str


TxnEvent = TransactionSaved | TransactionForgotten
