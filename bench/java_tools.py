"""Kafka's own performance tools as a second client: what a Java application with default settings sees."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from bench.client_program import LoadFailed
from bench.comparison import costed, line
from bench.samples import Sample
from bench.sides import Side
from penstock.testing.apache_kafka import tool_command
from penstock.testing.probe import api_versions
from penstock.testing.processes import LOOPBACK

RECORD_BYTES = 1000
TOOL_SECONDS_MAX = 180
TOOL_HEAP = "512m"
JOIN_GROUP = 11
SUMMARY = re.compile(r"(\d+) records sent, ([\d.]+) records/sec \(.*?\), .*?(\d+) ms 99th")


def run_java(sides: Sequence[Side], messages: int, rounds: int, say: Callable[[str], None]) -> Iterator[Sample]:
    """ProducerPerformance (idempotent, acks=all: its defaults), then ConsumerPerformance on the same topic.

    The consumer joins a group, so it runs only against brokers that offer groups.
    """
    for number in range(rounds):
        for side in sides:
            topic = f"bench-java-{number}"
            side.create_topics([topic], partitions=1)
            tools = {"java-produce": produce}
            if JOIN_GROUP in api_versions(LOOPBACK, side.broker.port):
                tools["java-consume"] = consume
            for work, tool in tools.items():
                values = costed(side, partial(tool, side.bootstrap, topic, messages))
                sample = Sample(work=work, side=side.name, round=number, values=values)
                say(line(sample))
                yield sample
            side.delete_topics([topic])


def produce(bootstrap: str, topic: str, messages: int) -> dict[str, float]:
    output = _run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(messages)),
        *("--record-size", str(RECORD_BYTES), "--throughput", "-1"),
    )
    return {**parse_producer(output), "bytes": float(messages * RECORD_BYTES)}


def consume(bootstrap: str, topic: str, messages: int) -> dict[str, float]:
    output = _run(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(messages), "--hide-header"),
    )
    return {**parse_consumer(output), "bytes": float(messages * RECORD_BYTES)}


def parse_producer(output: str) -> dict[str, float]:
    """The last line with percentiles is the sum of the run; those before are five-second windows without them."""
    found = SUMMARY.findall(output)
    if not found:
        raise LoadFailed(f"ProducerPerformance printed no summary:\n{output[-2000:]}")
    messages, per_second, milliseconds_99 = found[-1]
    return {
        "messages": float(messages),
        "messages_per_second": float(per_second),
        "mb_per_second": float(per_second) * RECORD_BYTES / 1e6,
        "ms_p99": float(milliseconds_99),
    }


def parse_consumer(output: str) -> dict[str, float]:
    """Start, end, MB, MB/s, messages, messages/s, rebalance ms, fetch ms, fetch MB/s, fetch messages/s."""
    fields = output.strip().splitlines()[-1].split(",") if output.strip() else []
    if len(fields) != 10:
        raise LoadFailed(f"ConsumerPerformance printed no line of ten fields:\n{output[-2000:]}")
    per_second = float(fields[9])
    return {
        "messages": float(fields[4]),
        "messages_per_second": per_second,
        "mb_per_second": per_second * RECORD_BYTES / 1e6,
    }


def _run(main_class: str, *arguments: str) -> str:
    command = tool_command(main_class, *arguments, heap=TOOL_HEAP)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{main_class} did not end within {TOOL_SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise LoadFailed(f"{main_class} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"[-4000:])
    return done.stdout
