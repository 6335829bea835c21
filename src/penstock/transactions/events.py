"""What the coordinator of transactions remembers: one value per record of `__transaction_state`.

The key of a record is the transactional id, and the latest of a key counts.
"""

from dataclasses import dataclass

from penstock.transactions.state import Transaction


@dataclass(frozen=True, slots=True)
class TransactionSaved:
    """A transactional id is now this."""

    transaction: Transaction

    @property
    def transactional_id(self) -> str:
        return self.transaction.transactional_id


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    """There is no such transactional id any more: the tombstone of its key."""

    transactional_id: str


TxnEvent = TransactionSaved | TransactionForgotten
