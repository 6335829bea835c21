"""Group coordinators and the leader epochs of their partition: each epoch has its own, loaded from the log."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.groups.coordinator_rig import OFFSETS, Groups, beat, commit, join, offsets_topic, took, with_groups

from penstock.coordinator.step import Ticket
from penstock.groups.commands import HeartbeatReply, JoinReply
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    IllegalGeneration,
    NotCoordinator,
    UnknownMemberId,
)
from penstock.model.ids import TopicPartition
from penstock.model.topic import TopicState

OTHER = 2
HERE = 1


def led(own: TopicState, *, by: int = HERE, epoch: int, isr: tuple[int, ...] = (HERE,), change: int = 0) -> TopicState:
    """The offsets topic with another leader, leader epoch or ISR in each of its partitions."""
    states = tuple(
        replace(state, leader=by, leader_epoch=epoch, replicas=(HERE, OTHER), isr=isr, partition_epoch=change)
        for state in own.partitions
    )
    return replace(own, partitions=states)


def move(groups: Groups, **fields: Any) -> None:
    before = groups.image.topics[OFFSETS]
    groups.change(before, led(before, **fields))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class HeldLoad:
    """A load whose thread has read nothing yet."""

    def __init__(self, groups: Groups) -> None:
        self._threads = groups.rig.threads
        self._threads.eager = False
        self._task = asyncio.create_task(groups.coordinators.run())

    async def begun(self) -> None:
        while not self._threads.queue:  # noqa: ASYNC110  # the loop of the test is the only one that runs
            await asyncio.sleep(0)

    async def go_on(self) -> None:
        """Let the threads read from now on, what is queued first."""
        self._threads.eager = True
        self._threads.work()
        await turns(50)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def loads(groups: Groups) -> list[int]:
    return [note["leader_epoch"] for note in groups.rig.notes.named("coordinator_loaded")]


# Serving


def test_a_new_leader_epoch_ends_the_coordinator_even_if_this_broker_leads_in_both() -> None:
    async def act(groups: Groups) -> None:
        member, generation = await groups.member()
        former = groups.of()
        joining = groups.ask(join())
        held = groups.rig.replica(OFFSETS).offsets.log_end

        move(groups, epoch=3)

        assert former.ended
        [refused] = joining
        assert isinstance(refused, JoinReply)
        assert refused.error is NotCoordinator
        with pytest.raises(CoordinatorLoadInProgress):
            groups.of()
        groups.rig.loop.pass_ms(60_000)
        assert groups.rig.replica(OFFSETS).offsets.log_end == held, "a timer of the former coordinator wrote an event"
        await groups.load()
        assert groups.of().leader_epoch == 3
        assert await groups.response(beat("g", member, generation)) == HeartbeatReply()

    with_groups(act)


def test_a_change_of_the_isr_ends_no_coordinator() -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7))
        move(groups, epoch=1, isr=(HERE,))
        await groups.load()
        serving = groups.of()

        move(groups, epoch=1, isr=(HERE, OTHER), change=1)

        assert groups.of() is serving
        assert serving.serving

    with_groups(act)


def test_a_commit_of_an_old_generation_is_fenced_after_a_move() -> None:
    async def act(groups: Groups) -> None:
        member, generation = await groups.member()
        move(groups, by=OTHER, epoch=1)
        move(groups, epoch=2)
        await groups.load()

        stale = await groups.commit(5, member_id=member, generation=generation - 1)
        unknown = await groups.commit(5, member_id="another", generation=generation)
        current = await groups.commit(6, member_id=member, generation=generation)

        assert isinstance(stale, IllegalGeneration)
        assert isinstance(unknown, UnknownMemberId)
        assert took(current)
        assert groups.offsets() == {("orders", 0): 6}

    with_groups(act)


def test_a_decision_of_a_past_epoch_is_not_written_in_the_next() -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7))
        former = groups.of()
        replica = groups.rig.replica(OFFSETS)
        end = replica.offsets.log_end
        [decided] = led(groups.image.topics[OFFSETS], epoch=1).partitions

        replica.assume(decided, groups.rig.clock.now_ms())

        with pytest.raises(NotCoordinator):
            former.submit(commit(8))
        former.carry_out(former._shard.decide(commit(8), Ticket(99), groups.rig.clock.now_ms()))
        assert replica.offsets.log_end == end
        with pytest.raises(NotCoordinator):
            former.committed()

    with_groups(act)


def test_a_coordinator_ends_when_its_replica_resigns() -> None:
    async def act(groups: Groups) -> None:
        groups.rig.replicas.cluster.on_roles_changed = groups.coordinators.follow_roles
        assert took(await groups.commit(7))
        move(groups, epoch=1, isr=(HERE,))
        await groups.load()
        joining = groups.ask(join())

        groups.rig.replicas.resign(TopicPartition(OFFSETS, 0), "a batch is damaged")

        [refused] = joining
        assert isinstance(refused, JoinReply)
        assert refused.error is NotCoordinator
        with pytest.raises(NotCoordinator):
            groups.of()
        assert groups.coordinators.loading == 0
        move(groups, by=OTHER, epoch=2)
        assert groups.rig.notes.named("coordinator_not_loaded") == []

    with_groups(act)


def test_a_fenced_broker_coordinates_nothing_until_it_is_admitted_again() -> None:
    async def act(groups: Groups) -> None:
        groups.rig.replicas.cluster.on_roles_changed = groups.coordinators.follow_roles
        assert took(await groups.commit(7))
        former = groups.of()
        joining = groups.ask(join())

        groups.rig.replicas.fence()

        [refused] = joining
        assert isinstance(refused, JoinReply)
        assert refused.error is NotCoordinator
        with pytest.raises(NotCoordinator):
            groups.of()

        groups.rig.replicas.unfence()
        await groups.load()

        assert groups.of() is not former
        assert groups.offsets() == {("orders", 0): 7}

    with_groups(act)


# Loading


@pytest.mark.parametrize("seen", [True, False], ids=["loss seen", "loss not seen"])
def test_a_load_of_a_past_epoch_does_not_become_the_state_of_the_next(seen: bool) -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7))
        loaded = groups.again()
        held = HeldLoad(loaded)
        await held.begun()

        if seen:
            move(loaded, by=OTHER, epoch=1)
            with pytest.raises(NotCoordinator):
                loaded.of()
        move(loaded, epoch=2)
        await held.go_on()

        assert loads(loaded) == [2]
        assert loaded.of().leader_epoch == 2
        assert loaded.offsets() == {("orders", 0): 7}
        await held.stop()

    with_groups(act)


def test_a_load_ends_with_the_leadership() -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7))
        loaded = groups.again()
        held = HeldLoad(loaded)
        await held.begun()

        move(loaded, by=OTHER, epoch=1)
        await held.go_on()

        assert loads(loaded) == []
        assert loaded.coordinators.loading == 0
        assert list(loaded.coordinators.serving()) == []
        assert loaded.rig.notes.named("coordinator_not_loaded") == []
        with pytest.raises(NotCoordinator):
            loaded.of()
        await held.stop()

    with_groups(act)


def test_a_queued_load_of_a_past_epoch_is_not_begun() -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7))
        for epoch in range(1, 5):
            move(groups, epoch=epoch)

        await groups.load()

        assert loads(groups) == [4]

    with_groups(act)


def test_a_failed_load_is_not_retried_in_the_next_epoch() -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7))
        loaded = groups.again()
        loaded.rig.disk.fail("pread", OFFSETS, 5, times=1)
        await loaded.load(lambda: loaded.rig.notes.named("coordinator_not_loaded"))

        move(loaded, epoch=1)
        await loaded.load()
        serving = loaded.of()
        loaded.rig.loop.pass_ms(60_000)
        await loaded.load()

        assert loads(loaded) == [1]
        assert loaded.of() is serving

    with_groups(act)


# The high watermark


def test_a_coordinator_serves_once_the_log_end_of_its_load_is_committed() -> None:
    async def act(groups: Groups) -> None:
        for at in range(20):
            assert took(await groups.commit(at, f"g{at}"))
        move(groups, by=OTHER, epoch=1)
        # As if the leader of epoch 1 had not told what is committed.
        for partition in range(4):
            groups.rig.replica(OFFSETS, partition).offsets.high_watermark = 0
        move(groups, epoch=2, isr=(HERE, OTHER))
        running = asyncio.create_task(groups.coordinators.run())
        await turns(50)

        assert groups.coordinators.begun == 4, "a partition that waits for its followers holds up no other"
        with pytest.raises(CoordinatorLoadInProgress):
            groups.of("g1").check()
        with pytest.raises(CoordinatorLoadInProgress):
            groups.coordinators.serving()
        assert loads(groups) == []

        move(groups, epoch=2, isr=(HERE,), change=1)
        await turns()

        assert loads(groups) == [2] * 4
        assert groups.offsets("g1") == {("orders", 0): 1}
        running.cancel()
        await asyncio.wait([running])

    with_groups(act, offsets_topic(4))


@pytest.mark.parametrize("seen", [True, False], ids=["loss seen", "loss not seen"])
def test_a_coordinator_that_waits_for_the_high_watermark_ends_with_its_epoch(seen: bool) -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7))
        move(groups, by=OTHER, epoch=1)
        groups.rig.replica(OFFSETS).offsets.high_watermark = 0
        move(groups, epoch=2, isr=(HERE, OTHER))
        running = asyncio.create_task(groups.coordinators.run())
        await turns(50)
        assert groups.coordinators.begun == 1

        if seen:
            move(groups, by=OTHER, epoch=3)
            await turns()
            assert groups.coordinators.loading == 0
        move(groups, epoch=4, isr=(HERE,))
        await turns(50)

        assert loads(groups) == [4]
        assert groups.offsets() == {("orders", 0): 7}
        assert groups.rig.notes.named("coordinator_not_loaded") == []
        running.cancel()
        await asyncio.wait([running])

    with_groups(act)


def test_a_commit_that_waits_for_followers_fails_when_leadership_ends() -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7))
        move(groups, epoch=1, isr=(HERE,))
        await groups.load()
        move(groups, epoch=1, isr=(HERE, OTHER), change=1)
        committing = groups.ask(commit(8))
        await turns()
        assert committing == []

        move(groups, by=OTHER, epoch=2)
        await turns()

        assert [type(response) for response in committing] == [NotCoordinator]

    with_groups(act)
