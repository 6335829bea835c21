"""Drives one schedule partition at its leader, for one leader epoch: loads its schedules, fires and delivers them.

One task. It applies what is appended, closes what is delivered, fires what is due, and waits for the next of these.
Between reading the state and appending what follows from it, nothing else runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from penstock.model.batch import CODEC_MASK, HEADER, HEADER_BYTES, BatchHeader
from penstock.model.clock import Clock, monotonic_ms
from penstock.model.deferred import Deferred
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import OffsetOutOfRange, OutOfOrderSequenceNumber
from penstock.model.ids import LeaderEpoch, Offset, ProducerId, TopicId
from penstock.model.producers import schedule_producer_id
from penstock.model.turns import Turns
from penstock.observe.counters import ScheduleRow
from penstock.observe.log import Logger
from penstock.partition.leader import Leader
from penstock.partition.replica import Replica
from penstock.schedules.delivery import (
    Ended,
    add_closing,
    add_closings,
    build_delivery,
    build_end,
    size_max,
)
from penstock.schedules.firing import (
    FIRE_RECORDS_MAX,
    LATE_MS,
    NO_PRODUCER,
    REFUSALS,
    CatchUp,
    Fired,
    Lane,
    LaneKey,
    PartitionSchedules,
    due_times,
    outcome_of,
)
from penstock.schedules.headers import Misfire
from penstock.schedules.index import Pending, digest_of
from penstock.schedules.loading import NO_LIMIT, Entry, entries_in, feed, feed_records, load
from penstock.storage.slices import FileSlice
from penstock.storage.view import LogChanged
from penstock.wire.primitives import Malformed
from penstock.wire.record_columns import Columns, decode_columns
from penstock.wire.records import RecordBatchBuilder, iter_batches
from penstock.wire.schedule_records import Fire, Named, Outcome, build_fires

FEED_BYTES = 256 * 1024
"""Bytes of the log that are applied in one step."""
SLICES_MAX = 16
"""So many times `FEED_BYTES` are applied in steps between reading entries and firing them."""
FIRE_BYTES_MAX = 256 * 1024
"""Of one batch that is delivered: the target may have to compress it, on its event loop."""
ENTRIES_READ_MAX = 20_000
"""Entries that are read for the fires of one moment."""
READ_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of values that are read for them, with one entry more."""
READ_STEPS = (1, 16, 256, ENTRIES_READ_MAX)
"""Entries of each target partition that are read, before others are: a batch may have no room for more."""
ROWS_PER_STEP = 500
"""Records that are applied in one step."""
SMALL_BYTES = 4 * 1024
LIGHT_RECORDS_BYTES_MAX = 256 * 1024
"""Compressed batches that are small, and whose records are no more than this, are decompressed on the event loop."""
OPENED_BYTES_MAX = 32 * 1024 * 1024
"""Of a batch that stays decompressed after a round of fires, since others of its records are fired next."""
LEFTOVERS_PER_STEP = 500
WAITING_MAX = 200_000
"""Entries that are due and wait for their target partition; others wait in the index until there is room."""
PLACED_PER_STEP = 1_000
CLOCK_CHECK_S = 1.0
"""Longest wait for a due time: the wall clock may be set meanwhile, and is looked at so often."""
ROUND_S_MIN = 0.02
"""Least time between two rounds of fires, which takes what falls due within it together."""
RETRY_S = 0.1
"""Pause before a delivery is sent again, or a target that is missing is looked for."""


class Target(NamedTuple):
    """The topic that messages are delivered to."""

    topic_id: TopicId
    partitions: int
    """Those that accept records."""
    bytes_max: int
    """Of a batch."""


class Deliverer(Protocol):
    """Sends batches to the leaders of target partitions."""

    def target(self) -> Target | None:
        """The topic's target, if there is one now."""
        ...

    def is_gone(self, topic_id: TopicId) -> bool:
        """Whether a target was deleted."""
        ...

    def deliver(self, topic_id: TopicId, partition: int, batch: bytearray) -> Deferred[None]:
        """Send a batch to the leader of a partition; completes when it is committed there."""
        ...


class Sending:
    """A fire on its way."""

    __slots__ = ("batch", "entries", "lane", "outcome", "under_way", "waits_until_s")

    def __init__(self, lane: Lane, entries: dict[Offset, Entry], batch: bytearray | None) -> None:
        self.lane = lane
        self.entries = entries
        self.batch = batch
        """None: an entry is missing, because records were deleted."""
        self.outcome: Outcome | None = None
        self.under_way = False
        self.waits_until_s = 0.0


class PartitionDriver:
    """One schedule partition that this broker leads, in one leader epoch."""

    def __init__(
        self,
        replica: Replica,
        leader_epoch: LeaderEpoch,
        *,
        deliverer: Deliverer,
        take_producer_id: Callable[[], Awaitable[ProducerId]],
        clock: Clock,
        turns: Turns,
        threads: Executor,
        row: ScheduleRow,
        log: Logger,
    ) -> None:
        self._replica = replica
        self.leader_epoch = leader_epoch
        self._deliverer = deliverer
        self._take_producer_id = take_producer_id
        self._clock = clock
        self._turns = turns
        self._threads = threads
        self._row = row
        self._log = log
        self._state = PartitionSchedules()
        self._wake = asyncio.Event()
        self._sending: dict[LaneKey, Sending] = {}
        self._read_before: dict[LaneKey, dict[Offset, Entry]] = {}
        """Entries of fires that this leader made, until they are sent."""
        self._catch_up = CatchUp()
        self._target: Target | None = None
        self._is_ended = False
        self._blocked: list[Pending] = []
        """Entries that are skipped once a transaction with their keys has ended."""
        self._too_late = 0
        self._waiting = 0
        """Entries that are due and wait for their target partitions."""
        self._round_s = 0.0
        self._has_picked = False
        """Whether the last round had something to fire."""
        self._opened: tuple[Offset, Columns] | None = None
        """The compressed batch that was read last, by its base offset: a record of the log never changes."""

    @property
    def pending(self) -> int:
        return self._state.index.size

    # As a watcher of the replica, and of its service

    def notify(self) -> None:
        self._wake.set()

    def end(self) -> None:
        """Do nothing more."""
        self._is_ended = True
        self._wake.set()

    @property
    def leads(self) -> bool:
        role = self._replica.role
        return not self._is_ended and isinstance(role, Leader) and role.leader_epoch == self.leader_epoch

    # The task

    async def run(self) -> None:
        """Drive the partition until this broker no longer leads it in this epoch.

        After an error another driver has to load the partition: entries that were about to be fired are in no list.
        """
        replica = self._replica
        replica.watch(self)
        replica.watch(self, follower=True)
        try:
            await self._load()
            while self.leads:
                self._wake.clear()
                wait_s = await self._round()
                if wait_s is None or wait_s > 0:
                    await self._sleep(wait_s)
                else:
                    await asyncio.sleep(0)
        finally:
            replica.unwatch(self)
            self._row.pending = 0

    async def _sleep(self, seconds: float | None) -> None:
        """Wait to be notified, or for a time."""
        if seconds is None:
            await self._wake.wait()
            return
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _load(self) -> None:
        began_s = self._clock.monotonic()
        loop = asyncio.get_running_loop()
        while self.leads:
            view = self._replica.log.view()
            try:
                self._state = await loop.run_in_executor(self._threads, load, view)
            except LogChanged:
                continue
            break
        self._state.check_leftovers = True
        self._log.info(
            "schedules_loaded",
            partition=str(self._replica.tp),
            leader_epoch=self.leader_epoch,
            schedules=self._state.index.size,
            seconds=round(self._clock.monotonic() - began_s, 3),
        )

    async def _round(self) -> float | None:
        """Do what there is to do now; returns after how many seconds there may be more, None: after a notification."""
        await self._catch_up_with_log()
        role = self._replica.role
        if not self.leads or not isinstance(role, Leader):
            return None
        self._count()
        high_watermark = self._replica.offsets.high_watermark
        if not self._state.may_begin(high_watermark, role.epoch_start):
            return None
        await self._send(high_watermark)
        await self._close_done()
        await self._close_leftovers()
        if self._replica.config.schedule_paused:
            self._has_picked = False
        else:
            await self._fire()
        if not self._has_picked:
            self._opened = None
        return self._wait_s()

    def _count(self) -> None:
        row, state = self._row, self._state
        row.pending = state.index.size
        row.too_late += state.too_late - self._too_late
        self._too_late = state.too_late

    def _wait_s(self) -> float | None:
        state = self._state
        waits = [each.waits_until_s - self._clock.monotonic() for each in self._sending.values() if each.waits_until_s]
        due_ms = state.next_due()
        is_firing = self._target is not None and not self._replica.config.schedule_paused
        if due_ms is not None and is_firing:
            until_due_s = (due_ms - self._clock.now_ms()) / 1000
            until_round_s = self._round_s + ROUND_S_MIN - self._clock.monotonic()
            # What is due and still there has come this moment, or waits for room.
            pause_s = RETRY_S if self._waiting >= WAITING_MAX else ROUND_S_MIN
            waits.append(max(until_due_s, until_round_s) if until_due_s > 0 else max(until_round_s, pause_s))
        if any(lane.waiting for lane in state.lanes.values()) or self._blocked:
            waits.append(RETRY_S)
        if self._has_picked and is_firing and state.ready():
            waits.append(self._round_s + ROUND_S_MIN - self._clock.monotonic())
        if due_ms is not None or waits:
            return min(CLOCK_CHECK_S, max(min(waits, default=CLOCK_CHECK_S), 0.0))
        return None

    # The log

    async def _catch_up_with_log(self) -> None:
        """Apply what was appended, in steps."""
        while self.leads and (records := self._unapplied()) is not None:
            if not records.resident():
                await asyncio.get_running_loop().run_in_executor(self._threads, records.warm)
            await self._apply_in_steps(memoryview(records.contents()))

    async def _catch_up_and_go_on(self) -> None:
        """Apply what was appended meanwhile: the last of it at once, since producers may be as fast as this."""
        for _ in range(SLICES_MAX):
            if not self.leads or (records := self._unapplied()) is None:
                return
            if not records.resident():
                await asyncio.get_running_loop().run_in_executor(self._threads, records.warm)
            await self._apply_in_steps(memoryview(records.contents()))
        self._apply_rest()

    async def _apply_in_steps(self, data: memoryview) -> None:
        applied = self._state.applied
        for position, header in iter_batches(data):
            if header.next_offset <= applied:
                continue
            batch = data[position : position + header.size]
            if header.is_control or not header.record_count:
                feed(self._state, batch, header)
                continue
            columns = await self._columns_of(batch, header)
            for row in range(0, len(columns), ROWS_PER_STEP):
                rows = range(row, min(row + ROWS_PER_STEP, len(columns)))
                feed_records(self._state, columns, header, rows)
                if self._turns.spent():
                    await self._turns.pause()
            self._state.applied = header.next_offset
        if self._state.applied == applied:
            # Compaction left nothing there.
            self._state.applied = self._replica.log.log_end

    async def _columns_of(self, batch: memoryview, header: BatchHeader) -> Columns:
        """The records of a batch, decompressed in a thread where they may be many."""
        if not header.attributes & CODEC_MASK:
            return decode_columns(batch)
        if header.size <= SMALL_BYTES:
            with suppress(Malformed):
                return decode_columns(batch, limit_bytes=LIGHT_RECORDS_BYTES_MAX)
        return await asyncio.get_running_loop().run_in_executor(self._threads, decode_columns, batch)

    def _apply_rest(self) -> None:
        """Apply everything now: what is missing was appended a moment ago, and is in the page cache."""
        while (records := self._unapplied()) is not None:
            self._apply(records.contents())

    def _unapplied(self) -> FileSlice | None:
        log, state = self._replica.log, self._state
        if state.applied < log.log_start:
            state.applied = log.log_start
        if state.applied >= log.log_end:
            return None
        return log.slice(state.applied, FEED_BYTES, end=log.log_end, at_least_one=True)

    def _apply(self, data: bytes) -> None:
        view, applied = memoryview(data), self._state.applied
        end = applied
        for position, header in iter_batches(view):
            end = header.next_offset
            if end > applied:
                feed(self._state, view[position : position + header.size], header)
        if end == applied:
            # Compaction left nothing there.
            self._state.applied = self._replica.log.log_end

    def _append(self, batch: bytearray) -> None:
        """Append a batch that follows from the state, which has everything before it, and apply it."""
        assert self._state.applied == self._replica.log.log_end, "the state is behind the log"
        self._replica.append(memoryview(batch), self._clock.now_ms(), internal=True)
        self._apply_rest()

    async def _read(
        self, offsets: Iterable[Offset], bytes_max: int = NO_LIMIT
    ) -> tuple[dict[Offset, Entry], set[Offset]]:
        """Entries by offset, without those that were deleted; and the offsets that were not looked at.

        It looks at no more once more than `bytes_max` bytes of values are read.
        """
        wanted = sorted(set(offsets))
        found: dict[Offset, Entry] = {}
        log = self._replica.log
        at = 0
        left = bytes_max
        while at < len(wanted):
            try:
                records = log.slice(max(wanted[at], log.log_start), 1, end=log.log_end, at_least_one=True)
            except OffsetOutOfRange:
                break
            if records is None:
                break
            if not records.resident():
                await asyncio.get_running_loop().run_in_executor(self._threads, records.warm)
            data = memoryview(records.contents())
            if len(data) < HEADER_BYTES:
                at += 1
                continue
            header = BatchHeader._make(HEADER.unpack_from(data))
            first = at
            while at < len(wanted) and wanted[at] < header.next_offset:
                at += 1
            some = entries_in(await self._opened_batch(data[: header.size], header), wanted[first:at], left)
            found |= some
            left -= sum(len(entry.value) for entry in some.values())
            if left < 0:
                last = max(some)
                return found, {offset for offset in wanted if offset > last}
            at = max(at, first + 1)
            if self._turns.spent():
                await self._turns.pause()
        return found, set()

    async def _opened_batch(self, batch: memoryview, header: BatchHeader) -> Columns:
        """As `_columns_of`; a compressed batch may be read again and again, until all of it is fired."""
        if not header.attributes & CODEC_MASK:
            return decode_columns(batch)
        if self._opened is not None and self._opened[0] == header.base_offset:
            return self._opened[1]
        columns = await self._columns_of(batch, header)
        self._opened = header.base_offset, columns
        return columns

    # Delivering

    async def _send(self, high_watermark: Offset) -> None:
        """Send fires that are committed, and those again that failed a while ago."""
        now_s = self._clock.monotonic()
        for lane in list(self._state.deliverable(high_watermark)):
            key = lane.topic_id, lane.partition
            sending = self._sending.get(key)
            if sending is None:
                fire = lane.open
                assert fire is not None, "a lane without a fire"
                entries = self._read_before.pop(key, {})
                if not all(named.offset in entries for named in fire.named):
                    # The fire is an earlier leader's.
                    entries, _ = await self._read(named.offset for named in fire.named)
                    if lane.open is not fire or not self.leads:
                        return
                whole = all(named.offset in entries for named in fire.named)
                sending = Sending(lane, entries, build_delivery(fire, entries) if whole else None)
                self._sending[key] = sending
            if not sending.under_way and sending.outcome is None and sending.waits_until_s <= now_s:
                self._deliver(sending)

    def _deliver(self, sending: Sending) -> None:
        lane = sending.lane
        if sending.batch is None:
            self._log.error("scheduled_records_deleted", partition=str(self._replica.tp), fire=lane.open_at)
            sending.outcome = Outcome.REFUSED
            return
        if self._deliverer.is_gone(lane.topic_id):
            sending.outcome = Outcome.RELEASED
            return
        sending.under_way, sending.waits_until_s = True, 0.0
        try:
            sent = self._deliverer.deliver(lane.topic_id, lane.partition, sending.batch)
        except BrokerError as error:
            self._failed(sending, error)
            return
        sent.deliver_to(partial(self._delivered, sending), partial(self._failed, sending))

    def _delivered(self, sending: Sending, _: None) -> None:
        sending.under_way, sending.outcome = False, Outcome.DELIVERED
        self._wake.set()

    def _failed(self, sending: Sending, error: Exception) -> None:
        sending.under_way = False
        lane = sending.lane
        sending.waits_until_s = self._clock.monotonic() + RETRY_S
        fire = lane.open
        sending.outcome = None if fire is None else outcome_of(error, len(fire.named))
        if sending.outcome is None:
            self._log.debug(
                "schedule_delivery_waits", partition=str(self._replica.tp), target=lane.partition, reason=str(error)
            )
        else:
            event = "schedule_fire_released"
            if isinstance(error, REFUSALS):
                event = "scheduled_messages_refused"
            elif isinstance(error, OutOfOrderSequenceNumber):
                event = "schedule_target_lost_records"
            self._log.error(
                event,
                partition=str(self._replica.tp),
                target=lane.partition,
                fire=lane.open_at,
                outcome=sending.outcome.name,
                reason=f"{type(error).__name__}: {error}",
            )
        self._wake.set()

    # Closing

    async def _close_done(self) -> None:
        """Append what follows the entries of fires that have ended, and then their closes."""
        done = [each for each in self._sending.values() if each.outcome is not None]
        if not done:
            return
        await self._catch_up_and_go_on()
        if not self.leads:
            return
        ended: list[Ended] = []
        for sending in done:
            lane, outcome = sending.lane, sending.outcome
            fire = lane.open
            assert fire is not None, "a fire that is closed already"
            assert outcome is not None, "a fire that has not ended"
            ended.append(Ended(lane.open_at, fire, outcome, sending.entries))
            del self._sending[lane.topic_id, lane.partition]
            if outcome is Outcome.REFUSED:
                self._row.refused += len(fire.named)
            elif outcome is Outcome.DELIVERED:
                self._row.fired += len(fire.named)
        batches = build_end(self._state, ended, misfire=self._misfire, now_ms=self._clock.now_ms())
        self._append_closing(batches, [each.offset for each in ended])

    def _append_closing(self, batches: Iterable[bytearray], fires: Iterable[Offset]) -> None:
        self._state.is_closing(fires)
        for batch in batches:
            self._append(batch)
        self._state.is_closing(())

    async def _close_leftovers(self) -> None:
        """Append what follows delivered entries whose keys had records in transactions that were aborted since."""
        if not self._state.check_leftovers:
            return
        self._state.check_leftovers = False
        left = self._state.leftovers()
        for at in range(0, len(left), LEFTOVERS_PER_STEP):
            await self._close_some(left[at : at + LEFTOVERS_PER_STEP])

    async def _close_some(self, left: Sequence[tuple[Offset, Fired]]) -> None:
        entries, _ = await self._read(offset for offset, _ in left)
        await self._catch_up_and_go_on()
        if not self.leads:
            return
        state = self._state
        for offset, fired in left:
            if state.fired.get(offset) != fired:
                continue
            entry = entries.get(offset)
            if entry is None or state.index.last_of(digest_of(entry.key)) != offset:
                del state.fired[offset]
                continue
            named = [Named(offset, fired.last_due_ms)]
            builder = RecordBatchBuilder()
            add_closings(state, builder, fired.fire, fired.fired_ms, named, entries, misfire=self._misfire)
            if builder.count:
                self._append_closing([builder.build()], [fired.fire])

    @property
    def _misfire(self) -> Misfire:
        return Misfire(self._replica.config.schedule_misfire)

    # Firing

    async def _fire(self) -> None:
        """Fire what is due, for every target partition that has no fire."""
        now_s = self._clock.monotonic()
        target = self._deliverer.target()
        state = self._state
        if target is None or self._target is None or target[:2] != self._target[:2]:
            state.unplace()
        self._target = target
        if target is None or now_s < self._round_s + ROUND_S_MIN:
            return
        for entry in self._blocked:
            state.index.add(entry)
        self._blocked.clear()
        now_ms = self._clock.now_ms()
        self._waiting = sum(len(lane.waiting) for lane in state.lanes.values())
        while self._waiting < WAITING_MAX:
            placed = state.place_due(now_ms, target.topic_id, target.partitions, at_most=PLACED_PER_STEP)
            self._waiting += placed
            if placed < PLACED_PER_STEP:
                break
            if self._turns.spent():
                await self._turns.pause()
        picked = self._pick(now_ms)
        self._has_picked = bool(picked)
        if not picked:
            return
        self._round_s = now_s
        entries, unread = await self._read_picked(picked)
        missing = [lane for lane, _ in picked if lane.producer_id == NO_PRODUCER]
        if missing:
            await self._give_producer_id(missing)
        # Records may have come meanwhile, that replace or cancel some of these.
        await self._catch_up_and_go_on()
        if not self.leads or self._deliverer.target() != target:
            for lane, some in picked:
                state.give_back(lane, some)
            return
        self._make_fires(picked, entries, unread, target)

    async def _read_picked(
        self, picked: Sequence[tuple[Lane, list[Pending]]]
    ) -> tuple[dict[Offset, Entry], set[Offset]]:
        """The entries to fire, as far as batches may have room for them; and the offsets of those not read."""
        found: dict[Offset, Entry] = {}
        unread = {entry.offset for _, some in picked for entry in some}
        left = min(READ_BYTES_MAX, 2 * FIRE_BYTES_MAX * len(picked))
        begun = 0
        for end in READ_STEPS:
            wanted = {entry.offset for _, some in picked for entry in some[begun:end]}
            read, rest = await self._read(wanted, left)
            found |= read
            unread -= wanted - rest
            left -= sum(len(entry.value) for entry in read.values())
            begun = end
            if not unread or left <= 0:
                break
        if self._opened is not None and len(self._opened[1].data) > OPENED_BYTES_MAX:
            self._opened = None
        return found, unread

    def _pick(self, now_ms: int) -> list[tuple[Lane, list[Pending]]]:
        """The entries to fire now, by lane, as far as the rate of late ones allows."""
        state = self._state
        lanes = state.ready()
        if not lanes:
            return []
        allowed = self._late_allowed()
        each_max = min(FIRE_RECORDS_MAX, max(1, ENTRIES_READ_MAX // len(lanes)))
        late = 0
        picked: list[tuple[Lane, list[Pending]]] = []
        # Oldest first.
        for lane in sorted(lanes, key=lambda lane: lane.waiting[0].due_ms):
            if late >= allowed and now_ms - lane.waiting[0].due_ms > LATE_MS:
                continue
            found = state.candidates(lane, each_max)
            some: list[Pending] = []
            for entry in found:
                if now_ms - entry.due_ms > LATE_MS:
                    if late >= allowed:
                        break
                    late += 1
                some.append(entry)
            state.give_back(lane, found[len(some) :])
            if some:
                picked.append((lane, some))
        return picked

    def _late_allowed(self) -> int:
        return self._catch_up.allowed(self._replica.config.schedule_catchup_rate, monotonic_ms(self._clock))

    async def _give_producer_id(self, lanes: Sequence[Lane]) -> None:
        allocated = await self._take_producer_id()
        state = self._state
        if state.producer_id == NO_PRODUCER:
            state.producer_id = schedule_producer_id(allocated)
        for lane in lanes:
            if lane.producer_id == NO_PRODUCER:
                lane.producer_id = state.producer_id

    def _make_fires(
        self,
        picked: Sequence[tuple[Lane, list[Pending]]],
        entries: dict[Offset, Entry],
        unread: set[Offset],
        target: Target,
    ) -> None:
        state, now_ms = self._state, self._clock.now_ms()
        skipped = RecordBatchBuilder()
        fires: list[Fire] = []
        for lane, some in picked:
            named, firing = self._named(lane, some, entries, unread, target, now_ms, skipped)
            if named:
                fires.append(state.make_fire(lane, now_ms, named, firing))
                self._read_before[lane.topic_id, lane.partition] = {each.offset: entries[each.offset] for each in named}
        if skipped.count:
            self._append(skipped.build())
        if fires:
            self._append(build_fires(fires))
            for fire in fires:
                for each in fire.named:
                    self._row.lateness.add((now_ms - each.due_ms) * 1000)

    def _named(
        self,
        lane: Lane,
        some: list[Pending],
        entries: dict[Offset, Entry],
        unread: set[Offset],
        target: Target,
        now_ms: int,
        skipped: RecordBatchBuilder,
    ) -> tuple[list[Named], list[Pending]]:
        """What a fire names: as many of the entries as one batch has room for. Skipped ones are closed at once."""
        state = self._state
        named: list[Named] = []
        firing: list[Pending] = []
        size, size_limit = HEADER_BYTES, min(FIRE_BYTES_MAX, target.bytes_max)
        allowed = self._late_allowed()
        for at, pending in enumerate(some):
            if pending.offset in unread:
                state.give_back(lane, some[at:])
                break
            entry = entries.get(pending.offset)
            if entry is None or pending.due_ms > now_ms or not state.is_pending(pending):
                if entry is not None and state.is_pending(pending):
                    # The clock was set back meanwhile.
                    state.index.add(pending)
                continue
            schedule = entry.schedule
            misfire = schedule.misfire or self._misfire
            times, left_out = due_times(pending.due_ms, schedule.recurrence, misfire, now_ms)
            if left_out:
                if state.is_to_close(pending.offset, digest_of(entry.key)):
                    add_closing(skipped, entry, now_ms, -1, now_ms)
                    self._row.skipped += left_out
                else:
                    self._blocked.append(pending)
                continue
            room = max(0 if named else 1, (size_limit - size) // size_max(entry))
            late = sum(now_ms - due_ms > LATE_MS for due_ms in times)
            if not room or len(named) >= lane.records_max or (late and allowed <= 0):
                state.give_back(lane, some[at:])
                break
            times = times[:room]
            # A recurring schedule may use more than there is, which those after it wait for.
            late = min(late, len(times))
            allowed -= late
            self._catch_up.used(late)
            size += len(times) * size_max(entry)
            named += (Named(pending.offset, due_ms) for due_ms in times)
            firing.append(pending)
        return named, firing
