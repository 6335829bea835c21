"""Targets of a group with the consumer protocol, its description, and its state after a restart."""

from tests.unit.groups.consumer_rig import Rig, Topics, assigned

from penstock.config.broker import BrokerConfig
from penstock.groups.consumer.settings import RECONCILING_INTERVAL_MS, RECONCILING_MS, RECONCILING_MS_PER_MEMBER

# When targets are computed


def test_targets_are_computed_at_most_once_per_assignment_interval() -> None:
    rig = Rig(assignment_interval_ms=1_000)
    rig.join("m1", "a")

    second = rig.join("m2", "a")
    assert (second.member_epoch, assigned(second)) == (2, set())
    assert rig.state == "Assigning"

    rig.pass_ms(1_000)
    assert rig.state == "Reconciling", "no request was needed"
    assert rig.beat("m2", 2).member_epoch == 3


def test_group_configs_override_broker_settings() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.overrides = {
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.session.timeout.ms": "50000",
    }

    rig.pass_ms(RECONCILING_MS)
    assert rig.beat("m1", 2).heartbeat_interval_ms == 7000
    assert rig.now_ms + 50_000 in rig.timers.values()


def test_groups_follow_changed_broker_settings() -> None:
    rig = Rig(assignment_interval_ms=600_000)
    rig.join("m1", "a")
    assert assigned(rig.join("m2", "a")) == set()

    rig.shard.reconfigure(BrokerConfig(group_consumer_assignment_interval_ms=1_000))
    rig.pass_ms(1_000)
    assert rig.beat("m2", 2).member_epoch == 3


def test_heartbeats_are_more_frequent_after_a_change_of_the_group() -> None:
    rig = Rig()
    assert rig.join("m1", "a").heartbeat_interval_ms == RECONCILING_INTERVAL_MS
    assert rig.join("m2", "a").heartbeat_interval_ms == RECONCILING_INTERVAL_MS

    rig.pass_ms(RECONCILING_MS - 1)
    assert rig.beat("m1", 2).heartbeat_interval_ms == RECONCILING_INTERVAL_MS
    rig.pass_ms(1)
    assert rig.beat("m1", 2).heartbeat_interval_ms == 5_000

    rig.leave("m2")
    assert rig.beat("m1", 2).heartbeat_interval_ms == RECONCILING_INTERVAL_MS, "m1 has partitions to receive"


def test_the_reconciling_interval_grows_with_the_group_up_to_the_configured_one() -> None:
    rig = Rig()
    for index in range(600):
        reply = rig.join(f"m{index}", "a")

    assert reply.heartbeat_interval_ms == 600 * RECONCILING_MS_PER_MEMBER - RECONCILING_MS_PER_MEMBER
    rig.overrides = {"consumer.heartbeat.interval.ms": "300"}
    assert rig.join("m1", "a").heartbeat_interval_ms == 300


def test_a_large_target_is_computed_by_a_job_and_no_request_waits_for_it() -> None:
    rig = Rig(Topics(a=5_000))
    rig.join("m1", "a")
    rig.beat("m1", 1)
    rig.jobs_wait = True

    reply = rig.join("m2", "a")
    assert (reply.member_epoch, assigned(reply)) == (2, set())
    assert rig.beat("m1", 2).member_epoch == 2
    assert len(rig.jobs) == 1, "one at a time"

    rig.run_jobs()
    kept = assigned(rig.beat("m1", 2))
    assert kept is not None
    assert len(kept) == 2_500
    rig.beat("m1", 2, owned={"a": kept})
    assert assigned(rig.beat("m2", 2)) == set(range(5_000)) - kept


def test_a_late_target_applies_to_the_remaining_members() -> None:
    rig = Rig(Topics(a=5_000))
    rig.join("m1", "a")
    rig.jobs_wait = True
    rig.join("m2", "a")
    rig.leave("m2")
    rig.join("m3", "a")

    rig.run_jobs()
    rig.pass_ms(1_000)
    rig.run_jobs()

    targets = {member.member_id: member.target for member in rig.group().described_consumer().members}
    assert targets.keys() == {"m1", "m3"}
    assert sum(len(part.partitions) for target in targets.values() for part in target) == 5_000


def test_a_lost_job_is_started_again() -> None:
    rig = Rig(Topics(a=5_000))
    rig.jobs_wait = True
    rig.join("m1", "a")
    rig.jobs.clear()

    rig.pass_ms(40_000)
    rig.beat("m1", 1)
    rig.pass_ms(40_000)
    rig.beat("m1", 1)

    assert len(rig.jobs) == 1


# Describing


def test_a_group_is_listed_and_described() -> None:
    rig = Rig(Topics(a=2))
    rig.join("m1", "a", instance="i1", rack="east")
    rig.join("m2", "a")
    rig.beat("m1", 2, instance="i1")

    (listed,) = rig.shard.list_groups()
    described = rig.group().described_consumer()

    assert (listed.state, listed.type, listed.protocol_type) == ("Reconciling", "Consumer", "consumer")
    assert (described.group_epoch, described.assignment_epoch, described.assignor) == (3, 3, "uniform")
    first, second = described.members
    assert (first.instance_id, first.rack_id, first.client_host) == ("i1", "east", "/127.0.0.1")
    assert first.assigned[0].partitions == (0, 1), "it still owns partitions that it is revoking"
    assert len(first.target[0].partitions) == 1
    assert (second.assigned, second.member_type) == ((), 1)


# Restarts


def test_a_restarted_coordinator_continues_a_reconciliation() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.join("m2", "a")
    kept = assigned(rig.beat("m1", 2))
    assert kept is not None

    rig.restart()

    assert rig.beat("m1", 2, owned={"a": kept}).member_epoch == 3
    assert assigned(rig.beat("m2", 3)) == set(range(6)) - kept
    assert rig.state == "Stable"


def test_after_a_restart_members_have_a_full_session() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.pass_ms(40_000)
    rig.restart()

    rig.pass_ms(40_000)
    assert rig.beat("m1", 2).member_epoch == 2
    rig.pass_ms(46_000)
    assert rig.group().empty


def test_partitions_added_before_the_load_are_assigned() -> None:
    rig = Rig()
    rig.join("m1", "a")
    rig.topics.counts["a"] = 7

    rig.restart()

    assert assigned(rig.beat("m1", 2)) == set(range(7))


def test_records_of_a_half_compacted_log_give_the_right_owner() -> None:
    rig = Rig(Topics(a=1))
    rig.join("m1", "a")
    rig.join("m2", "a")
    rig.leave("m1")
    rig.beat("m2", 3)
    latest: dict[object, int] = {}
    for at, event in enumerate(rig.log):
        latest[type(event), getattr(event, "member_id", "")] = at
    first_seen = [0, 2, 4]  # The first member's records from before it left, read before they were cleaned away.

    fresh = Rig(rig.topics)
    for at in sorted({*first_seen, *latest.values()}):
        fresh.shard.apply(rig.log[at])

    assert fresh.group().described_consumer() == rig.group().described_consumer()
