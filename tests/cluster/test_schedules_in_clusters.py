"""Schedules on a real cluster whose brokers are killed (-9) at random: each is delivered once."""

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
WAIT_S = 120.0
DELIVER_AT = "penstock-deliver-at"


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_killed_brokers_of_a_cluster_deliver_every_schedule_once(tmp_path: Path, randomness: Random) -> None:
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, tmp_path) as cluster:
        create(cluster, "due", partitions=PARTITIONS)
        create(cluster, "later", partitions=PARTITIONS, schedule_target="due")
        bootstrap = ",".join(broker.bootstrap for broker in cluster.brokers)
        to = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, "message.timeout.ms": 120_000}
        )
        owed: dict[str, str] = {}
        number = 0

        def schedule(key: str, value: str | None) -> None:
            due = int(time.time() * 1000) + randomness.randrange(DELAY_MS_MAX)
            to.produce("later", key=key, value=value, headers=[] if value is None else [(DELIVER_AT, str(due))])

        for _ in range(KILLS):
            begun = number
            while number < begun + SCHEDULES_PER_KILL:
                number += 1
                owed[f"id-{number}"] = str(number)
                schedule(f"id-{number}", str(number))
                if number % 10 == 0:
                    # Moved at once: the first may be on its way already.
                    owed[f"id-{number}"] = f"moved-{number}"
                    schedule(f"id-{number}", f"moved-{number}")
            to.poll(0)
            killed = randomness.choice(cluster.brokers)
            killed.kill()
            time.sleep(randomness.random())
            killed.start()
            until(cluster, lambda found: all(in_sync(found, topic, 3) for topic in ("due", "later")))
        assert to.flush(WAIT_S) == 0

        assert len(admin(cluster).list_topics().brokers) == 3
        reader = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "check", "isolation.level": "read_uncommitted", "log_level": 0}
        )
        reader.assign([TopicPartition("due", index, 0) for index in range(PARTITIONS)])
        found: Counter[tuple[str, str]] = Counter()
        deadline = Deadline(WAIT_S)
        while not owed.items() <= found.keys() and not deadline.passed:
            for message in reader.consume(1_000, 0.2):
                assert message.error() is None, message.error()
                found[(message.key() or b"").decode(), (message.value() or b"").decode()] += 1
        reader.close()
        assert owed.items() <= found.keys(), f"{len(owed.items() - found.keys())} of {len(owed)} are not delivered"
        assert set(found.values()) == {1}
