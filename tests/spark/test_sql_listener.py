"""Topics in SQL, and metrics of queries, in one session."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import AnalysisException

import pyspark_penstock
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import Deadline
from pyspark_penstock.spark_internals import HAS_ADMISSION_CONTROL
from spark.late_workers import run_query
from spark.topic_contents import make_topic, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENT_SECONDS_MAX = 120.0
TYPED = {"value.format": "json", "value.schema": "id bigint, customer string"}


def put(bootstrap: str, topic: str, ids: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in ids:
        producer.produce(topic, key=str(number), value=json.dumps({"id": number, "customer": f"c{number % 2}"}))
    assert producer.flush(60) == 0


def test_a_view_of_a_topic_reads_to_its_current_end_at_each_query(spark: SparkSession, broker: PenstockProcess) -> None:
    orders, other = make_topic(broker.bootstrap, name="sql-orders"), make_topic(broker.bootstrap, name="sql.other")
    put(broker.bootstrap, orders, range(5))

    views = pyspark_penstock.tables(spark, broker.bootstrap, pattern=r"sql[-.].*", formats={orders: TYPED})
    view = views[orders]
    counted = f"select customer, count(*) from {view} group by customer order by customer"  # noqa: S608
    first = spark.sql(counted).collect()
    put(broker.bootstrap, orders, range(5, 8))
    put(broker.bootstrap, other, range(1))

    assert set(views) == {orders, other}
    assert [tuple(row) for row in first] == [("c0", 3), ("c1", 2)]
    assert [tuple(row) for row in spark.sql(counted).collect()] == [("c0", 4), ("c1", 4)]
    assert spark.table(view).selectExpr("max(id)", "count(_offset)").collect()[0] == (7, 8)
    assert spark.table(views[other]).selectExpr("cast(value as string)").collect()[0][0].startswith('{"id": 0')


def test_a_table_of_the_catalog_takes_its_options_with_a_query_and_says_so(
    spark: SparkSession, broker: PenstockProcess
) -> None:
    topic = make_topic(broker.bootstrap)
    address = f"`kafka.bootstrap.servers` '{broker.bootstrap}'"
    spark.sql("CREATE TABLE written (key string, value string) USING penstock")
    spark.sql(f"CREATE TABLE read USING penstock OPTIONS ({address}, subscribe '{topic}')")
    try:
        with pytest.raises(AnalysisException, match="does not pass them"):
            spark.sql("insert into written values ('a', 'b')")
        with pytest.raises(AnalysisException, match=r"pyspark_penstock\.tables"):
            spark.sql("select * from read").collect()

        spark.sql(f"insert into written with ({address}, topic '{topic}') values ('a', 'b'), ('c', 'd')")  # noqa: S608
        select = f"select cast(value as string) from read with ({address}, subscribe '{topic}')"  # noqa: S608
        found = spark.sql(select).collect()
    finally:
        spark.sql("DROP TABLE written")
        spark.sql("DROP TABLE read")

    assert sorted(row[0] for row in found) == ["b", "d"]
    assert sorted(values(broker.bootstrap, topic)) == ["b", "d"]


def test_a_listener_shows_rows_times_offsets_and_lag_of_a_query(
    spark: SparkSession, broker: PenstockProcess, tmp_path: Path
) -> None:
    topic, copy = make_topic(broker.bootstrap, partitions=1), make_topic(broker.bootstrap, partitions=1)
    put(broker.bootstrap, topic, range(7))
    listener = pyspark_penstock.listen(spark, port=0)
    assert listener.url is not None
    try:
        source = spark.readStream.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest")
        writer = source.load().writeStream.format("penstock").option("kafka.bootstrap.servers", broker.bootstrap)
        writer = writer.option("topic", copy).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = run_query(writer.queryName("copy").trigger(availableNow=True).start)
        text = scraped_until(listener.url, "spark_query_active{", " 0.0", str(query.id))
    finally:
        listener.stop()

    labels = f'id="{query.id}",'
    assert f'spark_query_input_rows_total{{{labels}query="copy"}} 7.0' in text
    assert f'spark_query_output_rows_total{{{labels}query="copy"}} 7.0' in text
    assert f"penstock[{topic}]" in text
    assert f'partition="0",query="copy",source="0:penstock[{topic}]",topic="{topic}"}} 7.0' in text
    if HAS_ADMISSION_CONTROL:
        assert f'spark_query_lag_records{{{labels}query="copy"}} 0.0' in text


def scraped_until(url: str, *parts: Any) -> str:
    """The metrics once a line has all these parts: events arrive a moment after their cause."""
    deadline = Deadline(EVENT_SECONDS_MAX)
    while True:
        with urllib.request.urlopen(url, timeout=30) as response:
            text: str = response.read().decode()
        if any(all(part in line for part in parts) for line in text.splitlines()):
            return text
        assert not deadline.passed, text
