"""Share consumers in processes of their own, and what they measured together: librdkafka's, by confluent-kafka."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench.client_program import LoadFailed
from bench.comparison import moved

POLL_SECONDS = 0.2
READ_SECONDS_MAX = 240.0
ADMIN_SECONDS_MAX = 60
WARM_UP_SECONDS = 1.0
"""Latencies are counted from so long after the first delivery on."""

SPAWNED = multiprocessing.get_context("spawn")


def configure_group(bootstrap: str, group: str, **configs: str) -> None:
    """Settings of a share group, which reads from the earliest record; an underscore stands for a dot."""
    wanted = {"share.auto.offset.reset": "earliest"} | {name.replace("_", "."): item for name, item in configs.items()}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(ADMIN_SECONDS_MAX)


@contextmanager
def consumer_of(bootstrap: str, group: str, topic: str, *, explicit: bool) -> Iterator[Any]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "share.acknowledgement.mode": "explicit" if explicit else "implicit",
        "log_level": 0,
    }
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        yield consumer


def read_until(bootstrap: str, group: str, topic: str, messages: int, explicit: bool, total: Any, found: Any) -> None:
    """One consumer: read until all of them together have had so many records."""
    count = size = 0
    first_at = last_at = 0.0
    with consumer_of(bootstrap, group, topic, explicit=explicit) as consumer:
        give_up_at = time.monotonic() + READ_SECONDS_MAX
        while total.value < messages and time.monotonic() < give_up_at:
            polled = consumer.poll(POLL_SECONDS)
            if not polled:
                continue
            now = time.monotonic()
            first_at, last_at = first_at or now, now
            for message in polled:
                if message.error() is not None:
                    raise LoadFailed(str(message.error()))
                size += len(message.value())
                if explicit:
                    consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            count += len(polled)
            with total.get_lock():
                total.value += len(polled)
        if count:
            consumer.commit_sync(READ_SECONDS_MAX)
    found.put((count, size, first_at, last_at))


def hold(bootstrap: str, group: str, topic: str, holding: Any, released: Any) -> None:
    """A consumer that holds the first record and acknowledges it never."""
    with consumer_of(bootstrap, group, topic, explicit=True) as consumer:
        while not (polled := consumer.poll(POLL_SECONDS)):
            pass
        for message in polled:
            if message.offset() > 0:
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
        consumer.commit_sync(READ_SECONDS_MAX)
        holding.set()
        released.wait(READ_SECONDS_MAX)


@contextmanager
def first_record_held(bootstrap: str, group: str, topic: str) -> Iterator[None]:
    """Have a consumer that holds the first record of a topic for as long as the group's locks last."""
    holding, released = SPAWNED.Event(), SPAWNED.Event()
    process = SPAWNED.Process(target=hold, args=(bootstrap, group, topic, holding, released))
    process.start()
    try:
        if not holding.wait(READ_SECONDS_MAX):
            raise LoadFailed(f"nobody holds the first record of {topic}")
        yield
    finally:
        released.set()
        process.join()


def read_shared(
    bootstrap: str,
    group: str,
    topic: str,
    messages: int,
    *,
    consumers: int,
    explicit: bool = False,
    seconds_max: float = READ_SECONDS_MAX,
) -> dict[str, float]:
    """What several consumers read together, from the first record of any to the last of any."""
    total, found = SPAWNED.Value("q", 0), SPAWNED.Queue()
    arguments = (bootstrap, group, topic, messages, explicit, total, found)
    processes = [SPAWNED.Process(target=read_until, args=arguments) for _ in range(consumers)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + seconds_max
    while total.value < messages and time.monotonic() < deadline:
        if not any(process.is_alive() for process in processes):
            break
        time.sleep(POLL_SECONDS)
    read = total.value
    with total.get_lock():
        total.value = max(total.value, messages)
    each = [found.get(timeout=READ_SECONDS_MAX) for _ in processes]
    for process in processes:
        process.join()
    active = [figures for figures in each if figures[0]]
    if not active:
        raise LoadFailed(f"{consumers} share consumers read nothing of {topic} within {seconds_max:g} s")
    seconds = max(figures[3] for figures in active) - min(figures[2] for figures in active)
    return moved(float(read), float(sum(figures[1] for figures in each)), max(seconds, 1e-3))


def produce_steadily(bootstrap: str, topic: str, rate: int, stopping: Any) -> None:
    """Produce records that say when they were produced, at a steady rate, until told to stop."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1"})
    next_at = time.monotonic()
    while not stopping.is_set():
        now = time.monotonic()
        while next_at <= now:
            producer.produce(topic, f"{next_at:.6f}".encode().ljust(100, b"."))
            next_at += 1.0 / rate
        producer.poll(max(0.0, next_at - time.monotonic()))
    producer.flush()


def latency_shared(bootstrap: str, group: str, topic: str, *, rate: int, seconds: float) -> dict[str, float]:
    """From a record's production, by a process of its own, to its delivery to a share consumer."""
    waits: list[float] = []
    stopping = SPAWNED.Event()
    process = SPAWNED.Process(target=produce_steadily, args=(bootstrap, topic, rate, stopping))
    process.start()
    try:
        with consumer_of(bootstrap, group, topic, explicit=False) as consumer:
            begin = time.monotonic() + READ_SECONDS_MAX
            while time.monotonic() < begin + seconds:
                for message in consumer.poll(POLL_SECONDS):
                    arrived = time.monotonic()
                    produced = float(message.value().rstrip(b"."))
                    begin = min(begin, arrived + WARM_UP_SECONDS)
                    if produced >= begin:
                        waits.append(arrived - produced)
            consumer.commit_sync(READ_SECONDS_MAX)
    finally:
        stopping.set()
        process.join()
    if not waits:
        raise LoadFailed(f"no share consumer read what was produced to {topic}")
    waits.sort()
    at = {name: waits[int(len(waits) * part)] * 1000 for name, part in (("ms_p50", 0.5), ("ms_p99", 0.99))}
    return {**at, "messages": float(len(waits))}
