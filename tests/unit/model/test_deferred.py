"""Deferred: completed once, consumed once, in a defined order, without leaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.partition.rig import ManualClock, ManualLoop

from penstock.model.deferred import Deferred, after
from penstock.model.generated_errors import NotCoordinator, RequestTimedOut
from penstock.model.timers import Timers


@dataclass
class Taken:
    """The end of a chain."""

    values: list[Any] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def by(self, deferred: Deferred[Any]) -> Taken:
        deferred.deliver_to(self.values.append, self.errors.append)
        return self


def timers() -> tuple[ManualLoop, Timers]:
    loop = ManualLoop(ManualClock(7))
    return loop, Timers(loop)


def unexpected(error: Exception) -> None:
    raise error


# Completing


def test_a_value_reaches_a_consumer_attached_before_or_after_it() -> None:
    before, late = Deferred[int](), Deferred[int]()
    early = Taken().by(before)
    before.resolve(1)
    late.resolve(2)

    assert early.values == [1]
    assert Taken().by(late).values == [2]


def test_none_is_a_value() -> None:
    deferred = Deferred[None]()
    deferred.resolve(None)

    assert Taken().by(deferred).values == [None]


@pytest.mark.parametrize("first", ["resolve", "fail"])
@pytest.mark.parametrize("second", ["resolve", "fail"])
def test_completing_twice_is_a_bug(first: str, second: str) -> None:
    deferred = Deferred[Exception]()
    getattr(deferred, first)(NotCoordinator())

    with pytest.raises(AssertionError):
        getattr(deferred, second)(NotCoordinator())


def test_consuming_twice_is_a_bug() -> None:
    deferred = Deferred[int]()
    deferred.then(str)

    with pytest.raises(AssertionError, match="consumed twice"):
        deferred.then(str)


# Continuing


def test_then_continues_with_a_value_and_with_a_deferred_of_its_work() -> None:
    first, second = Deferred[int](), Deferred[str]()
    taken = Taken().by(first.then(lambda value: second if value == 1 else "other").then(str.upper))
    first.resolve(1)
    assert taken.values == []

    second.resolve("two")

    assert taken.values == ["TWO"]


def test_an_exception_in_work_fails_the_derived_deferred_and_not_the_owner() -> None:
    deferred = Deferred[int]()
    taken = Taken().by(deferred.then(lambda value: value // 0))

    deferred.resolve(1)

    assert [type(error) for error in taken.errors] == [ZeroDivisionError]


def test_an_error_skips_work_and_is_caught_by_its_type() -> None:
    deferred = Deferred[int]()
    ran: list[int] = []
    chain = deferred.then(ran.append).then(lambda _: "value")
    taken = Taken().by(chain.catch(ZeroDivisionError, lambda _: "wrong kind").catch(NotCoordinator, lambda _: "caught"))

    deferred.fail(NotCoordinator())

    assert ran == []
    assert taken.values == ["caught"]


def test_an_exception_in_recover_is_the_error() -> None:
    def recover(_: NotCoordinator) -> int:
        raise RequestTimedOut

    deferred = Deferred[int]()
    taken = Taken().by(deferred.catch(NotCoordinator, recover))

    deferred.fail(NotCoordinator())

    assert [type(error) for error in taken.errors] == [RequestTimedOut]


def test_after_continues_with_an_available_value_without_a_deferred() -> None:
    deferred = Deferred[int]()

    assert after(1, str) == "1"
    later = after(deferred, str)

    assert isinstance(later, Deferred)
    deferred.resolve(2)
    assert Taken().by(later).values == ["2"]


def test_a_value_is_mapped_in_the_same_object_once() -> None:
    deferred = Deferred[int]()
    mapped = deferred.mapped(str)
    taken = Taken().by(mapped)

    with pytest.raises(AssertionError, match="mapped twice"):
        mapped.mapped(str)
    deferred.resolve(1)

    assert mapped is deferred  # type: ignore[comparison-overlap]
    assert taken.values == ["1"]


def test_an_exception_in_a_mapping_is_the_error_and_an_abandoned_value_is_not_mapped() -> None:
    failing, left = Deferred[int](), Deferred[int]()
    ran: list[int] = []
    taken = Taken().by(failing.mapped(lambda value: value // 0))
    left.mapped(ran.append).abandon()

    failing.resolve(1)
    left.resolve(1)

    assert [type(error) for error in taken.errors] == [ZeroDivisionError]
    assert ran == []


# Order


def test_callbacks_run_from_source_to_end_inside_the_completion() -> None:
    order: list[str] = []
    deferred = Deferred[None]()
    chain = deferred.then(lambda _: order.append("first")).then(lambda _: order.append("second"))
    chain.deliver_to(lambda _: order.append("end"), unexpected)

    order.append("before")
    deferred.resolve(None)
    order.append("after")

    assert order == ["before", "first", "second", "end", "after"]


def test_callbacks_of_an_available_value_run_inside_the_call_that_attaches_them() -> None:
    order: list[str] = []
    deferred = Deferred[None]()
    deferred.resolve(None)

    order.append("before")
    deferred.then(lambda _: order.append("first")).deliver_to(lambda _: order.append("end"), unexpected)
    order.append("after")

    assert order == ["before", "first", "end", "after"]


def test_a_deferred_completed_inside_a_callback_runs_its_chain_first() -> None:
    order: list[str] = []
    outer, inner = Deferred[None](), Deferred[None]()
    inner.deliver_to(lambda _: order.append("inner"), unexpected)

    def work(_: None) -> None:
        order.append("work")
        inner.resolve(None)
        order.append("rest of work")

    outer.then(work).deliver_to(lambda _: order.append("outer"), unexpected)
    outer.resolve(None)

    assert order == ["work", "inner", "rest of work", "outer"]


def test_an_exception_at_the_end_of_a_chain_reaches_the_owner() -> None:
    def end(_: int) -> None:
        raise ZeroDivisionError

    deferred = Deferred[int]()
    deferred.then(lambda value: value).deliver_to(end, end)  # type: ignore[arg-type]

    with pytest.raises(ZeroDivisionError):
        deferred.resolve(1)


# Abandoning


def test_abandoning_the_end_of_a_chain_reaches_its_owner_once() -> None:
    abandoned: list[str] = []
    deferred = Deferred[int](on_abandon=lambda: abandoned.append("owner"))
    end = deferred.then(str).catch(NotCoordinator, lambda _: "caught")

    end.abandon()
    end.abandon()

    assert abandoned == ["owner"]
    assert deferred.abandoned


def test_a_completion_after_abandoning_is_ignored() -> None:
    deferred = Deferred[int]()
    taken = Taken().by(deferred)

    deferred.abandon()
    deferred.resolve(1)
    deferred.fail(NotCoordinator())

    assert taken == Taken()


def test_abandoning_after_completion_does_not_reach_the_owner() -> None:
    abandoned: list[str] = []
    deferred = Deferred[int](on_abandon=lambda: abandoned.append("owner"))
    end = deferred.then(str)
    deferred.resolve(1)

    end.abandon()

    assert abandoned == []


def test_abandoning_reaches_the_deferred_that_work_returned() -> None:
    abandoned: list[str] = []
    first, second = Deferred[int](), Deferred[int](on_abandon=lambda: abandoned.append("second"))
    end = first.then(lambda _: second)
    first.resolve(1)

    end.abandon()

    assert abandoned == ["second"]


def test_shielded_work_runs_after_abandoning_and_its_deferred_result_is_abandoned() -> None:
    written: list[int] = []
    first, second = Deferred[int](), Deferred[int]()

    def write(value: int) -> Deferred[int]:
        written.append(value)
        return second

    failures: list[Exception] = []
    end = first.then(write, shielded=failures.append)
    end.abandon()
    assert first.waiting

    first.resolve(1)

    assert written == [1]
    assert second.abandoned
    assert failures == []


@pytest.mark.parametrize("is_abandoned", [False, True])
def test_an_error_of_shielded_work_goes_to_its_consumer_or_is_reported(is_abandoned: bool) -> None:
    failures: list[Exception] = []
    source = Deferred[int]()
    end = source.then(lambda value: value // 0, shielded=failures.append)
    taken = None if is_abandoned else Taken().by(end)
    if is_abandoned:
        end.abandon()

    source.resolve(1)

    assert [type(error) for error in failures] == ([ZeroDivisionError] if is_abandoned else [])
    assert taken is None or [type(error) for error in taken.errors] == [ZeroDivisionError]


def test_then_maps_an_error_with_failed() -> None:
    source = Deferred[int]()
    taken = Taken().by(source.then(lambda value: value, failed=lambda error: KeyError(str(error))))

    source.fail(ValueError("x"))

    assert [repr(error) for error in taken.errors] == ["KeyError('x')"]


def test_an_exception_in_on_abandon_does_not_keep_other_parts_waiting() -> None:
    def refuse() -> None:
        raise RuntimeError("an owner's bug")

    parts = [Deferred[int](), Deferred[int](refuse), Deferred[int]()]
    whole = Deferred.all(parts)
    assert isinstance(whole, Deferred)

    with pytest.raises(RuntimeError):
        whole.abandon()

    assert [part.abandoned for part in parts] == [True, True, True]


# Timing out


def test_a_timeout_fails_and_abandons_its_source() -> None:
    loop, pending = timers()
    abandoned: list[str] = []
    deferred = Deferred[int](on_abandon=lambda: abandoned.append("owner"))
    taken = Taken().by(deferred.timeout(pending, 100, RequestTimedOut))
    loop.pass_ms(99)
    assert taken == Taken()

    loop.pass_ms(50)
    deferred.resolve(1)

    assert [type(error) for error in taken.errors] == [RequestTimedOut]
    assert abandoned == ["owner"]


@pytest.mark.parametrize("ending", ["resolve", "fail", "abandon"])
def test_a_deferred_that_ends_in_time_leaves_no_timer(ending: str) -> None:
    _, pending = timers()
    deferred = Deferred[Exception]()
    end = deferred.timeout(pending, 100, RequestTimedOut)

    if ending == "abandon":
        end.abandon()
    else:
        getattr(deferred, ending)(NotCoordinator())

    assert len(pending) == 0
    assert deferred.abandoned is (ending == "abandon")


def test_an_available_value_needs_no_timer() -> None:
    _, pending = timers()
    deferred = Deferred[int]()
    deferred.resolve(1)

    taken = Taken().by(deferred.timeout(pending, 0, RequestTimedOut))

    assert taken.values == [1]
    assert len(pending) == 0


def test_an_exception_in_on_abandon_does_not_keep_the_timeout_from_its_consumer() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    loop, pending = timers()
    taken = Taken().by(Deferred[int](on_abandon=broken).timeout(pending, 10, RequestTimedOut))

    with pytest.raises(ZeroDivisionError):
        loop.pass_ms(100)

    assert [type(error) for error in taken.errors] == [RequestTimedOut]


# Joining


def test_available_values_are_joined_at_once() -> None:
    assert Deferred.all([1, 2]) == [1, 2]
    assert Deferred.all([]) == []


def test_joined_values_have_the_order_of_the_parts() -> None:
    first, third = Deferred[int](), Deferred[int]()
    whole = Deferred.all([first, 2, third])
    assert isinstance(whole, Deferred)
    taken = Taken().by(whole)

    third.resolve(3)
    first.resolve(1)

    assert taken.values == [[1, 2, 3]]


def test_the_first_error_fails_the_whole_and_abandons_the_rest() -> None:
    parts = [Deferred[int]() for _ in range(3)]
    whole = Deferred.all(parts)
    assert isinstance(whole, Deferred)
    taken = Taken().by(whole)

    parts[1].fail(NotCoordinator())

    assert [type(error) for error in taken.errors] == [NotCoordinator]
    assert [part.abandoned for part in parts] == [True, False, True]


def test_a_part_that_has_failed_already_abandons_the_others() -> None:
    parts = [Deferred[int]() for _ in range(3)]
    parts[1].fail(NotCoordinator())

    whole = Deferred.all(parts)

    assert isinstance(whole, Deferred)
    assert [type(error) for error in Taken().by(whole).errors] == [NotCoordinator]
    assert [part.abandoned for part in parts] == [True, False, True]


# Every combination


@dataclass
class Leaf:
    """A Deferred that its owner completes, and how often it was abandoned."""

    deferred: Deferred[int]
    abandoned: int = 0


@dataclass
class Tree:
    """Chains over some leaves."""

    leaves: list[Leaf] = field(default_factory=list)

    def leaf(self) -> Deferred[int]:
        leaf = Leaf(Deferred())
        leaf.deferred.on_abandon = lambda: setattr(leaf, "abandoned", leaf.abandoned + 1)
        self.leaves.append(leaf)
        return leaf.deferred


Shape = Any
SHAPES: st.SearchStrategy[Shape] = st.recursive(
    st.just(("leaf",)),
    lambda inner: st.one_of(
        st.tuples(st.just("then"), inner),
        st.tuples(st.just("wait"), inner, inner),
        st.tuples(st.just("catch"), inner),
        st.tuples(st.just("timeout"), inner, st.integers(1, 500)),
        st.tuples(st.just("all"), st.lists(inner, max_size=3)),
    ),
    max_leaves=8,
)


def grow(shape: Shape, tree: Tree, pending: Timers) -> int | Deferred[int]:
    match shape:
        case ("then", inner):
            return after(grow(inner, tree, pending), lambda value: value + 1)
        case ("wait", inner, later):
            return after(grow(inner, tree, pending), lambda _: grow(later, tree, pending))
        case ("catch", inner):
            made = grow(inner, tree, pending)
            return made.catch(NotCoordinator, lambda _: -1) if isinstance(made, Deferred) else made
        case ("timeout", inner, delay_ms):
            made = grow(inner, tree, pending)
            return made.timeout(pending, delay_ms, RequestTimedOut) if isinstance(made, Deferred) else made
        case ("all", inner):
            return after(Deferred.all([grow(each, tree, pending) for each in inner]), sum)
        case _:
            return tree.leaf()


def expected(shape: Shape) -> int:
    """The value of a tree whose leaves are all 1, without a timeout."""
    match shape:
        case ("then", inner):
            return expected(inner) + 1
        case ("wait", _, later):
            return expected(later)
        case ("catch", inner) | ("timeout", inner, _):
            return expected(inner)
        case ("all", inner):
            return sum(map(expected, inner))
        case _:
            return 1


@given(SHAPES, st.randoms(use_true_random=False))
def test_the_order_of_completions_does_not_matter(shape: Shape, randomness: Random) -> None:
    _, pending = timers()
    tree = Tree()
    root = grow(shape, tree, pending)
    if not isinstance(root, Deferred):
        assert root == expected(shape)
        return
    taken = Taken().by(root)

    while waiting := [leaf for leaf in tree.leaves if leaf.deferred.waiting]:
        randomness.choice(waiting).deferred.resolve(1)

    assert taken == Taken(values=[expected(shape)])
    assert len(pending) == 0


@given(SHAPES, st.data())
def test_every_chain_delivers_once_and_leaves_nothing_behind(shape: Shape, data: st.DataObject) -> None:
    loop, pending = timers()
    tree = Tree()
    root = grow(shape, tree, pending)
    if not isinstance(root, Deferred):
        assert tree.leaves == []
        return
    taken = Taken().by(root)
    abandoned = False

    while root.waiting:
        waiting = [leaf for leaf in tree.leaves if leaf.deferred.waiting]
        event = data.draw(
            st.sampled_from(["resolve", "fail", "bug", "time", "abandon"]) if waiting else st.just("time")
        )
        match event:
            case "resolve":
                data.draw(st.sampled_from(waiting)).deferred.resolve(1)
            case "fail":
                data.draw(st.sampled_from(waiting)).deferred.fail(NotCoordinator())
            case "bug":
                data.draw(st.sampled_from(waiting)).deferred.fail(ZeroDivisionError())
            case "time":
                loop.pass_ms(data.draw(st.integers(50, 200)))
            case _:
                abandoned = True
                root.abandon()
        assert len(taken.values) + len(taken.errors) == (not abandoned and not root.waiting)

    assert len(pending) == 0
    for leaf in tree.leaves:
        assert not leaf.deferred.waiting
        assert leaf.abandoned == leaf.deferred.abandoned
