"""The shell of one partition of `__consumer_offsets`: it writes what its shard decides, and answers when that is safe.

A command is decided, its events are appended in one batch and applied, and its answers wait for the batch to be
committed. Commits of offsets do not depend on one another, so those that come in one turn of the loop are decided as
they come and written together when the turn ends: the more there are, the less each costs.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Executor
from concurrent.futures import Future as ThreadFuture
from enum import Enum

from penstock.core.group.commands import CommitOffsets, GroupCommand
from penstock.core.group.shard import GroupShard
from penstock.core.group.step import Answer, CancelTimer, Event, Job, JobDone, Reply, SetTimer, Step, Ticket
from penstock.model.clock import Clock
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
from penstock.observe.log import Logger
from penstock.runtime.group_journal import encode_event
from penstock.runtime.outcomes import Appended
from penstock.runtime.partition_host import PartitionHost
from penstock.runtime.timers import Timer, Timers
from penstock.storage.view import LogView
from penstock.wire.records import RecordBatchBuilder

BATCH_BYTES_FULL = 512 * 1024
"""A batch of several steps takes no more steps from here on."""

COMMITS_WAITING_MAX = 4096
"""Commits that wait for the end of the turn; at so many the turn has lasted long enough."""

Sink = Callable[[Reply | BrokerError], None]
"""Takes the one answer to a command."""


class Phase(Enum):
    """A shard is read from its log first, and serves until it is somebody else's."""

    LOADING = "loading"
    SERVING = "serving"
    ENDED = "ended"


class GroupClock:
    """Milliseconds since the epoch that never go back: what sessions and records are dated with.

    The machine's clock may be set; a session must not end because of it. So time is that of the start, plus what a
    monotonic clock has counted since.
    """

    __slots__ = ("_anchor_ms", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._anchor_ms = clock.now_ms() - clock.monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._anchor_ms + self._clock.monotonic() * 1000)


class GroupCoordinator:
    """All groups of one partition."""

    __slots__ = (
        "_clock",
        "_commits",
        "_end",
        "_flush_planned",
        "_host",
        "_log",
        "_missed_topics",
        "_next_ticket",
        "_phase",
        "_refusing",
        "_shard",
        "_threads",
        "_timers",
        "_timers_set",
        "_waiting",
        "partition",
    )

    def __init__(
        self,
        partition: int,
        host: PartitionHost,
        shard: GroupShard,
        *,
        clock: GroupClock,
        timers: Timers,
        threads: Executor,
        log: Logger,
    ) -> None:
        self.partition = partition
        self._host = host
        self._shard = shard
        self._clock = clock
        self._timers = timers
        self._threads = threads
        self._log = log
        self._phase = Phase.LOADING
        self._next_ticket = 0
        self._waiting: dict[Ticket, Sink] = {}
        self._commits: list[Step] = []
        """Commits of this turn, decided and not yet written."""
        self._flush_planned = False
        self._end = host.state.log_end
        """Where the last batch written here ends: answers wait until everything below is committed."""
        self._refusing = False
        """The last batch was not taken, which has been said."""
        self._timers_set: dict[Hashable, Timer] = {}
        self._missed_topics: set[str] = set()
        """Topics that changed while the shard was loading."""

    @property
    def serving(self) -> bool:
        return self._phase is Phase.SERVING and self._host.state.leads

    @property
    def ended(self) -> bool:
        return self._phase is Phase.ENDED

    @property
    def waiting(self) -> int:
        """Requests that have no answer yet."""
        return len(self._waiting)

    # Serving

    def submit(self, command: GroupCommand, sink: Sink) -> Ticket:
        """Decide on a command; `sink` gets its answer, before this returns or later. Raises where nobody is served."""
        self.check()
        ticket = Ticket(self._next_ticket)
        self._next_ticket += 1
        self._waiting[ticket] = sink
        if type(command) is CommitOffsets:
            self._commits.append(self._shard.decide(command, ticket, self._clock.now_ms()))
            if len(self._commits) >= COMMITS_WAITING_MAX:
                self.settle()
            elif not self._flush_planned:
                self._flush_planned = True
                get_running_loop().call_soon(self._flush)
            return ticket
        self.settle()
        self._carry_out(self._shard.decide(command, ticket, self._clock.now_ms()))
        return ticket

    def abandon(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more. What was asked for stands, as it does in Kafka."""
        self._waiting.pop(ticket, None)

    def shard(self) -> GroupShard:
        """The groups as they are after everything that was asked so far, for reading. Raises where nobody is served.

        What is read may not be committed yet: see `committed`.
        """
        self.check()
        self.settle()
        return self._shard

    def committed(self) -> "Future[None] | None":
        """None when nothing that was decided here can be undone; else what completes then."""
        return self._host.committed(self._end)

    def check(self) -> None:
        """Raise why this shard cannot be asked."""
        if self._phase is Phase.LOADING:
            raise CoordinatorLoadInProgress()
        if self._phase is Phase.ENDED or not self._host.state.leads:
            raise NotCoordinator()

    def on_topics(self, names: Iterable[str]) -> None:
        """Topics appeared, changed or went."""
        if self._phase is Phase.LOADING:
            self._missed_topics.update(names)
        elif self._phase is Phase.SERVING:
            self.settle()
            self._carry_out(self._shard.on_topics(names, self._clock.now_ms()))

    # Life

    def view(self) -> LogView:
        """The log as it is now, to be loaded from."""
        return self._host.log.view()

    def take_in(self, events: Sequence[Event]) -> bool:
        """Apply what was read from the log, while loading; False where that is of no use any more."""
        if self._phase is Phase.ENDED:
            return False
        assert self._phase is Phase.LOADING, f"events of the log while {self._phase}"
        apply = self._shard.apply
        for event in events:
            apply(event)
        return True

    def loaded(self) -> None:
        """Everything has been read: serve."""
        assert self._phase is Phase.LOADING, f"loaded while {self._phase}"
        self._phase = Phase.SERVING
        self._carry_out(self._shard.loaded(self._clock.now_ms()))
        missed, self._missed_topics = self._missed_topics, set()
        if missed:
            self.on_topics(missed)

    def end(self) -> None:
        """Serve nobody any more: whoever waits is told to look for the coordinator elsewhere."""
        if self._phase is Phase.ENDED:
            return
        serving, self._phase = self._phase is Phase.SERVING, Phase.ENDED
        self._commits.clear()
        for timer in self._timers_set.values():
            timer.cancel()
        self._timers_set.clear()
        if serving:
            self._deliver(self._shard.unloaded().answers)
        for ticket in list(self._waiting):
            self._deliver((Answer(ticket, NotCoordinator()),))

    # Writing

    def _flush(self) -> None:
        self._flush_planned = False
        self.settle()

    def settle(self) -> None:
        """Write the commits that wait for the end of the turn."""
        while self._commits:
            self._write_commits()

    def _write_commits(self) -> None:
        """One batch of them, and the rest another time if they are too many."""
        commits = self._commits
        now_ms = self._clock.now_ms()
        builder = RecordBatchBuilder(base_timestamp_ms=now_ms)
        taken = 0
        for step in commits:
            if builder.size_bytes >= BATCH_BYTES_FULL:
                break
            add_events(builder, step, now_ms)
            taken += 1
        steps = commits[:taken]
        del commits[:taken]
        self._write(builder, steps, now_ms)

    def _carry_out(self, step: Step) -> None:
        """Write a step's events, apply them, start what it asks for, and answer when that is safe."""
        now_ms = self._clock.now_ms()
        builder = RecordBatchBuilder(base_timestamp_ms=now_ms)
        add_events(builder, step, now_ms)
        self._write(builder, (step,), now_ms)

    def _write(self, builder: RecordBatchBuilder, steps: Sequence[Step], now_ms: int) -> None:
        if builder.count:
            try:
                batch = memoryview(builder.build())
                appended = self._host.append(batch, now_ms, acks_all=True, internal=True)
            except BrokerError as error:
                self._refuse(steps, error)
                return
            assert isinstance(appended, Appended), "a coordinator's batch is not compressed, so it is appended at once"
            self._end = appended.end
            self._refusing = False
            apply = self._shard.apply
            for step in steps:
                for event in step.events:
                    apply(event)
        answers: list[Answer] = []
        for step in steps:
            answers += step.answers
            if step.timers or step.jobs:
                self._start(step)
        if answers:
            self._release(answers)

    def _start(self, step: Step) -> None:
        for timer in step.timers:
            self._set(timer)
        for job in step.jobs:
            self._run(job)

    def _refuse(self, steps: Sequence[Step], error: BrokerError) -> None:
        """The log took nothing: nothing was decided, and whoever asked is told to ask again."""
        if not self._refusing:
            self._refusing = True
            self._log.warning("group_events_refused", partition=self.partition, reason=error.wire_message)
        told = coordinator_error(error)
        answers: list[Answer] = []
        for step in steps:
            refused = self._shard.refused(step, told, self._clock.now_ms())
            assert not refused.events, "what follows a refusal is not written"
            self._start(refused)
            answers += refused.answers
        self._release(answers)

    # Answering

    def _release(self, answers: Sequence[Answer]) -> None:
        """Answer when everything written so far is committed: now, on a broker that flushes to the page cache."""
        try:
            wait = self._host.committed(self._end)
        except BrokerError as error:
            self._fail(answers, error)
            return
        if wait is None:
            self._deliver(answers)
        else:
            wait.add_done_callback(lambda done: self._came_back(done, answers))

    def _came_back(self, done: "Future[None]", answers: Sequence[Answer]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None:
            self._deliver(answers)
        else:
            self._fail(answers, error)

    def _fail(self, answers: Sequence[Answer], error: BaseException) -> None:
        """What was decided may be undone by whoever leads next, so that nobody is told of it."""
        if not isinstance(error, BrokerError):
            raise error
        told = coordinator_error(error)
        self._deliver([Answer(answer.ticket, told) for answer in answers])

    def _deliver(self, answers: Iterable[Answer]) -> None:
        take = self._waiting.pop
        for answer in answers:
            sink = take(answer.ticket, None)
            if sink is not None:
                sink(answer.reply)

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
            self.settle()
            self._carry_out(self._shard.wake(key, self._clock.now_ms()))

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
            self.settle()
            self._carry_out(self._shard.finish(result, self._clock.now_ms()))


def add_events(builder: RecordBatchBuilder, step: Step, now_ms: int) -> None:
    """Add the records of a step's events."""
    for event in step.events:
        key, value = encode_event(event)  # type: ignore[arg-type]
        builder.add(now_ms, key, value)


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
