"""A value now or later: the result of a handler that may wait for a disk, a replica or a coordinator.

A function that may have to wait returns `T | Deferred[T]` (`Eventual[T]`): the plain value if it is available, which
costs no object, and a `Deferred` otherwise. `after` continues with either.

The roles:

- The *owner* creates it, and completes it exactly once: `resolve` or `fail`. A second completion is a bug and asserted.
- The *consumer* is the caller that receives it. `then`, `catch`, `timeout`, `all` and `deliver_to` each consume it, and
  it can be consumed once. All but the last return a new `Deferred` for the next consumer; `mapped` returns this one.
- A consumer that no longer wants the value calls `abandon`. It propagates from a derived `Deferred` to its source, up
  to the owner, whose `on_abandon` then releases all state of the request. A later completion is ignored: the owner may
  have been past the point of no return.

The order of calls. Callbacks are synchronous: they run inside `resolve` or `fail`, or inside the call that attaches
them if the value is available, along the chain from source to end, and have all returned when `resolve` does. There is
only one consumer. A callback may call into the owner again. So an owner resolves last, when its own state is
consistent; an owner in the middle of other work schedules `resolve` on its event loop.

An exception in a callback of `then` or `catch` fails the derived `Deferred`, and goes no further. The callbacks of
`deliver_to` are the end of the chain and must not raise; an exception there reaches the owner.
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
    """The state of a `Deferred`. Every transition leads from WAITING to one of the others."""

    WAITING = "waiting"
    RESOLVED = "resolved"
    FAILED = "failed"
    ABANDONED = "abandoned"


WAITING, RESOLVED, FAILED, ABANDONED = Phase


@final
class Deferred(Generic[T]):
    """A value that is not available yet; see the module for the rules."""

    __slots__ = ("_failed", "_kind", "_map", "_outcome", "_phase", "_sink", "_work", "on_abandon")

    def __init__(self, on_abandon: Callable[[], object] | None = None) -> None:
        self.on_abandon = on_abandon
        """Called once if the consumer abandons this before it is complete, and dropped on completion."""
        self._phase = WAITING
        self._sink: Callable[[T], object] | None = None
        """The consumer of the value; `delivered` once it has received it."""
        self._map: Callable[[Any], Any] | None = None
        """The function given to `mapped`."""
        # The rest is set only if needed: every request that waits creates some of these.
        self._failed: Callable[[Exception], object]
        """The consumer of an error; set together with the sink."""
        self._outcome: Any
        """The value or the error, once complete and until it is consumed."""
        self._work: Callable[[Any], T | Deferred[T]]
        """Computes the outcome of this from that of its source."""
        self._kind: type[Exception]
        """The exceptions of the source that `_work` handles."""

    # The owner

    @property
    def waiting(self) -> bool:
        """Whether it is neither complete nor abandoned."""
        return self._phase is WAITING

    @property
    def abandoned(self) -> bool:
        return self._phase is ABANDONED

    def resolve(self, value: T) -> None:
        """Complete with a value; ignored if it has been abandoned."""
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
        """Complete with an error; ignored if it has been abandoned, unless the work is shielded."""
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
        """Complete with a value, or with the outcome of another `Deferred`, which this consumes.

        If this has been abandoned, the other is abandoned too.
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
        """Drop the value; harmless if it is available, and the second time."""
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
        """Like `then`, in this same object, for `work` that never waits.

        For callers that return the `Deferred` at once, such as every offset commit, where a second object has a cost.
        """
        assert self._map is None, "mapped twice"
        assert self._sink is None, "mapped after it was consumed"
        assert self._phase is WAITING, f"mapped when {self._phase.value}"
        self._map = work
        return self  # type: ignore[return-value]  # From here on its value is the result of `work`.

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
        """The result of `work` on the value, now or later. An error skips `work` and is mapped by `failed`.

        With `shielded` the work runs even if the result is abandoned meanwhile, because it has effects that the client
        asked for; abandoning then only ends the wait for its result. Its error has no consumer then, and goes to
        `shielded`.
        """
        derived: Deferred[U] = Deferred(self.abandon)
        derived._work = work
        if shielded is not None:
            reporter = shielded
            derived.on_abandon = lambda: derived._report_to(reporter)
        fail = derived.fail if failed is None else partial(derived._fail_as, failed)
        if self._phase is WAITING and self._sink is None:
            # `deliver_to` inlined: every request that waits comes here.
            self._sink, self._failed = derived._go_on, fail
        else:
            self.deliver_to(derived._go_on, fail)
        return derived

    def _fail_as(self, failed: Callable[[Exception], Exception], error: Exception) -> None:
        self.fail(failed(error))

    def _report_to(self, reporter: Callable[[Exception], object]) -> None:
        self._failed = reporter

    def catch(self, kind: type[E], recover: Callable[[E], T | Deferred[T]]) -> Deferred[T]:
        """The result of `recover` on an error of this kind. The value and other errors pass through."""
        derived: Deferred[T] = Deferred(self.abandon)
        derived._kind, derived._work = kind, recover
        self.deliver_to(derived.resolve, derived._recover)
        return derived

    def _go_on(self, outcome: Any) -> None:
        """Complete this with the result of `_work` on the outcome of its source."""
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
        """Fail with `error()` after the delay, and abandon this, so that its owner releases it."""
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
        """All values in the order of `parts`; the list itself if all are available.

        The first error fails the whole and abandons the rest; abandoning the whole abandons all parts.
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
                # An exception in one part's `on_abandon` does not stop the others.
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
                # A part that failed at once has abandoned the parts after it.
                part.deliver_to(partial(arrived, at), failed)
        return whole


def delivered(outcome: object) -> None:
    """The consumer of a `Deferred` whose outcome has been delivered."""
    raise AssertionError(f"delivered twice: {outcome!r}")


Eventual = Union[T, Deferred[T]]  # noqa: UP007 (mypy takes no `|` of a type variable in an alias)
"""A value, or a Deferred of it."""


def after(eventual: T | Deferred[T], work: Callable[[T], U | Deferred[U]]) -> U | Deferred[U]:
    """Call `work` with a value, at once if it is available; see `Deferred.then`."""
    if isinstance(eventual, Deferred):
        return cast("Deferred[T]", eventual).then(work)
    return work(eventual)
