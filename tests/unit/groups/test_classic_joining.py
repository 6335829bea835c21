"""Rebalances of classic groups: joining, the leader, assignments."""

import pytest
from tests.unit.groups.rig import (
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    Client,
    Rig,
    settled,
    share,
    subscription,
)

from penstock.groups.commands import (
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    LeaveGroup,
    SyncGroup,
)
from penstock.groups.events import ClassicGroupSaved
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)


def test_a_new_member_is_given_an_id_and_has_to_join_with_it() -> None:
    rig = Rig()
    client = Client(rig)
    client._send_join()

    assert client.joined == JoinReply(member_id="c-1", error=MemberIdRequired)
    assert rig.state() == "Empty"


@pytest.mark.parametrize("version", range(4))
def test_members_with_old_versions_join_without_an_id(version: int) -> None:
    rig = Rig()
    client = Client(rig, version=version).join()

    assert client.waits_to_join
    assert rig.state() == "PreparingRebalance"


def test_the_initial_rebalance_is_delayed_for_more_members() -> None:
    rig = Rig()
    first = Client(rig, "a").join()
    rig.pass_ms(DELAY_MS - 1)
    assert first.waits_to_join

    rig.pass_ms(1)

    assert first.joined.generation == 1
    assert rig.state() == "CompletingRebalance"


def test_every_new_member_extends_the_initial_rebalance_delay_once() -> None:
    rig = Rig()
    first = Client(rig, "a").join()
    rig.pass_ms(DELAY_MS - 1)
    second = Client(rig, "b").join()

    rig.pass_ms(DELAY_MS)
    assert first.waits_to_join
    rig.pass_ms(1)

    assert (first.joined.generation, second.joined.generation) == (1, 1)


def test_the_initial_rebalance_delay_ends_with_the_rebalance_timeout() -> None:
    rig = Rig()
    clients = [Client(rig, "a", rebalance_ms=6500).join()]
    for name in "bcdef":
        rig.pass_ms(1200)
        clients.append(Client(rig, name, rebalance_ms=6500).join())
    assert clients[0].waits_to_join

    rig.pass_ms(500)

    assert {client.joined.generation for client in clients} == {1}


def test_only_the_leader_gets_the_list_of_members() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)

    assert [member.member_id for member in first.joined.members] == [first.member_id, second.joined.member_id]
    assert second.joined.members == ()
    assert first.joined.leader == second.joined.leader == first.member_id
    assert first.joined.protocol_type == "consumer"
    assert first.joined.protocol == "range"


def test_assignments_are_in_the_log_before_a_member_gets_one() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    written = len(rig.log)
    second.sync()
    assert second.waits_to_sync

    first.sync({first.joined.member_id: b"one", second.member_id: b"two"})

    assert (first.assignment, second.assignment) == (b"one", b"two")
    (saved,) = rig.log[written:]
    assert isinstance(saved, ClassicGroupSaved)
    assert [(member.member_id, member.assignment) for member in saved.value.members] == [
        (first.member_id, b"one"),
        (second.member_id, b"two"),
    ]
    assert rig.state() == "Stable"


def test_a_follower_that_syncs_after_the_leader_gets_its_response_at_once() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    first.sync({first.joined.member_id: b"one", second.joined.member_id: b"two"})

    assert second.sync().assignment == b"two"


def test_a_member_without_an_assignment_by_the_leader_gets_an_empty_one() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    first.sync({first.joined.member_id: b"one"})

    assert second.sync().assignment == b""


def test_only_the_leader_assigns() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    second.sync({first.joined.member_id: b"forged", second.joined.member_id: b"forged"})

    assert second.waits_to_sync
    assert rig.state() == "CompletingRebalance"


def test_a_new_member_triggers_a_rebalance() -> None:
    rig = Rig()
    first = Client(rig, "a")
    settled(rig, first)
    second = Client(rig, "b").join()

    assert isinstance(first.heartbeat(), RebalanceInProgress)
    first.join()

    assert (first.joined.generation, second.joined.generation) == (2, 2)
    assert isinstance(first.heartbeat(), HeartbeatReply)


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b", session_ms=6000, rebalance_ms=5000)
    settled(rig, first, second)
    third = Client(rig, "c", rebalance_ms=5000).join()
    second.join()
    first.rebalance_ms = 5000
    for _ in range(REBALANCE_MS // 1000 - 1):
        rig.pass_ms(1000)
        assert isinstance(first.heartbeat(), RebalanceInProgress)
    assert third.waits_to_join

    rig.pass_ms(1000)

    assert third.joined.generation == 2
    assert isinstance(first.heartbeat(), UnknownMemberId)
    assert second.joined.leader == second.member_id


def test_a_leader_that_rejoins_unchanged_triggers_a_rebalance() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second)

    first.join()

    assert first.waits_to_join
    assert isinstance(second.heartbeat(), RebalanceInProgress)


def test_a_follower_that_rejoins_unchanged_gets_the_current_generation() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second)

    second.join()

    assert second.joined.generation == 1
    assert second.sync().assignment == b"b"
    assert isinstance(first.heartbeat(), HeartbeatReply)


def test_a_follower_that_changes_its_subscription_triggers_a_rebalance() -> None:
    rig = Rig()
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second)

    second.protocols = (("range", subscription("t", "u")),)
    second.join()

    assert second.waits_to_join
    assert isinstance(first.heartbeat(), RebalanceInProgress)


def test_a_member_that_missed_the_response_to_its_join_gets_it_again() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    response = first.joined

    first.join()

    assert first.joined == response
    second.join()
    assert second.joined.members == ()
    assert second.joined.generation == 1


def test_a_member_that_changes_before_the_assignment_makes_the_others_rejoin() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    second.sync()
    first.protocols = (("range", subscription("t", "u")),)

    first.join()

    assert isinstance(second.synced, RebalanceInProgress)
    second.join()
    assert (first.joined.generation, second.joined.generation) == (2, 2)


def test_a_join_replaces_an_earlier_join_of_the_same_member() -> None:
    rig = Rig()
    client = Client(rig).join()
    earlier = client._join

    client.join()

    reply = rig.replies[earlier]
    assert isinstance(reply, JoinReply)
    assert reply.error is RebalanceInProgress
    rig.pass_ms(DELAY_MS)
    assert client.joined.generation == 1


def test_a_sync_replaces_an_earlier_sync_of_the_same_member() -> None:
    rig = Rig()
    first, second = Client(rig, "a").join(), Client(rig, "b").join()
    rig.pass_ms(2 * DELAY_MS)
    second.sync()
    earlier = second._sync
    second.sync()

    assert isinstance(rig.replies[earlier], RebalanceInProgress)
    first.sync({first.joined.member_id: b"", second.member_id: b"two"})
    assert second.assignment == b"two"


# Protocols


def test_the_protocol_that_most_members_prefer_and_all_support_is_chosen() -> None:
    rig = Rig()
    offers = (("sticky", b""), ("range", b"")), (("range", b""), ("sticky", b"")), (("range", b""), ("sticky", b""))
    clients = [Client(rig, name, protocols=offer) for name, offer in zip("abc", offers, strict=True)]
    settled(rig, *clients)

    assert {client.joined.protocol for client in clients} == {"range"}


def test_cooperative_members_rejoin_with_their_owned_partitions() -> None:
    rig = Rig()
    owns = b"owns t-0"
    first = Client(rig, "a", protocols=(("cooperative-sticky", subscription("t")),))
    settled(rig, first)
    second = Client(rig, "b", protocols=first.protocols).join()
    first.protocols = (("cooperative-sticky", subscription("t", version=1, user_data=owns)),)
    first.join()
    share(first, second)

    assert first.joined.members[0].metadata.endswith(owns)
    # After the revocation it rejoins, which triggers another rebalance.
    second.protocols = (("cooperative-sticky", subscription("t", version=1, user_data=b"nothing")),)
    second.join()
    first.join()
    assert second.joined.generation == 3


def test_a_member_without_a_common_protocol_is_rejected() -> None:
    rig = Rig()
    settled(rig, Client(rig, "a", protocols=(("range", b""),)))

    other = Client(rig, "b", protocols=(("roundrobin", b""),)).join()

    assert other.joined == JoinReply(member_id="", error=InconsistentGroupProtocol)


def test_a_member_with_another_protocol_type_is_rejected() -> None:
    rig = Rig()
    settled(rig, Client(rig, "a"))

    other = Client(rig, "b", protocol_type="connect").join()

    assert other.joined.error is InconsistentGroupProtocol


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_a_first_member_without_protocol_type_or_protocols_is_rejected(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    rig = Rig()

    client = Client(rig, protocol_type=protocol_type, protocols=protocols).join()

    assert client.joined.error is InconsistentGroupProtocol


def test_of_two_protocols_with_one_name_the_first_counts() -> None:
    rig = Rig()
    client = Client(rig, protocols=(("range", b"first"), ("range", b"second"))).join()
    rig.pass_ms(DELAY_MS)

    assert [member.metadata for member in client.joined.members] == [b"first"]


@pytest.mark.parametrize(
    ("protocol_type", "protocol", "error"),
    [
        ("connect", None, InconsistentGroupProtocol),
        ("consumer", "roundrobin", InconsistentGroupProtocol),
        ("consumer", "range", None),
        (None, None, None),
    ],
)
def test_a_sync_with_another_protocol_is_rejected(
    protocol_type: str | None, protocol: str | None, error: type[BrokerError] | None
) -> None:
    rig = Rig()
    client = Client(rig).join()
    rig.pass_ms(DELAY_MS)

    reply = rig.ask(
        SyncGroup(
            group="g",
            member_id=client.joined.member_id,
            group_instance_id=None,
            generation=1,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=(),
        )
    )

    assert (type(reply) if isinstance(reply, BrokerError) else None) is error


# Invalid requests


def test_requests_without_a_group_id_are_rejected() -> None:
    rig = Rig()

    assert Client(rig, group="").join().joined == JoinReply(member_id="", error=InvalidGroupId)
    for command in (
        SyncGroup(
            group="",
            member_id="m",
            group_instance_id=None,
            generation=1,
            protocol_type=None,
            protocol=None,
            assignments=(),
        ),
        Heartbeat(group="", member_id="m", group_instance_id=None, generation=1),
        LeaveGroup(group="", members=()),
    ):
        assert isinstance(rig.ask(command), InvalidGroupId)


def test_requests_to_an_unknown_group_fail_with_unknown_member_id() -> None:
    rig = Rig()
    client = Client(rig)
    client.member_id, client.generation = "m", 1

    assert client.join().joined == JoinReply(member_id="m", error=UnknownMemberId)
    assert isinstance(client.heartbeat(), UnknownMemberId)
    assert isinstance(client.leave(), UnknownMemberId)
    command = SyncGroup(
        group="g",
        member_id="m",
        group_instance_id=None,
        generation=1,
        protocol_type=None,
        protocol=None,
        assignments=(),
    )
    assert isinstance(rig.ask(command), UnknownMemberId)
    assert rig.shard.list_groups() == []


def test_unknown_members_and_old_generations_are_rejected() -> None:
    rig = Rig()
    client = Client(rig)
    settled(rig, client)
    stranger, late = Client(rig), Client(rig)
    stranger.member_id, stranger.generation = "stranger", 1
    late.member_id, late.generation = client.member_id, 0

    assert isinstance(stranger.heartbeat(), UnknownMemberId)
    assert isinstance(late.heartbeat(), IllegalGeneration)
    assert stranger.join().joined == JoinReply(member_id="stranger", error=UnknownMemberId)
    for member_id, generation, error in (("stranger", 1, UnknownMemberId), (client.member_id, 2, IllegalGeneration)):
        command = SyncGroup(
            group="g",
            member_id=member_id,
            group_instance_id=None,
            generation=generation,
            protocol_type=None,
            protocol=None,
            assignments=(),
        )
        assert isinstance(rig.ask(command), error)


@pytest.mark.parametrize("session_ms", [5999, 1_800_001])
def test_session_timeouts_out_of_the_brokers_bounds_are_rejected(session_ms: int) -> None:
    rig = Rig()

    assert Client(rig, session_ms=session_ms).join().joined == JoinReply(member_id="", error=InvalidSessionTimeout)
    assert rig.shard.list_groups() == []


def test_a_group_has_at_most_group_max_size_members() -> None:
    rig = Rig({"group.max.size": "2"})
    first, second = Client(rig, "a"), Client(rig, "b")
    settled(rig, first, second)

    assert Client(rig, "c").join().joined == JoinReply(member_id="", error=GroupMaxSizeReached)


def test_a_join_beyond_group_max_size_is_rejected_while_the_group_forms() -> None:
    rig = Rig({"group.max.size": "2"})
    clients = [Client(rig, name, version=3).join() for name in "abc"]

    assert clients[2].joined.error is GroupMaxSizeReached
    rig.pass_ms(2 * DELAY_MS)
    assert clients[0].joined.error is clients[1].joined.error is None


def test_a_pending_member_id_used_by_a_static_member_is_an_error() -> None:
    rig = Rig()
    client = Client(rig)
    client._send_join()
    client.member_id, client.instance = client.joined.member_id, "i"

    assert client.join().joined.error is UnknownServerError
