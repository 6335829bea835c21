"""Attempts of one task in any order: none writes under the transactional id of another that is writing or is done."""

import random
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_penstock.slots import SLOTS_MAX, CheckSlot, NoSlot, TakeSlot, slot_steps


@dataclass
class Slot:
    """A transactional id as its coordinator sees it."""

    epoch: int = 0
    open_by: int | None = None


@dataclass
class Attempt:
    """One attempt of a task, as a program that another may interrupt between any two of its requests."""

    number: int
    first_slot: int
    slot: int = -1
    is_reported: bool = False
    has_died: bool = False


@dataclass
class Coordinator:
    """Slots of one task, and the attempts whose transactions were aborted by another."""

    slots: dict[int, Slot] = field(default_factory=dict)
    aborted: list[int] = field(default_factory=list)

    def of(self, number: int) -> Slot:
        return self.slots.setdefault(number, Slot())

    def init(self, number: int) -> int:
        slot = self.of(number)
        if slot.open_by is not None:
            self.aborted.append(slot.open_by)
        slot.epoch, slot.open_by = slot.epoch + 1, None
        return slot.epoch


def program(
    attempt: Attempt, coordinator: Coordinator, steps: Generator[CheckSlot | TakeSlot, bool, int]
) -> Generator[None, None, None]:
    """An attempt from its check of a slot to its report; yields where other attempts may run."""
    step = next(steps)
    while True:
        if isinstance(step, CheckSlot):
            result = coordinator.of(step.slot).open_by is not None
        else:
            epoch = coordinator.init(step.slot)
            yield
            slot = coordinator.of(step.slot)
            result = slot.epoch != epoch
            if not result:
                slot.open_by = attempt.number
                attempt.slot = step.slot
        # A look and the request that follows it come one after the other: see the module's docstring for a stall.
        if not (isinstance(step, CheckSlot) and not result):
            yield
        try:
            step = steps.send(result)
        except StopIteration:
            break
    for _ in range(2):
        yield
        if coordinator.of(attempt.slot).open_by != attempt.number:
            attempt.has_died = True
            return
    attempt.is_reported = True


def naive(first: int) -> Generator[CheckSlot | TakeSlot, bool, int]:
    """The attempt number alone."""
    is_fenced = yield TakeSlot(first)
    assert not is_fenced
    return first


def schedule(chance: random.Random, choose=slot_steps) -> tuple[list[Attempt], Coordinator]:
    coordinator = Coordinator()
    attempts = [Attempt(number, chance.choice((0, 0, 0, 1))) for number in range(chance.randint(2, 6))]
    running = {each.number: program(each, coordinator, choose(each.first_slot)) for each in attempts}
    while running:
        number = chance.choice(list(running))
        try:
            next(running[number])
            if chance.random() < 0.02:
                # Killed where it stands; its transaction stays open.
                del running[number]
        except (StopIteration, AssertionError):
            del running[number]
    return attempts, coordinator


@settings(max_examples=500)
@given(chance=st.randoms(use_true_random=False))
def test_no_attempt_aborts_what_another_writes_or_has_reported(chance: random.Random) -> None:
    attempts, coordinator = schedule(chance)

    assert coordinator.aborted == []
    assert not any(each.has_died for each in attempts)
    reported = [each for each in attempts if each.is_reported]
    assert len({each.slot for each in reported}) == len(reported)


def test_the_attempt_number_alone_is_not_enough() -> None:
    """The same schedules fail without slots."""
    assert any(schedule(random.Random(seed), naive)[1].aborted for seed in range(50))


def test_slots_are_used_again_when_their_transactions_have_ended() -> None:
    coordinator = Coordinator()
    for number in range(20):
        attempt = Attempt(number, 0)
        for _ in program(attempt, coordinator, slot_steps(0)):
            pass
        assert attempt.is_reported
        assert attempt.slot == 0
        # The driver commits.
        coordinator.of(0).open_by = None
    assert len(coordinator.slots) == 1


def test_a_task_whose_slots_are_all_open_says_so() -> None:
    steps = slot_steps(3)
    looked = [next(steps), *(steps.send(True) for _ in range(SLOTS_MAX - 1))]
    assert looked == [CheckSlot(slot) for slot in range(3, 3 + SLOTS_MAX)]

    with pytest.raises(NoSlot, match=r"kafka\.transaction\.timeout\.ms"):
        steps.send(True)
