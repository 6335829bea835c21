"""The reference pipeline of examples/pipelines on real Spark and a real broker."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.pipelines.registry import QueryProgress, advanced
from pyspark_penstock.pipelines.spec import PipelineSpec, SpecError, parse_spec, read_spec
from pyspark_penstock.pipelines.spec_run import start_pipeline
from spark.late_workers import run_queries
from spark.pipeline_processes import SECONDS_MAX, command, environment
from spark.topic_contents import committed, make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pipelines"
BEGIN = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def shop() -> Iterator[PenstockProcess]:
    """A broker of its own: the example's topics have fixed names."""
    sys.path.insert(0, str(EXAMPLES))
    with PenstockProcess() as process:
        yield process
    sys.path.remove(str(EXAMPLES))


def send(bootstrap: str, topic: str, pairs: list[tuple[bytes, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in pairs:
        producer.produce(topic, value, key)
    assert producer.flush(SECONDS_MAX) == 0


def order(number: int, at: datetime, customer: str = "ada", product: str = "apple") -> tuple[bytes, bytes]:
    fields = {"id": number, "customer": customer, "product": product, "amount": 2.5, "ordered_at": at.isoformat()}
    return customer.encode(), json.dumps(fields).encode()


def run_once(spark: SparkSession, spec: PipelineSpec, bootstrap: str, folder: Path) -> dict[str, QueryProgress]:
    checkpoint = str(folder / "checkpoint")
    found: dict[str, QueryProgress] = {}
    for query in run_queries(lambda: start_pipeline(spark, spec, bootstrap=bootstrap, checkpoint=checkpoint)):
        progress = QueryProgress(query=query.name)
        for report in query.recentProgress:
            progress = advanced(progress, report)
        found[query.name] = progress
    return found


def values_of(bootstrap: str, topic: str) -> list[dict[str, object]]:
    return [json.loads(each.value()) for each in committed(bootstrap, topic)]


def test_the_reference_pipeline_counts_joins_and_sorts_out(
    shop: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    import orders as example  # type: ignore[import-not-found]

    example.make_topics(shop.bootstrap)
    send(shop.bootstrap, "customers", list(example.customers()))
    sent = list(example.orders(200, BEGIN, timedelta(seconds=1)))
    send(shop.bootstrap, "orders", sent)
    # An hour later, so that every window before is closed.
    send(shop.bootstrap, "orders", [order(900, BEGIN + timedelta(hours=1))])
    spec = parse_spec({**raw_spec(), "pipeline": {"name": "orders", "trigger": "once"}}, folder=EXAMPLES)
    run_once(spark, spec, shop.bootstrap, tmp_path)

    good = [json.loads(value) for _, value in sent if value != b"{broken"]
    counted: dict[tuple[str, str], int] = {}
    for each in good:
        place = each["ordered_at"][:16], each["customer"]
        counted[place] = counted.get(place, 0) + 1
    minutes = {
        (str(each["minute"]), str(each["customer"])): each["orders"]
        for each in values_of(shop.bootstrap, "orders-per-minute")
    }
    assert minutes == counted
    top = values_of(shop.bootstrap, "top-products")
    assert sorted(str(each["minute"]) for each in top) == sorted({minute for minute, _ in counted})
    assert all(len(each["products"]) == 3 for each in top if each["minute"] == "2026-01-05T12:01")  # type: ignore[arg-type]
    enriched = values_of(shop.bootstrap, "orders-enriched")
    assert sorted(each["id"] for each in enriched) == sorted([*(each["id"] for each in good), 900])  # type: ignore[type-var]
    assert {(each["customer"], each["name"]) for each in enriched} == {
        ("ada", "Ada"),
        ("bob", "Bob"),
        ("cyd", "Cyd"),
        ("dee", "Dee"),
    }
    dead = committed(shop.bootstrap, "orders-dead")
    broken = [each for each in committed(shop.bootstrap, "orders") if each.value() == b"{broken"]
    assert [each.value() for each in dead] == [b"{broken"] * 2
    assert sorted(each.timestamp() for each in dead) == sorted(each.timestamp() for each in broken)
    assert {name for name, _ in dead[0].headers()} == {
        "penstock.error",
        "penstock.topic",
        "penstock.partition",
        "penstock.offset",
    }


def test_an_order_that_is_too_late_is_counted_as_late_and_a_new_name_is_seen(
    shop: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    import orders as example  # type: ignore[import-not-found]

    example.make_topics(shop.bootstrap)
    found = raw_spec()
    minutes, enriched = make_topic(shop.bootstrap), make_topic(shop.bootstrap)
    found["sources"]["orders"]["topic"] = make_topic(shop.bootstrap, 1)
    del found["sources"]["orders"]["dead_letters"]
    found["sinks"] = {
        "minutes": {"from": "per_minute", "topic": minutes},
        "enriched": {"from": "enriched", "topic": enriched},
    }
    spec = parse_spec({**found, "pipeline": {"name": "late", "trigger": "once"}}, folder=EXAMPLES)
    orders = spec.sources[0].topics[0]
    send(shop.bootstrap, "customers", [(b"ada", json.dumps({"name": "Ada", "country": "GB"}).encode())])
    send(shop.bootstrap, orders, [order(1, BEGIN), order(2, BEGIN + timedelta(hours=1))])
    run_once(spark, spec, shop.bootstrap, tmp_path)
    send(shop.bootstrap, "customers", [(b"ada", json.dumps({"name": "Countess", "country": "GB"}).encode())])
    late, in_time, closing = BEGIN, BEGIN + timedelta(hours=1, seconds=5), BEGIN + timedelta(hours=2)
    send(shop.bootstrap, orders, [order(3, late), order(4, in_time), order(5, closing)])
    progress = run_once(spark, spec, shop.bootstrap, tmp_path)
    assert progress["late.minutes"].late_rows == 1
    counts = [(each["minute"], each["orders"]) for each in values_of(shop.bootstrap, minutes)]
    assert sorted(counts) == [("2026-01-05T12:00", 1), ("2026-01-05T13:00", 2)]
    names = [(each["id"], each["name"]) for each in values_of(shop.bootstrap, enriched)]
    assert sorted(names) == [(1, "Ada"), (2, "Ada"), (3, "Countess"), (4, "Countess"), (5, "Countess")]


def raw_spec() -> dict[str, Any]:
    import tomllib

    return tomllib.loads((EXAMPLES / "orders.toml").read_text())


def test_the_example_is_a_pipeline() -> None:
    spec = read_spec(EXAMPLES / "orders.toml")
    assert [each.name for each in spec.sinks] == ["minutes", "top", "enriched_orders"]


def commands_of_the_example() -> list[list[str]]:
    """The commands in its first comment, without their descriptions."""
    lines = (EXAMPLES / "orders.toml").read_text().split("\n\n", 1)[0].splitlines()
    return [shlex.split(re.split(r"\s{3,}", line[4:])[0]) for line in lines if line.startswith("#   ")]


def run_in_terminal(arguments: list[str], shop: PenstockProcess, folder: Path) -> None:
    done = subprocess.run(
        [each.replace("examples/pipelines", str(EXAMPLES)) for each in arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
        cwd=folder,
        env={**os.environ, **environment(folder / "state", shop.bootstrap)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_examples_archive_and_its_replay_run_as_they_are_written(shop: PenstockProcess, tmp_path: Path) -> None:
    fill, run, keep, again = commands_of_the_example()
    run_in_terminal([sys.executable, *fill[1:], shop.bootstrap, "300"], shop, tmp_path)
    run_in_terminal([*command(*run[1:]), "--check"], shop, tmp_path)
    for words in (keep, again):
        run_in_terminal(command(*words[1:]), shop, tmp_path)
    good = [each for each in committed(shop.bootstrap, "orders") if each.value() != b"{broken"]
    sent_again = committed(shop.bootstrap, "orders-again")
    assert len(good) >= 297
    assert sorted(map(whole, sent_again)) == sorted(map(whole, good))
    assert any((tmp_path / "archive" / "_dead_letters").rglob("*.parquet"))


def whole(message: Any) -> tuple[bytes, bytes, int]:
    return message.key(), message.value(), message.timestamp()[1]


def test_sql_that_spark_refuses_is_named_by_its_key(shop: PenstockProcess, spark: SparkSession, tmp_path: Path) -> None:
    found = {
        "pipeline": {"name": "wrong"},
        "sources": {"orders": {"topic": "orders", "schema": "id BIGINT"}},
        "steps": {"bad": {"sql": "SELECT idd FROM orders"}},
        "sinks": {"out": {"from": "bad", "console": True}},
    }
    spec = parse_spec(found, folder=tmp_path)
    with pytest.raises(SpecError, match=r"^steps\.bad\.sql: .*`idd`"):
        start_pipeline(spark, spec, bootstrap=shop.bootstrap, checkpoint=str(tmp_path / "c"))
    assert not spark.streams.active
