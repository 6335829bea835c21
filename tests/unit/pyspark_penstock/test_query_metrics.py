"""Metrics from the progress of a query, while it runs and for some time after."""

from __future__ import annotations

import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from pyspark_penstock.listener import QueryListener
from pyspark_penstock.query_metrics import (
    ENDED_SECONDS_MAX,
    PARTITIONS_MAX,
    QUERIES_MAX,
    QueryMetrics,
    readable,
    simple_name,
    topic_offsets,
)

STREAM = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow@1a58d5f7"
SINK = "org.apache.spark.sql.execution.datasources.v2.python.PythonTable@1fbf98e7"


class HandClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


def progress(query: str = "q1", run: str = "r1", **changes: Any) -> dict[str, Any]:
    return {
        "id": query,
        "runId": run,
        "name": "copy",
        "timestamp": "2026-11-17T04:11:47.942Z",
        "batchId": 3,
        "batchDuration": 1500,
        "numInputRows": 8,
        "inputRowsPerSecond": 4.0,
        "processedRowsPerSecond": 5.5,
        "durationMs": {"addBatch": 1400, "walCommit": 20},
        "eventTime": {"watermark": "2026-11-17T04:00:00.000Z"},
        "stateOperators": [{"operatorName": "dedupe", "numRowsTotal": 12, "memoryUsedBytes": 1024}],
        "sources": [
            {
                "description": STREAM,
                "startOffset": None,
                "endOffset": {"orders": {"0": 8, "1": 5}},
                "latestOffset": {"orders": {"0": 10, "1": 5}},
                "numInputRows": 8,
            }
        ],
        "sink": {"description": SINK, "numOutputRows": 7},
        **changes,
    }


class Scraped:
    def __init__(self, metrics: QueryMetrics) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(metrics)

    def __call__(self, name: str, query: str = "q1", **labels: str) -> float | None:
        name = f"spark_query_{name}"
        return self._registry.get_sample_value(name, {"query": "copy", "id": query, **labels})


def test_rows_times_offsets_and_lag_of_a_query_are_metrics() -> None:
    metrics = QueryMetrics(HandClock())
    scraped = Scraped(metrics)

    metrics.started("q1", "r1", "copy")
    metrics.progressed(progress())
    metrics.progressed(progress(batchId=4))
    metrics.progressed(progress(batchId=4, numInputRows=0, batchDuration=0))

    place = {"source": "0:penstock[orders]", "topic": "orders"}
    assert scraped("input_rows_total") == 16
    assert scraped("output_rows_total") == 21
    assert scraped("batches_total") == 2
    assert scraped("batch_seconds_total") == 3.0
    assert scraped("batch_id") == 4
    assert scraped("last_step_seconds", step="addBatch") == 1.4
    assert scraped("partition_offset", partition="0", **place) == 8
    assert scraped("partition_lag_records", partition="0", **place) == 2
    assert scraped("partition_lag_records", partition="1", **place) == 0
    assert scraped("lag_records") == 2
    assert scraped("state_rows", operator="0:dedupe") == 12
    assert scraped("watermark_timestamp_seconds") == 1794888000
    assert scraped("info", sources="penstock[orders]", sink="PythonTable") == 1
    assert scraped("active") == 1


def test_a_query_that_has_ended_is_shown_for_a_while_and_then_removed() -> None:
    clock = HandClock()
    metrics = QueryMetrics(clock)
    scraped = Scraped(metrics)
    metrics.progressed(progress())

    metrics.terminated("q1", "r1", failed=True)
    clock.seconds = ENDED_SECONDS_MAX
    assert scraped("active") == 0
    assert scraped("failed") == 1
    clock.seconds += 1

    assert scraped("active") is None


def test_a_new_run_counts_from_zero_and_outlives_the_end_of_the_one_before() -> None:
    metrics = QueryMetrics(HandClock())
    scraped = Scraped(metrics)
    metrics.progressed(progress())

    metrics.started("q1", "r2", "copy")
    metrics.terminated("q1", "r1", failed=False)

    assert scraped("input_rows_total") == 0
    assert scraped("active") == 1


def test_queries_and_partitions_are_bounded() -> None:
    clock = HandClock()
    metrics = QueryMetrics(clock)
    scraped = Scraped(metrics)
    many = {"orders": {str(number): 1 for number in range(PARTITIONS_MAX + 1)}}
    source = {"description": STREAM, "endOffset": many, "latestOffset": many}

    for number in range(QUERIES_MAX + 5):
        clock.seconds += 1
        metrics.started(f"q{number}", "r", "copy")
    metrics.progressed(progress("wide", sources=[source]))

    assert scraped("active", query="q0") is None
    assert scraped("active", query=f"q{QUERIES_MAX + 4}") == 1
    assert scraped("lag_records", query="wide") == 0
    place = {"source": "0:penstock[orders]", "topic": "orders", "partition": "0"}
    assert scraped("partition_offset", query="wide", **place) is None


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ('{"orders":{"0":8}}', {("orders", "0"): 8}),
        ({"orders": {"0": 8}}, {("orders", "0"): 8}),
        ('{"logOffset":3}', {}),
        ("17", {}),
        (17, {}),
        ("no json", {}),
        (None, {}),
        ({"a": {"x": 1}}, {}),
    ],
)
def test_offsets_of_topics_are_read_and_those_of_other_sources_are_ignored(offset: Any, expected: Any) -> None:
    assert topic_offsets(offset) == expected


def test_the_lag_of_sparks_own_connector_is_taken_from_its_metrics_where_it_reports_no_end() -> None:
    metrics = QueryMetrics(HandClock())
    source = {"description": "KafkaV2[Subscribe[orders]]", "endOffset": 5, "metrics": {"maxOffsetsBehindLatest": "9"}}

    metrics.progressed(progress(sources=[source]))

    assert Scraped(metrics)("lag_records") == 9
    assert Scraped(metrics)("info", sources="KafkaV2[Subscribe[orders]]", sink="PythonTable") == 1


def test_descriptions_are_readable() -> None:
    assert readable(STREAM, {("b", "0"): 1, ("a", "0"): 1}) == "penstock[a,b]"
    assert simple_name("org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink@4f") == "ForeachBatchSink"
    assert simple_name("FileStreamSource[file:/data]") == "FileStreamSource[file:/data]"


def test_an_event_that_cannot_be_read_does_not_reach_the_query(caplog: pytest.LogCaptureFixture) -> None:
    listener = QueryListener(clock=HandClock())

    listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(json="{}")))  # type: ignore[arg-type]

    assert "not understood" in caplog.text
    assert "spark_query_active" in listener.text()


def test_metrics_are_served_on_the_loopback_address_until_stopped() -> None:
    listener = QueryListener(clock=HandClock())
    listener.metrics.progressed(progress())
    listener.serve(0)
    assert listener.url is not None
    assert listener.url.startswith("http://127.0.0.1:")

    with urllib.request.urlopen(listener.url, timeout=30) as response:
        text = response.read().decode()
    listener.stop()

    assert 'spark_query_lag_records{id="q1",query="copy"} 2.0' in text
    assert listener.url is None
