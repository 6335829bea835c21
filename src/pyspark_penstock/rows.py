"""A table's columns as what a record is made of: checked once against the schema, then Arrow batch by Arrow batch."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastcrc.crc32 import iscsi
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.wire.column_batches import BytesColumn, HeaderColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

# Arrow comes without types; a module that is imported by name is untyped and says so.
pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")
ArrowBatch = Any
"""A pyarrow.RecordBatch."""

KEY, VALUE, HEADERS, TOPIC, PARTITION, TIMESTAMP = "key", "value", "headers", "topic", "partition", "timestamp"
HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
NO_PARTITION = -1


class WrongSchema(ValueError):
    """A table that cannot be written to topics; the words are those of Spark's Kafka connector."""


class WrongRow(ValueError):
    """A row that cannot become a record."""


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raise WrongSchema before the first row is looked at."""
    types = {field.name.lower(): field.dataType for field in schema.fields}
    if topic is None:
        if TOPIC not in types:
            raise WrongSchema(
                f"topic option required when no '{TOPIC}' attribute is present."
                f" Use the {TOPIC} option for setting a topic."
            )
        _check_type(TOPIC, types[TOPIC], [StringType()])
    if KEY in types:
        _check_type(KEY, types[KEY], [StringType(), BinaryType()])
    if VALUE not in types:
        raise WrongSchema(f"Required attribute '{VALUE}' not found")
    _check_type(VALUE, types[VALUE], [StringType(), BinaryType()])
    if HEADERS in types:
        _check_type(HEADERS, types[HEADERS], [HEADERS_TYPE])
    if PARTITION in types:
        _check_type(PARTITION, types[PARTITION], [IntegerType()])
    if TIMESTAMP in types:
        _check_type(TIMESTAMP, types[TIMESTAMP], [TimestampType()])


def _check_type(name: str, found: DataType, wanted: Sequence[DataType]) -> None:
    # Whether a value may be null is not part of what is asked.
    if found.simpleString() not in [each.simpleString() for each in wanted]:
        raise WrongSchema(
            f"{name} attribute unsupported type {found.simpleString()}."
            f" {name} must be a(n) {' or '.join(each.simpleString() for each in wanted)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """One Arrow batch, ready for the encoder."""

    rows: int
    keys: BytesColumn | None
    values: BytesColumn
    headers: HeaderColumns | None
    topics: tuple[str, ...]
    topic_of: memoryview
    """For each row which of the topics it goes to."""
    partitions: array[int]
    """For each row the partition that was asked for, or -1."""
    partitions_asked: bool
    times: memoryview


def record_columns(batch: ArrowBatch, topic: str | None, now_ms: int) -> RecordColumns:
    """What a batch of rows says; raise WrongRow where a row has no topic."""
    columns = {name.lower(): batch.column(index) for index, name in enumerate(batch.schema.names)}
    topics, topic_of = _topics(columns.get(TOPIC), topic, batch.num_rows)
    return RecordColumns(
        rows=batch.num_rows,
        keys=_bytes_column(columns[KEY]) if KEY in columns else None,
        values=_bytes_column(columns[VALUE]),
        headers=_header_columns(columns[HEADERS]) if HEADERS in columns else None,
        topics=topics,
        topic_of=topic_of,
        partitions=_partitions(columns.get(PARTITION), batch.num_rows),
        partitions_asked=PARTITION in columns,
        times=_times(columns.get(TIMESTAMP), batch.num_rows, now_ms),
    )


def fingerprint(batch: ArrowBatch, so_far: int) -> int:
    """A checksum of the keys and values of a batch, after those before it: the same rows give the same again."""
    for name in (KEY, VALUE):
        index = batch.schema.get_field_index(name)
        if index < 0:
            continue
        column = _as_binary(batch.column(index))
        _, ends, data = column.buffers()
        if data is None or not len(column):
            continue
        places = memoryview(ends).cast("i")
        so_far = iscsi(memoryview(data).cast("B")[places[column.offset] : places[column.offset + len(column)]], so_far)
    return so_far


def _as_binary(column: Any) -> Any:
    if column.type in (pa.binary(), pa.string()):
        return column
    return column.cast(pa.binary())


def _bytes_column(column: Any) -> BytesColumn:
    column = _as_binary(column)
    rows = len(column)
    _, ends, data = column.buffers()
    if not rows or ends is None:
        return BytesColumn(array("i", [0] * (rows + 1)), b"", b"\0" * rows if column.null_count else None)
    places = memoryview(ends).cast("i")[column.offset : column.offset + rows + 1]
    return BytesColumn(places, b"" if data is None else memoryview(data).cast("B"), _valid(column))


def _valid(column: Any) -> memoryview | None:
    """A byte for each row: 0 where it is null; None where none is."""
    if not column.null_count:
        return None
    marks = column.is_valid().cast(pa.uint8())
    return memoryview(marks.buffers()[1]).cast("B")[marks.offset : marks.offset + len(marks)]


def _header_columns(column: Any) -> HeaderColumns:
    rows = len(column)
    if column.null_count:
        # A row without headers and a row with none are the same record.
        column = pc.if_else(column.is_valid(), column, pa.scalar([], column.type))
    if not rows:
        return HeaderColumns(
            array("i", [0]), _bytes_column(pa.array([], pa.binary())), _bytes_column(pa.array([], pa.binary()))
        )
    _, ends, *_ = column.buffers()
    places = memoryview(ends).cast("i")[column.offset : column.offset + rows + 1]
    entries = column.values
    names = entries.field(0)
    if names.null_count or entries.null_count:
        raise WrongRow("a header without a name: `headers` holds a null where a name is needed")
    return HeaderColumns(places, _bytes_column(names), _bytes_column(entries.field(1)))


def _topics(column: Any, topic: str | None, rows: int) -> tuple[tuple[str, ...], memoryview]:
    if topic is not None:
        return (topic,), memoryview(array("i", [0]) * max(rows, 1))
    if column.null_count:
        raise WrongRow(
            "The Kafka message data sent to the producer contains a null topic."
            " Use the `topic` option for setting a default topic."
        )
    encoded = column.dictionary_encode()
    places = encoded.indices.cast(pa.int32())
    if not rows:
        return (), memoryview(array("i", [0]))
    view = memoryview(places.buffers()[1]).cast("i")[places.offset : places.offset + rows]
    return tuple(encoded.dictionary.to_pylist()), view


def _partitions(column: Any, rows: int) -> array[int]:
    if column is None:
        return array("i", [NO_PARTITION]) * rows
    if rows and (least := pc.min(column).as_py()) is not None and least < 0:
        raise WrongRow(f"a partition below zero: {least}")
    filled = column.fill_null(NO_PARTITION)
    chosen = array("i")
    if rows:
        chosen.frombytes(memoryview(filled.buffers()[1]).cast("B")[4 * filled.offset : 4 * (filled.offset + rows)])
    return chosen


def _times(column: Any, rows: int, now_ms: int) -> memoryview:
    if column is None:
        return memoryview(array("q", [now_ms]) * max(rows, 1))
    whole = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64()).fill_null(now_ms)
    if rows and (least := pc.min(whole).as_py()) < 0:
        raise WrongRow(f"a timestamp before 1970: {least} ms")
    if not rows:
        return memoryview(array("q", [now_ms]))
    return memoryview(whole.buffers()[1]).cast("q")[whole.offset : whole.offset + rows]
