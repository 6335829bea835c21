"""Timers fire once, never early, and not at all when cancelled."""

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.partition.rig import ManualClock, ManualLoop

from penstock.model.timers import TICK_MS, Timers


def timers() -> tuple[ManualClock, ManualLoop, Timers]:
    clock = ManualClock(7)
    loop = ManualLoop(clock)
    return clock, loop, Timers(loop)


@given(st.lists(st.integers(-5, 5000), min_size=1, max_size=30))
def test_a_timer_fires_once_never_early_and_late_by_a_tick_at_most(delays: list[int]) -> None:
    clock, loop, pending = timers()
    fired: list[tuple[int, int]] = []
    for delay in delays:
        pending.after_ms(delay, lambda delay=delay: fired.append((delay, clock.ms)))  # type: ignore[misc]

    loop.pass_ms(6000)

    assert sorted(delay for delay, _ in fired) == sorted(delays)
    assert all(max(delay, 0) <= at - 7 <= max(delay, 0) + TICK_MS + 1 for delay, at in fired)
    assert len(pending) == 0


def test_a_cancelled_timer_does_not_fire() -> None:
    _, loop, pending = timers()
    fired: list[str] = []
    timer = pending.after_ms(100, lambda: fired.append("cancelled"))
    pending.after_ms(100, lambda: fired.append("other"))

    timer.cancel()
    timer.cancel()
    loop.pass_ms(1000)

    assert fired == ["other"]


def test_a_timer_may_cancel_another_of_the_same_tick() -> None:
    _, loop, pending = timers()
    fired: list[str] = []
    first = pending.after_ms(50, lambda: (fired.append("first"), second.cancel()))
    second = pending.after_ms(50, lambda: (fired.append("second"), first.cancel()))

    loop.pass_ms(1000)

    assert fired == ["first"]


def test_an_earlier_timer_is_not_delayed_by_a_later_one() -> None:
    clock, loop, pending = timers()
    at: list[int] = []
    pending.after_ms(5000, lambda: at.append(clock.ms))
    pending.after_ms(20, lambda: at.append(clock.ms))

    loop.pass_ms(100)

    assert len(at) == 1


def test_an_exception_in_a_timer_does_not_stop_the_others() -> None:
    _, loop, pending = timers()
    fired: list[str] = []

    def fail() -> None:
        raise ValueError("a bug")

    pending.after_ms(10, fail)
    pending.after_ms(10, lambda: fired.append("second"))
    try:
        loop.pass_ms(100)
    except ValueError:
        loop.pass_ms(100)

    assert fired == ["second"]


def test_many_timers_use_one_timer_of_the_loop() -> None:
    _, loop, pending = timers()
    for delay in range(500, 1000):
        pending.after_ms(delay, lambda: None)

    assert loop.alarms == 1
    pending.close()
    assert loop.alarms == 0
