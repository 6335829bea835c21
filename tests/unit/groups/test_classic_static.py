"""Static members: an instance may go and come back, and there is only one of it at a time."""

import pytest
from tests.unit.groups.rig import DELAY_MS, REBALANCE_MS, SESSION_MS, Client, Rig, settled, share

from penstock.groups.commands import Heartbeat, HeartbeatReply, JoinReply, LeaveGroup, LeavingMember, LeftMember
from penstock.groups.events import ClassicGroupSaved
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    RebalanceInProgress,
    UnknownMemberId,
)


def test_a_static_member_needs_no_id_to_join_with() -> None:
    rig = Rig()
    client = Client(rig, instance="i1").join()
    assert client.waits_to_join

    rig.pass_ms(DELAY_MS)

    assert client.joined.member_id == "i1-1"
    assert [member.group_instance_id for member in client.joined.members] == ["i1"]


def test_an_instance_that_comes_back_gets_its_work_without_a_rebalance() -> None:
    rig = Rig()
    leader, follower = Client(rig, "a", instance="i1"), Client(rig, "b", instance="i2")
    settled(rig, leader, follower)

    back = Client(rig, "b2", instance="i2").join()

    assert back.joined.error is None
    assert back.joined.generation == 1
    assert back.member_id != follower.member_id
    assert not back.joined.skip_assignment
    assert back.sync().work == b"b"
    assert isinstance(leader.heartbeat(), HeartbeatReply)


def test_the_new_id_of_an_instance_is_written() -> None:
    rig = Rig()
    client = Client(rig, "a", instance="i1")
    settled(rig, client)

    back = Client(rig, "a", instance="i1").join()

    saved = rig.log[-1]
    assert isinstance(saved, ClassicGroupSaved)
    assert [(member.member_id, member.assignment) for member in saved.value.members] == [(back.joined.member_id, b"a")]
    rig.restart()
    assert isinstance(back.heartbeat(), HeartbeatReply)
    assert isinstance(client.heartbeat(), FencedInstanceId)


def test_a_leader_that_comes_back_is_told_to_leave_the_work_as_it_is() -> None:
    rig = Rig()
    leader, follower = Client(rig, "a", instance="i1"), Client(rig, "b", instance="i2")
    settled(rig, leader, follower)

    back = Client(rig, "a", instance="i1", version=9).join()

    assert back.joined.skip_assignment
    assert back.joined.leader == back.member_id
    assert {member.group_instance_id for member in back.joined.members} == {"i1", "i2"}


def test_a_leader_that_could_not_be_told_so_is_not_told_that_it_leads() -> None:
    rig = Rig()
    leader, follower = Client(rig, "a", instance="i1"), Client(rig, "b", instance="i2")
    settled(rig, leader, follower)

    back = Client(rig, "a", instance="i1", version=8).join()

    assert not back.joined.skip_assignment
    assert back.joined.members == ()
    assert back.joined.leader == leader.member_id
    assert back.sync().work == b"a"


def test_the_instance_that_was_replaced_is_fenced() -> None:
    rig = Rig()
    old = Client(rig, "a", instance="i1")
    settled(rig, old)
    Client(rig, "a", instance="i1").join()

    assert isinstance(old.heartbeat(), FencedInstanceId)
    assert isinstance(old.sync().synced, FencedInstanceId)
    assert isinstance(old.commit(7), FencedInstanceId)
    assert old.join().joined == JoinReply(member_id=old.member_id, error=FencedInstanceId)
    reply = old.leave()
    assert [member.error for member in reply.members] == [FencedInstanceId]  # type: ignore[union-attr]


def test_an_instance_replaced_while_it_waits_to_join_is_answered() -> None:
    rig = Rig()
    old = Client(rig, "a", instance="i1").join()

    back = Client(rig, "a", instance="i1").join()

    assert old.joined.error is FencedInstanceId
    rig.pass_ms(DELAY_MS)
    assert back.joined.generation == 1
    assert len(back.joined.members) == 1


def test_an_instance_replaced_while_it_waits_to_sync_is_answered_and_the_group_forms_anew() -> None:
    rig = Rig()
    leader, old = Client(rig, "a", instance="i1").join(), Client(rig, "b", instance="i2").join()
    rig.pass_ms(2 * DELAY_MS)
    old.sync()

    back = Client(rig, "b", instance="i2").join()

    assert isinstance(old.synced, FencedInstanceId)
    assert back.waits_to_join
    assert isinstance(leader.heartbeat(), RebalanceInProgress)
    leader.join()
    share(leader, back)
    assert back.work == b"b"


def test_an_instance_that_changes_how_the_work_is_shared_out_calls_a_rebalance() -> None:
    rig = Rig()
    both = (("range", b""), ("sticky", b""))
    first, second = Client(rig, "a", instance="i1", protocols=both), Client(rig, "b", instance="i2", protocols=both)
    settled(rig, first, second)
    assert first.joined.protocol == "range"

    back = Client(rig, "b", instance="i2", protocols=(("sticky", b""),)).join()

    assert back.waits_to_join
    first.join()
    assert back.joined.protocol == "sticky"


def test_a_static_member_that_is_away_keeps_its_place_for_its_session() -> None:
    rig = Rig()
    first, second = Client(rig, "a", instance="i1"), Client(rig, "b", instance="i2", session_ms=2 * REBALANCE_MS)
    settled(rig, first, second)
    third = Client(rig, "c", instance="i3").join()
    first.join()
    for _ in range(REBALANCE_MS // 5000):
        rig.pass_ms(5000)

    assert third.joined.generation == 2
    leader = next(client for client in (first, third) if client.joined.members)
    assert len(leader.joined.members) == 3
    assert isinstance(
        rig.ask(Heartbeat(group="g", member_id=second.member_id, group_instance_id="i2", generation=2)), HeartbeatReply
    )


def test_when_only_absent_static_members_are_left_the_group_waits_for_one() -> None:
    rig = Rig()
    leader, away = Client(rig, "a"), Client(rig, "b", instance="i2", session_ms=5 * REBALANCE_MS)
    settled(rig, leader, away)
    leader.leave()

    rig.pass_ms(2 * REBALANCE_MS)
    assert rig.state() == "PreparingRebalance"
    back = Client(rig, "b", instance="i2").join()

    assert back.joined.leader == back.joined.member_id
    assert back.joined.generation == 2


def test_a_static_member_is_out_when_its_session_ends() -> None:
    rig = Rig()
    client = Client(rig, instance="i1")
    settled(rig, client)

    rig.pass_ms(SESSION_MS)

    assert rig.state() == "Empty"
    assert isinstance(client.heartbeat(), UnknownMemberId)


@pytest.mark.parametrize("names_its_id", [True, False])
def test_an_operator_can_make_static_members_leave(names_its_id: bool) -> None:
    rig = Rig()
    first, second = Client(rig, "a", instance="i1"), Client(rig, "b", instance="i2")
    settled(rig, first, second)
    member_id = first.member_id if names_its_id else ""

    reply = rig.ask(
        LeaveGroup(
            group="g",
            members=(
                LeavingMember(member_id=member_id, group_instance_id="i1", reason="scaled in"),
                LeavingMember(member_id="", group_instance_id="nobody"),
                LeavingMember(member_id="", group_instance_id=None),
                LeavingMember(member_id="stranger", group_instance_id="i2"),
                LeavingMember(member_id="stranger", group_instance_id="nobody"),
            ),
        )
    )

    assert reply.members == (  # type: ignore[union-attr]
        LeftMember(member_id=member_id, group_instance_id="i1"),
        LeftMember(member_id="", group_instance_id="nobody", error=UnknownMemberId),
        LeftMember(member_id="", group_instance_id=None, error=UnknownMemberId),
        LeftMember(member_id="stranger", group_instance_id="i2", error=FencedInstanceId),
        LeftMember(member_id="stranger", group_instance_id="nobody", error=UnknownMemberId),
    )
    assert isinstance(second.heartbeat(), RebalanceInProgress)


def test_a_leave_that_names_nobody_right_changes_nothing() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)

    rig.ask(LeaveGroup(group="g", members=(LeavingMember(member_id="stranger"),)))

    assert isinstance(client.heartbeat(), HeartbeatReply)


def test_an_instance_whose_return_could_not_be_written_has_to_try_again() -> None:
    rig = Rig()
    client = Client(rig, "a", instance="i1")
    settled(rig, client)
    rig.refusing = CoordinatorNotAvailable()
    back = Client(rig, "a", instance="i1").join()
    assert back.joined == JoinReply(member_id="", error=CoordinatorNotAvailable)
    assert isinstance(client.heartbeat(), HeartbeatReply), "nobody has taken its place"
    rig.refusing = None

    assert back.join().joined.error is None
    assert back.sync().work == b"a"


def test_a_static_member_that_comes_back_before_it_asked_for_its_work_still_has_to() -> None:
    rig = Rig()
    leader, follower = Client(rig, "a", instance="i1").join(), Client(rig, "b", instance="i2").join()
    rig.pass_ms(2 * DELAY_MS)
    leader.sync({leader.joined.member_id: b"one", follower.joined.member_id: b"two"})
    back = Client(rig, "b", instance="i2").join()
    for _ in range(REBALANCE_MS // 5000):
        rig.pass_ms(5000)
        leader.heartbeat()
        back.heartbeat()

    assert isinstance(back.heartbeat(), UnknownMemberId)


def test_a_replacement_that_the_log_refuses_again_and_again_keeps_no_silent_member() -> None:
    rig = Rig()
    silent, replaced = Client(rig, "a"), Client(rig, "b", instance="i2")
    settled(rig, silent, replaced)

    rig.refusing = CoordinatorNotAvailable()
    for _ in range(3):
        rig.pass_ms(SESSION_MS // 2)
        Client(rig, "b2", instance="i2").join()

    assert isinstance(silent.heartbeat(), UnknownMemberId | RebalanceInProgress)
    assert rig.shard.describe("g").state != "Stable"
