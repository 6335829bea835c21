"""Background work: retention, compaction, flush, checkpoints, scrubbing, expiration, and their failures."""

import asyncio
import errno
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fastcrc.crc32 import iscsi as crc32c
from tests.unit.partition.rig import NOW_MS, Rig, batch, everything, topic, values

from penstock.maintenance.compaction import UNCLEANABLE_RETRY_MS
from penstock.maintenance.schedule import REPLAY_BYTES_MAX, Maintenance
from penstock.model.batch import ATTRIBUTES_AT, CRC_AT
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicPartition
from penstock.observe.counters import StorageCounters
from penstock.partition.replica import Replica
from penstock.quotas.client_quotas import DEFAULT, ClientQuotas, QuotaEntity
from penstock.storage.compaction import plan
from penstock.storage.log import Log
from penstock.storage.names import GAPS
from penstock.storage.producer_snapshot import SNAPSHOT_AT_ONCE_MAX, decode, encode
from penstock.storage.retention import retain
from penstock.wire.records import Record, build_batch, parse_batch_header

SMALL = {"internal.segment.bytes": "200", "index.interval.bytes": "0", "file.delete.delay.ms": "1000"}
HOUR_MS = 3_600_000
COMPACTED = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
RETAINED = {"cleanup.policy": "compact,delete", "retention.ms": str(HOUR_MS)}


async def at_once(seconds: float) -> None:
    """A sleep that only yields to the loop."""
    await asyncio.sleep(0)


def maintenance(rig: Rig, sleep: Callable[[float], Awaitable[None]] = at_once, **kw: Any) -> Maintenance:
    return Maintenance(
        replicas=rig.replicas,
        store=rig.store,
        config=lambda: rig.config,
        clock=rig.clock,
        threads=rig.threads,
        flushes=rig.flushes,
        log=rig.notes,
        sleep=sleep,
        **kw,
    )


def filled(rig: Rig, count: int = 6, **kw: Any) -> None:
    for at in range(count):
        rig.append(rig.replica(), batch(b"%d" % at * 50, at_ms=rig.clock.ms, **kw))


def test_old_segments_are_dropped_the_log_start_moves_and_files_are_removed_later() -> None:
    rig = Rig(topic(configs={**SMALL, "retention.ms": str(HOUR_MS)}))
    filled(rig, 4)
    rig.clock.ms += 2 * HOUR_MS
    rig.append(rig.replica(), batch(b"new" * 40, at_ms=rig.clock.ms))
    work = maintenance(rig)
    before = len(rig.disk.list_directory("/data/orders-0"))

    asyncio.run(work.retain())

    replica = rig.replica()
    assert replica.offsets.log_start == replica.log.log_start == 4
    assert values(replica, 4) == [b"new" * 40]
    assert len(rig.disk.list_directory("/data/orders-0")) >= before
    rig.clock.ms += 2000
    asyncio.run(work.empty_trash())
    assert len(rig.disk.list_directory("/data/orders-0")) < before
    assert [fields["count"] for fields in rig.notes.named("segments_dropped")]


def test_a_log_that_is_too_large_loses_its_oldest_segments_even_when_unused() -> None:
    configs = {**SMALL, "retention.bytes": "300"}
    rig = Rig(topic(configs=configs))
    filled(rig)
    again = Rig(topic(configs=configs), disk=rig.stop())
    assert not list(again.replicas.live())

    asyncio.run(maintenance(again).retain())

    assert again.replica().offsets.log_start > 0
    assert again.replica().log.size_bytes <= 300 + 200


def test_logs_without_a_due_segment_are_not_opened() -> None:
    rig = Rig(topic(configs=SMALL))
    filled(rig, 2)
    again = Rig(topic(configs=SMALL), disk=rig.stop())

    asyncio.run(maintenance(again).retain())

    assert not list(again.replicas.live())


def test_uncommitted_segments_are_not_dropped() -> None:
    rig = Rig(topic(configs={**SMALL, "flush": "group", "retention.ms": "1"}))
    filled(rig)
    rig.clock.ms += HOUR_MS

    asyncio.run(maintenance(rig).retain())

    assert rig.replica().offsets.log_start == 0


def test_a_partition_that_cannot_be_opened_does_not_keep_others_from_retention() -> None:
    rig = Rig(*(topic(name, number=at, configs={**SMALL, "retention.bytes": "0"}) for at, name in enumerate("ab", 1)))
    for name in "ab":
        for _ in range(4):
            rig.append(rig.replica(name), batch(b"x" * 100))
    again = Rig(
        *(topic(name, number=at, configs={**SMALL, "retention.bytes": "0"}) for at, name in enumerate("ab", 1)),
        disk=rig.stop(),
    )
    again.replicas._topics["a"] = replace(again.replicas._topics["a"], partitions=())

    asyncio.run(maintenance(again).retain())

    assert again.notes.named("retention_refused")
    assert again.replica("b").offsets.log_start > 0


def test_compaction_keeps_the_newest_of_each_key() -> None:
    configs = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    rig = Rig(topic(configs=configs))
    replica = rig.replica()
    for at in range(12):
        rig.append(replica, batch(b"%d" % at * 40, key=b"k%d" % (at % 2)))

    asyncio.run(maintenance(rig).compacting.run())

    left = everything(replica)
    cleaned_to = replica.log.cleaned_to
    assert cleaned_to > 2
    clean = [record for record in left if record.offset < cleaned_to]
    assert [(record.key, record.offset) for record in clean] == [
        (b"k%d" % (offset % 2), offset) for offset in (cleaned_to - 2, cleaned_to - 1)
    ]
    assert [record.offset for record in left[len(clean) :]] == list(range(cleaned_to, 12))
    assert rig.notes.named("log_compacted")[0]["records_dropped"] > 0
    assert replica.log.cleaning is None


def test_a_replicated_log_is_compacted_up_to_the_recovery_point_that_a_start_finds() -> None:
    rig = Rig(topic(configs=COMPACTED))
    replica = rig.replica()
    replica.log.replicated = True
    for at in range(12):
        rig.append(replica, batch(b"%d" % at * 40, key=b"k%d" % (at % 2)))
    work = maintenance(rig)

    asyncio.run(work.compacting.run())
    replica.log.flusher.run(replica.log.log_end)
    asyncio.run(work.compacting.run())
    assert replica.log.cleaned_to == 0

    asyncio.run(work.checkpoint())
    asyncio.run(work.compacting.run())
    assert replica.log.cleaned_to > 2


def test_a_topic_can_be_deleted_during_its_compaction() -> None:
    async def run() -> None:
        was = topic(configs={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        rig = Rig(was, topic("other", number=2))
        for at in range(12):
            rig.append(rig.replica(), batch(b"%d" % at * 40))
        rig.threads.eager = False
        work = asyncio.ensure_future(maintenance(rig).compacting.run())
        await asyncio.sleep(0)
        rig.change(was, None)
        while not work.done():
            rig.threads.work()
            await asyncio.sleep(0)
        await work
        assert rig.append(rig.replica("other"), batch(b"a")).base_offset == 0
        assert not rig.notes.named("directory_offline")

    asyncio.run(run())


def test_a_topic_can_be_created_again_during_the_compaction_of_its_predecessor() -> None:
    for waits in range(8):
        asyncio.run(recreated_during_compaction(waits))


async def recreated_during_compaction(waits: int) -> None:
    """Delete and create a topic after so many steps of its compaction."""
    was = topic(configs=COMPACTED)
    rig = Rig(was)
    for at in range(12):
        rig.append(rig.replica(), batch(b"%d" % at * 40, key=b"%d" % (at % 2)))
    rig.threads.eager = False
    background = maintenance(rig)
    work = asyncio.ensure_future(background.compacting.run())
    await asyncio.sleep(0)
    for _ in range(waits):
        rig.threads.work()
        await asyncio.sleep(0)
    now = topic(number=2, configs=COMPACTED)
    rig.change(was, None)
    rig.change(None, now)
    for at in range(9):
        rig.append(rig.replica(), batch(b"new %d" % at * 9))
    while not work.done():
        rig.threads.work()
        await asyncio.sleep(0)
    await work
    names = rig.disk.list_directory("/data/orders-0")
    assert not [name for name in names if name.endswith((".swap", ".cleaned")) or name == GAPS]
    assert not background.compacting.uncleanable
    assert not rig.notes.named("directory_offline")
    rig.threads.eager = True
    again = Rig(now, disk=rig.stop(clean=False))
    assert [record.value for record in everything(again.replica())] == [b"new %d" % at * 9 for at in range(9)]


def test_a_damaged_log_is_not_compacted_and_is_reported() -> None:
    rig = Rig(topic(configs=COMPACTED))
    for at in range(12):
        rig.append(rig.replica(), batch(b"%d" % at * 40))
    rig.disk.flip("/data/orders-0/00000000000000000000.log", 80)
    work = maintenance(rig)

    asyncio.run(work.compacting.run())
    asyncio.run(work.compacting.run())

    assert len(rig.notes.named("log_uncleanable")) == 1
    assert not rig.notes.named("log_compacted")
    assert set(work.compacting.uncleanable) == {TopicPartition("orders", 0)}
    assert rig.append(rig.replica(), batch(b"a")).base_offset == 12


def unreadable(codec: int) -> bytearray:
    """A batch with a valid CRC whose records cannot be decompressed; a leader does not check them."""
    made = build_batch([Record(0, NOW_MS, b"k", b"noise" * 20)])
    struct.pack_into(">h", made, ATTRIBUTES_AT, codec)
    struct.pack_into(">I", made, CRC_AT, crc32c(bytes(made[ATTRIBUTES_AT:])))
    return made


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 7], ids=["gzip", "snappy", "lz4", "zstd", "unknown"])
def test_an_unreadable_batch_does_not_stop_the_compaction_of_other_partitions(codec: int) -> None:
    rig = Rig(*(topic(name, number=at, configs=COMPACTED) for at, name in enumerate("abc", 1)))
    for name in "abc":
        for at in range(12):
            if (name, at) == ("b", 1):
                poison = unreadable(codec)
                base = rig.replica(name).log.append(memoryview(poison), parse_batch_header(poison), 0)
                rig.replica(name).leading().appended(base, rig.replica(name).log.log_end)
            rig.append(rig.replica(name), batch(b"%d" % at * 40))
    counters = StorageCounters()
    work = maintenance(rig, counters=counters)

    asyncio.run(work.compacting.run())

    assert [fields["partition"] for fields in rig.notes.named("log_compacted")] == ["a-0", "c-0"]
    assert [(fields["partition"], fields["offset"]) for fields in rig.notes.named("log_uncleanable")] == [("b-0", 1)]
    assert counters.uncleanable_partitions == 1
    assert not [name for name in rig.disk.list_directory("/data/b-0") if name.endswith((".swap", ".cleaned"))]


def test_an_uncleanable_log_is_retried_later_or_when_it_has_lost_segments() -> None:
    rig = Rig(topic(configs=COMPACTED))
    poison = unreadable(1)
    base = rig.replica().log.append(memoryview(poison), parse_batch_header(poison), 0)
    rig.replica().leading().appended(base, rig.replica().log.log_end)
    for at in range(12):
        rig.append(rig.replica(), batch(b"%d" % at * 40))
    work = maintenance(rig)
    tries = 0
    for passed_ms, expected in ((0, 1), (UNCLEANABLE_RETRY_MS - 1, 1), (1, 2), (1, 2)):
        rig.clock.ms += passed_ms
        asyncio.run(work.compacting.run())
        tries = len(rig.notes.named("log_uncleanable"))
        assert tries == expected

    rig.replica().delete_records(4)
    asyncio.run(work.retain())
    asyncio.run(work.compacting.run())

    assert rig.notes.named("log_compacted")
    assert not work.compacting.uncleanable


def test_a_deleted_topic_is_no_longer_uncleanable() -> None:
    was = topic(configs=COMPACTED)
    rig = Rig(was)
    for at in range(12):
        rig.append(rig.replica(), batch(b"%d" % at * 40))
    rig.disk.flip("/data/orders-0/00000000000000000000.log", 80)
    counters = StorageCounters()
    work = maintenance(rig, counters=counters)
    asyncio.run(work.compacting.run())
    assert counters.uncleanable_partitions == 1

    rig.change(was, None)
    asyncio.run(work.compacting.run())

    assert counters.uncleanable_partitions == 0


@pytest.mark.parametrize("job", ["retain", "compact", "snapshot"])
def test_a_bug_in_one_partition_does_not_stop_work_on_the_others(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(*(topic(name, number=at, configs={**COMPACTED, **RETAINED}) for at, name in enumerate("ab", 1)))
    for name in "ab":
        for at in range(12):
            rig.append(rig.replica(name), batch(b"%d" % at * 40))
    work = maintenance(rig)
    rig.clock.ms += 2 * HOUR_MS

    def broken(log: Log, real: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        assert log.tp.topic != "a", "a bug"
        return real(log, *args, **kw)

    monkeypatch.setattr("penstock.maintenance.schedule.retain", partial(wrapped, broken, retain))
    monkeypatch.setattr("penstock.maintenance.compaction.plan", partial(wrapped, broken, plan))
    rig.replica("a").log.producers = None
    if job == "snapshot":
        monkeypatch.setattr(Replica, "snapshot", lambda replica, now_ms: broken(replica.log, lambda _: None))
    run = {"retain": work.retain, "compact": work.compacting.run, "snapshot": work.snapshot_producers}[job]

    asyncio.run(run())

    failures = {"retain": "retention_failed", "compact": "log_uncleanable", "snapshot": "snapshot_failed"}
    assert [fields["partition"] for fields in rig.notes.named(failures[job])] == ["a-0"]
    if job == "retain":
        assert rig.replica("b").offsets.log_start > 0
    if job == "compact":
        assert [fields["partition"] for fields in rig.notes.named("log_compacted")] == ["b-0"]


def wrapped(broken: Callable[..., Any], real: Callable[..., Any], log: Log, *args: Any, **kw: Any) -> Any:
    return broken(log, real, *args, **kw)


def test_a_file_that_cannot_be_removed_does_not_stop_the_removal_of_others() -> None:
    rig = Rig(*(topic(name, number=at, configs=SMALL) for at, name in enumerate("ab", 1)))
    for at, name in enumerate("ab", 1):
        rig.append(rig.replica(name), batch(b"x"))
        rig.change(topic(name, number=at, configs=SMALL), None)
    rig.disk.fail("remove_tree", "/data/a-0", errno.EACCES)
    rig.clock.ms += HOUR_MS

    asyncio.run(maintenance(rig).empty_trash())

    assert len(rig.notes.named("files_not_removed")) == 1
    assert [name[0] for name in rig.disk.list_directory("/data") if name.endswith("-delete")] == ["a"]


def test_a_deleted_log_of_a_failed_directory_is_not_missed_at_the_next_start() -> None:
    rig = Rig(*(topic(name, number=at) for at, name in enumerate("ab", 1)))
    for name in "ab":
        rig.append(rig.replica(name), batch(b"x"))
        rig.replica(name).log.flush()
    rig.store.checkpoint()
    rig.change(topic("a", number=1), None)
    failed = rig.replica("b").log.directory
    failed.failed(OSError(errno.EIO, "Input/output error"), "flushing b-0")
    rig.clock.ms += HOUR_MS

    asyncio.run(maintenance(rig).empty_trash())

    assert failed.offline is not None
    assert Rig(topic("b", number=2), disk=rig.stop(clean=False)).notes.named("log_missing") == []


def test_the_scrubber_does_not_report_a_compaction_as_damage() -> None:
    async def run() -> None:
        rig = Rig(topic(configs=COMPACTED))
        for at in range(40):
            rig.append(rig.replica(), batch(b"%d" % at * 40, key=b"%d" % (at % 3)))
        work = maintenance(rig)
        rig.threads.eager = False
        scrubbing = asyncio.ensure_future(work.scrub())
        for _ in range(3):
            await asyncio.sleep(0)
            rig.threads.work()
        await asyncio.sleep(0)
        log = rig.replica().log
        due = plan(log, rig.clock.ms, stable=log.log_end, keys_max=1000)
        assert due is not None
        due.run(log, rig.store.trash)
        rig.disk.flip(log.segments[-2].path(log.path, ".log"), 80)
        while not scrubbing.done():
            rig.threads.work()
            await asyncio.sleep(0)
        await scrubbing
        assert [fields["path"] for fields in rig.notes.named("segment_damaged")] == [
            log.segments[-2].path(log.path, ".log")
        ]

    asyncio.run(run())


def test_a_disk_error_during_compaction_takes_the_directory_offline() -> None:
    rig = Rig(topic(configs={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}))
    for at in range(12):
        rig.append(rig.replica(), batch(b"%d" % at * 40))
    rig.disk.fail("pread", "orders-0", errno.EIO)

    asyncio.run(maintenance(rig).compacting.run())

    assert rig.notes.named("compaction_refused")
    assert rig.notes.named("directory_offline")
    with pytest.raises(KafkaStorageError):
        rig.append(rig.replica(), batch(b"a"))


def test_the_cleaner_can_be_switched_off() -> None:
    rig = Rig(topic(configs={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}))
    for _ in range(12):
        rig.append(rig.replica(), batch(b"x" * 40))
    rig.config = replace(rig.config, log_cleaner_enable=False)

    asyncio.run(maintenance(rig).compacting.run())

    assert rig.replica().log.cleaned_to == 0


def test_a_flush_is_due_by_time_and_at_the_end_of_a_segment() -> None:
    rig = Rig(topic("timed", number=1, configs={"flush.ms": "5000"}), topic("rolled", number=2, configs=SMALL))
    work = maintenance(rig)
    rig.append(rig.replica("timed"), batch(b"a"))
    asyncio.run(work.flush_due())
    assert rig.flush() == 0

    rig.clock.ms += 5000
    asyncio.run(work.flush_due())
    assert rig.flush() == 1
    assert rig.replica("timed").log.recovery_point == 1

    for _ in range(3):
        rig.append(rig.replica("rolled"), batch(b"x" * 100))
    asyncio.run(work.flush_due())
    assert rig.flush() == 1
    assert not rig.replica("rolled").log.is_dirty


def test_checkpoints_have_the_high_watermark() -> None:
    rig = Rig(topic())
    rig.append(rig.replica(), batch(b"a", b"b"))

    asyncio.run(maintenance(rig).checkpoint())

    lines = rig.disk.read_file("/data/replication-offset-checkpoint").decode().splitlines()
    assert lines[2:] == ["orders 0 2"]


def test_a_checkpoint_that_fails_takes_its_directory_offline_and_a_full_disk_does_not() -> None:
    for code, offline in ((errno.ENOSPC, False), (errno.EIO, True)):
        rig = Rig(topic())
        rig.append(rig.replica(), batch(b"a"))
        error = OSError(code, "failed", "/data/replication-offset-checkpoint.tmp")
        work = maintenance(rig)

        assert isinstance(work._directory_failed(error, "writing checkpoints"), KafkaStorageError)

        assert (rig.store.all_directories[0].offline is not None) is offline


def test_producers_are_snapshotted_when_a_log_has_grown_or_time_has_passed() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    work = maintenance(rig)
    rig.append(replica, batch(b"a", producer_id=5))
    asyncio.run(work.snapshot_producers())
    assert replica.snapshot_at == 0

    replica.watchers.readable_bytes += REPLAY_BYTES_MAX
    asyncio.run(work.snapshot_producers())
    assert replica.snapshot_at == 1

    rig.append(replica, batch(b"b", producer_id=5, base_sequence=1))
    rig.clock.ms += 60_000
    asyncio.run(work.snapshot_producers())
    assert replica.snapshot_at == 2
    assert "00000000000000000002.snapshot" in rig.disk.list_directory("/data/orders-0")


def test_idle_producers_and_clients_are_forgotten() -> None:
    rig = Rig(topic())
    rig.append(rig.replica(), batch(b"a", producer_id=5))
    quotas = ClientQuotas(11, 1000)
    quotas.set("producer_byte_rate", QuotaEntity(None, DEFAULT), 10)
    quotas.produce.record("", "app", 1, NOW_MS)
    rig.clock.ms += 2 * 86_400_000
    work = maintenance(rig, quotas=quotas)

    asyncio.run(work.expire_producers())
    asyncio.run(work.forget_clients())

    assert len(rig.replica().producers) == 0
    assert len(quotas.produce._usage) == 0


def test_the_scrubber_reports_damage_once() -> None:
    rig = Rig(topic(configs=SMALL))
    filled(rig)
    rig.disk.flip("/data/orders-0/00000000000000000000.log", 80)
    work = maintenance(rig)

    asyncio.run(work.scrub())
    asyncio.run(work.scrub())

    assert [fields["offset"] for fields in rig.notes.named("segment_damaged")] == [0]


def test_every_task_runs_at_its_interval_and_a_failing_one_is_retried() -> None:
    class Broken:
        rounds = 0

        async def work(self) -> None:
            self.rounds += 1
            raise ValueError("a bug") if self.rounds == 1 else KafkaStorageError("a disk")

    async def run() -> None:
        rig = Rig(topic())
        slept: list[float] = []
        enough = asyncio.Event()

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) > 2000:
                enough.set()
            await asyncio.sleep(0)

        work = maintenance(rig, sleep)
        broken = Broken()
        work.empty_trash = broken.work  # type: ignore[method-assign]
        running = asyncio.ensure_future(work.run())
        await enough.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert broken.rounds > 2
        assert rig.notes.named("maintenance_failed")[0]["work"] == "trash"
        assert rig.notes.named("maintenance_refused")[0] == {"work": "trash", "reason": "a disk"}
        assert work._stopping.is_set()

    asyncio.run(run())


def test_a_stop_ends_work_in_threads() -> None:
    rig = Rig(topic(configs=SMALL))
    filled(rig)
    work = maintenance(rig)
    work._stopping.set()

    asyncio.run(work.scrub())
    asyncio.run(work.compacting.run())

    assert rig.replica().log.cleaning is None


def test_many_producers_are_encoded_off_the_loop_from_a_snapshot() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    count = SNAPSHOT_AT_ONCE_MAX + 1
    for producer_id in range(count):
        replica.producers.record(producer_id, 0, 0, 0, False, 0, NOW_MS, NOW_MS)
    rig.append(replica, batch(b"a", producer_id=5, base_sequence=1))
    rig.clock.ms += 60_000
    threads = rig.threads
    threads.eager = False
    work = maintenance(rig)

    async def story() -> None:
        saving = asyncio.create_task(work.snapshot_producers())
        for _ in range(10):
            await asyncio.sleep(0)
        assert threads.queue, "a thread encodes it"
        rig.append(replica, batch(b"b", producer_id=5, base_sequence=2))
        threads.work()
        await saving

    asyncio.run(story())

    assert replica.snapshot_at == 1
    saved = decode(rig.disk.read_file("/data/orders-0/00000000000000000001.snapshot"))
    assert len(saved) == count
    assert {entry.producer_id: entry.last_sequence for entry in saved}[5] == 1


def test_a_snapshot_of_a_log_truncated_meanwhile_is_discarded() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a", producer_id=5))
    taken = replica.begin_snapshot()
    replica.log.flusher.truncations += 1

    replica.end_snapshot(taken, encode(taken.entries), NOW_MS)

    assert replica.snapshot_at == 0


def test_a_segment_rolled_with_many_producers_is_snapshotted_by_the_next_round() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a", producer_id=5))
    for producer_id in range(SNAPSHOT_AT_ONCE_MAX + 1):
        replica.producers.record(producer_id, 0, 1, 0, False, 0, NOW_MS, NOW_MS)

    replica.log.roll()

    assert replica.log.producers_unsaved
    assert "00000000000000000001.snapshot" not in rig.disk.list_directory("/data/orders-0")

    rig.threads.eager = True
    asyncio.run(maintenance(rig).snapshot_producers())

    assert not replica.log.producers_unsaved
    assert "00000000000000000001.snapshot" in rig.disk.list_directory("/data/orders-0")
