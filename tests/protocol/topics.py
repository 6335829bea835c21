"""Making topics for tests, with librdkafka's admin client."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka.admin import AdminClient, NewTopic

from protocol.raw import NONE, Wire

READY_SECONDS_MAX = 60.0
NAME_LENGTH_MAX = 120


def fresh_name(hint: str) -> str:
    """A unique name of a topic, group or client that begins with the hint."""
    return f"{re.sub('[^a-zA-Z0-9._-]+', '-', hint)[:NAME_LENGTH_MAX].strip('-')}-{uuid.uuid4().hex[:8]}"


def create_topic(bootstrap: str, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    """Create it and return when clients can use it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [(_, made)] = admin.create_topics([NewTopic(name, partitions, 1, config=dict(configs or {}))]).items()
    made.result(READY_SECONDS_MAX)
    with Wire(bootstrap) as wire:
        for partition in range(partitions):
            # A leader that is known may still be on its way to lead.
            wait_until(lambda: wire.listed(name, partition=partition).error_code == NONE, what=f"leader of {name}")  # noqa: B023


def attempts(*, what: str, seconds_max: float = READY_SECONDS_MAX, pause_seconds: float = 0.02) -> Iterator[int]:
    """Count up until the caller breaks off; fail when it takes too long."""
    end = time.monotonic() + seconds_max
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1
        time.sleep(pause_seconds)
    raise AssertionError(f"no {what} within {seconds_max:g} s")


def wait_until(ready: Callable[[], bool], *, what: str, seconds_max: float = READY_SECONDS_MAX) -> None:
    """Wait for a fact that must become true; how long it takes proves nothing either way."""
    for _ in attempts(what=what, seconds_max=seconds_max):
        if ready():
            return
