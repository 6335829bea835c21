"""The example of exactly once: killed again and again, it neither loses a message nor writes one twice."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.testing.processes import Child
from protocol.clients.confluent import Confluent
from protocol.topics import fresh_name, wait_until

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "read_process_write.py"
BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
MESSAGES = 6_000
KILLS = 4
SECONDS_MAX = 400.0


def read_committed(broker: Any, topic: str) -> list[bytes | None]:
    values = []
    for partition in (0, 1):
        with Confluent(broker.bootstrap).reader(topic, partition=partition, isolation="read_committed") as reader:
            values += [record.value for record in reader.read(0)]
    return values


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_records_are_processed_exactly_once_although_the_process_is_killed(
    broker: Any, make_topic: Any, tmp_path: Path
) -> None:
    source, target, group = make_topic(partitions=2), make_topic(partitions=2), fresh_name("rpw")
    feed = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(MESSAGES):
        feed.produce(source, b"m%d" % number, key=b"%d" % number)
    assert feed.flush(SECONDS_MAX) == 0
    names = ["--bootstrap", broker.bootstrap, "--source", source, "--target", target, "--group", group]
    command = [sys.executable, str(EXAMPLE), *names, "--name", group]
    randomness = random.Random(7)

    for number in range(KILLS):
        child = Child(command, log=tmp_path / f"{number}.log")
        time.sleep(0.5 + randomness.random() * 1.5)
        child.kill()
    last = Child(command, log=tmp_path / "last.log")
    try:
        wait_until(lambda: len(read_committed(broker, target)) >= MESSAGES, what="all results", seconds_max=SECONDS_MAX)
    finally:
        last.stop()

    written = read_committed(broker, target)
    assert Counter(written) == Counter(b"M%d" % number for number in range(MESSAGES))
