"""Members of a group with the consumer protocol join, reconcile and leave."""

import pytest
from tests.unit.groups.consumer_rig import Rig, Topics, assigned, refusal_of

from penstock.groups.consumer.events import (
    ConsumerCurrentMemberAssignment,
    ConsumerGroupMetadata,
    ConsumerMemberMetadata,
    ConsumerTargetAssignmentMember,
    ConsumerTargetAssignmentMetadata,
)
from penstock.groups.consumer.responses import ConsumerHeartbeatReply
from penstock.model.generated_errors import CoordinatorNotAvailable

# Joining and reconciliation


def test_the_first_member_gets_all_partitions_in_its_first_response() -> None:
    rig = Rig()

    reply = rig.join("m1", "a")

    assert (reply.member_id, reply.member_epoch) == ("m1", 2)
    assert assigned(reply) == {0, 1, 2, 3, 4, 5}
    assert rig.state == "Stable"


def test_a_join_appends_the_same_records_as_kafka() -> None:
    rig = Rig()

    rig.join("m1", "a")

    assert [type(event) for event in rig.log] == [
        ConsumerMemberMetadata,
        ConsumerGroupMetadata,
        ConsumerTargetAssignmentMember,
        ConsumerTargetAssignmentMetadata,
        ConsumerCurrentMemberAssignment,
    ]


def test_a_second_member_gets_partitions_after_the_first_revoked_them() -> None:
    rig = Rig()
    first = assigned(rig.join("m1", "a"))

    second = rig.join("m2", "a")
    assert (second.member_epoch, assigned(second)) == (3, set())
    assert rig.state == "Reconciling"

    revoked = rig.beat("m1", 2)
    kept = assigned(revoked)
    assert first is not None
    assert kept is not None
    assert revoked.member_epoch == 2, "it stays in its epoch until it has revoked"
    assert kept < first
    assert len(kept) == 3
    assert assigned(rig.beat("m2", 3)) is None, "not before the first has acknowledged"

    acknowledged = rig.beat("m1", 2, owned={"a": kept})
    assert (acknowledged.member_epoch, acknowledged.assignment) == (3, None)
    gained = rig.beat("m2", 3)
    assert assigned(gained) == first - kept
    assert rig.state == "Stable"


def test_a_revocation_is_not_acknowledged_while_the_partitions_are_listed() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.join("m2", "a")
    rig.beat("m1", 2)

    reply = rig.beat("m1", 2, owned={"a": range(6)})

    assert reply.member_epoch == 2
    assert assigned(rig.beat("m2", 3)) is None


def test_the_assignment_is_sent_only_if_it_changed_or_on_a_full_request() -> None:
    rig = Rig()
    rig.join("m1", "a")

    assert assigned(rig.beat("m1", 2)) is None
    assert assigned(rig.beat("m1", 2, owned={"a": range(6)})) is None
    full = rig.beat("m1", 2, timeout_ms=60_000, topics=["a"], owned={"a": range(6)})
    assert assigned(full) == set(range(6))


def test_a_heartbeat_without_changes_appends_nothing() -> None:
    rig = Rig()
    rig.join("m1", "a")
    written = len(rig.log)

    rig.beat("m1", 2)

    assert len(rig.log) == written


def test_before_version_1_the_coordinator_chooses_the_member_id() -> None:
    rig = Rig()

    reply = rig.join("", "a", version=0)

    assert reply.member_id == "id-1"
    assert rig.beat("id-1", 2).member_epoch == 2


def test_a_member_without_a_subscription_can_join() -> None:
    rig = Rig()

    reply = rig.join("m1")

    assert (reply.member_epoch, reply.assignment) == (1, ())
    assert rig.group().member_count == 1


def test_topics_are_assigned_once_they_are_created() -> None:
    rig = Rig(Topics())
    assert assigned(rig.join("m1", "a")) == set()

    rig.change_topics(a=2)

    assert assigned(rig.beat("m1", 2)) == {0, 1}


def test_members_with_different_subscriptions_share_common_topics() -> None:
    rig = Rig(Topics(a=2, b=2))
    rig.join("m1", "a")
    rig.join("m2", "a", "b")
    rig.beat("m1", 2)
    rig.beat("m1", 2, owned={"a": ()})

    targets = {member.member_id: member.target for member in rig.group().described_consumer().members}

    assert sum(len(part.partitions) for target in targets.values() for part in target) == 4
    assert [part.topic for part in targets["m1"]] == ["a"]


# Assignors


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    rig = Rig(Topics(a=4, b=4))

    rig.join("m1", "a", "b", assignor="range")
    rig.join("m2", "a", "b", assignor="range")

    described = rig.group().described_consumer()
    assert described.assignor == "range"
    parts = {part.topic: part.partitions for part in described.members[0].target}
    assert parts == {"a": (0, 1), "b": (0, 1)}


def test_the_first_configured_assignor_is_the_default() -> None:
    rig = Rig(group_consumer_assignors=("range", "uniform"))

    rig.join("m1", "a")

    assert rig.group().described_consumer().assignor == "range"


def test_an_unsupported_assignor_is_rejected() -> None:
    rig = Rig()

    reply = rig.join("m1", "a", assignor="sticky")

    assert refusal_of(reply) == (
        "UNSUPPORTED_ASSIGNOR",
        "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
    )


# Epochs


def test_a_future_epoch_is_fenced() -> None:
    rig = Rig()
    rig.join("m1", "a")

    assert refusal_of(rig.beat("m1", 7)) == (
        "FENCED_MEMBER_EPOCH",
        "The consumer group member has a greater member epoch (7) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin.",
    )


def test_an_old_epoch_is_fenced() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.join("m2", "a")
    rig.beat("m1", 2)
    rig.beat("m1", 2, owned={"a": (0, 1, 2)})

    name, text = refusal_of(rig.beat("m1", 1, owned={"a": (0, 1, 2)}))

    assert name == "FENCED_MEMBER_EPOCH"
    assert "smaller member epoch (1)" in text


def test_the_previous_epoch_is_accepted_from_a_member_with_only_current_partitions() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.join("m2", "a")
    kept = assigned(rig.beat("m1", 2))
    assert kept is not None
    rig.beat("m1", 2, owned={"a": kept})

    lost_response = rig.beat("m1", 2, owned={"a": kept})
    assert lost_response.member_epoch == 3
    assert refusal_of(rig.beat("m1", 2))[0] == "FENCED_MEMBER_EPOCH", "it does not list its partitions"
    assert refusal_of(rig.beat("m1", 2, owned={"a": range(6)}))[0] == "FENCED_MEMBER_EPOCH"


def test_a_member_may_rejoin_with_its_member_id() -> None:
    rig = Rig()
    rig.join("m1", "a")

    reply = rig.join("m1", "a")

    assert (reply.member_epoch, assigned(reply)) == (2, set(range(6)))


@pytest.mark.parametrize(
    ("member_id", "epoch", "text"),
    [
        ("nobody", 2, "Member nobody is not a member of group g."),
        ("nobody", -1, "Member nobody is not a member of group g."),
    ],
)
def test_an_unknown_member_id_is_rejected(member_id: str, epoch: int, text: str) -> None:
    rig = Rig()
    rig.join("m1", "a")

    assert refusal_of(rig.beat(member_id, epoch)) == ("UNKNOWN_MEMBER_ID", text)


def test_a_group_that_does_not_exist_is_not_found() -> None:
    rig = Rig()

    assert refusal_of(rig.beat("m1", 2)) == ("GROUP_ID_NOT_FOUND", "Consumer group g not found.")
    assert refusal_of(rig.leave("m1")) == ("GROUP_ID_NOT_FOUND", "Group g not found.")


def test_a_full_group_rejects_new_members() -> None:
    rig = Rig(group_consumer_max_size=1)
    rig.join("m1", "a")

    assert refusal_of(rig.join("m2", "a")) == (
        "GROUP_MAX_SIZE_REACHED",
        "The consumer group has reached its maximum capacity of 1 members.",
    )
    assert rig.join("m1", "a").member_epoch == 2


# Invalid requests


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": 3, "version": 0}, "MemberId can't be empty."),
        ({"member_id": " ", "epoch": -1, "version": 0}, "MemberId can't be empty."),
        ({"group": ""}, "GroupId can't be empty."),
        ({"instance": " "}, "InstanceId can't be empty."),
        ({"rack": ""}, "RackId can't be empty."),
        ({"timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"owned": {"a": [0]}}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topics": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_an_invalid_request_is_rejected(fields: dict[str, object], text: str) -> None:
    rig = Rig()
    request = {"member_id": "m1", "epoch": 0, "timeout_ms": 60_000, "topics": ["a"], "owned": {}, **fields}

    reply = rig.beat(**request)  # type: ignore[arg-type]

    assert refusal_of(reply) == ("INVALID_REQUEST", text)
    assert rig.log == []


# Leaving and session timeouts


def test_the_partitions_of_a_leaving_member_are_reassigned() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.join("m2", "a")

    left = rig.leave("m1")

    assert left == ConsumerHeartbeatReply(member_id="m1", member_epoch=-1)
    assert assigned(rig.beat("m2", 3)) == set(range(6))
    assert rig.state == "Stable"


def test_a_group_whose_last_member_left_is_empty_and_can_be_deleted() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.leave("m1")
    assert rig.state == "Empty"

    for event in rig.group().deletion(rig.now_ms).events:
        rig.shard.apply(event)

    assert rig.shard.list_groups() == []


def test_a_member_without_heartbeats_is_fenced_when_its_session_ends() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.join("m2", "a")
    rig.pass_ms(44_000)
    rig.beat("m2", 3)

    rig.pass_ms(2_000)

    assert refusal_of(rig.beat("m1", 2))[0] == "UNKNOWN_MEMBER_ID"
    assert assigned(rig.beat("m2", 3)) == set(range(6))


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    rig = Rig()
    rig.join("m1", "a", timeout_ms=10_000)
    rig.join("m2", "a")
    rig.beat("m1", 2)
    for _ in range(2):
        rig.pass_ms(4_000)
        rig.beat("m1", 2, owned={"a": range(6)})

    rig.pass_ms(4_000)

    assert refusal_of(rig.beat("m1", 2))[0] == "UNKNOWN_MEMBER_ID"
    assert assigned(rig.beat("m2", 3)) == set(range(6))


def test_a_member_that_revoked_in_time_is_not_fenced() -> None:
    rig = Rig()
    rig.join("m1", "a", timeout_ms=10_000)
    rig.join("m2", "a")
    kept = assigned(rig.beat("m1", 2))
    assert kept is not None
    rig.beat("m1", 2, owned={"a": kept})

    rig.pass_ms(20_000)

    assert rig.beat("m1", 3).member_epoch == 3


# Subscriptions and topics that change


def test_a_topic_no_longer_subscribed_is_revoked_at_once() -> None:
    rig = Rig(Topics(a=2, b=2), assignment_interval_ms=60_000)
    rig.join("m1", "a", "b")

    reply = rig.beat("m1", 2, topics=["a"])

    assert (assigned(reply, "a"), assigned(reply, "b")) == ({0, 1}, set())
    assert reply.member_epoch == 2, "there is no new target yet"


def test_added_partitions_are_assigned() -> None:
    rig = Rig()
    rig.join("m1", "a")

    rig.change_topics(a=8)

    assert assigned(rig.beat("m1", 2)) == set(range(8))


def test_a_deleted_topic_is_revoked() -> None:
    rig = Rig(Topics(a=2, b=2))
    rig.join("m1", "a", "b")

    rig.change_topics(b=0)

    reply = rig.beat("m1", 2)
    assert (assigned(reply, "a"), assigned(reply, "b")) == ({0, 1}, set())


def test_a_change_of_other_topics_does_not_affect_a_group() -> None:
    rig = Rig()
    rig.join("m1", "a")
    written = len(rig.log)

    rig.change_topics(z=8)

    assert len(rig.log) == written


def test_a_changed_rack_raises_the_group_epoch() -> None:
    rig = Rig()
    rig.join("m1", "a")

    rig.topics.rack_names["a", 3] = ("east",)
    rig.change_topics(a=6)

    assert rig.group().described_consumer().group_epoch == 3


def test_a_member_whose_fencing_was_refused_is_fenced_after_another_session() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.refusing = CoordinatorNotAvailable()
    rig.pass_ms(45_000)
    assert rig.group().member_count == 1, "the append failed"
    rig.refusing = None

    rig.pass_ms(45_000)

    assert rig.group().empty
