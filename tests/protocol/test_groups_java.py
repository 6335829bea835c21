"""Kafka's own ConsumerGroupCommand, and how its consumer ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.clients.confluent import Confluent
from protocol.clients.java import TOOLS, on, tool, verifiable_consumer
from protocol.group_members import (
    CONSUMER,
    QUICK,
    SECONDS_MAX,
    Member,
    await_commits,
    committed,
    fill,
    numbered,
    settle,
)
from protocol.topics import wait_until

BROKER_SETTINGS = QUICK
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
pytestmark = pytest.mark.needs("kafka-jars")


def test_the_group_command_lists_and_describes(broker: Any, make_topic: Any, group: str) -> None:
    topic = make_topic(partitions=2)
    fill(broker, topic, numbered(10), partitions=2)
    with Member(broker, group, [topic], name="reader", **CONSUMER) as member:
        settle(member, places=2)
        await_commits(broker, group, topic, 2, total=10)
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
    for partition, offset in ((0, 4), (1, 5)):
        Confluent(broker.bootstrap).commit_offset(group, (topic, partition), offset, "")
    reset = (GROUPS, *on(broker), "--reset-offsets", "--group", group)

    tool(*reset, "--shift-by", "3", "--topic", topic, "--execute")
    assert committed(broker, group, topic, 2) == [7, 8]
    tool(*reset, "--to-latest", "--topic", f"{topic}:1", "--execute")
    assert committed(broker, group, topic, 2) == [7, 10]
    assert "GROUP" in tool(GROUPS, *on(broker), "--delete-offsets", "--group", group, "--topic", f"{topic}:1").upper()
    assert committed(broker, group, topic, 2) == [7, -1001]
    assert "successful" in tool(GROUPS, *on(broker), "--delete", "--group", group)
    assert group not in tool(GROUPS, *on(broker), "--list").split()


def test_javas_consumer_shuts_down_and_leaves_an_empty_group(
    broker: Any, topic: str, group: str, tmp_path: Path
) -> None:
    with verifiable_consumer(broker.bootstrap, group, topic, log=tmp_path / "log") as consumer:
        wait_until(lambda: bool(consumer.owned), what="assignment", seconds_max=SECONDS_MAX)
    assert consumer.events("shutdown_complete")
    wait_until(
        lambda: "Empty" in tool(GROUPS, *on(broker), "--describe", "--group", group, "--state"),
        what="an empty group",
        seconds_max=SECONDS_MAX,
    )
