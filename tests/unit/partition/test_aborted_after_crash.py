"""After any crash, the transaction index agrees with the log, and readers of committed data see no aborted record."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterator

import pytest
from tests.unit.partition.rig import HOME, NOW_MS, Rig, Seeded, topic

from penstock.model.batch import TRANSACTIONAL_FLAG
from penstock.partition.replica import Replica
from penstock.storage import txn_index
from penstock.storage.names import SNAPSHOT, TXN_INDEX
from penstock.storage.txn_index import AbortedTxn
from penstock.testing.mem_disk import MemDisk, PowerCut
from penstock.wire.records import (
    ABORT_MARKER,
    RecordBatchBuilder,
    build_marker,
    decode_records,
    iter_batches,
    parse_marker,
)

FOLDER = f"{HOME}/orders-0"
FIRST_INDEX = f"{FOLDER}/{0:020d}{TXN_INDEX}"
ACTIONS = 40
PRODUCERS = (5, 6, 7)
SEGMENT_BYTES = 600
"""About five batches: transactions span segments."""


class Writers:
    """Producers that write to one partition in transactions."""

    def __init__(self, *, disk: MemDisk | None = None, segment_bytes: int = SEGMENT_BYTES, sequence: int = 0) -> None:
        self.rig = Rig(topic(configs={"internal.segment.bytes": str(segment_bytes)}), disk=disk)
        self.replica = self.rig.replica()
        self._sequences = dict.fromkeys(PRODUCERS, sequence - 1)

    def write(self, producer_id: int) -> None:
        builder = RecordBatchBuilder()
        builder.add(NOW_MS, None, b"x")
        sequence = self._sequences[producer_id] = self._sequences[producer_id] + 1
        batch = builder.build(
            attributes=TRANSACTIONAL_FLAG, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        self.rig.append(self.replica, batch, internal=True)

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = build_marker(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        self.rig.append(self.replica, marker, internal=True)

    def act(self, randomness: random.Random) -> None:
        """Do one random operation on the partition."""
        producer_id = randomness.choice(PRODUCERS)
        what = randomness.random()
        if what < 0.45:
            self.write(producer_id)
        elif what < 0.8:
            self.end(producer_id, commit=randomness.random() < 0.4)
        elif what < 0.88:
            self.replica.snapshot(NOW_MS)
        elif what < 0.95:
            self.replica.log.flush()
        else:
            self.rig.store.checkpoint()


def batches(replica: Replica) -> Iterator[tuple[int, int, bool | None]]:
    """Offset and producer of every batch, and whether it is an abort marker; None for a batch of records."""
    for batch in replica.log.view().walk_from(replica.log.log_start, bodies=True):
        header = batch.header
        aborts = parse_marker(decode_records(batch.data)[0])[0] == ABORT_MARKER if header.is_control else None
        yield header.base_offset, header.producer_id, aborts


def committed_by_the_log(replica: Replica) -> list[int]:
    """Offsets of the records below the last stable offset whose transaction was not aborted."""
    committed: list[int] = []
    undecided: dict[int, list[int]] = {}
    for offset, producer_id, aborts in batches(replica):
        if aborts is None:
            undecided.setdefault(producer_id, []).append(offset)
        else:
            ended = undecided.pop(producer_id, [])
            committed += [] if aborts else ended
    return sorted(offset for offset in committed if offset < replica.offsets.last_stable)


def committed_for_readers(replica: Replica) -> list[int]:
    """The same as a client determines it: from the fetched batches and the list of aborted transactions."""
    seen: list[int] = []
    offset = replica.log.log_start
    while offset < replica.offsets.last_stable:
        fetched = replica.read(offset, 1 << 20, at_least_one=True, read_committed=True)
        assert fetched.aborted is not None
        assert not isinstance(fetched.records, bytes), f"nothing at {offset}"
        data = fetched.records.contents()
        starting = sorted((entry.first_offset, entry.producer_id) for entry in fetched.aborted)
        skipped: set[int] = set()
        for position, header in iter_batches(data):
            while starting and starting[0][0] <= header.last_offset:
                skipped.add(starting.pop(0)[1])
            if header.is_control:
                if parse_marker(decode_records(data[position : position + header.size])[0])[0] == ABORT_MARKER:
                    skipped.discard(header.producer_id)
            elif header.producer_id not in skipped:
                seen.append(header.base_offset)
            offset = header.next_offset
    return seen


def assert_readers_see_what_the_log_says(writers: Writers) -> None:
    assert committed_for_readers(writers.replica) == committed_by_the_log(writers.replica)


def crashed_at(point: int, seed: int) -> MemDisk | None:
    """A disk whose process died at its disk operation number `point`; None when it completed before."""
    randomness = random.Random(seed)
    writers = Writers()
    disk = writers.rig.disk
    disk.cut_power_at = disk.operations + point
    with contextlib.suppress(PowerCut):
        for _ in range(ACTIONS):
            writers.act(randomness)
        return None
    return disk


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("power", [False, True], ids=["the process is killed", "the power fails"])
def test_readers_see_no_aborted_record_after_a_crash_at_any_point(seed: int, power: bool) -> None:
    point = 0
    while (disk := crashed_at(point, seed)) is not None:
        if power:
            disk.crash(Seeded(1000 * seed + point))
        else:
            disk.kill()

        again = Writers(disk=disk)
        assert_readers_see_what_the_log_says(again)

        # The rebuilt index is as good as the original: after another crash, and after a clean stop.
        again.end(PRODUCERS[0], commit=False)
        again.rig.stop(clean=False)
        third = Writers(disk=disk)
        assert_readers_see_what_the_log_says(third)
        third.rig.stop()
        assert_readers_see_what_the_log_says(Writers(disk=disk))
        point += 1
    assert point > ACTIONS // 2, "each crash at another disk operation"


class Unlucky:
    """Randomness that loses everything that a power cut can lose."""

    def below(self, bound: int) -> int:
        return 0

    def uuid_bytes(self) -> bytes:
        return bytes(16)


def test_a_flushed_index_and_its_directory_entry_survive_a_power_cut() -> None:
    writers = Writers(segment_bytes=1 << 20)
    writers.write(5)
    writers.replica.log.flush()
    writers.end(5, commit=False)
    writers.replica.snapshot(NOW_MS)
    writers.replica.log.flush()
    writers.rig.store.checkpoint()
    disk = writers.rig.disk

    disk.crash(Unlucky())

    assert disk.exists(FIRST_INDEX)
    assert_readers_see_what_the_log_says(Writers(disk=disk))


@pytest.mark.parametrize("clean", [True, False], ids=["stopped cleanly", "killed"])
def test_no_aborted_transaction_is_lost_on_a_full_disk(clean: bool) -> None:
    writers = Writers(segment_bytes=1 << 20)
    disk = writers.rig.disk
    writers.write(5)
    writers.replica.snapshot(NOW_MS)
    disk.fail("append", TXN_INDEX, errno.ENOSPC)

    writers.end(5, commit=False)
    writers.write(6)
    writers.replica.snapshot(NOW_MS)
    writers.replica.log.flush()

    assert writers.replica.log.log_end == 3
    assert_readers_see_what_the_log_says(writers)
    assert [name for name in disk.list_directory(FOLDER) if name.endswith(SNAPSHOT)] == [f"{1:020d}{SNAPSHOT}"]
    assert writers.replica.log.recovery_point == 1, "the index is not complete beyond the marker"
    writers.rig.stop(clean=clean)
    disk.faults.clear()
    again = Writers(disk=disk)
    assert_readers_see_what_the_log_says(again)
    assert [fields["partition"] for fields in again.rig.notes.named("aborted_transactions_rebuilt")] == ["orders-0"]


def test_an_index_entry_that_a_full_disk_refused_is_written_when_there_is_room() -> None:
    writers = Writers(segment_bytes=1 << 20)
    disk = writers.rig.disk
    writers.write(5)
    disk.fail("append", TXN_INDEX, errno.ENOSPC)
    writers.end(5, commit=False)
    disk.faults.clear()

    writers.replica.snapshot(NOW_MS)

    assert txn_index.read(disk, FIRST_INDEX) == [AbortedTxn(5, 0, 1, 2)]
    writers.rig.stop(clean=False)
    again = Writers(disk=disk)
    assert_readers_see_what_the_log_says(again)
    assert again.rig.notes.named("aborted_transactions_rebuilt") == []


@pytest.mark.parametrize("damage", [b"", b"\0", b"\xff" * txn_index.ENTRY_BYTES], ids=["removed", "torn", "damaged"])
def test_a_damaged_index_is_rebuilt_from_the_whole_log(damage: bytes) -> None:
    writers = Writers()
    for _ in range(6):
        for producer_id in PRODUCERS:
            writers.write(producer_id)
        for producer_id in PRODUCERS:
            writers.end(producer_id, commit=producer_id == 6)
    disk = writers.rig.stop(clean=True)
    right = {base: txn_index.read(disk, txn_index.path_of(FOLDER, base)) for base in txn_index.bases(disk, FOLDER)}
    assert len(right) > 3
    if damage:
        disk.write_file(FIRST_INDEX, damage)
    else:
        # Indexes before the snapshot are trusted, so only a replay from the log start notices a missing one.
        disk.unlink(FIRST_INDEX)
        for name in disk.list_directory(FOLDER):
            if name.endswith(SNAPSHOT):
                disk.unlink(f"{FOLDER}/{name}")

    again = Writers(disk=disk)

    assert_readers_see_what_the_log_says(again)
    assert {base: txn_index.read(disk, txn_index.path_of(FOLDER, base)) for base in right} == right
    assert again.rig.notes.named("aborted_transactions_rebuilt") == [{"partition": "orders-0", "index_files": 1}]


def test_a_transaction_whose_first_records_are_deleted_is_still_open_after_a_crash() -> None:
    writers = Writers(segment_bytes=1 << 20)
    builder = RecordBatchBuilder()
    for _ in range(4):
        builder.add(NOW_MS, None, b"x")
    writers.rig.append(
        writers.replica,
        builder.build(attributes=TRANSACTIONAL_FLAG, producer_id=5, producer_epoch=0, base_sequence=0),
        internal=True,
    )
    writers.replica.delete_records(2)
    writers.replica.log.flush()
    writers.rig.store.checkpoint()

    disk = writers.rig.stop(clean=False)
    again = Writers(disk=disk)

    assert (again.replica.offsets.log_start, again.replica.offsets.last_stable) == (2, 2)
    again.end(5, commit=False)
    assert [entry.last_offset for entry in again.replica.aborted().between(2, 5)] == [4]
