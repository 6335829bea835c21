"""Groups by Kafka's own Java tools: consumers with both protocols, and ConsumerGroupCommand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.testing.apache_kafka import tool_command
from penstock.testing.processes import Child
from protocol.group_members import QUICK, SECONDS_MAX, SESSION_MS, Member, committed, fill, numbered, settle
from protocol.test_kafka_java_tools import TOOLS, on, tool
from protocol.topics import fresh_name, wait_until

BROKER_SETTINGS = QUICK
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
pytestmark = pytest.mark.needs("kafka-jars")


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return fresh_name(request.node.name)


@contextmanager
def verifiable_consumer(broker: Any, group: str, topic: str, log: Path, *arguments: str) -> Iterator[Path]:
    """Kafka's consumer for system tests: it prints what happens to it as JSON lines."""
    command = tool_command(
        f"{TOOLS}.VerifiableConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", group, "--reset-policy", "earliest"),
        *arguments,
    )
    child = Child(command, log=log)
    try:
        yield log
    finally:
        child.stop()


def events(log: Path, name: str) -> list[dict[str, Any]]:
    # The last line may be only half there.
    lines = [line for line in log.read_text().rpartition("\n")[0].splitlines() if line.startswith("{")]
    return [event for event in map(json.loads, lines) if event["name"] == name]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_javas_verifiable_consumer_reads_commits_and_shares_with_librdkafka(
    broker: Any, make_topic: Any, group: str, protocol: str, tmp_path: Path
) -> None:
    topic = make_topic(partitions=4)
    fill(broker, topic, numbered(40), partitions=4)
    arguments = ["--group-protocol", protocol]
    if protocol == "classic":
        arguments = [
            "--assignment-strategy",
            "org.apache.kafka.clients.consumer.RangeAssignor",
            "--session-timeout",
            str(SESSION_MS),
        ]
        mate = {"partition.assignment.strategy": "range"}
    else:
        mate = {"group.protocol": "consumer"}
    with verifiable_consumer(broker, group, topic, tmp_path / "log", *arguments) as log:
        wait_until(
            lambda: sum(event["count"] for event in events(log, "records_consumed")) >= 40,
            what="forty records in Java",
            seconds_max=SECONDS_MAX,
        )
        wait_until(
            lambda: sum(committed(broker, group, topic, 4)) == 40, what="Java's commits", seconds_max=SECONDS_MAX
        )
        with Member(broker, group, [topic], **mate) as member:
            wait_until(lambda: len(member.owned) == 2, what="half of the partitions", seconds_max=SECONDS_MAX)
            assert all(event["success"] for event in events(log, "offsets_committed")[:1])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_reads_as_a_member(broker: Any, topic: str, group: str, protocol: str) -> None:
    fill(broker, topic, numbered(10))

    def read(count: int) -> list[str]:
        printed = tool(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *on(broker),
            *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", str(count)),
            *("--command-property", f"group.protocol={protocol}"),
        )
        return [line for line in printed.splitlines() if line.isdigit()]

    assert read(6) == [str(number) for number in range(6)]
    assert read(4) == [str(number) for number in range(6, 10)]


def test_the_group_command_lists_and_describes(broker: Any, make_topic: Any, group: str) -> None:
    topic = make_topic(partitions=2)
    fill(broker, topic, numbered(10), partitions=2)
    with Member(broker, group, [topic], name="reader", **{"group.protocol": "consumer"}) as member:
        settle(member, places=2)
        wait_until(lambda: sum(committed(broker, group, topic, 2)) == 10, what="commits", seconds_max=SECONDS_MAX)
        listed = tool(GROUPS, *on(broker), "--list", "--state", "stable")
        assert group in listed
        described = tool(GROUPS, *on(broker), "--describe", "--group", group)
        rows = [line.split() for line in described.splitlines() if line.startswith(group)]
        assert [(row[1], row[2], row[3], row[4], row[5]) for row in sorted(rows, key=lambda row: row[2])] == [
            (topic, "0", "5", "5", "0"),
            (topic, "1", "5", "5", "0"),
        ]
        members = tool(GROUPS, *on(broker), "--describe", "--group", group, "--members", "--verbose")
        assert "reader" in members
        state = tool(GROUPS, *on(broker), "--describe", "--group", group, "--state", "--verbose")
        assert "uniform" in state
        assert "Stable" in state
        refused = tool(
            GROUPS, *on(broker), "--reset-offsets", "--group", group, "--to-earliest", "--all-topics", "--execute"
        )
        assert "Assignments can only be reset if the group" in refused


def test_the_group_command_resets_and_deletes(broker: Any, make_topic: Any, group: str) -> None:
    topic = make_topic(partitions=2)
    fill(broker, topic, numbered(20), partitions=2)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 5)], asynchronous=False)
    consumer.close()
    reset = (GROUPS, *on(broker), "--reset-offsets", "--group", group)

    tool(*reset, "--shift-by", "3", "--topic", topic, "--execute")
    assert committed(broker, group, topic, 2) == [7, 8]
    tool(*reset, "--to-latest", "--topic", f"{topic}:1", "--execute")
    assert committed(broker, group, topic, 2) == [7, 10]
    assert "GROUP" in tool(GROUPS, *on(broker), "--delete-offsets", "--group", group, "--topic", f"{topic}:1").upper()
    assert committed(broker, group, topic, 2) == [7, -1001]
    assert "successful" in tool(GROUPS, *on(broker), "--delete", "--group", group)
    assert group not in tool(GROUPS, *on(broker), "--list").split()


def test_javas_clients_end_when_they_are_told(broker: Any, topic: str, group: str, tmp_path: Path) -> None:
    with verifiable_consumer(broker, group, topic, tmp_path / "log") as log:
        wait_until(lambda: bool(events(log, "partitions_assigned")), what="assignment", seconds_max=SECONDS_MAX)
    assert events(log, "shutdown_complete")
    wait_until(
        lambda: "Empty" in tool(GROUPS, *on(broker), "--describe", "--group", group, "--state"),
        what="an empty group",
        seconds_max=SECONDS_MAX,
    )
