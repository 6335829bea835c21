"""Describe-, Alter- and DeleteShareGroupOffsets."""

from __future__ import annotations

from typing import Any

from differential.members import consumer_joined, coordinated_topic, group
from differential.requests import fill_numbered, missing
from differential.script import Body, Run, Topic, scenarios
from differential.shares import AWAITS, BEAT, LEAVES, REJECT, ack, share_beat, share_group, share_joined, share_reader
from differential.shares import share_topic as session_topic


def wanted(topic: Topic | str, *partitions: int) -> dict[str, Any]:
    return {"topic_name": topic if isinstance(topic, str) else topic.name, "partitions": list(partitions)}


def offsets_of(group: str, *topics: dict[str, Any], everything: bool = False) -> Body:
    return {"groups": [{"group_id": group, "topics": None if everything else list(topics)}]}


def described(run: Run, label: str, group: str, *topics: dict[str, Any], everything: bool = False) -> dict[str, Any]:
    body = offsets_of(group, *topics, everything=everything)
    return run.ask(label, body, api="describe_share_group_offsets", version=1)


def altered(group: str, topic: Topic | str, *offsets: tuple[int, int]) -> Body:
    partitions = [{"partition_index": index, "start_offset": offset} for index, offset in offsets]
    name = topic if isinstance(topic, str) else topic.name
    return {"group_id": group, "topics": [{"topic_name": name, "partitions": partitions}]}


def read_group(run: Run, *, partitions: int = 1) -> tuple[Topic, str]:
    """A group without members that has accepted four of six records of each partition, and rejected the fourth."""
    topic = run.topic(partitions=partitions)
    for index in range(partitions):
        fill_numbered(run, topic, 2, partition=index)
    name = share_group(run)
    reader = share_reader(run, name, topic, partitions=partitions)
    reader.opened()
    reader.acknowledged(ack(0, 2), ack(3, 3, REJECT))
    reader.acknowledged(ack(5))
    run.do(*BEAT, share_beat(name, "m1", LEAVES))
    reader.peer.close()
    return topic, name


def describe_offsets(run: Run) -> None:
    topic, name = read_group(run, partitions=2)
    run.ask("of a topic", offsets_of(name, wanted(topic, 0, 1)))
    run.ask("of all", offsets_of(name, everything=True))
    run.ask("none", offsets_of(name))
    run.ask("unknown topic", offsets_of(name, wanted(missing(run), 0)))
    run.ask("unknown group", offsets_of(run.name("u"), wanted(topic, 0)))
    run.ask("all of an unknown group", offsets_of(run.name("u"), everything=True))
    run.ask("nothing", {"groups": []})
    other = coordinated_topic(run, "b")
    run.ask("topic that it does not read", offsets_of(name, wanted(other, 0)))
    consumers = group(run, "consumers")
    consumer_joined(run, consumers, "m1", topic.name)
    run.ask("of a consumer group", offsets_of(consumers, wanted(topic, 0)))
    both = offsets_of(name, wanted(topic, 0))["groups"] + offsets_of(run.name("u"), wanted(topic, 0))["groups"]
    run.ask("of two groups", {"groups": both})


def alter_offsets(run: Run) -> None:
    """Altered offsets begin a new state: what was finished behind them is delivered again."""
    topic, name = read_group(run)
    run.ask("to the second", altered(name, topic, (0, 1)))
    described(run, "described", name, wanted(topic, 0))
    reader = share_reader(run, name, topic, "m2")
    reader.open_latest("all from there on")
    run.ask("with a member", altered(name, topic, (0, 0)))


def alter_wrongly(run: Run) -> None:
    topic, name = read_group(run)
    other = coordinated_topic(run, "b")
    run.ask("unknown group", altered(run.name("u"), topic, (0, 1)))
    run.ask("empty group name", altered("", topic, (0, 1)))
    run.ask("unknown topic", altered(name, missing(run), (0, 1)))
    run.ask("unknown partition", altered(name, topic, (9, 1)))
    run.ask("topic that it does not read", altered(name, other, (0, 0)))
    described(run, "described", name, everything=True)
    run.ask("nothing", {"group_id": name, "topics": []})
    consumers = group(run, "consumers")
    consumer_joined(run, consumers, "m1", topic.name)
    run.ask("of a consumer group", altered(consumers, topic, (0, 1)))


def delete_offsets(run: Run) -> None:
    """The group begins again as one that has never read the topic."""
    topic, name = read_group(run)
    run.ask("of the topic", {"group_id": name, "topics": [{"topic_name": topic.name}]})
    described(run, "described", name, everything=True)
    run.ask("again", {"group_id": name, "topics": [{"topic_name": topic.name}]})
    reader = share_reader(run, name, topic, "m2")
    reader.open_latest("all from the reset on")
    run.ask("with a member", {"group_id": name, "topics": [{"topic_name": topic.name}]})


def delete_wrongly(run: Run) -> None:
    topic, name = read_group(run)
    run.ask("unknown group", {"group_id": run.name("u"), "topics": [{"topic_name": topic.name}]})
    run.ask("unknown topic", {"group_id": name, "topics": [{"topic_name": missing(run).name}]})
    run.ask("nothing", {"group_id": name, "topics": []})
    consumers = group(run, "consumers")
    consumer_joined(run, consumers, "m1", topic.name)
    run.ask("of a consumer group", {"group_id": consumers, "topics": [{"topic_name": topic.name}]})


def topic_made_again(run: Run) -> None:
    """A topic that was deleted and created again has inherited nothing."""
    topic, name = read_group(run)
    described(run, "before", name, everything=True)
    run.do("delete_topics", 3, {"topic_names": [topic.name], "timeout": 10_000})
    run.await_gone(topic.name)
    run.until(
        "no offsets",
        lambda: not run.do("describe_share_group_offsets", 1, offsets_of(name, everything=True))["groups"][0]["topics"],
    )
    again = run.topic()
    fill_numbered(run, again, 1)
    share_joined(run, name, "m2", again)
    reader = share_reader(run, name, again, "m2", joins=False)
    reader.fetch_latest("all of it", session_topic(again, 0), **AWAITS)


SCENARIOS = (
    *scenarios("share_offsets", "describe_share_group_offsets", (describe_offsets,)),
    *scenarios("share_offsets", "alter_share_group_offsets", (alter_offsets, alter_wrongly)),
    *scenarios("share_offsets", "delete_share_group_offsets", (delete_offsets, delete_wrongly, topic_made_again)),
)
