"""Spark reads JSON into columns: typed values of our source beside `from_json`, in sessions of two cores.

`from_json` runs over the binary values of our own source, and over those of Spark's Kafka connector on Apache Kafka.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from bench.comparison import counted
from bench.page_cache import settle
from bench.samples import KAFKA, Sample
from bench.sides import Contender, Side, started_sides, turns
from bench.spark_process import FORMATS, SparkProcess, sessions, spark_costed
from bench.spark_source import PARTITIONS, WARM_ROUNDS
from bench.works import Sizes

TYPED = "spark-json"
BY_FROM_JSON = "spark-json-from"
PARTS = (TYPED, BY_FROM_JSON)
TOPIC = "spark-json"
RECORDS_MAX = 500_000
RECORD_BYTES = 270
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
"""Uses every field: Spark's `from_json` parses only those that a query uses."""

FROM_JSON = f"from_json(cast(value as string), '{SCHEMA}')"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How JSON becomes columns, and the name of the work."""

    work: str
    side: Side
    spark: SparkProcess
    options: dict[str, str]
    value: str | None = None

    def run(self) -> dict[str, float]:
        arguments = {"source": FORMATS[self.side.name], "options": self.options, "value": self.value, "used": USED}
        return spark_costed(self.side, self.spark, "parse", RECORD_BYTES, **arguments)


def measure_spark_values(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    if not parts & set(PARTS):
        return
    count = min(sizes.messages_1kb, RECORDS_MAX)
    with sessions(contenders) as sparks, started_sides(contenders, data) as sides:
        for side in sides:
            _fill(side, count)
        ways = [way for side in sides for way in _ways(side, sparks[side.name])]
        # The sides of one work follow each other.
        ways.sort(key=lambda way: PARTS.index(way.work))
        for number, way in turns(ways, sizes.rounds, WARM_ROUNDS):
            values = way.run()
            assert values["messages"] == count, f"{values['messages']} of {count} values were parsed"
            yield from counted(Sample(work=way.work, side=way.side.name, round=number, values=values), say)


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
    """About 270 bytes: eight fields of the schema, and one that is not in it."""
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


def _ways(side: Side, spark: SparkProcess) -> list[Way]:
    options = {"kafka.bootstrap.servers": side.bootstrap, "subscribe": TOPIC}
    if side.name == KAFKA:
        return [Way(work=TYPED, side=side, spark=spark, options=options, value=FROM_JSON)]
    binary = {**options, "columns": "value"}
    typed = {**binary, "value.format": "json", "value.schema": SCHEMA}
    return [
        Way(work=TYPED, side=side, spark=spark, options=typed),
        Way(work=BY_FROM_JSON, side=side, spark=spark, options=binary, value=FROM_JSON),
    ]
