"""The table of two penstocks from the figures of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.report import figure, where
from bench.samples import BASELINE, PENSTOCK, Results, Spread
from bench.targets import ROWS, Row

TOLERANCE = 0.05
CPU_METRICS = frozenset(
    {"cpu_us_per_request", "cpu_us_per_message", "cpu_seconds_per_gb", "cpu_seconds", "core_percent"}
)
SPARK_METRIC = "spark_cpu_us_per_message"
JUDGED = CPU_METRICS | {SPARK_METRIC}
TITLES = {
    "spark-json": "Spark typed JSON, 270 B: value.format",
    "spark-sink": "Spark sink, 100 B rows",
    "txn-small-librdkafka": "transactions of 10 records through librdkafka",
    "java-small-txn": "Java ProducerPerformance in transactions of 20 ms",
    "produce-100-plain": "produce 100 B, beside idempotent",
    "txn-bulk-plain": "10,000 records of 100 B, then the next",
    "group-stall": "slowest heartbeat beside a large group's assignment",
}
"""Of works whose title in RESULTS.md speaks of Apache Kafka or of the row above it."""
CPU_TITLES = {"start-empty": "start of an empty broker", "spark-latency": "Spark micro-batch at trigger 0"}
"""Of works whose first row is about one figure of several."""
ROUNDS_MIN = 4
"""With fewer rounds, or small sizes, one disturbed round decides."""

METHOD = f"""## How to read it

- Both brokers run on this machine at the same time with the same Python, packages and settings; the rounds alternate
  between them, and so does the side that begins. Warm rounds are not counted.
- A figure is the median of the rounds, with the lowest and the highest in brackets. A ratio is this commit over that
  one. The second ratio is that of the lowest figures: other programs only add to a round's processor time.
- A busy machine costs processor time as well, by its caches: look at the load average before believing a mark.
- A CPU row is marked where both ratios are more than {TOLERANCE:.0%} off on the same side. Other rows are not judged.
- Broker CPU is the time on processors of the broker's process tree around a work, in user and in kernel mode. Requests
  are those that the broker counted (`penstock_requests_total`), of all kinds; a GB is 10^9 bytes of payload.
- This side has the packages of a developer besides. Reading /metrics loads one of them: 2 MB of its resident memory.
- Spark CPU is that of a session's Java and Python workers, for each record. Each side has a session with its own
  pyspark_penstock.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A row with the figures of both commits."""

    row: Row
    baseline: Spread | None
    this: Spread | None

    @property
    def ratio(self) -> float | None:
        return _over(self.this, self.baseline, "median")

    @property
    def ratio_lowest(self) -> float | None:
        """Of processor time alone: the lowest throughput is the one with the most noise."""
        return _over(self.this, self.baseline, "lowest") if self.row.metric in JUDGED else None

    @property
    def mark(self) -> str:
        """``more`` or ``less`` for processor time outside of the tolerance by both ratios."""
        if self.ratio is None or self.ratio_lowest is None:
            return ""
        if min(self.ratio, self.ratio_lowest) > 1 + TOLERANCE:
            return "more"
        if max(self.ratio, self.ratio_lowest) < 1 - TOLERANCE:
            return "less"
        return ""


def _over(this: Spread | None, baseline: Spread | None, which: str) -> float | None:
    if this is None or baseline is None or not getattr(baseline, which):
        return None
    return float(getattr(this, which) / getattr(baseline, which))


def pairs(results: Results) -> list[Pair]:
    """Every figure that was measured on a side: those of RESULTS.md, and after each work's its processor time."""
    found: list[Pair] = []
    for row in rows(results):
        baseline, this = (results.spread(row.work, side, row.metric) for side in (BASELINE, PENSTOCK))
        if baseline or this:
            found.append(Pair(row=row, baseline=baseline, this=this))
    return found


def rows(results: Results) -> Iterator[Row]:
    by_work: dict[str, list[Row]] = {}
    for row in ROWS:
        known = by_work.setdefault(row.work, [])
        if row.metric not in CPU_METRICS and all(row.metric != other.metric for other in known):
            known.append(row)
    for work, listed in by_work.items():
        title = next(row.title for row in ROWS if row.work == work).partition(":")[0]
        for row in listed:
            # Without what it would have to reach beside Apache Kafka.
            yield Row(
                work=work,
                title=TITLES.get(work, row.title),
                metric=row.metric,
                unit=row.unit,
                digits=row.digits,
                scale=row.scale,
            )
        yield from cpu_rows(work, CPU_TITLES.get(work) or TITLES.get(work, title), results)


def cpu_rows(work: str, title: str, results: Results) -> Iterator[Row]:
    """Processor time per request and per GB; if neither is known, per message or in all."""
    measured = {metric for sample in results.samples if sample.work == work for metric in sample.values}
    shown = [
        ("core_percent", "broker CPU", "% of a core", 1),
        ("cpu_us_per_request", "broker CPU per request", "us", 1),
        ("cpu_seconds_per_gb", "broker CPU per GB", "CPU s/GB", 3),
    ]
    if "cpu_us_per_request" not in measured:
        shown.append(("cpu_us_per_message", "broker CPU per message", "us", 2))
    if not measured & {"cpu_us_per_request", "cpu_us_per_message"}:
        shown.append(("cpu_seconds", "broker CPU", "CPU s", 3))
    shown.append((SPARK_METRIC, "Spark CPU per record", "us", 2))
    for metric, label, unit, digits in shown:
        yield Row(work=work, title=f"{title}: {label}", metric=metric, unit=unit, digits=digits)


def render_against(
    results: Results, commit: str, not_compared: Mapping[str, str], notes: Sequence[str] = (), *, is_try: bool = False
) -> str:
    """``commit`` is what the run is against, as a reader knows it: its short hash."""
    found = pairs(results)
    parts = [
        f"# This penstock against {commit}\n",
        "**A try**: small sizes, few rounds, or cut short. Its marks prove nothing.\n" if is_try else "",
        _summary(found),
        _table(found, commit),
        _list("Differs besides penstock itself:", notes),
        _list("Failed, so that figures are missing:", results.failures),
        _list("Not compared:", [f"{part}: {reason}" for part, reason in not_compared.items()]),
        where(results),
        METHOD,
        f"## Again\n\n    {results.command}\n",
    ]
    return "\n".join(part for part in parts if part)


def _summary(found: Sequence[Pair]) -> str:
    judged = [pair for pair in found if pair.row.metric in JUDGED and pair.ratio is not None]
    text = f"{len(judged)} rows of processor time; "
    outside = [pair for pair in judged if pair.mark]
    if not outside:
        return text + f"all within {TOLERANCE:.0%} by their medians or by their lowest figures.\n"
    listed = [f"{pair.row.title} ({pair.mark}, {pair.ratio:.2f}x)" for pair in outside]
    return text + f"{len(outside)} outside of {TOLERANCE:.0%}: " + "; ".join(listed) + ".\n"


def _table(found: Sequence[Pair], commit: str) -> str:
    lines = [
        f"| work | unit | {commit} | this | ratio | of the lowest | outside of {TOLERANCE:.0%} |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for pair in found:
        cells = [
            pair.row.title,
            pair.row.unit,
            figure(pair.row, pair.baseline),
            figure(pair.row, pair.this),
            *("-" if ratio is None else f"{ratio:.2f}x" for ratio in (pair.ratio, pair.ratio_lowest)),
            f"**{pair.mark}**" if pair.mark else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _list(title: str, lines: Sequence[str]) -> str:
    return "\n".join([title, "", *(f"- {line}" for line in lines)]) + "\n" if lines else ""
