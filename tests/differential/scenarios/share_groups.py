"""ShareGroupHeartbeat, ShareGroupDescribe, and share groups among the other groups."""

from __future__ import annotations

from typing import Any

from differential.members import (
    CONSUMER_BEAT,
    alone,
    committed,
    consumer_body,
    consumer_join,
    consumer_joined,
    coordinated_topic,
    group,
)
from differential.normal import kafka_form
from differential.requests import missing
from differential.script import Run, Topic, scenarios
from differential.shares import BEAT, LEAVES, share_beat, share_group, share_joined

DESCRIBED = {"api": "share_group_describe", "version": 1}
BEATEN = {"api": "share_group_heartbeat", "version": 1}


def described(run: Run, label: str, name: str) -> None:
    run.ask(label, {"group_ids": [name]}, **DESCRIBED)


def shared_topic(run: Run, token: str = "a", *, partitions: int = 1) -> Topic:
    """A topic that the coordinators know."""
    return coordinated_topic(run, token, partitions=partitions)


def first_member(run: Run) -> None:
    name, topic = group(run), shared_topic(run, partitions=3)
    run.ask("joins", share_beat(name, "m1", 0, topic.name))
    epoch = share_joined(run, name, "m1", topic, partitions=3)
    run.ask("beats", share_beat(name, "m1", epoch))
    run.ask("says everything again", share_beat(name, "m1", epoch, topic.name))
    run.ask("joins again", share_beat(name, "m1", 0, topic.name, rack_id="r1"))
    described(run, "described", name)
    run.ask("leaves", share_beat(name, "m1", LEAVES))
    described(run, "described when it left", name)
    run.ask("leaves again", share_beat(name, "m1", LEAVES))
    run.ask("beats when it left", share_beat(name, "m1", epoch))


def invalid_fields(run: Run) -> None:
    name, topic = group(run), shared_topic(run)
    right = share_beat(name, "m1", 0, topic.name)
    cases: dict[str, dict[str, Any]] = {
        "empty group": {"group_id": ""},
        "blank group": {"group_id": "  "},
        "no subscription": {"subscribed_topic_names": None},
        "empty subscription": {"subscribed_topic_names": []},
        "empty rack": {"rack_id": ""},
        "epoch -2": {"member_epoch": -2},
        "empty member": {"member_id": ""},
        "long member": {"member_id": "m" * 37},
    }
    for label, case in cases.items():
        run.ask(label, right | case)
    run.ask("leaves an unknown group", share_beat(run.name("u"), "m1", LEAVES))
    run.ask("heartbeat in an unknown group", share_beat(run.name("u"), "m1", 4))


def wrong_epochs(run: Run) -> None:
    name, topic = group(run), shared_topic(run)
    epoch = share_joined(run, name, "m1", topic)
    run.ask("newer", share_beat(name, "m1", epoch + 5))
    run.ask("one older", share_beat(name, "m1", epoch - 1))
    run.ask("unknown member", share_beat(name, "stranger", epoch))


def members_share_partitions(run: Run) -> None:
    """With fewer partitions than members, a partition is assigned to several."""
    name, topic = group(run), shared_topic(run, partitions=4)
    share_joined(run, name, "m1", topic, partitions=4)
    second = run.do(*BEAT, share_beat(name, "m2", 0, topic.name))
    first = run.do(*BEAT, share_beat(name, "m1", 0, topic.name))
    parts = [
        sorted(index for part in each["assignment"]["topic_partitions"] for index in part["partitions"])
        for each in (first, second)
    ]
    run.record("each has", {"counts": sorted(map(len, parts)), "together": sorted({*parts[0], *parts[1]})})


def more_members_than_partitions(run: Run) -> None:
    name, topic = group(run), shared_topic(run)
    for index in range(3):
        share_joined(run, name, f"m{index}", topic)
    described(run, "described", name)
    run.do(*BEAT, share_beat(name, "m0", LEAVES))
    described(run, "one left", name)


def full_group(run: Run) -> None:
    name, topic = group(run), shared_topic(run)
    for index in range(4):
        share_joined(run, name, f"m{index}", topic)
    run.ask("one too many", share_beat(name, "m9", 0, topic.name))


def unusual_subscriptions(run: Run) -> None:
    topic = shared_topic(run)
    run.ask("unknown topic", share_beat(group(run, "h"), "m1", 0, missing(run).name))
    run.ask("bad name", share_beat(group(run, "j"), "m1", 0, "a/b", topic.name))
    name = group(run)
    epoch = share_joined(run, name, "m1", topic)
    other = shared_topic(run, "b", partitions=2)
    run.ask("changes", share_beat(name, "m1", epoch, other.name))
    share_joined(run, name, "m1", other, partitions=2)
    described(run, "described", name)


def topic_appears_and_grows(run: Run) -> None:
    name = group(run)
    late = run.name("late")
    run.do(*BEAT, share_beat(name, "m1", 0, late))
    topic = run.topic("late")
    share_joined(run, name, "m1", topic)
    run.do("create_partitions", 1, {"topics": [{"name": late, "count": 3, "assignments": None}], "timeout": 10_000})
    share_joined(run, name, "m1", topic, partitions=3)
    described(run, "described", name)


def topic_is_deleted(run: Run) -> None:
    name, topic, other = group(run), shared_topic(run), shared_topic(run, "b")
    share_joined(run, name, "m1", topic, other, partitions=2)
    run.do("delete_topics", 3, {"topic_names": [topic.name], "timeout": 10_000})
    run.await_gone(topic.name)

    def is_told() -> bool:
        response = run.do(*BEAT, share_beat(name, "m1", 0, topic.name, other.name))
        return sum(len(part["partitions"]) for part in response["assignment"]["topic_partitions"]) == 1

    run.until("an assignment without the topic", is_told)
    described(run, "described", name)


def groups_of_other_types(run: Run) -> None:
    """A group has one type: the members of another are refused."""
    topic = shared_topic(run)
    classic, consumer, share = group(run, "classic"), group(run, "consumer"), group(run, "share")
    alone(run, classic)
    consumer_joined(run, consumer, "m1", topic.name)
    share_joined(run, share, "m1", topic)
    for label, name in (("classic", classic), ("consumer", consumer)):
        run.ask(f"share member joins a {label} group", share_beat(name, "m2", 0, topic.name))
    run.ask("consumer joins", consumer_join(share, "m2", topic.name), api="consumer_group_heartbeat", version=1)
    join = {
        "group_id": share,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "protocol_type": "consumer",
        "member_id": "",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    run.ask("classic member joins", join, api="join_group", version=9)
    commit = {
        "group_id": share,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
            }
        ],
    }
    run.ask("commits", commit, api="offset_commit", version=9)
    run.ask("fetches offsets", {"groups": [{"group_id": share, "topics": None}]}, api="offset_fetch", version=9)
    run.ask("described as classic", {"groups": [share]}, api="describe_groups", version=6)
    run.ask("described as consumer", {"group_ids": [share]}, api="consumer_group_describe", version=1)
    run.ask("others described as share", {"group_ids": [classic, consumer]}, **DESCRIBED)


def empty_groups_of_other_types(run: Run) -> None:
    topic = shared_topic(run)
    left, offsets, share = group(run, "left"), group(run, "offsets"), group(run, "share")
    consumer_joined(run, left, "m1", topic.name)
    run.do(*CONSUMER_BEAT, consumer_body(left, "m1", -1))
    committed(run, offsets, topic, 3)
    run.ask("consumer group without members", share_beat(left, "m1", 0, topic.name))
    run.ask("group of offsets alone", share_beat(offsets, "m1", 0, topic.name))
    share_joined(run, share, "m1", topic)
    run.do(*BEAT, share_beat(share, "m1", LEAVES))
    run.ask(
        "consumer in an empty share group",
        consumer_join(share, "m1", topic.name),
        api="consumer_group_heartbeat",
        version=1,
    )


def listed_and_deleted(run: Run) -> None:
    topic = shared_topic(run)
    full, empty = group(run, "full"), group(run, "empty")
    share_joined(run, full, "m1", topic)
    share_joined(run, empty, "m1", topic)
    run.do(*BEAT, share_beat(empty, "m1", LEAVES))
    listing = {"api": "list_groups", "version": 5, "own_only": True}
    run.ask("all", {}, **listing)
    run.ask("of type share", {"types_filter": ["share"]}, **listing)
    run.ask("of type Share", {"types_filter": ["Share"]}, **listing)
    run.ask("of type consumer", {"types_filter": ["consumer"]}, **listing)
    run.ask("empty ones", {"states_filter": ["Empty"]}, **listing)
    run.ask("stable ones", {"states_filter": ["Stable"], "types_filter": ["share"]}, **listing)
    run.ask("deleted", {"groups_names": [full, empty]}, api="delete_groups", version=2)
    run.ask("after it", {"types_filter": ["share"]}, **listing)
    run.ask("described after it", {"group_ids": [full, empty]}, **DESCRIBED)


def describe_unknown(run: Run) -> None:
    name = group(run)
    run.ask("unknown", {"group_ids": [name]})
    run.ask("empty name", {"group_ids": [""]})
    run.ask("nothing", {"group_ids": []})
    topic = shared_topic(run)
    share_joined(run, name, "m1", topic)
    wanted = {"group_ids": [name, run.name("u"), name], "include_authorized_operations": True}
    run.ask("several", wanted)


def coordinators(run: Run) -> None:
    """FindCoordinator with keys of share partitions, group:topic id:partition."""
    topic = shared_topic(run)
    name = share_group(run)
    share_joined(run, name, "m1", topic)
    for label, key in {
        "one": f"{name}:{kafka_form(topic.topic_id)}:0",
        "no colons": "no-colons",
        "bad id": "group:topic:0",
        "bad partition": f"{name}:{kafka_form(topic.topic_id)}:x",
        "empty": "",
    }.items():
        run.ask(label, {"key_type": 2, "coordinator_keys": [key]})


SCENARIOS = (
    *scenarios(
        "share_groups",
        "share_group_heartbeat",
        (
            first_member,
            invalid_fields,
            wrong_epochs,
            members_share_partitions,
            more_members_than_partitions,
            full_group,
            unusual_subscriptions,
            topic_appears_and_grows,
            topic_is_deleted,
            groups_of_other_types,
            empty_groups_of_other_types,
            listed_and_deleted,
        ),
    ),
    *scenarios("share_groups", "share_group_describe", (describe_unknown,)),
    *scenarios("share_groups", "find_coordinator", (coordinators,), versions=range(5, 7)),
)
