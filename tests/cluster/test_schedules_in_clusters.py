"""Schedules on a real cluster whose brokers are killed (-9) at random: each is delivered once, and none early.

A hundred kills while a hundred thousand schedules fire, move and are cancelled, in about half an hour:

    PENSTOCK_TEST_KILLS=100 pytest -m soak -s tests/cluster/test_schedules_in_clusters.py
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cluster.replicated import admin, cluster_on, create, in_sync, until
from penstock.testing.processes import Deadline
from penstock.testing.zookeeper import ZooKeeper
from soak_time import kills

KILLS = kills(few=3)
SCHEDULES_PER_KILL = 1_000
PARTITIONS = 3
DELAY_MS_MAX = 3_000
FAR_MS = 24 * 3_600_000
WAIT_S = 120.0
DELIVER_AT = "penstock-deliver-at"
DUE = "penstock-due-ms"


class Agenda:
    """Writes, moves and cancels schedules, and knows what has to be delivered."""

    def __init__(self, bootstrap: str, randomness: Random) -> None:
        self.owed: dict[str, str] = {}
        """Values that are delivered once, by schedule."""
        self.dubious: set[tuple[str, str]] = set()
        """What was moved or cancelled about when it was due: it is delivered once at most."""
        self.written = 0
        self._random = randomness
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, "message.timeout.ms": 120_000}
        )

    def write(self, count: int) -> None:
        """So many schedules: of each ten, eight are due soon, of which two will be changed, and two are far away."""
        for _ in range(count):
            self.written += 1
            number = self.written
            key, value, kind = f"id-{number}", str(number), number % 10
            self._schedule(key, value, FAR_MS if kind in (2, 3) else self._soon())
            if kind in (0, 1):
                self.dubious.add((key, value))
            elif kind > 3:
                self.owed[key] = value
        self._producer.poll(0)

    def change(self, since: int) -> None:
        """Cancel and move schedules from one on: those that were due soon perhaps too late."""
        for number in range(since + 1, self.written + 1):
            key, kind = f"id-{number}", number % 10
            if kind in (0, 2):
                self._schedule(key, None, 0)
            elif kind in (1, 3):
                self.owed[key] = f"moved-{number}"
                self._schedule(key, self.owed[key], self._soon())
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S) == 0

    def _soon(self) -> int:
        return self._random.randrange(DELAY_MS_MAX)

    def _schedule(self, key: str, value: str | None, delay_ms: int) -> None:
        due = int(time.time() * 1000) + delay_ms
        headers = [] if value is None else [(DELIVER_AT, str(due))]
        self._producer.produce("later", key=key, value=value, headers=headers)


def read_until(bootstrap: str, owed: set[tuple[str, str]]) -> tuple[Counter[tuple[str, str]], list[str]]:
    """What is delivered, until that is everything owed; and the keys of what was delivered early.

    The target stamps records with the time at which it appends them.
    """
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": "read_uncommitted", "log_level": 0}
    )
    reader.assign([TopicPartition("due", index, 0) for index in range(PARTITIONS)])
    found: Counter[tuple[str, str]] = Counter()
    early: list[str] = []
    deadline = Deadline(WAIT_S)
    while not owed <= found.keys() and not deadline.passed:
        for message in reader.consume(1_000, 0.2):
            assert message.error() is None, message.error()
            key = (message.key() or b"").decode()
            found[key, (message.value() or b"").decode()] += 1
            if message.timestamp()[1] < int(dict(message.headers() or [])[DUE]):
                early.append(key)
    reader.close()
    return found, early


@pytest.mark.soak
@pytest.mark.timeout(900 + 60 * KILLS)
def test_killed_brokers_of_a_cluster_deliver_every_schedule_once(tmp_path: Path, randomness: Random) -> None:
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, tmp_path) as cluster:
        create(cluster, "due", partitions=PARTITIONS, message_timestamp_type="LogAppendTime")
        create(cluster, "later", partitions=PARTITIONS, schedule_target="due")
        bootstrap = ",".join(broker.bootstrap for broker in cluster.brokers)
        agenda = Agenda(bootstrap, randomness)

        for _ in range(KILLS):
            begun = agenda.written
            agenda.write(SCHEDULES_PER_KILL)
            killed = randomness.choice(cluster.brokers)
            killed.kill()
            time.sleep(randomness.random())
            agenda.change(since=begun)
            killed.start()
            until(cluster, lambda found: all(in_sync(found, topic, 3) for topic in ("due", "later")))
        agenda.flush()

        assert len(admin(cluster).list_topics().brokers) == 3
        owed = set(agenda.owed.items())
        found, early = read_until(bootstrap, owed)
        print(f"{KILLS} kills, {agenda.written} schedules, {found.total()} delivered")
        assert not owed - found.keys(), f"{len(owed - found.keys())} of {len(owed)} are not delivered"
        assert set(found.values()) == {1}
        assert not found.keys() - owed - agenda.dubious, "delivered, though it was moved or cancelled long before"
        assert not early
