"""A follower that was down while a gigabyte was written: how fast it catches up, and what producers notice of it.

The copy is timed by the size of the follower's log, from its first byte to its last, so that neither the start of the
process nor the change of the ISR counts. A plain copy of the leader's log, made on the same machine right after, is the
measure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from bench.client_program import run_client
from bench.cluster import leader_of, started_cluster
from bench.comparison import MEGABYTE, counted
from bench.page_cache import settle
from bench.plain_copy import copy_seconds
from bench.samples import Sample
from bench.sides import Contender, Side, turns
from bench.works import Sizes
from penstock.testing.apache_kafka import ApacheKafkaCluster
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import Deadline, ProcessFailed

PART = "cluster-catch-up"
TOPIC = "bench-catch-up"
PACED_TOPIC = "bench-catch-up-paced"
RECORD_BYTES = 1000
PACE_S = 0.002
"""Between two records of the producer whose acknowledgements are timed."""
QUIET_S = 3.0
"""How long that producer runs before the follower returns."""
LOOK_S = 0.002
SECONDS_MAX = 300.0

Say = Callable[[str], None]


@dataclass(slots=True)
class Paced:
    """A producer of small records at a steady pace, with acks=all; each acknowledgement has its time."""

    bootstrap: str
    acknowledged: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When each record was sent, and how many milliseconds its acknowledgement took."""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 2})
        while not self._stopped.wait(PACE_S):
            sent = time.perf_counter()

            def delivered(error: object, _: object, sent: float = sent) -> None:
                if error is None:
                    self.acknowledged.append((sent, (time.perf_counter() - sent) * 1000))

            producer.produce(PACED_TOPIC, b"x" * 100, on_delivery=delivered)
            producer.poll(0)
        producer.flush(SECONDS_MAX)

    def stop(self) -> None:
        self._stopped.set()

    def p99_ms(self, began: float, ended: float) -> float:
        """Of the records that were sent between two moments; the slowest of too few."""
        taken = sorted(ms for sent, ms in self.acknowledged if began <= sent <= ended)
        if not taken:
            raise ProcessFailed("no record of the paced producer was acknowledged")
        return taken[min(len(taken) - 1, int(len(taken) * 0.99))]


def measure_catch_up(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    """One follower of a fresh cluster of three, behind by so many bytes."""
    if PART not in parts:
        return
    for number, contender in turns(contenders, sizes.rounds):
        with started_cluster(contender, data) as side:
            values = catch_up(side, sizes.catch_up_bytes)
            yield from counted(Sample(work=PART, side=side.name, round=number, values=values), say)


def catch_up(side: Side, size: int) -> dict[str, float]:
    """Stop a follower, write, start it again, and watch its log grow to the size of its leader's."""
    assert isinstance(side.broker, ApacheKafkaCluster | PenstockCluster)
    side.create_topics([TOPIC, PACED_TOPIC], partitions=1)
    leader, _ = leader_of(side, TOPIC)
    follower = side.broker.brokers[leader % len(side.broker.brokers)]
    follower.stop()
    arguments = ("--messages", str(size // RECORD_BYTES), "--size", str(RECORD_BYTES), "--acks", "all")
    run_client("produce", side.bootstrap, TOPIC, *arguments)
    leader, _ = leader_of(side, TOPIC)
    source = side.broker.brokers[leader - 1].data / f"{TOPIC}-0"
    copied = follower.data / f"{TOPIC}-0"
    wanted, before = log_bytes(source), log_bytes(copied)
    settle(side.data_root)
    paced = Paced(side.bootstrap)
    pacing = threading.Thread(target=paced.run)
    pacing.start()
    try:
        quiet_from = time.perf_counter()
        time.sleep(QUIET_S)
        quiet_to = time.perf_counter()
        starting = threading.Thread(target=follower.start)
        starting.start()
        began, ended = watch_growth(copied, before, wanted)
        starting.join()
    finally:
        paced.stop()
        pacing.join()
    settle(side.data_root)
    copy_s = sum(copy_seconds(file, side.data_root / "copied") for file in sorted(source.glob("*.log")))
    rate, copy_rate = (wanted - before) / (ended - began), wanted / copy_s
    quiet_ms, meanwhile_ms = paced.p99_ms(quiet_from, quiet_to), paced.p99_ms(began, ended)
    return {
        "bytes": float(wanted - before),
        "seconds": ended - began,
        "mb_per_second": rate / MEGABYTE,
        "copy_mb_per_second": copy_rate / MEGABYTE,
        "of_copy": rate / copy_rate,
        "ms_p99": meanwhile_ms,
        "ms_p99_quiet": quiet_ms,
        "p99_of_quiet": meanwhile_ms / quiet_ms,
    }


def log_bytes(partition: Path) -> int:
    """The size of a partition's segments; one may be renamed or removed meanwhile."""
    try:
        return sum(file.stat().st_size for file in partition.glob("*.log"))
    except FileNotFoundError:
        return 0


def watch_growth(partition: Path, before: int, wanted: int) -> tuple[float, float]:
    """When a log began to grow, and when it had reached a size."""
    deadline = Deadline(SECONDS_MAX)
    began = time.perf_counter()
    while (size := log_bytes(partition)) < wanted:
        if size <= before:
            began = time.perf_counter()
        if deadline.passed:
            raise ProcessFailed(f"{partition} has {size} of {wanted} bytes after {SECONDS_MAX:g} s")
        time.sleep(LOOK_S)
    return began, time.perf_counter()
