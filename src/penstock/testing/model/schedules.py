"""A model of one schedule partition and its target: the rules that ship, random leaders, networks, clocks and users.

Leaders are deposed at any moment, keep acting, and send what their logs say; messages are lost, doubled and late;
users write, cancel and write in transactions, some of which are aborted. Afterwards the committed log and the target
are judged by SM1 to SM8 (docs/invariants.md).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.model.batch import HEADER, BatchHeader
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRecord
from penstock.model.ids import CoordinatorEpoch, Offset, ProducerEpoch, ProducerId, TopicId
from penstock.model.producers import EPOCH_MAX, schedule_producer_id
from penstock.partition.producers import ProducerTable
from penstock.schedules import delivery
from penstock.schedules.delivery import Ended
from penstock.schedules.firing import NO_PRODUCER, Lane, PartitionSchedules, due_times, outcome_of
from penstock.schedules.headers import DELIVER_AT, DUE, FIRED_BY, Misfire
from penstock.schedules.index import Pending
from penstock.schedules.loading import Entry, entries_in, feed
from penstock.wire.record_columns import decode_columns
from penstock.wire.records import (
    ABORT_MARKER,
    Record,
    RecordBatchBuilder,
    build_batch,
    build_marker,
    decode_records,
    parse_marker,
)
from penstock.wire.schedule_records import Close, Fire, Named, Outcome, build_fires, parse

KEYS = 4
TARGETS = 2
TOPIC = TopicId(b"t" * 16)
START_MS = 1_000_000
STEPS = 160
DRAIN_STEPS = 3_000
ZOMBIES_MAX = 2


class Batch(NamedTuple):
    """A batch of a log."""

    header: BatchHeader
    data: bytes


def is_early(entry: Pending, now_ms: int) -> bool:
    """Whether an entry that was due is not any more: the clock was set back."""
    return entry.due_ms > now_ms


class Leader:
    """One leader of the schedules, perhaps deposed without knowing it."""

    def __init__(self, log: list[Batch], high_watermark: int, number: int) -> None:
        self.log = list(log)
        self.high_watermark = high_watermark
        self.number = number
        self.epoch_start = self.end
        self.skew_ms = 0
        self.sent: set[tuple[int, int]] = set()
        self.ended: list[Ended] = []
        self.state = PartitionSchedules()
        for batch in log:
            feed(self.state, batch.data, batch.header)
        self.state.check_leftovers = True

    @property
    def end(self) -> int:
        return self.log[-1].header.next_offset if self.log else 0

    def append(self, batch: bytearray) -> int:
        base = self.end
        batch[0:8] = base.to_bytes(8, "big")
        header = BatchHeader._make(HEADER.unpack_from(batch))
        self.log.append(Batch(header, bytes(batch)))
        feed(self.state, bytes(batch), header)
        return base

    def read(self, offsets: Iterable[int]) -> dict[Offset, Entry]:
        wanted = set(offsets)
        found: dict[Offset, Entry] = {}
        for header, data in self.log:
            here = [Offset(each) for each in wanted if header.base_offset <= each < header.next_offset]
            if here and not header.is_control:
                found |= entries_in(decode_columns(data), here)
        return found


class Target:
    """The target partitions, whose leaders change without loss."""

    def __init__(self) -> None:
        self.tables = [ProducerTable() for _ in range(TARGETS)]
        self.records: list[list[tuple[Record, BatchHeader]]] = [[] for _ in range(TARGETS)]
        self.strict = False
        """Whether it refuses some values for good."""

    def deliver(self, partition: int, data: bytes, now_ms: int) -> None:
        """As `Replica.accept_delivery`."""
        header = BatchHeader._make(HEADER.unpack_from(data))
        table = self.tables[partition]
        end = table.check_scheduled(
            header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta
        )
        if end is not None:
            return
        records = decode_records(data)
        base = Offset(len(self.records[partition]))
        if self.strict and any(int(record.value or b"0") % 5 == 0 for record in records):
            if header.producer_epoch < EPOCH_MAX:
                epoch = ProducerEpoch(header.producer_epoch + 1)
                table.record(header.producer_id, epoch, -1, 0, False, base, now_ms, now_ms)
            raise InvalidRecord()
        sequence, last = header.base_sequence, header.last_offset_delta
        table.record(header.producer_id, header.producer_epoch, sequence, last, False, base, now_ms, now_ms)
        self.records[partition] += ((record, header) for record in records)

    def change_leader(self, partition: int, now_ms: int) -> None:
        """The next leader has loaded a snapshot, and producers that were silent expire there."""
        table = ProducerTable()
        table.load(self.tables[partition].snapshot(), now_ms, 0)
        table.expire(now_ms, 0)
        self.tables[partition] = table


class Message(NamedTuple):
    """A delivery on its way, or the response to one."""

    leader: Leader
    lane: Lane
    fire_offset: int
    fire: Fire
    entries: dict[Offset, Entry]
    data: bytes
    outcome: Outcome | None = None


class World:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = START_MS
        self.leader = Leader([], 0, 0)
        self.zombies: list[Leader] = []
        self.net: list[Message] = []
        self.target = Target()
        self.values = 0
        self.producers = 0
        self.open: dict[int, tuple[ProducerId, int]] = {}
        """Key -> open transaction of a user, and the leader that it is at."""
        self.built: dict[tuple[int, int, int], bytes] = {}
        """The bytes of each delivery, by offset and partition of its fire, and its epoch."""
        self.is_draining = False
        self.problem: str | None = None

    def run(self) -> str | None:
        """What went wrong, if anything did."""
        try:
            for _ in range(STEPS):
                self.step(drain=False)
            self.target.strict = False
            self.is_draining = True
            self.now_ms += 10_000_000
            self.end_transactions()
            for at in range(DRAIN_STEPS):
                self.step(drain=True)
                if at % 20 == 0 and self.is_quiet():
                    break
            else:
                return "it never ends"
        except AssertionError as error:
            return f"assertion: {error}"
        return self.problem or self.judge()

    def step(self, *, drain: bool) -> None:
        drawn = self.random.random()
        if drawn < 0.16:
            if not drain:
                self.user_writes()
        elif drawn < 0.22:
            self.now_ms += self.random.randrange(8)
            if not drain:
                self.random.choice([self.leader, *self.zombies]).skew_ms = self.random.randrange(-10, 10)
        elif drawn < 0.44:
            self.replicate()
        elif drawn < 0.70:
            self.act(self.random.choice([self.leader, self.leader, *self.zombies]))
        elif drawn < 0.92:
            self.pass_message()
        elif not drain:
            if drawn < 0.96:
                self.change_leader()
            elif drawn < 0.98:
                self.target.change_leader(self.random.randrange(TARGETS), self.now_ms)
            else:
                self.target.strict = not self.target.strict

    # Users

    def user_writes(self) -> None:
        key = self.random.randrange(KEYS)
        name = b"k%d" % key
        kind = self.random.random()
        leader = self.leader
        at_leader = self.open.get(key)
        if at_leader is not None and at_leader[1] == leader.number and kind < 0.5:
            self.end_transaction(key, commit=self.random.random() < 0.5)
            return
        self.values += 1
        due = b"%d" % max(0, self.now_ms + self.random.randrange(-5, 20))
        is_tombstone = self.random.random() < 0.25
        record = Record(
            0,
            self.now_ms,
            name,
            None if is_tombstone else b"%d" % self.values,
            () if is_tombstone else [(DELIVER_AT, due)],
        )
        if kind < 0.75:
            leader.append(build_batch([record]))
        elif key not in self.open:
            self.producers += 1
            producer = ProducerId(self.producers)
            self.open[key] = producer, leader.number
            leader.append(
                build_batch(
                    [record],
                    producer_id=producer,
                    producer_epoch=ProducerEpoch(0),
                    base_sequence=0,
                    is_transactional=True,
                )
            )

    def end_transaction(self, key: int, *, commit: bool) -> None:
        producer, _ = self.open.pop(key)
        self.leader.append(
            build_marker(
                commit=commit,
                producer_id=producer,
                producer_epoch=ProducerEpoch(0),
                coordinator_epoch=CoordinatorEpoch(0),
                timestamp_ms=self.now_ms,
            )
        )

    def end_transactions(self) -> None:
        for key in list(self.open):
            self.end_transaction(key, commit=self.random.random() < 0.5)

    # Replication of the schedules

    def replicate(self) -> None:
        leader = self.leader
        ends = [batch.header.next_offset for batch in leader.log if batch.header.next_offset > leader.high_watermark]
        if ends:
            leader.high_watermark = self.random.choice(ends)

    def change_leader(self) -> None:
        """The next leader has what is committed, and perhaps more."""
        old = self.leader
        kept = [batch for batch in old.log if batch.header.next_offset <= old.high_watermark]
        rest = old.log[len(kept) :]
        log = kept + rest[: self.random.randrange(len(rest) + 1)]
        self.leader = Leader(log, old.high_watermark, old.number + 1)
        self.zombies = [*self.zombies, old][-ZOMBIES_MAX:]
        self.open = {}
        ended = {batch.header.producer_id for batch in log if batch.header.is_control}
        for header, data in log:
            if header.is_transactional and not header.is_control and header.producer_id not in ended:
                key = int((decode_records(data)[0].key or b"")[1:])
                self.open[key] = header.producer_id, self.leader.number

    # What a leader does, as `PartitionDriver`

    def act(self, leader: Leader) -> None:
        state = leader.state
        if not state.may_begin(Offset(leader.high_watermark), Offset(leader.epoch_start)):
            return
        for lane in state.deliverable(Offset(leader.high_watermark)):
            self.send(leader, lane)
        if leader.ended:
            ended, leader.ended = leader.ended, []
            batches = delivery.build_end(state, ended, misfire=Misfire.ONCE, now_ms=self.now_ms + leader.skew_ms)
            state.is_closing(each.offset for each in ended)
            for batch in batches:
                leader.append(batch)
            state.is_closing(())
        if state.check_leftovers:
            self.close_leftovers(leader)
        self.fire(leader)

    def send(self, leader: Leader, lane: Lane) -> None:
        fire = lane.open
        assert fire is not None
        if (lane.open_at, lane.partition) in leader.sent and self.random.random() < 0.7:
            return
        if any(each.offset == lane.open_at and each.fire.partition == lane.partition for each in leader.ended):
            return
        leader.sent.add((lane.open_at, lane.partition))
        entries = leader.read(each.offset for each in fire.named)
        data = bytes(delivery.build_delivery(fire, entries))
        key = lane.open_at, lane.partition, fire.epoch
        if lane.open_end <= self.leader.high_watermark and self.built.setdefault(key, data) != data:
            self.problem = "SM3: two leaders build different deliveries"
        self.net.append(Message(leader, lane, lane.open_at, fire, entries, data))

    def close_leftovers(self, leader: Leader) -> None:
        state = leader.state
        left = state.leftovers()
        entries = leader.read(offset for offset, _ in left)
        for offset, fired in left:
            if state.fired.get(offset) != fired or offset not in entries:
                continue
            builder = RecordBatchBuilder()
            named = [Named(offset, fired.last_due_ms)]
            delivery.add_closings(state, builder, fired.fire, fired.fired_ms, named, entries, misfire=Misfire.ONCE)
            if builder.count:
                leader.append(builder.build())

    def fire(self, leader: Leader) -> None:
        state, now_ms = leader.state, self.now_ms + leader.skew_ms
        state.place_due(now_ms, TOPIC, TARGETS, at_most=100)
        picked = [(lane, state.candidates(lane, self.random.randrange(1, 4))) for lane in state.ready()]
        entries = leader.read(each.offset for _, some in picked for each in some)
        # In the driver other code runs while it reads: a user may write.
        if self.random.random() < 0.3 and leader is self.leader and not self.is_draining:
            self.user_writes()
        fires: list[Fire] = []
        for lane, some in picked:
            if lane.producer_id == NO_PRODUCER:
                if state.producer_id == NO_PRODUCER:
                    self.producers += 1
                    state.producer_id = schedule_producer_id(ProducerId(self.producers))
                lane.producer_id = state.producer_id
            named: list[Named] = []
            firing: list[Pending] = []
            for pending in some:
                if not state.is_pending(pending):
                    continue
                if len(named) >= lane.records_max or is_early(pending, now_ms):
                    state.index.add(pending)
                    continue
                times, _ = due_times(pending.due_ms, entries[pending.offset].schedule.recurrence, Misfire.ONCE, now_ms)
                named += (Named(pending.offset, due_ms) for due_ms in times)
                firing.append(pending)
            if named:
                fires.append(state.make_fire(lane, now_ms, named, firing))
        if fires:
            leader.append(build_fires(fires))

    def pass_message(self) -> None:
        if not self.net:
            return
        at = self.random.randrange(len(self.net))
        message = self.net[at] if self.random.random() < 0.2 else self.net.pop(at)
        if message.outcome is not None:
            lane, leader = message.lane, message.leader
            if lane.open is message.fire and lane.open_at == message.fire_offset:
                known = any(each.offset == lane.open_at and each.fire is lane.open for each in leader.ended)
                if not known:
                    ended = Ended(Offset(message.fire_offset), message.fire, message.outcome, message.entries)
                    leader.ended.append(ended)
            return
        try:
            self.target.deliver(message.fire.partition, message.data, self.now_ms)
            outcome: Outcome | None = Outcome.DELIVERED
        except BrokerError as error:
            outcome = outcome_of(error, len(message.fire.named))
        assert outcome is not None, "an error that is tried again"
        self.net.append(message._replace(outcome=outcome))

    # Judging

    def is_quiet(self) -> bool:
        leader = self.leader
        state = leader.state
        return (
            leader.high_watermark == leader.end
            and all(lane.open is None and not lane.waiting for lane in state.lanes.values())
            and state.next_due() is None
            and not state.check_leftovers
        )

    def judge(self) -> str | None:
        return Judge(self).verdict()


class Judge:
    """Looks at the committed log and at the target."""

    def __init__(self, world: World) -> None:
        self.delivered: Counter[tuple[bytes, int]] = Counter()
        self.first_fired: dict[tuple[int, int], int] = {}
        for records in world.target.records:
            for record, _ in records:
                due = next(int(value or b"") for name, value in record.headers if name == DUE)
                self.delivered[record.value or b"", due] += 1
        self.fires: list[tuple[int, Fire]] = []
        self.closes: dict[tuple[int, int], tuple[int, Close]] = {}
        self.rows: list[tuple[Record, int]] = []
        """Each record of a key and its producer."""
        self.ends: dict[int, tuple[int, bool]] = {}
        """Producer -> where its transaction ended, and whether it was committed."""
        for header, data in world.leader.log:
            self.take(header, data)

    def take(self, header: BatchHeader, data: bytes) -> None:
        records = decode_records(data)
        if not header.is_control:
            self.rows += ((record, header.producer_id) for record in records)
        elif header.producer_id >= 0:
            self.ends[header.producer_id] = header.base_offset, parse_marker(records[0])[0] != ABORT_MARKER
        else:
            for found in parse(records[0]):
                if isinstance(found, Fire):
                    self.fires.append((header.base_offset, found))
                else:
                    self.closes[found.fire, found.partition] = header.base_offset, found

    def is_committed(self, producer: int) -> bool:
        return producer < 0 or self.ends.get(producer, (0, False))[1]

    def verdict(self) -> str | None:
        rows = {record.offset: (record, producer) for record, producer in self.rows}
        owed: Counter[tuple[bytes, int]] = Counter()
        allowed: set[tuple[bytes, int]] = set()
        lanes: dict[int, int] = {}
        for offset, fire in self.fires:
            if lanes.get(fire.partition, -1) > offset:
                return "SM4: two open fires"
            closed = self.closes.get((offset, fire.partition))
            lanes[fire.partition] = 2**62 if closed is None else closed[0]
            if [each[::-1] for each in fire.named] != sorted(each[::-1] for each in fire.named):
                return "SM7: a fire is not in order of due times"
            for named in fire.named:
                record, producer = rows[named.offset]
                if named.due_ms > fire.fired_ms:
                    return "SM8: fired early"
                if producer >= 0 and not (self.is_committed(producer) and self.ends[producer][0] < offset):
                    return "SM6: a fire of an open or aborted transaction"
                for later, other in self.rows:
                    if later.key == record.key and named.offset < later.offset < offset and other < 0:
                        return "SM1: a replaced or cancelled entry is fired"
                entry = record.value or b"", named.due_ms
                allowed.add(entry)
                if closed is not None and closed[1].outcome is Outcome.DELIVERED:
                    owed[entry] += 1
        if any(count > 1 for count in owed.values()):
            return "SM1: an entry is fired twice"
        if any(count > 1 for count in self.delivered.values()):
            return "SM1: a message is delivered twice"
        if set(self.delivered) - allowed:
            return "SM2: a message is delivered without a committed fire"
        if set(owed) - set(self.delivered):
            return "SM1: a fire is closed and was not delivered"
        return self.closing_verdict(rows) or self.owed_verdict()

    def closing_verdict(self, rows: dict[int, tuple[Record, Any]]) -> str | None:
        fires = {offset: [fire for at, fire in self.fires if at == offset] for offset, _ in self.fires}
        for record, _ in self.rows:
            by = next((int(value or b"") for name, value in record.headers if name == FIRED_BY), None)
            if by is None:
                continue
            named = [
                each.offset
                for fire in fires.get(by, ())
                for each in fire.named
                if rows[each.offset][0].key == record.key
            ]
            if not named:
                return "SM5: a closing record without its fire"
            between = (
                other
                for other, producer in self.rows
                if other.key == record.key and max(named) < other.offset < record.offset and self.is_committed(producer)
            )
            if any(between):
                return "SM5: a closing removes something newer"
        return None

    def owed_verdict(self) -> str | None:
        """Every entry that nothing replaced is delivered or refused, and has a record after it."""
        last: dict[bytes | None, tuple[int, Record]] = {}
        for record, producer in self.rows:
            if self.is_committed(producer) and (producer < 0 or producer in self.ends):
                last[record.key] = record.offset, record
        if any(record.value is not None for _, record in last.values()):
            return "SM1: an entry is never done"
        return None


def explore(seeds: Iterable[int]) -> dict[int, str]:
    """What goes wrong, by seed."""
    found = {seed: World(seed).run() for seed in seeds}
    return {seed: problem for seed, problem in found.items() if problem is not None}
