"""The table of a report: the figures of each work, and their targets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.samples import KAFKA, PENSTOCK, Results, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of both sides. A ratio is penstock over the other: Apache Kafka, or another work of penstock."""

    work: str
    title: str
    metric: str
    unit: str
    digits: int = 0
    scale: float = 1.0
    ratio_min: float | None = None
    ratio_max: float | None = None
    absolute_max: float | None = None
    absolute_min: float | None = None
    against_work: str | None = None
    against_title: str = "plain"

    @property
    def target(self) -> str:
        parts: list[str] = []
        if self.ratio_min is not None:
            parts.append(f">= {self.ratio_min:g}x" + (f" our own {self.against_title}" if self.against_work else ""))
        if self.ratio_max is not None:
            parts.append(f"<= {self.ratio_max:g}x")
        if self.absolute_max is not None:
            parts.append(f"<= {self.absolute_max:g} {self.unit}")
        if self.absolute_min is not None:
            parts.append(f">= {self.absolute_min:g} {self.unit}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A row with its figures filled in; ``reached`` is None without a target or a figure."""

    row: Row
    kafka: Spread | None
    penstock: Spread | None
    ratio: float | None
    reached: bool | None


def find(row: Row, results: Results) -> Finding:
    kafka = results.spread(row.work, KAFKA, row.metric)
    penstock = results.spread(row.work, PENSTOCK, row.metric)
    other = results.spread(row.against_work, PENSTOCK, row.metric) if row.against_work else kafka
    ratio = penstock.median / other.median if penstock and other and other.median else None
    return Finding(row=row, kafka=kafka, penstock=penstock, ratio=ratio, reached=_reached(row, penstock, ratio))


def _reached(row: Row, penstock: Spread | None, ratio: float | None) -> bool | None:
    if penstock is None or not row.target:
        return None
    verdicts: list[bool] = []
    if row.absolute_max is not None:
        verdicts.append(penstock.median * row.scale <= row.absolute_max)
    if row.absolute_min is not None:
        verdicts.append(penstock.median * row.scale >= row.absolute_min)
    if row.ratio_min is not None or row.ratio_max is not None:
        if ratio is None:
            return None
        verdicts.append(row.ratio_min is None or ratio >= row.ratio_min)
        verdicts.append(row.ratio_max is None or ratio <= row.ratio_max)
    return all(verdicts)


def _rate(work: str, title: str, ratio_min: float | None = None) -> Row:
    return Row(
        work=work, title=title, metric="messages_per_second", unit="k msg/s", scale=1e-3, digits=1, ratio_min=ratio_min
    )


def _against_plain(work: str, title: str, plain: str) -> Row:
    """The cost of a guarantee, relative to the same records without it."""
    return replace(_rate(work, title, 0.9), against_work=plain)


def _bandwidth(work: str, title: str, ratio_min: float | None = None) -> Row:
    return Row(work=work, title=title, metric="mb_per_second", unit="MB/s", ratio_min=ratio_min)


def _cpu(work: str, title: str, ratio_max: float | None = None) -> Row:
    return Row(
        work=work,
        title=f"{title}: broker CPU",
        metric="cpu_seconds_per_gb",
        unit="CPU s/GB",
        digits=2,
        ratio_max=ratio_max,
    )


def _latency(
    work: str, title: str, *, p99_ratio_max: float | None = None, p99_max: float | None = None
) -> tuple[Row, ...]:
    p50, p999, slowest = (
        Row(work=work, title=f"{title}: {label}", metric=metric, unit="ms", digits=2)
        for label, metric in (("p50", "ms_p50"), ("p99.9", "ms_p999"), ("slowest", "ms_max"))
    )
    p99 = Row(
        work=work,
        title=f"{title}: p99",
        metric="ms_p99",
        unit="ms",
        digits=2,
        ratio_max=p99_ratio_max,
        absolute_max=p99_max,
    )
    return (p50, p99, p999, slowest)


def _requests(work: str, title: str, ratio_min: float | None = None) -> tuple[Row, ...]:
    return (
        _rate(work, title, ratio_min),
        Row(work=work, title=f"{title}: broker CPU each", metric="cpu_us_per_message", unit="us", digits=1),
    )


def _transactions(work: str, title: str, ratio_min: float | None = None) -> Row:
    return Row(work=work, title=title, metric="transactions_per_second", unit="per s", digits=1, ratio_min=ratio_min)


def _memory(work: str, title: str, absolute_max: float | None, metric: str = "resident_mb") -> Row:
    return Row(work=work, title=title, metric=metric, unit="MB", absolute_max=absolute_max)


def _ready(work: str, title: str, absolute_max: float | None) -> Row:
    return Row(work=work, title=title, metric="ready_seconds", unit="s", digits=2, absolute_max=absolute_max)


def _gap(work: str, title: str, absolute_max: float) -> Row:
    return Row(work=work, title=title, metric="gap_ms", unit="ms", absolute_max=absolute_max)


ROWS: tuple[Row, ...] = (
    _rate("produce-100", "produce 100 B", 1.5),
    _cpu("produce-100", "produce 100 B", 0.25),
    _rate("produce-100-two", "produce 100 B, two producers", 1.5),
    _cpu("produce-100-two", "produce 100 B, two producers"),
    _bandwidth("produce-1k", "produce 1 KB", 1.8),
    _cpu("produce-1k", "produce 1 KB", 0.35),
    _bandwidth("produce-1k-lz4", "produce 1 KB, lz4", 1.0),
    _cpu("produce-1k-lz4", "produce 1 KB, lz4"),
    _rate("consume-100", "consume 100 B", 1.0),
    _cpu("consume-100", "consume 100 B", 0.4),
    _bandwidth("consume-1k", "consume 1 KB", 1.2),
    _cpu("consume-1k", "consume 1 KB", 0.6),
    _bandwidth("consume-1k-two", "consume 1 KB, two consumers", 1.2),
    _cpu("consume-1k-two", "consume 1 KB, two consumers"),
    *_requests("requests-8x8", "one-record requests, 8 connections x 8 in flight", 1.5),
    *_requests("requests-1x1", "one-record requests, one at a time"),
    *_latency("latency-1000", "end to end at 1,000 msg/s", p99_ratio_max=0.3),
    *_latency("latency-10000", "end to end at 10,000 msg/s", p99_max=10),
    _rate("produce-100-plain", "produce 100 B, acks=1 (beside the next)"),
    _against_plain("produce-100-idempotent", "produce 100 B, idempotent", "produce-100-plain"),
    _bandwidth("java-produce", "Java ProducerPerformance, 1 KB, default settings"),
    _cpu("java-produce", "Java ProducerPerformance"),
    _bandwidth("java-consume", "Java ConsumerPerformance, 1 KB, default settings"),
    _cpu("java-consume", "Java ConsumerPerformance"),
    *_requests("group-commits-piped", "offset commits, one connection, 64 in flight", 3.0),
    *_requests("group-commits", "offset commits, 64 connections x 8 in flight"),
    Row(
        work="group-assignment",
        title="10 consumers, 900 partitions, consumer protocol: settled after",
        metric="settle_seconds",
        unit="s",
        digits=2,
        ratio_max=1.0,
        absolute_max=5,
    ),
    Row(
        work="group-heartbeats",
        title="1,000 groups heart-beating every 3 s",
        metric="core_percent",
        unit="% of a core",
        digits=1,
        absolute_max=10,
    ),
    Row(
        work="group-load",
        title="1,000,000 committed offsets: there after a restart",
        metric="load_seconds",
        unit="s",
        digits=2,
        absolute_max=10,
    ),
    _memory("group-load", "1,000,000 committed offsets: resident memory", 300),
    *(
        Row(
            work=f"assignor-{name}",
            title=f"{name} assignor, 1,000 members x 10,000 partitions",
            metric="assign_ms",
            unit="ms",
            digits=1,
            absolute_max=200,
        )
        for name in ("uniform", "range")
    ),
    Row(
        work="group-stall",
        title="slowest heartbeat of another group meanwhile",
        metric="stall_ms",
        unit="ms",
        digits=1,
        absolute_max=50,
    ),
    _transactions("txn-small", "transactions of 10 records over 3 partitions", 1.5),
    _transactions("txn-small-librdkafka", "the same through librdkafka"),
    _rate("txn-bulk-plain", "10,000 records of 100 B, then the next (beside the next)"),
    _against_plain("txn-bulk", "transactions of 10,000 records of 100 B", "txn-bulk-plain"),
    _rate("txn-bulk", "the same beside Apache Kafka"),
    _rate("java-small", "Java ProducerPerformance, 100 B, default settings"),
    _against_plain("java-small-txn", "the same in transactions of 20 ms, about 10,000 records", "java-small"),
    _rate("java-small-txn", "the same beside Apache Kafka"),
    _rate("txn-consume", "consume read_committed, half aborted", 1.0),
    _cpu("txn-consume", "consume read_committed, half aborted"),
    Row(
        work="txn-ids",
        title="10,000 transactional ids opened",
        metric="open_seconds",
        unit="s",
        digits=2,
        absolute_max=20,
    ),
    _memory("txn-ids", "10,000 transactional ids: resident memory", 200),
    _rate("queue-share", "share group, 4 consumers, 100 B, implicit acknowledgement", 1.5),
    replace(_cpu("queue-share", "the same", 0.5), metric="cpu_us_per_message", unit="us", digits=1),
    _rate("queue-explicit", "share group, 4 consumers, 100 B, every record acknowledged", 1.5),
    replace(_cpu("queue-explicit", "the same"), metric="cpu_us_per_message", unit="us", digits=1),
    *_latency("queue-latency", "producer to share consumer at 1,000 msg/s", p99_ratio_max=0.3)[:2],
    _rate("queue-keyed", "share group, 10,000 keys"),
    replace(
        _rate("queue-keys", "the same with share.order=key", 0.5),
        against_work="queue-keyed",
        against_title="without order",
    ),
    Row(
        work="queue-stuck",
        title="records behind one that is held: delivered",
        metric="delivered_percent",
        unit="%",
        digits=1,
        absolute_min=100,
    ),
    _rate("spark-read-1kb", "Spark batch read, 2 partitions, 1 KB", 2.0),
    _rate("spark-read-100b", "Spark batch read, 2 partitions, 100 B", 1.5),
    _rate("spark-stream-1kb", "Spark stream of 200,000 offsets a trigger, 1 KB", 1.5),
    _rate("spark-json", "Spark typed JSON, 270 B: value.format, against from_json of the connector", 2.0),
    replace(
        _rate("spark-json", "the same, against from_json over our own source", 2.0), against_work="spark-json-from"
    ),
    _rate("spark-json-from", "from_json over our own source, 270 B"),
    _rate("spark-sink", "Spark sink, 100 B rows: exactly once, against at least once", 1.0),
    *(
        Row(work=work, title=title, metric="seconds", unit="s", digits=2, ratio_max=1.5)
        for work, title in (
            ("spark-read-partitions", "Spark batch read of 200 partitions, 5 rows each"),
            ("spark-sink-tasks", "Spark batch write of 10 rows in 100 tasks"),
            ("spark-sink-partitions", "Spark batch write of 20,000 rows to 200 partitions in 2 tasks"),
        )
    ),
    Row(
        work="spark-latency",
        title="Spark micro-batch at trigger 0, p50",
        metric="ms_p50",
        unit="ms",
        digits=0,
        ratio_max=1.0,
    ),
    _memory("spark-memory", "resident memory of a Python worker that reads 1 KB records", 300),
    _memory("start-empty", "resident memory, idle", 60),
    _memory("memory-after", "resident memory after the run", 150),
    _memory("memory-after", "resident memory, peak of the run", None, "resident_mb_peak"),
    _ready("start-empty", "ready to serve, empty", 0.5),
    _ready("start-partitions", "ready to serve, 1,000 partitions, after a clean stop", 2),
    _ready("partitions-many", "ready to serve, 10,000 partitions, after a clean stop", None),
    _memory("partitions-many", "resident memory, 10,000 partitions, all served", 400),
    _rate("cluster-produce-100", "three brokers, RF 3, acks=all: produce 100 B", 2.5),
    _cpu("cluster-produce-100", "three brokers: produce 100 B", 0.3),
    _bandwidth("cluster-produce-1k", "three brokers, RF 3, acks=all: produce 1 KB", 3.0),
    _cpu("cluster-produce-1k", "three brokers: produce 1 KB", 0.3),
    *_requests("cluster-requests-8x8", "three brokers: one-record requests, 8 connections x 8 in flight", 10.0),
    *_latency("cluster-latency-1000", "three brokers: end to end at 1,000 msg/s", p99_max=10),
    Row(
        work="cluster-memory-after",
        title="three brokers: resident memory after the run",
        metric="resident_mb",
        unit="MB",
        ratio_max=0.1,
    ),
    _gap("cluster-kill", "leader killed, session of 2 s: longest gap of a producer", 3_250),
    _gap("cluster-stop", "leader stopped: longest gap of a producer", 200),
    Row(work="cluster-kill", title="leader killed: acknowledged records lost", metric="lost", unit="", absolute_max=0),
    _bandwidth("cluster-catch-up", "a follower 1 GB behind catches up"),
    Row(
        work="cluster-catch-up",
        title="the same, of a plain copy by sendfile",
        metric="of_copy",
        unit="of the copy",
        digits=2,
        absolute_min=0.7,
    ),
    Row(
        work="cluster-catch-up",
        title="p99 of a producer meanwhile, of its p99 before",
        metric="p99_of_quiet",
        unit="of p99 before",
        digits=2,
        absolute_max=2,
    ),
    _bandwidth("cluster-move", "a topic of 10 GB moves to another broker"),
    Row(
        work="cluster-move",
        title="the same, of a plain copy by sendfile",
        metric="of_copy",
        unit="of the copy",
        digits=2,
        absolute_min=0.7,
    ),
    Row(
        work="cluster-move",
        title="p99 of a producer meanwhile, of its p99 before",
        metric="p99_of_quiet",
        unit="of p99 before",
        digits=2,
        absolute_max=2,
    ),
    Row(
        work="cluster-move-throttled",
        title="the same under a throttle, of the throttle",
        metric="of_throttle",
        unit="of the throttle",
        digits=2,
        absolute_min=0.9,
        absolute_max=1.1,
    ),
    Row(
        work="cluster-move-throttled",
        title="p99 of a producer meanwhile, of its p99 before",
        metric="p99_of_quiet",
        unit="of p99 before",
        digits=2,
        absolute_max=2,
    ),
    _rate("processes-1", "one-record requests, two producers with 4 connections x 8: one process"),
    replace(
        _rate("processes-2", "the same with --processes 2", 1.3),
        against_work="processes-1",
        against_title="one process",
    ),
)

CEILING_ROWS: tuple[Row, ...] = (
    _rate("ceiling-produce-100", "produce 100 B into librdkafka's mock broker"),
    _rate("ceiling-produce-100-idempotent", "the same, idempotent"),
    *(
        Row(work=work, title=f"{way} at 1,000 msg/s: {label}", metric=metric, unit="ms", digits=2)
        for work, way in (
            ("ceiling-latency-1000", "end to end through a broker that only passes on,"),
            ("ceiling-relay-1000", "one hop in and one out, without librdkafka,"),
        )
        for label, metric in (("p50", "ms_p50"), ("p99", "ms_p99"), ("p99.9", "ms_p999"))
    ),
)
"""Figures without a broker, which have no target."""
