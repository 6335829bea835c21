"""Static members: an instance may leave and return, and exists once at a time."""

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


def test_a_static_member_joins_without_a_member_id() -> None:
    rig = Rig()
    client = Client(rig, instance="i1").join()
    assert client.waits_to_join

    rig.pass_ms(DELAY_MS)

    assert client.joined.member_id == "i1-1"
    assert [member.group_instance_id for member in client.joined.members] == ["i1"]


def test_a_returning_instance_gets_its_assignment_without_a_rebalance() -> None:
    rig = Rig()
    leader, follower = Client(rig, "a", instance="i1"), Client(rig, "b", instance="i2")
    settled(rig, leader, follower)

    back = Client(rig, "b2", instance="i2").join()

    assert back.joined.error is None
    assert back.joined.generation == 1
    assert back.member_id != follower.member_id
    assert not back.joined.skip_assignment
    assert back.sync().assignment == b"b"
    assert isinstance(leader.heartbeat(), HeartbeatReply)


def test_the_new_member_id_of_an_instance_is_persisted() -> None:
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


def test_a_returning_leader_skips_the_assignment() -> None:
    rig = Rig()
    leader, follower = Client(rig, "a", instance="i1"), Client(rig, "b", instance="i2")
    settled(rig, leader, follower)

    back = Client(rig, "a", instance="i1", version=9).join()

    assert back.joined.skip_assignment
    assert back.joined.leader == back.member_id
    assert {member.group_instance_id for member in back.joined.members} == {"i1", "i2"}


def test_before_version_9_a_returning_leader_does_not_learn_that_it_leads() -> None:
    rig = Rig()
    leader, follower = Client(rig, "a", instance="i1"), Client(rig, "b", instance="i2")
    settled(rig, leader, follower)

    back = Client(rig, "a", instance="i1", version=8).join()

    assert not back.joined.skip_assignment
    assert back.joined.members == ()
    assert back.joined.leader == leader.member_id
    assert back.sync().assignment == b"a"


def test_a_replaced_instance_is_fenced() -> None:
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


def test_the_waiting_join_of_a_replaced_instance_is_fenced() -> None:
    rig = Rig()
    old = Client(rig, "a", instance="i1").join()

    back = Client(rig, "a", instance="i1").join()

    assert old.joined.error is FencedInstanceId
    rig.pass_ms(DELAY_MS)
    assert back.joined.generation == 1
    assert len(back.joined.members) == 1


def test_the_waiting_sync_of_a_replaced_instance_is_fenced_and_the_group_rebalances() -> None:
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
    assert back.assignment == b"b"


def test_an_instance_that_changes_the_assignment_protocol_triggers_a_rebalance() -> None:
    rig = Rig()
    both = (("range", b""), ("sticky", b""))
    first, second = Client(rig, "a", instance="i1", protocols=both), Client(rig, "b", instance="i2", protocols=both)
    settled(rig, first, second)
    assert first.joined.protocol == "range"

    back = Client(rig, "b", instance="i2", protocols=(("sticky", b""),)).join()

    assert back.waits_to_join
    first.join()
    assert back.joined.protocol == "sticky"


def test_an_absent_static_member_stays_during_its_session() -> None:
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


def test_a_group_of_absent_static_members_waits_for_one_to_join() -> None:
    rig = Rig()
    leader, away = Client(rig, "a"), Client(rig, "b", instance="i2", session_ms=5 * REBALANCE_MS)
    settled(rig, leader, away)
    leader.leave()

    rig.pass_ms(2 * REBALANCE_MS)
    assert rig.state() == "PreparingRebalance"
    back = Client(rig, "b", instance="i2").join()

    assert back.joined.leader == back.joined.member_id
    assert back.joined.generation == 2


def test_a_static_member_is_removed_when_its_session_ends() -> None:
    rig = Rig()
    client = Client(rig, instance="i1")
    settled(rig, client)

    rig.pass_ms(SESSION_MS)

    assert rig.state() == "Empty"
    assert isinstance(client.heartbeat(), UnknownMemberId)


@pytest.mark.parametrize("names_its_id", [True, False])
def test_an_operator_can_remove_static_members(names_its_id: bool) -> None:
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


def test_a_leave_of_unknown_members_changes_nothing() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)

    rig.ask(LeaveGroup(group="g", members=(LeavingMember(member_id="stranger"),)))

    assert isinstance(client.heartbeat(), HeartbeatReply)


def test_a_replacement_whose_append_failed_can_be_retried() -> None:
    rig = Rig()
    client = Client(rig, "a", instance="i1")
    settled(rig, client)
    rig.refusing = CoordinatorNotAvailable()
    back = Client(rig, "a", instance="i1").join()
    assert back.joined == JoinReply(member_id="", error=CoordinatorNotAvailable)
    assert isinstance(client.heartbeat(), HeartbeatReply), "it was not replaced"
    rig.refusing = None

    assert back.join().joined.error is None
    assert back.sync().assignment == b"a"


def test_an_instance_that_returns_before_it_synced_still_has_to_sync() -> None:
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


def test_repeatedly_refused_replacements_keep_no_silent_member() -> None:
    rig = Rig()
    silent, replaced = Client(rig, "a"), Client(rig, "b", instance="i2")
    settled(rig, silent, replaced)

    rig.refusing = CoordinatorNotAvailable()
    for _ in range(3):
        rig.pass_ms(SESSION_MS // 2)
        Client(rig, "b2", instance="i2").join()

    assert isinstance(silent.heartbeat(), UnknownMemberId | RebalanceInProgress)
    assert rig.shard.describe("g").state != "Stable"
