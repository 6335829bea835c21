"""A table's columns: what is refused by its schema, and what a row says."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from pyspark_penstock.rows import WrongRow, WrongSchema, check_schema, fingerprint, record_columns


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
            "headers attribute unsupported type string. headers must be a(n) array<struct<key:string,value:binary>>",
        ),
        (
            "timestamp:int value:string",
            "t",
            "timestamp attribute unsupported type int. timestamp must be a(n) timestamp",
        ),
    ],
)
def test_a_wrong_schema_is_refused_in_the_words_of_sparks_connector(columns: str, topic: str | None, says: str) -> None:
    with pytest.raises(WrongSchema) as refused:
        check_schema(schema(columns), topic)
    assert str(refused.value) == says


def test_a_whole_schema_passes_in_any_case_and_order() -> None:
    check_schema(
        schema("Timestamp:timestamp HEADERS:headers partition:int Topic:string Value:binary KEY:binary x:int"), None
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

    found = record_columns(whole.slice(1, 3), None, now_ms=77)

    assert found.rows == 3
    assert [found.topics[index] for index in found.topic_of[:3]] == ["b", "a", "c"]
    assert found.partitions.tolist() == [-1, 0, 2]
    assert list(found.times) == [2000, 77, 4000]


def test_a_row_without_a_topic_is_refused() -> None:
    batch = pa.record_batch({"topic": ["a", None], "value": ["x", "y"]})

    with pytest.raises(WrongRow, match="null topic"):
        record_columns(batch, None, now_ms=1)


def test_a_partition_below_zero_is_refused() -> None:
    batch = pa.record_batch({"value": ["x"], "partition": pa.array([-3], pa.int32())})

    with pytest.raises(WrongRow, match="below zero"):
        record_columns(batch, "t", now_ms=1)


def test_the_same_rows_have_the_same_fingerprint_and_others_another() -> None:
    batch = pa.record_batch({"key": ["a", "b"], "value": ["x", None]})
    other = pa.record_batch({"key": ["a", "c"], "value": ["x", None]})

    assert fingerprint(batch, 5) == fingerprint(batch.slice(0), 5)
    assert fingerprint(batch, 5) != fingerprint(other, 5)
    assert fingerprint(batch, 5) != fingerprint(batch, 6)
