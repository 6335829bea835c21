"""Rules of one schedule partition: what is fired when, where it is delivered, and how that is closed.

The state is a function of the partition's log, batch by batch (`loading.feed`). The driver at the leader appends what
the rules decide:

1. A *fire* names the entries that are delivered to one target partition, under which producer id and sequences.
2. Once the fire is committed, its batch is sent until the target has it, by this leader or a later one. The target
   recognises what it has by the sequences.
3. Schedules that are done get a tombstone, recurring ones a record with their next time, where the key has no later
   record. Then a *close* ends the fire, and the next one for that target partition may begin.

So an entry is named by one fire, a fire is delivered once, and what a user writes meanwhile is not removed.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model.generated_errors import (
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
)
from penstock.model.ids import NO_OFFSET, OFFSET_ZERO, Offset, ProducerEpoch, ProducerId, TopicId
from penstock.model.producers import EPOCH_MAX
from penstock.schedules.headers import Misfire, Recurrence
from penstock.schedules.index import Digest, Pending, PendingIndex
from penstock.wire.schedule_records import Close, Fire, Named, Outcome

SEQUENCES = 2**31
NO_PRODUCER = ProducerId(-1)
EPOCH_ZERO = ProducerEpoch(0)
LATE_MS = 1_000
"""A fire that is later counts towards the rate at which what was missed is caught up with."""
MISSED_MS = 60_000
"""A time that is missed by more is skipped where the schedule says so."""
FIRE_RECORDS_MAX = 2_000
"""Records of one fire."""
CATCH_UP_TIMES_MAX = 1_000
"""Missed times of one recurring schedule that are delivered; the others are left out."""
TIMESTAMP_LATE_MS_MAX = 3_600_000
"""A message that is later has the time of its fire as timestamp: with an older one, retention may delete it at once."""

LaneKey = tuple[TopicId, int]


@dataclass(slots=True, eq=False)
class Lane:
    """The way to one target partition."""

    topic_id: TopicId
    partition: int
    producer_id: ProducerId = NO_PRODUCER
    epoch: ProducerEpoch = EPOCH_ZERO
    next_sequence: int = 0
    open_at: Offset = NO_OFFSET
    """The offset of the fire that has no close; -1: there is none."""
    open_end: Offset = OFFSET_ZERO
    open: Fire | None = None
    records_max: int = FIRE_RECORDS_MAX
    """Records of the next fire: fewer after a refusal, to find the one that is its reason."""
    waiting: deque[Pending] = field(default_factory=deque[Pending])
    """Entries that are due, in order."""
    firing: list[Pending] = field(default_factory=list[Pending])
    """Those of the open fire, if this leader made it."""


class Fired(NamedTuple):
    """The fire that named an entry which is still its key's last record."""

    fire: Offset
    partition: int
    fired_ms: int
    last_due_ms: int


class Held(NamedTuple):
    """A record of an open transaction."""

    offset: Offset
    digest: Digest
    due_ms: int | None
    partition_hash: int
    is_tombstone: bool


class PartitionSchedules:
    """The schedules of one partition, as its log has them."""

    def __init__(self) -> None:
        self.index = PendingIndex()
        self.applied = OFFSET_ZERO
        """The state has every batch below this offset."""
        self.lanes: dict[LaneKey, Lane] = {}
        self.producer_id = NO_PRODUCER
        """That of the last fire; a lane without fires begins with it."""
        self.fired: dict[Offset, Fired] = {}
        """Entries that a fire has named, and that are still their key's last record or may be."""
        self.too_late = 0
        """Schedules that were changed or cancelled after a fire had named them."""
        self._held: dict[ProducerId, list[Held]] = {}
        self._held_keys: dict[Digest, int] = {}
        """Keys with records in open transactions, and how many."""
        self._cancelled: dict[Digest, Offset] = {}
        """The newest tombstones of keys with records in open transactions, which are older."""
        self._closing: set[Offset] = set()
        """Fires whose closing is being appended."""
        self.check_leftovers = False
        """Whether a transaction ended, so that entries which waited for it may be closed."""

    # What the log has

    def put(self, offset: Offset, digest: Digest, due_ms: int | None, partition_hash: int) -> None:
        """A record of a schedule, that is committed or of no transaction."""
        if self._cancelled and self._cancelled.get(digest, NO_OFFSET) > offset:
            return
        before = self.index.put(digest, offset)
        if before >= 0:
            if before > offset:
                return
            self._replaced(Offset(before))
        if due_ms is not None:
            self.index.add(Pending(due_ms, offset, digest.first, partition_hash))

    def remove(self, offset: Offset, digest: Digest) -> None:
        """A tombstone."""
        if digest in self._held_keys:
            self._cancelled[digest] = max(offset, self._cancelled.get(digest, NO_OFFSET))
        before = self.index.remove(digest, offset)
        if before >= 0:
            self._replaced(Offset(before))

    def _replaced(self, before: Offset) -> None:
        fired = self.fired.pop(before, None)
        if fired is not None and fired.fire not in self._closing:
            self.too_late += 1

    def hold(self, producer_id: ProducerId, held: Held) -> None:
        """A record of a transaction, which is decided later."""
        self._held.setdefault(producer_id, []).append(held)
        self._held_keys[held.digest] = self._held_keys.get(held.digest, 0) + 1

    def decide(self, producer_id: ProducerId, *, committed: bool) -> None:
        """The marker of a transaction."""
        records = self._held.pop(producer_id, ())
        for held in records:
            left = self._held_keys[held.digest] - 1
            if left:
                self._held_keys[held.digest] = left
            else:
                del self._held_keys[held.digest]
        if committed:
            for held in records:
                if held.is_tombstone:
                    self.remove(held.offset, held.digest)
                else:
                    self.put(held.offset, held.digest, held.due_ms, held.partition_hash)
        if records and self.fired:
            # Of an aborted one, and of a committed one whose records are older than what was fired.
            self.check_leftovers = True
        for held in records:
            if held.digest not in self._held_keys:
                self._cancelled.pop(held.digest, None)

    def fire(self, offset: Offset, end: Offset, fire: Fire) -> None:
        """A fire record."""
        lane = self.lane(fire.topic_id, fire.partition)
        lane.open_at, lane.open_end, lane.open = offset, end, fire
        lane.producer_id, lane.epoch = fire.producer_id, fire.epoch
        lane.next_sequence = fire.base_sequence
        self.producer_id = fire.producer_id
        for named in fire.named:
            self.fired[named.offset] = Fired(offset, fire.partition, fire.fired_ms, named.due_ms)

    def close(self, close: Close) -> None:
        """A close record."""
        lane = self._lane_of(close)
        if lane is None or lane.open is None:
            return
        fire, lane.open = lane.open, None
        lane.open_at = NO_OFFSET
        firing, lane.firing = lane.firing, []
        if close.outcome is Outcome.DELIVERED:
            lane.next_sequence = (fire.base_sequence + len(fire.named)) % SEQUENCES
            lane.records_max = min(FIRE_RECORDS_MAX, 2 * lane.records_max)
            return
        # The target may have some of it: it must never take a later batch for this one, nor this one for a later.
        lane.next_sequence = 0
        if lane.epoch < EPOCH_MAX:
            lane.epoch = ProducerEpoch(lane.epoch + 1)
        else:
            lane.producer_id, lane.epoch = NO_PRODUCER, EPOCH_ZERO
            self.producer_id = NO_PRODUCER
        if close.outcome is Outcome.RELEASED:
            lane.records_max = max(1, len(fire.named) // 2)
            for named in fire.named:
                self.fired.pop(named.offset, None)
            for entry in firing:
                self.index.add(entry)

    def _lane_of(self, close: Close) -> Lane | None:
        for lane in self.lanes.values():
            if lane.open_at == close.fire and lane.partition == close.partition:
                return lane
        return None

    def lane(self, topic_id: TopicId, partition: int) -> Lane:
        found = self.lanes.get((topic_id, partition))
        if found is None:
            found = self.lanes[topic_id, partition] = Lane(topic_id, partition, self.producer_id)
        return found

    # What is due

    def is_to_close(self, offset: Offset, digest: Digest) -> bool:
        """Whether an entry that is done needs a record after it: its key has no later one, in open transactions too."""
        return self.index.last_of(digest) == offset and digest not in self._held_keys

    def place_due(self, now_ms: int, topic_id: TopicId, partitions: int, *, at_most: int) -> int:
        """Move entries that are due to the lanes of their target partitions; returns how many were looked at."""
        index, count = self.index, 0
        while count < at_most:
            due_ms = index.next_due()
            if due_ms is None or due_ms > now_ms:
                break
            entry = index.pop()
            count += 1
            if not index.is_last(entry):
                continue
            fired = self.fired.get(entry.offset)
            if fired is None:
                self.lane(topic_id, entry.partition_hash % partitions).waiting.append(entry)
                continue
            for lane in self.lanes.values():
                if lane.open is not None and lane.open_at == fired.fire and lane.partition == fired.partition:
                    # Of an earlier leader's fire: it is due again if that is released.
                    lane.firing.append(entry)
        return count

    def unplace(self) -> None:
        """The target has other partitions, or is another topic: what waits goes back to the index."""
        for lane in self.lanes.values():
            for entry in lane.waiting:
                self.index.add(entry)
            lane.waiting.clear()

    def next_due(self) -> int | None:
        return self.index.next_due()

    @staticmethod
    def may_begin(high_watermark: Offset, epoch_start: Offset) -> bool:
        """Whether a leader may act: not before all that it inherited is committed, since an earlier leader may have
        committed and sent what its last records say."""
        return high_watermark >= epoch_start

    def deliverable(self, high_watermark: Offset) -> Iterator[Lane]:
        """Lanes with a fire that is committed."""
        return (lane for lane in self.lanes.values() if lane.open is not None and lane.open_end <= high_watermark)

    def ready(self) -> list[Lane]:
        """Lanes that may fire what waits in them: the last fire is closed, committed or not."""
        return [lane for lane in self.lanes.values() if lane.waiting and lane.open is None]

    def candidates(self, lane: Lane, count: int) -> list[Pending]:
        """The first entries that wait in a lane, without those that were replaced or cancelled meanwhile."""
        found: list[Pending] = []
        waiting = lane.waiting
        while waiting and len(found) < count:
            entry = waiting.popleft()
            if self.is_pending(entry):
                found.append(entry)
        # Some may have come late.
        found.sort()
        return found

    def is_pending(self, entry: Pending) -> bool:
        """Whether an entry is its key's last record, and no fire has named it."""
        return entry.offset not in self.fired and self.index.is_last(entry)

    def give_back(self, lane: Lane, entries: Sequence[Pending]) -> None:
        """What a fire had no room for waits on, at the front."""
        lane.waiting.extendleft(reversed(entries))

    def make_fire(self, lane: Lane, now_ms: int, named: Sequence[Named], entries: Iterable[Pending]) -> Fire:
        """The fire of some entries; the driver appends it at once."""
        assert lane.open is None, f"a fire for partition {lane.partition} is open"
        assert lane.producer_id >= 0, "a fire without a producer id"
        for each in named:
            assert each.due_ms <= now_ms, f"due at {each.due_ms}, and it is {now_ms}"
        lane.firing = list(entries)
        return Fire(
            now_ms, lane.topic_id, lane.partition, lane.producer_id, lane.epoch, lane.next_sequence, tuple(named)
        )

    # What is done

    def is_closing(self, fires: Iterable[Offset]) -> None:
        """The records that follow next are those that close some fires, not a user's."""
        self._closing = set(fires)

    def leftovers(self) -> list[tuple[Offset, Fired]]:
        """Entries that a closed fire has delivered, and that may still be their key's last record."""
        self.check_leftovers = False
        still_open = {(lane.open_at, lane.partition) for lane in self.lanes.values() if lane.open is not None}
        return [
            (offset, fired) for offset, fired in self.fired.items() if (fired.fire, fired.partition) not in still_open
        ]


REFUSALS = (InvalidRecord, InvalidTimestamp, MessageTooLarge)
"""What a target refuses for good."""


def outcome_of(error: Exception, records: int) -> Outcome | None:
    """How a fire of so many records ends with an error; None: it is sent again.

    The target accepts nothing of this epoch after these errors. One record may be the reason of a refusal: each of
    several is to be tried apart from the others.
    """
    if isinstance(error, REFUSALS):
        return Outcome.RELEASED if records > 1 else Outcome.REFUSED
    if isinstance(error, OutOfOrderSequenceNumber | InvalidProducerEpoch):
        return Outcome.RELEASED
    return None


class CatchUp:
    """Limits how fast what was missed is delivered: a bucket of as many deliveries as a second may have."""

    def __init__(self) -> None:
        self._left = 0.0
        self._at_ms: int | None = None

    def allowed(self, rate: int, monotonic_ms: int) -> int:
        """Late deliveries that may be made now."""
        if self._at_ms is None:
            self._left = float(rate)
        else:
            self._left = min(float(rate), self._left + rate * (monotonic_ms - self._at_ms) / 1000)
        self._at_ms = monotonic_ms
        return int(self._left)

    def used(self, count: int) -> None:
        self._left -= count


def due_times(due_ms: int, recurrence: Recurrence | None, misfire: Misfire, now_ms: int) -> tuple[list[int], int]:
    """The due times of an entry to deliver now, and how many are skipped: at least one of either.

    A recurring one with `all` has every time that was missed, up to a bound.
    """
    if misfire is Misfire.SKIP and now_ms - due_ms > MISSED_MS:
        return [], 1
    if misfire is not Misfire.ALL or recurrence is None:
        return [due_ms], 0
    times = [due_ms]
    while len(times) < CATCH_UP_TIMES_MAX:
        following = recurrence.next_after(times[-1])
        if following is None or following > now_ms:
            break
        times.append(following)
    return times, 0


def counts_from(misfire: Misfire, fired_ms: int, last_due_ms: int, times: int) -> int:
    """The time after which a recurring schedule is due again.

    With `all` that is the last time that was delivered, unless there were too many.
    """
    if misfire is Misfire.ALL and times < CATCH_UP_TIMES_MAX:
        return last_due_ms
    return max(fired_ms, last_due_ms)


def timestamp_of(due_ms: int, fired_ms: int) -> int:
    return fired_ms if fired_ms - due_ms > TIMESTAMP_LATE_MS_MAX else due_ms
