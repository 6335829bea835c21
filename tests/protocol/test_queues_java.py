"""Kafka's own tools for share groups: VerifiableShareConsumer, ShareConsumerPerformance, ShareGroupCommand, dumps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message

from protocol.clients.java import TOOLS, on, tool, verifiable_share_consumer
from protocol.group_members import fill, numbered
from protocol.share_members import QUICK_SHARES, SECONDS_MAX, poll_until, share_group, share_member
from protocol.topics import create_topic, wait_until

BROKER_SETTINGS = QUICK_SHARES
pytestmark = [pytest.mark.xdist_group("queues"), pytest.mark.needs("kafka-jars")]

GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
STATE_TOPIC = "__share_group_state"
ACKNOWLEDGED = 2
"""How states are written."""


def test_two_verifiable_share_consumers_accept_each_record_once(
    broker: Any, topic: str, group: str, tmp_path: Path
) -> None:
    share_group(broker, group)
    first = verifiable_share_consumer(
        broker.bootstrap, group, topic, "--acknowledgement-mode", "sync", log=tmp_path / "sync"
    )
    second = verifiable_share_consumer(
        broker.bootstrap, group, topic, "--acknowledgement-mode", "async", log=tmp_path / "async"
    )
    with first as sync, second as asynchronous:
        for start in range(0, 1000, 50):
            fill(broker, topic, numbered(50, start=start))
        wait_until(
            lambda: sync.acknowledged + asynchronous.acknowledged == 1000,
            what="acknowledgement of a thousand records",
            seconds_max=SECONDS_MAX,
        )
        for consumer in (sync, asynchronous):
            consumer.leave()
    assert sorted(sync.values + asynchronous.values) == sorted(numbered(1000))


def test_share_consumer_performance_reads_all_records(broker: Any, topic: str, group: str) -> None:
    share_group(broker, group)
    fill(broker, topic, numbered(500))
    where = ("--topic", topic, "--group", group, "--num-records", "500", "--threads", "2", "--hide-header")
    printed = tool(f"{TOOLS}.ShareConsumerPerformance", *on(broker), *where)
    [row] = [line.split(", ") for line in printed.splitlines() if re.match(r"\d{4}-\d\d-\d\d ", line)]
    assert int(row[5]) == 500


def table(printed: str, group: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line.startswith(group)]


def test_the_share_group_command_knows_groups_members_and_offsets(broker: Any, make_topic: Any, group: str) -> None:
    topic = make_topic(partitions=2)
    share_group(broker, group)
    fill(broker, topic, numbered(10), partitions=2)
    describe = (GROUPS, *on(broker), "--describe", "--group", group)
    with share_member(broker, group, topic, **{"client.id": "reader"}) as member:
        poll_until(lambda: len(member.accepted) == 10, member, what="ten records")
        fill(broker, topic, numbered(2, start=10))

        assert group in tool(GROUPS, *on(broker), "--list", "--state", "stable")
        rows = sorted(table(tool(*describe), group), key=lambda row: row[2])
        assert [row[1:3] for row in rows] == [[topic, "0"], [topic, "1"]]
        [row] = table(tool(*describe, "--members", "--verbose"), group)
        assert "reader" in row
        assert "Stable" in tool(*describe, "--state", "--verbose")
        reset = ("--reset-offsets", "--group", group, "--to-earliest", "--all-topics", "--execute")
        assert "is not empty" in tool(GROUPS, *on(broker), *reset, status=1)


def test_the_share_group_command_resets_and_deletes(broker: Any, topic: str, group: str) -> None:
    share_group(broker, group)
    fill(broker, topic, numbered(6))
    with share_member(broker, group, topic) as member:
        poll_until(lambda: len(member.accepted) == 6, member, what="six records")

    reset = (GROUPS, *on(broker), "--reset-offsets", "--group", group, "--topic", topic)
    tool(*reset, "--to-earliest", "--execute")
    [row] = table(tool(GROUPS, *on(broker), "--describe", "--group", group), group)
    assert row[:4] == [group, topic, "0", "0"]
    with share_member(broker, group, topic) as again:
        poll_until(lambda: len(again.accepted) == 6, again, what="the six records again")
    assert [value for value, _ in again.delivered] == numbered(6)

    shown = tool(GROUPS, *on(broker), "--delete-offsets", "--group", group, "--topic", topic)
    assert topic in shown
    assert "ERROR" not in shown.upper(), shown
    assert "successful" in tool(GROUPS, *on(broker), "--delete", "--group", group)
    assert group not in tool(GROUPS, *on(broker), "--list").split()


def test_kafkas_formatter_and_dump_tool_read_the_groups_state(start_broker: Any, group: str) -> None:
    """What the share coordinator writes is Kafka's format, in the log and for consumers of the internal topic."""
    broker = start_broker({**QUICK_SHARES, "share.coordinator.state.topic.num.partitions": "1"})
    topic = group.replace("test", "topic")
    create_topic(broker.bootstrap, topic)
    share_group(broker, group)
    fill(broker, topic, numbered(5))

    def decide(message: Message) -> AcknowledgeType:
        return AcknowledgeType.RELEASE if message.offset() == 2 else AcknowledgeType.ACCEPT

    with share_member(broker, group, topic) as member:
        poll_until(lambda: len(member.accepted) == 4, member, what="four accepted records", decide=decide)

    shown = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *(*on(broker), "--topic", STATE_TOPIC, "--partition", "0", "--offset", "earliest", "--timeout-ms", "3000"),
        *("--formatter", f"{TOOLS}.consumer.group.share.ShareGroupStateMessageFormatter"),
    )
    values = json.loads("[" + shown[shown.find("{") : shown.rfind("}") + 1].replace('}{"key"', '},{"key"') + "]")
    assert values[0]["key"]["data"]["groupId"] == group
    states = [batch for value in values for batch in value["value"]["data"]["stateBatches"]]
    assert {"firstOffset": 3, "lastOffset": 4, "deliveryState": ACKNOWLEDGED, "deliveryCount": 1} in states

    [segment] = broker.data.rglob(f"{STATE_TOPIC}-0/00000000000000000000.log")
    dumped = tool(f"{TOOLS}.DumpLogSegments", "--share-group-state-decoder", "--files", str(segment))
    assert f'"groupId":"{group}"' in dumped
    assert f'"firstOffset":3,"lastOffset":4,"deliveryState":{ACKNOWLEDGED}' in dumped
