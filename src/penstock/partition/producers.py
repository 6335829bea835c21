"""The producer state of a partition: recognises retries of batches in the log, and fences zombies.

Per producer: its epoch, its last five batches and the first offset of its open transaction. A batch is next in sequence
(append it), a retry of one of the five (respond as before), out of sequence, or fenced.

The table is a function of the log: `record` and `record_marker` also replay it, and a snapshot only shortens that.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from penstock.model.generated_errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from penstock.model.ids import (
    NO_COORDINATOR_EPOCH,
    NO_OFFSET,
    OFFSET_ZERO,
    CoordinatorEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from penstock.model.producers import PRODUCER_ID_MAX, SCHEDULE_IDS_FROM, CompletedTxn, ProducerSnapshot
from penstock.partition.verification import TxnProof, VerificationGuards, precedes

BATCHES_KEPT = 5
"""As many as a producer may have in flight; a retry older than that cannot be recognised."""

SEQUENCE_MAX = 2**31 - 1
PRODUCERS_MAX = 100_000
"""Producers that one partition remembers; at the limit it forgets the tenth of them that is idle longest."""

OPEN_TXNS_MAX = PRODUCERS_MAX // 2
"""Open transactions of one partition, whose producers cannot be forgotten. One that would begin beyond the limit is
refused with NOT_ENOUGH_REPLICAS, which every client retries. Kafka has no such limit, and no limit of memory either."""

RELOAD_GRACE_MS = 15 * 60 * 1000
"""Least time to keep a producer that was read from the log at start, however old its timestamps: it may retry."""

NO_EPOCH = ProducerEpoch(-1)
NO_SEQUENCE = -1


class Duplicate(NamedTuple):
    """Where in the log the batch already is: its retry gets the response of the first append."""

    base_offset: Offset
    last_offset: Offset
    timestamp: int


BatchSeen = tuple[int, int, int, int]
"""One of the last five batches: last sequence, last offset, offset delta, timestamp. A plain tuple, for speed."""


class ProducerEntry:
    """The state of one producer."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "generation", "seen_ms", "timestamp", "txn_first_offset")

    def __init__(self, epoch: ProducerEpoch, generation: int = 0) -> None:
        self.epoch = epoch
        self.generation = generation
        """The table's generation when this entry was made; an entry older than the table is frozen."""
        self.batches: list[BatchSeen] = []
        self.timestamp = -1
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.txn_first_offset = NO_OFFSET
        self.seen_ms = -1

    def copy(self, generation: int) -> "ProducerEntry":
        same = ProducerEntry(self.epoch, generation)
        same.batches = self.batches.copy()
        same.timestamp = self.timestamp
        same.coordinator_epoch = self.coordinator_epoch
        same.txn_first_offset = self.txn_first_offset
        same.seen_ms = self.seen_ms
        return same

    def snapshot(self, producer_id: ProducerId) -> ProducerSnapshot:
        last = self.batches[-1] if self.batches else None
        return ProducerSnapshot(
            producer_id=producer_id,
            epoch=self.epoch,
            last_sequence=last[0] if last else NO_SEQUENCE,
            last_offset=Offset(last[1]) if last else NO_OFFSET,
            offset_delta=last[2] if last else 0,
            timestamp=self.timestamp,
            coordinator_epoch=self.coordinator_epoch,
            txn_first_offset=self.txn_first_offset,
        )


class FrozenProducers:
    """The producers of one partition at one moment, as a snapshot file holds them."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[tuple[ProducerId, ProducerEntry]]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerSnapshot]:
        return (entry.snapshot(producer_id) for producer_id, entry in self._entries)


class ProducerTable:
    """The producers of one partition."""

    __slots__ = ("_committed_to", "_decided", "_entries", "_generation", "_open", "first_unstable", "guards")

    def __init__(self) -> None:
        self.guards = VerificationGuards()
        self._entries: dict[ProducerId, ProducerEntry] = {}
        self._generation = 0
        """How often the table was frozen."""
        self._open: dict[Offset, ProducerId] = {}
        """First offset of each open transaction -> producer id, in order of offset."""
        self._decided: list[tuple[Offset, Offset]] = []
        """Heap of (first offset, marker's offset) of transactions whose marker is not committed yet.

        A committed one leaves the heap when it reaches the top."""
        self._committed_to = OFFSET_ZERO
        """The high watermark, as `advance` was last given it."""
        self.first_unstable: Offset | None = None
        """First offset of the oldest undecided transaction: readers of committed data stop there."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[ProducerId, ProducerEntry]]:
        return iter(self._entries.items())

    def get(self, producer_id: ProducerId) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: int,
        last_offset_delta: int,
        transactional: bool,
    ) -> Duplicate | None:
        """None when the batch may be appended, or the append that it duplicates; raises otherwise.

        An unknown producer may start at any sequence: retention may have deleted its earlier batches.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            if epoch < NO_EPOCH:
                raise InvalidProducerEpoch(f"Epoch of producer {producer_id} is {epoch}, which no coordinator gives")
            if transactional:
                self._check_room()
            return None
        if epoch == entry.epoch:
            batches = entry.batches
            last = batches[-1][0] if batches else NO_SEQUENCE
            if base_sequence != last + 1 and (base_sequence != 0 or last != SEQUENCE_MAX):
                duplicate = self.find_duplicate(entry, base_sequence, last_offset_delta)
                if duplicate is not None:
                    return duplicate
                if epoch != NO_EPOCH:
                    raise OutOfOrderSequenceNumber(
                        f"Out of order sequence number for producer {producer_id}: {base_sequence} "
                        f"(incoming seq. number), {last} (current end sequence number)"
                    )
        elif epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {entry.epoch}"
            )
        elif base_sequence != 0 and entry.epoch != NO_EPOCH:
            raise OutOfOrderSequenceNumber(
                f"Invalid sequence number for new epoch of producer {producer_id}: {epoch} (request epoch), "
                f"{base_sequence} (seq. number), {entry.epoch} (current producer epoch)"
            )
        if entry.txn_first_offset >= 0:
            if not transactional:
                raise InvalidTxnState(f"Expected transactional write from producer {producer_id}")
        elif transactional:
            self._check_room()
        return None

    def check_redirected(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: int,
        last_offset_delta: int,
        transactional: bool,
        *,
        first_sequence: int,
        begins_at: int,
    ) -> Duplicate | None:
        """`check` for a batch of a drained partition: its sequences continue what either partition has.

        `first_sequence` is the next one by the drained partition's own table, which is ahead of this one where it has
        accepted records since it was drained before; -1 where it does not know the producer's epoch. `begins_at` is for
        a producer that neither knows; -1 allows any.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            expected = begins_at if first_sequence < 0 else first_sequence
        elif epoch < entry.epoch or first_sequence < 0:
            expected = NO_SEQUENCE
        elif epoch > entry.epoch:
            expected = first_sequence
        else:
            last = entry.batches[-1][0] if entry.batches else NO_SEQUENCE
            is_ahead = last == NO_SEQUENCE or precedes((last + 1) & SEQUENCE_MAX, first_sequence)
            expected = first_sequence if is_ahead else NO_SEQUENCE
        if expected < 0:
            return self.check(producer_id, epoch, base_sequence, last_offset_delta, transactional)
        if base_sequence != expected:
            if entry is not None and epoch == entry.epoch:
                duplicate = self.find_duplicate(entry, base_sequence, last_offset_delta)
                if duplicate is not None:
                    return duplicate
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {producer_id}: {base_sequence} "
                f"(incoming seq. number), {expected} (expected)"
            )
        if entry is not None and entry.txn_first_offset >= 0:
            if not transactional:
                raise InvalidTxnState(f"Expected transactional write from producer {producer_id}")
        elif transactional:
            self._check_room()
        return None

    def check_scheduled(
        self, producer_id: ProducerId, epoch: ProducerEpoch, base_sequence: int, last_offset_delta: int
    ) -> Offset | None:
        """`check` for a batch that a schedule delivers: where it ends at most if the log has it, or None.

        What ends at or below the known sequence is a duplicate, however long ago it was appended: one leader of the
        schedule sends it after another.
        """
        assert producer_id >= SCHEDULE_IDS_FROM, f"producer id {producer_id} is not that of a schedule"
        entry = self._entries.get(producer_id)
        known = entry is not None and epoch == entry.epoch and bool(entry.batches)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {entry.epoch}"
            )
        last_known = entry.batches[-1] if entry is not None and known else None
        expected = 0 if last_known is None else (last_known[0] + 1) & SEQUENCE_MAX
        if base_sequence == expected:
            return None
        last = (base_sequence + last_offset_delta) & SEQUENCE_MAX
        if last_known is not None and precedes(last, expected):
            return Offset(last_known[1] + 1)
        raise OutOfOrderSequenceNumber(
            f"Out of order sequence number for producer {producer_id}: {base_sequence} "
            f"(incoming seq. number), {expected} (expected)"
        )

    def _check_room(self) -> None:
        """Refuse a batch that would begin a transaction if too many are open."""
        if len(self._open) >= OPEN_TXNS_MAX:
            raise NotEnoughReplicas(f"{OPEN_TXNS_MAX} transactions are open in this partition, no more can begin")

    @staticmethod
    def find_duplicate(entry: ProducerEntry, base_sequence: int, last_offset_delta: int) -> Duplicate | None:
        """Where the log has a batch of a producer's present epoch, if it is one of the last five."""
        last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MAX
        for sequence, last_offset, offset_delta, timestamp in entry.batches:
            if sequence == last_sequence and offset_delta == last_offset_delta:
                return Duplicate(Offset(last_offset - offset_delta), Offset(last_offset), timestamp)
        return None

    def record(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        base_sequence: int,
        last_offset_delta: int,
        transactional: bool,
        base_offset: Offset,
        timestamp: int,
        now_ms: int,
    ) -> None:
        """Record a batch that was appended or replayed. `timestamp` is the batch's greatest."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._admit(producer_id, epoch)
        else:
            if entry.generation != self._generation:
                entry = self._entries[producer_id] = entry.copy(self._generation)
            if entry.epoch != epoch:
                entry.epoch = epoch
                entry.batches.clear()
        batches = entry.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MAX if base_sequence >= 0 else NO_SEQUENCE
        batches.append((last_sequence, base_offset + last_offset_delta, last_offset_delta, timestamp))
        entry.timestamp = timestamp
        entry.seen_ms = now_ms
        if transactional and entry.txn_first_offset < 0:
            entry.txn_first_offset = base_offset
            self._open[base_offset] = producer_id
            self._find_first_unstable()
            self.guards.drop(producer_id)

    def _admit(self, producer_id: ProducerId, epoch: ProducerEpoch) -> ProducerEntry:
        entries = self._entries
        if len(entries) >= PRODUCERS_MAX:
            silent = sorted(
                (e.seen_ms, id_) for id_, e in entries.items() if e.txn_first_offset < 0 and id_ < SCHEDULE_IDS_FROM
            )
            for _, id_ in silent[: PRODUCERS_MAX // 10]:
                del entries[id_]
        entry = entries[producer_id] = ProducerEntry(epoch, self._generation)
        return entry

    def is_open(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether a transaction that this producer began at this epoch is open here."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def check_first(self, producer_id: ProducerId, epoch: ProducerEpoch, base_sequence: int, proof: TxnProof) -> None:
        """Refuse a valid batch that would be the first of a transaction here, unless its proof allows that."""
        if not proof.holds(self.guards, producer_id, epoch):
            raise proof.refusal(self.guards)
        if producer_id in self._entries:
            return
        if proof.adds and base_sequence != 0:
            raise OutOfOrderSequenceNumber(f"Invalid sequence number for new producer {producer_id}: {base_sequence}")
        guard = proof.guard
        if guard is not None and guard.epoch == epoch and guard.lowest_sequence != base_sequence:
            raise OutOfOrderSequenceNumber(
                f"Out of order sequence number for producer {producer_id}: {base_sequence} "
                f"(incoming seq. number), {guard.lowest_sequence} (earliest seen sequence)"
            )

    def check_unsequenced(self, producer_id: ProducerId, epoch: ProducerEpoch, proof: TxnProof) -> None:
        """Refuse a coordinator's write to a transaction that is not open here and whose proof does not hold."""
        if proof.error is not None:
            raise proof.error
        if not self.is_open(producer_id, epoch) and not proof.holds(self.guards, producer_id, epoch):
            self.check_epoch(producer_id, epoch)
            raise InvalidTxnState("Offset commit was not part of an ongoing transaction")

    def check_coordinator(self, producer_id: ProducerId, coordinator_epoch: CoordinatorEpoch) -> None:
        """Refuse what a coordinator says about a producer whose transactions a later coordinator has ended here."""
        entry = self._entries.get(producer_id)
        if entry is not None and coordinator_epoch < entry.coordinator_epoch:
            raise NotCoordinator(
                f"Coordinator epoch of producer {producer_id} is {coordinator_epoch}, "
                f"which is smaller than the last seen {entry.coordinator_epoch}"
            )

    def check_epoch(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        """Refuse a coordinator's write as `check` does, except that such a write has no sequence to check."""
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {entry.epoch}"
            )
        if entry is None or entry.txn_first_offset < 0:
            self._check_room()

    def check_marker(
        self, producer_id: ProducerId, epoch: ProducerEpoch, coordinator_epoch: CoordinatorEpoch, *, bumps: bool = False
    ) -> None:
        """Refuse a marker of a fenced coordinator epoch or producer epoch.

        `bumps` says that it is a marker of transaction version 2, whose epoch is one more than that of the records: a
        marker with the epoch of the open transaction is a late one of the transaction before.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch or (bumps and epoch == entry.epoch and entry.txn_first_offset >= 0):
            raise InvalidProducerEpoch(
                f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {entry.epoch}"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"Invalid coordinator epoch for producerId {producer_id}: {coordinator_epoch} (zombie), "
                f"{entry.coordinator_epoch} (current)"
            )

    def record_marker(
        self,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        coordinator_epoch: CoordinatorEpoch,
        offset: Offset,
        aborted: bool,
        timestamp: int,
        now_ms: int,
    ) -> CompletedTxn | None:
        """End the producer's open transaction with the marker at `offset`; None when it has none in this partition.

        Its records stay unstable until the high watermark has passed the marker (`advance`).
        """
        self.guards.drop(producer_id)
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._admit(producer_id, epoch)
        else:
            if entry.generation != self._generation:
                entry = self._entries[producer_id] = entry.copy(self._generation)
            if entry.epoch != epoch:
                entry.epoch = epoch
                entry.batches.clear()
        entry.coordinator_epoch = coordinator_epoch
        entry.timestamp = timestamp
        entry.seen_ms = now_ms
        first = entry.txn_first_offset
        if first < 0:
            return None
        entry.txn_first_offset = NO_OFFSET
        del self._open[first]
        if offset >= self._committed_to:
            heappush(self._decided, (first, offset))
        last_stable = next(iter(self._open), Offset(offset + 1))
        self._find_first_unstable()
        return CompletedTxn(producer_id, first, offset, aborted, last_stable)

    def advance(self, high_watermark: Offset) -> None:
        """Release the records of transactions whose markers are below the high watermark."""
        if high_watermark > self._committed_to:
            self._committed_to = high_watermark
            if self._decided:
                self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        """Open transactions begin in order of offset, so the first key is the least; decided ones end in any order."""
        first = next(iter(self._open), None)
        decided = self._decided
        while decided and decided[0][1] < self._committed_to:
            heappop(decided)
        if decided and (first is None or decided[0][0] < first):
            first = decided[0][0]
        self.first_unstable = first

    def expire(self, now_ms: int, idle_ms_max: int) -> int:
        """Forget producers idle for `idle_ms_max` that have no open transaction; returns how many.

        Those of schedules stay: a fire may be sent again whenever its partition has another leader.
        """
        entries = self._entries
        horizon = now_ms - idle_ms_max
        self.guards.expire(horizon)
        gone = [
            id_
            for id_, entry in entries.items()
            if entry.seen_ms <= horizon and entry.txn_first_offset < 0 and id_ < SCHEDULE_IDS_FROM
        ]
        for id_ in gone:
            del entries[id_]
        return len(gone)

    def freeze(self) -> "FrozenProducers":
        """An immutable view of the table, to be read later or in another thread; later changes copy their entry."""
        self._generation += 1
        return FrozenProducers(list(self._entries.items()))

    def of_clients(self) -> "FrozenProducers":
        """`freeze` without the producers of partitions that are drained into this one."""
        self._generation += 1
        return FrozenProducers([(id_, entry) for id_, entry in self._entries.items() if id_ <= PRODUCER_ID_MAX])

    def snapshot(self) -> list[ProducerSnapshot]:
        """The table as a snapshot file holds it: of the five batches, the last one."""
        return [entry.snapshot(producer_id) for producer_id, entry in self._entries.items()]

    def load(self, entries: Iterable[ProducerSnapshot], now_ms: int, idle_ms_max: int) -> None:
        """Replace the table by a snapshot; the caller replays the log after it."""
        self.clear()
        for saved in entries:
            entry = ProducerEntry(saved.epoch, self._generation)
            if saved.last_offset >= 0:
                entry.batches.append((saved.last_sequence, saved.last_offset, saved.offset_delta, saved.timestamp))
            entry.timestamp = saved.timestamp
            entry.coordinator_epoch = saved.coordinator_epoch
            entry.txn_first_offset = saved.txn_first_offset if saved.txn_first_offset >= 0 else NO_OFFSET
            entry.seen_ms = seen_at_load(saved.timestamp, now_ms, idle_ms_max)
            self._entries[saved.producer_id] = entry
        opened = [(entry.txn_first_offset, id_) for id_, entry in self._entries.items() if entry.txn_first_offset >= 0]
        self._open.update(sorted(opened))
        self._find_first_unstable()

    def clear(self) -> None:
        self.guards.clear()
        self._entries.clear()
        self._open.clear()
        self._decided.clear()
        self._committed_to = OFFSET_ZERO
        self.first_unstable = None


def seen_at_load(timestamp: int, now_ms: int, idle_ms_max: int) -> int:
    """When a producer that was read from the log counts as last seen.

    Timestamps are the client's: a producer that writes old ones must not expire between a crash and its retry.
    """
    return max(min(timestamp, now_ms), now_ms - idle_ms_max + min(idle_ms_max, RELOAD_GRACE_MS))
