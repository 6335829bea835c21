"""Typed values: a value that fits its schema is parsed whole, any other has a reason."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import types as spark

from pyspark_penstock.column_options import ValueFormat
from pyspark_penstock.untyped import pyarrow
from pyspark_penstock.values import value_parser
from pyspark_penstock.values.avro_schema import AvroSchema
from pyspark_penstock.values.ddl import parse_ddl
from pyspark_penstock.values.misfit import Misfit, reason_of
from pyspark_penstock.values.parsers import Rows

ORDER = (
    "id bigint, name string, price decimal(6,2), at timestamp, day date, tags array<string>, "
    "place struct<x: double, ok: boolean>, counts map<string, int>, raw binary"
)
LOCAL = datetime.datetime(2026, 11, 16, 10, 0, 0, 500_000)  # noqa: DTZ001
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


def test_missing_fields_are_null_and_a_string_column_takes_any_json() -> None:
    rows, reasons = parse([b"{}", b'{"name": {"a": 1.5}}'], "json", "id bigint, name string")
    assert reasons == [None, None]
    assert rows == [{"id": None, "name": None}, {"id": None, "name": '{"a": 1.5}'}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "no JSON: Input data was truncated"),
        (b"null", "a JSON object was expected, not null"),
        (b"[1]", "a JSON object was expected, not an array"),
        (b"{} {}", "no JSON: trailing characters"),
        (b'{"id": "1"}', "id is a string"),
        (b'{"id": true}', "id is a boolean"),
        (b'{"id": 1.5}', "id is a number"),
        (b'{"id": 9223372036854775808}', "id does not fit 64 bits"),
        (b'{"id": NaN}', "no JSON: invalid character"),
        (b'{"price": 123456.78}', "price does not fit decimal(6,2)"),
        (b'{"price": "much"}', "price is not a number of decimal(6,2)"),
        (b'{"at": "noon"}', "at does not parse"),
        (b'{"day": "2026-13-01"}', "day does not parse"),
        (b'{"tags": [[1], {"a"]}', "no JSON: "),
        (b'{"place": {"x": "1"}}', "place.x is a string"),
        (b'{"raw": "%"}', "raw is not base64"),
        (b"\xff\xfe", "no UTF-8: invalid start byte at byte 0"),
    ],
)
def test_json_that_does_not_fit_is_null_with_a_reason(value: bytes, reason: str) -> None:
    rows, reasons = parse([b'{"id": 1}', value], "json", ORDER)
    assert rows[0] is not None
    assert reasons[0] is None
    assert rows[1] is None
    assert reason in (reasons[1] or "")


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ("a string", "12345678901234567890.123456789", "12345678901234567890.123456789"),
        ("a string", "1.10", "1.10"),
        ("a string", '{"x" : 1.10}', '{"x" : 1.10}'),
        ("a string", "true", "true"),
        ("a string", r'"\ud800"', "\ufffd"),
        ("a string", r'"\ud83d\ude00"', "\U0001f600"),
        (
            "a decimal(38,2)",
            "999999999999999999999999999999999999.99",
            Decimal("999999999999999999999999999999999999.99"),
        ),
        ("a decimal(6,2)", "1.005", Decimal("1.01")),
        ("a decimal(6,2)", '"12.5"', Decimal("12.50")),
        ("a float", "3.4028235e38", 3.4028234663852886e38),
        ("a double", '"NaN"', None),
        ("a double", '"-Infinity"', float("-inf")),
        ("a timestamp", '"2026-11-16"', datetime.datetime(2026, 11, 16, tzinfo=datetime.UTC)),
        ("a timestamp", '"2026-11-16 10:00:00"', datetime.datetime(2026, 11, 16, 10, tzinfo=datetime.UTC)),
        ("a timestamp", '"2026-11-16T10:00:00+01:00"', datetime.datetime(2026, 11, 16, 9, tzinfo=datetime.UTC)),
        ("a timestamp", "1794823200", datetime.datetime(2026, 11, 16, 10, tzinfo=datetime.UTC)),
        ("a timestamp_ntz", '"2026-11-16T10:00:00.5"', LOCAL),
        ("a date", '"2026-1-6"', datetime.date(2026, 1, 6)),
        ("a varchar(3)", '"ab    "', "ab "),
        ("a char(3)", '"ab"', "ab"),
        ("a int DEFAULT 7", "null", None),
    ],
)
def test_json_is_read_as_spark_reads_it(schema: str, text: str, value: Any) -> None:
    [row], [reason] = parse([f'{{"a": {text}}}'.encode()], "json", schema)
    assert reason is None
    found = row["a"]
    assert found == value or (found != found and text == '"NaN"')


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        ("a int", "1.0", "a is a number with a fraction or an exponent"),
        ("a int", '"1"', "a is a string"),
        ("a boolean", '"true"', "a is a string"),
        ("a double", "1e400", "a does not fit double"),
        ("a float", "1e39", "a does not fit float"),
        ("a decimal(12,2)", "1e999999", "a does not fit decimal(12,2)"),
        ("a decimal(12,2)", '"sNaN"', "a is not a number of decimal(12,2)"),
        ("a timestamp", "1794823200000", "a is not within the years 1 to 9999: a number is seconds since 1970"),
        ("a timestamp", '"0001-01-01T00:00:00+23:59"', "a is not within the years 1 to 9999"),
        ("a timestamp", '"2026-W47-1"', "a does not parse as a timestamp"),
        ("a timestamp_ntz", '"2026-11-16T10:00:00Z"', "a names a time zone, which a timestamp_ntz does not have"),
        ("a date", '"20261116"', "a does not parse as a date"),
        ("a varchar(3)", '"abcd"', "a is longer than varchar(3)"),
        ("a int NOT NULL", "null", "a is null or missing, and its schema says NOT NULL"),
        ("a struct<b: array<int>>", '{"b": [1, "2"]}', "a.b[] is a string"),
        ("a map<string, int>", '{"k": 1.5}', "a{} is a number with a fraction or an exponent"),
    ],
)
def test_a_value_that_does_not_fit_has_a_reason_that_names_the_field(schema: str, text: str, reason: str) -> None:
    assert parse([f'{{"a": {text}}}'.encode()], "json", schema) == ([None], [reason])


def test_names_are_of_the_case_of_the_schema_and_may_hold_anything() -> None:
    assert parse([b'{"a": 1}'], "json", "A int") == ([{"A": None}], [None])
    schema = spark.StructType(
        [spark.StructField('a"b\\', spark.IntegerType()), spark.StructField("é .`", spark.LongType())]
    )
    value = json.dumps({'a"b\\': 1, "é .`": 2}, ensure_ascii=False).encode()
    assert parse([value], "json", schema.json()) == ([{'a"b\\': 1, "é .`": 2}], [None])


def test_a_missing_field_has_its_default() -> None:
    schema = (
        "a int DEFAULT -7, b string DEFAULT 'x' NOT NULL, c date DEFAULT DATE '2026-01-02', "
        "d string DEFAULT 1.50, e boolean DEFAULT TRUE, f decimal(4,2) DEFAULT .5, g int DEFAULT NULL"
    )
    [row, other], reasons = parse([b"{}", b'{"b": null}'], "json", schema)
    assert row == {
        "a": -7,
        "b": "x",
        "c": datetime.date(2026, 1, 2),
        "d": "1.50",
        "e": True,
        "f": Decimal("0.50"),
        "g": None,
    }
    assert (other, reasons) == (None, [None, "b is null or missing, and its schema says NOT NULL"])


@pytest.mark.parametrize("schema", ["a int DEFAULT 'x'", "a tinyint DEFAULT 300", "a struct<b: date DEFAULT 'noon'>"])
def test_a_default_that_does_not_fit_its_column_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match="DEFAULT of"):
        value_parser(ValueFormat(name="json", schema=schema))


def test_a_row_that_does_not_fit_does_not_affect_other_rows() -> None:
    good = [json.dumps({"at": f"2026-01-01T00:00:{number % 60:02}Z", "n": number}).encode() for number in range(1_000)]
    values = list(good)
    values[3], values[500], values[501], values[999] = (
        b"{",
        b'{"at": "noon", "n": 1}',
        b'{"at": 5, "n": "x"}',
        b'{"n": 1e9}',
    )
    rows, reasons = parse(list(values), "json", "at timestamp, n int")
    assert [row for row, reason in enumerate(reasons) if reason is not None] == [3, 500, 501, 999]
    assert [row["n"] for row in rows if row is not None] == [n for n in range(1_000) if n not in (3, 500, 501, 999)]


def test_a_column_that_fails_for_no_known_reason_is_built_again_in_halves() -> None:
    def build(values: list[Any]) -> Any:
        if 7 in values:
            raise MemoryError("a seven")
        return pyarrow.array(values, pyarrow.int32())

    rows = Rows(pyarrow.array([b"%d" % number for number in range(20)]), pyarrow.int32())
    rows.build_all(int, build)
    parsed, reasons = rows.finished()
    assert parsed.to_pylist() == [None if number == 7 else number for number in range(20)]
    assert [each for each in reasons.to_pylist() if each] == ["MemoryError: a seven"]


def test_a_reason_is_short_and_can_be_encoded() -> None:
    assert reason_of(Misfit("\ud800" + "x" * 1_000)) == "\\ud800" + "x" * 299


def record(kind: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]})


@pytest.mark.parametrize(
    ("kind", "raw", "reason"),
    [
        ("int", b"\x80\x80\x80\x80\x80\x40", "a: ArrowInvalid"),
        ("string", b"\x04\xff\xff", "not valid Avro: UnicodeDecodeError"),
        ("string", b"\x03abcdef", "not valid Avro: EOFError"),
        ({"type": "int", "logicalType": "date"}, b"\x80\x84\xaf\x5f", "a: a date is not within the years 1 to 9999"),
        ({"type": "enum", "name": "e", "symbols": ["X", "Y"]}, b"\x01", "has none of the number -1"),
        ({"type": "enum", "name": "e", "symbols": ["X", "Y"]}, b"\x04", "has none of the number 2"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            b"\x10" + (10**15).to_bytes(8, "big"),
            "does not fit in precision",
        ),
        ({"type": "array", "items": "int"}, b"\x80\xa8\xd6\xb9\x07\x02", "not valid Avro: EOFError"),
        ({"type": "map", "values": "int"}, b"\x02\x02k\x80\x80\x80\x80\x80\x40\x00", "a{}: ArrowInvalid"),
    ],
)
def test_avro_that_does_not_fit_is_null_with_a_reason(kind: Any, raw: bytes, reason: str) -> None:
    rows, reasons = parse([raw, raw], "avro", record(kind))
    assert rows == [None, None]
    assert reason in (reasons[1] or "")


def test_a_decimal_of_a_million_bytes_is_refused_without_converting_it() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    raw = b"\x80\x89\x7a" + b"\x7f" * 1_000_000
    assert parse([raw], "avro", record(kind)) == ([None], ["a: a decimal has more than 38 digits"])


def test_json_that_is_deep_or_long_is_refused_without_converting_it() -> None:
    deep, long = b'{"tags": ' + b"[" * 100_000, b'{"id": ' + b"9" * 1_000_000 + b"}"
    rows, [first, second] = parse([deep, long], "json", ORDER)
    assert rows == [None, None]
    assert "RecursionError" in (first or "")
    assert second == "id does not fit 64 bits"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ({"type": "array", "items": "null"}, "of type null"),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}, "fixed of no bytes"),
        ({"type": "array", "items": {"type": "record", "name": "q", "fields": []}}, "has no fields"),
    ],
)
def test_an_array_whose_elements_take_no_bytes_is_refused(kind: Any, words: str) -> None:
    """A few bytes could declare a billion of them."""
    with pytest.raises(ValueError, match=words):
        AvroSchema.of(record(kind))


def test_strings_are_utf_8_or_have_a_reason() -> None:
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
    assert "not valid Avro" in (reasons[1] or "")
    assert reasons[2] == "1 bytes follow the Avro record"
    assert reasons[3] is None


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "is not an Avro schema"),
        ('"string"', "is not an Avro record"),
        ('{"type": "record", "name": "r", "fields": []}', "has no fields"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "null"}]}', "a is of type null"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "string"]}]}', "a is a union"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}', "or recursive"),
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


def test_columns_may_have_the_clauses_of_create_table() -> None:
    schema = parse_ddl(
        "id BIGINT NOT NULL COMMENT 'it''s', -- a comment\n `a``b` varchar(5), "
        "c CHAR(2) DEFAULT 'x' COMMENT \"c\" NOT NULL, at timestamp_ntz /* local */, "
        "s STRUCT<x: int NOT NULL COMMENT 'x', y: timestamp_ltz>, d dec"
    )
    assert schema == spark.StructType(
        [
            spark.StructField("id", spark.LongType(), False, {"comment": "it's"}),
            spark.StructField("a`b", spark.VarcharType(5)),
            spark.StructField("c", spark.CharType(2), False, {"CURRENT_DEFAULT": "'x'", "comment": "c"}),
            spark.StructField("at", spark.TimestampNTZType()),
            spark.StructField(
                "s",
                spark.StructType(
                    [
                        spark.StructField("x", spark.IntegerType(), False, {"comment": "x"}),
                        spark.StructField("y", spark.TimestampType()),
                    ]
                ),
            ),
            spark.StructField("d", spark.DecimalType(10, 0)),
        ]
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a int GENERATED ALWAYS AS (b + 1)", "GENERATED"),
        ("a date DEFAULT current_date()", "is not a literal"),
        ("a int DEFAULT 1 + 2", "is not a literal"),
        ("a interval day to second", "intervals"),
        ("a variant", "parse_json"),
        ("a varchar", "needs a length"),
        ("a char(0)", "is too short"),
        ("a string COLLATE UTF8_LCASE", "COLLATE"),
        ("a int PRIMARY KEY", "constraint"),
        ("a int NOT NULL NOT NULL", "not expected"),
        ("a int COMMENT b", "not expected"),
        ("a int, a string", "two fields of one name"),
        ("a struct<>", "has no fields"),
        ("a map<int, int>", "must be strings"),
    ],
)
def test_columns_that_values_cannot_have_are_refused_with_a_reason(text: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        value_parser(ValueFormat(name="json", schema=text))
    assert words in str(refused.value)


def test_a_schema_may_be_sparks_json_too() -> None:
    schema = parse_ddl("id bigint, tags array<string>")
    assert value_parser(ValueFormat(name="json", schema=schema.json())).spark_type == schema
