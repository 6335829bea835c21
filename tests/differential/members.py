"""Members of classic and consumer groups for the scenarios: bodies of their requests, and groups with members."""

from __future__ import annotations

import dataclasses
import struct
import time
from typing import Any

from .script import Body, Peer, Run, Topic

FIND, JOIN, SYNC, BEAT, LEAVE, COMMIT, OFFSETS, DESCRIBE, CONSUMER_BEAT, CONSUMER_DESCRIBE = (
    ("find_coordinator", 3),
    ("join_group", 9),
    ("sync_group", 4),
    ("heartbeat", 4),
    ("leave_group", 5),
    ("offset_commit", 9),
    ("offset_fetch", 9),
    ("describe_groups", 5),
    ("consumer_group_heartbeat", 1),
    ("consumer_group_describe", 1),
)
"""APIs and versions of preparatory requests, independent of the version of the scenario."""

NOT_YET = frozenset({"coordinator_not_available", "coordinator_load_in_progress", "not_coordinator"})
SESSION_MS = 30_000
REBALANCE_MS = 30_000
PROTOCOL_TYPE = "consumer"
PROTOCOL = "p1"
ASSIGNMENT = b"assigned"
SHARDS_BEHIND_SECONDS = 0.02


@dataclasses.dataclass(slots=True, kw_only=True)
class Member:
    """A member of a classic group, with its connection."""

    peer: Peer
    group: str
    member_id: str = ""
    generation: int = -1
    instance: str | None = None

    def who(self, **fields: Any) -> Body:
        """The fields that all requests of a member have."""
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "generation_id": self.generation,
            "group_instance_id": self.instance,
        } | fields

    def took(self, response: dict[str, Any]) -> dict[str, Any]:
        """Note a join response; members are numbered in this order, not in that of a later list."""
        self.member_id, self.generation = response["member_id"], response["generation_id"]
        self.peer.run.tokens.member_id(self.member_id)
        return response


def group(run: Run, token: str = "g") -> str:
    """The name of a group whose coordinator is ready."""
    name = run.name(token)
    await_coordinator(run, name)
    return name


def await_coordinator(run: Run, name: str) -> None:
    def is_ready() -> bool:
        if run.do(*FIND, {"key": name, "key_type": 0})["error_code"] != "none":
            return False
        return run.do(*DESCRIBE, {"groups": [name]})["groups"][0]["error_code"] not in NOT_YET

    run.until(f"a coordinator of {name}", is_ready)


def protocols(*names: str, metadata: bytes = b"meta") -> list[dict[str, Any]]:
    return [{"name": name, "metadata": metadata} for name in names or (PROTOCOL,)]


def join_body(group: str, member_id: str = "", **fields: Any) -> Body:
    return {
        "group_id": group,
        "member_id": member_id,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": REBALANCE_MS,
        "protocol_type": PROTOCOL_TYPE,
        "protocols": protocols(),
    } | fields


def sync_body(member: Member, assignments: dict[str, bytes] | None = None, **fields: Any) -> Body:
    body = member.who(
        protocol_type=PROTOCOL_TYPE,
        protocol_name=PROTOCOL,
        assignments=[{"member_id": who, "assignment": what} for who, what in (assignments or {}).items()],
    )
    return body | fields


def beat_body(member: Member, **fields: Any) -> Body:
    return member.who() | fields


def leave_body(group: str, *members: tuple[str, str | None]) -> Body:
    """Members as (member id, instance id); below version 3 only the first can leave."""
    return {
        "group_id": group,
        "member_id": members[0][0] if members else "",
        "members": [{"member_id": who, "group_instance_id": instance} for who, instance in members],
    }


def send_join(member: Member, version: int = JOIN[1], **fields: Any) -> None:
    """Send a join without waiting for its response; a new member first gets its id."""
    body = join_body(member.group, member.member_id, group_instance_id=member.instance, **fields)
    if version >= 4 and member.instance is None and not member.member_id:
        member.member_id = member.peer.do(JOIN[0], version, body)["member_id"]
        member.peer.run.tokens.member_id(member.member_id)
    member.peer.send(JOIN[0], version, body | {"member_id": member.member_id})


def new_member(run: Run, group: str, instance: str | None = None) -> Member:
    return Member(peer=run.peer(), group=group, instance=instance)


def alone(run: Run, group: str, instance: str | None = None, *, synced: bool = True, **fields: Any) -> Member:
    """The only member of a group, its leader."""
    member = new_member(run, group, instance)
    send_join(member, **fields)
    response = member.took(member.peer.receive())
    assert response["error_code"] == "none", response
    if synced:
        sync(member)
    return member


def sync(*members: Member, assignments: dict[str, bytes] | None = None) -> None:
    """Sync all members, the leader first; by default each is assigned its index in this list."""
    given = assignments or {member.member_id: ASSIGNMENT for member in members}
    for index, member in enumerate(members):
        member.peer.send(*SYNC, sync_body(member, given if index == 0 else None))
    for member in members:
        response = member.peer.receive()
        assert response["error_code"] == "none", response


def together(run: Run, group: str, count: int, *, synced: bool = True, **fields: Any) -> list[Member]:
    """Members of one generation, the leader first, joined one after the other."""
    members = [alone(run, group, synced=count > 1 or synced, **fields)]
    for index in range(1, count):
        newcomer = new_member(run, group)
        send_join(newcomer, **fields)
        rejoin(run, *members, newcomer, **fields)
        members.append(newcomer)
        if synced or index < count - 1:
            sync(*members)
    return members


def rejoin(run: Run, *members: Member, **fields: Any) -> None:
    """Rejoin all members but the last, which has sent its join already; then receive all responses."""
    group = members[0].group
    await_state(run, group, "PreparingRebalance")
    for member in members[:-1]:
        send_join(member, **fields)
    for member in members:
        response = member.took(member.peer.receive())
        assert response["error_code"] == "none", response


def await_state(run: Run, group: str, *states: str) -> None:
    """Wait until a classic group is in one of these states."""

    def is_there() -> bool:
        return run.do(*DESCRIBE, {"groups": [group]})["groups"][0]["group_state"] in states

    run.until(f"{group} in {states}", is_there)


def subscription(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    """A consumer's metadata in the classic protocol."""
    body = struct.pack(">hi", 1, len(topics)) + b"".join(_text(topic) for topic in topics) + struct.pack(">i", -1)
    body += struct.pack(">i", len(owned or {}))
    for topic, partitions in (owned or {}).items():
        body += _text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return body


def assignment(partitions: dict[str, list[int]]) -> bytes:
    body = struct.pack(">hi", 1, len(partitions))
    for topic, indexes in partitions.items():
        body += _text(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return body + struct.pack(">i", -1)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


# Offsets


def commit_body(group: str, *topics: dict[str, Any], **fields: Any) -> Body:
    return {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": list(topics)} | fields


def commit_topic(topic: Topic, *partitions: tuple[int, int] | dict[str, Any]) -> dict[str, Any]:
    """Partitions as (index, offset), or with every field."""
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "partitions": [commit_partition(*item) if isinstance(item, tuple) else item for item in partitions],
    }


def commit_partition(index: int, offset: int, **fields: Any) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": ""} | fields


def offsets_body(group: str, *topics: tuple[Topic, list[int]], everything: bool = False, **fields: Any) -> Body:
    """A request for the offsets of one group, with the fields of every version."""
    wanted = [
        {"name": topic.name, "topic_id": topic.topic_id, "partition_indexes": indexes} for topic, indexes in topics
    ]
    listed = None if everything else wanted
    return {
        "group_id": group,
        "topics": listed,
        "groups": [{"group_id": group, "topics": listed} | fields],
    }


def offsets_of(*groups: dict[str, Any]) -> Body:
    return {"groups": list(groups)}


def committed(run: Run, group: str, topic: Topic, *offsets: int, **fields: Any) -> None:
    """Commit the offsets of partitions 0, 1, ... and check that they are accepted."""
    body = commit_body(group, commit_topic(topic, *enumerate(offsets)), **fields)
    for part in run.do(*COMMIT, body)["topics"][0]["partitions"]:
        assert part["error_code"] == "none", part


# Members of consumer groups


def consumer_body(group: str, member_id: str, epoch: int, **fields: Any) -> Body:
    return {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "rebalance_timeout": -1,
        "topic_partitions": None,
    } | fields


def consumer_join(group: str, member_id: str, *topics: str, **fields: Any) -> Body:
    """The first heartbeat, with all required fields."""
    whole: Body = {
        "rebalance_timeout": REBALANCE_MS,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
    }
    return consumer_body(group, member_id, 0, **whole) | fields


def coordinated_topic(run: Run, token: str = "a", *, partitions: int = 1) -> Topic:
    """A topic that the group coordinators know too, which is a moment after the brokers."""
    topic = run.topic(token, partitions=partitions)
    probe = group(run, f"probe-{token}")

    def is_known() -> bool:
        response = run.do(*CONSUMER_BEAT, consumer_join(probe, "probe", topic.name))
        return bool(response["assignment"]["topic_partitions"])

    run.until(f"{topic.name} known to coordinators", is_known)
    run.do(*CONSUMER_BEAT, consumer_body(probe, "probe", -1))
    time.sleep(SHARDS_BEHIND_SECONDS)
    return topic


def consumer_joined(run: Run, group: str, member_id: str, *topics: str, **fields: Any) -> int:
    """Join a consumer group; returns the member epoch."""
    response = run.do(*CONSUMER_BEAT, consumer_join(group, member_id, *topics, **fields))
    assert response["error_code"] == "none", response
    return int(response["member_epoch"])


def owned(topic: Topic, *partitions: int) -> list[dict[str, Any]]:
    return [{"topic_id": topic.topic_id, "partitions": list(partitions)}]
