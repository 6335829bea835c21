"""Consumer groups: one story per behaviour, run with every client and each of its protocols."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.clients import abilities as can
from protocol.clients.library import AIOKAFKA, CLIENTS, CONFLUENT, with_every_client
from protocol.group_members import (
    EVERY_PROTOCOL,
    QUICK,
    Member,
    Ownership,
    await_commits,
    await_values,
    fill,
    numbered,
    settle,
)

BROKER_SETTINGS = QUICK
pytestmark = pytest.mark.xdist_group("group-stories")

OTHERS = [kind for kind in CLIENTS if kind is not CONFLUENT]
SEVERAL_IN_THREADS = [kind for kind in CLIENTS if kind is not AIOKAFKA]
"""Several members of aiokafka, each on a loop of its own, may wait for each other for minutes in a rebalance by Apache
Kafka's coordinator; test_aiokafka.py has them on one loop."""


@with_every_client(can.JoinsGroupsInThreads, each="group_protocol", among=SEVERAL_IN_THREADS)
def test_members_share_partitions_and_each_record_is_read_once(
    client: Any, group_protocol: str, broker: Any, make_topic: Any, group: str
) -> None:
    topic, owners = make_topic(partitions=6), Ownership()
    with (
        client.member(group, topic, group_protocol, name="a", owners=owners) as first,
        client.member(group, topic, group_protocol, name="b", owners=owners) as second,
        client.member(group, topic, group_protocol, name="c", owners=owners) as third,
    ):
        settle(first, second, third, places=6)
        assert [len(member.owned) for member in (first, second, third)] == [2, 2, 2]

        fill(broker, topic, numbered(600), partitions=6)
        counts = await_values(numbered(600), first, second, third)
        await_commits(broker, group, topic, 6, total=600)
        for member in (first, second, third):
            member.leave()

    assert set(counts.values()) == {1}
    assert not owners.faults


@with_every_client(can.JoinsGroupsInThreads, each="group_protocol", among=SEVERAL_IN_THREADS)
def test_a_member_that_leaves_gives_its_partitions_to_the_rest(
    client: Any, group_protocol: str, make_topic: Any, group: str
) -> None:
    topic, owners = make_topic(partitions=4), Ownership()
    with client.member(group, topic, group_protocol, name="stays", owners=owners) as stays:
        with client.member(group, topic, group_protocol, name="leaves", owners=owners) as leaves:
            settle(stays, leaves, places=4)
        settle(stays, places=4)

    assert not owners.faults


@with_every_client(can.JoinsGroups, each="group_protocol", among=OTHERS)
def test_a_member_shares_a_group_with_one_of_librdkafka(
    client: Any, group_protocol: str, broker: Any, make_topic: Any, group: str
) -> None:
    topic = make_topic(partitions=4)
    fill(broker, topic, numbered(40), partitions=4)
    with client.member(group, topic, group_protocol, name="member", owners=Ownership()) as member:
        await_values(numbered(40), member)
        await_commits(broker, group, topic, 4, total=40)
        with Member(broker, group, [topic], name="librdkafka", **EVERY_PROTOCOL[group_protocol]) as other:
            settle(member, other, places=4)
            fill(broker, topic, numbered(40, start=40), partitions=4)
            await_values(numbered(80), member, other)
            await_commits(broker, group, topic, 4, total=80)
            assert set(other.values) <= set(numbered(40, start=40)), "it begins where the other has committed"
        settle(member, places=4)


@with_every_client(can.ReadsInGroup, each="group_protocol")
def test_a_member_goes_on_where_the_last_one_committed(
    client: Any, group_protocol: str, broker: Any, topic: str, group: str
) -> None:
    fill(broker, topic, numbered(10))

    assert client.read_in_group(group, topic, 6, group_protocol) == numbered(6)
    assert client.read_in_group(group, topic, 4, group_protocol) == numbered(4, start=6)


@with_every_client(can.CommitsOffsets, can.ReadsInGroup)
def test_an_offset_committed_from_outside_is_where_the_next_member_starts(
    client: Any, broker: Any, topic: str, group: str
) -> None:
    fill(broker, topic, numbered(10))
    assert client.committed(group, (topic, 0)) is None

    client.commit_offset(group, (topic, 0), 7, "seven")

    # aiokafka does not show the note.
    assert client.committed(group, (topic, 0)) in ((7, "seven"), (7, None))
    assert client.read_in_group(group, topic, 3, "range") == numbered(3, start=7)
    assert client.committed(group, (topic, 0))[0] == 10
