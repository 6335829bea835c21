"""Values with a type: what fits its schema is taken whole, what does not has a reason."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql import types as spark

from pyspark_penstock.avro_schema import AvroSchema
from pyspark_penstock.ddl import parse_ddl
from pyspark_penstock.options import ValueFormat
from pyspark_penstock.untyped import pyarrow
from pyspark_penstock.values import value_parser

ORDER = (
    "id bigint, name string, price decimal(6,2), at timestamp, day date, tags array<string>, "
    "place struct<x: double, ok: boolean>, counts map<string, int>, raw binary"
)
AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "other", "type": ["null", "Kind"]},
    ],
}


def parse(values: list[bytes | None], name: str, schema: str = "") -> tuple[list[Any], list[str | None]]:
    parser = value_parser(ValueFormat(name=name, schema=schema))
    parsed, reasons = parser.parse(pyarrow.array(values, pyarrow.binary()))
    assert len(parsed) == len(reasons) == len(values)
    return parsed.to_pylist(), reasons.to_pylist()


def test_a_json_value_becomes_a_row_of_its_schema() -> None:
    value = {
        "id": 1,
        "name": "tea",
        "price": 12.5,
        "at": "2026-01-02T03:04:05.5Z",
        "day": "2026-01-02",
        "tags": ["a", None],
        "place": {"x": 1, "ok": True, "unknown": 1},
        "counts": {"k": 3},
        "raw": "aGk=",
        "more": [1],
    }
    [row], [reason] = parse([json.dumps(value).encode()], "json", ORDER)
    assert reason is None
    assert row == {
        "id": 1,
        "name": "tea",
        "price": Decimal("12.50"),
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=datetime.UTC),
        "day": datetime.date(2026, 1, 2),
        "tags": ["a", None],
        "place": {"x": 1.0, "ok": True},
        "counts": [("k", 3)],
        "raw": b"hi",
    }


def test_fields_that_are_missing_are_null_and_a_string_takes_the_json_of_anything() -> None:
    rows, reasons = parse([b"{}", b'{"name": {"a": 1.5}}'], "json", "id bigint, name string")
    assert reasons == [None, None]
    assert rows == [{"id": None, "name": None}, {"id": None, "name": '{"a": 1.5}'}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "JSONDecodeError"),
        (b"null", "a JSON object was expected, not null"),
        (b"[1]", "a JSON object was expected, not an array"),
        (b"{} {}", "JSONDecodeError: Extra data"),
        (b'{"id": "1"}', "id is a string"),
        (b'{"id": true}', "id is a boolean"),
        (b'{"id": 1.5}', "id is a number"),
        (b'{"id": 9223372036854775808}', "id does not fit 64 bits"),
        (b'{"id": NaN}', "NaN is no JSON"),
        (b'{"price": 123456.78}', "price does not fit decimal(6,2)"),
        (b'{"price": "much"}', "price is no number of decimal(6,2)"),
        (b'{"at": "noon"}', "at does not parse"),
        (b'{"day": "2026-13-01"}', "day does not parse"),
        (b'{"tags": [[1], {"a"]}', "JSONDecodeError"),
        (b'{"place": {"x": "1"}}', "place.x is a string"),
        (b'{"raw": "%"}', "raw does not parse"),
        (b"\xff\xfe", "UnicodeDecodeError"),
        (b"[" * 100_000, "RecursionError"),
        (b'{"id": ' + b"9" * 5_000 + b"}", "Exceeds the limit"),
    ],
)
def test_json_that_does_not_fit_is_null_with_a_reason(value: bytes, reason: str) -> None:
    rows, reasons = parse([b'{"id": 1}', value], "json", ORDER)
    assert rows[0] is not None
    assert reasons[0] is None
    assert rows[1] is None
    assert reason in (reasons[1] or "")


@given(some.lists(some.binary(max_size=30), max_size=5), some.sampled_from(["json", "avro"]))
def test_no_bytes_whatever_stop_a_query(values: list[bytes], name: str) -> None:
    rows, reasons = parse(list(values), name, ORDER if name == "json" else json.dumps(AVRO_ORDER))
    assert all((row is None) != (reason is None) for row, reason in zip(rows, reasons, strict=True))


def test_strings_are_utf_8_and_what_is_not_has_a_reason() -> None:
    assert parse(["grün".encode(), None], "string") == (["grün", None], [None, None])
    rows, reasons = parse([b"ok", b"\xff"], "string")
    assert rows == ["ok", None]
    assert "UnicodeDecodeError" in (reasons[1] or "")


def test_an_avro_value_becomes_a_row_of_its_schema() -> None:
    at = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    value = {
        "id": 5,
        "name": None,
        "price": Decimal("1.25"),
        "at": at,
        "kind": "A",
        "tags": ["x"],
        "counts": {"k": 1},
        "other": "B",
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO_ORDER), value)
    raw = stream.getvalue()
    rows, reasons = parse([raw, raw[:-1], raw + b"x", None], "avro", json.dumps(AVRO_ORDER))
    assert rows == [{**value, "counts": [("k", 1)]}, None, None, None]
    assert reasons[0] is None
    assert "no such Avro" in (reasons[1] or "")
    assert reasons[2] == "1 bytes follow the Avro record"
    assert reasons[3] is None


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "is no Avro schema"),
        ('"string"', "is no Avro record"),
        ('{"type": "record", "name": "r", "fields": []}', "has no fields"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "null"}]}', "a is of type null"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "string"]}]}', "a is a union"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}', "without an end"),
    ],
)
def test_an_avro_schema_without_a_type_in_spark_is_refused(schema: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        AvroSchema.of(schema)
    assert words in str(refused.value)


def test_columns_are_parsed_as_spark_writes_them() -> None:
    schema = parse_ddl("a INT NOT NULL, `b c` array<map<string, decimal(10, 2)>>, d struct<e: bigint, f string>")
    assert schema == spark.StructType(
        [
            spark.StructField("a", spark.IntegerType(), nullable=False),
            spark.StructField("b c", spark.ArrayType(spark.MapType(spark.StringType(), spark.DecimalType(10, 2)))),
            spark.StructField(
                "d",
                spark.StructType(
                    [spark.StructField("e", spark.LongType()), spark.StructField("f", spark.StringType())]
                ),
            ),
        ]
    )


@pytest.mark.parametrize(
    "text", ["", "a", "a int,", "a int b", "a array<int", "a array<>", "a decimal(99)", "a ?", "a colour"]
)
def test_columns_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_ddl(text)
    with pytest.raises(ValueError, match=r"value.schema"):
        value_parser(ValueFormat(name="json", schema=text))


def test_a_schema_may_be_sparks_json_too() -> None:
    schema = parse_ddl("id bigint, tags array<string>")
    assert value_parser(ValueFormat(name="json", schema=schema.json())).spark_type == schema
