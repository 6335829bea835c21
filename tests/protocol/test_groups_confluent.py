"""What groups of librdkafka's consumers alone show, by the classic protocol and by the new one."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from protocol.group_members import (
    CLASSIC_RANGE,
    CONSUMER,
    EVERY_PROTOCOL,
    QUICK,
    SECONDS_MAX,
    Member,
    await_assignment,
    await_commits,
    await_values,
    committed,
    fill,
    numbered,
    settle,
)
from protocol.topics import create_topic, fresh_name, wait_until

BROKER_SETTINGS = QUICK
pytestmark = pytest.mark.xdist_group("groups-confluent")


@pytest.fixture(params=EVERY_PROTOCOL.values(), ids=EVERY_PROTOCOL.keys())
def protocol(request: pytest.FixtureRequest) -> dict[str, str]:
    return request.param  # type: ignore[no-any-return]


def test_a_pattern_finds_topics_that_are_made_later(broker: Any, group: str, protocol: dict[str, str]) -> None:
    stem = fresh_name("pattern")
    create_topic(broker.bootstrap, f"{stem}-one")
    with Member(broker, group, [f"^{stem}-.*"], **protocol) as member:
        settle(member, places=1)
        create_topic(broker.bootstrap, f"{stem}-two", partitions=2)
        settle(member, places=3)
        assert member.owned == {(f"{stem}-one", 0), (f"{stem}-two", 0), (f"{stem}-two", 1)}


def test_a_topic_that_grows_is_read_whole(broker: Any, make_topic: Any, group: str, protocol: dict[str, str]) -> None:
    topic = make_topic(partitions=1)
    with Member(broker, group, [topic], name="a", **protocol) as first:
        settle(first, places=1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(SECONDS_MAX)
        settle(first, places=4)
        wait_until(lambda: topic_partitions(broker, topic) == 4, what="four partitions to produce to")
        fill(broker, topic, numbered(40), partitions=4)
        assert set(await_values(numbered(40), first).values()) == {1}


def topic_partitions(broker: Any, topic: str) -> int:
    return len(
        Producer({"bootstrap.servers": broker.bootstrap}).list_topics(topic, SECONDS_MAX).topics[topic].partitions
    )


def test_a_topic_deleted_while_subscribed_leaves_the_group_with_the_rest(
    broker: Any, make_topic: Any, group: str, protocol: dict[str, str]
) -> None:
    gone, stays = make_topic(partitions=2), make_topic(partitions=2)
    fill(broker, gone, numbered(10), partitions=2)
    with Member(broker, group, [gone, stays], **protocol) as member:
        await_values(numbered(10), member)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics([gone])[gone].result(SECONDS_MAX)
        wait_until(lambda: member.owned == {(stays, 0), (stays, 1)}, what="the rest", seconds_max=SECONDS_MAX)
        fill(broker, stays, numbered(10, start=10), partitions=2)
        assert set(await_values(numbered(20), member)) == set(numbered(20))
        await_commits(broker, group, stays, 2, total=10)
    wait_until(lambda: committed(broker, group, gone, 2) == [-1001, -1001], what="end of its offsets")


@pytest.mark.parametrize("protocol", [CLASSIC_RANGE, CONSUMER], ids=["classic", "consumer"])
def test_a_static_member_keeps_its_partitions_over_a_restart_without_a_rebalance(
    broker: Any, make_topic: Any, group: str, protocol: dict[str, str]
) -> None:
    topic = make_topic(partitions=4)
    static = {**protocol, "group.instance.id": "one"}
    with Member(broker, group, [topic], name="other", **protocol, **{"group.instance.id": "two"}) as other:
        with Member(broker, group, [topic], name="before", **static) as before:
            settle(other, before, places=4)
            had, rebalances = set(before.owned), len(other.assignments)
        with Member(broker, group, [topic], name="after", **static) as after:
            settle(other, after, places=4)
            assert after.owned == had
        assert len(other.assignments) == rebalances


def test_a_second_process_with_the_same_instance_fences_the_first(broker: Any, topic: str, group: str) -> None:
    static = {**CLASSIC_RANGE, "group.instance.id": "one", "heartbeat.interval.ms": 200}
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, **static}
    first = Consumer(settings)
    first.subscribe([topic])
    await_assignment(first)
    with Member(broker, group, [topic], **static) as second:
        settle(second, places=1)
        fatal: list[KafkaError] = []

        def is_fenced() -> bool:
            message = first.poll(0.1)
            error = None if message is None else message.error()
            fatal.extend([error] if error is not None and error.code() == KafkaError._FATAL else [])
            return bool(fatal)

        wait_until(is_fenced, what="fencing", seconds_max=SECONDS_MAX)
    assert "Static consumer fenced" in fatal[0].str()
    first.close()


def test_a_group_changes_from_the_classic_to_the_new_protocol_and_back_while_it_runs(
    broker: Any, make_topic: Any, group: str
) -> None:
    topic = make_topic(partitions=4)
    produced: list[bytes] = []

    def feed(*members: Member) -> None:
        more = numbered(40, start=len(produced))
        produced.extend(more)
        fill(broker, topic, more, partitions=4)
        await_values(more, *members)

    with Member(broker, group, [topic], name="classic", **CLASSIC_RANGE) as classic:
        settle(classic, places=4)
        feed(classic)
        with Member(broker, group, [topic], name="new", **CONSUMER) as new:
            settle(classic, new, places=4)
            feed(classic, new)
            classic.stop()
            settle(new, places=4)
            feed(new)
            with Member(broker, group, [topic], name="back", **CLASSIC_RANGE) as back:
                settle(new, back, places=4)
                feed(new, back)
                new.stop()
                settle(back, places=4)
                feed(back)
                await_commits(broker, group, topic, 4, total=len(produced))
    assert committed(broker, group, topic, 4) == [len(produced) // 4] * 4


def test_offsets_are_committed_without_being_a_member_and_carry_a_note(broker: Any, topic: str, group: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        place = TopicPartition(topic, 0, 7, metadata="half of it", leader_epoch=0)
        consumer.commit(offsets=[place], asynchronous=False)
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)
        with pytest.raises(KafkaException) as refused:
            consumer.commit(offsets=[TopicPartition(topic, 9, 1)], asynchronous=False)

    assert (found.offset, found.metadata, found.leader_epoch) == (7, "half of it", 0)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_an_assigned_consumer_commits_beside_no_group(broker: Any, topic: str, group: str) -> None:
    fill(broker, topic, numbered(10))
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [message.error() for message in consumer.consume(10, SECONDS_MAX)] == [None] * 10
        consumer.commit(asynchronous=False)

    assert committed(broker, group, topic, 1) == [10]


def test_a_member_that_stops_polling_loses_its_partitions(broker: Any, topic: str, group: str) -> None:
    slow = {**CLASSIC_RANGE, "session.timeout.ms": 1000, "max.poll.interval.ms": 1500, "heartbeat.interval.ms": 200}
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, **slow})) as silent:
        silent.subscribe([topic])
        await_assignment(silent)
        with Member(broker, group, [topic], **CLASSIC_RANGE) as member:
            settle(member, places=1)
            event = silent.poll(SECONDS_MAX)
    assert event is not None
    assert event.error().code() == KafkaError._MAX_POLL_EXCEEDED
