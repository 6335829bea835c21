"""Removal of records whose message id is known: X1 to X3, retries, concurrent batches, leadership."""

import asyncio
import random
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.partition.rig import NOW_MS, ManualThreads, Rig, everything, topic

from penstock.config.broker import BrokerConfig
from penstock.config.log import check_topic_configs
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import InvalidConfig, NotLeaderOrFollower
from penstock.model.ids import Offset
from penstock.model.topic import PartitionState
from penstock.partition.deduplication import log_floor, read_window
from penstock.partition.message_ids import MessageIds
from penstock.partition.replica import Replica
from penstock.partition.results import Appended
from penstock.partition.validation import HEAVY_BYTES
from penstock.partition.verification import NOT_REQUIRED
from penstock.storage.retention import retain
from penstock.wire import compression
from penstock.wire.records import Record, build_batch

WINDOW = 6
ID = "penstock-msg-id"
TURNS = 5
"""Turns of the loop in which the result of a thread reaches the coroutine that waits for it."""


def deduplicating(**configs: str) -> Rig:
    return Rig(topic(configs={"dedupe.window.records": str(WINDOW), **configs}))


def identified(ids: Sequence[bytes | None], *, codec: int = 0, padding: bytes = b"", **kw: Any) -> bytearray:
    """A batch of records with these message ids; None is a record without one."""
    if "producer_id" in kw:
        kw.setdefault("producer_epoch", 0)
    records = [
        Record(
            at, NOW_MS, b"k", (each or b"none") + padding, [("a", b"x")] if each is None else [("a", None), (ID, each)]
        )
        for at, each in enumerate(ids)
    ]
    return build_batch(records, compression=codec, **kw)


def finished(work: Appended | Coroutine[Any, Any, Appended]) -> Appended:
    async def run() -> Appended:
        return work if isinstance(work, Appended) else await work

    return asyncio.run(run())


def append(rig: Rig, ids: Sequence[bytes | None], **kw: Any) -> Appended:
    return finished(rig.replica().append(memoryview(identified(ids, **kw)), rig.clock.ms))


def knows(replica: Replica, message_id: bytes, *, rebuilt: bool) -> bool:
    """Whether the leader's window, or one read from its log, takes a record with this id for a repeated one."""
    ids: MessageIds = [(0, message_id)]
    if not rebuilt:
        assert replica.dedupe is not None
        return bool(replica.dedupe.repeated(ids, replica.log))
    window = read_window(replica.log.view(), replica.config.dedupe_window_records, replica._decompression)
    return bool(window.repeated(ids, replica.log.log_end, log_floor(replica.log)))


IDS = [b"a", b"b", b"c", b"d", b""]
batches = st.tuples(
    st.lists(st.sampled_from([*IDS, None]), min_size=1, max_size=5),
    st.sampled_from([compression.NONE, compression.GZIP, compression.ZSTD]),
    st.sampled_from(["append", "append", "restart", "kill", "roll", "drop"]),
)


@given(st.lists(batches, max_size=25))
def test_of_one_id_in_the_window_one_record_is_readable_and_a_new_leader_knows_the_same(
    steps: list[tuple[list[bytes | None], int, str]],
) -> None:
    rig = deduplicating()
    kept: list[tuple[int, bytes | None]] = []
    floor = 0
    for ids, codec, then in steps:
        base = rig.replica().offsets.log_end
        for at, each in enumerate(ids, base):
            if each is None or not any(
                known == each and at - WINDOW <= where and floor <= where for where, known in kept
            ):
                kept.append((at, each))
        appended = append(rig, ids, codec=codec)
        assert (appended.base_offset, appended.end) == (base, base + len(ids))
        if then in ("restart", "kill"):
            disk = rig.stop(clean=then == "restart")
            rig = Rig(topic(configs={"dedupe.window.records": str(WINDOW)}), disk=disk)
        elif then == "roll":
            rig.replica().log.roll()
        elif then == "drop" and len(rig.replica().log.segments) > 1:
            replica = rig.replica()
            floor = replica.log.segments[1].base
            replica.delete_records(Offset(floor))
            retain(replica.log, rig.clock.ms, committed=replica.offsets.high_watermark, trash=rig.store.trash)
            replica.start_moved()
        replica = rig.replica()
        if replica.dedupe is not None and replica.dedupe.window is not None:
            assert [knows(replica, each, rebuilt=False) for each in IDS] == [
                knows(replica, each, rebuilt=True) for each in IDS
            ]

    found = (
        [(record.offset, record.headers[-1][1] if len(record.headers) == 2 else None) for record in everything(replica)]
        if steps
        else []
    )
    assert found == [(offset, each) for offset, each in kept if offset >= floor]


def test_a_batch_of_known_ids_keeps_its_offsets_and_sequences() -> None:
    rig = deduplicating()
    append(rig, [b"a", b"b"], producer_id=5, base_sequence=0)

    repeated = append(rig, [b"a", b"b"], producer_id=5, base_sequence=2)
    retried = append(rig, [b"a", b"b"], producer_id=5, base_sequence=2)
    following = append(rig, [b"c"], producer_id=5, base_sequence=4)

    assert (repeated.base_offset, repeated.end) == (retried.base_offset, retried.end) == (2, 4)
    assert (following.base_offset, rig.replica().log.log_end) == (4, 5)
    assert [record.offset for record in everything(rig.replica())] == [0, 1, 4]
    assert rig.replica().dedupe is not None
    assert rig.replica().dedupe.removed == 2
    replica = Rig(topic(configs={"dedupe.window.records": "6"}), disk=rig.stop()).replica()
    assert [record.offset for record in everything(replica)] == [0, 1, 4]


def test_a_retry_of_an_appended_batch_adds_no_id_that_is_not_in_the_log() -> None:
    rig = deduplicating()
    append(rig, [b"a", b"x"])
    repeated = append(rig, [b"a"], producer_id=5, base_sequence=0)
    append(rig, [None] * (WINDOW - 1))

    retried = append(rig, [b"a"], producer_id=5, base_sequence=0)
    append(rig, [b"a"])

    assert retried.base_offset == repeated.base_offset == 2
    assert [record.offset for record in everything(rig.replica())] == [0, 1, *range(3, 2 + WINDOW), 2 + WINDOW]


def test_the_memory_of_the_window_is_bounded() -> None:
    rig = deduplicating()

    for number in range(10 * WINDOW):
        append(rig, [b"%d" % number])

    dedupe = rig.replica().dedupe
    assert dedupe is not None
    assert dedupe.window is not None
    assert len(dedupe.window) == WINDOW + 1


def test_records_of_transactions_are_left_alone() -> None:
    rig = deduplicating()
    replica = rig.replica()
    append(rig, [b"a"])

    for sequence, padding in enumerate((b"", b"", noise())):
        data = identified(
            [b"a"],
            producer_id=5,
            base_sequence=sequence,
            is_transactional=True,
            padding=padding,
            codec=compression.GZIP if padding else compression.NONE,
        )
        finished(replica.append(memoryview(data), rig.clock.ms, proof=NOT_REQUIRED))
    append(rig, [b"a"])

    assert [record.offset for record in everything(replica)] == [0, 1, 2, 3]


def noise() -> bytes:
    """Bytes that do not compress: a batch with them is too large to be opened on the loop."""
    return random.Random(7).randbytes(2 * HEAVY_BYTES)


def test_batches_that_are_opened_in_threads_at_once_bring_an_id_once() -> None:
    rig = deduplicating()
    replica, threads = rig.replica(), ManualThreads()
    append(rig, [b"x"])
    replica._threads = threads
    assert replica.dedupe is not None
    replica.dedupe._threads = threads
    padding = noise()
    one = identified([b"x", b"a", b"b"], codec=compression.GZIP, padding=padding)
    two = identified([b"a", b"b", b"c"], codec=compression.GZIP, padding=padding)
    assert min(len(one), len(two)) >= HEAVY_BYTES

    async def both() -> list[Appended]:
        works = [replica.append(memoryview(each), rig.clock.ms) for each in (one, two)]
        assert not any(isinstance(work, Appended) for work in works)
        running = [asyncio.ensure_future(work) for work in works if not isinstance(work, Appended)]
        while not all(task.done() for task in running):
            await asyncio.sleep(0)
            threads.work()
        return [task.result() for task in running]

    first, second = asyncio.run(both())

    ids = [record.headers[-1][1] for record in everything(replica)]
    assert sorted(each for each in ids if each) == [b"a", b"b", b"c", b"x"]
    assert {first.base_offset, second.base_offset} == {1, 4}


def test_a_leader_that_is_deposed_while_it_reads_the_window_appends_nothing() -> None:
    rig = deduplicating()
    append(rig, [b"a"])
    disk = rig.stop()
    rig = Rig(topic(configs={"dedupe.window.records": "6"}), disk=disk)
    replica, threads = rig.replica(), ManualThreads()
    replica._threads = threads
    assert replica.dedupe is not None
    replica.dedupe._threads = threads

    async def run() -> None:
        work = replica.append(memoryview(identified([b"a", b"b"])), rig.clock.ms)
        assert not isinstance(work, Appended | Deferred)
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        validated = threads.work()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert (validated, len(threads.queue)) == (1, 1), "the window is being read"
        replica.assume(PartitionState(index=0, leader=2, leader_epoch=1, replicas=(1, 2), isr=(2,)), 0)
        threads.work()
        with pytest.raises(NotLeaderOrFollower):
            await task

    asyncio.run(run())

    assert replica.log.log_end == 1
    assert replica.dedupe.window is None


def test_the_window_follows_its_setting() -> None:
    rig = deduplicating()
    append(rig, [b"a"])
    before = topic(configs={"dedupe.window.records": str(WINDOW)})

    rig.change(before, topic())
    append(rig, [b"a"])
    rig.change(topic(), topic(configs={"dedupe.window.records": "1"}))
    append(rig, [b"a"])
    append(rig, [b"b"])
    append(rig, [b"b"])

    assert [record.offset for record in everything(rig.replica())] == [0, 1, 3]
    with pytest.raises(InvalidConfig, match="compact"):
        check_topic_configs({"dedupe.window.records": "1", "cleanup.policy": "compact"}, BrokerConfig())
