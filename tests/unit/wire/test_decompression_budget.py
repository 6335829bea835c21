"""Memory of decompression: reserved before use, in the order of arrival, and released."""

import threading
import time
from collections.abc import Callable

import pytest

from penstock.wire.decompression_budget import DecompressionBudget

SECONDS_MAX = 60.0


def wait_for(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.001)


class Worker:
    """A thread that holds some bytes until it is released."""

    def __init__(self, budget: DecompressionBudget, size: int) -> None:
        self.holds = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(budget, size))
        self._thread.start()

    def _work(self, budget: DecompressionBudget, size: int) -> None:
        with budget.hold(size):
            self.holds.set()
            assert self._done.wait(SECONDS_MAX)

    def release(self) -> None:
        self._done.set()
        self._thread.join(SECONDS_MAX)


def test_work_within_the_budget_starts_at_once() -> None:
    budget = DecompressionBudget(100)
    with budget.hold(60), budget.hold(40):
        assert budget.held_bytes == 100
    assert budget.held_bytes == 0


def test_work_beyond_the_budget_waits_in_the_order_of_arrival() -> None:
    budget = DecompressionBudget(100)
    first = Worker(budget, 80)
    assert first.holds.wait(SECONDS_MAX)
    large = Worker(budget, 50)
    wait_for(lambda: budget.waiting == 1)
    small = Worker(budget, 10)
    wait_for(lambda: budget.waiting == 2)
    assert not large.holds.is_set()
    assert not small.holds.is_set(), "it would fit, but must not starve the large one"

    first.release()

    assert large.holds.wait(SECONDS_MAX)
    assert small.holds.wait(SECONDS_MAX)
    large.release()
    small.release()
    assert (budget.held_bytes, budget.waiting) == (0, 0)


def test_a_reservation_above_the_budget_takes_all_of_it() -> None:
    budget = DecompressionBudget(100)
    with budget.hold(1 << 40):
        assert budget.held_bytes == 100


def test_a_failure_releases_its_reservation() -> None:
    budget = DecompressionBudget(100)
    with pytest.raises(ZeroDivisionError), budget.hold(70):
        raise ZeroDivisionError
    assert budget.held_bytes == 0
