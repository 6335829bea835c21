"""Guards between the verification of a transaction and the append that relies on it (KIP-890).

Before a partition accepts a transaction's first batch, the transaction coordinator has to confirm that the partition is
part of the transaction. The coordinator may be on another broker, and while its response is on the way the transaction
may end: its marker is written, and a batch appended behind it would belong to no transaction, or hang in the next one.
So the partition hands out a guard before the question is sent. A marker drops it, and the append demands that the same
guard still holds.
"""

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidTxnState, NotLeaderOrFollower
from penstock.model.ids import ProducerEpoch, ProducerId

GUARDS_MAX = 10_000
"""Producers of one partition with a verification under way; beyond it the oldest guard is dropped."""

SEQUENCES = 2**31
"""Sequences wrap around: the one after the greatest is 0."""

NO_EPOCH = -1


class VerificationGuard:
    """Holds from the question to the append, unless a marker comes between. Compared by identity only."""

    __slots__ = ("begun_ms", "epoch", "issuer", "lowest_sequence", "producer_id")

    def __init__(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: int,
        begun_ms: int,
        issuer: object = None,
    ) -> None:
        self.issuer = issuer
        """Of the partition's guards that handed it out: see `VerificationGuards.handed_out`."""
        self.producer_id = producer_id
        self.epoch = epoch
        """The newest producer epoch that asked with it, right or wrong."""
        self.lowest_sequence = sequence
        """Of the batches of that epoch: the transaction here begins with this one.

        It may have failed and be on its way again. If a later batch were appended before it, its retry would be out of
        sequence for ever."""
        self.begun_ms = begun_ms


class VerificationGuards:
    """The guards of one partition: at most one per producer id."""

    __slots__ = ("_guards", "_issuer")

    def __init__(self) -> None:
        self._guards: dict[int, VerificationGuard] = {}
        self._issuer = object()

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: int, now_ms: int) -> VerificationGuard:
        """A guard for a question that is about to be sent, for a batch that begins with `sequence`.

        All requests of a producer that are in flight share it, whatever their epochs: which of them is right is for the
        coordinator to say, and a marker voids them all.
        """
        guard = self._guards.get(producer_id)
        if guard is None:
            if len(self._guards) >= GUARDS_MAX:
                del self._guards[next(iter(self._guards))]
            guard = self._guards[producer_id] = VerificationGuard(producer_id, epoch, sequence, now_ms, self._issuer)
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch and precedes(sequence, guard.lowest_sequence):
            guard.lowest_sequence = sequence
        return guard

    def holds(self, guard: VerificationGuard) -> bool:
        """Whether nothing has ended the producer's transaction since the guard was handed out."""
        return self._guards.get(guard.producer_id) is guard

    def handed_out(self, guard: VerificationGuard) -> bool:
        """Whether a guard is of these guards, and not of a replica that served the partition here before.

        A drained partition that becomes a ghost, or returns from that, is another replica on the same broker.
        """
        return guard.issuer is self._issuer

    def drop(self, producer_id: ProducerId) -> None:
        """Drop a producer's guard: a marker was written, or its transaction has begun here."""
        self._guards.pop(producer_id, None)

    def expire(self, horizon_ms: int) -> None:
        """Drop guards that were handed out at or before this time: their batches never came again."""
        guards = self._guards
        for producer_id in [id_ for id_, guard in guards.items() if guard.begun_ms <= horizon_ms]:
            del guards[producer_id]

    def clear(self) -> None:
        """Drop every guard: this replica does not lead any more, or its log was truncated."""
        self._guards.clear()


def precedes(sequence: int, other: int) -> bool:
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2


class TxnProof:
    """Why a transactional batch may be, or must not be, the first of its transaction in a partition."""

    __slots__ = ("adds", "epoch", "error", "guard", "required")

    def __init__(
        self,
        guard: VerificationGuard | None = None,
        epoch: int = NO_EPOCH,
        *,
        adds: bool = False,
        error: BrokerError | None = None,
        required: bool = True,
    ) -> None:
        self.guard = guard
        """None where the coordinator was not asked, because the transaction was open."""
        self.epoch = epoch
        """The producer epoch that the coordinator was asked about."""
        self.adds = adds
        """Whether the client leaves it to the broker to add partitions (transaction version 2).

        No other transaction has its epoch then, so that sequences begin at 0 in every partition."""
        self.error = error
        """Why the coordinator did not confirm the partition."""
        self.required = required

    def holds(self, guards: VerificationGuards, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether a producer's transaction may begin with this batch.

        A batch that was not verified because the transaction was open comes too late when it is not any more.
        """
        if not self.required:
            return True
        guard = self.guard
        return guard is not None and (guard.producer_id, self.epoch) == (producer_id, epoch) and guards.holds(guard)

    def refusal(self, guards: VerificationGuards) -> BrokerError:
        """The error of a batch for which it does not hold: to be sent and verified again, where the partition was
        another replica when it was verified."""
        if self.guard is not None and self.guard.issuer is not None and not guards.handed_out(self.guard):
            return NotLeaderOrFollower("the partition has another leader since the batch was verified")
        return InvalidTxnState("Record was not part of an ongoing transaction")


WAS_OPEN = TxnProof()
"""For a batch of a transaction that was open in its partition when the request arrived."""

NOT_REQUIRED = TxnProof(required=False)
"""For clients that name their partitions, where `transaction.partition.verification.enable` is off."""
