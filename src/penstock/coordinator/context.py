"""The context of one partition of a coordinator's topic: it appends its shard's events, then responds.

The shard decides on a command; its events are appended in one batch and applied, and its responses wait until the batch
is committed. Each kind of coordinator has its own rules and record formats.

A context belongs to one leader epoch of its partition: it ends with that epoch, even where this broker leads in the
next one too.
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
    """The rules and the state of one partition. See `GroupShard` and `TxnShard`."""

    def wake(self, key: Hashable, now_ms: int) -> Step: ...

    def loaded(self, now_ms: int) -> Step: ...

    def refused(self, step: Step, error: BrokerError, now_ms: int) -> Step: ...

    def unloaded(self) -> Step: ...


S = TypeVar("S", bound=Shard)


class Phase(Enum):
    """A shard loads from its log, then serves until this broker loses the partition."""

    LOADING = "loading"
    SERVING = "serving"
    ENDED = "ended"


class CoordinatorClock:
    """Milliseconds since the epoch that never go back, for deadlines and record timestamps.

    A change of the machine's clock must not expire sessions. So the time is that of the start, plus the elapsed time of
    the monotonic clock.
    """

    __slots__ = ("_anchor_ms", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchor_ms = clock.now_ms() - clock.monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._anchor_ms + self._clock.monotonic() * 1000)


class CoordinatorContext(ABC, Generic[S]):
    """One partition of a coordinator's topic, with its shard."""

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
        "leader_epoch",
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
        """`write_timeout_ms` is how long a request waits for its events to be committed."""
        self.partition = partition
        self.leader_epoch = replica.role.leader_epoch
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
        """Requests without a result; None while one is being decided."""
        self._at_once: dict[Ticket, Result] = {}
        """Results that are available before `result` is called."""
        self._end = replica.offsets.log_end
        """The end offset of the last batch: responses wait until it is committed."""
        self._refusing = False
        """The last append failed, which has been logged."""
        self._timers_set: dict[Hashable, Timer] = {}

    @property
    def serving(self) -> bool:
        return self._phase is Phase.SERVING and self.leads

    @property
    def ended(self) -> bool:
        return self._phase is Phase.ENDED

    @property
    def lost(self) -> bool:
        """Whether the log directory is offline until the broker restarts."""
        return self._replica.is_offline

    @property
    def waiting(self) -> int:
        """Requests that have no response yet."""
        return len(self._waiting)

    # Serving

    def ticket(self) -> Ticket:
        """Assign a ticket to a request; call `result` once it is decided. Raises if the shard is not serving."""
        self.check()
        ticket = Ticket(self._next_ticket)
        self._next_ticket += 1
        self._waiting[ticket] = None
        return ticket

    def result(self, ticket: Ticket) -> Eventual[Result]:
        """The result of a request that has just been decided, or a Deferred of it."""
        if ticket not in self._waiting:
            return self._at_once.pop(ticket)
        result = self._waiting[ticket] = Deferred(partial(self.abandon, ticket))
        return result

    def abandon(self, ticket: Ticket) -> None:
        """Drop the response of a closed connection. The decision stands, as in Kafka."""
        self._waiting.pop(ticket, None)

    def shard(self) -> S:
        """The shard with all decisions so far applied, for queries. Raises if it is not serving.

        Its state may not be committed yet: see `committed`.
        """
        self.check()
        self.write_pending()
        return self._shard

    def committed(self) -> Deferred[None] | None:
        """None if every event is committed; else a Deferred that completes then.

        Raises if the shard is not serving. The Deferred fails with RequestTimedOut after the write timeout.
        """
        self.check()
        wait = self._replica.committed(self._end)
        return wait if wait is None else wait.timeout(self._timers, self._write_timeout_ms(), RequestTimedOut)

    def check(self) -> None:
        """Raise if the shard is not serving."""
        if self._phase is Phase.LOADING:
            raise CoordinatorLoadInProgress()
        if self._phase is Phase.ENDED or not self.leads:
            raise NotCoordinator()

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition, in the leader epoch of this context."""
        replica = self._replica
        return replica.role.leader_epoch == self.leader_epoch and replica.is_leader

    # Loading and unloading

    def view(self) -> LogView:
        """A snapshot of the log to load from."""
        return self._replica.log.view()

    def replay(self, events: Sequence[Event]) -> bool:
        """Apply events read from the log, while loading; False if the context has ended."""
        if self._phase is Phase.ENDED:
            return False
        assert self._phase is Phase.LOADING, f"events of the log while {self._phase}"
        for event in events:
            self.apply(event)
        return True

    def replayed(self) -> Deferred[None] | None:
        """The log has been replayed to its end: None if all of it is committed, else a Deferred that completes then.

        Until then the shard must not serve: the log's end may yet be truncated, and with it what a response would say.
        """
        return self._replica.committed(self._end)

    def loaded(self) -> None:
        """The log has been loaded and is committed: start serving."""
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
        """Append decisions that wait to be batched, in contexts that batch: commits, in that of groups."""

    @abstractmethod
    def apply(self, event: Event) -> None:
        """Apply an event that is in the log to the shard."""

    @abstractmethod
    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        """The key and the value of an event's record."""

    def seal(self, builder: RecordBatchBuilder, steps: Sequence[Step]) -> bytearray:
        """The batch of the events of some steps."""
        return builder.build()

    def perform(self, effect: Effect) -> None:
        """Carry out an effect; overridden for shards that have effects."""
        raise AssertionError(f"unknown effect {effect}")

    def finish(self, done: JobDone) -> Step:
        """Decide on a job's result; overridden for shards that have jobs."""
        raise AssertionError(f"unknown job {done}")

    def carry_out(self, step: Step) -> None:
        """Append a step's events, apply them, start its timers and jobs, and respond once they are committed."""
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
        """Append the batch of some steps, apply their events, and respond once it is committed."""
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
        """Append a batch and apply its events. If the append fails it raises, and no event is applied."""
        if self._replica.role.leader_epoch != self.leader_epoch:
            # The decision is of a past leader epoch: other brokers may have written to the log since.
            raise NotLeaderOrFollower()
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
        """Split a batch that is too large. Only tombstones may be split; other events have to be in one batch."""
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
        """The append failed: the decisions are void, and their requests fail with the coordinator's error for it."""
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
            assert not refused.events, "the step after a refusal has no events"
            self._start(refused)
            responses += refused.responses
        self._release(responses)

    # Responding

    def _release(self, responses: Sequence[Response], effects: Sequence[Effect] = ()) -> None:
        """Respond when everything appended so far is committed, which may be now."""
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
        """Respond when a batch is committed, or with a timeout; effects wait without a timeout."""
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
        """Respond with an error instead of results that the next leader may not have."""
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

    # Timers and jobs

    def _set(self, timer: SetTimer | CancelTimer) -> None:
        before = self._timers_set.pop(timer.key, None)
        if before is not None:
            before.cancel()
        if isinstance(timer, SetTimer):
            key = timer.key
            delay_ms = timer.at_ms - self._clock.now_ms()
            self._timers_set[key] = self._timers.after_ms(delay_ms, lambda: self._timer_expired(key))

    def _timer_expired(self, key: Hashable) -> None:
        self._timers_set.pop(key, None)
        if self._phase is Phase.SERVING:
            self.write_pending()
            self.carry_out(self._shard.wake(key, self._clock.now_ms()))

    def _run(self, job: Job) -> None:
        loop = get_running_loop()

        def finished(done: "ThreadFuture[JobDone]") -> None:
            """Runs in the thread of the job."""
            if not done.cancelled() and not loop.is_closed():
                loop.call_soon_threadsafe(self._finish, done)

        self._threads.submit(job.run).add_done_callback(finished)

    def _finish(self, done: "ThreadFuture[JobDone]") -> None:
        result = done.result()
        if self._phase is Phase.SERVING:
            self.write_pending()
            self.carry_out(self.finish(result))


TRY_LATER = (UnknownTopicOrPartition, NotEnoughReplicas, RequestTimedOut)
LOOK_ELSEWHERE = (NotLeaderOrFollower, KafkaStorageError)
TOO_LARGE = (MessageTooLarge, RecordListTooLarge, InvalidFetchSize)


def coordinator_error(error: BrokerError) -> BrokerError:
    """The coordinator's error for an error of its log, which is internal to the broker."""
    if isinstance(error, TRY_LATER):
        return CoordinatorNotAvailable()
    if isinstance(error, LOOK_ELSEWHERE):
        return NotCoordinator()
    return UnknownServerError() if isinstance(error, TOO_LARGE) else error
