"""Online migration of a group between the classic and the consumer protocol."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.groups.consumer_rig import (
    GROUP,
    Rig,
    Topics,
    Waiting,
    assigned,
    classic_beat,
    classic_join,
    classic_leave,
    classic_sync,
    refusal_of,
    subscription,
)

from penstock.groups.classic.group import ClassicGroup
from penstock.groups.commands import HeartbeatReply, JoinReply, LeavingMember, SyncReply
from penstock.groups.consumer.embedded_protocol import read_assignment, write_assignment
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.migration import (
    ClassicImage,
    ClassicPeer,
    MigrationPolicy,
    check_upgrade,
    choose_protocol,
    upgraded,
)
from penstock.model.generated_errors import (
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)


def classic_rig(**settings: Any) -> Rig:
    """One classic member, the leader, with all partitions of topic a."""
    rig = Rig(Topics(a=4), group_initial_rebalance_delay_ms=0, **settings)
    joined = rig.ask(classic_join("", version=3))
    joined = rig.replies[joined.ticket] if isinstance(joined, Waiting) else joined
    member_id = joined.member_id
    rig.ask(classic_sync(member_id, joined.generation, {member_id: {"a": range(4)}}))
    return rig


def classic_id(rig: Rig) -> str:
    group = rig.shard._groups[GROUP]  # pyright: ignore[reportPrivateUsage]
    assert isinstance(group, ClassicGroup)
    return next(iter(group.rebalance.members)).member_id


def assignment(reply: Any) -> dict[str, set[int]]:
    assert isinstance(reply, SyncReply), reply
    return {topic: set(partitions) for topic, partitions in read_assignment(reply.assignment).partitions}


def kind(rig: Rig) -> type:
    return type(rig.shard._groups[GROUP])  # pyright: ignore[reportPrivateUsage]


# Upgrade


def test_an_upgraded_group_keeps_its_assignments() -> None:
    rig = classic_rig()
    c1 = classic_id(rig)

    reply = rig.join("m1", "a")

    assert kind(rig) is ConsumerGroup
    assert assigned(reply) == set()
    described = {member.member_id: member for member in rig.group().described_consumer().members}
    assert described[c1].assigned[0].partitions == (0, 1, 2, 3)
    assert (described[c1].member_type, described["m1"].member_type) == (0, 1)


def test_a_classic_member_revokes_by_rejoining_and_gets_partitions_by_syncing() -> None:
    rig = classic_rig()
    c1 = classic_id(rig)
    m1_epoch = rig.join("m1", "a").member_epoch

    assert isinstance(rig.ask(classic_beat(c1, 1)), RebalanceInProgress)
    joined = rig.ask(classic_join(c1, owned={"a": range(4)}))
    assert (joined.generation, joined.protocol, joined.leader, joined.members) == (1, "range", "", ())
    kept = assignment(rig.ask(classic_sync(c1, 1)))["a"]
    assert len(kept) == 2
    assert isinstance(rig.ask(classic_beat(c1, 1)), RebalanceInProgress), "it has partitions to revoke"

    joined = rig.ask(classic_join(c1, owned={"a": kept}))
    assert joined.generation == m1_epoch
    assert assignment(rig.ask(classic_sync(c1, m1_epoch)))["a"] == kept
    assert rig.ask(classic_beat(c1, m1_epoch)) == HeartbeatReply()
    assert assigned(rig.beat("m1", m1_epoch)) == {0, 1, 2, 3} - kept
    assert rig.state == "Stable"


def test_a_classic_member_is_told_to_rejoin_when_its_target_is_free() -> None:
    rig = Rig(Topics(a=2))
    rig.join("m1", "a")
    joined = rig.ask(classic_join("c1"))
    assert assignment(rig.ask(classic_sync("c1", joined.generation))) == {}
    kept = assigned(rig.beat("m1", 2))
    assert kept is not None
    assert rig.ask(classic_beat("c1", joined.generation)) == HeartbeatReply()

    rig.beat("m1", 2, owned={"a": kept})

    assert isinstance(rig.ask(classic_beat("c1", joined.generation)), RebalanceInProgress)
    rejoined = rig.ask(classic_join("c1"))
    assert assignment(rig.ask(classic_sync("c1", rejoined.generation))) == {"a": {0, 1} - kept}


def test_waiting_joins_fail_with_rebalance_in_progress_on_an_upgrade() -> None:
    rig = Rig(Topics(a=4), group_initial_rebalance_delay_ms=3_000)
    waiting = rig.ask(classic_join("", version=3))
    assert isinstance(waiting, Waiting)

    rig.join("m1", "a")

    response = rig.replies[waiting.ticket]
    assert isinstance(response, RebalanceInProgress) or response.error is RebalanceInProgress
    assert kind(rig) is ConsumerGroup


def test_an_empty_classic_group_is_replaced() -> None:
    rig = classic_rig()
    c1 = classic_id(rig)
    rig.ask(classic_leave(LeavingMember(member_id=c1)))

    assert assigned(rig.join("m1", "a")) == {0, 1, 2, 3}
    assert [member.member_id for member in rig.group().described_consumer().members] == ["m1"]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_group_is_not_upgraded_if_the_policy_forbids_it(policy: str) -> None:
    rig = classic_rig(group_consumer_migration_policy=policy)

    assert refusal_of(rig.join("m1", "a")) == (
        "GROUP_ID_NOT_FOUND",
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled.",
    )
    assert kind(rig) is ClassicGroup


def test_a_full_group_is_not_upgraded() -> None:
    rig = classic_rig(group_consumer_max_size=1)

    assert refusal_of(rig.join("m1", "a"))[0] == "GROUP_MAX_SIZE_REACHED"

    assert kind(rig) is ClassicGroup


def test_a_group_too_large_for_the_consumer_protocol_is_not_upgraded() -> None:
    image = ClassicImage(group="g", generation=3, protocol_type="consumer", protocol="range", peers=[])
    peers = [
        ClassicPeer(
            member_id=f"c{number}",
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
            protocols=(("range", subscription(["a"])),),
            assignment=b"",
        )
        for number in range(2)
    ]

    with pytest.raises(GroupIdNotFound, match="the group size exceeds the consumer group maximum size"):
        check_upgrade(replace(image, peers=peers), MigrationPolicy.UPGRADE, 1)
    with pytest.raises(GroupIdNotFound, match="the group does not use the consumer embedded protocol"):
        check_upgrade(replace(image, protocol_type="connect"), MigrationPolicy.UPGRADE, 1)
    check_upgrade(replace(image, peers=peers), MigrationPolicy.UPGRADE, 2)


def test_a_group_with_a_malformed_subscription_is_not_upgraded() -> None:
    peer = ClassicPeer(
        member_id="c1",
        instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=(("range", b"\0\1junk"),),
        assignment=b"",
    )
    image = ClassicImage(group="g", generation=3, protocol_type="consumer", protocol="range", peers=[peer])

    with pytest.raises(GroupIdNotFound, match="the embedded consumer protocol is malformed"):
        upgraded(image, Topics(a=1))


def test_a_group_with_a_custom_assignors_user_data_is_not_upgraded() -> None:
    rig = Rig(Topics(a=4), group_initial_rebalance_delay_ms=0)
    joined = rig.ask(classic_join("", version=3))
    joined = rig.replies[joined.ticket] if isinstance(joined, Waiting) else joined
    sync = classic_sync(joined.member_id, joined.generation, {joined.member_id: {"a": range(4)}})
    ((to, work_bytes),) = sync.assignments
    with_data = work_bytes[:-4] + (2).to_bytes(4) + b"xx"
    rig.ask(type(sync)(**{**{f: getattr(sync, f) for f in sync.__slots__}, "assignments": ((to, with_data),)}))

    name, text = refusal_of(rig.join("m1", "a"))

    assert name == "GROUP_ID_NOT_FOUND"
    assert "an unsupported custom assignor is in use" in text


def test_a_rejected_join_leaves_the_classic_group_unchanged() -> None:
    rig = classic_rig()
    written = len(rig.log)

    assert refusal_of(rig.join("m1", regex="("))[0] == "INVALID_REGULAR_EXPRESSION"

    assert kind(rig) is ClassicGroup
    assert len(rig.log) == written
    assert rig.ask(classic_beat(classic_id(rig), 1)) == HeartbeatReply()


# Classic members in it


def test_a_classic_member_gets_a_member_id_first() -> None:
    rig = Rig()
    rig.join("m1", "a")

    reply = rig.ask(classic_join(""))

    assert isinstance(reply, JoinReply)
    assert (reply.error, reply.member_id) == (MemberIdRequired, "id-1")
    assert rig.ask(classic_join("id-1")).generation == 3


def test_a_classic_member_needs_a_protocol_that_all_classic_members_support() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.ask(classic_join("c1", protocols=["range", "sticky"]))

    assert isinstance(rig.ask(classic_join("c2", protocols=["roundrobin"])), InconsistentGroupProtocol)
    assert rig.ask(classic_join("c2", protocols=["sticky"])).protocol == "sticky"


def test_a_classic_member_cannot_join_if_migration_is_disabled() -> None:
    rig = Rig(group_consumer_migration_policy="disabled")
    rig.join("m1", "a")

    assert refusal_of(rig.ask(classic_join("c1"))) == (
        "INCONSISTENT_GROUP_PROTOCOL",
        "Cannot join the consumer group g with the classic protocol because the group migration is disabled.",
    )


def test_syncs_and_heartbeats_are_fenced_by_generation_and_instance() -> None:
    rig = Rig()
    rig.join("m1", "a")
    joined = rig.ask(classic_join("", instance="i1"))
    c1, generation = joined.member_id, joined.generation

    assert isinstance(rig.ask(classic_sync(c1, generation - 1, instance="i1")), IllegalGeneration)
    assert isinstance(rig.ask(classic_beat(c1, generation - 1, instance="i1")), IllegalGeneration)
    assert isinstance(rig.ask(classic_beat("other", generation, instance="i1")), FencedInstanceId)
    assert isinstance(rig.ask(classic_beat("other", generation)), UnknownMemberId)
    assert isinstance(rig.ask(classic_beat("m1", 2)), UnknownMemberId), "it does not use the classic protocol"


def test_a_sync_for_another_protocol_is_inconsistent() -> None:
    rig = Rig()
    rig.join("m1", "a")
    joined = rig.ask(classic_join("c1", protocols=["sticky"]))

    assert isinstance(rig.ask(classic_sync("c1", joined.generation)), InconsistentGroupProtocol)


def test_a_sync_of_an_outdated_member_tells_it_to_join() -> None:
    rig = Rig()
    rig.join("m1", "a")
    joined = rig.ask(classic_join("c1"))
    rig.join("m2", "a")

    assert isinstance(rig.ask(classic_sync("c1", joined.generation)), RebalanceInProgress)


def test_a_classic_member_that_never_syncs_is_fenced_after_its_rebalance_timeout() -> None:
    rig = Rig()
    rig.join("m1", "a")
    joined = rig.ask(classic_join("c1"))
    for _ in range(4):
        rig.pass_ms(4_900)
        rig.beat("m1", 2)
        rig.ask(classic_beat("c1", joined.generation))
    assert rig.group().member_count == 2

    rig.pass_ms(1_000)

    assert rig.group().member_count == 1


def test_a_classic_member_that_does_not_rejoin_is_fenced_after_its_rebalance_timeout() -> None:
    rig = Rig()
    rig.join("m1", "a")
    joined = rig.ask(classic_join("c1"))
    rig.ask(classic_sync("c1", joined.generation))
    rig.join("m2", "a")
    for _ in range(5):
        assert isinstance(rig.ask(classic_beat("c1", joined.generation)), RebalanceInProgress)
        rig.pass_ms(4_500)

    assert isinstance(rig.ask(classic_beat("c1", joined.generation)), UnknownMemberId)


def test_a_classic_member_without_heartbeats_is_fenced_after_its_own_session() -> None:
    rig = Rig()
    rig.join("m1", "a")
    joined = rig.ask(classic_join("c1"))
    rig.ask(classic_sync("c1", joined.generation))

    rig.pass_ms(11_000)

    assert rig.group().member_count == 1


def test_an_operator_can_remove_members_of_both_protocols() -> None:
    rig = Rig()
    rig.join("m1", "a", instance="i1")
    rig.join("m2", "a")
    rig.ask(classic_join("c1"))

    reply = rig.ask(
        classic_leave(
            LeavingMember(member_id="c1"),
            LeavingMember(member_id="", group_instance_id="i1"),
            LeavingMember(member_id="nobody"),
        )
    )

    assert [left.error for left in reply.members] == [None, None, UnknownMemberId]
    assert [member.member_id for member in rig.group().described_consumer().members] == ["m2"]


def test_a_consumer_member_replaces_a_classic_static_one() -> None:
    rig = Rig()
    rig.join("m0", "a")
    joined = rig.ask(classic_join("", instance="i1"))
    rig.ask(classic_sync(joined.member_id, joined.generation, instance="i1"))

    reply = rig.join("m1", "a", instance="i1")

    assert reply.member_epoch == 3
    types = {member.member_id: member.member_type for member in rig.group().described_consumer().members}
    assert types == {"m0": 1, "m1": 1}


# Downgrade


def test_the_leave_of_the_last_consumer_member_downgrades_the_group_with_a_rebalance() -> None:
    rig = Rig(Topics(a=4))
    rig.join("m1", "a")
    joined = rig.ask(classic_join("c1"))

    rig.leave("m1")

    assert kind(rig) is ClassicGroup
    assert isinstance(rig.ask(classic_beat("c1", joined.generation)), RebalanceInProgress | IllegalGeneration)
    rejoined = rig.ask(classic_join("c1"))
    rejoined = rig.replies.get(rejoined.ticket) if isinstance(rejoined, Waiting) else rejoined
    assert isinstance(rejoined, JoinReply)
    assert (rejoined.leader, rejoined.error) == ("c1", None)
    synced = rig.ask(classic_sync("c1", rejoined.generation, {"c1": {"a": range(4)}}))
    assert assignment(synced) == {"a": {0, 1, 2, 3}}


def test_a_group_is_not_downgraded_if_the_policy_forbids_it() -> None:
    rig = Rig(group_consumer_migration_policy="upgrade")
    rig.join("m1", "a")
    rig.ask(classic_join("c1"))

    rig.leave("m1")

    assert kind(rig) is ConsumerGroup


def test_a_group_without_classic_members_is_not_downgraded() -> None:
    rig = Rig()
    rig.join("m1", "a")

    rig.leave("m1")

    assert kind(rig) is ConsumerGroup


def test_the_session_end_of_the_last_consumer_member_downgrades_the_group() -> None:
    rig = Rig()
    rig.join("m1", "a")
    joined = rig.ask(classic_join("c1"))
    rig.ask(classic_sync("c1", joined.generation))
    for _ in range(5):
        rig.pass_ms(9_500)
        rig.ask(classic_beat("c1", joined.generation))

    assert kind(rig) is ClassicGroup


def test_a_classic_replacement_of_the_last_consumer_member_downgrades_without_a_rebalance() -> None:
    rig = Rig(Topics(a=4))
    had = assigned(rig.join("m1", "a", instance="i1"))
    assert had == {0, 1, 2, 3}

    joined = rig.ask(classic_join("", instance="i1"))

    assert kind(rig) is ClassicGroup
    synced = rig.ask(classic_sync(joined.member_id, joined.generation, instance="i1"))
    assert assignment(synced) == {"a": had}
    assert rig.ask(classic_beat(joined.member_id, joined.generation, instance="i1")) == HeartbeatReply()


def test_a_classic_replacement_with_other_topics_downgrades_with_a_rebalance() -> None:
    rig = Rig(Topics(a=4, b=2))
    rig.join("m1", "a", instance="i1")

    joined = rig.ask(classic_join("", topics=["b"], instance="i1"))

    assert kind(rig) is ClassicGroup
    again = rig.ask(classic_sync(joined.member_id, joined.generation, instance="i1"))
    assert not isinstance(again, SyncReply)


def test_a_downgraded_group_is_the_same_after_a_restart() -> None:
    rig = Rig(Topics(a=4))
    rig.join("m1", "a", instance="i1")
    joined = rig.ask(classic_join("", instance="i1"))

    rig.restart()

    synced = rig.ask(classic_sync(joined.member_id, joined.generation, instance="i1"))
    assert assignment(synced) == {"a": {0, 1, 2, 3}}


def test_a_group_is_upgraded_and_downgraded_again() -> None:
    rig = classic_rig()
    c1 = classic_id(rig)
    rig.join("m1", "a")
    rig.leave("m1")

    assert kind(rig) is ClassicGroup
    rejoined = rig.ask(classic_join(c1))
    rejoined = rig.replies.get(rejoined.ticket) if isinstance(rejoined, Waiting) else rejoined
    assert isinstance(rejoined, JoinReply)
    assert rejoined.error is None


# The parts


def test_policy_names_ignore_case_and_unknown_ones_are_disabled() -> None:
    assert MigrationPolicy.named("BiDirectional") is MigrationPolicy.BIDIRECTIONAL
    assert MigrationPolicy.named("sideways") is MigrationPolicy.DISABLED


def test_the_protocol_most_members_prefer_among_common_ones_is_chosen() -> None:
    offers = [
        (("range", b""), ("sticky", b"")),
        (("sticky", b""), ("range", b"")),
        (("best", b""), ("sticky", b""), ("range", b"")),
    ]

    assert choose_protocol(offers) == "sticky"


def test_an_assignment_round_trips() -> None:
    written = write_assignment([("a", [2, 1]), ("b", [])], 2)

    read = read_assignment(written)

    assert written[:2] == b"\0\2"
    assert read.partitions == (("a", (1, 2)), ("b", ()))
    assert read.user_data is None
