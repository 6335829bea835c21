"""Shared by the tests of storage: a manual clock, seeded randomness, settings, batches, and logs on any disk."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import penstock.testing
from penstock.model.batch import BatchHeader
from penstock.model.ids import TOPIC_ID_ZERO, TopicPartition
from penstock.storage.directories import LogDirectory
from penstock.storage.disk import Disk
from penstock.storage.files import OpenFiles
from penstock.storage.log import Log
from penstock.storage.partition_directory import PartitionDirectory
from penstock.storage.recovery import Stop
from penstock.wire.records import Record, build_batch, decode_records, iter_batches, parse_batch_header

TP = TopicPartition("orders", 0)
HOME = "/data"
PATH = "/data/orders-0"
FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Topic settings with Kafka's defaults, without their lower bounds."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    dedupe_window_records: int = 0
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = FOREVER
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    retention_bytes: int = -1
    retention_ms: int = 1_209_600_000
    segment_bytes_effective: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    schedule_target: str = ""
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000


class ManualClock(penstock.testing.ManualClock):
    """A clock that begins early enough for ages in round numbers."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        super().__init__(now_ms)


class Seeded:
    """Randomness from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def uuid_bytes(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


def batch_of(
    *values: bytes | None,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | int = 1000,
    codec: int = 0,
    producer_id: int = -1,
    sequence: int = -1,
) -> bytearray:
    """A batch as a producer sends it: its offsets count from 0."""
    times = [timestamps] * len(values) if isinstance(timestamps, int) else timestamps
    records = [Record(at, times[at], keys[at] if keys else b"k", value) for at, value in enumerate(values)]
    return build_batch(
        records,
        compression=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
    )


def put(log: Log, batch: bytearray, epoch: int = 0) -> int:
    """Append a batch, as the produce path would."""
    return log.append(memoryview(batch), parse_batch_header(batch), epoch)


def directory_of(disk: Disk, files_max: int = 100, *, home: str = HOME) -> LogDirectory:
    return LogDirectory(home, disk, OpenFiles(files_max))


def log_on(
    disk: Disk,
    settings: Settings | None = None,
    *,
    stop: Stop = Stop.CLEAN,
    directory: LogDirectory | None = None,
    clock: ManualClock | None = None,
    log_start: int = 0,
    recovery_point: int = 0,
    high_watermark: int = 0,
    path: str = PATH,
    replicated: bool = False,
) -> Log:
    """An open log on a disk."""
    disk.make_directory(path, parents=True)
    log_directory = directory or directory_of(disk, home=path.rpartition("/")[0])
    log = Log(
        PartitionDirectory(TP, TOPIC_ID_ZERO, log_directory, path, entry_synced=stop is Stop.CLEAN),
        settings or Settings(),
        clock=clock or ManualClock(),
        randomness=Seeded(),
        stop=stop,
        log_start=log_start,
        recovery_point=recovery_point,
        high_watermark=high_watermark,
        replicated=replicated,
    )
    log.open()
    return log


def read_from(log: Log, offset: int, bytes_max: int = 1 << 30, end: int | None = None) -> list[Record]:
    """The records of one slice from an offset on, without those of its first batch before the offset."""
    found = log.slice(offset, bytes_max, end=log.log_end if end is None else end, at_least_one=True)
    if found is None:
        return []
    data = found.contents()
    assert len(data) == len(found), "a slice is as long as it says"
    return [
        record
        for position, header in iter_batches(data)
        for record in decode_records(data[position : position + header.size])
        if record.offset >= offset
    ]


def read_all(log: Log, bytes_max: int = 1 << 30) -> list[Record]:
    """Every record, as a consumer would read them, slice by slice."""
    records: list[Record] = []
    offset = log.log_start
    while True:
        found = log.slice(offset, bytes_max, end=log.log_end, at_least_one=True)
        if found is None:
            return records
        data = found.contents()
        last: BatchHeader | None = None
        for position, header in iter_batches(data):
            records += [r for r in decode_records(data[position : position + header.size]) if r.offset >= offset]
            last = header
        assert last is not None, "a slice holds whole batches"
        offset = last.next_offset


def values_of(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]
