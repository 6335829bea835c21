"""Rules for a partition whose records are written to another one, because its topic has fewer active partitions.

A partition p that is *drained* accepts no records. Its leader restamps every batch with a producer id that is derived
from the client's and p, and hands it to the leader of the target q, which checks its sequence, appends it and responds
with the offset in q. Recovery, followers and snapshots of q see an ordinary producer.

Three facts keep a retry from being written twice, or a record from being lost:

- p's producer table is frozen: it knows the batches that p itself has, and the sequence that q has to continue.
- p hands over nothing before a record of its leader epoch is committed (the *barrier*, a control batch). Until then
  the table may know batches that the next leader of p will not have, or lack some that it will.
- p's leader numbers what it sends. q accepts nothing of a producer that was overtaken by its marker, and nothing of an
  older leader of p. So a batch that was delayed cannot follow the marker that ended its transaction.

A partition that *resumes* first has its target append a fence. From then on the target accepts nothing of older leader
epochs of p. p appends an empty batch for every batch of its producers that the target has, as compaction leaves one, so
that its own log knows them, and accepts records again.
"""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from penstock.model.batch import NO_PRODUCER_ID
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidRecord,
    NotEnoughReplicas,
    NotLeaderOrFollower,
)
from penstock.model.ids import NO_LEADER_EPOCH, OFFSET_ZERO, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from penstock.model.producers import DERIVED_BITS, PRODUCER_ID_MAX
from penstock.model.topic import NO_PARTITION, PartitionState
from penstock.partition.producers import NO_SEQUENCE, SEQUENCE_MAX, Duplicate, ProducerEntry, ProducerTable
from penstock.partition.verification import TxnProof, precedes

PARTITION_MAX = 2**22 - 1
PRODUCERS_REMEMBERED_MAX = 10_000
"""Producers whose last requests a target remembers."""
BEGUN_MAX = 10_000
"""Producers new to a drained partition whose first sequences it remembers."""
BEGUN_MS_MAX = 10 * 60 * 1000
"""How long it does so: longer than clients try to deliver a batch, and less than a target remembers a producer."""
VERIFIED_MAX = 10_000
"""Producers whose open transactions a drained partition remembers; one that is forgotten is verified again."""


def derived_id(producer_id: ProducerId, partition: int) -> ProducerId:
    """The producer id under which the target has the batches of a producer of `partition`."""
    assert producer_id <= PRODUCER_ID_MAX, f"producer id {producer_id} is derived already"
    assert 0 <= partition <= PARTITION_MAX, f"no producer ids are derived for partition {partition}"
    return ProducerId(-1) if producer_id < 0 else ProducerId((partition + 1) << DERIVED_BITS | producer_id)


def is_derived(producer_id: ProducerId) -> bool:
    return producer_id > PRODUCER_ID_MAX


def source_of(producer_id: ProducerId) -> tuple[ProducerId, int]:
    """The client's producer id and the partition that a derived producer id was made of."""
    assert is_derived(producer_id), f"producer id {producer_id} is not derived"
    return ProducerId(producer_id & PRODUCER_ID_MAX), (producer_id >> DERIVED_BITS) - 1


class Handover(NamedTuple):
    """How a drained partition hands a batch to its target."""

    number: int
    producer_id: ProducerId
    """Derived, or -1."""
    first_sequence: int
    """The sequence after the last one that the drained partition knows of the producer's epoch; -1: it knows none."""
    begins_at: int
    """The sequence that a producer which neither partition knows has to begin with; -1: any."""


class Drain:
    """The leader of a drained partition, in one leader epoch."""

    __slots__ = (
        "_begun",
        "_numbers",
        "_verified",
        "barrier",
        "is_ending",
        "is_ghost",
        "leader_epoch",
        "life",
        "partition",
        "since",
        "target",
    )

    def __init__(
        self,
        *,
        partition: int,
        target: int,
        leader_epoch: LeaderEpoch,
        life: Offset = OFFSET_ZERO,
        since: LeaderEpoch = NO_LEADER_EPOCH,
        numbers: Iterator[int] | None = None,
    ) -> None:
        """`numbers` are the target's, for a ghost: its leader is the target's, and has no log to append to."""
        assert partition != target, f"partition {partition} cannot be drained into itself"
        self.partition = partition
        self.target = target
        self.leader_epoch = leader_epoch
        self.life = life
        """The log end at first: numbers count from there. See `Source.life`."""
        self.barrier: Offset | None = None
        """The end of the first batch of this leader epoch; none before it is appended."""
        self.since = since
        """The leader epoch from which on the log has no records of clients; -1: not known."""
        self.is_ending = False
        """Whether nothing is appended to the log any more, because the controller is to make the partition a ghost."""
        self.is_ghost = numbers is not None
        self._numbers = count(1) if numbers is None else numbers
        self._begun: dict[ProducerId, tuple[ProducerEpoch, int, int]] = {}
        """Epoch and lowest sequence of producers that this partition does not know, without transactions, and when it
        was seen: the first batch may be refused or lost on its way, and a later one must not take its place.
        """
        self._verified: dict[ProducerId, tuple[ProducerEpoch, int]] = {}
        """Producers whose transaction is known to include this partition, until its marker comes, and the sequence that
        it begins with: the first batch may be lost on its way to the target, and a later one must not take its place.
        """

    def next_number(self) -> int:
        """Numbers what is sent to the target, in order."""
        return next(self._numbers)

    def check_ready(self, high_watermark: Offset) -> None:
        """Refuse to hand anything over before the barrier is committed."""
        if self.barrier is None or high_watermark < self.barrier:
            raise NotEnoughReplicas("the partition's last records are not committed yet, after which it is drained")

    def note(
        self, producers: ProducerTable, producer_id: ProducerId, epoch: ProducerEpoch, sequence: int, now_ms: int
    ) -> None:
        """Remember where a producer that this partition does not know begins, before its batch can be refused."""
        if producer_id < 0 or sequence < 0 or producers.get(producer_id) is not None:
            return
        found = self._begun.get(producer_id)
        if found is not None and epoch <= found[0] and now_ms - found[2] < BEGUN_MS_MAX:
            if epoch == found[0] and precedes(sequence, found[1]):
                self._begun[producer_id] = epoch, sequence, found[2]
            return
        self._begun.pop(producer_id, None)
        if len(self._begun) >= BEGUN_MAX:
            del self._begun[next(iter(self._begun))]
        self._begun[producer_id] = epoch, sequence, now_ms

    def forget(self, producer_id: ProducerId) -> None:
        """Its first batch is committed in the target, or refused for good: the producer may go on with a later one."""
        self._begun.pop(producer_id, None)

    def is_verified(self, producers: ProducerTable, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether the producer's open transaction includes this partition, as far as is known without asking."""
        verified = self._verified.get(producer_id)
        return (verified is not None and verified[0] == epoch) or producers.is_open(producer_id, epoch)

    def hand_over(
        self,
        producers: ProducerTable,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        sequence: int,
        last_offset_delta: int,
        *,
        transactional: bool,
        proof: TxnProof | None,
    ) -> Duplicate | Handover:
        """How to hand a batch over, or where this partition has it already; raises why the batch is refused."""
        if producer_id < 0:
            return Handover(self.next_number(), ProducerId(-1), NO_SEQUENCE, NO_SEQUENCE)
        entry = producers.get(producer_id)
        first = begins = NO_SEQUENCE
        if entry is not None:
            if epoch < entry.epoch:
                raise InvalidProducerEpoch(
                    f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen {entry.epoch}"
                )
            first = 0
            if epoch == entry.epoch:
                duplicate = producers.find_duplicate(entry, sequence, last_offset_delta)
                if duplicate is not None:
                    return duplicate
                first = next_sequence(entry)
        if transactional and not self.is_verified(producers, producer_id, epoch):
            assert proof is not None, f"a transactional batch of {producer_id} without proof"
            if proof.error is not None:
                raise proof.error
            if not proof.holds(producers.guards, producer_id, epoch):
                if proof.guard is None:
                    # The transaction was open for the leader that this broker was then, if no marker came since. The
                    # client sends again, and the coordinator is asked.
                    raise NotLeaderOrFollower("the partition has another leader since the batch arrived")
                raise proof.refusal(producers.guards)
            self._verify(producer_id, epoch, proof)
        if transactional:
            if producer_id in self._verified:
                begins = self._verified[producer_id][1]
        elif entry is None and producer_id in self._begun and self._begun[producer_id][0] == epoch:
            begins = self._begun[producer_id][1]
        return Handover(self.next_number(), derived_id(producer_id, self.partition), first, begins)

    def _verify(self, producer_id: ProducerId, epoch: ProducerEpoch, proof: TxnProof) -> None:
        begins, guard = NO_SEQUENCE, proof.guard
        if proof.adds:
            begins = 0
        elif guard is not None and guard.epoch == epoch:
            begins = guard.lowest_sequence
        if len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[producer_id] = epoch, begins

    def ended(self, producers: ProducerTable, producer_id: ProducerId) -> int:
        """A marker of the producer's transaction arrived: number it, and verify what follows again."""
        self._verified.pop(producer_id, None)
        producers.guards.drop(producer_id)
        return self.next_number()


class Resumption:
    """The leader of a partition that was drained and accepts records again, in one leader epoch."""

    __slots__ = ("_number", "is_ready", "leader_epoch", "life", "target")

    def __init__(self, *, target: int, leader_epoch: LeaderEpoch, life: Offset = OFFSET_ZERO) -> None:
        self.target = target
        self.leader_epoch = leader_epoch
        self.life = life
        """As `Drain.life`."""
        self._number = 0
        self.is_ready = False
        """Whether this log has what its producers wrote to the target."""

    def next_number(self) -> int:
        """Numbers what is sent to the target, in order."""
        self._number += 1
        return self._number

    def ended(self, producers: ProducerTable, producer_id: ProducerId) -> int:
        """A marker of a transaction arrived, which may be open in the target as well."""
        producers.guards.drop(producer_id)
        return self.next_number()


def detour(decided: PartitionState, current: Drain | Resumption | None, log_end: Offset) -> Drain | Resumption | None:
    """What a leader is to do with records, by the metadata; the current state is kept within a leader epoch."""
    epoch = decided.leader_epoch
    if decided.drained_into != NO_PARTITION:
        if isinstance(current, Drain) and current.leader_epoch == epoch:
            return current
        return Drain(
            partition=decided.index,
            target=decided.drained_into,
            leader_epoch=epoch,
            life=log_end,
            since=decided.drained_since,
        )
    if decided.resumes_from != NO_PARTITION:
        if isinstance(current, Resumption) and current.leader_epoch == epoch:
            return current
        return Resumption(target=decided.resumes_from, leader_epoch=epoch, life=log_end)
    return None


def check_accepts(found: Drain | Resumption) -> None:
    """Refuse records of clients while they belong elsewhere, or while it is not known what was written there."""
    if isinstance(found, Drain):
        raise NotLeaderOrFollower("the partition is drained")
    if not found.is_ready:
        raise NotEnoughReplicas("the partition has yet to learn what was written while it was drained")


class Source(NamedTuple):
    """The leader of a partition that sends to the target it is drained into."""

    partition: int
    leader_epoch: LeaderEpoch
    target_epoch: LeaderEpoch
    """The target's leader epoch that it was sent for: a request for another one may be late."""
    known_epoch: LeaderEpoch
    """The partition's leader epoch in the metadata of the target's broker."""
    life: Offset = OFFSET_ZERO
    """Tells apart the lives of a leader within one leader epoch: the only replica of a partition leads on in its epoch
    after a clean stop, or after its broker was fenced, and counts from one again. It is the end of its log at the
    beginning of the life, which is greater in the next one: a barrier or a marker is appended before anything that
    the target remembers is sent.
    """


class Accepted(NamedTuple):
    """A handover as it arrived at the target."""

    source: Source
    number: int
    first_sequence: int
    begins_at: int


SourceEpoch = tuple[LeaderEpoch, Offset]
"""The leader epoch of a drained partition, and the life in it."""
NO_SOURCE_EPOCH: SourceEpoch = (NO_LEADER_EPOCH, OFFSET_ZERO)


class Sources:
    """What the leader of a target has accepted of drained partitions, in one leader epoch of its own."""

    __slots__ = ("_epochs", "_floors", "_numbers", "_producers")

    def __init__(self) -> None:
        self._epochs: dict[int, SourceEpoch] = {}
        """The newest leader epoch of each partition that something was accepted of."""
        self._producers: dict[ProducerId, tuple[SourceEpoch, int, int]] = {}
        """By derived producer id, the least recent first: leader epoch, number of its last request, and number of its
        last marker."""
        self._floors: dict[int, tuple[SourceEpoch, int]] = {}
        """Leader epoch and number up to which producers were forgotten: nothing up to there is accepted."""
        self._numbers: dict[int, Iterator[int]] = {}
        """Of ghosts, which this leader serves: they go on where a ghost was served before in this leader epoch."""

    def numbers(self, partition: int) -> Iterator[int]:
        """Numbers the requests of a ghost."""
        return self._numbers.setdefault(partition, count(1))

    def check(self, source: Source, number: int, producer_id: ProducerId, *, ends: bool = False) -> None:
        """Refuse what an older leader of a drained partition sent, or what was overtaken by a later request.

        A batch is late after a marker of its producer, and a marker after anything of it. The order of two batches is
        that of their sequences.

        `known_epoch` needs no other memory of a fence that an earlier leader of the target appended: this leader was
        elected after it, so its metadata has the epoch that the fence is of.
        """
        partition, epoch = source.partition, (source.leader_epoch, source.life)
        if producer_id >= 0 or ends:
            self.check_producer(source, producer_id)
        if source.leader_epoch < source.known_epoch or epoch < self._epochs.get(partition, NO_SOURCE_EPOCH):
            raise self._late(source, number)
        last_epoch, last, marker = self._producers.get(producer_id, (NO_SOURCE_EPOCH, 0, 0))
        if last_epoch == epoch:
            if number <= (last if ends else marker):
                raise self._late(source, number)
        else:
            last = marker = 0
        if (epoch, number) <= self._floors.get(partition, (NO_SOURCE_EPOCH, 0)):
            raise self._late(source, number)
        self._epochs[partition] = epoch
        if producer_id >= 0:
            self._remember(producer_id, (epoch, max(last, number), number if ends else marker))

    @staticmethod
    def check_producer(source: Source, producer_id: ProducerId) -> None:
        """Refuse a producer id that is not derived from one of the partition."""
        if not (is_derived(producer_id) and source_of(producer_id)[1] == source.partition):
            raise InvalidRecord(f"Producer {producer_id} is not one of partition {source.partition}, which is drained")

    def fence(self, source: Source, number: int) -> None:
        """Refuse older leaders of the partition from here on; raises where this is of one itself."""
        self.check(source, number, NO_PRODUCER_ID)

    def _remember(self, producer_id: ProducerId, requests: tuple[SourceEpoch, int, int]) -> None:
        known = self._producers
        known.pop(producer_id, None)
        if len(known) >= PRODUCERS_REMEMBERED_MAX:
            oldest = next(iter(known))
            epoch, last, _ = known.pop(oldest)
            partition = source_of(oldest)[1]
            self._floors[partition] = max(self._floors.get(partition, (NO_SOURCE_EPOCH, 0)), (epoch, last))
        known[producer_id] = requests

    @staticmethod
    def _late(source: Source, number: int) -> FencedLeaderEpoch:
        return FencedLeaderEpoch(
            f"request {number} of leader epoch {source.leader_epoch} of partition {source.partition} comes too late"
        )


class AdoptedBatch(NamedTuple):
    """A batch of a producer that the target has: the resuming partition appends an empty one in its place."""

    producer_id: ProducerId
    """The client's."""
    epoch: ProducerEpoch
    base_sequence: int
    """-1: the producer has this epoch and has sent nothing in it."""
    last_offset_delta: int
    timestamp: int


class AdoptedProducer(NamedTuple):
    """What the target knows of one producer of a drained partition."""

    producer_id: ProducerId
    """The client's."""
    epoch: ProducerEpoch
    open: bool
    """Whether a transaction of it is open in the target."""
    batches: tuple[tuple[int, int, int], ...]
    """Last sequence, offset delta and timestamp of the last five batches."""


def producers_of(producers: ProducerTable, partition: int, *, open_only: bool = False) -> list[AdoptedProducer]:
    """What a target knows of the producers of a drained partition, or of those with an open transaction."""
    found: list[AdoptedProducer] = []
    for producer_id, entry in producers:
        if is_derived(producer_id) and (not open_only or entry.txn_first_offset >= 0):
            original, source = source_of(producer_id)
            if source == partition:
                batches = tuple((sequence, delta, timestamp) for sequence, _, delta, timestamp in entry.batches)
                found.append(AdoptedProducer(original, entry.epoch, entry.txn_first_offset >= 0, batches))
    return found


def producers_for_target(
    producers: ProducerTable, partition: int, ids: Iterable[ProducerId]
) -> Iterator[AdoptedProducer]:
    """What a drained partition knows of some producers, as the target has to know it when the partition is a ghost."""
    for producer_id in ids:
        entry = producers.get(producer_id)
        if entry is not None:
            batches = tuple((sequence, delta, timestamp) for sequence, _, delta, timestamp in entry.batches)
            is_open = entry.txn_first_offset >= 0
            yield AdoptedProducer(derived_id(producer_id, partition), entry.epoch, is_open, batches)


def adoptable(producers: ProducerTable, known: AdoptedProducer) -> list[AdoptedBatch]:
    """The batches of a producer that a resuming partition has to adopt: those later than what it has itself."""
    entry = producers.get(known.producer_id)
    if entry is not None and (entry.epoch > known.epoch or (entry.txn_first_offset >= 0 and entry.epoch < known.epoch)):
        # In the latter case the marker of its transaction is here to come, which raises the epoch.
        return []
    adopted: list[AdoptedBatch] = []
    for last_sequence, delta, timestamp in known.batches:
        if entry is not None and entry.epoch == known.epoch and entry.batches:
            own = entry.batches[-1][0]
            if own != NO_SEQUENCE and not precedes(own, last_sequence):
                continue
        base = NO_SEQUENCE if last_sequence < 0 else (last_sequence - delta) & SEQUENCE_MAX
        adopted.append(AdoptedBatch(known.producer_id, known.epoch, base, delta, timestamp))
    if not known.batches and (entry is None or entry.epoch < known.epoch):
        # Its last marker raised the epoch: an older one is fenced here too.
        adopted.append(AdoptedBatch(known.producer_id, known.epoch, NO_SEQUENCE, 0, -1))
    return adopted


def next_sequence(entry: ProducerEntry) -> int:
    """The sequence that continues a producer's last batch."""
    last = entry.batches[-1][0] if entry.batches else NO_SEQUENCE
    return 0 if last in (NO_SEQUENCE, SEQUENCE_MAX) else last + 1
