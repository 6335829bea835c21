"""kill -9 at random moments: acknowledged messages are at their offsets, and with idempotence only once."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from cluster.histories import (
    Follower,
    NumberedProducer,
    check_in_order,
    check_no_duplicates,
    check_nothing_is_lost,
    check_readers_saw_the_log,
    numbers_by_offset,
    read_all,
)
from protocol.topics import create_topic, wait_until
from soak_time import kills

KILLS = kills(few=8)
PROGRESS_SECONDS_MAX = 120.0


def kill_at_random_moments(
    broker: Any, randomness: random.Random, producers: list[NumberedProducer], count: int
) -> None:
    """Kill the broker repeatedly, each time after every producer has made progress."""
    for _ in range(count):
        goals = [len(producer.history.offsets) + randomness.randrange(1, 300) for producer in producers]
        wait_until(
            lambda: all(
                len(producer.history.offsets) >= goal
                for producer, goal in zip(producers, goals, strict=True)  # noqa: B023
            ),
            what="progress after a restart",
            seconds_max=PROGRESS_SECONDS_MAX,
        )
        time.sleep(randomness.random() * 0.03)
        broker.kill()
        broker.start()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("flush", ["os", pytest.param("group", marks=pytest.mark.penstock_only)])
def test_no_acknowledged_message_is_lost_and_none_is_duplicated_with_idempotence(
    start_broker: Any, randomness: random.Random, flush: str
) -> None:
    broker = start_broker()
    configs = {"segment.bytes": "1048576", **({"flush": "group"} if flush == "group" else {})}
    kinds = {
        "once": {"enable.idempotence": True},
        "at-least-once": {"acks": "1", "enable.idempotence": False},
        "squeezed": {"enable.idempotence": True, "compression.type": "lz4", "batch.num.messages": 20},
    }
    for name in kinds:
        create_topic(broker.bootstrap, name, configs=configs)
    producers = [NumberedProducer(broker.bootstrap, name, **settings) for name, settings in kinds.items()]
    followers = {name: Follower(broker.bootstrap, name) for name in kinds}
    for thread in (*producers, *followers.values()):
        thread.start()

    try:
        kill_at_random_moments(broker, randomness, producers, KILLS if flush == "os" else -(-KILLS // 4))
    finally:
        histories = [producer.finish() for producer in producers]
        seen = {
            history.topic: followers[history.topic].finish(last_offset=max(history.offsets.values(), default=-1))
            for history in histories
        }

    for history in histories:
        assert not history.refused, history.refused[:3]
        log = numbers_by_offset(read_all(broker.bootstrap, history.topic))
        check_nothing_is_lost(history, log)
        check_readers_saw_the_log(seen[history.topic], log)
        assert set(log.values()) == set(range(history.sent))
        assert sorted(log) == list(range(len(log))), "offsets have gaps"
        if history.topic != "at-least-once":
            check_no_duplicates(log)
            check_in_order(log)
    check_a_clean_restart_changes_nothing(broker, [history.topic for history in histories])


def check_a_clean_restart_changes_nothing(broker: Any, topics: list[str]) -> None:
    before = {topic: numbers_by_offset(read_all(broker.bootstrap, topic)) for topic in topics}
    broker.restart()
    assert {topic: numbers_by_offset(read_all(broker.bootstrap, topic)) for topic in topics} == before


@pytest.mark.slow
def test_a_broker_killed_while_it_recovers_recovers_the_next_time(start_broker: Any, randomness: random.Random) -> None:
    broker = start_broker()
    create_topic(broker.bootstrap, "once", configs={"segment.bytes": "1048576"})
    producer = NumberedProducer(broker.bootstrap, "once", **{"enable.idempotence": True})
    producer.start()

    try:
        for _ in range(-(-KILLS // 4)):
            kill_at_random_moments(broker, randomness, [producer], 1)
            broker.kill()
            for _ in range(3):
                # Kill it during its start, before it serves.
                start_and_kill(broker, after_seconds=randomness.random() * 0.4)
            broker.start()
    finally:
        history = producer.finish()

    log = numbers_by_offset(read_all(broker.bootstrap, "once"))
    check_nothing_is_lost(history, log)
    check_no_duplicates(log)
    check_in_order(log)


def start_and_kill(broker: Any, *, after_seconds: float) -> None:
    from penstock.testing.processes import Child

    child = Child(broker.command, log=broker.log)
    time.sleep(after_seconds)
    child.kill()


def test_a_clean_restart_changes_no_log(start_broker: Any) -> None:
    broker = start_broker()
    create_topic(broker.bootstrap, "kept", partitions=3, configs={"retention.ms": "12345678"})
    producer = NumberedProducer(broker.bootstrap, "kept", **{"enable.idempotence": True})
    producer.start()
    wait_until(lambda: len(producer.history.offsets) > 2000, what="progress")
    history = producer.finish()
    before = numbers_by_offset(read_all(broker.bootstrap, "kept"))

    broker.restart()

    assert numbers_by_offset(read_all(broker.bootstrap, "kept")) == before
    check_nothing_is_lost(history, before)
    again = NumberedProducer(broker.bootstrap, "kept", **{"enable.idempotence": True})
    again.start()
    wait_until(lambda: len(again.history.offsets) > 10, what="new messages")
    assert min(again.finish().offsets.values()) == len(before)


def test_a_producer_continues_its_sequence_after_a_clean_restart(start_broker: Any) -> None:
    broker = start_broker()
    create_topic(broker.bootstrap, "once")
    producer = NumberedProducer(broker.bootstrap, "once", **{"enable.idempotence": True})
    producer.start()

    for _ in range(3):
        goal = len(producer.history.offsets) + 500
        wait_until(lambda: len(producer.history.offsets) >= goal, what="progress")  # noqa: B023
        broker.restart()
    history = producer.finish()

    log = numbers_by_offset(read_all(broker.bootstrap, "once"))
    assert not history.refused
    assert [log[offset] for offset in sorted(log)] == list(range(history.sent))
