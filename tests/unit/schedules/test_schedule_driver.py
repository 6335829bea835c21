"""The driver of a schedule partition at its leader: what it reads, how fast it catches up, and what it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, cast

import pytest
from tests.unit.partition.rig import ManualThreads, Rig, topic

from penstock.model.deferred import Deferred
from penstock.model.ids import NO_OFFSET, Offset, ProducerId, TopicId
from penstock.model.turns import Turns
from penstock.observe.counters import ScheduleRow
from penstock.partition.leader import Leader
from penstock.schedules import driver as driver_module
from penstock.schedules.driver import ROUND_S_MIN, PartitionDriver, Target
from penstock.schedules.firing import Held, PartitionSchedules
from penstock.schedules.headers import CRON, DELIVER_AT
from penstock.schedules.index import digest_of
from penstock.schedules.loading import entries_in
from penstock.storage.slices import FileSlice
from penstock.storage.view import LogChanged
from penstock.testing.manual import NOW_MS
from penstock.wire.compression import GZIP
from penstock.wire.record_columns import decode_columns
from penstock.wire.records import Record, build_batch, decode_records

TARGET = Target(TopicId(b"t" * 16), 1, 1_000_000)
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


class Receiver:
    """A target that takes everything at once."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def target(self) -> Target | None:
        return TARGET

    def is_gone(self, topic_id: TopicId) -> bool:
        return False

    def deliver(self, topic_id: TopicId, partition: int, batch: bytearray) -> Deferred[None]:
        self.records += decode_records(batch)
        sent: Deferred[None] = Deferred()
        sent.resolve(None)
        return sent


class Threads(ManualThreads):
    """Threads that remember what they ran."""

    def __init__(self) -> None:
        super().__init__(eager=True)
        self.calls: list[Callable[..., Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append(fn)
        return super().submit(fn, *args, **kwargs)


class Schedules:
    """A schedule partition and its target."""

    def __init__(self, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.rig = Rig(topic(configs={"cleanup.policy": "compact", "schedule.target": "due", **named}))
        self.replica = self.rig.replica()
        self.receiver = Receiver()
        self.threads = Threads()
        self.row = ScheduleRow()

    def write(self, *records: tuple[str, bytes | None, str, str], codec: int = 0, at_ms: int = NOW_MS) -> None:
        """Records of key, value, header and its text, in one batch."""
        built = [
            Record(at, at_ms, key.encode(), value, [(name, text.encode())] if name else [])
            for at, (key, value, name, text) in enumerate(records)
        ]
        self.rig.append(self.replica, build_batch(built, compression=codec))

    async def leader(self) -> PartitionDriver:
        """The next leader on this replica."""

        async def take_producer_id() -> ProducerId:
            return ProducerId(1)

        role = cast("Leader", self.replica.role)
        found = PartitionDriver(
            self.replica,
            role.leader_epoch,
            deliverer=self.receiver,
            take_producer_id=take_producer_id,
            clock=self.rig.clock,
            turns=Turns(asyncio.get_running_loop().call_soon, self.rig.clock.monotonic),
            threads=self.threads,
            row=self.row,
            log=self.rig.notes,
        )
        await found._load()
        return found

    async def rounds(self, driver: PartitionDriver, count: int) -> None:
        """So many rounds of fires, as soon after one another as there may be."""
        for _ in range(count):
            self.rig.clock.ms += int(ROUND_S_MIN * 1000)
            await driver._round()
            await driver._round()


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_a_change_that_was_too_late_is_counted_once_and_a_delivery_is_none() -> None:
    async def story() -> None:
        schedules = Schedules()
        schedules.write(*((f"k{number}", b"v", DELIVER_AT, "1000") for number in range(5)))
        first = await schedules.leader()
        await schedules.rounds(first, 3)
        assert len(schedules.receiver.records) == 5
        assert schedules.row.too_late == 0
        schedules.write(("late", b"v", DELIVER_AT, "1000"))
        # Its fire is appended, and then the user's tombstone.
        schedules.rig.clock.ms += 100
        await first._round()
        schedules.write(("late", None, "", ""))
        await schedules.rounds(first, 3)
        assert schedules.row.too_late == 1

        second = await schedules.leader()
        await schedules.rounds(second, 3)

        assert schedules.row.too_late == 1
        assert len(schedules.receiver.records) == 6

    run(story())


def test_a_clock_that_is_set_forward_and_back_delivers_everything_once_and_nothing_early() -> None:
    async def story() -> None:
        schedules = Schedules()
        clock, receiver = schedules.rig.clock, schedules.receiver
        driver = await schedules.leader()
        dues = [NOW_MS + 1_000, NOW_MS + DAY_MS // 2, NOW_MS + 2 * DAY_MS]
        schedules.write(*((f"k{at}", b"v", DELIVER_AT, str(due)) for at, due in enumerate(dues)))
        await schedules.rounds(driver, 3)
        assert not receiver.records

        clock.ms += DAY_MS
        await schedules.rounds(driver, 3)
        assert [record.key for record in receiver.records] == [b"k0", b"k1"]
        clock.ms -= DAY_MS
        schedules.write(("new", b"v", DELIVER_AT, str(NOW_MS + 60_000)))
        await schedules.rounds(driver, 3)
        next_leader = await schedules.leader()
        await schedules.rounds(next_leader, 3)
        assert len(receiver.records) == 2
        clock.ms += 60_000
        await schedules.rounds(next_leader, 3)
        assert [record.key for record in receiver.records] == [b"k0", b"k1", b"new"]

    run(story())


def test_what_is_due_waits_again_when_the_clock_is_set_back_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        schedules = Schedules()
        clock, receiver = schedules.rig.clock, schedules.receiver
        schedules.write(("k", b"v", DELIVER_AT, str(NOW_MS)))
        driver = await schedules.leader()
        read = driver._read_picked

        async def set_back(*args: Any) -> Any:
            clock.ms = NOW_MS - 5_000
            return await read(*args)

        with monkeypatch.context() as patch:
            patch.setattr(driver, "_read_picked", set_back)
            await driver._round()
        await schedules.rounds(driver, 3)
        assert not receiver.records
        clock.ms = NOW_MS
        await schedules.rounds(driver, 3)
        assert len(receiver.records) == 1

    run(story())


def test_an_error_in_a_round_ends_the_driver_and_the_next_one_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        schedules = Schedules()
        schedules.write(("k", b"v", DELIVER_AT, "1000"))
        driver = await schedules.leader()

        async def changed(*_: Any) -> Any:
            raise LogChanged("the files have changed while they were read")

        with monkeypatch.context() as patch:
            patch.setattr(driver, "_read_picked", changed)
            with pytest.raises(LogChanged):
                await driver.run()
        next_driver = await schedules.leader()
        await schedules.rounds(next_driver, 3)
        assert len(schedules.receiver.records) == 1

    run(story())


def test_a_producer_that_is_as_fast_as_the_driver_does_not_keep_it_from_firing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        schedules = Schedules()
        schedules.write(("k", b"v", DELIVER_AT, "1000"))
        driver = await schedules.leader()
        apply_in_steps = driver._apply_in_steps
        written = 0

        async def with_more(data: memoryview) -> None:
            nonlocal written
            await apply_in_steps(data)
            if written < 1_000:
                written += 1
                schedules.write((f"far-{written}", b"v", DELIVER_AT, str(NOW_MS + DAY_MS)))

        read = driver._read_picked

        async def as_it_reads(*args: Any) -> Any:
            found = await read(*args)
            schedules.write(("first", b"v", DELIVER_AT, str(NOW_MS + DAY_MS)))
            monkeypatch.setattr(driver, "_apply_in_steps", with_more)
            return found

        monkeypatch.setattr(driver, "_read_picked", as_it_reads)
        await driver._round()
        assert driver._state.fired
        assert 0 < written < 1_000

    run(story())


def test_few_more_large_messages_are_read_than_are_fired(monkeypatch: pytest.MonkeyPatch) -> None:
    size, count = 20_000, 150
    entries_read = 0

    def counted(*args: Any) -> dict[Offset, Any]:
        nonlocal entries_read
        found = entries_in(*args)
        entries_read += len(found)
        return found

    monkeypatch.setattr(driver_module, "entries_in", counted)

    async def story() -> None:
        schedules = Schedules(schedule_catchup_rate="1000")
        for number in range(count):
            schedules.write((f"k{number}", b"x" * size, DELIVER_AT, str(number)))
        driver = await schedules.leader()
        await schedules.rounds(driver, 2 * count * size // driver_module.FIRE_BYTES_MAX)
        # Nor do those that a batch has no room for count as delivered late.
        assert [int((record.key or b"")[1:]) for record in schedules.receiver.records] == list(range(count))

    run(story())
    assert entries_read < 4 * count


def test_all_times_of_a_recurring_schedule_count_as_late() -> None:
    async def story() -> None:
        schedules = Schedules(schedule_catchup_rate="100", schedule_misfire="all")
        begun = NOW_MS - 300 * MINUTE_MS
        schedules.write(*((f"k{number}", b"v", CRON, "* * * * *") for number in range(5)), at_ms=begun)
        driver = await schedules.leader()

        await schedules.rounds(driver, 5)
        assert 300 <= len(schedules.receiver.records) <= 301
        await schedules.rounds(driver, 80)
        assert 300 <= len(schedules.receiver.records) <= 301
        await schedules.rounds(driver, 60)
        assert 600 <= len(schedules.receiver.records) <= 602

    run(story())


@pytest.mark.parametrize("count", [3, 60])
def test_a_large_compressed_batch_is_decompressed_in_a_thread_and_once(count: int) -> None:
    async def story() -> None:
        schedules = Schedules()
        driver = await schedules.leader()
        records = [(f"k{number}", b"x" * 10_000, DELIVER_AT, "1000") for number in range(count)]
        schedules.write(*records, codec=GZIP)
        await schedules.rounds(driver, 12)

        assert len(schedules.receiver.records) == count
        # When it is applied, and when it is fired: a batch that is delivered has no room for all of it.
        assert schedules.threads.calls.count(decode_columns) == (2 if count > 30 else 0)

    run(story())


def test_cold_records_are_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        schedules = Schedules()
        driver = await schedules.leader()
        schedules.write(("k", b"v", DELIVER_AT, "1000"))
        monkeypatch.setattr(FileSlice, "resident", lambda _: False)
        await schedules.rounds(driver, 3)
        assert len(schedules.receiver.records) == 1
        assert any(getattr(call, "__func__", None) is FileSlice.warm for call in schedules.threads.calls)

    run(story())


def test_what_a_closed_transaction_held_is_closed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "LEFTOVERS_PER_STEP", 2)

    async def story() -> None:
        schedules = Schedules()
        driver = await schedules.leader()
        keys = [f"k{number}" for number in range(5)]
        schedules.write(*((key, b"v", DELIVER_AT, "1000") for key in keys))
        state = driver._state
        await driver._catch_up_with_log()
        # As records of an open transaction would.
        digests = [digest_of(key.encode()) for key in keys]
        for digest in digests:
            state._held_keys[digest] = 1
        await schedules.rounds(driver, 3)
        assert state.index.size == 5
        state._held_keys.clear()
        state.check_leftovers = True

        await schedules.rounds(driver, 1)

        assert state.index.size == 0
        assert all(state.index.last_of(digest) == NO_OFFSET for digest in digests)

    run(story())


def test_only_tombstones_of_keys_in_open_transactions_are_remembered() -> None:
    """Each delivery writes one, and a transaction may be open for long."""
    state = PartitionSchedules()
    open_key, other = digest_of(b"open"), ProducerId(2)
    state.hold(other, Held(Offset(0), open_key, 1_000, 0, False))
    state.remove(Offset(1), open_key)
    for number in range(2, 100):
        digest = digest_of(b"%d" % number)
        state.put(Offset(number), digest, 1_000, 0)
        state.remove(Offset(1_000 + number), digest)
    assert state._cancelled == {open_key: 1}

    state.decide(other, committed=True)

    # The tombstone is newer than the record of the transaction.
    assert state.index.size == 0
    assert not state._cancelled
