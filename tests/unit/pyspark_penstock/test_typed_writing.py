"""The source reads back the values that the sink encodes."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from pyspark.sql import types as spark

from pyspark_penstock.column_options import ValueFormat
from pyspark_penstock.spark_internals import arrow_type
from pyspark_penstock.untyped import pyarrow
from pyspark_penstock.values import value_parser
from pyspark_penstock.values.avro_schema import avro_schema
from pyspark_penstock.values.ddl import parse_ddl
from pyspark_penstock.values.encoders import batch_encoder, value_encoder
from pyspark_penstock.values.misfit import Misfit

FIRST, LAST = datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
LEAVES: list[tuple[spark.DataType, some.SearchStrategy[Any]]] = [
    (spark.BooleanType(), some.booleans()),
    (spark.ByteType(), some.integers(-128, 127)),
    (spark.ShortType(), some.integers(-(1 << 15), (1 << 15) - 1)),
    (spark.IntegerType(), some.integers(-(1 << 31), (1 << 31) - 1)),
    (spark.LongType(), some.integers(-(1 << 63), (1 << 63) - 1)),
    (spark.FloatType(), some.floats(width=32)),
    (spark.DoubleType(), some.floats()),
    (spark.DecimalType(6, 2), some.decimals(-9999, 9999, places=2)),
    (spark.DecimalType(38, 30), some.decimals(-1, 1, places=30)),
    (spark.StringType(), some.text(max_size=8)),
    (spark.BinaryType(), some.binary(max_size=8)),
    (spark.DateType(), some.dates()),
    (spark.TimestampType(), some.datetimes(FIRST, LAST, timezones=some.just(datetime.UTC))),
    (spark.TimestampNTZType(), some.datetimes(FIRST, LAST)),
]
NAMES = ("a", "b", "C_1", "_d")


@some.composite
def typed(draw: some.DrawFn, depth: int = 2) -> tuple[spark.DataType, some.SearchStrategy[Any]]:
    """A type, and a strategy of its values."""
    choice = draw(some.sampled_from(["leaf", "leaf", "array", "map", "struct"])) if depth else "leaf"
    match choice:
        case "array":
            kind, values = draw(typed(depth - 1))
            return spark.ArrayType(kind), some.lists(some.none() | values, max_size=3)
        case "map":
            kind, values = draw(typed(depth - 1))
            entries = some.dictionaries(some.text(max_size=3), some.none() | values, max_size=3)
            return spark.MapType(spark.StringType(), kind), entries.map(lambda found: list(found.items()))
        case "struct":
            return draw(structs(depth - 1))
        case _:
            return draw(some.sampled_from(LEAVES))


@some.composite
def structs(draw: some.DrawFn, depth: int = 2) -> tuple[spark.StructType, some.SearchStrategy[Any]]:
    names = draw(some.lists(some.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    fields = {name: draw(typed(depth)) for name in names}
    kind = spark.StructType([spark.StructField(name, each) for name, (each, _) in fields.items()])
    return kind, some.fixed_dictionaries({name: some.none() | values for name, (_, values) in fields.items()})


@some.composite
def columns(draw: some.DrawFn) -> tuple[spark.StructType, Any]:
    kind, values = draw(structs())
    rows = draw(some.lists(some.none() | values, max_size=5))
    return kind, pyarrow.array(rows, arrow_type(kind))


def plain(value: Any) -> Any:
    """A comparable value: NaN as text, and 0.0 without its sign."""
    match value:
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case float():
            return "NaN" if math.isnan(value) else value
        case _:
            return value


def check_round_trip(name: str, kind: spark.StructType, column: Any) -> None:
    encoded = value_encoder("value", kind, ValueFormat(name=name))(column)
    assert encoded.type == pyarrow.binary()
    schema = kind.json() if name == "json" else avro_schema(kind)
    parsed, reasons = value_parser(ValueFormat(name=name, schema=schema)).parse(encoded)
    assert reasons.null_count == len(column), reasons
    assert plain(parsed.to_pylist()) == plain(column.to_pylist())


@given(columns())
@settings(max_examples=200, deadline=None)
def test_json_that_is_written_is_read_back_equal(made: tuple[spark.StructType, Any]) -> None:
    check_round_trip("json", *made)


@given(columns())
@settings(max_examples=150, deadline=None)
def test_avro_that_is_written_is_read_back_equal(made: tuple[spark.StructType, Any]) -> None:
    check_round_trip("avro", *made)


@given(columns(), some.integers(0, 4), some.integers(0, 5), some.sampled_from(["json", "avro"]))
@settings(max_examples=100, deadline=None)
def test_a_part_of_a_column_is_written_like_a_whole_one(
    made: tuple[spark.StructType, Any], begin: int, count: int, name: str
) -> None:
    kind, column = made
    check_round_trip(name, kind, column.slice(min(begin, len(column)), count))


def encoded(columns: str, rows: list[Any], name: str = "json", **options: str) -> list[Any]:
    kind = parse_ddl(columns)
    column = pyarrow.array(rows, arrow_type(kind))
    found: list[Any] = value_encoder("value", kind, ValueFormat(name=name, **options))(column).to_pylist()
    return found


def test_json_is_written_as_to_json_writes_it() -> None:
    schema = (
        "id bigint, s string, d decimal(6,2), x double, b binary, day date, at timestamp, tags array<int>, "
        "m map<string, int>"
    )
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    day = datetime.date(2026, 1, 2)
    row = {
        "id": 1,
        "s": 'a"\n\\ü',
        "d": Decimal("1.5"),
        "x": math.nan,
        "b": b"hi",
        "day": day,
        "at": at,
        "tags": [1, None],
    }
    assert encoded(schema, [{**row, "m": [("k", None)]}, {"id": None}, None]) == [
        (
            r'{"id":1,"s":"a\"\n\\ü","d":1.50,"x":"NaN","b":"aGk=","day":"2026-01-02","at":"2026-01-02T03:04:05.000006Z",'
            r'"tags":[1,null],"m":{"k":null}}'
        ).encode(),
        b"{}",
        None,
    ]


def test_an_instant_is_written_in_utc_in_any_session_time_zone() -> None:
    kind = parse_ddl("at timestamp")
    column = pyarrow.array([0], pyarrow.int64()).cast(pyarrow.timestamp("us", "Asia/Tokyo"))
    rows = pyarrow.StructArray.from_arrays([column], names=["at"])
    assert value_encoder("value", kind, ValueFormat(name="json"))(rows).to_pylist() == [
        b'{"at":"1970-01-01T00:00:00.000000Z"}'
    ]


def test_strings_that_are_no_utf_8_are_written_with_a_replacement() -> None:
    column = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, pyarrow.array([0, 2], pyarrow.int32()).buffers()[1], pyarrow.py_buffer(b"\xffx")]
    )
    rows = pyarrow.StructArray.from_arrays([column], names=["s"])
    written = value_encoder("value", parse_ddl("s string"), ValueFormat(name="json"))(rows)
    assert written.to_pylist() == ['{"s":"�x"}'.encode()]


def test_a_time_that_cannot_be_read_back_is_not_written() -> None:
    kind = parse_ddl("at timestamp")
    column = pyarrow.array([1 << 62], pyarrow.int64()).cast(pyarrow.timestamp("us", "UTC"))
    rows = pyarrow.StructArray.from_arrays([column], names=["at"])
    with pytest.raises(Misfit, match="years 1 to 9999"):
        value_encoder("value", kind, ValueFormat(name="json"))(rows)


AVRO = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {
                "name": "amount",
                "type": {"type": "fixed", "name": "f", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2},
            },
            {"name": "n", "type": "int"},
        ],
    }
)


def test_avro_is_written_with_the_schema_that_is_given() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6_789, tzinfo=datetime.UTC)
    columns = "n smallint, amount decimal(6,2), at timestamp, kind string"
    row = {"n": 7, "amount": Decimal("-1.25"), "at": at, "kind": "B"}
    written = encoded(columns, [row, None], "avro", schema=AVRO)
    parsed, _ = value_parser(ValueFormat(name="avro", schema=AVRO)).parse(pyarrow.array(written, pyarrow.binary()))
    assert parsed.to_pylist() == [{**row, "at": at.replace(microsecond=6_000)}, None]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"n": None, "amount": Decimal(1), "kind": "A"}, "TypeError"),
        ({"n": 1, "amount": Decimal(1), "kind": "C"}, "'C' is none of the enum's symbols: A, B"),
    ],
)
def test_a_row_that_avro_cannot_hold_is_refused(row: Any, words: str) -> None:
    with pytest.raises(Misfit) as refused:
        encoded("n int, amount decimal(6,2), at timestamp, kind string", [row], "avro", schema=AVRO)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "name", "schema", "words"),
    [
        ("n int", "avro", AVRO, "fields that value does not have: kind, at, amount"),
        (
            "n int, amount decimal(6,2), at timestamp, kind string, x int",
            "avro",
            AVRO,
            "value has fields that are not in the option 'value.schema': x",
        ),
        ("n bigint, amount decimal(6,2), at timestamp, kind string", "avro", AVRO, "value.n is of type bigint"),
        ("`a b` int", "avro", "", "a b is not a name in Avro"),
        ("m map<int, int>", "json", "", "must be strings"),
    ],
)
def test_a_column_that_cannot_be_encoded_is_refused_before_the_first_row(
    columns: str, name: str, schema: str, words: str
) -> None:
    with pytest.raises(ValueError) as refused:
        value_encoder("value", parse_ddl(columns), ValueFormat(name=name, schema=schema))
    assert words in str(refused.value)


def test_only_columns_with_a_format_are_encoded() -> None:
    schema = spark.StructType(
        [spark.StructField("Key", parse_ddl("a int")), spark.StructField("value", spark.StringType())]
    )
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array([{"a": 1}]), pyarrow.array(["v"])], names=["Key", "value"])
    encode = batch_encoder(schema, {"key": ValueFormat(name="json", option="key.schema")})
    assert encode(batch).to_pylist() == [{"Key": b'{"a":1}', "value": "v"}]


def test_the_schema_that_avro_is_written_with_can_be_had() -> None:
    assert json.loads(avro_schema(parse_ddl("a int NOT NULL, b struct<c: date>"))) == {
        "type": "record",
        "name": "value",
        "fields": [
            {"name": "a", "type": ["null", "int"], "default": None},
            {
                "name": "b",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "value_b",
                        "fields": [
                            {"name": "c", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None}
                        ],
                    },
                ],
                "default": None,
            },
        ],
    }
