"""Making topics for tests, with librdkafka's admin client."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient, NewTopic

READY_SECONDS_MAX = 20.0
NAME_LENGTH_MAX = 120


def fresh_name(hint: str) -> str:
    """A topic name nobody used before, that says which test it is of."""
    return f"{re.sub('[^a-zA-Z0-9._-]+', '-', hint)[:NAME_LENGTH_MAX].strip('-')}-{uuid.uuid4().hex[:8]}"


def create_topic(bootstrap: str, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    """Create it and return when clients can use it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [(_, made)] = admin.create_topics([NewTopic(name, partitions, 1, config=dict(configs or {}))]).items()
    made.result(READY_SECONDS_MAX)
    wait_until(lambda: partitions_with_leaders(admin, name) == partitions, what=f"leaders of {name}")


def partitions_with_leaders(admin: AdminClient, name: str) -> int:
    metadata = admin.list_topics(name, timeout=READY_SECONDS_MAX).topics[name]
    return sum(partition.leader >= 0 for partition in metadata.partitions.values())


def attempts(*, what: str, seconds_max: float = READY_SECONDS_MAX, pause_seconds: float = 0.02) -> Iterator[int]:
    """Count up until the caller breaks off; fail when it takes too long."""
    end = time.monotonic() + seconds_max
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1
        time.sleep(pause_seconds)
    raise AssertionError(f"no {what} within {seconds_max:g} s")


def wait_until(ready, *, what: str, seconds_max: float = READY_SECONDS_MAX) -> None:  # type: ignore[no-untyped-def]
    """Wait for a fact that must become true; how long it takes proves nothing either way."""
    for _ in attempts(what=what, seconds_max=seconds_max):
        if ready():
            return


@contextmanager
def closing_consumer(consumer):  # type: ignore[no-untyped-def]
    try:
        yield consumer
    finally:
        consumer.close()
