"""Runs a scenario on every side in turn and measures the broker's cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.client_program import run_client
from bench.page_cache import settle
from bench.samples import Sample
from bench.sides import Meter, Side, Spent, turns
from bench.works import Scenario, Step

MEGABYTE = 1e6
GIGABYTE = 1e9


def run_scenario(scenario: Scenario, sides: Sequence[Side], say: Callable[[str], None]) -> Iterator[Sample]:
    """Warm rounds, then counted ones; the side that begins changes from round to round."""
    for number, side in turns(sides, scenario.rounds, scenario.warm_rounds):
        for sample in _run_round(scenario, number, side):
            yield from counted(sample, say)


def counted(sample: Sample, say: Callable[[str], None]) -> Iterator[Sample]:
    """Print a sample; pass it on unless its round was a warm one."""
    say(line(sample))
    if sample.round >= 0:
        yield sample


def _run_round(scenario: Scenario, number: int, side: Side) -> Iterator[Sample]:
    topic = f"bench-{scenario.name}-{number + scenario.warm_rounds}"
    side.create_topics([topic], partitions=1)
    for step in scenario.steps:
        yield Sample(work=step.work, side=side.name, round=number, values=run_step(step, side, topic))
    side.delete_topics([topic])


def run_step(step: Step, side: Side, topic: str) -> dict[str, float]:
    """The clients' figures and the broker's cost around them."""

    def load(_: int) -> dict[str, float]:
        return run_client(step.mode, side.bootstrap, topic, *step.arguments)

    if step.clients == 1:
        return costed(side, lambda: load(0))
    with ThreadPoolExecutor(step.clients) as at_once:
        return costed(side, lambda: together(list(at_once.map(load, range(step.clients)))))


def together(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """The combined throughput of concurrent clients, by the time of the slowest."""
    messages, size = (sum(each[name] for each in figures) for name in ("messages", "bytes"))
    return moved(messages, size, max(each["seconds"] for each in figures))


def moved(messages: float, size: float, seconds: float) -> dict[str, float]:
    """The throughput in the form of the load program's figures."""
    return {
        "messages": messages,
        "bytes": size,
        "seconds": seconds,
        "messages_per_second": messages / seconds,
        "mb_per_second": size / seconds / MEGABYTE,
    }


def costed(side: Side, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Add the processor time the broker spent on a work, and its memory after it."""
    settle(side.data_root)
    meter = Meter(side)
    values = work()
    return {**values, **cost(meter.read(), values)}


def cost(spent: Spent, values: Mapping[str, float]) -> dict[str, float]:
    """Processor time in all, and for each request, message and gigabyte where their number is known."""
    found = {
        "cpu_seconds": spent.cpu_seconds,
        "resident_mb": spent.after.resident_bytes / MEGABYTE,
        "resident_mb_peak": spent.after.resident_bytes_peak / MEGABYTE,
    }
    if values.get("bytes"):
        found["cpu_seconds_per_gb"] = spent.cpu_seconds / (values["bytes"] / GIGABYTE)
    if values.get("messages"):
        found["cpu_us_per_message"] = spent.cpu_seconds * 1e6 / values["messages"]
    if spent.requests:
        found["requests"] = spent.requests
        found["cpu_us_per_request"] = spent.cpu_seconds * 1e6 / spent.requests
    return found


def line(sample: Sample) -> str:
    """One execution as a line of progress; rounds below 0 are warm ones."""
    shown = (
        "messages_per_second",
        "transactions_per_second",
        "mb_per_second",
        "ms_p50",
        "ms_p99",
        "ms_p999",
        "cpu_seconds_per_gb",
        "cpu_us_per_request",
        "resident_mb",
        "seconds",
    )
    figures = "  ".join(f"{name}={sample.values[name]:,.2f}" for name in shown if name in sample.values)
    state = "warm" if sample.round < 0 else f"round {sample.round + 1}"
    return f"{time.strftime('%H:%M:%S')} {sample.work:24} {sample.side:8} {state:8} {figures}"
