"""Works of share groups: throughput with both ways to acknowledge, latency, order by key, and a record that is stuck.

A record that is never acknowledged holds the window of a share partition: Apache Kafka hands out 2,000 offsets behind
it and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from bench.client_program import run_client
from bench.comparison import costed, counted
from bench.samples import KAFKA, Sample
from bench.share_clients import configure_group, first_record_held, latency_shared, read_shared
from bench.sides import Contender, Side, started_sides, turns
from bench.works import Sizes

SHARE_PART = "queue-share"
EXPLICIT_PART = "queue-explicit"
LATENCY_PART = "queue-latency"
KEYS_PART = "queue-keys"
STUCK_PART = "queue-stuck"
PARTS = (SHARE_PART, EXPLICIT_PART, LATENCY_PART, KEYS_PART, STUCK_PART)
CONSUMERS = 4
RECORD_BYTES = 100
KEYS = 10_000
LATENCY_RATE = 1_000
STUCK_SECONDS_MAX = 45.0
"""For so long the records behind a held one are read, which is less than its lock lasts."""

Say = Callable[[str], None]
Work = Callable[[Side, str, str], dict[str, float]]


def measure_queues(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    chosen = [part for part in PARTS if part in parts]
    if not chosen:
        return
    with started_sides(contenders, data) as sides:
        for part in chosen:
            yield from MEASURES[part](sides, sizes, say)


def throughput(sides: Sequence[Side], sizes: Sizes, say: Say, *, work: str, explicit: bool) -> Iterator[Sample]:
    def read(side: Side, topic: str, group: str) -> dict[str, float]:
        produce(side, topic, sizes.queue_messages)
        reading = partial(read_shared, consumers=CONSUMERS, explicit=explicit)
        return costed(side, lambda: reading(side.bootstrap, group, topic, sizes.queue_messages))

    yield from rounds(work, sides, sizes, say, read)


def latencies(sides: Sequence[Side], sizes: Sizes, say: Say) -> Iterator[Sample]:
    def read(side: Side, topic: str, group: str) -> dict[str, float]:
        return latency_shared(side.bootstrap, group, topic, rate=LATENCY_RATE, seconds=sizes.latency_seconds)

    yield from rounds(LATENCY_PART, sides, sizes, say, read)


def order_by_key(sides: Sequence[Side], sizes: Sizes, say: Say) -> Iterator[Sample]:
    """With and without the order, on records with ten thousand keys; Apache Kafka has no such order."""
    penstocks = [side for side in sides if side.name != KAFKA]
    for work, configs in (("queue-keyed", {}), (KEYS_PART, {"share_order": "key"})):

        def read(side: Side, topic: str, group: str, configs: dict[str, str] = configs) -> dict[str, float]:
            configure_group(side.bootstrap, group, **configs)
            produce_keyed(side, topic, sizes.queue_messages)
            reading = partial(read_shared, consumers=CONSUMERS)
            return costed(side, lambda: reading(side.bootstrap, group, topic, sizes.queue_messages))

        yield from rounds(work, penstocks, sizes, say, read)


def stuck(sides: Sequence[Side], sizes: Sizes, say: Say) -> Iterator[Sample]:
    """The part of the records behind one that is held that is delivered."""

    def read(side: Side, topic: str, group: str) -> dict[str, float]:
        configure_group(side.bootstrap, group, share_record_lock_duration_ms="60000")
        produce(side, topic, sizes.queue_backlog)
        with first_record_held(side.bootstrap, group, topic):
            behind = sizes.queue_backlog - 1
            reading = partial(read_shared, consumers=1, seconds_max=STUCK_SECONDS_MAX)
            found = reading(side.bootstrap, group, topic, behind)
        return {**found, "delivered_percent": 100 * found["messages"] / (sizes.queue_backlog - 1)}

    yield from rounds(STUCK_PART, sides, sizes, say, read)


def rounds(work: str, sides: Sequence[Side], sizes: Sizes, say: Say, read: Work) -> Iterator[Sample]:
    """Every round has a topic and a group of its own."""
    for number, side in turns(sides, sizes.rounds, sizes.warm_rounds):
        topic = group = f"bench-{work}-{number + sizes.warm_rounds}"
        side.create_topics([topic], partitions=1)
        configure_group(side.bootstrap, group)
        values = read(side, topic, group)
        side.delete_topics([topic])
        yield from counted(Sample(work=work, side=side.name, round=number, values=values), say)


def produce(side: Side, topic: str, messages: int) -> None:
    counts = ("--messages", str(messages), "--size", str(RECORD_BYTES), "--acks", "1")
    run_client("produce", side.bootstrap, topic, *counts)


def produce_keyed(side: Side, topic: str, messages: int) -> None:
    producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    value = b"x" * RECORD_BYTES
    for number in range(messages):
        producer.produce(topic, value, key=b"%d" % (number % KEYS))
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()


MEASURES: dict[str, Callable[[Sequence[Side], Sizes, Say], Iterator[Sample]]] = {
    SHARE_PART: partial(throughput, work=SHARE_PART, explicit=False),
    EXPLICIT_PART: partial(throughput, work=EXPLICIT_PART, explicit=True),
    LATENCY_PART: latencies,
    KEYS_PART: order_by_key,
    STUCK_PART: stuck,
}
