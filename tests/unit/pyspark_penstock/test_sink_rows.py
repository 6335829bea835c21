"""A table's columns: refused schemas, and the records of rows."""

from array import array
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.model.batch import HEADER_BYTES, MAGIC, BatchHeader
from penstock.wire.column_batches import RecordsOfPartition, add_rows
from penstock.wire.records import HEADER, decode_records
from pyspark_penstock.column_options import ValueFormat
from pyspark_penstock.rows import WrongRow, WrongSchema, check_schema, encoded_batches, record_columns
from pyspark_penstock.values.ddl import parse_ddl


def schema(text: str) -> StructType:
    kinds = {
        "string": "string",
        "binary": "binary",
        "int": "integer",
        "timestamp": "timestamp",
        "headers": {
            "type": "array",
            "containsNull": True,
            "elementType": {
                "type": "struct",
                "fields": [
                    {"name": "key", "type": "string", "nullable": True, "metadata": {}},
                    {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
                ],
            },
        },
    }
    pairs = [part.split(":") for part in text.split()]
    fields = [{"name": name, "type": kinds[kind], "nullable": True, "metadata": {}} for name, kind in pairs]
    return StructType.fromJson({"fields": fields})


@pytest.mark.parametrize(
    ("columns", "topic", "says"),
    [
        (
            "value:string",
            None,
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.",
        ),
        ("key:string", "t", "Required attribute 'value' not found"),
        ("value:int", "t", "value attribute unsupported type int. value must be a(n) string or binary"),
        ("key:int value:string", "t", "key attribute unsupported type int. key must be a(n) string or binary"),
        ("topic:int value:string", None, "topic attribute unsupported type int. topic must be a(n) string"),
        (
            "partition:string value:string",
            "t",
            "partition attribute unsupported type string. partition must be a(n) int",
        ),
        (
            "headers:string value:string",
            "t",
            "headers attribute unsupported type string. headers must be a(n) array<struct<key:string,value:binary>>"
            " or map<string,binary>",
        ),
    ],
)
def test_a_wrong_schema_is_refused_with_the_message_of_sparks_connector(
    columns: str, topic: str | None, says: str
) -> None:
    with pytest.raises(WrongSchema) as refused:
        check_schema(schema(columns), topic)
    assert str(refused.value) == says


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("at:int value:string", "at attribute unsupported type int. at must be a(n) timestamp"),
        (
            "timestamp:timestamp value:string",
            "Option 'timestamp.column' names the column 'at', and there is none of that name: the columns are"
            " timestamp, value",
        ),
    ],
)
def test_the_timestamp_column_must_exist_and_be_a_timestamp(columns: str, says: str) -> None:
    with pytest.raises(WrongSchema) as refused:
        check_schema(schema(columns), "t", "at")
    assert str(refused.value) == says


def test_a_timestamp_column_is_used_only_with_the_option() -> None:
    batch = pa.record_batch({"value": ["x"], "timestamp": pa.array([1_000_000], pa.timestamp("us", "UTC"))})

    check_schema(schema("timestamp:int value:string"), "t")

    assert record_columns(batch, "t", now_ms=77).times[0] == 77
    assert record_columns(batch, "t", 77, "Timestamp").times[0] == 1000


def test_a_whole_schema_passes_in_any_case_and_order() -> None:
    check_schema(
        schema("Timestamp:timestamp HEADERS:headers partition:int Topic:string Value:binary KEY:binary x:int"),
        None,
        "timestamp",
    )
    check_schema(schema("topic:int value:string"), "the option counts")


def test_slices_nulls_and_topics_are_read_where_they_are() -> None:
    whole = pa.record_batch(
        {
            "topic": ["a", "b", "a", "c"],
            "key": pa.array([b"k0", None, b"k2", b"k3"]),
            "value": pa.array(["v0", "v1", None, "v3"]),
            "partition": pa.array([1, None, 0, 2], pa.int32()),
            "timestamp": pa.array([1_000_000, 2_000_000, None, 4_000_999], pa.timestamp("us", "UTC")),
        }
    )

    found = record_columns(whole.slice(1, 3), None, now_ms=77, timestamp_column="timestamp")

    assert found.rows == 3
    assert [found.topics[index] for index in found.topic_of[:3]] == ["b", "a", "c"]
    assert found.partitions.tolist() == [-1, 0, 2]
    assert list(found.times) == [2000, 77, 4000]


def headers_of(column: Any) -> list[list[tuple[str, bytes | None]]]:
    """The headers of the records of rows with this column."""
    found = record_columns(pa.record_batch({"value": ["v"] * len(column), "headers": column}), "t", now_ms=1)
    records = RecordsOfPartition()
    add_rows([records], array("i", [0]) * len(column), found.times, None, found.values, found.headers, 0, 1 << 20)
    count, size = records.count, records.size
    header = BatchHeader(0, HEADER_BYTES - 12 + size, -1, MAGIC, 0, 0, count - 1, 1, 1, -1, -1, -1, count)
    return [list(each.headers) for each in decode_records(HEADER.pack(*header) + records.take())]


def test_headers_may_be_an_array_or_a_map() -> None:
    pairs = [[("a", b"1"), ("b", None)], [], None, [("c", b"3")]]
    as_array = pa.array(
        [None if row is None else [{"key": name, "value": value} for name, value in row] for row in pairs],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    as_map = pa.array(pairs, pa.map_(pa.string(), pa.binary()))
    expected = [[("a", b"1"), ("b", None)], [], [], [("c", b"3")]]
    assert headers_of(as_array) == headers_of(as_map) == expected
    assert headers_of(as_array.slice(1)) == headers_of(as_map.slice(1)) == expected[1:]


ORDER = StructType.fromJson(
    {
        "fields": [
            {
                "name": "value",
                "type": parse_ddl("id bigint, at timestamp").jsonValue(),
                "nullable": True,
                "metadata": {},
            }
        ]
    }
)
JSON = {"value": ValueFormat(name="json")}


def test_a_struct_is_a_value_if_it_has_a_format() -> None:
    check_schema(ORDER, "t", formats=JSON)
    with pytest.raises(WrongSchema, match=r"the option 'value.format' json or avro encodes a struct"):
        check_schema(ORDER, "t")
    with pytest.raises(WrongSchema, match=r"'value.format' json takes a struct"):
        check_schema(schema("value:string"), "t", formats=JSON)
    with pytest.raises(WrongSchema, match="no attribute 'key'"):
        check_schema(ORDER, "t", formats={**JSON, "key": ValueFormat(name="json")})


def test_a_struct_becomes_bytes_before_it_becomes_a_record() -> None:
    values = pa.array([{"id": 1, "at": None}, None], pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
    [batch] = encoded_batches([pa.record_batch({"value": values})], ORDER, JSON)
    assert batch.column(0).to_pylist() == [b'{"id":1}', None]


def test_a_row_that_cannot_be_encoded_is_refused() -> None:
    moments = pa.array([1 << 62], pa.int64()).cast(pa.timestamp("us", "UTC"))
    values = pa.StructArray.from_arrays([pa.array([1], pa.int64()), moments], names=["id", "at"])
    with pytest.raises(WrongRow, match="years 1 to 9999"):
        list(encoded_batches([pa.record_batch({"value": values})], ORDER, JSON))


def test_a_row_without_a_topic_is_refused() -> None:
    batch = pa.record_batch({"topic": ["a", None], "value": ["x", "y"]})

    with pytest.raises(WrongRow, match="null topic"):
        record_columns(batch, None, now_ms=1)


def test_a_partition_below_zero_is_refused() -> None:
    batch = pa.record_batch({"value": ["x"], "partition": pa.array([-3], pa.int32())})

    with pytest.raises(WrongRow, match="below zero"):
        record_columns(batch, "t", now_ms=1)
