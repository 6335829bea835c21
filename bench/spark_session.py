"""A Spark session as a program: it runs the queries that it reads, a line of JSON each, and prints their figures.

The Python that starts it decides which pyspark_penstock is measured, so the program imports nothing of the benchmark
and nothing of penstock but its session. Its first argument is the configuration of the session, as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CORES = 2
SECONDS_MAX = 600
LATENCY_RECORDS = 40
LATENCY_RECORDS_WARM = 10
PREFIX = "penstock-bench-"

Figures = dict[str, float]
Options = dict[str, str]


class QueryFailed(Exception):
    """A query had an unexpected result."""


def read(spark: SparkSession, source: str, options: Options) -> Figures:
    """Read all values of a topic, with only the sum of their lengths computed."""
    began = time.perf_counter()
    row: Any = _table(spark, source, options).selectExpr("count(1) as n", "sum(length(value)) as bytes").collect()[0]
    return {"messages": row.n, "bytes": row.bytes, "seconds": time.perf_counter() - began}


def parse(spark: SparkSession, source: str, options: Options, value: str | None, used: list[str]) -> Figures:
    """An aggregate over columns; ``value`` is the expression that makes them, if the source does not."""
    table = _table(spark, source, options)
    if value is not None:
        table = table.selectExpr(f"{value} as value")
    began = time.perf_counter()
    row: Any = table.selectExpr(*used).collect()[0]
    return {"messages": row[0], "seconds": time.perf_counter() - began}


def drain(spark: SparkSession, source: str, options: Options) -> Figures:
    """Read the whole topic as micro-batches, into a sink that discards the rows.

    The time is that of the triggers: a query that goes on starts once.
    """
    folder = tempfile.mkdtemp(prefix=PREFIX)
    try:
        stream = spark.readStream.format(source).options(**options).load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        messages = _rows_of(query)
        spent_ms = sum(progress["durationMs"]["triggerExecution"] for progress in query.recentProgress)
        return {"messages": messages, "seconds": spent_ms / 1000}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_each(spark: SparkSession, source: str, options: Options, bootstrap: str, topic: str) -> Figures:
    """From the acknowledgement of a record until a micro-batch has delivered it, one record after the other."""
    from confluent_kafka import Producer

    folder = tempfile.mkdtemp(prefix=PREFIX)
    arrived = threading.Event()

    def take(batch: DataFrame, _: int) -> None:
        if batch.count():
            arrived.set()

    stream = spark.readStream.format(source).options(**options).load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", folder)
    query = writer.trigger(processingTime="0 seconds").start()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    waits: list[float] = []
    try:
        query.processAllAvailable()
        for number in range(LATENCY_RECORDS_WARM + LATENCY_RECORDS):
            arrived.clear()
            producer.produce(topic, b"x" * 100)
            producer.flush()
            began = time.perf_counter()
            if not arrived.wait(SECONDS_MAX):
                raise QueryFailed("a record did not arrive")
            if number >= LATENCY_RECORDS_WARM:
                waits.append((time.perf_counter() - began) * 1000)
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "messages": LATENCY_RECORDS_WARM + LATENCY_RECORDS,
        "ms_p50": statistics.median(waits),
        "ms_p99": statistics.quantiles(waits, n=100)[98],
    }


def make_table(spark: SparkSession, folder: str, count: int, files: int, value_bytes: int) -> Figures:
    """Parquet files of values."""
    rows = spark.range(0, count, 1, files)
    rows.selectExpr(f"encode(lpad(cast(id as string), {value_bytes}, 'x'), 'utf-8') as value").write.parquet(folder)
    return {}


def write_stream(spark: SparkSession, sink: str, options: Options, table: str) -> Figures:
    """A table of values as a stream of a few micro-batches; one run of the query, from its start to its end."""
    checkpoint = tempfile.mkdtemp(prefix=PREFIX)
    try:
        stream = spark.readStream.schema("value binary").option("maxFilesPerTrigger", CORES).parquet(table)
        writer = stream.writeStream.format(sink).options(**options).option("checkpointLocation", checkpoint)
        began = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        messages = _rows_of(query)
        return {"messages": messages, "seconds": time.perf_counter() - began}
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def write_batch(spark: SparkSession, sink: str, options: Options, rows: int, tasks: int) -> Figures:
    table = spark.range(0, rows, 1, tasks).selectExpr("cast(id as string) as key", "concat('v', id) as value")
    began = time.perf_counter()
    table.write.format(sink).options(**options).mode("append").save()
    return {"messages": rows, "seconds": time.perf_counter() - began}


def _table(spark: SparkSession, source: str, options: Options) -> DataFrame:
    return spark.read.format(source).options(**options).load()


def _rows_of(query: StreamingQuery) -> int:
    """The rows that a query has read, once it has ended by itself."""
    if not query.awaitTermination(SECONDS_MAX):
        raise QueryFailed(f"a stream did not end within {SECONDS_MAX} s")
    return sum(progress["numInputRows"] for progress in query.recentProgress)


QUERIES: dict[str, Callable[..., Figures]] = {
    query.__name__: query for query in (read, parse, drain, wait_for_each, make_table, write_stream, write_batch)
}


def serve(spark: SparkSession, lines: Iterable[str], respond: Callable[[dict[str, Any]], None]) -> None:
    for line in lines:
        asked = json.loads(line)
        try:
            respond({"figures": QUERIES[asked["query"]](spark, **asked["arguments"])})
        except Exception as error:
            traceback.print_exc()
            respond({"error": f"{type(error).__name__}: {error}"})


def main(conf: dict[str, str]) -> None:
    # Spark's Java writes to the standard output as well, so the figures have a descriptor of their own.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def respond(response: dict[str, Any]) -> None:
        print(json.dumps(response), file=output, flush=True)

    import pyspark_penstock
    from pyspark_penstock.session import local_session

    spark = local_session("penstock-bench", cores=CORES, conf=conf)
    respond({"source": pyspark_penstock.__file__})
    try:
        serve(spark, sys.stdin, respond)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
