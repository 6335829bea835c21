"""The persister: one command after the other for each share partition, tried again while coordinators move."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.coordinator.step import Result
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    InvalidRequest,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId, LeaderEpoch, Offset, TopicId
from penstock.model.topic import SHARE_STATE_TOPIC
from penstock.shares.persister import ACKNOWLEDGED, SharePartitionState, StateBatch
from penstock.shares.state.commands import DONE, ReadState, StateCommand, WriteState
from penstock.shares.state.routing import PERSIST_MS_MAX, RoutedPersister

ME, OTHER = BrokerId(1), BrokerId(2)
TOPIC = TopicId(b"t" * 16)


class Rig:
    """A persister whose coordinators, here and on another broker, answer when a test says so."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.submitted: list[tuple[BrokerId, StateCommand, Deferred[Result]]] = []
        self.created = 0
        self.leader = ME
        self.image: Any = SimpleNamespace(topics={})
        self.exists()
        self.persister = RoutedPersister(
            broker_id=ME,
            image=self.image,
            coordinators=self,  # type: ignore[arg-type]
            topic=self,  # type: ignore[arg-type]
            remote=self,  # type: ignore[arg-type]
            timers=self,  # type: ignore[arg-type]
            monotonic=lambda: self.now_ms / 1000,
        )

    def exists(self) -> None:
        self.image.topics[SHARE_STATE_TOPIC] = SimpleNamespace(partitions=[SimpleNamespace(leader=self.leader)])

    # What the persister uses

    def begin(self) -> None:
        self.created += 1

    def partition_of(self, key: str) -> int:
        return 0

    def of(self, key: str) -> Rig:
        assert key == "g:dHR0dHR0dHR0dHR0dHR0dA:0"
        return self

    def submit(self, command: StateCommand) -> Deferred[Result]:
        return self.ask(ME, command)

    def ask(self, broker: BrokerId, command: StateCommand) -> Deferred[Result]:
        result: Deferred[Result] = Deferred()
        self.submitted.append((broker, command, result))
        return result

    def after_ms(self, delay_ms: float, callback: Callable[[], None]) -> None:
        self.timers.append((self.now_ms + delay_ms, callback))

    # What a test does

    def pass_ms(self, duration_ms: float) -> None:
        self.now_ms += duration_ms
        due = [callback for at_ms, callback in self.timers if at_ms <= self.now_ms]
        self.timers = [(at_ms, callback) for at_ms, callback in self.timers if at_ms > self.now_ms]
        for callback in due:
            callback()

    def answer(self, result: Result) -> StateCommand:
        """Answer the only command that is under way."""
        [(_, command, waiting)] = self.submitted
        self.submitted.clear()
        waiting.resolve(result)
        return command

    def write(self, offset: int, *, leader: int = 1, start: int = -1) -> list[Any]:
        found: list[Any] = []
        wanted = self.persister.write(
            "g", TOPIC, 0, 1, LeaderEpoch(leader), Offset(start), offset, [StateBatch(offset, offset, ACKNOWLEDGED, 1)]
        )
        wanted.deliver_to(found.append, found.append)
        return found

    def read(self) -> list[Any]:
        found: list[Any] = []
        self.persister.read("g", TOPIC, 0, LeaderEpoch(2)).deliver_to(found.append, found.append)
        return found


@pytest.fixture
def rig() -> Rig:
    return Rig()


def offsets(command: StateCommand) -> list[int]:
    assert isinstance(command, WriteState)
    return [each.first for each in command.batches]


def test_a_later_write_waits_until_the_earlier_one_is_decided_however_often_that_is_tried(rig: Rig) -> None:
    first, second = rig.write(1), rig.write(2)
    for _ in range(3):
        assert offsets(rig.answer(NotCoordinator())) == [1]
        rig.pass_ms(1_000)
    assert (first, second) == ([], [])
    assert offsets(rig.answer(DONE)) == [1]
    assert first == [None]
    assert offsets(rig.answer(DONE)) == [2]
    assert second == [None]
    assert rig.persister.waiting == 0


def test_writes_that_wait_are_merged_and_those_of_another_leader_are_not(rig: Rig) -> None:
    found = [rig.write(1), rig.write(2, start=2), rig.write(3), rig.write(4, leader=2)]
    assert offsets(rig.answer(DONE)) == [1]
    merged = rig.answer(DONE)
    assert isinstance(merged, WriteState)
    assert (offsets(merged), merged.start_offset, merged.delivery_complete_count) == ([2, 3], 2, 3)
    assert offsets(rig.answer(FencedLeaderEpoch())) == [4]
    assert found[:3] == [[None], [None], [None]]
    assert isinstance(found[3][0], FencedLeaderEpoch)


def test_a_read_sees_the_writes_before_it(rig: Rig) -> None:
    rig.write(1)
    found = rig.read()
    rig.answer(DONE)
    state = SharePartitionState(1, Offset(0), -1, (StateBatch(1, 3, ACKNOWLEDGED, 1),))
    assert isinstance(rig.answer(state), ReadState)
    assert found[0].delivery_complete_count == 3


def test_commands_follow_the_coordinator_to_another_broker(rig: Rig) -> None:
    found = rig.write(1)
    rig.leader = OTHER
    rig.exists()
    rig.answer(NotCoordinator())
    rig.pass_ms(1_000)
    assert [broker for broker, _, _ in rig.submitted] == [OTHER]
    rig.answer(DONE)
    assert found == [None]


def test_the_topic_is_created_when_it_is_first_needed(rig: Rig) -> None:
    rig.image.topics.clear()
    found = rig.write(1)
    rig.pass_ms(1_000)
    assert rig.created == 2
    assert not rig.submitted
    rig.exists()
    rig.pass_ms(1_000)
    rig.answer(DONE)
    assert found == [None]


def test_a_coordinator_that_does_not_come_back_fails_what_waits_for_it(rig: Rig) -> None:
    first, second = rig.write(1), rig.write(2)
    while not first:
        assert rig.now_ms <= PERSIST_MS_MAX + 2_000
        rig.answer(CoordinatorNotAvailable())
        rig.pass_ms(1_000)
    assert isinstance(first[0], CoordinatorNotAvailable)
    rig.answer(CoordinatorNotAvailable())
    assert isinstance(second[0], CoordinatorNotAvailable), "it has waited as long"
    assert rig.persister.waiting == 0


def test_what_is_not_initialized_is_unknown(rig: Rig) -> None:
    found = rig.read()
    rig.answer(InvalidRequest("Read operation on uninitialized share partition not allowed."))
    assert isinstance(found[0], UnknownTopicOrPartition)
