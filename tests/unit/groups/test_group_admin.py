"""Groups are listed, described and deleted."""

import pytest
from tests.unit.groups.rig import DELAY_MS, Client, Rig, settled, subscription
from tests.unit.groups.test_offset_store import simple_commit

from penstock.groups.commands import (
    CommitEntry,
    DeleteGroups,
    DeleteGroupsReply,
    DescribedGroup,
    DescribedMember,
    ListedGroup,
)
from penstock.groups.events import ClassicGroupForgotten, OffsetForgotten
from penstock.groups.subscription import subscribed_topics
from penstock.model.generated_errors import GroupIdNotFound, NonEmptyGroup, UnknownMemberId


def three_groups() -> Rig:
    rig = Rig()
    settled(rig, Client(rig, group="stable"))
    rig.ask(simple_commit(CommitEntry("t", 0, 1), group="simple"))
    Client(rig, group="forming", protocol_type="connect").join()
    return rig


def test_groups_are_listed_with_their_state_and_type() -> None:
    rig = three_groups()

    assert rig.shard.list_groups() == [
        ListedGroup(group="stable", protocol_type="consumer", state="Stable", type="Classic"),
        ListedGroup(group="simple", protocol_type="", state="Empty", type="Classic"),
        ListedGroup(group="forming", protocol_type="connect", state="PreparingRebalance", type="Classic"),
    ]
    assert dict(rig.shard.members_by_group()) == {"stable": 1, "simple": 0, "forming": 1}


@pytest.mark.parametrize(
    ("states", "types", "names"),
    [
        (["Stable"], [], ["stable"]),
        ([" stable", "EMPTY "], [], ["stable", "simple"]),
        (["preparingrebalance"], ["classic"], ["forming"]),
        (["nonsense"], [], []),
        ([], ["Classic"], ["stable", "simple", "forming"]),
        ([], ["consumer"], []),
        ([], ["nonsense"], []),
        (["Stable"], ["consumer"], []),
    ],
)
def test_lists_are_filtered_by_state_and_type(states: list[str], types: list[str], names: list[str]) -> None:
    rig = three_groups()

    assert [listed.group for listed in rig.shard.list_groups(states, types)] == names


def test_a_stable_group_shows_its_members_and_assignments() -> None:
    rig = Rig()
    client = Client(rig, "client-1", instance="i1")
    settled(rig, client)

    assert rig.shard.describe("g") == DescribedGroup(
        group="g",
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        members=(
            DescribedMember(
                member_id=client.member_id,
                group_instance_id="i1",
                client_id="client-1",
                client_host="/127.0.0.1",
                metadata=subscription("t"),
                assignment=b"client-1",
            ),
        ),
    )


def test_a_rebalancing_group_shows_no_protocol_and_no_metadata() -> None:
    rig = Rig()
    Client(rig).join()
    rig.pass_ms(DELAY_MS)

    described = rig.shard.describe("g")

    assert (described.state, described.protocol_type, described.protocol) == ("CompletingRebalance", "consumer", "")
    assert [(member.metadata, member.assignment) for member in described.members] == [(b"", b"")]


def test_groups_that_do_not_exist_cannot_be_described() -> None:
    rig = three_groups()

    with pytest.raises(GroupIdNotFound, match=r"^Group nobody not found\.$"):
        rig.shard.describe("nobody")
    with pytest.raises(GroupIdNotFound, match=r"^Group nobody not found\.$"):
        rig.shard.describe_consumer("nobody")
    with pytest.raises(GroupIdNotFound, match=r"^Group simple is not a consumer group\.$"):
        rig.shard.describe_consumer("simple")
    assert rig.shard.describe("simple").members == ()


def test_empty_groups_can_be_deleted_with_their_offsets() -> None:
    rig = three_groups()

    reply = rig.ask(DeleteGroups(groups=("simple", "stable", "forming", "nobody", "simple")))

    assert isinstance(reply, DeleteGroupsReply)
    assert {name: type(error) for name, error in reply.failures.items()} == {
        "stable": NonEmptyGroup,
        "forming": NonEmptyGroup,
        "nobody": GroupIdNotFound,
    }
    assert rig.log[-2:] == [OffsetForgotten("simple", "t", 0), ClassicGroupForgotten(group="simple")]
    assert [listed.group for listed in rig.shard.list_groups()] == ["stable", "forming"]
    assert rig.shard.fetch_offsets("simple") == []


def test_a_deleted_group_can_be_created_again() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)
    client.commit(5)
    client.leave()
    Client(rig)._send_join()

    assert rig.ask(DeleteGroups(groups=("g",))) == DeleteGroupsReply({})

    assert rig.membership_timers == set()
    assert client.join().joined.error is UnknownMemberId
    again = Client(rig)
    settled(rig, again)
    assert again.joined.generation == 1
    assert rig.shard.fetch_offsets("g") == []


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (subscription(), set()),
        (subscription("a", "b", version=3, user_data=b"xyz"), {"a", "b"}),
        (subscription("a") + b"fields of later versions", {"a"}),
        (b"", None),
        (b"\0\0", None),
        (b"\0\0\0\0\0\1", None),
        (b"\0\0\xff\xff\xff\xff", None),
        (b"\0\0\0\0\0\1\xff\xff", None),
        (b"\0\0\0\0\0\1\0\1\xff\xff\xff\xff\xff", None),
        (b"\0\0\x7f\xff\xff\xff", None),
        (subscription("a", user_data=b"cut short")[:-1], None),
    ],
)
def test_the_topics_of_a_valid_subscription_are_read(metadata: bytes, topics: set[str] | None) -> None:
    assert subscribed_topics(metadata) == topics
