"""The works of a run: their messages, rounds and sizes.

A scenario is a list of steps on one fresh topic; a step is one execution of the load program. Warm rounds are
executed on both sides and not counted: the JVM compiles its hot paths while they run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One execution of the load program, or several at once; their figures are stored under ``work``."""

    work: str
    mode: str
    arguments: tuple[str, ...]
    clients: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Steps on one topic, which is created for every round and side."""

    name: str
    steps: tuple[Step, ...]
    warm_rounds: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The amounts of data: enough for seconds of work, or just enough for a functional check."""

    messages_100b: int
    messages_1kb: int
    request_seconds: int
    request_warm_rounds: int
    latency_seconds: int
    rounds: int
    stream_rounds: int
    """Rounds of works that send or read as fast as they can: each takes a second or two, and they scatter most."""
    warm_rounds: int
    partitions_restart: int
    partitions_many: int
    java_messages_1kb: int
    group_partitions: int
    groups: int
    heartbeat_seconds: float
    offsets: int
    assignor_members: int
    transactions: int
    transactions_librdkafka: int
    transactions_bulk: int
    transactions_half: int
    transactional_ids: int
    queue_messages: int
    queue_backlog: int
    """Records behind one that is held."""
    catch_up_bytes: int
    """By how much a follower lags when it returns."""
    move_bytes: int
    """The size of a topic that moves to another broker."""
    move_throttle: int
    """Bytes in a second that a throttled move may copy."""
    spark_latency_rounds: int = 1


FULL = Sizes(
    messages_100b=5_000_000,
    messages_1kb=1_500_000,
    request_seconds=4,
    request_warm_rounds=4,
    latency_seconds=8,
    rounds=3,
    stream_rounds=7,
    warm_rounds=1,
    partitions_restart=1_000,
    partitions_many=10_000,
    java_messages_1kb=1_000_000,
    group_partitions=900,
    groups=1_000,
    heartbeat_seconds=15,
    offsets=1_000_000,
    assignor_members=1_000,
    transactions=600,
    transactions_librdkafka=200,
    transactions_bulk=400,
    transactions_half=1_000,
    transactional_ids=10_000,
    queue_messages=1_000_000,
    queue_backlog=1_000_000,
    catch_up_bytes=1_000_000_000,
    move_bytes=10_000_000_000,
    move_throttle=100_000_000,
)
QUICK = Sizes(
    messages_100b=200_000,
    messages_1kb=50_000,
    request_seconds=1,
    request_warm_rounds=1,
    latency_seconds=1,
    rounds=1,
    stream_rounds=1,
    warm_rounds=0,
    partitions_restart=100,
    partitions_many=500,
    java_messages_1kb=50_000,
    group_partitions=100,
    groups=50,
    heartbeat_seconds=3,
    offsets=20_000,
    assignor_members=50,
    transactions=50,
    transactions_librdkafka=20,
    transactions_bulk=20,
    transactions_half=20,
    transactional_ids=200,
    queue_messages=20_000,
    queue_backlog=10_000,
    catch_up_bytes=50_000_000,
    move_bytes=100_000_000,
    move_throttle=10_000_000,
)


def produce(work: str, messages: int, size: int, *arguments: str, clients: int = 1) -> Step:
    """Clients share the messages: one client that is slower than the broker would limit the figure."""
    counts = ("--messages", str(messages // clients), "--size", str(size))
    return Step(work=work, mode="produce", arguments=(*counts, "--acks", "1", *arguments), clients=clients)


def consume(work: str, messages: int, *, clients: int = 1) -> Step:
    """Every client reads all the messages."""
    return Step(work=work, mode="consume", arguments=("--messages", str(messages)), clients=clients)


def requests(work: str, connections: int, in_flight: int, seconds: int) -> Step:
    counts = ("--connections", str(connections), "--in-flight", str(in_flight))
    return Step(work=work, mode="requests", arguments=(*counts, "--seconds", str(seconds), "--size", "100"))


def latency(work: str, rate: int, seconds: int) -> Step:
    return Step(work=work, mode="latency", arguments=("--rate", str(rate), "--seconds", str(seconds), "--size", "100"))


def scenarios(sizes: Sizes) -> tuple[Scenario, ...]:
    """All works of the comparison, in the order they run."""
    small, large = sizes.messages_100b, sizes.messages_1kb
    plain_and_idempotent = (
        produce("produce-100-plain", small, 100),
        produce("produce-100-idempotent", small, 100, "--idempotent"),
    )
    return (
        _stream("100b", sizes, produce("produce-100", small, 100), consume("consume-100", small)),
        _stream("100b-two", sizes, produce("produce-100-two", small, 100, clients=2)),
        _stream(
            "1kb",
            sizes,
            produce("produce-1k", large, 1000),
            consume("consume-1k", large),
            consume("consume-1k-two", large, clients=2),
        ),
        _stream("lz4", sizes, produce("produce-1k-lz4", large, 1000, "--compression", "lz4")),
        _stream("idempotent", sizes, *plain_and_idempotent),
        Scenario(
            name="requests",
            steps=(requests("requests-8x8", 8, 8, sizes.request_seconds),),
            warm_rounds=sizes.request_warm_rounds,
            rounds=sizes.rounds,
        ),
        _scenario("request", sizes, requests("requests-1x1", 1, 1, sizes.request_seconds)),
        _scenario("latency-1000", sizes, latency("latency-1000", 1_000, sizes.latency_seconds)),
        _scenario("latency-10000", sizes, latency("latency-10000", 10_000, sizes.latency_seconds)),
    )


def _scenario(name: str, sizes: Sizes, *steps: Step) -> Scenario:
    return Scenario(name=name, steps=steps, warm_rounds=sizes.warm_rounds, rounds=sizes.rounds)


def _stream(name: str, sizes: Sizes, *steps: Step) -> Scenario:
    return Scenario(name=name, steps=steps, warm_rounds=sizes.warm_rounds, rounds=sizes.stream_rounds)
