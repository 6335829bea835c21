"""Shares of the loop's turns for connections that have much to be served."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.net.turns import TURN_S, Turns


class Loop:
    """Turns of an event loop, by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()


class Waiter:
    """Takes so many shares of a given length."""

    def __init__(self, name: str, shares: int, share_s: float, turns: Turns, loop: Loop, taken: list[str]) -> None:
        self._name = name
        self._shares = shares
        self._share_s = share_s
        self._turns = turns
        self._loop = loop
        self._taken = taken
        turns.add(self)

    def take_turn(self) -> None:
        self._taken.append(self._name)
        self._loop.now_s += self._share_s
        self._shares -= 1
        if self._shares:
            self._turns.add(self)


def test_all_get_a_share_before_one_gets_a_second() -> None:
    loop = Loop()
    turns = Turns(loop.call_soon, lambda: loop.now_s)
    taken: list[str] = []
    for name in "abc":
        Waiter(name, 2, 0.0, turns, loop, taken)

    loop.turn()
    assert taken == ["a", "b", "c"]
    loop.turn()
    assert taken == ["a", "b", "c"] * 2
    loop.turn()
    assert len(taken) == 6


def test_a_turn_ends_when_its_time_is_used() -> None:
    loop = Loop()
    turns = Turns(loop.call_soon, lambda: loop.now_s)
    taken: list[str] = []
    for name in "abcd":
        Waiter(name, 2, TURN_S / 2, turns, loop, taken)

    for expected in ("ab", "cd", "ab", "cd"):
        taken.clear()
        loop.turn()
        assert "".join(taken) == expected


def test_one_that_fails_does_not_end_the_turns_of_the_others() -> None:
    loop = Loop()
    turns = Turns(loop.call_soon, lambda: loop.now_s)
    taken: list[str] = []

    class Failing:
        def take_turn(self) -> None:
            raise RuntimeError("a bug")

    turns.add(Failing())
    Waiter("a", 1, 0.0, turns, loop, taken)

    with pytest.raises(RuntimeError, match="a bug"):
        loop.turn()
    loop.turn()

    assert taken == ["a"]
