"""The bytes that a start after a kill reads are proportional to the log, also after repeated kills."""

from __future__ import annotations

from tests.unit.partition.rig import HOME
from tests.unit.partition.test_aborted_after_crash import Writers

from penstock.partition.follower import Follower
from penstock.partition.offsets import Offsets
from penstock.partition.producer_replay import replay_producers
from penstock.storage.names import LOG, OFFSET_INDEX
from penstock.testing.mem_disk import MemDisk

FOLDER = f"{HOME}/orders-0"
LIVES = 4
SEGMENT_BYTES = 1 << 30
ENTRY_BYTES = 8
INTERVAL_BYTES = 4096


def killed_again_and_again(transactions: int) -> list[tuple[int, int, MemDisk]]:
    """For each of several brokers, all killed after small transactions: bytes of log, bytes read by its start, disk."""
    costs: list[tuple[int, int, MemDisk]] = []
    disk: MemDisk | None = None
    for life in range(LIVES):
        before = 0 if disk is None else disk.bytes_read
        writers = Writers(disk=disk, segment_bytes=SEGMENT_BYTES, sequence=life * transactions)
        disk = writers.rig.disk
        costs.append((writers.replica.log.size_bytes, disk.bytes_read - before, disk))
        for at in range(transactions):
            writers.write(5)
            writers.end(5, commit=at % 2 == 0)
        writers.rig.stop(clean=False)
    return costs


def test_a_start_reads_a_log_of_small_transactions_a_few_times_and_no_more() -> None:
    for log_bytes, bytes_read, _ in killed_again_and_again(300)[1:]:
        assert bytes_read < 4 * log_bytes


def test_the_index_is_complete_after_every_kill() -> None:
    disk = killed_again_and_again(300)[-1][2]

    Writers(disk=disk, segment_bytes=SEGMENT_BYTES, sequence=LIVES * 300)

    entries = disk.stat(f"{FOLDER}/{0:020d}{OFFSET_INDEX}").size // ENTRY_BYTES
    batch_bytes = 80
    assert entries >= disk.stat(f"{FOLDER}/{0:020d}{LOG}").size // (INTERVAL_BYTES + 2 * batch_bytes) - LIVES


def test_a_transaction_is_open_for_readers_until_the_high_watermark_has_passed_its_marker() -> None:
    writers = Writers(segment_bytes=SEGMENT_BYTES)
    writers.write(5)
    writers.write(5)
    writers.end(5, commit=True)
    view = writers.replica.log.view()
    offsets = Offsets.recovered(log_start=0, log_end=3, high_watermark=1)

    table = replay_producers(view, offsets.high_watermark, 0, 1 << 40).table
    follower = Follower(offsets, table, broker_id=1, in_sync_min=1, flush_group=False)
    assert offsets.last_stable == 0, "the marker at 2 may be truncated"

    assert follower.replicated(3, leader_high_watermark=3)
    assert (table.first_unstable, offsets.last_stable) == (None, 3)
