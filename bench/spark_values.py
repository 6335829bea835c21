"""Spark reads JSON into columns: typed values of our source beside `from_json`, in one session of two cores.

`from_json` runs over the binary values of our own source, and over those of Spark's Kafka connector on Apache Kafka.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from bench.comparison import line
from bench.page_cache import settle
from bench.samples import KAFKA, PENSTOCK, Sample
from bench.sides import Contender, Side, fresh_side
from bench.spark_source import FORMATS, PARTITIONS, WARM_ROUNDS, session
from bench.works import Sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPED = "spark-json"
BY_FROM_JSON = "spark-json-from"
PARTS = (TYPED, BY_FROM_JSON)
TOPIC = "spark-json"
RECORDS_MAX = 500_000
SCHEMA = (
    "id bigint, customer string, amount decimal(12,2), ok boolean, at timestamp, score double, tags array<string>, "
    "address struct<city: string, zip: string>"
)
USED = (
    "count(value.id)",
    "max(value.customer)",
    "sum(value.amount)",
    "count_if(value.ok)",
    "max(value.at)",
    "sum(value.score)",
    "sum(size(value.tags))",
    "count(value.address.city)",
    "count(value.address.zip)",
)
"""Every field is looked at: Spark's `from_json` parses only those that a query uses."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How JSON becomes columns, and under which name that is measured."""

    work: str
    side: Side
    table: Callable[[], DataFrame]


def measure_spark_values(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    if not parts & set(PARTS):
        return
    count = min(sizes.messages_1kb, RECORDS_MAX)
    with session(any(contender.name == KAFKA for contender in contenders)) as spark, contextlib.ExitStack() as running:
        sides = [running.enter_context(fresh_side(contender, data)) for contender in contenders]
        for side in sides:
            side.start()
            _fill(side, count)
        ways = [way for side in sides for way in _ways(side, spark)]
        for number in range(-WARM_ROUNDS, sizes.rounds):
            for way in ways if number % 2 == 0 else reversed(ways):
                values = _parsed(way.table(), count)
                sample = Sample(work=way.work, side=way.side.name, round=number, values=values)
                say(line(sample))
                if number >= 0:
                    yield sample


def _fill(side: Side, count: int) -> None:
    side.create_topics([TOPIC], partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 50, "log_level": 0})
    for number in range(count):
        producer.produce(TOPIC, _order(number), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()
    settle(side.data_root)


def _order(number: int) -> bytes:
    """About 270 bytes: eight fields that are asked for, and one that is not."""
    at = datetime.datetime.fromtimestamp(1_700_000_000 + number, datetime.UTC)
    order = {
        "id": number,
        "customer": f"customer-{number % 977}",
        "amount": number % 100_000 / 100,
        "ok": number % 3 == 0,
        "at": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "score": 1 / (number + 1),
        "tags": ["new", "paid"],
        "address": {"city": "Bern", "zip": "3000"},
        "note": "x" * 60,
    }
    return json.dumps(order).encode()


def _ways(side: Side, spark: SparkSession) -> list[Way]:
    options = {"kafka.bootstrap.servers": side.bootstrap, "subscribe": TOPIC}
    typed = {**options, "value.format": "json", "value.schema": SCHEMA, "columns": "value"}

    def read(given: dict[str, str]) -> DataFrame:
        return spark.read.format(FORMATS[side.name]).options(**given).load()

    def by_from_json(given: dict[str, str]) -> DataFrame:
        return read(given).selectExpr(f"from_json(cast(value as string), '{SCHEMA}') as value")

    if side.name == PENSTOCK:
        binary = {**options, "columns": "value"}
        return [
            Way(work=TYPED, side=side, table=lambda: read(typed)),
            Way(work=BY_FROM_JSON, side=side, table=lambda: by_from_json(binary)),
        ]
    return [Way(work=TYPED, side=side, table=lambda: by_from_json(options))]


def _parsed(table: DataFrame, count: int) -> dict[str, float]:
    began = time.perf_counter()
    row: Any = table.selectExpr(*USED).collect()[0]
    seconds = time.perf_counter() - began
    assert row[0] == count, f"{row[0]} of {count} values were parsed"
    return {"messages_per_second": count / seconds}
