"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from differential.members import (
    alone,
    await_state,
    commit_body,
    commit_partition,
    commit_topic,
    committed,
    consumer_joined,
    group,
    new_member,
    offsets_body,
    offsets_of,
    protocols,
    send_join,
    subscription,
    sync,
    together,
)
from differential.requests import missing
from differential.script import Run, Topic, scenarios

OFFSETS_API = {"api": "offset_fetch", "version": 9}
METADATA_BYTES_MAX = 4096


def offsets(run: Run, label: str, name: str, topic: Topic, *indexes: int) -> None:
    run.ask(label, offsets_body(name, (topic, list(indexes))), **OFFSETS_API)


def commit_without_membership(run: Run) -> None:
    name, topic = group(run), run.topic(partitions=3)
    first = commit_partition(0, 5, committed_metadata="note", committed_leader_epoch=7)
    run.ask("two partitions", commit_body(name, commit_topic(topic, first, (1, 6))))
    offsets(run, "fetched", name, topic, 0, 1, 2)
    run.ask("back and forth", commit_body(name, commit_topic(topic, (0, 3), (1, 60))))
    offsets(run, "fetched again", name, topic, 0, 1)
    run.ask("described", {"groups": [name]}, api="describe_groups", version=5)


def commit_unusual_offsets(run: Run) -> None:
    name, topic = group(run), run.topic(partitions=4)
    odd = (commit_partition(0, -1), commit_partition(1, -5), commit_partition(2, 1 << 60), commit_partition(3, 0))
    run.ask("response", commit_body(name, commit_topic(topic, *odd)))
    offsets(run, "fetched", name, topic, 0, 1, 2, 3)


def commit_metadata(run: Run) -> None:
    name, topic = group(run), run.topic(partitions=4)
    sizes = (METADATA_BYTES_MAX, METADATA_BYTES_MAX + 1)
    parts = [commit_partition(index, 1, committed_metadata="m" * size) for index, size in enumerate(sizes)]
    parts += [commit_partition(2, 1, committed_metadata=None), commit_partition(3, 1, committed_metadata="ü" * 4000)]
    run.ask("response", commit_body(name, commit_topic(topic, *parts)))
    offsets(run, "fetched", name, topic, 0, 1, 2)


def commit_for_unknown_topics(run: Run) -> None:
    name, topic = group(run), run.topic()
    run.ask("unknown topic", commit_body(name, commit_topic(missing(run), (0, 1)), commit_topic(topic, (0, 1))))
    run.ask("unknown partition", commit_body(name, commit_topic(topic, (9, 1), (-1, 1), (0, 2))))
    if run.version < 10:
        run.ask("empty topic", commit_body(name, {"name": "", "partitions": [commit_partition(0, 1)]}))
        run.ask("bad topic", commit_body(name, {"name": "a/b", "partitions": [commit_partition(0, 1)]}))


def commit_nothing(run: Run) -> None:
    name, topic = group(run), run.topic()
    run.ask("no topics", commit_body(name))
    run.ask("no partitions", commit_body(name, commit_topic(topic)))


def commit_the_same_twice(run: Run) -> None:
    name, topic = group(run), run.topic()
    run.ask("partition", commit_body(name, commit_topic(topic, (0, 1), (0, 2))))
    offsets(run, "fetched", name, topic, 0)
    run.ask("topic", commit_body(name, commit_topic(topic, (0, 3)), commit_topic(topic, (0, 4))))
    offsets(run, "fetched again", name, topic, 0)


def commit_of_unknown_groups(run: Run) -> None:
    name, topic = group(run), run.topic()
    part = commit_topic(topic, (0, 1))
    run.ask("with a generation", commit_body(name, part, generation_id_or_member_epoch=3, member_id="m"))
    run.ask("with a generation alone", commit_body(name, part, generation_id_or_member_epoch=3))
    run.ask("with a member alone", commit_body(name, part, member_id="m"))
    run.ask("generation -2", commit_body(name, part, generation_id_or_member_epoch=-2))
    run.ask("empty name", commit_body("", part))
    run.do("delete_groups", 2, {"groups_names": [""]})
    if run.version >= 7:
        run.ask("with an instance", commit_body(name, part, group_instance_id="i"))


def commit_of_members(run: Run) -> None:
    name, topic = group(run), run.topic(partitions=2)
    part = commit_topic(topic, (0, 1))
    member = alone(run, name, synced=False)
    right = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
    run.ask("before it synced", commit_body(name, part, **right))
    sync(member)
    run.ask("right", commit_body(name, part, **right))
    for generation in (0, 2, -1):
        run.ask(
            f"generation {generation}", commit_body(name, part, **right | {"generation_id_or_member_epoch": generation})
        )
    run.ask("unknown member", commit_body(name, part, **right | {"member_id": "stranger"}))
    run.ask("no member id", commit_body(name, part, **right | {"member_id": ""}))
    run.ask("without a member, while there are members", commit_body(name, part))
    send_join(new_member(run, name))
    await_state(run, name, "PreparingRebalance")
    run.ask("rebalancing", commit_body(name, part, **right))
    run.do("leave_group", 1, {"group_id": name, "member_id": member.member_id})
    run.ask("after it left", commit_body(name, part, **right))


def commit_when_all_left(run: Run) -> None:
    name, topic = group(run), run.topic()
    part = commit_topic(topic, (0, 1))
    member = alone(run, name)
    right = {"member_id": member.member_id, "generation_id_or_member_epoch": 1}
    run.do("leave_group", 1, {"group_id": name, "member_id": member.member_id})
    run.ask("by the old member", commit_body(name, part, **right))
    run.ask(
        "by the old member, new generation", commit_body(name, part, **right | {"generation_id_or_member_epoch": 2})
    )
    run.ask("without a member", commit_body(name, part))
    run.ask("by a generation alone", commit_body(name, part, generation_id_or_member_epoch=2))


def commit_retained(run: Run) -> None:
    """Up to version 4 a commit may have a retention time."""
    name, topic = group(run), run.topic()
    run.ask("a day", commit_body(name, commit_topic(topic, (0, 1)), retention_time=86_400_000))
    run.ask("negative", commit_body(name, commit_topic(topic, (0, 2)), retention_time=-5))
    offsets(run, "fetched", name, topic, 0)


# OffsetFetch


def fetch_unknown_group(run: Run) -> None:
    name, topic = group(run), run.topic()
    run.ask("one partition", offsets_body(name, (topic, [0])))
    run.ask("unknown topic and partition", offsets_body(name, (missing(run), [0]), (topic, [9])))
    run.ask("nothing", offsets_body(name))
    run.ask("no partitions", offsets_body(name, (topic, [])))
    run.ask("empty name", offsets_body("", (topic, [0])))


def fetch_some(run: Run) -> None:
    name, topic, other = group(run), run.topic(partitions=3), run.topic("b")
    committed(run, name, topic, 11, 12)
    run.ask("committed and not", offsets_body(name, (topic, [0, 1, 2]), (other, [0])))
    run.ask("twice", offsets_body(name, (topic, [0, 0])))
    run.ask("topic twice", offsets_body(name, (topic, [0]), (topic, [1])))
    run.ask("unknown topic", offsets_body(name, (missing(run), [0])))
    run.ask("unknown partition", offsets_body(name, (topic, [9, -1])))


def fetch_everything(run: Run) -> None:
    name, topic, other = group(run), run.topic(partitions=3), run.topic("b")
    run.ask("of an unknown group", offsets_body(name, everything=True))
    committed(run, name, topic, 11, 12)
    committed(run, name, other, 13)
    run.ask("of a known group", offsets_body(name, everything=True))


def fetch_stable_only(run: Run) -> None:
    name, topic = group(run), run.topic()
    committed(run, name, topic, 5)
    run.ask("response", offsets_body(name, (topic, [0])) | {"require_stable": True})


def fetch_many_groups(run: Run) -> None:
    first, second, topic = group(run), group(run, "h"), run.topic()
    committed(run, first, topic, 5)
    part = [{"name": topic.name, "topic_id": topic.topic_id, "partition_indexes": [0]}]
    wanted = {"group_id": first, "topics": part}
    run.ask("three", offsets_of(wanted, {"group_id": second, "topics": part}, {"group_id": "", "topics": part}))
    run.ask("twice the same", offsets_of(wanted, wanted))
    run.ask("some and all", offsets_of(wanted, {"group_id": second, "topics": None}))
    run.ask("none", offsets_of())


def fetch_of_a_deleted_topic(run: Run) -> None:
    name, topic, other = group(run), run.topic(), run.topic("b")
    committed(run, name, topic, 5)
    committed(run, name, other, 6)
    run.do("delete_topics", 3, {"topic_names": [topic.name], "timeout": 10_000})
    run.await_gone(topic.name)

    def is_forgotten() -> bool:
        response = run.do("offset_fetch", 7, offsets_body(name, everything=True))
        return [found["name"] for found in response["topics"]] == [other.name]

    run.until("offsets forgotten", is_forgotten)
    run.ask("by name", offsets_body(name, (topic, [0])))
    run.ask("everything", offsets_body(name, everything=True))


def fetch_as_a_member(run: Run) -> None:
    """From version 9 on a request has the member id and epoch of a consumer group."""
    classic, modern, topic = group(run), group(run, "h"), run.topic()
    member = alone(run, classic)
    committed(run, classic, topic, 5, member_id=member.member_id, generation_id_or_member_epoch=1)
    asked = (topic, [0])
    run.ask("classic, right", offsets_body(classic, asked, member_id=member.member_id, member_epoch=1))
    run.ask("classic, wrong", offsets_body(classic, asked, member_id="stranger", member_epoch=9))
    epoch = consumer_joined(run, modern, "m1", topic.name)
    committed(run, modern, topic, 6, member_id="m1", generation_id_or_member_epoch=epoch)
    run.ask("right", offsets_body(modern, asked, member_id="m1", member_epoch=epoch))
    run.ask("old epoch", offsets_body(modern, asked, member_id="m1", member_epoch=0))
    run.ask("new epoch", offsets_body(modern, asked, member_id="m1", member_epoch=9))
    run.ask("no epoch", offsets_body(modern, asked, member_id="m1"))
    run.ask("unknown member", offsets_body(modern, asked, member_id="stranger", member_epoch=1))
    run.ask("without a member", offsets_body(modern, asked))
    run.ask("without a member, with an epoch", offsets_body(modern, asked, member_epoch=1))
    run.ask("everything, old epoch", offsets_body(modern, everything=True, member_id="m1", member_epoch=0))


def commit_as_a_member_of_a_consumer_group(run: Run) -> None:
    """Below version 9 a stale epoch is reported as an old generation."""
    name, topic = group(run), run.topic()
    part = commit_topic(topic, (0, 1))
    joined = consumer_joined(run, name, "m1", topic.name)
    for label, member_id, epoch in (
        ("right", "m1", joined),
        ("old epoch", "m1", 0),
        ("new epoch", "m1", 9),
        ("no epoch", "m1", -1),
        ("unknown member", "stranger", 1),
        ("without a member", "", -1),
        ("without a member, with an epoch", "", 1),
    ):
        run.ask(label, commit_body(name, part, member_id=member_id, generation_id_or_member_epoch=epoch))
    offsets(run, "fetched", name, topic, 0)


# OffsetDelete


def delete_body(name: str, *topics: tuple[str, list[int]]) -> dict[str, object]:
    return {
        "group_id": name,
        "topics": [
            {"name": topic, "partitions": [{"partition_index": index} for index in indexes]}
            for topic, indexes in topics
        ],
    }


def delete_offsets(run: Run) -> None:
    name, topic = group(run), run.topic(partitions=2)
    committed(run, name, topic, 5, 6)
    run.ask("one", delete_body(name, (topic.name, [0])))
    offsets(run, "fetched", name, topic, 0, 1)
    run.ask("again, and what is not there", delete_body(name, (topic.name, [0, 9]), (missing(run).name, [0])))
    run.ask("nothing", delete_body(name))
    run.ask("the last", delete_body(name, (topic.name, [1])))
    run.ask("from a group without offsets", delete_body(name, (topic.name, [1])))


def delete_offsets_of_unknown_groups(run: Run) -> None:
    name, topic = group(run), run.topic()
    run.ask("unknown", delete_body(name, (topic.name, [0])))
    run.ask("empty name", delete_body("", (topic.name, [0])))


def delete_offsets_of_a_group_with_members(run: Run) -> None:
    """Only offsets of topics without subscribers, as far as the coordinator knows, can be deleted."""
    name, topic, other = group(run), run.topic(), run.topic("b")
    committed(run, name, topic, 5)
    committed(run, name, other, 6)
    together(run, name, 2, protocols=protocols(metadata=subscription(topic.name)))
    run.ask("subscribed and not", delete_body(name, (topic.name, [0]), (other.name, [0])))
    offsets(run, "fetched", name, other, 0)


def delete_offsets_of_a_group_of_another_type(run: Run) -> None:
    name, topic = group(run), run.topic()
    committed(run, name, topic, 5)
    alone(run, name, protocol_type="connect")
    run.ask("response", delete_body(name, (topic.name, [0])))


def delete_offsets_with_unreadable_subscriptions(run: Run) -> None:
    name, topic = group(run), run.topic()
    committed(run, name, topic, 5)
    alone(run, name)
    run.ask("response", delete_body(name, (topic.name, [0])))


def delete_offsets_of_a_consumer_group(run: Run) -> None:
    name, topic, other = group(run), run.topic(), run.topic("b")
    member = {"member_id": "m1", "generation_id_or_member_epoch": consumer_joined(run, name, "m1", topic.name)}
    committed(run, name, topic, 5, **member)
    committed(run, name, other, 6, **member)
    run.ask("subscribed and not", delete_body(name, (topic.name, [0]), (other.name, [0])))


SCENARIOS = (
    *scenarios(
        "groups_offsets",
        "offset_commit",
        (
            commit_without_membership,
            commit_unusual_offsets,
            commit_metadata,
            commit_for_unknown_topics,
            commit_nothing,
            commit_the_same_twice,
            commit_of_unknown_groups,
            commit_of_members,
            commit_when_all_left,
            commit_as_a_member_of_a_consumer_group,
        ),
    ),
    *scenarios("groups_offsets", "offset_commit", (commit_retained,), versions=range(2, 5)),
    *scenarios("groups_offsets", "offset_fetch", (fetch_unknown_group, fetch_some)),
    *scenarios("groups_offsets", "offset_fetch", (fetch_everything,), versions=range(2, 99)),
    *scenarios("groups_offsets", "offset_fetch", (fetch_of_a_deleted_topic,), versions=range(2, 10)),
    *scenarios("groups_offsets", "offset_fetch", (fetch_stable_only,), versions=range(7, 99)),
    *scenarios("groups_offsets", "offset_fetch", (fetch_many_groups,), versions=range(8, 99)),
    *scenarios("groups_offsets", "offset_fetch", (fetch_as_a_member,), versions=range(9, 99)),
    *scenarios(
        "groups_offsets",
        "offset_delete",
        (
            delete_offsets,
            delete_offsets_of_unknown_groups,
            delete_offsets_of_a_group_with_members,
            delete_offsets_of_a_group_of_another_type,
            delete_offsets_with_unreadable_subscriptions,
            delete_offsets_of_a_consumer_group,
        ),
    ),
)
