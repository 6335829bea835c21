"""The context of a group shard: batching, when responses are sent, and failed appends."""

import asyncio
import errno
from dataclasses import replace

import pytest
from tests.unit.eventual import deliver
from tests.unit.groups.coordinator_rig import (
    OFFSETS,
    SESSION_MS,
    Groups,
    beat,
    commit,
    join,
    offsets_topic,
    sync,
    took,
    with_groups,
)
from tests.unit.partition.rig import Rig, everything, topic

from penstock.api.coordinator_requests import when_committed
from penstock.coordinator.context import CoordinatorClock, coordinator_error
from penstock.groups import context
from penstock.groups.commands import ConsumerHeartbeat, HeartbeatReply, JoinReply
from penstock.groups.consumer.responses import ConsumerHeartbeatReply
from penstock.groups.consumer.settings import RECONCILING_MS
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    IllegalGeneration,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownMemberId,
    UnknownServerError,
)
from penstock.wire.records import iter_batches


def batches(rig: Rig, partition: int = 0) -> int:
    replica = rig.replica(OFFSETS, partition)
    found = replica.read(replica.offsets.log_start, 1 << 30, at_least_one=True).records
    data = found if isinstance(found, bytes) else found.contents()
    return len(list(iter_batches(data)))


def test_a_commit_is_in_the_log_before_its_response() -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7))

        assert groups.offsets() == {("orders", 0): 7}
        assert len(everything(groups.rig.replica(OFFSETS))) == 1

    with_groups(act)


def test_commits_of_one_turn_share_a_batch() -> None:
    async def act(groups: Groups) -> None:
        responses = [groups.ask(commit(at, f"g{at % 5}", at % 4)) for at in range(20)]
        assert not any(responses)

        await asyncio.sleep(0)

        assert all(took(response) for [response] in responses)
        assert batches(groups.rig) == 1
        assert len(everything(groups.rig.replica(OFFSETS))) == 20

    with_groups(act)


def test_the_last_of_several_commits_in_one_turn_wins() -> None:
    async def act(groups: Groups) -> None:
        for offset in (3, 9, 5):
            groups.ask(commit(offset))
        await asyncio.sleep(0)

        assert groups.offsets() == {("orders", 0): 5}

    with_groups(act)


def test_a_read_in_the_same_turn_sees_the_commit() -> None:
    async def act(groups: Groups) -> None:
        responses = groups.ask(commit(7))

        assert groups.offsets() == {("orders", 0): 7}
        assert took(responses[0])

    with_groups(act)


def test_more_commits_than_a_batch_holds_make_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "BATCH_BYTES_FULL", 500)

    async def act(groups: Groups) -> None:
        responses = [groups.ask(commit(at, partition=at % 4)) for at in range(40)]
        await asyncio.sleep(0)

        assert all(took(response) for [response] in responses)
        assert 1 < batches(groups.rig) < 40
        assert groups.offsets() == {("orders", at): 36 + at for at in range(4)}

    with_groups(act)


def test_commits_that_wait_for_the_end_of_the_turn_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "COMMITS_WAITING_MAX", 10)

    async def act(groups: Groups) -> None:
        responses = [groups.ask(commit(at)) for at in range(25)]

        assert [bool(response) for response in responses] == [True] * 20 + [False] * 5
        await asyncio.sleep(0)
        assert all(responses)

    with_groups(act)


def test_a_full_disk_fails_a_commit_and_keeps_earlier_ones() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        groups.rig.disk.fail("append", ".log", errno.ENOSPC, times=1)

        refused = await groups.commit(8)

        assert isinstance(refused, NotCoordinator)
        assert groups.offsets() == {("orders", 0): 7}
        assert took(await groups.commit(9))
        assert groups.offsets() == {("orders", 0): 9}

    with_groups(act)


def test_a_disk_that_stays_full_is_logged_once() -> None:
    async def act(groups: Groups) -> None:
        groups.rig.disk.fail("append", ".log", errno.ENOSPC, times=3)
        for offset in range(3):
            await groups.commit(offset)

        assert len(groups.rig.notes.named("coordinator_events_refused")) == 1

    with_groups(act)


def test_a_member_whose_assignment_was_not_appended_can_rejoin() -> None:
    async def act(groups: Groups) -> None:
        joining = groups.ask(join())
        groups.rig.loop.pass_ms(4000)
        [joined] = joining
        assert isinstance(joined, JoinReply)
        groups.rig.disk.fail("append", ".log", errno.ENOSPC, times=1)
        refused = await groups.response(sync("g", joined.member_id, joined.generation))

        assert isinstance(refused, NotCoordinator)
        again = groups.ask(join(member_id=joined.member_id))
        groups.rig.loop.pass_ms(4000)
        [rejoined] = again
        assert isinstance(rejoined, JoinReply)
        assert rejoined.error is None

    with_groups(act)


SMALL = {"max.message.bytes": "2000"}


def test_an_assignment_larger_than_the_maximum_batch_fails_and_the_group_can_rejoin() -> None:
    async def act(groups: Groups) -> None:
        joining = groups.ask(join())
        groups.rig.loop.pass_ms(4000)
        [joined] = joining
        assert isinstance(joined, JoinReply)
        huge = replace(sync("g", joined.member_id, joined.generation), assignments=((joined.member_id, b"x" * 3000),))

        assert isinstance(await groups.response(huge), UnknownServerError)

        assert took(await groups.commit(7, "other"))
        again = groups.ask(join(member_id=joined.member_id))
        groups.rig.loop.pass_ms(4000)
        [rejoined] = again
        assert isinstance(rejoined, JoinReply)
        assert rejoined.error is None

    with_groups(act, offsets_topic(configs=SMALL))


def test_commits_of_one_turn_that_exceed_a_batch_all_succeed() -> None:
    async def act(groups: Groups) -> None:
        responses = [groups.ask(commit(at, f"group-{at}")) for at in range(60)]
        await asyncio.sleep(0)

        assert all(took(response) for [response] in responses)
        assert groups.offsets("group-59") == {("orders", 0): 59}

    with_groups(act, offsets_topic(configs=SMALL))


def test_more_tombstones_than_a_batch_holds_are_split() -> None:
    async def act(groups: Groups) -> None:
        for at in range(100):
            await groups.commit(at, f"group-{at:03}")

        groups.change(topic("orders", 4), None)

        assert all(groups.offsets(f"group-{at:03}") == {} for at in range(100))
        records = everything(groups.rig.replica(OFFSETS))
        assert [record.value for record in records[100:]] == [None] * 100
        assert batches(groups.rig) > 101

    with_groups(act, offsets_topic(configs=SMALL))


def test_with_flush_group_a_response_waits_for_the_disk() -> None:
    async def act(groups: Groups) -> None:
        responses = groups.ask(commit(7))
        await asyncio.sleep(0)
        assert not responses
        waiting = groups.of().committed()
        assert waiting is not None

        groups.rig.flush()
        await asyncio.sleep(0)

        assert took(responses[0])
        assert not waiting.waiting

    with_groups(act, offsets_topic(configs={"flush": "group"}))


def test_a_request_times_out_when_the_disk_hangs_and_leaves_no_waiter() -> None:
    async def act(groups: Groups) -> None:
        responses = [groups.ask(commit(at, f"g{at}")) for at in range(50)]
        await asyncio.sleep(0)
        replica = groups.rig.replica(OFFSETS)
        assert len(replica._commit_waiters) == 1

        groups.rig.loop.pass_ms(groups.rig.config.offsets_commit_timeout_ms - 1)
        assert not any(responses)
        groups.rig.loop.pass_ms(100)
        await asyncio.sleep(0)

        assert all(isinstance(response, CoordinatorNotAvailable) for [response] in responses)
        assert (len(replica._commit_waiters), groups.of().waiting) == (0, 0)
        groups.rig.flush()
        assert groups.offsets("g7") == {("orders", 0): 7}

    with_groups(act, offsets_topic(configs={"flush": "group"}))


@pytest.mark.parametrize("disk_is_back", [False, True])
def test_a_query_waits_for_a_hanging_disk_until_it_times_out(*, disk_is_back: bool) -> None:
    async def act(groups: Groups) -> None:
        groups.ask(commit(7))
        await asyncio.sleep(0)
        groups.rig.loop.pass_ms(groups.rig.config.offsets_commit_timeout_ms + 100)
        results: list[object] = []

        reading = when_committed([groups.of()], "read", lambda error: error)
        deliver(reading, results)
        await asyncio.sleep(0)
        assert results == []
        if disk_is_back:
            groups.rig.flush()
        else:
            groups.rig.loop.pass_ms(groups.rig.config.offsets_commit_timeout_ms + 100)
        for _ in range(3):
            await asyncio.sleep(0)

        assert [type(response) for response in results] == [str if disk_is_back else CoordinatorNotAvailable]
        assert len(groups.rig.replica(OFFSETS)._commit_waiters) == 0
        timers = len(groups.rig.timers)
        when_committed([groups.of()], "read", lambda error: error)
        assert len(groups.rig.timers) - timers == (0 if disk_is_back else 1)

    with_groups(act, offsets_topic(configs={"flush": "group"}))


def test_a_response_without_events_waits_for_those_before_it() -> None:
    async def act(groups: Groups) -> None:
        member, generation = await flushed_member(groups)
        groups.ask(commit(7, member_id=member, generation=generation))
        beats = groups.ask(beat("g", member, generation))
        await asyncio.sleep(0)
        assert not beats

        groups.rig.flush()
        await asyncio.sleep(0)

        assert beats == [HeartbeatReply()]

    with_groups(act, offsets_topic(configs={"flush": "group"}))


async def flushed_member(groups: Groups) -> tuple[str, int]:
    """A member of a group whose log is flushed by hand."""
    joining = groups.ask(join())
    groups.rig.loop.pass_ms(4000)
    groups.rig.flush()
    await asyncio.sleep(0)
    [joined] = joining
    assert isinstance(joined, JoinReply)
    groups.ask(sync("g", joined.member_id, joined.generation))
    groups.rig.flush()
    await asyncio.sleep(0)
    return joined.member_id, joined.generation


def test_a_disk_failure_before_the_flush_fails_the_request() -> None:
    async def act(groups: Groups) -> None:
        responses = groups.ask(commit(7))
        await asyncio.sleep(0)
        groups.rig.disk.fail("sync", ".log", errno.EIO, times=1)

        groups.rig.flush()
        await asyncio.sleep(0)

        assert isinstance(responses[0], NotCoordinator)
        with pytest.raises(NotCoordinator):
            groups.of().check()

    with_groups(act, offsets_topic(configs={"flush": "group"}))


def test_a_member_without_heartbeats_is_removed_after_its_session() -> None:
    async def act(groups: Groups) -> None:
        member, generation = await groups.member()
        groups.rig.loop.pass_ms(SESSION_MS - 1000)
        assert await groups.response(beat("g", member, generation)) == HeartbeatReply()
        groups.rig.loop.pass_ms(SESSION_MS - 1000)
        assert await groups.response(beat("g", member, generation)) == HeartbeatReply()

        groups.rig.loop.pass_ms(SESSION_MS + 1000)

        assert isinstance(await groups.response(beat("g", member, generation)), UnknownMemberId)
        assert dict(groups.of().shard().members_by_group()) == {"g": 0}

    with_groups(act)


def test_a_request_whose_connection_closed_is_decided_without_a_response() -> None:
    async def act(groups: Groups) -> None:
        responses: list[object] = []
        response = groups.of().submit(join())
        assert isinstance(response, Deferred)
        deliver(response, responses)
        assert groups.of().waiting == 1

        response.abandon()
        groups.rig.loop.pass_ms(4000)

        assert responses == []
        assert groups.of().waiting == 0
        assert dict(groups.of().shard().members_by_group()) == {"g": 1}

    with_groups(act)


def test_waiting_requests_fail_with_not_coordinator_when_the_coordinator_ends() -> None:
    async def act(groups: Groups) -> None:
        joining, committing = groups.ask(join()), groups.ask(commit(7, "other"))
        coordinator = groups.of()

        groups.coordinators.close()
        groups.rig.loop.pass_ms(10 * SESSION_MS)
        await asyncio.sleep(0)

        for [response] in (joining, committing):
            error = response.error if isinstance(response, JoinReply) else type(response)
            assert error is NotCoordinator
        with pytest.raises(NotCoordinator):
            coordinator.submit(commit(8))
        assert not any(b"other" in (record.key or b"") for record in everything(groups.rig.replica(OFFSETS)))

    with_groups(act)


def test_the_offsets_of_a_deleted_topic_are_deleted() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)

        groups.change(topic("orders", 4), None)

        assert groups.offsets() == {}
        assert [record.value for record in everything(groups.rig.replica(OFFSETS))][-1] is None

    with_groups(act)


def test_a_consumer_group_gets_its_partitions_and_keeps_them_after_a_load() -> None:
    async def act(groups: Groups) -> None:
        reply = await groups.response(first_beat("m-1"))
        for _ in range(10):
            if isinstance(reply, ConsumerHeartbeatReply) and reply.assignment:
                break
            groups.rig.loop.pass_ms(5000)
            reply = await groups.response(
                replace(first_beat("m-1"), member_epoch=reply.member_epoch, owned=None, subscribed_topics=None)
            )
            await asyncio.sleep(0)

        assert reply.assignment == ((groups.image.topics["orders"].topic_id, (0, 1, 2, 3)),)
        loaded = groups.again()
        await loaded.load()
        described = loaded.of().shard().describe_consumer("g")
        assert [member.member_id for member in described.members] == ["m-1"]
        assert described.members[0].assigned[0].partitions == (0, 1, 2, 3)

    with_groups(act)


def test_group_configs_apply_to_one_group() -> None:
    async def act(groups: Groups) -> None:
        groups.image.group_configs["g"] = {"consumer.heartbeat.interval.ms": "7000"}

        async def usual_interval_ms(group: str) -> int:
            first = await groups.response(replace(first_beat("m-1"), group=group))
            groups.rig.loop.pass_ms(RECONCILING_MS)
            beat = replace(first_beat("m-1"), group=group, member_epoch=first.member_epoch)
            return int((await groups.response(beat)).heartbeat_interval_ms)

        assert await usual_interval_ms("g") == 7000
        assert await usual_interval_ms("other") == groups.rig.config.group_consumer_heartbeat_interval_ms

    with_groups(act)


def first_beat(member: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        group="g",
        member_id=member,
        member_epoch=0,
        group_instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=30_000,
        subscribed_topics=("orders",),
        subscribed_regex=None,
        server_assignor=None,
        owned=(),
        client_id="c",
        client_host="/h",
        version=1,
    )


def test_an_old_generation_is_fenced_after_a_restart_too() -> None:
    async def act(groups: Groups) -> None:
        member, generation = await groups.member()

        loaded = groups.again()
        await loaded.load()

        assert took(await loaded.commit(3, member_id=member, generation=generation))
        fenced = await loaded.commit(4, member_id=member, generation=generation - 1)
        assert isinstance(fenced, IllegalGeneration)
        assert loaded.offsets() == {("orders", 0): 3}

    with_groups(act)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotEnoughReplicas, CoordinatorNotAvailable),
        (NotLeaderOrFollower, NotCoordinator),
        (KafkaStorageError, NotCoordinator),
        (MessageTooLarge, UnknownServerError),
        (IllegalGeneration, IllegalGeneration),
    ],
)
def test_errors_of_the_log_become_errors_of_the_coordinator(error: type, expected: type) -> None:
    assert type(coordinator_error(error())) is expected


def test_time_does_not_go_back_when_the_clock_is_set() -> None:
    class Clock:
        wall_ms, count_s = 1_000_000, 5.0

        def now_ms(self) -> int:
            return self.wall_ms

        def monotonic(self) -> float:
            return self.count_s

    machine = Clock()
    clock = CoordinatorClock(machine)
    machine.wall_ms -= 500_000
    machine.count_s += 2

    assert clock.now_ms() == 1_002_000
