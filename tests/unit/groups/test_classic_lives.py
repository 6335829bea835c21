"""Members of classic groups leave, miss heartbeats, or lose their broker."""

import pytest
from tests.unit.groups.rig import (
    DELAY_MS,
    NO_PARTITIONS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    Rig,
    settled,
    share,
)

from penstock.coordinator.step import SetTimer, Step, Ticket
from penstock.groups.classic.group import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicGroup
from penstock.groups.classic.rebalance import SessionEnd
from penstock.groups.commands import (
    ConsumerHeartbeat,
    DeleteGroups,
    GroupCommand,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from penstock.groups.events import ClassicGroupSaved
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMemberId,
)

# Leaving


def test_when_a_member_leaves_the_others_rebalance() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second)

    first.leave(reason="done")

    assert isinstance(second.heartbeat(), RebalanceInProgress)
    second.join()
    assert second.joined.leader == second.member_id
    assert second.joined.generation == 2


def test_a_group_that_became_empty_can_be_joined_again() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)

    client.leave()

    assert rig.state() == "Empty"
    assert rig.membership_timers == set()
    again = Client(rig)
    settled(rig, again)
    assert again.joined.generation == 3
    assert again.assignment == b"c"


def test_waiting_requests_of_a_member_that_leaves_fail_with_unknown_member_id() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()

    second.leave()
    assert second.joined == JoinReply(member_id="", error=UnknownMemberId)

    rig.pass_ms(2 * DELAY_MS)
    third = Client(rig, "c").join()
    first.join()
    third.sync()
    third.leave()
    assert isinstance(third.synced, UnknownMemberId)


def test_the_second_leave_of_a_member_fails_with_unknown_member_id() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client, Client(rig, "other"))

    client.leave()
    reply = client.leave()

    assert [member.error for member in reply.members] == [UnknownMemberId]  # type: ignore[union-attr]


def test_a_pending_member_id_can_leave() -> None:
    rig = Rig()
    client = Client(rig)
    client._send_join()
    client.member_id = client.joined.member_id

    reply = client.leave()

    assert [member.error for member in reply.members] == [None]  # type: ignore[union-attr]
    assert client.join().joined.error is UnknownMemberId
    assert rig.membership_timers == set()


# Sessions and timeouts


def test_a_heartbeat_extends_the_session() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)

    for _ in range(5):
        rig.pass_ms(SESSION_MS - 1)
        assert isinstance(client.heartbeat(), HeartbeatReply)
    rig.pass_ms(SESSION_MS)

    assert rig.state() == "Empty"
    assert rig.membership_timers == set()


def test_a_commit_extends_the_session() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)

    for offset in range(5):
        rig.pass_ms(SESSION_MS - 1)
        client.commit(offset)

    assert isinstance(client.heartbeat(), HeartbeatReply)


def test_a_heartbeat_sets_no_timer() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)
    timers = dict(rig.timers)

    rig.pass_ms(100)
    client.heartbeat()
    client.commit(1)

    assert rig.timers == timers


def test_a_leader_that_dies_before_it_assigned_is_replaced() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    second.sync()

    rig.pass_ms(SESSION_MS)

    assert isinstance(second.synced, RebalanceInProgress)
    second.join()
    assert second.joined.leader == second.member_id
    assert second.sync({second.member_id: b"all"}).assignment == b"all"
    assert isinstance(first.heartbeat(), UnknownMemberId)


def test_sessions_do_not_expire_while_a_sync_waits() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    second.sync()
    for _ in range(4):
        rig.pass_ms(SESSION_MS - 1)
        first.heartbeat()

    first.sync({second.member_id: b"two"})

    assert second.assignment == b"two"
    rig.pass_ms(SESSION_MS - 1)
    assert isinstance(second.heartbeat(), HeartbeatReply)
    rig.pass_ms(SESSION_MS)
    assert isinstance(second.heartbeat(), UnknownMemberId)


def test_sessions_do_not_expire_while_a_join_waits() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second)
    first.join()
    for _ in range(5):
        rig.pass_ms(SESSION_MS - 1)
        second.heartbeat()

    second.join()

    assert first.joined.generation == 2


def test_a_new_member_that_waits_too_long_to_join_is_removed() -> None:
    rig = Rig()
    first = Client(rig, "a", rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    settled(rig, first)
    newcomer = Client(rig, "b").join()
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5000 - 1):
        rig.pass_ms(5000)
        first.heartbeat()
    assert newcomer.waits_to_join

    rig.pass_ms(5000)

    assert newcomer.joined == JoinReply(member_id="", error=UnknownMemberId)


def test_an_unused_pending_member_id_expires() -> None:
    rig = Rig()
    client = Client(rig)
    client._send_join()
    client.member_id = client.joined.member_id

    rig.pass_ms(SESSION_MS)

    assert client.join().joined.error is UnknownMemberId
    assert rig.membership_timers == set()


def test_a_pending_member_id_delays_a_rebalance_no_longer_than_its_session() -> None:
    rig = Rig()
    first = Client(rig, "a")
    settled(rig, first)
    Client(rig, "b", version=4)._send_join()
    second = Client(rig, "c", version=3).join()
    first.join()
    assert first.waits_to_join

    rig.pass_ms(SESSION_MS)

    assert (first.joined.generation, second.joined.generation) == (2, 2)


def test_members_that_never_sync_are_removed() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    first.join()
    second.join()
    rig.pass_ms(2 * DELAY_MS)
    first.sync({first.joined.member_id: b"all"})
    for _ in range(REBALANCE_MS // 5000 - 1):
        rig.pass_ms(5000)
        assert isinstance(first.heartbeat(), HeartbeatReply)
        second.heartbeat()

    rig.pass_ms(5000)

    assert isinstance(second.heartbeat(), UnknownMemberId)
    assert isinstance(first.heartbeat(), RebalanceInProgress)


def test_before_version_1_the_session_timeout_is_the_rebalance_timeout() -> None:
    rig = Rig()
    first = Client(rig, "a", version=0, rebalance_ms=-1)
    settled(rig, first)
    second = Client(rig, "b", version=0).join()

    for _ in range(2):
        rig.pass_ms(SESSION_MS // 2)
        first.heartbeat()

    assert second.joined.generation == 2


# Failed appends and restarts


def test_an_assignment_whose_append_failed_is_not_sent() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    second.sync()
    rig.refusing = CoordinatorNotAvailable()

    first.sync({first.member_id: b"one", second.member_id: b"two"})

    assert isinstance(first.synced, CoordinatorNotAvailable)
    assert isinstance(second.synced, CoordinatorNotAvailable)
    assert rig.state() == "PreparingRebalance"
    rig.refusing = None
    first.join()
    second.join()
    share(first, second)
    assert (first.assignment, second.assignment) == (b"a", b"b")


def test_sessions_expire_after_the_append_of_an_assignment_failed() -> None:
    rig = Rig()
    leader, silent = Client(rig, "a").join(), Client(rig, "b", instance="i").join()
    rig.pass_ms(2 * DELAY_MS)
    silent.sync()
    for _ in range(3):
        rig.pass_ms(SESSION_MS - 1)
        leader.heartbeat()
    rig.refusing = CoordinatorNotAvailable()
    leader.sync({})
    assert isinstance(silent.synced, CoordinatorNotAvailable)
    rig.refusing = None

    rig.pass_ms(SESSION_MS - 1)
    assert [member.group_instance_id for member in rig.shard.describe("g").members] == [None, "i"]
    leader.heartbeat()
    rig.pass_ms(1)

    assert [member.group_instance_id for member in rig.shard.describe("g").members] == [None]


def test_a_first_member_joins_although_the_append_of_its_group_failed() -> None:
    rig = Rig()
    rig.refusing = CoordinatorNotAvailable()
    client = Client(rig, version=3).join()
    rig.refusing = None

    rig.pass_ms(DELAY_MS)

    assert client.joined.generation == 1
    assert client.sync({client.member_id: b"all"}).assignment == b"all"


def test_a_member_id_whose_append_failed_is_not_given_out() -> None:
    rig = Rig()
    rig.refusing = CoordinatorNotAvailable()
    client = Client(rig)
    client._send_join()

    assert client.joined == JoinReply(member_id="", error=CoordinatorNotAvailable)


def test_members_keep_their_assignments_after_a_restart() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second)

    rig.restart()

    assert isinstance(first.heartbeat(), HeartbeatReply)
    assert second.sync().assignment == b"b"
    rig.pass_ms(SESSION_MS - 1)
    assert isinstance(first.heartbeat(), HeartbeatReply)
    rig.pass_ms(1)
    assert isinstance(first.heartbeat(), RebalanceInProgress)
    assert isinstance(second.heartbeat(), UnknownMemberId)


def test_a_crash_during_a_rebalance_leaves_the_previous_generation() -> None:
    rig = Rig()
    first = Client(rig, "a")
    settled(rig, first)
    second = Client(rig, "b").join()
    first.join()
    assert first.joined.generation == 2

    rig.restart()

    assert isinstance(first.heartbeat(), IllegalGeneration)
    first.join()
    assert first.joined.generation == 2
    assert second.join().joined.error is UnknownMemberId


def test_a_group_that_exceeds_a_lowered_max_size_rebalances_after_a_restart() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second)
    rig.config = Rig({"group.max.size": "1"}).config

    rig.restart()

    assert isinstance(first.heartbeat(), RebalanceInProgress)
    first.join()
    assert second.join().joined.error is GroupMaxSizeReached


def test_waiting_requests_fail_with_not_coordinator_when_the_group_moves() -> None:
    rig = Rig()
    joining = Client(rig, "a", group="g1").join()
    syncing, leader = Client(rig, "c", group="g2"), Client(rig, "b", group="g2")
    leader.join()
    syncing.join()
    rig.pass_ms(2 * DELAY_MS)
    syncing.sync()
    late = Client(rig, "d", group="g3").join()

    rig.run(rig.shard.unloaded())

    assert late.joined.error is not None
    assert late.joined.error.name == "NOT_COORDINATOR"
    assert isinstance(syncing.synced, BrokerError)
    assert syncing.synced.name == "NOT_COORDINATOR"
    assert joining.joined.error is None


# Refused appends change nothing


def test_a_group_survives_a_failed_append_of_its_deletion() -> None:
    rig = Rig()
    client = Client(rig)
    client._send_join()
    client.member_id = client.joined.member_id
    rig.refusing = CoordinatorNotAvailable()

    assert isinstance(rig.ask(DeleteGroups(groups=("g",))), CoordinatorNotAvailable)

    rig.refusing = None
    rig.pass_ms(SESSION_MS)
    assert client.join().joined.error is UnknownMemberId
    assert rig.membership_timers == set()


def upgrading() -> ConsumerHeartbeat:
    """The heartbeat with which a member with the consumer protocol joins a classic group."""
    return ConsumerHeartbeat(
        group="g",
        member_id="m",
        member_epoch=0,
        group_instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topics=("t",),
        subscribed_regex=None,
        server_assignor=None,
        owned=(),
        client_id="new",
        client_host="/127.0.0.1",
        version=1,
    )


def test_a_group_survives_a_failed_append_of_its_upgrade() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second, assignment=NO_PARTITIONS)
    rig.refusing = CoordinatorNotAvailable()

    assert isinstance(rig.ask(upgrading()), CoordinatorNotAvailable)

    rig.refusing = None
    assert isinstance(first.heartbeat(), HeartbeatReply)
    rig.pass_ms(SESSION_MS - 1)
    first.heartbeat()
    rig.pass_ms(1)
    assert isinstance(first.heartbeat(), RebalanceInProgress)
    assert isinstance(second.heartbeat(), UnknownMemberId)


def test_a_rebalancing_group_rebalances_again_after_a_failed_upgrade() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second, assignment=NO_PARTITIONS)
    first.join()
    rig.refusing = CoordinatorNotAvailable()

    rig.ask(upgrading())

    assert first.joined.error is CoordinatorNotAvailable
    rig.refusing = None
    first.join()
    second.join()
    share(first, second)
    assert (first.assignment, second.assignment) == (b"a", b"b")


# A decision changes nothing before it is applied


def decide(rig: Rig, command: GroupCommand) -> Step:
    """The step of a decision, which is not carried out."""
    step = rig.shard.decide(command, Ticket(1_000_000), rig.now_ms)
    assert step.events
    return step


def test_an_assignment_changes_nothing_before_it_is_applied() -> None:
    rig = Rig()
    client = Client(rig, version=3).join()
    rig.pass_ms(DELAY_MS)
    sync = SyncGroup(
        group="g",
        member_id=client.joined.member_id,
        group_instance_id=None,
        generation=1,
        protocol_type=None,
        protocol=None,
        assignments=((client.joined.member_id, b"all"),),
    )

    step = decide(rig, sync)

    assert rig.state() == "CompletingRebalance"
    assert rig.shard.describe("g").members[0].assignment == b""
    rig.run(step)
    assert rig.state() == "Stable"
    assert rig.shard.describe("g").members[0].assignment == b"all"


def test_the_last_member_stays_until_its_leave_is_applied() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)

    step = decide(rig, LeaveGroup(group="g", members=(LeavingMember(member_id=client.member_id),)))

    assert rig.state() == "Stable"
    rig.run(step)
    assert rig.state() == "Empty"


def test_a_first_join_creates_no_group_before_it_is_applied() -> None:
    rig = Rig()
    join = JoinGroup(
        group="g",
        member_id="",
        group_instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=RANGE,
        version=3,
    )

    step = decide(rig, join)

    assert rig.shard.list_groups() == []
    rig.run(step)
    assert rig.state() == "PreparingRebalance"


def test_a_refused_step_passes_each_group_only_its_own_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    settled(rig, Client(rig, "a", group="g1"))
    settled(rig, Client(rig, "b", group="g2"))
    saved = {event.group: event for event in rig.log if isinstance(event, ClassicGroupSaved)}
    timers = tuple(SetTimer(SessionEnd(group, "m"), rig.now_ms) for group in ("g1", "g2", "g3"))
    given: dict[str, tuple[object, ...]] = {}
    refused = ClassicGroup.refused

    def spy(group: ClassicGroup, step: Step, now_ms: int) -> Step:
        given[group.name] = step.timers
        return refused(group, step, now_ms)

    monkeypatch.setattr(ClassicGroup, "refused", spy)
    instead = rig.shard.refused(
        Step(events=(saved["g1"], saved["g2"]), timers=timers), CoordinatorNotAvailable(), rig.now_ms
    )

    assert given == {"g1": timers[:1], "g2": timers[1:2]}
    assert timers[2] in instead.timers, "of a group that the step did not change"
