"""Kafka's own performance tools as a second client: the view of a Java application with default settings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from bench.client_program import LoadFailed
from bench.comparison import costed, line
from bench.samples import Sample
from bench.sides import Side, turns
from penstock.testing.apache_kafka import tool_command
from penstock.testing.probe import api_versions
from penstock.testing.processes import LOOPBACK

RECORD_BYTES = 1000
TOOL_SECONDS_MAX = 180
TOOL_HEAP = "512m"
JOIN_GROUP = 11
SMALL_RECORD_BYTES, SMALL_TIMES = 100, 3
TRANSACTION_MS = 20
"""About as long as the tool takes for ten thousand records of 100 bytes; it ends transactions only by time."""

SUMMARY = re.compile(r"(\d+) records sent, ([\d.]+) records/sec \(.*?\), .*?(\d+) ms 99th")

Tool = Callable[[str, str, int], dict[str, float]]
"""Runs with the address of the brokers, the topic and the number of messages."""


def run_java(sides: Sequence[Side], messages: int, rounds: int, say: Callable[[str], None]) -> Iterator[Sample]:
    """ProducerPerformance (idempotent, acks=all: its defaults), then ConsumerPerformance on the same topic.

    The consumer joins a group, so it runs only against brokers that offer groups. Then small records, first without
    and then within transactions.
    """
    for number, side in turns(sides, rounds):
        large: dict[str, Tool] = {"java-produce": produce}
        if JOIN_GROUP in api_versions(LOOPBACK, side.broker.port):
            large["java-consume"] = consume
        small: dict[str, Tool] = {"java-small": produce_small, "java-small-txn": produce_transactions}
        yield from on_one_topic(side, f"bench-java-{number}", large, number, messages, say)
        yield from on_one_topic(side, f"bench-java-small-{number}", small, number, messages * SMALL_TIMES, say)


def on_one_topic(
    side: Side, topic: str, tools: dict[str, Tool], number: int, messages: int, say: Callable[[str], None]
) -> Iterator[Sample]:
    side.create_topics([topic], partitions=1)
    for work, tool in tools.items():
        values = costed(side, partial(tool, side.bootstrap, topic, messages))
        sample = Sample(work=work, side=side.name, round=number, values=values)
        say(line(sample))
        yield sample
    side.delete_topics([topic])


def produce(
    bootstrap: str, topic: str, messages: int, *arguments: str, record_bytes: int = RECORD_BYTES
) -> dict[str, float]:
    output = _run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(messages)),
        *("--record-size", str(record_bytes), "--throughput", "-1", *arguments),
    )
    return {**parse_producer(output, record_bytes), "bytes": float(messages * record_bytes)}


def produce_small(bootstrap: str, topic: str, messages: int) -> dict[str, float]:
    return produce(bootstrap, topic, messages, record_bytes=SMALL_RECORD_BYTES)


def produce_transactions(bootstrap: str, topic: str, messages: int) -> dict[str, float]:
    transactions = ("--transactional-id", topic, "--transaction-duration-ms", str(TRANSACTION_MS))
    return produce(bootstrap, topic, messages, *transactions, record_bytes=SMALL_RECORD_BYTES)


def consume(bootstrap: str, topic: str, messages: int) -> dict[str, float]:
    output = _run(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(messages), "--hide-header"),
    )
    return {**parse_consumer(output), "bytes": float(messages * RECORD_BYTES)}


def parse_producer(output: str, record_bytes: int = RECORD_BYTES) -> dict[str, float]:
    """The last line with percentiles is the sum of the run; those before are five-second windows without them."""
    found = SUMMARY.findall(output)
    if not found:
        raise LoadFailed(f"ProducerPerformance printed no summary:\n{output[-2000:]}")
    messages, per_second, milliseconds_99 = found[-1]
    return {
        "messages": float(messages),
        "messages_per_second": float(per_second),
        "mb_per_second": float(per_second) * record_bytes / 1e6,
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
