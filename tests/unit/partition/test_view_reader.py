"""How a fetch of a view waits, what it may spend, and whose offsets it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest
from tests.unit.partition.rig import Rig, batch, topic

from penstock.metadata.image import ImageDelta, ViewChange
from penstock.model.batch import TRANSACTIONAL_FLAG
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidTopic, KafkaStorageError, UnknownTopicId
from penstock.model.ids import BrokerId, CoordinatorEpoch, LeaderEpoch, ProducerEpoch, ProducerId, TopicId
from penstock.model.topic import ViewState
from penstock.partition import view_reader
from penstock.partition.fetch import Fetches, FetchJob, FetchLimits
from penstock.partition.fetch_session import CachedPartition
from penstock.partition.results import Fetched
from penstock.partition.view_reader import ViewReader
from penstock.testing.manual import NOW_MS
from penstock.views.form import packed
from penstock.views.language import parse
from penstock.views.look import HEAVY_BYTES, unlimited
from penstock.wire.records import RecordBatchBuilder, build_marker, decode_records, iter_batches

VIEW_ID = TopicId(b"v" * 16)
WHERE = "value = 'match'"


class Seen:
    """A fetch of a view, on its way."""

    def __init__(self, rig: Rig, reader: ViewReader, job: FetchJob, wait_ms: int) -> None:
        self._rig = rig
        self._job = job
        job.read()
        assert job.has_views
        self._task = asyncio.get_running_loop().create_task(reader.read(job, wait_ms))

    async def settle(self) -> None:
        for _ in range(200):
            self._rig.loop.run()
            await asyncio.sleep(0)

    async def waits(self) -> bool:
        await self.settle()
        return not self._task.done()

    async def outcome(self) -> Fetched | BrokerError:
        assert not await self.waits()
        self._task.result()
        [(_, outcome)] = self._job.results
        return outcome

    async def read(self) -> tuple[list[bytes | None], int]:
        """The values, and the offset at which the consumer goes on."""
        outcome = await self.outcome()
        assert isinstance(outcome, Fetched), outcome
        data = bytes(outcome.records)  # type: ignore[arg-type]
        found: list[bytes | None] = []
        position = -1
        for start, header in iter_batches(data):
            position = header.next_offset
            if not header.is_control:
                found += [record.value for record in decode_records(data[start : start + header.size])]
        return found, position

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class World:
    def __init__(self, *, monotonic: Callable[[], float] | None = None, percent: float = 100.0) -> None:
        self.topic = topic()
        self.rig = Rig(self.topic)
        self.replica = self.rig.replica()
        self.view(WHERE)
        self.reader = ViewReader(
            threads=self.rig.threads,
            monotonic=monotonic or self.rig.clock.monotonic,
            cpu_percent_max=lambda: percent,
            hold=unlimited,
            timers=self.rig.timers,
            turns=self.rig.turns,
        )

    def view(self, where: str | None) -> None:
        before = self.rig.replicas.views.get(VIEW_ID)
        after = None
        if where is not None:
            after = ViewState(
                topic=replace(self.topic, name="view", topic_id=VIEW_ID),
                parent=self.topic.name,
                parent_id=self.topic.topic_id,
                filter=where,
                form=packed(parse(where)),
            )
        change = ViewChange(before=None if before is None else before.state, after=after)
        self.rig.replicas.apply(ImageDelta(views=(change,)))

    def append(self, *values: bytes, **kw: Any) -> None:
        self.rig.append(self.replica, batch(*values, **kw))

    def write(self, producer_id: int, *values: bytes) -> None:
        """Records of a transaction."""
        builder = RecordBatchBuilder()
        for value in values:
            builder.add(NOW_MS, None, value)
        made = builder.build(
            attributes=TRANSACTIONAL_FLAG,
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0),
            base_sequence=0,
        )
        self.rig.append(self.replica, made, internal=True)

    def abort(self, producer_id: int) -> None:
        marker = build_marker(
            commit=False,
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=CoordinatorEpoch(0),
            timestamp_ms=NOW_MS,
        )
        self.rig.append(self.replica, marker, internal=True)

    def begin(
        self, offset: int = 0, *, named: object = VIEW_ID, session: int = 0, epoch: int = -1, **kw: Any
    ) -> FetchJob:
        limits = FetchLimits(**{"bytes_min": 1, "bytes_max": 1 << 20, **kw})
        return self.rig.fetches.begin(
            limits,
            session_id=session,
            epoch=epoch,
            by_topic_id=isinstance(named, bytes),
            asked=[CachedPartition(named, 0, offset, 1 << 20)],
            now_ms=self.rig.clock.ms,
        )

    def fetch(self, offset: int = 0, *, wait_ms: int = 500, **kw: Any) -> Seen:
        return Seen(self.rig, self.reader, self.begin(offset, **kw), wait_ms)


def in_a_loop(work: Callable[..., Any]) -> Callable[..., None]:
    @wraps(work)
    def run(**fixtures: Any) -> None:
        asyncio.run(work(**fixtures))

    return run


@in_a_loop
async def test_what_passes_is_answered_at_once() -> None:
    world = World()
    world.append(b"no", b"match", b"no")

    assert await world.fetch(wait_ms=10_000).read() == ([b"match"], 3)
    assert await world.fetch(named="view").read() == ([b"match"], 3)


@in_a_loop
async def test_only_what_passes_ends_a_wait() -> None:
    world = World()
    world.append(b"no")
    fetch = world.fetch()
    assert await fetch.waits()

    world.append(b"no" * 100)
    assert await fetch.waits(), "it grew by more than fetch.min.bytes, and nothing passes"
    world.append(b"no", b"match")

    assert await fetch.read() == ([b"match"], 4)


@in_a_loop
async def test_when_the_time_is_up_the_position_moves_to_what_was_looked_at() -> None:
    world = World()
    world.append(b"no")
    fetch = world.fetch(wait_ms=500)
    assert await fetch.waits()
    world.append(b"no", b"no")
    assert await fetch.waits()

    world.rig.loop.pass_ms(520)

    assert await fetch.read() == ([], 3)


@in_a_loop
async def test_nothing_is_looked_at_twice_while_a_fetch_waits() -> None:
    world = World()
    for _ in range(20):
        world.append(b"no")
    fetch = world.fetch()
    assert await fetch.waits()
    for _ in range(10):
        world.append(b"no")
        assert await fetch.waits()
    world.append(b"match")

    assert await fetch.read() == ([b"match"], 31)
    view = world.rig.replicas.views.get(VIEW_ID)
    assert view is not None
    assert (view.tally.records, view.tally.records_passed) == (31, 1)


@in_a_loop
async def test_at_the_end_a_fetch_waits_and_is_empty_when_its_time_is_up() -> None:
    world = World()
    world.append(b"match")
    fetch = world.fetch(1)
    assert await fetch.waits()

    world.rig.loop.pass_ms(520)

    assert await fetch.read() == ([], -1)


@in_a_loop
async def test_several_passing_batches_wait_for_fetch_min_bytes() -> None:
    world = World()
    world.append(b"match")
    fetch = world.fetch(bytes_min=200)
    assert await fetch.waits()
    world.append(b"no" * 200)
    assert await fetch.waits()
    world.append(b"match")
    world.append(b"match")

    assert await fetch.read() == ([b"match"] * 3, 4)


@in_a_loop
async def test_a_request_looks_at_no_more_than_its_share() -> None:
    world = World()
    for _ in range(40):
        world.append(b"x" * 500_000)
    first = await world.fetch(wait_ms=60_000).read()
    assert first[0] == []
    assert view_reader.LOOK_BYTES_MAX / 500_000 - 3 < first[1] < 40, "16 MiB, without waiting for the time"

    assert (await world.fetch(first[1], wait_ms=0).read())[1] == 40


@in_a_loop
async def test_a_request_looks_no_longer_than_its_share() -> None:
    """The clock moves by 20 ms with every look at it, so a piece of work takes as long."""
    seconds = [0.0]

    def monotonic() -> float:
        seconds[0] += 0.02
        return seconds[0]

    world = World(monotonic=monotonic, percent=1000.0)
    for _ in range(40):
        world.append(b"x" * 700_000)

    _, position = await world.fetch(wait_ms=60_000).read()

    assert 2 <= position <= 6


@in_a_loop
async def test_a_view_that_has_used_its_share_of_a_core_waits() -> None:
    world = World(percent=10.0)
    world.append(b"match")
    view = world.rig.replicas.views.get(VIEW_ID)
    assert view is not None
    view.throttle.delay_s(world.rig.clock.monotonic(), 10.0)
    view.throttle.worked(0.25)
    fetch = world.fetch(wait_ms=5_000)
    assert await fetch.waits()
    assert view.throttled == 1
    world.rig.loop.pass_ms(300)
    assert await fetch.waits(), "50 ms too much, at 10 percent, are half a second"

    world.rig.loop.pass_ms(300)

    assert await fetch.read() == ([b"match"], 1)


@in_a_loop
async def test_readers_of_committed_records_stop_at_the_last_stable_offset() -> None:
    world = World()
    world.write(1, b"match")
    world.abort(1)
    world.append(b"no", b"match")
    world.write(2, b"match")
    stable = world.replica.offsets.last_stable

    fetch = world.fetch(read_committed=True)
    outcome = await fetch.outcome()

    assert isinstance(outcome, Fetched)
    assert outcome.aborted is not None
    assert [each.producer_id for each in outcome.aborted] == [1]
    values, position = await fetch.read()
    assert values == [b"match"]
    assert position == stable == world.replica.offsets.high_watermark - 1
    assert await world.fetch().read() == ([b"match"] * 3, stable + 1)


@in_a_loop
async def test_a_deleted_view_is_unknown_to_its_readers() -> None:
    world = World()
    world.append(b"no")
    session_id, _ = await opened(world)

    world.view(None)

    job = world.rig.fetches.begin(
        FetchLimits(bytes_min=1, bytes_max=1 << 20),
        session_id=session_id,
        epoch=1,
        by_topic_id=True,
        asked=(),
        now_ms=world.rig.clock.ms,
    )
    assert job.read()
    [(_, outcome)] = job.results
    assert isinstance(outcome, UnknownTopicId)


async def opened(world: World) -> tuple[int, Any]:
    job = world.begin(epoch=0)
    job.read()
    await world.reader.read(job, 0)
    return job.response(world.rig.clock.ms)


@in_a_loop
async def test_a_new_leader_epoch_forgets_what_the_last_one_showed() -> None:
    """The log may have been truncated in between: what was found may no longer be there."""
    world = World()
    world.append(b"match")
    fetch = world.fetch(bytes_min=100_000)
    assert await fetch.waits()

    before = world.topic
    partition = replace(before.partitions[0], leader_epoch=before.partitions[0].leader_epoch + 1)
    world.topic = replace(before, partitions=(partition,))
    world.rig.change(before, world.topic)
    world.append(b"match")

    world.rig.loop.pass_ms(520)
    assert await fetch.read() == ([b"match"] * 2, 2)
    view = world.rig.replicas.views.get(VIEW_ID)
    assert view is not None
    assert view.tally.records_passed == 3, "the first record was looked at in both epochs"


def test_a_view_has_the_replica_of_its_parent_and_cannot_be_written() -> None:
    world = World()

    assert world.rig.replicas.readable("view", 0) is world.replica
    assert world.rig.replicas.name_of(VIEW_ID) == "view"
    with pytest.raises(InvalidTopic, match="view of orders"):
        world.rig.replicas.get("view", 0)


@in_a_loop
async def test_a_reader_that_leaves_leaves_nothing_behind() -> None:
    world = World()
    world.append(b"no")
    fetch = world.fetch()
    assert await fetch.waits()

    await fetch.leave()

    assert world.rig.fetches.waiting == 0
    assert len(world.rig.timers) == 0


@in_a_loop
async def test_a_slow_filter_stops_within_a_piece_when_its_time_is_up() -> None:
    seconds = [0.0]

    def monotonic() -> float:
        seconds[0] += 0.02
        return seconds[0]

    world = World(monotonic=monotonic, percent=1000.0)
    for _ in range(40):
        world.append(b"x" * 1_000)

    _, position = await world.fetch(wait_ms=60_000).read()

    assert 1 <= position <= 6, "all of it is one piece"


@in_a_loop
async def test_a_heavy_filter_is_left_to_a_thread() -> None:
    """The event loop has no time for a pattern of thousands of steps at each character."""
    world = World()
    submitted: list[object] = []
    submit = world.rig.threads.submit
    world.rig.threads.submit = lambda *work, **kw: submitted.append(work) or submit(*work, **kw)  # type: ignore
    world.append(b"x" * 5_000, b"match")

    assert (await world.fetch().read())[0] == [b"match"]
    assert not submitted, "it is small, and the filter is light"

    world.view(None)
    world.view("value RLIKE '[^a].{500}z' OR value = 'match'")
    assert (await world.fetch().read())[0] == [b"match"]
    assert submitted


@in_a_loop
async def test_a_busy_topic_in_the_same_fetch_does_not_stop_a_view() -> None:
    """The topic fills each response as far as it may, whichever of the two comes first."""
    world = World()
    for _ in range(20):
        world.append(b"match", b"x" * 150_000)

    for order in ((world.topic.topic_id, VIEW_ID), (VIEW_ID, world.topic.topic_id)):
        asked = [CachedPartition(each, 0, 0, 1 << 20) for each in order]
        limits = FetchLimits(bytes_min=1, bytes_max=2 << 20)
        job = world.rig.fetches.begin(
            limits, session_id=0, epoch=-1, by_topic_id=True, asked=asked, now_ms=world.rig.clock.ms
        )
        job.read()
        await world.reader.read(job, 500)

        sizes = {
            partition.topic: len(outcome.records) for partition, outcome in job.results if isinstance(outcome, Fetched)
        }
        assert sizes[VIEW_ID] > 0
        assert sizes[world.topic.topic_id] > 500_000
        assert sum(sizes.values()) <= 2 << 20


async def fetched(world: World, order: Sequence[object], *, partition_bytes: int, bytes_max: int) -> dict[object, int]:
    """Bytes of each topic and view that one fetch of these sends, in this order."""
    asked = [CachedPartition(each, 0, 0, partition_bytes) for each in order]
    limits = FetchLimits(bytes_min=1, bytes_max=bytes_max)
    job = world.rig.fetches.begin(
        limits, session_id=0, epoch=-1, by_topic_id=True, asked=asked, now_ms=world.rig.clock.ms
    )
    job.read()
    await world.reader.read(job, 500)
    return {partition.topic: len(outcome.records) for partition, outcome in job.results if isinstance(outcome, Fetched)}


@in_a_loop
async def test_the_first_of_a_fetch_gets_a_batch_however_large_it_is() -> None:
    """Clients and sessions put first what got nothing: no batch is too large for long, beside a topic or not."""
    world = World()
    world.view(None)
    world.view("value LIKE 'x%'")
    for _ in range(5):
        world.append(b"x" * 300_000)
    topic_id = world.topic.topic_id

    for bytes_max in (1_000, 10 << 20):
        sizes = await fetched(world, (VIEW_ID, topic_id), partition_bytes=1_000, bytes_max=bytes_max)
        assert sizes[VIEW_ID] > 300_000
        assert (sizes[topic_id] > 0) == (bytes_max > 1_000), "two batches are not too large only if both fit"
        sizes = await fetched(world, (topic_id, VIEW_ID), partition_bytes=1_000, bytes_max=bytes_max)
        assert sizes[topic_id] > 300_000
        assert sizes[VIEW_ID] == 0
        assert (await fetched(world, (VIEW_ID,), partition_bytes=1_000, bytes_max=bytes_max))[VIEW_ID] > 300_000


def heavy(world: World) -> None:
    """Records that are looked at in threads, which do nothing until they are told."""
    world.append(b"x" * (HEAVY_BYTES + 1), b"match")
    world.rig.threads.eager = False


@in_a_loop
async def test_one_view_does_not_take_all_threads() -> None:
    """A filter may work on a large record for seconds, and flushes and cold reads need threads too."""
    world = World()
    heavy(world)
    fetches = [world.fetch(wait_ms=60_000) for _ in range(5)]
    for fetch in fetches:
        assert await fetch.waits()
    assert len(world.rig.threads.queue) == 1

    for _ in fetches:
        assert world.rig.threads.work() == 1
        for fetch in fetches:
            await fetch.settle()
        world.rig.loop.pass_ms(10)
        for fetch in fetches:
            await fetch.settle()

    for fetch in fetches:
        assert await fetch.read() == ([b"match"], 2)


@in_a_loop
async def test_views_together_leave_threads_to_others() -> None:
    world = World(percent=1_000.0)
    heavy(world)
    fetches = [world.fetch(wait_ms=60_000) for _ in range(5)]
    for fetch in fetches:
        assert await fetch.waits()

    assert len(world.rig.threads.queue) == view_reader.THREADS_MAX
    for fetch in fetches:
        await fetch.leave()


@in_a_loop
async def test_a_reader_that_leaves_does_not_free_the_thread_that_works_for_it() -> None:
    world = World()
    heavy(world)
    gone = world.fetch()
    assert await gone.waits()
    await gone.leave()

    fetch = world.fetch(wait_ms=60_000)
    assert await fetch.waits()
    assert len(world.rig.threads.queue) == 1
    world.rig.threads.work()
    await fetch.settle()
    world.rig.loop.pass_ms(10)
    await fetch.settle()
    assert world.rig.threads.work() == 1
    assert await fetch.read() == ([b"match"], 2)


@in_a_loop
async def test_without_a_thread_a_fetch_answers_when_its_time_is_up() -> None:
    world = World()
    heavy(world)
    first, second = world.fetch(), world.fetch(wait_ms=500)
    assert await first.waits()
    assert await second.waits()

    world.rig.loop.pass_ms(520)

    assert await second.read() == ([], -1)
    await first.leave()


@in_a_loop
async def test_a_filter_of_a_later_version_fails_its_readers_and_no_others() -> None:
    world = World()
    world.append(b"match")
    view = world.rig.replicas.views.get(VIEW_ID)
    assert view is not None
    view.state = replace(view.state, form={"v": 2, "where": []})

    asked = [CachedPartition(each, 0, 0, 1 << 20) for each in (VIEW_ID, world.topic.topic_id)]
    job = world.rig.fetches.begin(
        FetchLimits(bytes_min=1, bytes_max=1 << 20),
        session_id=0,
        epoch=-1,
        by_topic_id=True,
        asked=asked,
        now_ms=world.rig.clock.ms,
    )
    job.read()
    await world.reader.read(job, 500)

    [(_, failed), (_, found)] = job.results
    assert isinstance(failed, KafkaStorageError)
    assert isinstance(found, Fetched)
    assert len(found.records)


@in_a_loop
async def test_a_reader_that_is_sent_to_another_replica_while_it_waits_gets_no_records_from_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A response with a preferred replica has no records: clients skip them, with a warning."""
    world = World()
    world.append(b"match")
    fetch = world.fetch(bytes_min=200)
    assert await fetch.waits()

    replica = world.replica
    sent_on = replica.redirect(BrokerId(2), leader_epoch=LeaderEpoch(-1))
    monkeypatch.setattr(Fetches, "_look_at_view", lambda *_: sent_on)
    world.append(b"match" * 100)

    outcome = await fetch.outcome()
    assert isinstance(outcome, Fetched)
    assert outcome.preferred_replica == 2
    assert not len(outcome.records)
