"""A topic of gigabytes that moves between brokers: how fast, how close to a throttle, and what producers notice of it.

A move lasts from the request until the reassignment is complete, so that the join of the new replicas and the removal
of the old ones count. A plain copy of the same segments, made on the same machine right after, is the measure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.catch_up import PACED_TOPIC, QUIET_S, Paced, log_bytes
from bench.client_program import run_client
from bench.cluster import started_cluster
from bench.comparison import MEGABYTE, counted
from bench.page_cache import settle
from bench.plain_copy import copy_seconds
from bench.samples import Sample
from bench.sides import ADMIN_SECONDS_MAX, TOPIC_CONFIG, Contender, Side, turns
from bench.works import Sizes
from penstock.client.admin import Admin, Resource
from penstock.client.connection import Connection
from penstock.client.reassignment_plan import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Move,
    throttled_brokers,
    throttled_replicas,
)
from penstock.client.reassignments import alter_reassignments, list_reassignments
from penstock.client.wire_calls import WireCalls
from penstock.testing.apache_kafka import ApacheKafkaCluster
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import Deadline, ProcessFailed

PART = "cluster-move"
THROTTLED_WORK = "cluster-move-throttled"
TOPIC = "bench-move"
PARTITIONS = 4
RECORD_BYTES = 1000
FIRST, SECOND, THIRD = 1, 2, 3
LOOK_S = 0.02
SECONDS_MAX = 1_800.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One move, and the 99th percentile of a producer's acknowledgements before it and meanwhile."""

    size: int
    seconds: float
    quiet_ms: float
    meanwhile_ms: float

    def values(self) -> dict[str, float]:
        return {
            "bytes": float(self.size),
            "seconds": self.seconds,
            "mb_per_second": self.size / self.seconds / MEGABYTE,
            "ms_p99": self.meanwhile_ms,
            "ms_p99_quiet": self.quiet_ms,
            "p99_of_quiet": self.meanwhile_ms / self.quiet_ms,
        }


def measure_moves(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    """A topic moves from the first broker to the second, and on to the third under a throttle."""
    if PART not in parts:
        return
    for number, contender in turns(contenders, sizes.rounds):
        with started_cluster(contender, data) as side:
            fill(side, sizes.move_bytes)
            free = move(side, FIRST, SECOND)
            copied = plain_copy_rate(side, SECOND)
            values = {
                **free.values(),
                "copy_mb_per_second": copied / MEGABYTE,
                "of_copy": free.size / free.seconds / copied,
            }
            yield from counted(Sample(work=PART, side=side.name, round=number, values=values), say)
            rate = sizes.move_throttle
            slow = move(side, SECOND, THIRD, throttle=rate)
            values = {**slow.values(), "of_throttle": slow.size / slow.seconds / rate}
            yield from counted(Sample(work=THROTTLED_WORK, side=side.name, round=number, values=values), say)


def fill(side: Side, size: int) -> None:
    """Write a topic whose only replicas are on the first broker."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 2})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replica_assignment=[[FIRST]] * PARTITIONS, config=TOPIC_CONFIG)
    for result in admin.create_topics([topic], request_timeout=ADMIN_SECONDS_MAX).values():
        result.result(ADMIN_SECONDS_MAX)
    side.create_topics([PACED_TOPIC], partitions=1)
    arguments = ("--messages", str(size // RECORD_BYTES), "--size", str(RECORD_BYTES), "--acks", "all")
    run_client("produce", side.bootstrap, TOPIC, *arguments)


def move(side: Side, source: int, target: int, throttle: int | None = None) -> Moved:
    """Reassign all partitions at once, beside a producer at a steady pace."""
    size = size_on(side, source)
    moves = [Move(topic=TOPIC, partition=each, before=(source,), after=(target,)) for each in range(PARTITIONS)]
    where = Connection(bootstrap=side.bootstrap)
    settle(side.data_root)
    if throttle is not None:
        set_throttle(where, moves, throttle)
    paced = Paced(side.bootstrap)
    pacing = threading.Thread(target=paced.run)
    pacing.start()
    try:
        quiet_from = time.perf_counter()
        time.sleep(QUIET_S)
        with WireCalls(where) as calls:
            began = time.perf_counter()
            refused = alter_reassignments(calls, {each.place: each.after for each in moves})
            if refused:
                raise ProcessFailed(f"{side.name}: {next(iter(refused.values()))}")
            wait_until_complete(side, calls, moves)
        ended = time.perf_counter()
    finally:
        paced.stop()
        pacing.join()
    if throttle is not None:
        clear_throttle(where, moves)
    found = size_on(side, target)
    if found < size:
        raise ProcessFailed(f"{side.name}: broker {target} has {found} of {size} bytes")
    return Moved(
        size=size,
        seconds=ended - began,
        quiet_ms=paced.p99_ms(quiet_from, began),
        meanwhile_ms=paced.p99_ms(began, ended),
    )


def wait_until_complete(side: Side, calls: WireCalls, moves: Sequence[Move]) -> None:
    deadline = Deadline(SECONDS_MAX)
    while list_reassignments(calls, [each.place for each in moves]):
        if deadline.passed:
            raise ProcessFailed(f"{side.name}: {TOPIC} moves for more than {SECONDS_MAX:g} s\n{side.broker.tail()}")
        time.sleep(LOOK_S)


def set_throttle(where: Connection, moves: Sequence[Move], rate: int) -> None:
    """Limit what the brokers of the moves copy, as Kafka's tool does."""
    admin = Admin(where)
    rates = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    for broker in sorted(throttled_brokers(moves)):
        admin.alter(Resource(kind="broker", name=str(broker)), put=rates, remove=())
    for topic, (leaders, followers) in throttled_replicas(moves).items():
        put = {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers}
        admin.alter(Resource(kind="topic", name=topic), put=put, remove=())


def clear_throttle(where: Connection, moves: Sequence[Move]) -> None:
    admin = Admin(where)
    for topic in throttled_replicas(moves):
        admin.alter(Resource(kind="topic", name=topic), put={}, remove=(LEADER_REPLICAS, FOLLOWER_REPLICAS))
    for broker in sorted(throttled_brokers(moves)):
        admin.alter(Resource(kind="broker", name=str(broker)), put={}, remove=(LEADER_RATE, FOLLOWER_RATE))


def logs_on(side: Side, broker: int) -> list[Path]:
    assert isinstance(side.broker, ApacheKafkaCluster | PenstockCluster)
    return [side.broker.brokers[broker - 1].data / f"{TOPIC}-{each}" for each in range(PARTITIONS)]


def size_on(side: Side, broker: int) -> int:
    return sum(map(log_bytes, logs_on(side, broker)))


def plain_copy_rate(side: Side, broker: int) -> float:
    """Bytes in a second that a copy of the topic's segments takes, one after the other."""
    settle(side.data_root)
    files = [file for log in logs_on(side, broker) for file in sorted(log.glob("*.log"))]
    size = sum(file.stat().st_size for file in files)
    return size / sum(copy_seconds(file, side.data_root / "copied") for file in files)
