"""The columns of a table as the parts of records: the schema is checked once, then each Arrow batch is converted."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkValueError
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.wire.column_batches import BytesColumn, HeaderColumns
from pyspark_penstock.column_options import ValueFormat
from pyspark_penstock.errors import PenstockError, WrongOption
from pyspark_penstock.headers import ARRAY_TYPE, MAP_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Arrow comes without types; a module that is imported by name is untyped and says so.
pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")
ArrowBatch = Any
"""A pyarrow.RecordBatch."""

KEY, VALUE, HEADERS, TOPIC, PARTITION = "key", "value", "headers", "topic", "partition"
NO_PARTITION = -1


class WrongSchema(WrongOption):
    """A table that cannot be written to topics; the messages are those of Spark's Kafka connector."""


class WrongRow(PenstockError, PySparkValueError):
    """A row that cannot become a record."""


def check_schema(
    schema: StructType,
    topic: str | None,
    timestamp_column: str | None = None,
    formats: Mapping[str, ValueFormat] | None = None,
) -> None:
    """Raise WrongSchema before the first row is read.

    A column ``timestamp`` is ignored unless the option `timestamp.column` names it, as in Spark's Kafka connector.
    """
    types = {field.name.lower(): field.dataType for field in schema.fields}
    if topic is None:
        if TOPIC not in types:
            raise WrongSchema(
                f"topic option required when no '{TOPIC}' attribute is present."
                f" Use the {TOPIC} option for setting a topic."
            )
        _check_type(TOPIC, types[TOPIC], [StringType()])
    formats = formats or {}
    if KEY in types:
        _check_content(KEY, types[KEY], formats.get(KEY))
    elif KEY in formats:
        raise WrongSchema(f"Option 'key.format' is given, and there is no attribute '{KEY}'")
    if VALUE not in types:
        raise WrongSchema(f"Required attribute '{VALUE}' not found")
    _check_content(VALUE, types[VALUE], formats.get(VALUE))
    if HEADERS in types:
        _check_type(HEADERS, types[HEADERS], [ARRAY_TYPE, MAP_TYPE])
    if PARTITION in types:
        _check_type(PARTITION, types[PARTITION], [IntegerType()])
    if timestamp_column is not None:
        if timestamp_column.lower() not in types:
            raise WrongSchema(
                f"Option 'timestamp.column' names the column '{timestamp_column}', and there is none of that name:"
                f" the columns are {', '.join(field.name for field in schema.fields)}"
            )
        _check_type(timestamp_column, types[timestamp_column.lower()], [TimestampType()])


def _check_content(name: str, found: DataType, wanted: ValueFormat | None) -> None:
    """Check the type of a key or value: bytes or text, or a type that its format can encode."""
    if wanted is None:
        _check_type(name, found, [StringType(), BinaryType()])
        return
    from pyspark_penstock.values.encoders import value_encoder

    try:
        value_encoder(name, found, wanted)
    except WrongOption as error:
        raise WrongSchema(str(error)) from error


def encoded_batches(
    batches: Iterable[ArrowBatch], schema: StructType, formats: Mapping[str, ValueFormat]
) -> Iterator[ArrowBatch]:
    """Batches with ``key`` and ``value`` encoded in their formats; WrongRow if a row cannot be encoded."""
    from pyspark_penstock.values.encoders import batch_encoder
    from pyspark_penstock.values.misfit import Misfit

    encode = batch_encoder(schema, formats)
    for batch in batches:
        try:
            yield encode(batch)
        except Misfit as error:
            raise WrongRow(str(error)) from error


def _check_type(name: str, found: DataType, wanted: Sequence[DataType]) -> None:
    # Nullability is not compared.
    if found.simpleString() not in [each.simpleString() for each in wanted]:
        raise WrongSchema(
            f"{name} attribute unsupported type {found.simpleString()}."
            f" {name} must be a(n) {' or '.join(each.simpleString() for each in wanted)}{_advice(name, found)}"
        )


def _advice(name: str, found: DataType) -> str:
    if name in (KEY, VALUE) and isinstance(found, StructType):
        return f"; the option '{name}.format' json or avro encodes a struct"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """One Arrow batch, ready for the encoder."""

    rows: int
    keys: BytesColumn | None
    values: BytesColumn
    headers: HeaderColumns | None
    topics: tuple[str, ...]
    topic_of: memoryview
    """For each row the index of its topic."""
    partitions: array[int]
    """For each row the requested partition, or -1."""
    partitions_requested: bool
    times: memoryview


def record_columns(
    batch: ArrowBatch, topic: str | None, now_ms: int, timestamp_column: str | None = None
) -> RecordColumns:
    """The record columns of a batch of rows; WrongRow if a row has no topic."""
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
        partitions_requested=PARTITION in columns,
        times=_times(None if timestamp_column is None else columns[timestamp_column.lower()], batch.num_rows, now_ms),
    )


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
    """A byte for each row, 0 for null; None if no row is null."""
    if not column.null_count:
        return None
    marks = column.is_valid().cast(pa.uint8())
    return memoryview(marks.buffers()[1]).cast("B")[marks.offset : marks.offset + len(marks)]


def _header_columns(column: Any) -> HeaderColumns:
    rows = len(column)
    if column.null_count:
        # Null headers and empty headers make the same record.
        column = pc.if_else(column.is_valid(), column, pa.scalar([], column.type))
    if not rows:
        return HeaderColumns(
            array("i", [0]), _bytes_column(pa.array([], pa.binary())), _bytes_column(pa.array([], pa.binary()))
        )
    _, ends, *_ = column.buffers()
    places = memoryview(ends).cast("i")[column.offset : column.offset + rows + 1]
    if pa.types.is_map(column.type):
        return HeaderColumns(places, _bytes_column(column.keys), _bytes_column(column.items))
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
