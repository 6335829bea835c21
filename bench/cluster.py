"""Three brokers against three: throughput, single requests and latency with three replicas and acks=all, and what a
producer notices when the leader is killed or stopped."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from bench.client_program import run_client
from bench.comparison import MEGABYTE, costed, counted
from bench.samples import KAFKA, Sample
from bench.sides import Contender, Side, turns
from bench.works import Sizes
from penstock.testing.apache_kafka import ApacheKafkaCluster
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import Deadline, ProcessFailed
from penstock.testing.zookeeper import ZooKeeper

SESSION_TIMEOUT_MS = 2_000
REPLICAS = 3
LOAD_PARTS = ("cluster-100b", "cluster-1kb", "cluster-requests", "cluster-latency")
KILL_PART, STOP_PART = "cluster-kill", "cluster-stop"
PARTS = (*LOAD_PARTS, KILL_PART, STOP_PART)
WARM_ROUNDS = 1
FAILOVER_PAUSE_S = 0.005
"""Between two records of the producer that meets a failure."""
STEADY_S = 2.0
"""How long that producer runs before the failure and after it."""
FAILOVER_S_MAX = 60.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A work of the load program on a topic with three replicas; `at_leader` if it speaks to one broker alone."""

    work: str
    mode: str
    arguments: tuple[str, ...]
    at_leader: bool = False


def loads_of(part: str, sizes: Sizes) -> tuple[Load, ...]:
    if part == "cluster-100b":
        counts = ("--messages", str(sizes.messages_100b // 2), "--size", "100")
        return (Load(work="cluster-produce-100", mode="produce", arguments=(*counts, "--acks", "all")),)
    if part == "cluster-1kb":
        counts = ("--messages", str(sizes.messages_1kb // 2), "--size", "1000")
        return (Load(work="cluster-produce-1k", mode="produce", arguments=(*counts, "--acks", "all")),)
    if part == "cluster-requests":
        shape = ("--connections", "8", "--in-flight", "8", "--seconds", str(sizes.request_seconds))
        arguments = (*shape, "--size", "100", "--acks", "all")
        return (Load(work="cluster-requests-8x8", mode="requests", arguments=arguments, at_leader=True),)
    assert part == "cluster-latency", part
    arguments = ("--rate", "1000", "--seconds", str(sizes.latency_seconds), "--size", "100", "--acks", "all")
    return (Load(work="cluster-latency-1000", mode="latency", arguments=arguments),)


def measure_cluster(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    """The chosen works on fresh clusters of three, one after the other: six brokers at once would share two cores."""
    chosen = [part for part in PARTS if part in parts]
    if not chosen:
        return
    for number, contender in turns(contenders, sizes.rounds):
        with started_cluster(contender, data) as side:
            for part in chosen:
                for sample in _work(part, side, number, sizes):
                    yield from counted(sample, say)
            resident = {"resident_mb": side.usage().resident_bytes / MEGABYTE}
            yield from counted(Sample(work="cluster-memory-after", side=side.name, round=number, values=resident), say)


def _work(part: str, side: Side, number: int, sizes: Sizes) -> Iterator[Sample]:
    if part in (KILL_PART, STOP_PART):
        values = meet_failure(side, part)
        yield Sample(work=part, side=side.name, round=number, values=values)
        return
    for load in loads_of(part, sizes):
        for warm in range(WARM_ROUNDS + 1):
            topic = f"bench-{part}-{warm}"
            side.create_topics([topic], partitions=1)
            values = _run(load, side, topic)
            if warm == WARM_ROUNDS:
                yield Sample(work=load.work, side=side.name, round=number, values=values)
            side.delete_topics([topic])


def _run(load: Load, side: Side, topic: str) -> dict[str, float]:
    bootstrap = address_of_leader(side, topic) if load.at_leader else side.bootstrap
    return costed(side, lambda: run_client(load.mode, bootstrap, topic, *load.arguments))


def leader_of(side: Side, topic: str) -> tuple[int, str]:
    """The id and address of the broker that leads a topic's only partition."""
    deadline = Deadline(FAILOVER_S_MAX)
    while not deadline.passed:
        found = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 2}).list_topics(topic, timeout=10)
        broker = found.brokers.get(found.topics[topic].partitions[0].leader)
        if broker is not None:
            return broker.id, f"{broker.host}:{broker.port}"
    raise ProcessFailed(f"{side.name}: {topic} has no leader")


def address_of_leader(side: Side, topic: str) -> str:
    return leader_of(side, topic)[1]


def meet_failure(side: Side, part: str) -> dict[str, float]:
    """Produce steadily with acks=all, end the leader, and see how long no record was acknowledged.

    All that was acknowledged must be there afterwards; the broker is started again at the end.
    """
    assert isinstance(side.broker, ApacheKafkaCluster | PenstockCluster)
    topic = f"bench-{part}"
    side.create_topics([topic], partitions=1)
    node_id, _ = leader_of(side, topic)
    broker = side.broker.brokers[node_id - 1]
    acknowledged: list[tuple[float, bytes]] = []

    def delivered(error: object, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            acknowledged.append((time.perf_counter(), value))

    producer = Producer(
        {
            "bootstrap.servers": side.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 2,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "topic.metadata.refresh.fast.interval.ms": 50,
        }
    )
    with ThreadPoolExecutor(1) as beside:
        failing = beside.submit(lambda: None)
        began = time.perf_counter()
        ended_at = 0.0
        number = 0
        while True:
            now = time.perf_counter()
            if not ended_at and now - began > STEADY_S:
                ended_at = now
                failing = beside.submit(broker.kill if part == KILL_PART else broker.stop)
            resumed = acknowledged and ended_at and acknowledged[-1][0] > ended_at and failing.done()
            if (resumed and now > max(ended_at, _after_gap(acknowledged, ended_at)) + STEADY_S) or (
                now - began > FAILOVER_S_MAX
            ):
                break
            producer.produce(topic, b"%d" % number, on_delivery=delivered)
            number += 1
            producer.poll(0)
            time.sleep(FAILOVER_PAUSE_S)
        failing.result()
    producer.flush(FAILOVER_S_MAX)
    times = [at for at, _ in acknowledged]
    gap_s = max((after - before for before, after in itertools.pairwise(times) if after > ended_at), default=0)
    found = run_client("consume", side.bootstrap, topic, "--messages", str(len({value for _, value in acknowledged})))
    broker.start()
    wait_for_all(side)
    return {
        "gap_ms": gap_s * 1000,
        "messages": float(number),
        "lost": float(len({value for _, value in acknowledged}) - found["messages"]),
        "failed": float(number - len(acknowledged)),
    }


def _after_gap(acknowledged: Sequence[tuple[float, bytes]], ended_at: float) -> float:
    """When the longest gap after the failure ended."""
    times = [at for at, _ in acknowledged if at >= ended_at]
    if len(times) < 2:
        return times[-1] if times else ended_at
    return max(itertools.pairwise(times), key=lambda pair: pair[1] - pair[0])[1]


@contextlib.contextmanager
def started_cluster(contender: Contender, data_root: Path) -> Iterator[Side]:
    """A fresh cluster of three brokers; ZooKeeper's time and memory are not counted as the brokers'."""
    data_root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"cluster-{contender.name}-", dir=data_root))
    with contextlib.ExitStack() as running:
        running.callback(shutil.rmtree, folder, ignore_errors=True)
        broker: ApacheKafkaCluster | PenstockCluster
        if contender.name == KAFKA:
            timeouts = {"broker.session.timeout.ms": str(SESSION_TIMEOUT_MS), "broker.heartbeat.interval.ms": "500"}
            broker = ApacheKafkaCluster(properties=timeouts, folder=folder)
        else:
            zookeeper = running.enter_context(ZooKeeper(folder=folder / "zookeeper"))
            broker = PenstockCluster(
                zookeeper=f"{zookeeper.connect}/bench",
                folder=folder,
                settings={"broker.session.timeout.ms": str(SESSION_TIMEOUT_MS)},
                python=str(contender.python),
            )
        running.callback(broker.close)
        side = Side(name=contender.name, broker=broker, data_root=data_root, replicas=REPLICAS)
        side.start()
        wait_for_all(side)
        yield side


def wait_for_all(side: Side) -> None:
    """Wait until Metadata names every broker, so that topics can have a replica on each."""
    deadline = Deadline(FAILOVER_S_MAX)
    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 2})
    while len(admin.list_topics(timeout=10).brokers) < REPLICAS:
        if deadline.passed:
            raise ProcessFailed(f"{side.name}: not all brokers are live\n{side.broker.tail()}")
