"""Disk faults: full, failing, read-only. A batch is written whole or not at all."""

import errno

import pytest
from structlog.testing import capture_logs
from tests.unit.storage.logs import (
    PATH,
    ManualClock,
    Seeded,
    Settings,
    batch_of,
    directory_of,
    log_on,
    put,
    read_all,
    values_of,
)

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.threads import ThreadPool
from penstock.observe.log import logger
from penstock.storage.recovery import Stop
from penstock.storage.retention import retain
from penstock.storage.store import REFUSAL_LOGGED_EVERY_S, LogStore
from penstock.storage.trash import Trash
from penstock.testing.mem_disk import MemDisk

BATCH_BYTES = len(batch_of(b"x" * 100))


def test_a_full_disk_refuses_a_batch_serves_reads_and_recovers():
    disk = MemDisk()
    log = log_on(disk)
    put(log, batch_of(b"first"))
    for room in range(BATCH_BYTES):
        disk.capacity_bytes = 1 << 39
        disk.capacity_bytes = disk.used_bytes() + room

        with pytest.raises(KafkaStorageError, match=r"/data: No space left on device .* Reads go on"):
            put(log, batch_of(b"x" * 100))

        assert disk.stat(f"{log.path}/{0:020d}.log").size == log.size_bytes
        assert (log.log_end, values_of(read_all(log))) == (1, [b"first"])
    disk.capacity_bytes += 1

    assert put(log, batch_of(b"x" * 100)) == 1
    assert values_of(read_all(log)) == [b"first", b"x" * 100]
    assert log.directory.offline is None


def test_a_full_disk_is_logged_once_a_minute_while_it_refuses():
    disk, clock = MemDisk(), ManualClock()
    store = LogStore(
        ["/data"], disk=disk, threads=ThreadPool(1), clock=clock, randomness=Seeded(), log=logger("storage")
    )
    store.load(Settings(), broker_id=1, cluster_id="c")
    log = store.create(TopicPartition("orders", 0), TopicId(bytes(16)), Settings())
    put(log, batch_of(b"first"))
    disk.capacity_bytes = disk.used_bytes()

    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(KafkaStorageError):
                put(log, batch_of(b"x" * 100))
        clock.ms += int(REFUSAL_LOGGED_EVERY_S * 1000)
        with pytest.raises(KafkaStorageError):
            put(log, batch_of(b"x" * 100))

    assert [(line["event"], line["path"]) for line in lines] == [("directory_refuses", "/data")] * 2
    assert lines[0]["reason"].startswith("No space left on device")


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_does_not_bring_a_partial_batch_back_in_front_of_flushed_records(seed: int):
    disk = MemDisk()
    log = log_on(disk)
    disk.sync_directory("/")
    disk.sync_directory("/data")
    put(log, batch_of(b"first"))
    log.flush()
    disk.capacity_bytes = disk.used_bytes() + BATCH_BYTES // 2
    with pytest.raises(KafkaStorageError):
        put(log, batch_of(b"x" * 100))
    disk.capacity_bytes = 1 << 40
    log.roll()
    put(log, batch_of(b"second"))
    log.flush()

    disk.crash(Seeded(seed))

    again = log_on(disk, stop=Stop.MACHINE_CRASH, recovery_point=0)
    assert values_of(read_all(again)) == [b"first", b"second"]


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_does_not_bring_back_what_a_recovery_cut_off(seed: int):
    disk = MemDisk()
    log = log_on(disk)
    disk.sync_directory("/")
    disk.sync_directory("/data")
    put(log, batch_of(b"first"))
    log.flush()
    segment = disk.open(f"{PATH}/{0:020d}.log")
    segment.append(b"torn" * 100)
    segment.sync()
    recovered = log_on(disk, stop=Stop.MACHINE_CRASH, recovery_point=log.recovery_point)
    recovered.roll()
    put(recovered, batch_of(b"second"))
    recovered.flush()

    disk.crash(Seeded(seed))

    again = log_on(disk, stop=Stop.MACHINE_CRASH, recovery_point=recovered.recovery_point)
    assert values_of(read_all(again)) == [b"first", b"second"]


def test_a_full_disk_at_a_roll_leaves_the_log_where_it_was():
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=BATCH_BYTES))
    put(log, batch_of(b"x" * 100))
    disk.fail("open", f"{1:020d}.log", errno.ENOSPC, times=2)

    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="creating a segment of orders-0"):
            put(log, batch_of(b"y" * 100))
        assert len(log.segments) == 1

    assert put(log, batch_of(b"y" * 100)) == 1
    assert values_of(read_all(log)) == [b"x" * 100, b"y" * 100]


def test_a_full_disk_that_refuses_an_index_costs_only_speed():
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=1000, index_interval_bytes=0))
    disk.fail("append", "index", errno.ENOSPC)

    for at in range(30):
        put(log, batch_of(b"%d" % at))

    assert values_of(read_all(log, 300)) == [b"%d" % at for at in range(30)]
    disk.faults.clear()
    log.abandon()
    again = log_on(disk, Settings(segment_bytes_effective=1000), stop=Stop.PROCESS_CRASH)
    assert values_of(read_all(again, 300)) == [b"%d" % at for at in range(30)]


def test_retention_frees_a_full_disk_even_when_no_segment_can_be_made():
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=BATCH_BYTES, retention_ms=10))
    for _ in range(3):
        put(log, batch_of(b"x" * 100, timestamps=0))
    disk.fail("open", f"{3:020d}.log", errno.ENOSPC)

    dropped = retain(log, 1_000_000, committed=3, trash=Trash(disk))

    assert dropped == 2
    assert (log.log_start, len(read_all(log))) == (2, 1)


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.EACCES])
def test_any_other_failed_append_takes_the_directory_offline(error):
    disk = MemDisk()
    reported = []
    directory = directory_of(disk)
    directory._on_offline = reported.append
    log = log_on(disk, directory=directory)
    put(log, batch_of(b"a"))
    disk.fail("append", ".log", error, times=1)

    with pytest.raises(KafkaStorageError, match=r"Log directory /data is offline: .* while appending to orders-0"):
        put(log, batch_of(b"b"))

    assert reported == [directory]
    log.abandon()
    with pytest.raises(KafkaStorageError, match="offline"):
        put(log, batch_of(b"c"))
    with pytest.raises(KafkaStorageError, match="offline"):
        log.slice(0, 100, end=1, at_least_one=True)
    with pytest.raises(KafkaStorageError, match="offline"):
        log.view()


def test_a_failed_removal_of_a_partial_batch_takes_the_directory_offline():
    disk = MemDisk()
    log = log_on(disk)
    put(log, batch_of(b"a"))
    disk.capacity_bytes = 1 << 39
    disk.capacity_bytes = disk.used_bytes() + 10
    disk.fail("truncate", ".log", errno.EIO)

    with pytest.raises(KafkaStorageError, match="offline"):
        put(log, batch_of(b"b"))

    assert log.directory.offline is not None


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_fsync_is_never_retried(error):
    disk = MemDisk()
    log = log_on(disk)
    put(log, batch_of(b"a"))
    disk.fail("sync", ".log", error, times=1)

    with pytest.raises(KafkaStorageError, match="offline"):
        log.flush()

    assert log.recovery_point == 0
    assert log.directory.offline is not None
    with pytest.raises(KafkaStorageError, match="offline"):
        log.directory.check()


def test_a_flush_begun_before_a_truncation_does_not_cover_later_appends():
    log = log_on(MemDisk())
    for _ in range(5):
        put(log, batch_of(b"a"))
    job = log.begin_flush()
    assert job is not None
    job.run()
    log.truncate_to(2)
    for _ in range(5):
        put(log, batch_of(b"b"))

    log.finish_flush(job)

    assert log.recovery_point <= 2


def test_appends_during_a_flush_wait_for_the_next():
    log = log_on(MemDisk())
    put(log, batch_of(b"a"))
    job = log.begin_flush()
    assert job is not None
    put(log, batch_of(b"b"))
    job.run()

    log.finish_flush(job)

    assert (log.recovery_point, log.is_dirty) == (1, True)
    log.flush()
    assert (log.recovery_point, log.is_dirty, log.begin_flush()) == (2, False, None)


def test_a_segment_dropped_while_it_is_flushed_is_no_failure():
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=BATCH_BYTES))
    for _ in range(3):
        put(log, batch_of(b"x" * 100))
    job = log.begin_flush()
    assert job is not None
    log.drop_oldest(1)

    job.run()
    log.finish_flush(job)

    assert log.recovery_point == 3


def test_a_log_deleted_while_it_is_flushed_is_no_failure():
    disk = MemDisk()
    log = log_on(disk)
    put(log, batch_of(b"a"))
    job = log.begin_flush()
    assert job is not None
    disk.rename(log.path, "/data/orders-0.x-delete")

    job.run()
    log.finish_flush(job)

    assert log.directory.offline is None


SCARCE = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN]


@pytest.mark.parametrize("error", SCARCE)
@pytest.mark.parametrize("operation", ["open", "append"])
def test_a_process_that_lacks_resources_refuses_a_batch_and_recovers(operation: str, error: int):
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=BATCH_BYTES))
    put(log, batch_of(b"x" * 100))
    disk.fail(operation, f"{1:020d}.log", error, times=1)

    with pytest.raises(KafkaStorageError, match="The disk is not at fault"):
        put(log, batch_of(b"y" * 100))

    assert log.directory.offline is None
    assert put(log, batch_of(b"y" * 100)) == 1
    assert values_of(read_all(log)) == [b"x" * 100, b"y" * 100]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_log_that_cannot_be_opened_for_lack_of_descriptors_opens_later(error: int):
    disk = MemDisk()
    put(log_on(disk), batch_of(b"first"))
    directory = directory_of(disk)
    disk.fail("open", ".log", error, times=1)

    with pytest.raises(KafkaStorageError, match="The disk is not at fault"):
        log_on(disk, stop=Stop.PROCESS_CRASH, directory=directory)

    assert directory.offline is None
    assert values_of(read_all(log_on(disk, stop=Stop.PROCESS_CRASH, directory=directory))) == [b"first"]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["open", "sync_directory"])
def test_a_flush_waits_until_there_are_descriptors(operation: str, error: int):
    disk = MemDisk()
    log = log_on(disk, Settings(segment_bytes_effective=BATCH_BYTES))
    for _ in range(2):
        put(log, batch_of(b"x" * 100))
    disk.fail(operation, "", error, times=2)

    log.flush()

    assert log.directory.offline is None
    assert log.recovery_point == 2


@pytest.mark.parametrize("replicated", [True, False])
def test_a_replica_of_several_is_cut_to_what_a_failed_fsync_left_on_the_disk(replicated: bool):
    disk, tp, topic_id = MemDisk(), TopicPartition("orders", 0), TopicId(b"t" * 16)

    def started() -> LogStore:
        store = LogStore(
            ["/data"], disk=disk, threads=ThreadPool(1), clock=ManualClock(), randomness=Seeded(), log=logger("storage")
        )
        store.load(Settings(), broker_id=1, cluster_id="c", is_replicated=lambda _, __: replicated)
        return store

    store = started()
    log = store.create(tp, topic_id, Settings())
    log.replicated = replicated
    put(log, batch_of(b"on disk"))
    log.flush()
    store.checkpoint()
    put(log, batch_of(b"in memory"))
    disk.fail("sync", f"{0:020d}.log", errno.EIO, times=1)
    with pytest.raises(KafkaStorageError):
        log.flush()
    disk.kill()

    # The machine was not restarted: the kernel shows pages that no later fsync writes.
    again = started()
    found = again.get(tp)
    assert found is not None
    found.open()

    assert values_of(read_all(found)) == ([b"on disk"] if replicated else [b"on disk", b"in memory"])
    assert (tp in again.damaged) is replicated, "it has lost what it may have acknowledged"
