"""A value now or later: what a handler returns when it has to wait for a disk, a replica or a coordinator.

A function that may have to wait returns `T | Deferred[T]` (`Eventual[T]`): the plain value where it is there already,
which costs no object, and a `Deferred` otherwise. `after` goes on with either.

Who does what:

- The *owner* made it, and completes it exactly once: `resolve` or `fail`. A second completion is a bug and asserted.
- The *consumer* is whoever took it: `then`, `catch`, `timeout`, `all` and `deliver_to` each consume it, and it can be
  consumed once. Every one but the last gives a new `Deferred` to its own consumer; `mapped` gives the same one back.
- The consumer that no longer wants the value calls `abandon`. It passes from a derived `Deferred` to its source, up to
  the owner, whose `on_abandon` then lets go of all that it keeps for the request. A completion that comes after that is
  ignored: the owner may have been past the point of no return.

The order of calls. Nothing is put off: a consumer's callbacks run inside `resolve` or `fail`, or inside the call that
attaches them when the value is there already, along the chain from source to end, and have all returned when `resolve`
does. There is one consumer, so there is no order among several. A callback may therefore call into the owner again. An
owner resolves last, when its own state is in order; one that cannot, because it is in the middle of work for others,
gives `resolve` to its event loop.

What a callback of `then` or `catch` raises fails the `Deferred` that it should have given, and goes no further. The
callbacks of `deliver_to` are the end of the chain and must not raise; what they raise reaches the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar, Union, cast, final, overload

from penstock.model.timers import Timers

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound=Exception)


class Phase(Enum):
    """Every transition leads from WAITING to one of the others."""

    WAITING = "waiting"
    RESOLVED = "resolved"
    FAILED = "failed"
    ABANDONED = "abandoned"


WAITING, RESOLVED, FAILED, ABANDONED = Phase


@final
class Deferred(Generic[T]):
    """A value that is not there yet; see the module for the rules."""

    __slots__ = ("_failed", "_kind", "_map", "_outcome", "_phase", "_sink", "_work", "on_abandon")

    def __init__(self, on_abandon: Callable[[], object] | None = None) -> None:
        self.on_abandon = on_abandon
        """Called once if the consumer abandons this before it is complete, and dropped on completion."""
        self._phase = WAITING
        self._sink: Callable[[T], object] | None = None
        """Whom the value goes to; `delivered` when it has gone."""
        self._map: Callable[[Any], Any] | None = None
        """What `mapped` was given."""
        # The rest is set where it is needed: every request that waits makes some of these.
        self._failed: Callable[[Exception], object]
        """Whom an error goes to, where there is a sink."""
        self._outcome: Any
        """The value or the error, once complete and until it is consumed."""
        self._work: Callable[[Any], T | Deferred[T]]
        """What makes the outcome of this from that of its source."""
        self._kind: type[Exception]
        """The failures of the source that `_work` is for."""

    # The owner

    @property
    def waiting(self) -> bool:
        """Whether it is neither complete nor abandoned."""
        return self._phase is WAITING

    @property
    def abandoned(self) -> bool:
        return self._phase is ABANDONED

    def resolve(self, value: T) -> None:
        """Give the value; ignored if it has been abandoned."""
        if self._phase is not WAITING:
            assert self._phase is ABANDONED, f"resolved when {self._phase.value}"
            return
        if self._map is not None:
            try:
                value = self._map(value)
            except Exception as error:
                self.fail(error)
                return
        self._phase = RESOLVED
        self.on_abandon = None
        sink = self._sink
        if sink is None:
            self._outcome = value
        else:
            self._sink = self._failed = delivered
            sink(value)

    def fail(self, error: Exception) -> None:
        """Say why there will be no value; ignored if it has been abandoned, unless it is of shielded work."""
        if self._phase is not WAITING:
            assert self._phase is ABANDONED, f"failed when {self._phase.value}"
            if self._failed is not delivered:
                self._failed(error)
            return
        self._phase = FAILED
        self.on_abandon = None
        if self._sink is None:
            self._outcome = error
        else:
            failed = self._failed
            self._sink = self._failed = delivered
            failed(error)

    def complete_with(self, result: T | Deferred[T]) -> None:
        """Resolve with a value, or as another `Deferred` does, which is consumed.

        Where this has been abandoned, the other is abandoned too.
        """
        if not isinstance(result, Deferred):
            self.resolve(result)
            return
        later = cast("Deferred[T]", result)
        if self._phase is WAITING:
            self.on_abandon = later.abandon
            later.deliver_to(self.resolve, self.fail)
        else:
            assert self._phase is ABANDONED, f"completed when {self._phase.value}"
            later.abandon()

    # The consumer

    def deliver_to(self, sink: Callable[[T], object], failed: Callable[[Exception], object]) -> None:
        """Pass the value or the error to the end of the chain."""
        assert self._sink is None, "consumed twice"
        if self._phase is WAITING:
            self._sink, self._failed = sink, failed
            return
        self._sink = delivered
        if self._phase is RESOLVED:
            outcome, self._outcome = self._outcome, None
            sink(outcome)
        elif self._phase is FAILED:
            outcome, self._outcome = self._outcome, None
            failed(outcome)

    def abandon(self) -> None:
        """Stop wanting the value; harmless when it is there, and the second time."""
        if self._phase is WAITING:
            self._phase = ABANDONED
            self._sink = self._failed = delivered
            hook, self.on_abandon = self.on_abandon, None
            if hook is not None:
                hook()
        elif self._sink is None:
            self._phase = ABANDONED
            self._sink = self._failed = delivered
            self._outcome = None

    def mapped(self, work: Callable[[T], U]) -> Deferred[U]:
        """Go on with the value as `then` does, in this same object, where `work` never has to wait.

        For whoever passes a `Deferred` on at once: every offset commit does, and a second object is a cost there.
        """
        assert self._map is None, "mapped twice"
        assert self._sink is None, "mapped after it was consumed"
        assert self._phase is WAITING, f"mapped when {self._phase.value}"
        self._map = work
        return self  # type: ignore[return-value]  # From here on it is one of what `work` makes.

    @overload
    def then(
        self,
        work: Callable[[T], Deferred[U]],
        *,
        failed: Callable[[Exception], Exception] | None = None,
        shielded: Callable[[Exception], object] | None = None,
    ) -> Deferred[U]: ...

    @overload
    def then(
        self,
        work: Callable[[T], U | Deferred[U]],
        *,
        failed: Callable[[Exception], Exception] | None = None,
        shielded: Callable[[Exception], object] | None = None,
    ) -> Deferred[U]: ...

    def then(
        self,
        work: Callable[[T], U | Deferred[U]],
        *,
        failed: Callable[[Exception], Exception] | None = None,
        shielded: Callable[[Exception], object] | None = None,
    ) -> Deferred[U]:
        """Go on with the value: what `work` makes of it, now or later. A failure passes by, as `failed` makes it.

        With `shielded` the work is done even if the result is abandoned meanwhile, because it has effects that the
        client asked for; abandoning it then ends only the wait for what `work` returned. Its failure has no consumer
        then, and goes to `shielded`.
        """
        derived: Deferred[U] = Deferred(self.abandon)
        derived._work = work
        if shielded is not None:
            reporter = shielded
            derived.on_abandon = lambda: derived._report_to(reporter)
        fail = derived.fail if failed is None else partial(derived._fail_as, failed)
        if self._phase is WAITING and self._sink is None:
            # What `deliver_to` does: this is on the way of every request that waits.
            self._sink, self._failed = derived._go_on, fail
        else:
            self.deliver_to(derived._go_on, fail)
        return derived

    def _fail_as(self, failed: Callable[[Exception], Exception], error: Exception) -> None:
        self.fail(failed(error))

    def _report_to(self, reporter: Callable[[Exception], object]) -> None:
        self._failed = reporter

    def catch(self, kind: type[E], recover: Callable[[E], T | Deferred[T]]) -> Deferred[T]:
        """Go on with what `recover` makes of a failure of some kind. The value, and other failures, pass by."""
        derived: Deferred[T] = Deferred(self.abandon)
        derived._kind, derived._work = kind, recover
        self.deliver_to(derived.resolve, derived._recover)
        return derived

    def _go_on(self, outcome: Any) -> None:
        """Complete this with what `_work` makes of the outcome of its source."""
        try:
            made = self._work(outcome)
        except Exception as error:
            self.fail(error)
            return
        if type(made) is Deferred:
            self.complete_with(cast("Deferred[T]", made))
        else:
            self.resolve(made)

    def _recover(self, failure: Exception) -> None:
        if isinstance(failure, self._kind):
            self._go_on(failure)
        else:
            self.fail(failure)

    def timeout(self, timers: Timers, delay_ms: float, error: Callable[[], Exception]) -> Deferred[T]:
        """Fail with `error()` when this takes longer. It is abandoned then, so that its owner lets go of it."""
        if self._phase is not WAITING:
            return self
        derived: Deferred[T] = Deferred()

        def expired() -> None:
            try:
                self.abandon()
            finally:
                derived.fail(error())

        timer = timers.after_ms(delay_ms, expired)

        def abandoned() -> None:
            timer.cancel()
            self.abandon()

        def resolved(value: T) -> None:
            timer.cancel()
            derived.resolve(value)

        def failed(failure: Exception) -> None:
            timer.cancel()
            derived.fail(failure)

        derived.on_abandon = abandoned
        self.deliver_to(resolved, failed)
        return derived

    @overload
    @staticmethod
    def all(parts: Iterable[Deferred[U]]) -> list[U] | Deferred[list[U]]: ...

    @overload
    @staticmethod
    def all(parts: Iterable[U | Deferred[U]]) -> list[U] | Deferred[list[U]]: ...

    @staticmethod
    def all(parts: Iterable[U | Deferred[U]]) -> list[U] | Deferred[list[U]]:
        """All values in the order of `parts`; the list itself if every one of them is there.

        The first failure is the whole's, and the rest is abandoned, as it is when the whole is abandoned.
        """
        values: list[Any] = list(parts)
        left: dict[int, Deferred[Any]] = {at: part for at, part in enumerate(values) if isinstance(part, Deferred)}
        if not left:
            return values
        whole: Deferred[list[U]] = Deferred()

        def abandon_rest() -> None:
            try:
                while left:
                    left.popitem()[1].abandon()
            finally:
                # A part whose owner fails to let go keeps no other part waiting.
                if left:
                    abandon_rest()

        def arrived(at: int, value: U) -> None:
            values[at] = value
            del left[at]
            if not left:
                whole.resolve(values)

        def failed(error: Exception) -> None:
            try:
                abandon_rest()
            finally:
                whole.fail(error)

        whole.on_abandon = abandon_rest
        for at, part in list(left.items()):
            if at in left:
                # A part that failed at once has abandoned those behind it.
                part.deliver_to(partial(arrived, at), failed)
        return whole


def delivered(outcome: object) -> None:
    """Stands for the consumer of a `Deferred` that has had its outcome."""
    raise AssertionError(f"delivered twice: {outcome!r}")


Eventual = Union[T, Deferred[T]]  # noqa: UP007 (mypy takes no `|` of a type variable in an alias)
"""A value, or what it will be in."""


def after(eventual: T | Deferred[T], work: Callable[[T], U | Deferred[U]]) -> U | Deferred[U]:
    """Go on with a value at once where it is there; see `Deferred.then`."""
    if isinstance(eventual, Deferred):
        return cast("Deferred[T]", eventual).then(work)
    return work(eventual)
