"""Typed keys and values in a real Spark: schemas, meaning and round trips compared with Spark's own."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql.functions import from_json, to_json
from pyspark.sql.types import StructType

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.column_options import ValueFormat
from pyspark_penstock.untyped import pyarrow
from pyspark_penstock.values import value_parser
from pyspark_penstock.values.avro_schema import avro_schema
from pyspark_penstock.values.ddl import parse_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "a int",
    "a INT NOT NULL, b String",
    "a: int, b: struct<c: string>",
    "struct<a:int,b:array<map<string,decimal(10,2)>>>",
    "`a``b` bigint COMMENT 'it\\'s', `c d` double comment \"x\"",
    "a tinyint, b byte, c smallint, d short, e integer, f long, g real, h float",
    "a decimal, b dec(5), c numeric(7, 3)",
    "a struct<x: int NOT NULL COMMENT 'in', `y z`: array<struct<q: date>>> NOT NULL COMMENT 'out'",
    "a timestamp, b timestamp_ntz, c timestamp_ltz, d date, e binary, f boolean",
    "a char(3), b varchar(4)",
    "/* c */ a int -- end\n, 1b string",
    "select int, from string, comment string",
)
NO_COLUMNS = (
    "a",
    "a int,",
    "a int b",
    "1 int",
    "a decimal(99)",
    "a varchar",
    "a array<int",
    "a-b int",
    "a int NOT NULL NOT",
)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("text", COLUMNS)
def test_columns_are_parsed_as_spark_parses_them(text: str) -> None:
    assert parse_ddl(text).jsonValue() == StructType.fromDDL(text).jsonValue()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("text", NO_COLUMNS)
def test_columns_that_spark_refuses_are_refused(text: str) -> None:
    with pytest.raises(PySparkException):
        StructType.fromDDL(text)
    with pytest.raises(ValueError):
        parse_ddl(text)


@pytest.fixture
def topic(broker: PenstockProcess) -> str:
    name = f"typed-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def read(spark: SparkSession, broker: PenstockProcess, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    return spark.read.format("penstock").options(**given).load()


SAME: dict[str, list[str]] = {
    "string": ['"x"', "1", "true", "null", '{"x":[1,2]}', '"\\u00fc\\ud83d\\ude00"'],
    "int": ["1", "-2147483648", "2147483648", "1.0", '"1"', "true", "null"],
    "double": ["1", "1.5e3", '"NaN"', '"-Infinity"', '"1"', "true"],
    "float": ["0.1", "3.4028235e38"],
    "decimal(6,2)": ["1.005", "1.015", '"12.5"', "123456", "1e3", "-0.005"],
    "boolean": ["true", "false", "1", '"true"'],
    "timestamp": [
        '"2026-11-16"',
        '"2026-11-16 10:00:00"',
        '"2026-11-16T10:00:00.123456789Z"',
        '"2026-11-16T10:00:00+01:00"',
        '"2026-1-6 1:02:03"',
        '"2026-11"',
        '"2026"',
        '"noon"',
        "1794823200",
    ],
    "timestamp_ntz": ['"2026-11-16T10:00:00.5"', '"2026-11-16"'],
    "date": ['"2026-11-16"', '"2026-1-6"', '"2026-11-16T10:00:00"', '"2026-02-30"'],
    "binary": ['"aGk="'],
    "array<int>": ["[1, null]", "[]", '["1"]', "{}"],
    "map<string, int>": ['{"k": 1, "l": null}', "{}", "[]"],
    "struct<x: int>": ['{"x": 1, "y": 2}', "{}", "[]"],
}


def test_json_has_the_results_of_from_json(spark: SparkSession) -> None:
    """Field by field, in UTC: a value has one field, and `from_json` leaves null what we refuse."""
    columns = {kind: f"f{index}" for index, kind in enumerate(SAME)}
    schema = ", ".join(f"{name} {kind}" for kind, name in columns.items())
    cases = [(kind, text) for kind, texts in SAME.items() for text in texts]
    values = [f'{{"{columns[kind]}": {text}}}' for kind, text in cases]
    parser = value_parser(ValueFormat(name="json", schema=schema))
    parsed, _ = parser.parse(pyarrow.array([value.encode() for value in values], pyarrow.binary()))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        frame = spark.createDataFrame(list(enumerate(values)), "n int, text string")
        theirs = frame.select("n", from_json("text", schema).alias("v")).orderBy("n").toArrow().column("v").to_pylist()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    different = [
        (kind, text, ours and ours[columns[kind]], other[columns[kind]])
        for (kind, text), ours, other in zip(cases, parsed.to_pylist(), theirs, strict=True)
        if repr(ours and ours[columns[kind]]) != repr(other[columns[kind]])
    ]
    assert not different, "\n".join(map(str, different))


ROWS = """
    select struct(id, cast(id * 1.25 as decimal(12,2)) as amount, concat('n"', id) as name,
                  timestamp_micros(1700000000123456 + id) as at, date_add(date '2026-01-01', cast(id as int)) as day,
                  array(id, null) as ids, map('k', cast(id as double)) as m, encode('hi', 'utf-8') as raw,
                  named_struct('x', cast(id as float), 'ok', id % 2 = 0) as inner) as value,
           struct(id) as key,
           map('h', encode(cast(id as string), 'utf-8')) as headers
    from range(6)
"""


@pytest.mark.parametrize("name", ["json", "avro"])
def test_the_source_reads_back_the_values_that_the_sink_encodes(
    spark: SparkSession, broker: PenstockProcess, topic: str, name: str
) -> None:
    rows = spark.sql(ROWS)
    formats = {"value.format": name, "key.format": name}
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **formats}
    rows.repartition(2).write.format("penstock").options(**given).mode("append").save()

    def schema(part: str) -> str:
        kind = rows.schema[part].dataType
        assert isinstance(kind, StructType)
        return kind.json() if name == "json" else avro_schema(kind, part)

    options = {**formats, "value.schema": schema("value"), "key.schema": schema("key")}
    columns = "key,key_error,value,value_error,value_bytes,headers"
    back = read(spark, broker, topic, columns=columns, **options, **{"headers.format": "map"})
    assert back.where("key_error is not null or value_error is not null").count() == 0
    found = back.select("value", "key", "headers").orderBy("key.id").collect()
    assert found == rows.orderBy("key.id").collect()
    if name == "json":
        # But for the digits of its times, it is the text of to_json.
        ours = json.loads(bytes(back.where("key.id = 5").collect()[0].value_bytes))
        theirs = json.loads(rows.where("key.id = 5").select(to_json("value").alias("text")).collect()[0].text)
        assert {**ours, "at": ""} == {**theirs, "at": ""}
