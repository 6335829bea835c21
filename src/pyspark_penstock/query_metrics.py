"""Prometheus metrics of streaming queries from their progress: rows, batch times, offsets and lag.

Readings come from the events of Spark's StreamingQueryListener and are kept for each query: the last progress, and
totals since the query's run started. A scrape reads them under a lock and never calls Spark.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.model.clock import Clock

ENDED_SECONDS_MAX = 600.0
"""A query that has ended is shown for this long, so that a scrape sees how it ended."""
QUERIES_MAX = 1_000
"""The most queries shown; above it the one that has been silent for longest is removed."""
PARTITIONS_MAX = 2_000
"""The most partitions of one query with metrics of their own; above it the query has only its sums."""

PREFIX = "spark_query_"
QUERY = ("query", "id")
PARTITION = (*QUERY, "source", "topic", "partition")
LAG_OF_OTHERS = "maxOffsetsBehindLatest"
"""A source metric of Spark's Kafka connector: the lag of the partition that is furthest behind."""

Offsets = dict[tuple[str, str], int]


@dataclass(slots=True, kw_only=True)
class SourceReading:
    """One source of a query as of its last progress."""

    description: str
    offsets: Offsets
    """The end of the last batch, by topic and partition."""
    lag: Offsets
    lag_records: int | None
    """Of all partitions together; None if the source does not report its latest offsets."""


@dataclass(slots=True, kw_only=True)
class QueryReading:
    """One query since its run started."""

    id: str
    run_id: str
    name: str
    seen_seconds: float
    """When its last event arrived, on the monotonic clock."""
    ended_seconds: float | None = None
    failed: bool = False
    batches: int = 0
    input_rows: int = 0
    output_rows: int = 0
    batch_seconds: float = 0.0
    last: Mapping[str, Any] | None = None
    sources: list[SourceReading] = field(default_factory=list[SourceReading])
    sink: str = ""

    @property
    def labels(self) -> list[str]:
        return [self.name, self.id]


class QueryMetrics(Collector):
    """The readings of all queries of a session. Bounded: queries that have ended are removed after a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._queries: dict[str, QueryReading] = {}

    # Events

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        with self._lock:
            self._reading(query_id, run_id, name)

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Update the readings from a progress, as parsed JSON."""
        with self._lock:
            reading = self._reading(str(progress["id"]), str(progress["runId"]), progress.get("name"))
            # A query that waits for data repeats the progress of its last batch, without rows.
            if reading.last is None or reading.last.get("batchId") != progress.get("batchId"):
                reading.batches += 1
            reading.input_rows += int(progress.get("numInputRows") or 0)
            reading.batch_seconds += float(progress.get("batchDuration") or 0) / 1000
            reading.sources = [_source(each) for each in progress.get("sources") or ()]
            sink: Mapping[str, Any] = progress.get("sink") or {}
            # Spark reports -1 for a sink that does not count rows.
            reading.output_rows += max(int(sink.get("numOutputRows") or 0), 0)
            reading.sink = simple_name(str(sink.get("description", "")))
            reading.last = progress

    def idle(self, query_id: str, run_id: str) -> None:
        """The query is alive and has no new data."""
        with self._lock:
            reading = self._queries.get(query_id)
            if reading is not None and reading.run_id == run_id:
                reading.seen_seconds = self._clock.monotonic()

    def terminated(self, query_id: str, run_id: str, *, failed: bool) -> None:
        with self._lock:
            reading = self._queries.get(query_id)
            # An event of an earlier run may come after the next one has started.
            if reading is not None and reading.run_id == run_id:
                reading.ended_seconds = self._clock.monotonic()
                reading.failed = failed

    def _reading(self, query_id: str, run_id: str, name: str | None) -> QueryReading:
        now = self._clock.monotonic()
        self._forget(now)
        found = self._queries.get(query_id)
        if found is None or found.run_id != run_id:
            found = QueryReading(id=query_id, run_id=run_id, name=name or "", seen_seconds=now)
            self._queries[query_id] = found
        found.seen_seconds = now
        return found

    def _forget(self, now: float) -> None:
        ended = [
            each.id
            for each in self._queries.values()
            if each.ended_seconds is not None and now - each.ended_seconds > ENDED_SECONDS_MAX
        ]
        for query_id in ended:
            del self._queries[query_id]
        if len(self._queries) >= QUERIES_MAX:
            silent = min(self._queries.values(), key=lambda each: (each.ended_seconds is None, each.seen_seconds))
            del self._queries[silent.id]

    # Scrapes

    def describe(self) -> Iterable[Metric]:
        """Names without samples, so that a registry refuses a second listener when it is registered."""
        return [GaugeMetricFamily(name, text, labels=labels) for name, text, labels, _ in _GAUGES]

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            self._forget(self._clock.monotonic())
            queries = list(self._queries.values())
            for name, text, labels, samples in _GAUGES:
                gauge = GaugeMetricFamily(name, text, labels=labels)
                for reading in queries:
                    for values, sample in samples(reading):
                        gauge.add_metric(values, sample)
                yield gauge
            for name, text, total in _COUNTERS:
                counter = CounterMetricFamily(name, text, labels=QUERY)
                for reading in queries:
                    counter.add_metric(reading.labels, total(reading))
                yield counter


# Samples: labels and a number for each

Samples = Iterator[tuple[list[str], float]]


def _info(reading: QueryReading) -> Samples:
    sources = ", ".join(each.description for each in reading.sources)
    yield [*reading.labels, sources, reading.sink], 1.0


def _active(reading: QueryReading) -> Samples:
    yield reading.labels, float(reading.ended_seconds is None)


def _failed(reading: QueryReading) -> Samples:
    yield reading.labels, float(reading.failed)


def _of_progress(name: str, divisor: float = 1.0) -> Callable[[QueryReading], Samples]:
    def samples(reading: QueryReading) -> Samples:
        value = (reading.last or {}).get(name)
        if isinstance(value, int | float):
            yield reading.labels, value / divisor

    return samples


def _last_progress(reading: QueryReading) -> Samples:
    moment = _moment((reading.last or {}).get("timestamp"))
    if moment is not None:
        yield reading.labels, moment


def _watermark(reading: QueryReading) -> Samples:
    times: Mapping[str, Any] = (reading.last or {}).get("eventTime") or {}
    moment = _moment(times.get("watermark"))
    if moment is not None:
        yield reading.labels, moment


def _steps(reading: QueryReading) -> Samples:
    steps: Mapping[str, Any] = (reading.last or {}).get("durationMs") or {}
    for step, millis in steps.items():
        yield [*reading.labels, step], float(millis) / 1000


def _state(name: str) -> Callable[[QueryReading], Samples]:
    def samples(reading: QueryReading) -> Samples:
        operators: list[Mapping[str, Any]] = (reading.last or {}).get("stateOperators") or []
        for number, operator in enumerate(operators):
            yield [*reading.labels, f"{number}:{operator.get('operatorName', '')}"], float(operator.get(name) or 0)

    return samples


def _lag(reading: QueryReading) -> Samples:
    known = [each.lag_records for each in reading.sources if each.lag_records is not None]
    if known:
        yield reading.labels, float(sum(known))


def _partitions(which: str) -> Callable[[QueryReading], Samples]:
    def samples(reading: QueryReading) -> Samples:
        for number, source in enumerate(reading.sources):
            found: Offsets = getattr(source, which)
            if len(found) > PARTITIONS_MAX:
                continue
            for (topic, partition), value in found.items():
                yield [*reading.labels, f"{number}:{source.description}", topic, partition], float(value)

    return samples


_STEP = (*QUERY, "step")
_OPERATOR = (*QUERY, "operator")
_GAUGES: list[tuple[str, str, tuple[str, ...], Callable[[QueryReading], Samples]]] = [
    (f"{PREFIX}info", "Sources and sink of a query.", (*QUERY, "sources", "sink"), _info),
    (f"{PREFIX}active", "1 while the query runs, 0 for a while after it has ended.", QUERY, _active),
    (f"{PREFIX}failed", "1 where the query ended by an error.", QUERY, _failed),
    (f"{PREFIX}batch_id", "Number of the last batch.", QUERY, _of_progress("batchId")),
    (f"{PREFIX}last_batch_seconds", "Duration of the last batch.", QUERY, _of_progress("batchDuration", 1000)),
    (f"{PREFIX}last_step_seconds", "Duration of each step of the last batch.", _STEP, _steps),
    (f"{PREFIX}last_progress_timestamp_seconds", "Start of the last batch that was reported.", QUERY, _last_progress),
    (f"{PREFIX}input_rows_per_second", "Arrival rate of the last batch.", QUERY, _of_progress("inputRowsPerSecond")),
    (
        f"{PREFIX}processed_rows_per_second",
        "Rows of the last batch by its duration.",
        QUERY,
        _of_progress("processedRowsPerSecond"),
    ),
    (f"{PREFIX}watermark_timestamp_seconds", "Event time watermark.", QUERY, _watermark),
    (f"{PREFIX}state_rows", "Rows in the state of an operator.", _OPERATOR, _state("numRowsTotal")),
    (f"{PREFIX}state_bytes", "Memory of the state of an operator.", _OPERATOR, _state("memoryUsedBytes")),
    (
        f"{PREFIX}late_rows",
        "Rows of the last batch that an operator dropped behind the watermark.",
        _OPERATOR,
        _state("numRowsDroppedByWatermark"),
    ),
    (f"{PREFIX}lag_records", "Records behind the end of all partitions, as of the last batch.", QUERY, _lag),
    (f"{PREFIX}partition_offset", "Next offset to read.", PARTITION, _partitions("offsets")),
    (f"{PREFIX}partition_lag_records", "Records behind the end of the partition.", PARTITION, _partitions("lag")),
]
_COUNTERS: list[tuple[str, str, Callable[[QueryReading], float]]] = [
    (f"{PREFIX}batches", "Batches that were reported in this run.", lambda each: each.batches),
    (f"{PREFIX}input_rows", "Rows read in this run.", lambda each: each.input_rows),
    (f"{PREFIX}output_rows", "Rows written in this run, where the sink counts them.", lambda each: each.output_rows),
    (f"{PREFIX}batch_seconds", "Time spent in batches in this run.", lambda each: each.batch_seconds),
]


# Parts of a progress


def _source(source: Mapping[str, Any]) -> SourceReading:
    offsets = topic_offsets(source.get("endOffset"))
    latest = topic_offsets(source.get("latestOffset"))
    lag = {place: max(latest[place] - offset, 0) for place, offset in offsets.items() if place in latest}
    # The lag of partitions that the query has not begun to read is not known here.
    lag_records: int | None = sum(lag.values()) if lag else None
    metrics: Mapping[str, Any] = source.get("metrics") or {}
    if lag_records is None and LAG_OF_OTHERS in metrics:
        lag_records = int(float(metrics[LAG_OF_OTHERS]))
    return SourceReading(
        description=readable(str(source.get("description", "")), offsets),
        offsets=offsets,
        lag=lag,
        lag_records=lag_records,
    )


def topic_offsets(offset: Any) -> Offsets:
    """Offsets by topic and partition, in the form that Spark's Kafka connector and this package write.

    Offsets of other sources give an empty result.
    """
    parsed = offset
    if isinstance(offset, str):
        try:
            parsed = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(parsed, dict):
        return {}
    found: Offsets = {}
    for topic, partitions in cast("Mapping[object, object]", parsed).items():
        if not isinstance(partitions, dict):
            return {}
        for partition, value in cast("Mapping[object, object]", partitions).items():
            if not isinstance(value, int) or isinstance(value, bool) or not str(partition).isdigit():
                return {}
            found[str(topic), str(partition)] = value
    return found


_JAVA_NAME = re.compile(r"^(?:[a-z][\w]*\.)+(?=[A-Z])")
_IDENTITY = re.compile(r"@[0-9a-f]+$")
PYTHON_STREAM = "PythonMicroBatchStream"


def simple_name(description: str) -> str:
    """Spark's description of a source or sink, without the package of its class and its address in memory."""
    return _IDENTITY.sub("", _JAVA_NAME.sub("", description))


def readable(description: str, offsets: Offsets) -> str:
    """A readable name of a source.

    Spark describes a source written in Python by the Java object that wraps it, and does not ask the source for a name;
    its topics are in its offsets.
    """
    name = simple_name(description)
    if name.startswith(PYTHON_STREAM) and offsets:
        return f"penstock[{','.join(sorted({topic for topic, _ in offsets}))}]"
    return name


def _moment(text: Any) -> float | None:
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
