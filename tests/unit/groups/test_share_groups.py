"""Share groups: heartbeats, assignment, share partitions that begin and end, and what survives a coordinator."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.consumer_rig import GROUP, joining, topic_id
from tests.unit.groups.share_rig import ShareRig, accepted, assigned, refusal

from penstock.groups.assignors.simple import share_partitions
from penstock.groups.assignors.spec import MemberSpec
from penstock.groups.commands import (
    AlterShareOffsets,
    CommitEntry,
    CommitOffsets,
    DeleteGroups,
    DeleteShareOffsets,
    JoinGroup,
    JoinReply,
    SharesDeleted,
    SharesInitialized,
)
from penstock.groups.retention import RetentionCheck
from penstock.groups.share.effects import DeleteShares, InitializeShares
from penstock.groups.share.responses import SHARES_SETTLED, SharesChosen
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    NonEmptyGroup,
)
from penstock.model.ids import TopicId
from penstock.wire.group_values import Partitions

SESSION_MS = 45_000


@pytest.fixture
def rig() -> ShareRig:
    return ShareRig()


# Joining and beginning


def test_a_partition_is_assigned_once_its_state_has_begun(rig: ShareRig) -> None:
    first = accepted(rig.beat("m1", 0, "a"))
    assert (first.member_epoch, assigned(first), first.heartbeat_interval_ms) == (2, set(), 500)
    assert rig.asked == [InitializeShares(group=GROUP, state_epoch=2, partitions={topic_id("a"): frozenset(range(4))})]
    assert assigned(rig.beat("m1", 2)) is None, "share coordinators have not answered yet"

    rig.answer()
    second = accepted(rig.beat("m1", 2))
    assert (second.member_epoch, assigned(second)) == (3, {0, 1, 2, 3})
    assert assigned(rig.beat("m1", 3)) is None, "nothing has changed"
    assert assigned(rig.beat("m1", 3, "a")) == {0, 1, 2, 3}, "a full request gets a full response"
    rig.pass_ms(10_000)
    assert accepted(rig.beat("m1", 3)).heartbeat_interval_ms == 5000


def test_what_could_not_begin_is_tried_again_with_the_next_heartbeat(rig: ShareRig) -> None:
    rig.beat("m1", 0, "a")
    rig.answer(failed={"a": [1, 2]})
    assert assigned(rig.beat("m1", 0, "a")) == {0, 3}
    [again] = rig.asked
    assert again.partitions == {topic_id("a"): frozenset({1, 2})}
    rig.answer()
    assert assigned(rig.beat("m1", 0, "a")) == {0, 1, 2, 3}


def test_a_view_begins_nothing_and_costs_no_records() -> None:
    rig = ShareRig(view=2, a=1)
    accepted(rig.beat("m", 0, "a", "view"))
    rig.answer()
    assert rig.parts("m") == {0}
    written = len(rig.log)

    assert rig.parts("m", "view") == set()
    assert (rig.asked, len(rig.log)) == ([], written)
    rig.beat("m", -1)
    assert altered(rig, 0, topic="view").partitions == {}


def test_a_share_coordinator_without_an_answer_is_asked_again_after_the_retry_interval() -> None:
    rig = ShareRig(settings={"group.share.initialize.retry.interval.ms": "20000"})
    rig.beat("m1", 0, "a")
    rig.asked.clear()
    rig.beat("m1", 2)
    assert not rig.asked
    rig.pass_ms(20_000)
    rig.beat("m1", 2)
    assert [type(each) for each in rig.asked] == [InitializeShares]


def test_a_member_that_missed_a_response_goes_on_and_others_are_fenced(rig: ShareRig) -> None:
    epoch = rig.joined("m1").member_epoch
    assert accepted(rig.beat("m1", epoch - 1)).member_epoch == epoch
    name, text = refusal(rig.beat("m1", epoch + 1))
    assert name == "FENCED_MEMBER_EPOCH"
    assert "greater member epoch (4) than the one known by the group coordinator (3)" in text
    rig.joined("m2")
    rig.parts("m1")
    name, text = refusal(rig.beat("m1", epoch - 1))
    assert "it does not match the previous member epoch (3)" in text


def test_unknown_groups_and_members_are_refused(rig: ShareRig) -> None:
    assert refusal(rig.beat("m1", 3)) == ("GROUP_ID_NOT_FOUND", "Share group g not found.")
    assert refusal(rig.beat("m1", -1)) == ("GROUP_ID_NOT_FOUND", "Group g not found.")
    rig.joined("m1")
    assert refusal(rig.beat("m2", 3)) == ("UNKNOWN_MEMBER_ID", "Member m2 is not a member of group g.")


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "message"),
    [
        ("", 0, {}, ""),
        ("m" * 37, 0, {}, ""),
        ("m1", 0, {"group": " "}, "GroupId can't be empty."),
        ("m1", 0, {"rack": ""}, "RackId can't be empty."),
        ("m1", -2, {}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_heartbeats_are_refused(
    rig: ShareRig, member_id: str, epoch: int, fields: dict[str, Any], message: str
) -> None:
    assert refusal(rig.beat(member_id, epoch, "a", **fields)) == ("INVALID_REQUEST", message)


def test_a_full_group_takes_no_member() -> None:
    rig = ShareRig(settings={"group.share.max.size": "1"})
    rig.joined("m1")
    assert refusal(rig.beat("m2", 0, "a"))[0] == "GROUP_MAX_SIZE_REACHED"
    assert accepted(rig.beat("m1", 0, "a"))


# Members and topics that change


def test_members_share_and_give_back(rig: ShareRig) -> None:
    rig.joined("m1")
    rig.joined("m2")
    first, second = rig.parts("m1"), rig.parts("m2")
    assert (len(first), len(second), first | second) == (2, 2, {0, 1, 2, 3})
    assert accepted(rig.beat("m2", -1)).member_epoch == -1
    assert rig.parts("m1") == {0, 1, 2, 3}


def test_a_member_whose_session_ends_leaves_the_group(rig: ShareRig) -> None:
    rig.joined("m1")
    rig.joined("m2")
    rig.pass_ms(SESSION_MS - 1)
    rig.parts("m1")
    rig.pass_ms(1)
    assert list(rig.group().state.members) == ["m1"]
    assert rig.parts("m1") == {0, 1, 2, 3}


def test_a_refused_departure_gives_the_member_another_session(rig: ShareRig) -> None:
    rig.joined("m1")
    rig.refusing = CoordinatorNotAvailable()
    rig.pass_ms(SESSION_MS)
    assert list(rig.group().state.members) == ["m1"]
    rig.refusing = None
    rig.pass_ms(SESSION_MS)
    assert not rig.group().state.members


def test_a_refused_heartbeat_begins_nothing(rig: ShareRig) -> None:
    rig.refusing = CoordinatorNotAvailable()
    assert refusal(rig.beat("m1", 0, "a"))[0] == "COORDINATOR_NOT_AVAILABLE"
    assert not rig.asked
    rig.refusing = None
    assert assigned(rig.joined("m1")) == {0, 1, 2, 3}


def test_topics_that_grow_are_assigned_and_deleted_ones_are_forgotten(rig: ShareRig) -> None:
    rig.joined("m1", "a", "b")
    rig.change_topics(a=6, b=2)
    rig.beat("m1", 0, "a", "b")
    rig.answer()
    assert rig.parts("m1") == set(range(6))
    assert rig.parts("m1", "b") == {0, 1}
    rig.change_topics(b=0)
    assert topic_id("b") not in rig.group().state.partitions.initialized
    assert rig.parts("m1", "b") == set()
    rig.change_topics(b=1)
    again = topic_id("b", 1)
    rig.beat("m1", 0, "a", "b")
    assert [list(each.partitions) for each in rig.asked] == [[again]], "a topic created again begins anew"


def test_partitions_that_are_taken_out_are_given_back_and_go_on_when_they_return(rig: ShareRig) -> None:
    rig.change_topics(a=4)
    rig.joined("m")
    assert rig.parts("m") == {0, 1, 2, 3}

    rig.change_topics(a=2)

    assert rig.parts("m") == {0, 1}
    assert rig.group().offset_partitions() == {topic_id("a"): frozenset({0, 1})}
    rig.change_topics(a=4)
    assert rig.parts("m") == {0, 1, 2, 3}
    assert rig.asked == [], "their state is kept"


def test_another_subscription_moves_the_member(rig: ShareRig) -> None:
    rig.change_topics(b=3)
    epoch = rig.joined("m1").member_epoch
    assert assigned(rig.beat("m1", epoch, "b")) == set()
    rig.answer()
    assert rig.parts("m1", "b") == {0, 1, 2}
    assert rig.parts("m1") == set()
    assert topic_id("a") in rig.group().state.partitions.initialized, "its offsets are kept"


# Coordinators that change


def test_the_next_coordinator_has_the_same_group(rig: ShareRig) -> None:
    rig.joined("m1")
    rig.joined("m2")
    before = rig.group().described_share()
    rig.restart()
    assert rig.group().described_share() == before
    assert rig.parts("m1") | rig.parts("m2") == {0, 1, 2, 3}
    rig.pass_ms(SESSION_MS)
    assert rig.group().empty, "sessions begin again with the coordinator"


def test_the_next_coordinator_finishes_what_has_begun(rig: ShareRig) -> None:
    rig.beat("m1", 0, "a")
    rig.restart()
    rig.asked = rig.asked[1:]
    assert rig.asked == [InitializeShares(group=GROUP, state_epoch=2, partitions={topic_id("a"): frozenset(range(4))})]
    rig.answer()
    assert assigned(rig.beat("m1", 0, "a")) == {0, 1, 2, 3}
    rig.beat("m1", -1)
    rig.ask(DeleteShareOffsets(group=GROUP, topics=("a",)))
    rig.restart()
    assert rig.asked == [DeleteShares(group=GROUP, partitions={topic_id("a"): frozenset(range(4))})]
    rig.answer()
    assert not rig.group().state.partitions.deleting


def test_a_lost_heartbeat_leaves_no_trace(rig: ShareRig) -> None:
    rig.holding = True
    ticket = rig.tickets + 1
    with pytest.raises(KeyError):
        rig.beat("m1", 0, "a")
    assert not rig.asked, "share coordinators are asked once the group coordinator's log says so"
    rig.lose_leadership()
    assert ticket in rig.replies
    assert rig.shard.group_names() == []


# Offsets


def altered(rig: ShareRig, *partitions: int, topic: str = "a", group: str = GROUP) -> Any:
    return rig.ask(AlterShareOffsets(group=group, partitions=((topic, partitions),)))


def test_altering_offsets_raises_the_state_epoch(rig: ShareRig) -> None:
    rig.joined("m1")
    assert isinstance(altered(rig, 0), NonEmptyGroup)
    rig.beat("m1", -1)
    first = altered(rig, 0, 9)
    assert isinstance(first, SharesChosen)
    assert first.partitions == {topic_id("a"): frozenset({0})}
    assert rig.ask(SharesInitialized(group=GROUP, partitions=first.partitions, failed={})) == SHARES_SETTLED
    second = altered(rig, 0)
    assert second.state_epoch > first.state_epoch, "a leader that read the first state is fenced"


def test_altering_offsets_begins_a_group_that_did_not_exist(rig: ShareRig) -> None:
    chosen = altered(rig, 1)
    rig.ask(SharesInitialized(group=GROUP, partitions=chosen.partitions, failed={}))
    assert rig.group().state_name == "Empty"
    rig.restart()
    assert rig.group().offset_partitions() == {topic_id("a"): frozenset({1})}
    assert assigned(rig.joined("m1")) == {0, 1, 2, 3}


def test_deleting_offsets_ends_the_share_partitions(rig: ShareRig) -> None:
    rig.joined("m1")
    delete = DeleteShareOffsets(group=GROUP, topics=("a", "b"))
    assert isinstance(rig.ask(delete), NonEmptyGroup)
    rig.beat("m1", -1)
    chosen = rig.ask(delete)
    assert chosen.partitions == {topic_id("a"): frozenset(range(4))}
    assert str(chosen.failures["b"]) == ""
    assert rig.ask(delete).partitions == chosen.partitions, "until share coordinators have answered it can be repeated"
    rig.ask(SharesDeleted(group=GROUP, topics=frozenset({topic_id("a")})))
    assert str(rig.ask(delete).failures["a"]) == "There is no offset information to delete."
    assert assigned(rig.joined("m1")) == {0, 1, 2, 3}, "it can begin again"


def test_an_answer_that_comes_after_the_deletion_begins_nothing(rig: ShareRig) -> None:
    rig.beat("m1", 0, "a")
    rig.beat("m1", -1)
    rig.ask(DeleteShareOffsets(group=GROUP, topics=None))
    rig.answer()
    assert not rig.group().state.partitions.initialized
    assert rig.group().state.partitions.deleting == {topic_id("a"): "a"}


def test_a_group_is_deleted_when_it_is_empty_and_never_expires(rig: ShareRig) -> None:
    rig.joined("m1")
    assert isinstance(rig.ask(DeleteGroups(groups=(GROUP,))).failures[GROUP], NonEmptyGroup)
    rig.beat("m1", -1)
    rig.pass_ms(30 * 24 * 3_600_000)
    assert rig.shard.is_share_group(GROUP), "its offsets are with share coordinators, and must not be lost"
    assert RetentionCheck() in rig.timers
    assert not rig.ask(DeleteGroups(groups=(GROUP,))).failures
    rig.restart()
    assert rig.shard.group_names() == []


# Other groups


def test_groups_of_other_types_stay_what_they_are(rig: ShareRig) -> None:
    rig.joined("m1")
    assert refusal(rig.ask(joining("c1", "a"))) == ("GROUP_ID_NOT_FOUND", "Group g is not a consumer group.")
    join = JoinGroup(
        group=GROUP,
        member_id="",
        group_instance_id=None,
        client_id="c",
        client_host="/",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        version=9,
    )
    assert rig.ask(join) == JoinReply(member_id="", error=InconsistentGroupProtocol)
    commit = CommitOffsets(
        group=GROUP,
        member_id="",
        group_instance_id=None,
        generation=-1,
        entries=(CommitEntry("a", 0, 1),),
        version=9,
    )
    assert isinstance(rig.ask(commit), GroupIdNotFound)
    assert rig.shard.fetch_offsets(GROUP) == []
    rig.ask(CommitOffsets(**{name: getattr(commit, name) for name in commit.__slots__} | {"group": "offsets"}))
    assert refusal(rig.beat("m1", 0, "a", group="offsets"))[1] == "Group offsets is not a share group."
    assert [(each.group, each.type) for each in rig.shard.list_groups(types=["share"])] == [(GROUP, "Share")]


# The assignor


def parts_of(target: Partitions) -> set[tuple[TopicId, int]]:
    return {(topic, index) for topic, indexes in target.items() for index in indexes}


@given(st.integers(1, 12), st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1), st.integers(0, 12))
def test_partitions_are_divided_evenly_and_stay_where_they_can(
    members: int, counts: dict[str, int], members_after: int
) -> None:
    assignable = {topic_id(name): frozenset(range(count)) for name, count in counts.items()}

    def specs(number: int, targets: dict[str, Partitions]) -> list[MemberSpec]:
        return [
            MemberSpec(member_id=f"m{each:02}", topics=frozenset(assignable), target=targets.get(f"m{each:02}", {}))
            for each in range(number)
        ]

    def check(targets: dict[str, Partitions], number: int) -> None:
        owners = Counter(part for target in targets.values() for part in parts_of(target))
        sizes = [len(parts_of(target)) for target in targets.values()]
        total = sum(counts.values())
        assert len(targets) == number
        if number:
            assert set(owners) == {(topic, index) for topic, found in assignable.items() for index in found}
            assert max(owners.values()) - min(owners.values()) <= 1
            assert max(sizes) - min(sizes) <= 1
            assert sum(sizes) == max(number, total), "nothing is shared more than it has to be"

    before = share_partitions(specs(members, {}), assignable)
    check(before, members)
    assert share_partitions(specs(members, before), assignable) == before, "nothing moves without a reason"
    after = share_partitions(specs(members_after, before), assignable)
    check(after, members_after)
    if members_after <= members and members <= sum(counts.values()):
        for member_id, target in after.items():
            assert parts_of(before[member_id]) <= parts_of(target), "a member that stays keeps what it has"


def test_members_get_partitions_of_their_own_topics_only() -> None:
    a, b = topic_id("a"), topic_id("b")
    members = [
        MemberSpec(member_id="1", topics=frozenset({a}), target={}),
        MemberSpec(member_id="2", topics=frozenset({a, b}), target={b: frozenset({7})}),
        MemberSpec(member_id="3", topics=frozenset(), target={a: frozenset({0})}),
    ]
    targets = share_partitions(members, {a: frozenset({0, 1}), b: frozenset({0})})
    assert set(targets["1"]) == {a}
    assert targets["2"][b] == frozenset({0})
    assert targets["3"] == {}
    assert parts_of(targets["1"]) | parts_of(targets["2"]) == {(a, 0), (a, 1), (b, 0)}
