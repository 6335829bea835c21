"""What share groups of librdkafka's share consumers show: members together, locks, counts, transactions."""

from __future__ import annotations

import urllib.request
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaError, Message, ShareConsumer

from penstock.testing.processes import free_port
from protocol.clients.confluent import Confluent
from protocol.group_members import fill, numbered
from protocol.share_members import (
    QUICK_SHARES,
    SECONDS_MAX,
    accepted,
    poll_until,
    share_group,
    share_member,
)
from protocol.topics import create_topic

BROKER_SETTINGS = QUICK_SHARES
pytestmark = pytest.mark.xdist_group("queues")


def test_members_share_the_records_of_one_partition(broker: Any, topic: str, group: str) -> None:
    """More members than partitions: each record is accepted once, by one of them."""
    share_group(broker, group)
    with ExitStack() as stack:
        members = [stack.enter_context(share_member(broker, group, topic, **{"max.poll.records": 5})) for _ in range(3)]
        for start in range(0, 300, 30):
            fill(broker, topic, numbered(30, start=start))
        poll_until(lambda: len(accepted(members)) >= 300, *members, what="300 accepted records")

        assert accepted(members) == sorted(numbered(300))
        assert {count for member in members for _, count in member.delivered} == {1}


def test_implicit_acknowledgement_accepts_what_was_polled(broker: Any, topic: str, group: str) -> None:
    share_group(broker, group)
    fill(broker, topic, numbered(10))
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group}
    values: list[bytes] = []
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])
        while len(values) < 10:
            values += [message.value() for message in consumer.poll(SECONDS_MAX)]
        # A poll accepts the records of the one before; the last ones wait for it, or for a commit.
        consumer.commit_sync(SECONDS_MAX)
    fill(broker, topic, numbered(1, start=10))

    with share_member(broker, group, topic) as member:
        poll_until(lambda: bool(member.accepted), member, what="the new record")

    assert values == numbered(10)
    assert member.delivered == [(numbered(1, start=10)[0], 1)]


def test_a_lock_that_expires_gives_the_record_to_another_member(broker: Any, topic: str, group: str) -> None:
    """The late acknowledgement of the first member is refused: another holds the record."""
    share_group(broker, group, share_record_lock_duration_ms="2000")
    fill(broker, topic, numbered(1))
    with share_member(broker, group, topic) as slow, share_member(broker, group, topic) as quick:
        [held] = slow.consumer.poll(SECONDS_MAX)
        [again] = quick.consumer.poll(SECONDS_MAX)
        slow.consumer.acknowledge(held, AcknowledgeType.ACCEPT)
        [error] = slow.consumer.commit_sync(SECONDS_MAX).values()
        quick.consumer.acknowledge(again, AcknowledgeType.ACCEPT)
        assert list(quick.consumer.commit_sync(SECONDS_MAX).values()) == [None]

    assert (held.delivery_count(), again.delivery_count()) == (1, 2)
    assert error.args[0].code() == KafkaError.INVALID_RECORD_STATE


def test_a_member_that_leaves_releases_what_it_holds(broker: Any, topic: str, group: str) -> None:
    share_group(broker, group)
    fill(broker, topic, numbered(4))
    with share_member(broker, group, topic) as leaves:
        held = leaves.consumer.poll(SECONDS_MAX)
        leaves.consumer.acknowledge(held[0], AcknowledgeType.ACCEPT)
    with share_member(broker, group, topic) as stays:
        poll_until(lambda: len(stays.accepted) == 3, stays, what="the other three")

    assert sorted(stays.delivered) == [(value, 2) for value in numbered(3, start=1)]


def test_a_record_that_nobody_accepts_is_delivered_up_to_the_limit(broker: Any, topic: str, group: str) -> None:
    """A bad record is archived at the limit, and the records around it are not."""
    share_group(broker, group, share_delivery_count_limit="3")
    fill(broker, topic, [b"good-1", b"bad", b"good-2"])

    def decide(message: Message) -> AcknowledgeType:
        return AcknowledgeType.RELEASE if message.value() == b"bad" else AcknowledgeType.ACCEPT

    with share_member(broker, group, topic) as member:
        poll_until(lambda: (b"bad", 3) in member.delivered, member, what="the third delivery", decide=decide)
        fill(broker, topic, [b"last"])
        poll_until(lambda: b"last" in member.accepted, member, what="the last record", decide=decide)

    assert [count for value, count in member.delivered if value == b"bad"] == [1, 2, 3]
    assert sorted(member.accepted) == [b"good-1", b"good-2", b"last"]


def test_a_read_committed_group_is_not_given_what_was_aborted(broker: Any, topic: str, group: str) -> None:
    share_group(broker, group, share_isolation_level="read_committed")
    with Confluent(broker.bootstrap).transactional(group) as producer:
        producer.begin()
        producer.send(topic, b"aborted")
        producer.abort()
        producer.begin()
        producer.send(topic, b"committed")
        producer.commit()

    with share_member(broker, group, topic) as member:
        poll_until(lambda: bool(member.accepted), member, what="the committed record")
        fill(broker, topic, [b"plain"])
        poll_until(lambda: b"plain" in member.accepted, member, what="the plain record")

    assert member.accepted == [b"committed", b"plain"]


def test_groups_of_one_topic_have_nothing_to_do_with_each_other(broker: Any, topic: str, group: str) -> None:
    first, second = share_group(broker, f"{group}-1"), share_group(broker, f"{group}-2")
    fill(broker, topic, numbered(5))
    with share_member(broker, first, topic) as one, share_member(broker, second, topic) as other:
        poll_until(lambda: len(one.accepted) == len(other.accepted) == 5, one, other, what="five each")

    assert one.accepted == other.accepted == numbered(5)


@pytest.mark.penstock_only
def test_the_metrics_show_what_is_held_and_delivered_again(start_broker: Any, group: str) -> None:
    listener = f"127.0.0.1:{free_port()}"
    broker = start_broker({**QUICK_SHARES, "metrics.listener": listener})
    create_topic(broker.bootstrap, group)
    share_group(broker, group)
    fill(broker, group, numbered(4))
    with share_member(broker, group, group) as member:
        poll_until(lambda: len(member.delivered) == 4, member, what="four records", decide=released_once)
        held = list(member.consumer.poll(SECONDS_MAX))

        shown = scraped(listener)
        assert shown["penstock_share_sessions"] == 1
        assert shown[f'penstock_share_records_held{{group="{group}",topic="{group}"}}'] == len(held)
        assert shown[f'penstock_share_records_unfinished{{group="{group}",topic="{group}"}}'] == 4
        assert shown["penstock_share_records_delivered_total"] == 4 + len(held)
        assert shown["penstock_share_records_redelivered_total"] == len(held) > 0
        assert 0 < shown["penstock_share_acquisition_wait_seconds_count"] <= 4 + len(held)
        assert shown["penstock_share_records_expired_total"] == shown["penstock_share_dead_letters_total"] == 0
        assert shown[f'penstock_share_start_seconds{{group="{group}",topic="{group}"}}'] > 0


def released_once(message: Message) -> AcknowledgeType:
    return AcknowledgeType.RELEASE


def scraped(listener: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{listener}/metrics") as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}
