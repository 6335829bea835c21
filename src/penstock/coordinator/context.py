"""The context of one partition of a coordinator's topic: it writes what its shard decides, then responds.

A command is decided, its events are appended in one batch and applied, and its responses wait for the batch to be
committed. What is decided, and what the records look like, is the business of each kind of coordinator.
"""

from abc import ABC, abstractmethod
from asyncio import get_running_loop
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Executor
from concurrent.futures import Future as ThreadFuture
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

from penstock.coordinator.step import CancelTimer, Effect, Event, Job, JobDone, Response, Result, SetTimer, Step, Ticket
from penstock.model.clock import Clock
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidFetchSize,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from penstock.model.timers import Timer, Timers
from penstock.observe.log import Logger
from penstock.partition.replica import Replica
from penstock.partition.results import Appended
from penstock.storage.view import LogView
from penstock.wire.records import RecordBatchBuilder


class Shard(Protocol):
    """What decides: all that one partition's records tell of. Each shard says what its methods promise."""

    def wake(self, key: Hashable, now_ms: int) -> Step: ...

    def loaded(self, now_ms: int) -> Step: ...

    def refused(self, step: Step, error: BrokerError, now_ms: int) -> Step: ...

    def unloaded(self) -> Step: ...


S = TypeVar("S", bound=Shard)


class Phase(Enum):
    """A shard is read from its log first, and serves until it is somebody else's."""

    LOADING = "loading"
    SERVING = "serving"
    ENDED = "ended"


class CoordinatorClock:
    """Milliseconds since the epoch that never go back: what deadlines and records are dated with.

    The machine's clock may be set; nothing must run out because of it. So time is that of the start, plus what a
    monotonic clock has counted since.
    """

    __slots__ = ("_anchor_ms", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchor_ms = clock.now_ms() - clock.monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._anchor_ms + self._clock.monotonic() * 1000)


class CoordinatorContext(ABC, Generic[S]):
    """One partition of a coordinator's topic, and the shard that its records make."""

    __slots__ = (
        "_at_once",
        "_clock",
        "_end",
        "_log",
        "_next_ticket",
        "_phase",
        "_refusing",
        "_replica",
        "_shard",
        "_threads",
        "_timers",
        "_timers_set",
        "_waiting",
        "_write_timeout_ms",
        "partition",
    )

    def __init__(
        self,
        partition: int,
        replica: Replica,
        shard: S,
        *,
        clock: CoordinatorClock,
        timers: Timers,
        threads: Executor,
        log: Logger,
        write_timeout_ms: Callable[[], int],
    ) -> None:
        """`write_timeout_ms` is how long a request waits for what it wrote to be committed."""
        self.partition = partition
        self._replica = replica
        self._shard = shard
        self._clock = clock
        self._timers = timers
        self._threads = threads
        self._log = log
        self._write_timeout_ms = write_timeout_ms
        self._phase = Phase.LOADING
        self._next_ticket = 0
        self._waiting: dict[Ticket, Deferred[Result] | None] = {}
        """Requests without a result; None is one that is being decided."""
        self._at_once: dict[Ticket, Result] = {}
        """Results of requests that are being decided."""
        self._end = replica.offsets.log_end
        """Where the last batch written here ends: responses wait until everything below is committed."""
        self._refusing = False
        """The last batch was not taken, which has been said."""
        self._timers_set: dict[Hashable, Timer] = {}

    @property
    def serving(self) -> bool:
        return self._phase is Phase.SERVING and self._replica.is_leader

    @property
    def ended(self) -> bool:
        return self._phase is Phase.ENDED

    @property
    def lost(self) -> bool:
        """Whether the log is out of reach until the broker starts again."""
        return self._replica.is_offline

    @property
    def waiting(self) -> int:
        """Requests that have no response yet."""
        return len(self._waiting)

    # Serving

    def ticket(self) -> Ticket:
        """Number a request, whose `result` is asked for when it is decided. Raises where nobody is served."""
        self.check()
        ticket = Ticket(self._next_ticket)
        self._next_ticket += 1
        self._waiting[ticket] = None
        return ticket

    def result(self, ticket: Ticket) -> Eventual[Result]:
        """What came of a request that has just been decided, or what that will be in."""
        if ticket not in self._waiting:
            return self._at_once.pop(ticket)
        result = self._waiting[ticket] = Deferred(partial(self.abandon, ticket))
        return result

    def abandon(self, ticket: Ticket) -> None:
        """Nobody waits for this response any more. What was asked for stands, as it does in Kafka."""
        self._waiting.pop(ticket, None)

    def shard(self) -> S:
        """What is known after everything that was asked so far, for reading. Raises where nobody is served.

        What is read may not be committed yet: see `committed`.
        """
        self.check()
        self.write_pending()
        return self._shard

    def committed(self) -> Deferred[None] | None:
        """None when nothing that was decided here can be undone; else what completes then.

        It fails with RequestTimedOut when that takes longer than a request may wait for what it wrote.
        """
        wait = self._replica.committed(self._end)
        return wait if wait is None else wait.timeout(self._timers, self._write_timeout_ms(), RequestTimedOut)

    def check(self) -> None:
        """Raise why this shard cannot be asked."""
        if self._phase is Phase.LOADING:
            raise CoordinatorLoadInProgress()
        if self._phase is Phase.ENDED or not self._replica.is_leader:
            raise NotCoordinator()

    # Life

    def view(self) -> LogView:
        """The log as it is now, to be loaded from."""
        return self._replica.log.view()

    def replay(self, events: Sequence[Event]) -> bool:
        """Apply events that were read from the log, while loading; False when the context has ended meanwhile."""
        if self._phase is Phase.ENDED:
            return False
        assert self._phase is Phase.LOADING, f"events of the log while {self._phase}"
        for event in events:
            self.apply(event)
        return True

    def loaded(self) -> None:
        """Everything has been read: serve."""
        assert self._phase is Phase.LOADING, f"loaded while {self._phase}"
        self._phase = Phase.SERVING
        self.carry_out(self._shard.loaded(self._clock.now_ms()))

    def end(self) -> None:
        """Stop serving: requests that wait fail with NotCoordinator."""
        if self._phase is Phase.ENDED:
            return
        serving, self._phase = self._phase is Phase.SERVING, Phase.ENDED
        for timer in self._timers_set.values():
            timer.cancel()
        self._timers_set.clear()
        if serving:
            self._deliver(self._shard.unloaded().responses)
        for ticket in list(self._waiting):
            self._deliver((Response(ticket, NotCoordinator()),))

    # Writing

    def write_pending(self) -> None:
        """Write the steps that are decided and not yet written: commits, in the context of groups."""

    @abstractmethod
    def apply(self, event: Event) -> None:
        """Tell the shard of a fact that is in the log."""

    @abstractmethod
    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        """The key and the value of an event's record."""

    def seal(self, builder: RecordBatchBuilder, steps: Sequence[Step]) -> bytearray:
        """The batch of the events of some steps."""
        return builder.build()

    def perform(self, effect: Effect) -> None:
        """Do what was asked for outside; a shard that has effects says how."""
        raise AssertionError(f"nobody performs {effect}")

    def finish(self, done: JobDone) -> Step:
        """What a job's end leads to; a shard that has jobs says so."""
        raise AssertionError(f"nobody waits for {done}")

    def carry_out(self, step: Step) -> None:
        """Write a step's events, apply them, start what it asks for, and respond when that is safe."""
        now_ms = self._clock.now_ms()
        builder = RecordBatchBuilder(base_timestamp_ms=now_ms)
        self.add_events(builder, step, now_ms)
        self.write(builder, (step,), now_ms)

    def add_events(self, builder: RecordBatchBuilder, step: Step, now_ms: int) -> None:
        """Add the records of a step's events."""
        for event in step.events:
            key, value = self.encode(event)
            builder.add(now_ms, key, value)

    def write(self, builder: RecordBatchBuilder, steps: Sequence[Step], now_ms: int) -> None:
        """Append the batch of some steps, apply their events, and let their responses go when that is safe."""
        if builder.count:
            if len(steps) > 1 and builder.size_bytes > self._replica.config.max_message_bytes:
                for step in steps:
                    self.carry_out(step)
                return
            try:
                self._append(builder, steps, now_ms)
            except BrokerError as error:
                self._refuse(steps, error)
                return
            self._refusing = False
        responses: list[Response] = []
        effects: list[Effect] = []
        for step in steps:
            responses += step.responses
            effects += step.effects
            if step.timers or step.jobs:
                self._start(step)
        if responses or effects:
            self._release(responses, effects)

    def _append(self, builder: RecordBatchBuilder, steps: Sequence[Step], now_ms: int) -> None:
        """Append a batch and apply its events; raises where the log does not take it, and then nothing is applied."""
        batch = memoryview(self.seal(builder, steps))
        if len(batch) > self._replica.config.max_message_bytes:
            self._append_divided([event for step in steps for event in step.events], len(batch), now_ms)
            return
        appended = self._replica.append(batch, now_ms, acks_all=True, internal=True)
        assert isinstance(appended, Appended), "a coordinator's batch is not compressed, so it is appended at once"
        self._end = appended.end
        apply = self.apply
        for step in steps:
            for event in step.events:
                apply(event)

    def _append_divided(self, events: Sequence[Event], size_bytes: int, now_ms: int) -> None:
        """Facts belong together; only where all of them are to be forgotten may it happen bit by bit."""
        if len(events) == 1 or any(self.encode(event)[1] is not None for event in events):
            bytes_max = self._replica.config.max_message_bytes
            raise RecordListTooLarge(f"A batch of {size_bytes} bytes, {bytes_max} are the most for {self._replica.tp}")
        half = len(events) // 2
        for part in (events[:half], events[half:]):
            step = Step(events=tuple(part))
            builder = RecordBatchBuilder(base_timestamp_ms=now_ms)
            self.add_events(builder, step, now_ms)
            self._append(builder, (step,), now_ms)

    def _start(self, step: Step) -> None:
        for timer in step.timers:
            self._set(timer)
        for job in step.jobs:
            self._run(job)

    def _refuse(self, steps: Sequence[Step], error: BrokerError) -> None:
        """The log took nothing: nothing was decided, and whoever asked is told to ask again."""
        if not self._refusing:
            self._refusing = True
            self._log.warning(
                "coordinator_events_refused",
                topic=self._replica.tp.topic,
                partition=self.partition,
                reason=error.wire_message,
            )
        failure = coordinator_error(error)
        responses: list[Response] = []
        for step in steps:
            refused = self._shard.refused(step, failure, self._clock.now_ms())
            assert not refused.events, "what follows a refusal is not written"
            self._start(refused)
            responses += refused.responses
        self._release(responses)

    # Responding

    def _release(self, responses: Sequence[Response], effects: Sequence[Effect] = ()) -> None:
        """Respond when everything written so far is committed: now, on a broker that flushes to the page cache."""
        try:
            wait = self._replica.committed(self._end)
        except BrokerError as error:
            self._fail(responses, error)
            return
        if wait is None:
            self._complete(responses, effects)
        else:
            self._release_later(wait, responses, effects)

    def _release_later(self, wait: Deferred[None], responses: Sequence[Response], effects: Sequence[Effect]) -> None:
        """Respond when a batch is committed, or that it takes too long; effects wait for as long as it takes."""
        left = list(responses)

        def expired() -> None:
            over = left.copy()
            left.clear()
            if not effects:
                wait.abandon()
            self._fail(over, RequestTimedOut())

        def committed(_: None) -> None:
            timer.cancel()
            self._complete(left, effects)

        def failed(error: Exception) -> None:
            timer.cancel()
            self._fail(left, error)

        timer = self._timers.after_ms(self._write_timeout_ms(), expired)
        wait.deliver_to(committed, failed)

    def _complete(self, responses: Sequence[Response], effects: Sequence[Effect]) -> None:
        """Respond and carry out effects: the events that they follow from are committed."""
        self._deliver(responses)
        for effect in effects:
            self.perform(effect)

    def _fail(self, responses: Sequence[Response], error: Exception) -> None:
        """What was decided may be undone by whoever leads next, so that nobody is told of it."""
        if not isinstance(error, BrokerError):
            raise error
        failure = coordinator_error(error)
        self._deliver([Response(response.ticket, failure) for response in responses])

    def _deliver(self, responses: Iterable[Response]) -> None:
        waiting = self._waiting
        for response in responses:
            ticket = response.ticket
            if ticket not in waiting:
                continue
            result = waiting.pop(ticket)
            if result is not None:
                result.resolve(response.reply)
            else:
                self._at_once[ticket] = response.reply

    # Waking

    def _set(self, timer: SetTimer | CancelTimer) -> None:
        before = self._timers_set.pop(timer.key, None)
        if before is not None:
            before.cancel()
        if isinstance(timer, SetTimer):
            key = timer.key
            delay_ms = timer.at_ms - self._clock.now_ms()
            self._timers_set[key] = self._timers.after_ms(delay_ms, lambda: self._ring(key))

    def _ring(self, key: Hashable) -> None:
        self._timers_set.pop(key, None)
        if self._phase is Phase.SERVING:
            self.write_pending()
            self.carry_out(self._shard.wake(key, self._clock.now_ms()))

    def _run(self, job: Job) -> None:
        loop = get_running_loop()

        def came_back(done: "ThreadFuture[JobDone]") -> None:
            """In the thread that did the work."""
            if not done.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(self._finish, done)

        self._threads.submit(job.run).add_done_callback(came_back)

    def _finish(self, done: "ThreadFuture[JobDone]") -> None:
        result = done.result()
        if self._phase is Phase.SERVING:
            self.write_pending()
            self.carry_out(self.finish(result))


TRY_LATER = (UnknownTopicOrPartition, NotEnoughReplicas, RequestTimedOut)
LOOK_ELSEWHERE = (NotLeaderOrFollower, KafkaStorageError)
TOO_LARGE = (MessageTooLarge, RecordListTooLarge, InvalidFetchSize)


def coordinator_error(error: BrokerError) -> BrokerError:
    """A failure of the coordinator's log in terms of the coordinator: a client knows nothing of that log."""
    if isinstance(error, TRY_LATER):
        return CoordinatorNotAvailable()
    if isinstance(error, LOOK_ELSEWHERE):
        return NotCoordinator()
    return UnknownServerError() if isinstance(error, TOO_LARGE) else error
