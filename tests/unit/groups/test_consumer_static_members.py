"""Static members of a group with the consumer protocol: their instance id outlives their member id."""

from tests.unit.groups.consumer_rig import Rig, assigned, refusal_of

from penstock.groups.consumer.responses import ConsumerHeartbeatReply


def test_an_instance_id_in_use_is_not_released() -> None:
    rig = Rig()
    rig.join("m1", "a", instance="i1")

    reply = rig.join("m2", "a", instance="i1")

    assert refusal_of(reply) == (
        "UNRELEASED_INSTANCE_ID",
        "Static member m2 with instance id i1 cannot join the group because the instance id is owned by m1 member.",
    )


def test_a_static_member_that_left_temporarily_keeps_its_partitions() -> None:
    rig = Rig()
    rig.join("m1", "a", instance="i1")
    rig.join("m2", "a", instance="i2")
    kept = assigned(rig.beat("m1", 2, instance="i1"))
    assert kept is not None
    rig.beat("m1", 2, instance="i1", owned={"a": kept})

    left = rig.leave("m1", -2, instance="i1")

    assert left == ConsumerHeartbeatReply(member_id="m1", member_epoch=-2)
    assert assigned(rig.beat("m2", 3, instance="i2")) == set(range(6)) - kept
    assert assigned(rig.beat("m2", 3, instance="i2")) is None


def test_a_returning_static_member_keeps_its_partitions_without_a_rebalance() -> None:
    rig = Rig()
    had = assigned(rig.join("m1", "a", instance="i1"))
    rig.leave("m1", -2, instance="i1")

    reply = rig.join("m1-again", "a", instance="i1")

    assert (reply.member_epoch, assigned(reply)) == (2, had)
    assert rig.group().described_consumer().group_epoch == 2
    assert [member.member_id for member in rig.group().described_consumer().members] == ["m1-again"]


def test_a_static_member_may_return_with_its_old_member_id() -> None:
    rig = Rig()
    had = assigned(rig.join("m1", "a", instance="i1"))
    rig.leave("m1", -2, instance="i1")

    reply = rig.join("m1", "a", instance="i1")

    assert (reply.member_epoch, assigned(reply)) == (2, had)


def test_a_static_member_that_returns_with_other_topics_loses_the_old_ones() -> None:
    rig = Rig()
    rig.topics.counts["b"] = 2
    rig.join("m1", "a", instance="i1")
    rig.leave("m1", -2, instance="i1")

    reply = rig.join("m2", "b", instance="i1")

    assert (assigned(reply, "a"), assigned(reply, "b")) == (set(), {0, 1})


def test_a_static_member_that_does_not_return_is_fenced_when_its_session_ends() -> None:
    rig = Rig()
    rig.join("m1", "a", instance="i1")
    rig.join("m2", "a")
    rig.leave("m1", -2, instance="i1")
    rig.pass_ms(40_000)
    assert assigned(rig.beat("m2", 3)) is None

    rig.pass_ms(6_000)

    assert assigned(rig.beat("m2", 3)) == set(range(6))


def test_a_replaced_member_is_fenced_by_its_instance() -> None:
    rig = Rig()
    rig.join("m1", "a", instance="i1")
    rig.leave("m1", -2, instance="i1")
    rig.join("m2", "a", instance="i1")

    for epoch in (2, -1, -2):
        assert refusal_of(rig.beat("m1", epoch, instance="i1")) == (
            "FENCED_INSTANCE_ID",
            "Static member m1 with instance id i1 was fenced by member m2.",
        )


def test_an_unknown_instance_id_is_rejected() -> None:
    rig = Rig()
    rig.join("m1", "a")

    assert refusal_of(rig.beat("m1", 2, instance="i9")) == ("UNKNOWN_MEMBER_ID", "Instance id i9 is unknown.")


def test_a_static_member_can_leave_permanently() -> None:
    rig = Rig()
    rig.join("m1", "a", instance="i1")

    rig.leave("m1", -1, instance="i1")

    assert rig.group().empty
    assert rig.join("m2", "a", instance="i1").member_epoch == 4


def test_the_session_of_a_replaced_member_does_not_fence_its_replacement() -> None:
    rig = Rig()
    rig.join("m1", "a", instance="i1")
    rig.pass_ms(30_000)
    rig.leave("m1", -2, instance="i1")
    rig.join("m2", "a", instance="i1")

    rig.pass_ms(30_000)

    assert rig.beat("m2", 2, instance="i1").member_epoch == 2


def test_a_target_computed_before_a_replacement_applies_to_the_new_member_id() -> None:
    rig = Rig()
    rig.topics.counts["a"] = 5_000
    rig.join("m1", "a", instance="i1")
    rig.beat("m1", 1, instance="i1")
    rig.jobs_wait = True
    rig.join("m2", "a")
    rig.leave("m1", -2, instance="i1")
    rig.join("m3", "a", instance="i1")

    rig.run_jobs()

    targets = {member.member_id: member.target for member in rig.group().described_consumer().members}
    assert sorted(len(target[0].partitions) for target in targets.values()) == [2_500, 2_500]
    assert targets.keys() == {"m2", "m3"}
