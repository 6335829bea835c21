"""Truncation of a follower's log, with a crash at any point: truncated batches never reappear."""

from __future__ import annotations

import errno

import pytest
from structlog.testing import capture_logs
from tests.unit.storage.logs import ManualClock, Seeded, Settings, batch_of, log_on, put

from penstock.model.batch import BatchHeader
from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.threads import ThreadPool
from penstock.observe.log import logger
from penstock.partition.producers import ProducerTable
from penstock.storage import producer_snapshot
from penstock.storage.log import Log
from penstock.storage.store import LogStore
from penstock.testing.mem_disk import MemDisk, PowerCut

TP = TopicPartition("orders", 0)
SETTINGS = Settings(segment_bytes_effective=1500)
BEFORE, CUT, AFTER = 40, 4, 30


def store_on(disk: MemDisk) -> LogStore:
    store = LogStore(
        ["/data"], disk=disk, threads=ThreadPool(1), clock=ManualClock(), randomness=Seeded(), log=logger("storage")
    )
    store.load(SETTINGS, broker_id=1, cluster_id="c")
    return store


def log_of(store: LogStore) -> Log:
    log = store.get(TP)
    assert log is not None
    return log


def followed() -> tuple[LogStore, MemDisk]:
    """A follower's store: forty batches of epoch 0 on the disk, ten of them known to be committed."""
    disk = MemDisk()
    store = store_on(disk)
    log = store.create(TP, TopicId(bytes(16)), SETTINGS)
    for at in range(BEFORE):
        put(log, batch_of(b"old %02d" % at * 10), epoch=0)
    log.flush()
    log.high_watermark = 10
    store.checkpoint()
    return store, disk


def truncate_and_append(store: LogStore) -> int:
    """Truncate after an unclean election, and append in another epoch; returns the flushed end."""
    log = log_of(store)
    flushed = 0
    try:
        store.truncate({TP: CUT})
        for at in range(AFTER):
            put(log, batch_of(b"new %02d" % at * 10), epoch=1)
            if at == AFTER // 2:
                log.flush()
                flushed = log.log_end
                store.checkpoint()
    except PowerCut:
        pass
    return flushed


def epochs_in(log: Log) -> list[int]:
    """The leader epoch of every batch; checks that the batches are sound and consecutive."""
    batches = [batch.header for batch in log.view().walk_from(0, bodies=True)]
    assert [header.base_offset for header in batches] == list(range(log.log_end))
    return [header.leader_epoch for header in batches]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("power", [False, True], ids=["the process is killed", "the power fails"])
def test_a_truncation_is_atomic_wherever_a_crash_happens(seed: int, power: bool) -> None:
    point = 0
    while True:
        store, disk = followed()
        disk.cut_power_at = disk.operations + point
        flushed = truncate_and_append(store)
        completed = disk.operations < disk.cut_power_at
        if power:
            disk.crash(Seeded(1000 * seed + point))
        else:
            disk.kill()

        with capture_logs() as events:
            log = log_of(store_on(disk))

        assert [event["event"] for event in events if event["log_level"] == "error"] == [], "nothing is missing"
        epochs = epochs_in(log)
        assert epochs == sorted(epochs), "truncated batches reappeared after newer ones"
        assert epochs[:CUT] == [0] * CUT
        assert epochs.count(0) == CUT if 1 in epochs else len(epochs) <= BEFORE
        assert log.log_end >= flushed
        assert log.epochs.entries() == [(0, 0), (1, CUT)][: 1 + (1 in epochs)]
        if completed:
            break
        point += 1
    assert point > 30, "each time at another disk operation"


def test_a_truncated_follower_has_its_new_end_after_a_kill() -> None:
    store, disk = followed()
    store.truncate({TP: CUT})
    disk.kill()

    log = log_of(store_on(disk))

    assert (log.log_end, log.high_watermark, log.recovery_point) == (CUT, CUT, CUT)


def test_a_checkpoint_begun_before_a_truncation_does_not_undo_it() -> None:
    store, disk = followed()
    log_of(store).high_watermark = 20
    begun = store.begin_checkpoint()

    store.truncate({TP: CUT})
    begun.run()
    store.finish_checkpoint(begun)

    disk.kill()
    assert log_of(store_on(disk)).log_end == CUT


def test_a_checkpoint_that_failed_is_written_again_and_counts_only_then() -> None:
    store, disk = followed()
    log = log_of(store)
    put(log, batch_of(b"more"), epoch=0)
    log.flush()
    disk.fail("append", "recovery-point", errno.ENOSPC, times=1)

    with pytest.raises(OSError, match="No space left"):
        store.checkpoint()

    assert log.flusher.checkpointed == BEFORE
    store.checkpoint()
    assert log.flusher.checkpointed == BEFORE + 1
    disk.kill()
    assert log_of(store_on(disk)).recovery_point == BEFORE + 1


def test_a_truncation_that_cannot_be_checkpointed_is_not_made() -> None:
    store, disk = followed()
    disk.fail("append", "recovery-point", errno.ENOSPC)

    with pytest.raises(KafkaStorageError):
        store.truncate({TP: CUT})

    assert log_of(store).log_end == BEFORE


def test_a_segment_rolled_within_a_fetch_has_the_producers_of_the_batches_before_it() -> None:
    leader = log_on(MemDisk())
    for at in range(8):
        put(leader, batch_of(b"%d" % at * 40, producer_id=7, sequence=at), epoch=0)
    found = leader.slice(0, 1 << 20, end=8, at_least_one=True)
    assert found is not None
    disk, table = MemDisk(), ProducerTable()
    follower = log_on(disk, Settings(segment_bytes_effective=400))
    follower.producers = table.freeze

    def record(header: BatchHeader, _: memoryview) -> None:
        last = header.last_offset_delta
        sequence, base = header.base_sequence, header.base_offset
        table.record(header.producer_id, header.producer_epoch, sequence, last, False, base, header.max_timestamp, 0)

    follower.append_stamped(memoryview(bytearray(found.contents())), record)

    assert len(follower.segments) > 2
    snapshot = producer_snapshot.load_latest(disk, follower.path, 0, follower.log_end)
    assert snapshot is not None
    offset, entries = snapshot
    assert [entry.last_offset for entry in entries] == [offset - 1]
