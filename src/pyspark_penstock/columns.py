"""Batches of records as Arrow: the schema that Spark sees, and the record batches a task yields.

Keys and values are copied once, from the fetch response or its decompressed batches, into Arrow's buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
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
from penstock.wire.records import ABORT_MARKER, crc_ok, decode_records, parse_marker, records_of
from pyspark_penstock.chunks import Chunk, Repeated, Room, Span
from pyspark_penstock.column_options import BYTES_COLUMNS, ERROR_COLUMNS, HEADERS_COLUMN, ReadColumns
from pyspark_penstock.errors import CorruptBatch
from pyspark_penstock.fetching import Fetched
from pyspark_penstock.headers import ARRAY_TYPE, MAP_TYPE, headers_as_map
from pyspark_penstock.offsets import OffsetRange
from pyspark_penstock.options import ReadOptions
from pyspark_penstock.spark_internals import arrow_schema
from pyspark_penstock.untyped import pyarrow

if TYPE_CHECKING:
    from pyspark_penstock.values import ValueParser

CHUNK_BYTES_MAX = 1_900_000
"""Bytes of keys, and of values, in one Arrow batch; a larger record has a batch of its own.

Java's Arrow allocates powers of two: with the other columns of usual records a batch is just below one.
"""
CHUNK_ROWS_MAX = 1 << 16
"""Rows of one Arrow batch."""
CHUNK_HEADERS_MAX = 1 << 20
"""Headers of one Arrow batch."""

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    **dict.fromkeys(ERROR_COLUMNS.values(), StringType()),
    **dict.fromkeys(BYTES_COLUMNS.values(), BinaryType()),
}
_OF_BYTES = {of_bytes: part for part, of_bytes in BYTES_COLUMNS.items()}
ROOMS_MAX = 2
"""Chunks whose memory is kept: the one that Spark still holds, and the one being filled."""


def read_schema(options: ReadOptions) -> StructType:
    """The columns of a read: those of Spark's Kafka connector, unless the options name others."""
    wanted = options.read_columns
    types = {**_TYPES, HEADERS_COLUMN: MAP_TYPE if wanted.headers_as_map else ARRAY_TYPE, **_typed(wanted)}
    return StructType([StructField(name, types[name]) for name in options.columns])


def _typed(wanted: ReadColumns) -> dict[str, DataType]:
    """The types of keys and values that have a format."""
    if not wanted.formats:
        return {}
    # Parsers are imported only by queries that parse values.
    from pyspark_penstock.values import value_type

    return {part: value_type(each) for part, each in wanted.formats.items()}


def _parsers(wanted: ReadColumns) -> dict[str, ValueParser]:
    """Parsers of the keys or values whose column or error column is read."""
    requested = {part: each for part, each in wanted.formats.items() if {part, ERROR_COLUMNS[part]} & set(wanted.names)}
    if not requested:
        return {}
    from pyspark_penstock.values import value_parser

    return {part: value_parser(each) for part, each in requested.items()}


class ColumnReader:
    """Turns the fetched batches of one range into Arrow record batches of the read's schema."""

    def __init__(self, options: ReadOptions, wanted: OffsetRange) -> None:
        self._wanted = wanted
        self._first_offset = wanted.start
        self._names = options.columns
        self._with_headers = HEADERS_COLUMN in options.columns
        self._check_crcs = options.fetch.check_crcs
        self._read_committed = options.fetch.read_committed
        self._parsers = _parsers(options.read_columns)
        self._headers_as_map = options.read_columns.headers_as_map
        self._schema: Any = arrow_schema(read_schema(options))
        self._repeated = Repeated(topic=wanted.topic, partition=wanted.partition)
        self._rooms: list[Room] = []

    def batches(self, fetched: Fetched) -> Iterator[Any]:
        """The records of a response that are in the range, without control records and aborted transactions."""
        chunk: Chunk | None = None
        self._first_offset = fetched.first_offset
        for span in self._spans(fetched):
            taken, pos = 0, span.start
            while taken < span.header.record_count:
                if chunk is None:
                    chunk = self._chunk(self._free_room())
                step, pos = chunk.take(span, pos, span.header.record_count - taken)
                taken += step
                if taken < span.header.record_count:
                    if chunk.rows:
                        yield self._finished(chunk)
                        chunk = None
                    else:
                        # The first record is larger than a chunk: the new room holds the whole rest of the batch.
                        size = span.end - pos
                        chunk = self._chunk(self._room(size, headers_max=size))
            if pos != span.end:
                raise Malformed(f"{span.end - pos} bytes follow the last record of a batch")
        if chunk is not None and chunk.rows:
            yield self._finished(chunk)

    def _chunk(self, room: Room) -> Chunk:
        return Chunk(room, self._repeated, first=self._first_offset, last=self._wanted.end)

    def _free_room(self) -> Room:
        """A room that is no longer in use, or a new one: fresh pages cost as much as the copy."""
        for room in self._rooms:
            if room.is_free():
                return room
        room = self._room(CHUNK_BYTES_MAX, headers_max=min(CHUNK_BYTES_MAX, CHUNK_HEADERS_MAX))
        if len(self._rooms) < ROOMS_MAX:
            self._rooms.append(room)
        return room

    def _room(self, size: int, *, headers_max: int) -> Room:
        return Room(rows=CHUNK_ROWS_MAX, size=size, headers_max=headers_max if self._with_headers else None)

    def _spans(self, fetched: Fetched) -> Iterator[Span]:
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
                yield Span(data=view, start=pos + HEADER_BYTES, end=pos + header.size, header=header)
            else:
                data = memoryview(records_of(batch, header))
                yield Span(data=data, start=0, end=len(data), header=header)

    def _finished(self, chunk: Chunk) -> Any:
        parsed: dict[str, Any] = {}
        for part, parser in self._parsers.items():
            parsed[part], parsed[ERROR_COLUMNS[part]] = parser.parse(chunk.column(part))
        arrays = [parsed[name] if name in parsed else self._column(chunk, name) for name in self._names]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, chunk: Chunk, name: str) -> Any:
        if name == HEADERS_COLUMN and self._headers_as_map:
            return headers_as_map(chunk.column(name), self._schema.field(name).type)
        return chunk.column(_OF_BYTES.get(name, name))


class _Aborted:
    """Detects batches of aborted transactions while they are walked in order."""

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
