"""Batches of records as Arrow: the schema that Spark sees, and the record batches a task yields.

Keys and values are copied once, from the answer or from what it decompresses to, into the buffers that Arrow sends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.model.batch import HEADER_BYTES, BatchHeader
from penstock.wire.compression import NONE
from penstock.wire.primitives import Buffer, Malformed
from penstock.wire.record_blobs import BlobRows, Blobs, Headers
from penstock.wire.records import ABORT_MARKER, crc_ok, decode_records, parse_marker, records_of
from pyspark_penstock.fetching import Fetched
from pyspark_penstock.offsets import OffsetRange
from pyspark_penstock.options import (
    HEADERS_COLUMN,
    VALUE_BYTES_COLUMN,
    VALUE_ERROR_COLUMN,
    ReadOptions,
)
from pyspark_penstock.untyped import arrow_schema, numpy, pyarrow
from pyspark_penstock.values import ValueParser, value_parser

CHUNK_BYTES_MAX = 1 << 20
"""Bytes of keys, and of values, in one Arrow batch; a single record that is larger has a batch to itself."""
CHUNK_ROWS_MAX = 1 << 16
"""Rows of one Arrow batch."""
CHUNK_HEADERS_MAX = 1 << 20
"""Headers of one Arrow batch."""

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS_COLUMN: HEADERS_TYPE,
    VALUE_ERROR_COLUMN: StringType(),
    VALUE_BYTES_COLUMN: BinaryType(),
}
_LOG_APPEND_TIME = 1


class CorruptBatch(Exception):
    """A batch's checksum says that it is not what its producer sent."""


def read_schema(options: ReadOptions) -> StructType:
    """The columns of a read, those of Spark's Kafka connector unless others were asked for."""
    types = dict(_TYPES)
    if options.value_format is not None:
        types["value"] = value_parser(options.value_format).spark_type
    return StructType([StructField(name, types[name]) for name in options.columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """The records of one batch, uncompressed: where they are and what their header says."""

    data: Buffer
    start: int
    end: int
    header: BatchHeader


class ColumnReader:
    """What is fetched of one range, as Arrow record batches of the read's schema."""

    def __init__(self, options: ReadOptions, wanted: OffsetRange) -> None:
        self._wanted = wanted
        self._first_offset = wanted.start
        self._names = options.columns
        self._with_headers = HEADERS_COLUMN in options.columns
        self._check_crcs = options.fetch.check_crcs
        self._read_committed = options.fetch.read_committed
        self._parser: ValueParser | None = None
        if options.value_format is not None and not {"value", VALUE_ERROR_COLUMN}.isdisjoint(options.columns):
            self._parser = value_parser(options.value_format)
        self._schema: Any = arrow_schema(read_schema(options))

    def batches(self, fetched: Fetched) -> Iterator[Any]:
        """The records of an answer that are in the range, without control records and aborted transactions."""
        chunk: _Chunk | None = None
        self._first_offset = fetched.first_offset
        rows = sum(header.record_count for _, header in fetched.batches)
        packed = any(header.codec != NONE for _, header in fetched.batches)
        # What is compressed holds more than it takes.
        size = CHUNK_BYTES_MAX if packed else min(len(fetched.records), CHUNK_BYTES_MAX)
        for span in self._spans(fetched):
            taken, pos = 0, span.start
            while taken < span.header.record_count:
                if chunk is None:
                    chunk = self._chunk(size, rows)
                step, pos = chunk.take(span, pos, span.header.record_count - taken)
                taken += step
                if taken < span.header.record_count:
                    if chunk.rows:
                        yield self._finished(chunk)
                        chunk = None
                    else:
                        chunk = self._chunk(span.end - pos, rows, whole=True)
            if pos != span.end:
                raise Malformed(f"{span.end - pos} bytes follow the last record of a batch")
        if chunk is not None and chunk.rows:
            yield self._finished(chunk)

    def _chunk(self, size: int, rows: int, *, whole: bool = False) -> _Chunk:
        return _Chunk(
            replace(self._wanted, start=self._first_offset), size, min(rows, CHUNK_ROWS_MAX), self._with_headers, whole
        )

    def _spans(self, fetched: Fetched) -> Iterator[_Span]:
        aborted = _Aborted(fetched.aborted if self._read_committed else ())
        view = memoryview(fetched.records)
        for pos, header in fetched.batches:
            if self._check_crcs and not crc_ok(fetched.records, pos, header):
                raise CorruptBatch(
                    f"the batch at offset {header.base_offset} of {self._wanted.topic}-{self._wanted.partition} "
                    "does not match its checksum"
                )
            batch = view[pos : pos + header.size]
            if aborted.drops(batch, header) or header.is_control or header.record_count == 0:
                continue
            if header.codec == NONE:
                yield _Span(data=view, start=pos + HEADER_BYTES, end=pos + header.size, header=header)
            else:
                data = memoryview(records_of(batch, header))
                yield _Span(data=data, start=0, end=len(data), header=header)

    def _finished(self, chunk: _Chunk) -> Any:
        columns = chunk.columns(self._names)
        if self._parser is not None:
            parsed, errors = self._parser.parse(chunk.values())
            columns["value"] = parsed
            columns[VALUE_ERROR_COLUMN] = errors
        return pyarrow.RecordBatch.from_arrays([columns[name] for name in self._names], schema=self._schema)


class _Aborted:
    """Which batches belong to transactions that were aborted, told while walking them in order."""

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(transactions, key=lambda each: each[1], reverse=True)
        self._open: set[int] = set()

    def drops(self, batch: Buffer, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._open.add(self._coming.pop()[0])
        if header.producer_id not in self._open or not header.is_transactional:
            return False
        if header.is_control and header.record_count and parse_marker(decode_records(batch)[0])[0] == ABORT_MARKER:
            self._open.discard(header.producer_id)
        return True


class _Chunk:
    """The buffers of one Arrow batch while they are filled."""

    def __init__(self, wanted: OffsetRange, size: int, rows: int, with_headers: bool, whole: bool) -> None:
        self._wanted = wanted
        self._offsets: Any = numpy.empty(rows, numpy.int64)
        self._times: Any = numpy.empty(rows, numpy.int64)
        self._keys = _Column(rows, size)
        self._values = _Column(rows, size)
        headers_max = min(size, size if whole else CHUNK_HEADERS_MAX)
        self._headers = _HeaderColumn(rows, headers_max, size) if with_headers else None
        headers = None if self._headers is None else self._headers.filled
        self._filled = BlobRows(
            self._offsets,
            self._times,
            self._keys.blobs,
            self._values.blobs,
            headers,
            wanted.start,
            wanted.end,
        )
        self._append_times: list[tuple[int, int]] = []
        """From which row on times are of which type."""

    @property
    def rows(self) -> int:
        return self._filled.rows

    def take(self, span: _Span, pos: int, count: int) -> tuple[int, int]:
        header = span.header
        kind = _LOG_APPEND_TIME if header.is_log_append_time else 0
        if not self._append_times or self._append_times[-1][1] != kind:
            self._append_times.append((self.rows, kind))
        return self._filled.fill(
            span.data,
            pos,
            span.end,
            count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.is_log_append_time,
        )

    def values(self) -> Any:
        return self._values.array(pyarrow.binary())

    def columns(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Those of the columns that stand in a chunk."""
        rows = self.rows
        made: dict[str, Callable[[], Any]] = {
            "key": lambda: self._keys.array(pyarrow.binary()),
            "value": self.values,
            VALUE_BYTES_COLUMN: self.values,
            "topic": lambda: _repeated(self._wanted.topic, rows),
            "partition": lambda: pyarrow.array(numpy.full(rows, self._wanted.partition, numpy.int32)),
            "offset": lambda: pyarrow.array(self._offsets[:rows]),
            "timestamp": self._timestamps,
            "timestampType": self._timestamp_types,
            HEADERS_COLUMN: lambda: None if self._headers is None else self._headers.array(rows),
        }
        return {name: made[name]() for name in names if name in made}

    def _timestamps(self) -> Any:
        kind = pyarrow.timestamp("us", tz="UTC")
        return pyarrow.Array.from_buffers(kind, self.rows, [None, pyarrow.py_buffer(self._times[: self.rows])])

    def _timestamp_types(self) -> Any:
        kinds: Any = numpy.empty(self.rows, numpy.int32)
        for row, kind in self._append_times:
            kinds[row:] = kind
        return pyarrow.array(kinds)


class _Column:
    """One column of byte strings while it is filled."""

    def __init__(self, rows: int, size: int) -> None:
        self._ends: Any = numpy.empty(rows + 1, numpy.int32)
        self._data: Any = numpy.empty(size, numpy.uint8)
        self._valid: Any = numpy.zeros((rows + 7) // 8, numpy.uint8)
        self.blobs = Blobs(self._ends, self._data, self._valid)

    def array(self, kind: Any) -> Any:
        blobs = self.blobs
        valid = pyarrow.py_buffer(self._valid) if blobs.nulls else None
        ends = pyarrow.py_buffer(self._ends[: blobs.count + 1])
        data = pyarrow.py_buffer(self._data[: blobs.size])
        return pyarrow.Array.from_buffers(kind, blobs.count, [valid, ends, data], null_count=blobs.nulls)


class _HeaderColumn:
    """The column of headers while it is filled."""

    def __init__(self, rows: int, headers_max: int, size: int) -> None:
        self._ends: Any = numpy.empty(rows + 1, numpy.int32)
        self._valid: Any = numpy.zeros((rows + 7) // 8, numpy.uint8)
        self._names = _Column(headers_max, size)
        self._values = _Column(headers_max, size)
        self.filled = Headers(self._ends, self._valid, self._names.blobs, self._values.blobs, headers_max)

    def array(self, rows: int) -> Any:
        names = self._names.array(pyarrow.string())
        values = self._values.array(pyarrow.binary())
        pairs = pyarrow.StructArray.from_arrays([names, values], names=["key", "value"])
        valid = pyarrow.py_buffer(self._valid) if self.filled.nulls else None
        ends = pyarrow.py_buffer(self._ends[: rows + 1])
        kind = pyarrow.list_(pairs.type)
        return pyarrow.Array.from_buffers(kind, rows, [valid, ends], null_count=self.filled.nulls, children=[pairs])


def _repeated(text: str, rows: int) -> Any:
    """A column of the same string, made without a Python object for each row."""
    raw = text.encode()
    ends = numpy.arange(0, (rows + 1) * len(raw), len(raw), numpy.int32)[: rows + 1]
    return pyarrow.StringArray.from_buffers(rows, pyarrow.py_buffer(ends), pyarrow.py_buffer(raw * rows))
