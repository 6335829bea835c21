"""Groups over raw requests: the response to each request, and the records of `__consumer_offsets`."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import Any

import pytest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from penstock.coordinator.runtime import partition_of
from penstock.testing.apache_kafka import tool_command
from protocol.batches import batch
from protocol.raw import NONE, UNKNOWN_TOPIC_OR_PARTITION, Wire
from protocol.topics import create_topic, fresh_name, wait_until

OFFSETS = "__consumer_offsets"
INVALID_TOPIC = 17
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
NO_OFFSET = -1
TOOL_SECONDS_MAX = 150.0
READ_MS = (3_000, 30_000)
"""How long a tool waits for one more record: it ends only by that, and a slow machine needs more than the first."""


def find(wire: Wire, group: str) -> Any:
    return wire.ask(FindCoordinatorRequest(version=3, key=group, key_type=0))


@pytest.fixture
def group(wire: Wire, request: pytest.FixtureRequest) -> str:
    """A new group id whose coordinator is available."""
    name = fresh_name(request.node.name)
    wait_until(lambda: find(wire, name).error_code == NONE, what="a coordinator")
    wait_until(lambda: committed(wire, name, "none") == NO_OFFSET, what="a coordinator that has loaded")
    return name


def commit(wire: Wire, group: str, topic: str, offset: int, *, partition: int = 0, **fields: Any) -> int:
    """Commit one offset; the error code of it."""
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    entry = topic_class.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_leader_epoch=0, committed_metadata="note"
    )
    known = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    response = wire.ask(
        OffsetCommitRequest(
            version=7, group_id=group, topics=[topic_class(name=topic, partitions=[entry])], **(known | fields)
        )
    )
    [[partition]] = [found.partitions for found in response.topics]
    return int(partition.error_code)


def committed(wire: Wire, group: str, topic: str, *, partition: int = 0) -> int:
    topic_class = OffsetFetchRequest.OffsetFetchRequestTopic
    response = wire.ask(
        OffsetFetchRequest(
            version=7,
            group_id=group,
            topics=[topic_class(name=topic, partition_indexes=[partition])],
            require_stable=False,
        )
    )
    if response.error_code != NONE:
        return -100 - int(response.error_code)
    [[found]] = [each.partitions for each in response.topics]
    assert found.error_code == NONE
    return int(found.committed_offset)


def test_an_offset_is_committed_and_fetched(wire: Wire, topic: str, group: str) -> None:
    assert committed(wire, group, topic) == NO_OFFSET

    assert commit(wire, group, topic, 42) == NONE

    assert committed(wire, group, topic) == 42


def test_a_partition_that_is_not_there_takes_no_offset(wire: Wire, topic: str, group: str) -> None:
    assert commit(wire, group, topic, 42, partition=9) == UNKNOWN_TOPIC_OR_PARTITION
    assert commit(wire, group, fresh_name("nowhere"), 42) == UNKNOWN_TOPIC_OR_PARTITION


def test_responses_keep_the_order_of_pipelined_commits_and_fetches(wire: Wire, topic: str, group: str) -> None:
    topic_class = OffsetCommitRequest.OffsetCommitRequestTopic
    fetched = OffsetFetchRequest.OffsetFetchRequestTopic
    for offset in range(20):
        entry = topic_class.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        wire.send(
            OffsetCommitRequest(
                version=7,
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                topics=[topic_class(name=topic, partitions=[entry])],
            )
        )
        wire.send(
            OffsetFetchRequest(
                version=7,
                group_id=group,
                topics=[fetched(name=topic, partition_indexes=[0])],
                require_stable=False,
            )
        )

    for offset in range(20):
        assert wire.receive().topics[0].partitions[0].error_code == NONE
        assert wire.receive().topics[0].partitions[0].committed_offset == offset


def joined(wire: Wire, group: str, member_id: str = "") -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"wants")
    return wire.ask(
        JoinGroupRequest(
            version=3,
            group_id=group,
            session_timeout_ms=600_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
    )


def heartbeat_error(wire: Wire, group: str, member_id: str, generation: int) -> int:
    response = wire.ask(HeartbeatRequest(version=2, group_id=group, generation_id=generation, member_id=member_id))
    return int(response.error_code)


def test_a_member_joins_syncs_beats_commits_and_leaves(wire: Wire, topic: str, group: str) -> None:
    member = joined(wire, group)
    assert (member.error_code, member.leader, member.generation_id) == (NONE, member.member_id, 1)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"gets")

    synced = wire.ask(
        SyncGroupRequest(
            version=2, group_id=group, generation_id=1, member_id=member.member_id, assignments=[assignment]
        )
    )

    assert (synced.error_code, synced.assignment) == (NONE, b"gets")
    assert heartbeat_error(wire, group, member.member_id, 1) == NONE
    assert heartbeat_error(wire, group, member.member_id, 0) == ILLEGAL_GENERATION
    identity = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
    assert commit(wire, group, topic, 7, **identity) == NONE
    assert commit(wire, group, topic, 8, **(identity | {"member_id": "stranger"})) == UNKNOWN_MEMBER_ID
    left = wire.ask(LeaveGroupRequest(version=2, group_id=group, member_id=member.member_id))
    assert left.error_code == NONE
    assert heartbeat_error(wire, group, member.member_id, 1) == UNKNOWN_MEMBER_ID
    assert committed(wire, group, topic) == 7


def test_the_topic_of_groups_is_internal_and_compacted(wire: Wire, group: str) -> None:
    response = wire.ask(
        MetadataRequest(
            version=7,
            topics=[MetadataRequest.MetadataRequestTopic(name=OFFSETS)],
            allow_auto_topic_creation=False,
        )
    )

    [found] = response.topics
    assert found.is_internal
    assert len(found.partitions) == 50


def test_clients_do_not_write_into_the_topic_of_groups(wire: Wire, group: str) -> None:
    assert wire.produce(OFFSETS, batch([(b"k", b"v")])).error_code == INVALID_TOPIC


@pytest.mark.penstock_only
def test_the_first_find_coordinator_of_a_new_cluster_succeeds(start_broker: Any) -> None:
    fresh = start_broker()

    with Wire(fresh.bootstrap) as first, Wire(fresh.bootstrap) as second:
        for wire in (first, second):
            wire.send(FindCoordinatorRequest(version=3, key="g", key_type=0))
        responses = [first.receive(), second.receive()]

    assert [response.error_code for response in responses] == [NONE, NONE]


def test_acknowledged_commits_survive_a_kill(start_broker: Any) -> None:
    broker = start_broker()
    names = [f"group-{at}" for at in range(10)]
    with Wire(broker.bootstrap) as wire:
        topic = "orders"
        create_topic(broker.bootstrap, topic, partitions=2)
        wait_until(lambda: find(wire, names[0]).error_code == NONE, what="a coordinator")
        wait_until(lambda: committed(wire, names[0], topic) == NO_OFFSET, what="a coordinator that has loaded")
        for at in range(200):
            assert commit(wire, names[at % 10], topic, at, partition=at % 2) == NONE

    broker.kill()
    broker.start()

    with Wire(broker.bootstrap) as wire:
        for at in range(190, 200):
            wait_until(
                lambda at=at: committed(wire, names[at % 10], topic, partition=at % 2) == at,
                what=f"the offset of {names[at % 10]}",
            )


# Kafka's own tools


def tool(main_class: str, *arguments: str) -> str:
    command = tool_command(main_class, *arguments)
    command[1:1] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def objects(printed: str) -> list[Any]:
    """What a formatter wrote, one object after another and nothing between them."""
    decoder, found, at = json.JSONDecoder(), [], printed.find("{")
    while at >= 0:
        one, at = decoder.raw_decode(printed, at)
        found.append(one)
        at = printed.find("{", at)
    return found


@pytest.mark.needs("kafka-jars")
@pytest.mark.penstock_only
def test_kafkas_formatters_read_offsets_and_groups(broker: Any, wire: Wire, topic: str, group: str) -> None:
    member = joined(wire, group)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"")
    wire.ask(
        SyncGroupRequest(
            version=2, group_id=group, generation_id=1, member_id=member.member_id, assignments=[assignment]
        )
    )
    identity = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
    assert commit(wire, group, topic, 1234, **identity) == NONE

    def formatted(formatter: str) -> list[Any]:
        for wait_ms in READ_MS:
            printed = tool(
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                *("--bootstrap-server", broker.bootstrap, "--topic", OFFSETS),
                *("--partition", str(partition_of(group, 50)), "--offset", "earliest", "--timeout-ms", str(wait_ms)),
                *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
            )
            found = [one for one in objects(printed) if one["key"]["data"].get("group") == group]
            if found:
                break
        return found

    [offset] = [one for one in formatted("OffsetsMessageFormatter") if one["key"]["data"]["topic"] == topic]
    assert offset["value"]["data"]["offset"] == 1234
    assert offset["value"]["data"]["metadata"] == "note"
    assert abs(offset["value"]["data"]["commitTimestamp"] - time.time() * 1000) < 600_000
    *_, saved = formatted("GroupMetadataMessageFormatter")
    assert saved["value"]["data"]["generation"] == 1
    assert [one["memberId"] for one in saved["value"]["data"]["members"]] == [member.member_id]


@pytest.mark.needs("kafka-jars")
@pytest.mark.penstock_only
def test_kafkas_dump_tool_decodes_the_files(start_broker: Any) -> None:
    broker = start_broker({"offsets.topic.num.partitions": "1"})
    create_topic(broker.bootstrap, "orders")
    with Wire(broker.bootstrap) as wire:
        wait_until(lambda: find(wire, "g").error_code == NONE, what="a coordinator")
        wait_until(lambda: committed(wire, "g", "orders") == NO_OFFSET, what="a coordinator that has loaded")
        assert commit(wire, "g", "orders", 77) == NONE
        member = joined(wire, "members")
        assert member.error_code == NONE
    broker.stop()

    printed = tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--offsets-decoder",
        *("--files", str(broker.data / f"{OFFSETS}-0" / "00000000000000000000.log")),
    )

    assert re.search(r'"group":"g","topic":"orders","partition":0', printed), printed
    assert re.search(r'"offset":77', printed), printed
    assert "error" not in printed.lower(), printed
