"""A group whose members join and leave at random while a producer counts.

Every number is seen at least once, no partition has two owners at one time, and no committed offset goes back.
PENSTOCK_TEST_SOAK_SECONDS=600 makes it long; the default is short enough for every run of the suite.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from cluster.test_groups_bad_days import GROUP, PARTITIONS, TOPIC, CommitWatch
from protocol.group_members import (
    CLASSIC_COOPERATIVE,
    CLASSIC_RANGE,
    CONSUMER,
    QUICK,
    SECONDS_MAX,
    Member,
    Ownership,
    await_commits,
    settle,
)
from protocol.topics import create_topic

SOAK_SECONDS = float(os.environ.get("PENSTOCK_TEST_SOAK_SECONDS", 24))
MEMBERS_MAX = 5
MEMBERS_MIN = 6
"""Least number of messages for the test to be meaningful."""
KINDS = {
    "range": [CLASSIC_RANGE],
    "cooperative": [CLASSIC_COOPERATIVE],
    "consumer": [CONSUMER],
    "both": [CLASSIC_RANGE, CONSUMER],
}


@contextmanager
def counting(broker: Any) -> Iterator[list[int]]:
    """Produce 0, 1, 2, ... until the end of the block; yields the count, in a list of one."""
    sent, stopping = [0], threading.Event()

    def run() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "enable.idempotence": True})
        for number in itertools.count():
            if stopping.is_set():
                break
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            sent[0] = number + 1
            if number % 50 == 0:
                producer.poll(0)
                time.sleep(0.05)
        assert producer.flush(SECONDS_MAX) == 0

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield sent
    finally:
        stopping.set()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive(), "the producer does not end"


@pytest.mark.slow
@pytest.mark.timeout(int(SOAK_SECONDS) + 240)
@pytest.mark.parametrize("kind", KINDS)
def test_members_join_and_leave_and_nothing_is_lost_or_owned_twice(
    start_broker: Any, randomness: random.Random, kind: str
) -> None:
    broker = start_broker(QUICK)
    create_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
    ownership, names, members, gone = Ownership(), itertools.count(), list[Member](), list[Member]()

    def come() -> None:
        settings = randomness.choice(KINDS[kind])
        members.append(Member(broker, GROUP, [TOPIC], name=f"m{next(names)}", ownership=ownership, **settings))

    def go() -> None:
        member = members.pop(randomness.randrange(len(members)))
        member.stop()
        gone.append(member)

    end = time.monotonic() + SOAK_SECONDS / len(KINDS)
    with CommitWatch(broker) as watch:
        with counting(broker) as sent:
            come()
            while time.monotonic() < end or len(members) + len(gone) < MEMBERS_MIN:
                time.sleep(randomness.random() * 0.8)
                if len(members) < 2 or (len(members) < MEMBERS_MAX and randomness.random() < 0.5):
                    come()
                else:
                    go()
        if len(members) <= PARTITIONS:
            settle(*members, places=PARTITIONS)
        await_commits(broker, GROUP, TOPIC, PARTITIONS, total=sent[0])
        while members:
            go()

    seen = {int(value) for member in gone for value in member.values}
    assert seen == set(range(sent[0]))
    assert not ownership.faults, ownership.faults
    assert not watch.faults, watch.faults
    assert len(gone) >= MEMBERS_MIN
