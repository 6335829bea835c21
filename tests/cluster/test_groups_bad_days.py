"""Faults of groups: members that stall or die, brokers that are killed, clients that stop half way."""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka.protocol.consumer import JoinGroupRequest

from penstock.testing.processes import Child
from protocol.group_members import (
    CLASSIC_RANGE,
    EVERY_PROTOCOL,
    QUICK,
    SECONDS_MAX,
    Member,
    Ownership,
    await_commits,
    await_values,
    committed,
    fill,
    numbered,
    settle,
)
from protocol.raw import NONE, Wire
from protocol.topics import create_topic, wait_until

PARTITIONS = 4
GROUP, TOPIC = "group", "topic"
SHORT_SESSIONS = {
    **QUICK,
    "group.consumer.session.timeout.ms": "2000",
    "offsets.topic.num.partitions": "3",
}
MEMBER_ID_REQUIRED = 79
UNKNOWN_MEMBER_ID = 25
PROGRAM = Path(__file__).parent / "member_program.py"


@pytest.fixture
def broker(start_broker: Any) -> Any:
    made = start_broker(SHORT_SESSIONS)
    create_topic(made.bootstrap, TOPIC, partitions=PARTITIONS)
    return made


class CommitWatch:
    """Polls the committed offsets, and records whether any went back."""

    def __init__(self, broker: Any) -> None:
        self.highest = [-1] * PARTITIONS
        self.faults: list[str] = []
        self._broker = broker
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._broker.bootstrap, "group.id": GROUP, "log_level": 0})
        places = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        while not self._stopping.wait(0.05):
            try:
                found = consumer.committed(places, timeout=2.0)
            except KafkaException:
                continue
            for part in found:
                if part.error is not None:
                    continue
                offset = max(part.offset, -1)
                if offset < self.highest[part.partition]:
                    self.faults.append(f"{part.partition}: {self.highest[part.partition]} -> {offset}")
                self.highest[part.partition] = max(offset, self.highest[part.partition])
        consumer.close()

    def __enter__(self) -> CommitWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(SECONDS_MAX)


@contextmanager
def member_process(broker: Any, protocol: str, log: Path) -> Iterator[Child]:
    child = Child([sys.executable, str(PROGRAM), broker.bootstrap, GROUP, TOPIC, protocol], log=log)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGCONT)
        child.kill()


def events(log: Path, event: str) -> list[dict[str, Any]]:
    lines = [
        line for line in log.read_text(errors="replace").splitlines() if line.startswith("{") and line.endswith("}")
    ]
    return [fact for fact in map(json.loads, lines) if fact["event"] == event]


def test_committed_offsets_survive_kill_9(broker: Any) -> None:
    for number in range(1, 20):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
        places = [
            TopicPartition(TOPIC, index, number * 10 + index, metadata=f"n{number}") for index in range(PARTITIONS)
        ]
        consumer.commit(offsets=places, asynchronous=False)
        if number % 5 == 0:
            broker.kill()
            broker.start()
            assert committed(broker, GROUP, TOPIC, PARTITIONS) == [number * 10 + index for index in range(PARTITIONS)]
        consumer.close()


@pytest.mark.parametrize("protocol", EVERY_PROTOCOL.values(), ids=EVERY_PROTOCOL.keys())
def test_members_continue_after_the_broker_is_killed(broker: Any, protocol: dict[str, str]) -> None:
    fill(broker, TOPIC, numbered(40), partitions=PARTITIONS)
    with CommitWatch(broker) as watch, Member(broker, GROUP, [TOPIC], **protocol) as first:
        await_values(numbered(40), first)
        with Member(broker, GROUP, [TOPIC], **protocol) as second:
            settle(first, second, places=PARTITIONS)
            broker.kill()
            broker.start()
            fill(broker, TOPIC, numbered(40, start=40), partitions=PARTITIONS)
            await_values(numbered(80), first, second)
            settle(first, second, places=PARTITIONS)
            await_commits(broker, GROUP, TOPIC, PARTITIONS, total=80)
    assert watch.faults == []


@pytest.mark.parametrize("protocol", EVERY_PROTOCOL.values(), ids=EVERY_PROTOCOL.keys())
def test_a_broker_killed_in_the_middle_of_rebalances(
    broker: Any, randomness: random.Random, protocol: dict[str, str]
) -> None:
    """In each round a member joins, the broker is killed a moment later, and the member leaves after the rebalance."""
    total = 0
    with CommitWatch(broker) as watch, Member(broker, GROUP, [TOPIC], name="stays", **protocol) as stays:
        settle(stays, places=PARTITIONS)
        for _ in range(4):
            with Member(broker, GROUP, [TOPIC], name="comes", **protocol) as comes:
                time.sleep(randomness.random() * 0.5)
                broker.kill()
                broker.start()
                fill(broker, TOPIC, numbered(40, start=total), partitions=PARTITIONS)
                await_values(numbered(40, start=total), stays, comes)
                total += 40
                settle(stays, comes, places=PARTITIONS)
            settle(stays, places=PARTITIONS)
    assert watch.faults == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_paused_longer_than_its_session_is_removed_and_rejoins(
    broker: Any, protocol: str, tmp_path: Path
) -> None:
    fill(broker, TOPIC, numbered(40), partitions=PARTITIONS)
    log = tmp_path / "member.log"
    other_settings = CLASSIC_RANGE if protocol == "classic" else {"group.protocol": protocol}
    with CommitWatch(broker) as watch, member_process(broker, protocol, log) as paused:
        wait_until(lambda: len(events(log, "read")) >= 40, what="forty values", seconds_max=SECONDS_MAX)
        with Member(broker, GROUP, [TOPIC], name="other", **other_settings) as other:
            wait_until(lambda: len(other.owned) == 2, what="half of it", seconds_max=SECONDS_MAX)
            paused.send_signal(signal.SIGSTOP)
            settle(other, places=PARTITIONS)
            fill(broker, TOPIC, numbered(40, start=40), partitions=PARTITIONS)
            await_values(numbered(40, start=40), other)
            rejoined = len(events(log, "assigned"))
            paused.send_signal(signal.SIGCONT)
            wait_until(lambda: len(other.owned) == 2, what="half of it again", seconds_max=SECONDS_MAX)
            wait_until(lambda: len(events(log, "assigned")) > rejoined, what="its return", seconds_max=SECONDS_MAX)
            fill(broker, TOPIC, numbered(40, start=80), partitions=PARTITIONS)

            def is_complete() -> bool:
                values = {fact["value"].encode() for fact in events(log, "read")} | set(other.values)
                return set(numbered(120)) <= values

            wait_until(is_complete, what="every value", seconds_max=SECONDS_MAX)
    assert watch.faults == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_killed_member_is_replaced(broker: Any, protocol: str, tmp_path: Path) -> None:
    settings = CLASSIC_RANGE if protocol == "classic" else {"group.protocol": protocol}
    log = tmp_path / "member.log"
    with Member(broker, GROUP, [TOPIC], name="other", **settings) as other:
        settle(other, places=PARTITIONS)
        with member_process(broker, protocol, log) as doomed:
            wait_until(lambda: len(other.owned) == 2, what="half of it", seconds_max=SECONDS_MAX)
            doomed.kill()
            settle(other, places=PARTITIONS)
        assert len(other.owned) == PARTITIONS


def join_request(member_id: str, session_ms: int, rebalance_ms: int) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(
        name="range", metadata=b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"
    )
    return JoinGroupRequest(
        version=5,
        group_id=GROUP,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol],
    )


def test_a_member_that_joins_and_never_syncs_delays_the_group_no_longer_than_its_timeout(broker: Any) -> None:
    assert committed(broker, GROUP, TOPIC, 1) == [-1001], "the request creates the coordinator"
    with Wire(broker.bootstrap) as silent:

        def leads() -> bool:
            given = silent.ask(join_request("", 2000, 2000))
            assert given.error_code == MEMBER_ID_REQUIRED
            joined = silent.ask(join_request(given.member_id, 2000, 2000))
            # A member id that is not used in time expires.
            assert joined.error_code in (NONE, UNKNOWN_MEMBER_ID)
            return bool(joined.leader == given.member_id)

        wait_until(leads, what="a leader, so that all members wait for its assignment")
        with Member(broker, GROUP, [TOPIC], **CLASSIC_RANGE) as member:
            settle(member, places=PARTITIONS)


def test_a_connection_that_drops_while_it_waits_to_join_is_removed(broker: Any) -> None:
    with Member(broker, GROUP, [TOPIC], **CLASSIC_RANGE) as member:
        settle(member, places=PARTITIONS)
        for _ in range(3):
            with Wire(broker.bootstrap) as visitor:
                given = visitor.ask(join_request("", 1000, 1000))
                assert given.error_code == MEMBER_ID_REQUIRED
                visitor.send(join_request(given.member_id, 1000, 1000))
        settle(member, places=PARTITIONS)
        fill(broker, TOPIC, numbered(8), partitions=PARTITIONS)
        await_values(numbered(8), member)


@pytest.mark.parametrize("protocol", EVERY_PROTOCOL.values(), ids=EVERY_PROTOCOL.keys())
def test_a_clean_restart_keeps_the_group(start_broker: Any, protocol: dict[str, str]) -> None:
    # Sessions outlast the restart and the reconnect, so no member is removed.
    broker, ownership = start_broker(QUICK), Ownership()
    create_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
    with (
        Member(broker, GROUP, [TOPIC], name="a", ownership=ownership, **protocol) as first,
        Member(broker, GROUP, [TOPIC], name="b", ownership=ownership, **protocol) as second,
    ):
        settle(first, second, places=PARTITIONS)
        broker.restart()
        fill(broker, TOPIC, numbered(40), partitions=PARTITIONS)
        await_values(numbered(40), first, second)
        settle(first, second, places=PARTITIONS)
    assert not ownership.faults
