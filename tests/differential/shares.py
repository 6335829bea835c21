"""Share groups for the scenarios: bodies of their requests, and groups with members and partitions."""

from __future__ import annotations

import dataclasses
from typing import Any

from .members import await_coordinator
from .requests import ANY_BYTES
from .script import DESCRIBE_CONFIGS, Body, Peer, Run, Topic

BEAT, FETCH, ACKNOWLEDGE, ALTER_CONFIGS = (
    ("share_group_heartbeat", 1),
    ("share_fetch", 2),
    ("share_acknowledge", 2),
    ("incremental_alter_configs", 1),
)
"""APIs and versions of preparatory requests, independent of the version of the scenario."""

GROUP_RESOURCE = 32
SET = 0
OPENS, CLOSES = 0, -1
"""Epochs of a share session that open and close it."""
LEAVES = -1
"""The member epoch of a member that leaves."""
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GAP = 0
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
RECORDS_MAX = 500
WAIT_MS = 5_000
"""How long a fetch may wait that must have records: the first one loads the partition's state, and what a request
releases can be acquired only when that is written."""
QUIET_MS = 500
"""How long a fetch waits that must not have records."""
AWAITS = {"max_wait": WAIT_MS, "min_bytes": 1}
AWAITS_NONE = {"max_wait": QUIET_MS, "min_bytes": 1}


def share_beat(group: str, member_id: str, epoch: int, *topics: str, **fields: Any) -> Body:
    return {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "rack_id": None,
        "subscribed_topic_names": list(topics) or None,
    } | fields


def group_config(run: Run, group: str, **values: str) -> None:
    """Set configs of a group and wait until the broker has them; an underscore stands for a dot."""
    wanted = {key.replace("_", "."): value for key, value in values.items()}
    steps = [{"name": key, "config_operation": SET, "value": value} for key, value in wanted.items()]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group}
    changed = run.do(*ALTER_CONFIGS, {"resources": [resource | {"configs": steps}], "validate_only": False})
    assert changed["responses"][0]["error_code"] == "none", changed

    def is_set() -> bool:
        body = {"resources": [resource | {"configuration_keys": list(wanted)}]}
        found = run.do(*DESCRIBE_CONFIGS, body)["results"][0]["configs"]
        return {item["name"]: item["value"] for item in found} == wanted

    run.until(f"{group} has {wanted}", is_set)


def share_group(run: Run, token: str = "g", **configs: str) -> str:
    """The name of a share group that reads from the earliest record, with these configs besides."""
    name = run.name(token)
    await_coordinator(run, name)
    group_config(run, name, **({"share_auto_offset_reset": "earliest"} | configs))
    return name


def share_joined(run: Run, group: str, member_id: str, *topics: Topic, partitions: int = 1) -> int:
    """Join and heartbeat until so many partitions are assigned; returns the member's epoch.

    A topic that the coordinator does not know yet, and partitions whose state is not initialized, are not assigned.
    """
    epoch, assigned = 0, 0

    def has_all() -> bool:
        nonlocal epoch, assigned
        response = run.do(*BEAT, share_beat(group, member_id, epoch, *(topic.name for topic in topics)))
        assert response["error_code"] == "none", response
        epoch = response["member_epoch"]
        if response["assignment"] is not None:
            assigned = sum(len(part["partitions"]) for part in response["assignment"]["topic_partitions"])
        return assigned == partitions

    run.until(f"{partitions} partitions of {member_id}", has_all)
    return epoch


def ack(first: int, last: int | None = None, *types: int) -> dict[str, Any]:
    """An acknowledgement batch; without types, all are accepted."""
    return {
        "first_offset": first,
        "last_offset": first if last is None else last,
        "acknowledge_types": list(types) or [ACCEPT],
    }


def share_topic(topic: Topic, *partitions: int | dict[str, Any]) -> dict[str, Any]:
    """A topic of ShareFetch or ShareAcknowledge; partitions by index, or with their acknowledgements."""
    return {
        "topic_id": topic.topic_id,
        "partitions": [part(each) if isinstance(each, int) else each for each in partitions],
    }


def part(index: int, *acks: dict[str, Any]) -> dict[str, Any]:
    return {"partition_index": index, "acknowledgement_batches": list(acks)}


def share_fetch_body(group: str | None, member_id: str | None, epoch: int, *topics: Any, **fields: Any) -> Body:
    """A share consumer's fetch, which does not wait."""
    return {
        "group_id": group,
        "member_id": member_id,
        "share_session_epoch": epoch,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": ANY_BYTES,
        "max_records": RECORDS_MAX,
        "batch_size": RECORDS_MAX,
        "topics": list(topics),
        "forgotten_topics_data": [],
    } | fields


def share_ack_body(group: str | None, member_id: str | None, epoch: int, *topics: Any, **fields: Any) -> Body:
    return {"group_id": group, "member_id": member_id, "share_session_epoch": epoch, "topics": list(topics)} | fields


@dataclasses.dataclass(slots=True, kw_only=True)
class ShareReader:
    """A member of a share group with its session: it counts the session's epochs.

    It has a connection of its own: a broker ends the session of a member whose connection closes, and Kafka has one
    share session for each connection.
    """

    run: Run
    group: str
    member_id: str
    topic: Topic
    epoch: int = OPENS
    peer: Peer = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.peer = self.run.peer()

    def moved(self) -> int:
        now = self.epoch
        self.epoch = now + 1
        return now

    def fetch_body(self, *topics: Any, **fields: Any) -> Body:
        return share_fetch_body(self.group, self.member_id, self.moved(), *topics, **fields)

    def fetch(self, label: str, *topics: Any, version: int | None = None, **fields: Any) -> dict[str, Any]:
        """Record a fetch of the session."""
        body = self.fetch_body(*topics, **fields)
        return self.peer.ask(label, body, api="share_fetch", version=self.run.version if version is None else version)

    def fetch_latest(self, label: str, *topics: Any, **fields: Any) -> dict[str, Any]:
        """Record a fetch in a scenario of another API."""
        return self.fetch(label, *topics, version=FETCH[1], **fields)

    def open(self, label: str, *partitions: int, version: int | None = None, **fields: Any) -> dict[str, Any]:
        """Record the fetch that opens the session; it waits for records, of which there must be some."""
        wanted = share_topic(self.topic, *(partitions or (0,)))
        return self.fetch(label, wanted, version=version, **(AWAITS | fields))

    def open_latest(self, label: str, *partitions: int, **fields: Any) -> dict[str, Any]:
        return self.open(label, *partitions, version=FETCH[1], **fields)

    def opened(self, *partitions: int, **fields: Any) -> dict[str, Any]:
        """Open the session without a record of it."""
        wanted = share_topic(self.topic, *(partitions or (0,)))
        response = self.peer.do(*FETCH, self.fetch_body(wanted, **(AWAITS | fields)))
        assert response["error_code"] == "none", response
        return response

    def ack_body(self, *acks: dict[str, Any], **fields: Any) -> Body:
        """Acknowledgements of partition 0."""
        return share_ack_body(
            self.group, self.member_id, self.moved(), share_topic(self.topic, part(0, *acks)), **fields
        )

    def acknowledge(self, label: str, *acks: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Record an acknowledgement of the scenario's version."""
        return self.peer.ask(label, self.ack_body(*acks, **fields), api="share_acknowledge")

    def acknowledged(self, *acks: dict[str, Any], **fields: Any) -> dict[str, Any]:
        response = self.peer.do(*ACKNOWLEDGE, self.ack_body(*acks, **fields))
        assert response["error_code"] == "none", response
        return response


def share_reader(
    run: Run, group: str, topic: Topic, member_id: str = "m1", *, partitions: int = 1, joins: bool = True
) -> ShareReader:
    """A member of the group to which all partitions of the topic are assigned."""
    if joins:
        share_joined(run, group, member_id, topic, partitions=partitions)
    return ShareReader(run=run, group=group, member_id=member_id, topic=topic)
