"""Record batches of magic 2: reading, validation, building, filtering and recompression.

A buffer holds one batch, or several in a row, exactly as on disk and on the wire. Batches are stored as the producer
sent them; only compaction and clients read the records, with the loops of ``record_loops``.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from fastcrc.crc32 import iscsi

from penstock.model.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AT,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
)
from penstock.model.ids import (
    NO_COORDINATOR_EPOCH,
    NO_LEADER_EPOCH,
    OFFSET_ZERO,
    CoordinatorEpoch,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from penstock.wire import record_loops
from penstock.wire.compression import NONE, compress, decompress, pieces
from penstock.wire.primitives import Buffer, Malformed

RECORDS_BYTES_MAX = 1 << 28
"""The default limit of a batch's decompressed size."""

ROWS_AT_ONCE = 4096
"""Records of a batch that are indexed at once, so that the memory of a walk does not grow with the batch."""

LAST_OFFSET_DELTA_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
ABORT_MARKER = 0
COMMIT_MARKER = 1
FENCE = 20552
"""Type of the control record with which a partition that was drained resumes; Kafka has none of this number."""

_CRC = Struct(">I")
_LENGTH = Struct(">i")
_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_FENCE_VALUE = Struct(">hii")

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One message."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class CheckedRecords(NamedTuple):
    """The result of checking a batch's records."""

    keyed: bool
    """Every record has a key."""
    consecutive: bool
    """Offset deltas are 0, 1, 2 and so on."""
    timestamp_delta_min: int
    timestamp_delta_max: int


class RecordKey(NamedTuple):
    """The parts of a record that compaction needs."""

    offset: Offset
    key: bytes | None
    is_tombstone: bool


def parse_batch_header(buffer: Buffer, pos: int = 0) -> BatchHeader:
    """The header at ``pos``, unchecked but whole."""
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, pos))
    except StructError as error:
        raise Malformed(f"no batch header at {pos} of {len(buffer)} bytes") from error


def iter_batches(buffer: Buffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Each complete batch's position and header. A batch truncated by a fetch is left out."""
    stop = len(buffer) if end is None else end
    while stop - pos >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(buffer, pos))
        if header.magic != MAGIC or header.length < HEADER_BYTES - PREFIX_BYTES:
            raise Malformed(f"at {pos} is no batch: magic {header.magic}, length {header.length}")
        if header.size > stop - pos:
            return
        yield pos, header
        pos += header.size


def crc_of(buffer: Buffer, pos: int, size: int) -> int:
    """The checksum that belongs in the batch of ``size`` bytes at ``pos``."""
    checksum: int = iscsi(memoryview(buffer)[pos + ATTRIBUTES_AT : pos + size])
    return checksum


def crc_ok(buffer: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the batch's checksum is right."""
    return crc_of(buffer, pos, header.size) == header.crc


def records_of(batch: Buffer, header: BatchHeader, limit_bytes: int = RECORDS_BYTES_MAX) -> Buffer:
    """The records of one batch, decompressed."""
    return decompress(header.codec, _compressed(batch, header), limit_bytes)


def _compressed(batch: Buffer, header: BatchHeader) -> memoryview:
    """The records of one batch, compressed if the batch is."""
    size = header.size
    if size > len(batch) or size < HEADER_BYTES or header.record_count < 0:
        raise Malformed(f"a batch of {size} bytes and {header.record_count} records in {len(batch)} bytes")
    return memoryview(batch)[HEADER_BYTES:size]


def first_record(
    batch: Buffer, header: BatchHeader, timestamp_ms: int, offset_min: Offset, limit_bytes: int = RECORDS_BYTES_MAX
) -> tuple[int, Offset] | None:
    """Timestamp and offset of a batch's first record at or after both.

    Decompression stops there, and holds no more than ``compression.stream_bytes`` on the way.
    """
    body = _compressed(batch, header)
    time_min = INT64_MIN if header.is_log_append_time else timestamp_ms - header.base_timestamp
    if time_min > INT64_MAX or (header.is_log_append_time and header.max_timestamp < timestamp_ms):
        return None
    search = record_loops.TimeSearch(
        header.record_count, max(time_min, INT64_MIN), max(offset_min - header.base_offset, INT64_MIN)
    )
    rest: Buffer = b""
    for piece in pieces(header.codec, body, limit_bytes):
        data = b"".join((rest, piece)) if rest else piece
        rest = memoryview(data)[search.feed(data, False) :]
        if search.found:
            break
    else:
        search.feed(rest, True)
    if not search.found:
        return None
    time = header.max_timestamp if header.is_log_append_time else header.base_timestamp + search.time_delta
    return time, Offset(header.base_offset + search.offset_delta)


def check_records(
    batch: Buffer, header: BatchHeader | None = None, limit_bytes: int = RECORDS_BYTES_MAX
) -> CheckedRecords:
    """Validate every record of a batch; Malformed if a length is wrong or the count differs from the header's."""
    if header is None:
        header = parse_batch_header(batch)
    if header.attributes & CODEC_MASK == NONE:
        size = header.size
        if size > len(batch) or size < HEADER_BYTES or header.record_count < 0:
            raise Malformed(f"a batch of {size} bytes and {header.record_count} records in {len(batch)} bytes")
        return CheckedRecords._make(record_loops.check(batch, HEADER_BYTES, size, header.record_count))
    body = records_of(batch, header, limit_bytes)
    return CheckedRecords._make(record_loops.check(body, 0, len(body), header.record_count))


def decode_records(batch: Buffer, limit_bytes: int = RECORDS_BYTES_MAX) -> list[Record]:
    """The records of the batch at the buffer's start."""
    return list(iter_records(batch, limit_bytes))


def iter_records(batch: Buffer, limit_bytes: int = RECORDS_BYTES_MAX) -> Iterator[Record]:
    """The records of the batch at the buffer's start, made one by one: a batch may have millions."""
    header = parse_batch_header(batch)
    body = records_of(batch, header, limit_bytes)
    append_time = header.max_timestamp if header.is_log_append_time else None
    for rows, columns in row_slices(body, 0, header.record_count):
        _, ends, times, offsets, key_at, key_size, value_at, value_size, headers_at, headers = columns
        for row in range(rows):
            key, value = key_size[row], value_size[row]
            yield Record(
                header.base_offset + offsets[row],
                header.base_timestamp + times[row] if append_time is None else append_time,
                None if key < 0 else bytes(body[key_at[row] : key_at[row] + key]),
                None if value < 0 else bytes(body[value_at[row] : value_at[row] + value]),
                _read_headers(body, headers_at[row], ends[row]) if headers[row] else (),
            )


def _read_headers(body: Buffer, start: int, end: int) -> list[Header]:
    try:
        return record_loops.read_headers(body, start, end)
    except UnicodeDecodeError as error:
        raise Malformed(f"a header's key is not UTF-8: {error}") from error


def row_slices(body: Buffer, start: int, count: int) -> Iterator[tuple[int, list[array[int]]]]:
    """Where the parts of records are, as ``record_loops.Rows`` has them: a few rows at a time, in the same columns."""
    end = len(body)
    if count > end - start:
        raise Malformed(f"{count} records in {end - start} bytes")
    columns = [array("q", [0]) * min(count, ROWS_AT_ONCE) for _ in range(10)]
    rows = record_loops.Rows(columns)
    while count:
        some = min(count, ROWS_AT_ONCE)
        start = rows.fill_some(body, start, end, some, 0, 0, 0)
        yield some, columns
        count -= some
    if start != end:
        raise Malformed(f"{end - start} bytes follow the last record")


def header_values(batch: Buffer, name: bytes, limit_bytes: int = RECORDS_BYTES_MAX) -> list[tuple[int, bytes]]:
    """Offset delta and value of a header for each record of a batch that has it; null values are left out."""
    header = parse_batch_header(batch)
    body = records_of(batch, header, limit_bytes)
    return record_loops.header_values(body, 0, len(body), header.record_count, name)


def batch_keys(batch: Buffer, limit_bytes: int = RECORDS_BYTES_MAX) -> Iterator[RecordKey]:
    """Each record's offset and key, and whether it is a tombstone; raises Malformed before the first of them."""
    header = parse_batch_header(batch)
    body = records_of(batch, header, limit_bytes)
    record_loops.check(body, 0, len(body), header.record_count)
    return _keys_of(body, header)


def _keys_of(body: Buffer, header: BatchHeader) -> Iterator[RecordKey]:
    for rows, columns in row_slices(body, 0, header.record_count):
        _, _, _, offsets, key_at, key_size, _, value_size, _, _ = columns
        for row in range(rows):
            size = key_size[row]
            yield RecordKey(
                Offset(header.base_offset + offsets[row]),
                None if size < 0 else bytes(body[key_at[row] : key_at[row] + size]),
                value_size[row] < 0,
            )


class RecordBatchBuilder:
    """Builds a batch from records."""

    __slots__ = ("_base_offset", "_base_timestamp", "_count", "_last_delta", "_max_timestamp", "_output")

    def __init__(self, *, base_offset: Offset = OFFSET_ZERO, base_timestamp_ms: int | None = None) -> None:
        self._base_offset = base_offset
        self._base_timestamp = base_timestamp_ms
        self._max_timestamp = NO_TIMESTAMP
        self._last_delta = -1
        self._count = 0
        self._output = record_loops.Output()

    @property
    def count(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """The uncompressed size of the batch so far."""
        return HEADER_BYTES + len(self._output.body)

    def add(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header] = (),
        offset: int | None = None,
    ) -> None:
        """Add a record, at the offset after the last one unless another is given (compaction leaves gaps)."""
        delta = self._last_delta + 1 if offset is None else offset - self._base_offset
        assert delta > self._last_delta, f"offset delta {delta} after {self._last_delta}"
        if self._base_timestamp is None:
            self._base_timestamp = timestamp_ms
        self._output.add(timestamp_ms - self._base_timestamp, delta, key, value, headers)
        self._last_delta = delta
        self._count += 1
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)

    def build(
        self,
        *,
        compression: int = NONE,
        level: int | None = None,
        attributes: int = 0,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        last_offset_delta: int | None = None,
        max_timestamp_ms: int | None = None,
    ) -> bytearray:
        """The batch; ``attributes`` are its flags, to which the codec is added."""
        header = BatchHeader(
            base_offset=self._base_offset,
            length=0,
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes & ~CODEC_MASK | compression,
            last_offset_delta=self._last_delta if last_offset_delta is None else last_offset_delta,
            base_timestamp=NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            max_timestamp=self._max_timestamp if max_timestamp_ms is None else max_timestamp_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self._count,
        )
        return _sealed(header, compress(compression, self._output.body, level))


def _sealed(header: BatchHeader, body: Buffer) -> bytearray:
    """A batch of this header and these records, with its length and checksum."""
    try:
        batch = bytearray(HEADER.pack(*header))
    except StructError as error:
        raise Malformed(f"{header} is not a header: {error}") from error
    batch += body
    _LENGTH.pack_into(batch, LENGTH_AT, len(batch) - PREFIX_BYTES)
    _CRC.pack_into(batch, CRC_AT, crc_of(batch, 0, len(batch)))
    return batch


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: Offset = OFFSET_ZERO,
    compression: int = NONE,
    level: int | None = None,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamp_type: int = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    last_offset_delta: int | None = None,
) -> bytearray:
    """One batch of these records; their offsets count from ``base_offset`` and must rise."""
    builder = RecordBatchBuilder(base_offset=base_offset)
    for record in records:
        builder.add(record.timestamp_ms, record.key, record.value, record.headers, record.offset)
    attributes = (
        (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (LOG_APPEND_TIME_FLAG if timestamp_type else 0)
    )
    return builder.build(
        compression=compression,
        level=level,
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        last_offset_delta=last_offset_delta,
    )


def filter_batch(
    batch: Buffer,
    keep: Sequence[bool],
    *,
    delete_horizon_ms: int | None = None,
    limit_bytes: int = RECORDS_BYTES_MAX,
) -> bytearray:
    """The batch with only the records to keep, at their offsets, with the same codec.

    Base and last offset, producer and sequence stay, so consumers and producer state see no gap. ``delete_horizon_ms``
    is the time from which the batch's tombstones may be removed.
    """
    header = parse_batch_header(batch)
    if not any(keep):
        return empty_batch(header)
    body = records_of(batch, header, limit_bytes)
    assert len(keep) == header.record_count, f"{len(keep)} verdicts on {header.record_count} records"
    if delete_horizon_ms is not None and not header.has_delete_horizon:
        return _rebased(batch, header, keep, delete_horizon_ms, limit_bytes)
    view = memoryview(body)
    kept = bytearray()
    latest = INT64_MIN
    count = index = 0
    for rows, (starts, ends, times, *_) in row_slices(body, 0, header.record_count):
        for row in range(rows):
            if keep[index + row]:
                kept += view[starts[row] : ends[row]]
                latest = max(latest, times[row])
                count += 1
        index += rows
    return with_records(header, kept, count, latest)


def with_records(
    header: BatchHeader, records: Buffer, count: int, time_delta_max: int, *, last_offset_delta: int | None = None
) -> bytearray:
    """A batch of some of its records, with the same codec; `time_delta_max` is the greatest of their timestamps.

    Base offset, producer and sequence stay, and the last offset too unless another is given.
    """
    newest = header.max_timestamp if header.is_log_append_time else header.base_timestamp + time_delta_max
    last = header.last_offset_delta if last_offset_delta is None else last_offset_delta
    changed = header._replace(record_count=count, max_timestamp=newest, last_offset_delta=last)
    return _sealed(changed, compress(header.codec, records))


def _rebased(batch: Buffer, header: BatchHeader, keep: Sequence[bool], horizon_ms: int, limit_bytes: int) -> bytearray:
    """The kept records with timestamps relative to the delete horizon, which replaces the base timestamp."""
    builder = RecordBatchBuilder(base_offset=header.base_offset, base_timestamp_ms=horizon_ms)
    for record, wanted in zip(iter_records(batch, limit_bytes), keep, strict=True):
        if not wanted:
            continue
        try:
            builder.add(record.timestamp_ms, record.key, record.value, record.headers, record.offset)
        except OverflowError as error:
            raise Malformed(f"the time {record.timestamp_ms} of record {record.offset}: {error}") from error
    return builder.build(
        compression=header.codec,
        attributes=header.attributes | DELETE_HORIZON_FLAG,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
        last_offset_delta=header.last_offset_delta,
        max_timestamp_ms=header.max_timestamp if header.is_log_append_time else None,
    )


def empty_batch(header: BatchHeader) -> bytearray:
    """A batch without its records, which preserves the producer's last sequence number."""
    return _sealed(
        header._replace(
            record_count=0,
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG),
            base_timestamp=NO_TIMESTAMP,
        ),
        b"",
    )


def build_marker(
    *,
    commit: bool,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    coordinator_epoch: CoordinatorEpoch,
    timestamp_ms: int,
) -> bytearray:
    """The control batch that ends a transaction in one partition."""
    builder = RecordBatchBuilder()
    key = _MARKER_KEY.pack(0, COMMIT_MARKER if commit else ABORT_MARKER)
    builder.add(timestamp_ms, key, _MARKER_VALUE.pack(0, coordinator_epoch))
    return builder.build(
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG, producer_id=producer_id, producer_epoch=producer_epoch
    )


def build_advance(*, first: Offset, last: Offset, leader_epoch: LeaderEpoch, timestamp_ms: int) -> bytearray:
    """A control batch in place of the batches between two offsets, for a consumer that gets none of their records.

    Consumers pass over it and go on behind it, as with the marker of a transaction that they have nothing of: it has no
    producer id, and its one record is at the last offset. An empty batch would do for all but librdkafka, whose
    position stays behind that.
    """
    if last - first > LAST_OFFSET_DELTA_MAX:
        first = last
    builder = RecordBatchBuilder(base_offset=first)
    value = _MARKER_VALUE.pack(0, 0)
    builder.add(timestamp_ms, _MARKER_KEY.pack(0, COMMIT_MARKER), value, offset=last)
    return builder.build(attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG, leader_epoch=leader_epoch)


def build_fence(*, partition: int, leader_epoch: LeaderEpoch, timestamp_ms: int) -> bytearray:
    """The control batch that ends what older leaders of a drained partition may write; consumers skip it.

    It has no producer id, so that recovery, followers and the list of aborted transactions pass over it too.
    """
    builder = RecordBatchBuilder()
    value = _FENCE_VALUE.pack(0, partition, leader_epoch)
    builder.add(timestamp_ms, _MARKER_KEY.pack(0, FENCE), value)
    return builder.build(attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG)


def parse_marker(record: Record) -> tuple[int, CoordinatorEpoch]:
    """A control record's type and coordinator epoch (-1 where the type has none)."""
    try:
        _, kind = _MARKER_KEY.unpack_from(record.key or b"", 0)
        if kind not in (ABORT_MARKER, COMMIT_MARKER):
            return kind, NO_COORDINATOR_EPOCH
        return kind, _MARKER_VALUE.unpack_from(record.value or b"", 0)[1]
    except StructError as error:
        raise Malformed(f"no control record: {record!r}") from error
