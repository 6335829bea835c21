"""A shard with a log, a clock and waiting clients: a coordinator context in memory, in one thread.

The log may refuse appends, commit them late, or lose uncommitted ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from penstock.coordinator.context import Shard
from penstock.coordinator.step import Effect, Event, Job, Reply, SetTimer, Step, Ticket
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotCoordinator

START_MS = 1_700_000_000_000
TIMERS_MAX = 10_000

S = TypeVar("S", bound=Shard)


class ShardRig(ABC, Generic[S]):
    """One partition of a coordinator's topic. A subclass creates its shard and adds its clients' requests."""

    def __init__(self, *, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self.log: list[Event] = []
        self.committed = 0
        """The number of committed events."""
        self.refusing: BrokerError | None = None
        """While set, every append fails with this error."""
        self.holding = False
        """While set, appended events are not committed: responses and effects wait for `commit`."""
        self.held: list[Step] = []
        self.timers: dict[Hashable, int] = {}
        self.jobs: list[Job] = []
        self.jobs_wait = False
        """While set, jobs run only when a test calls `run_jobs`."""
        self.tickets = 0
        self.replies: dict[int, Reply | BrokerError] = {}
        self.dropped: set[int] = set()
        """Requests whose coordinator died before it responded."""
        self.shard = self.new_shard()
        self.run(self.shard.loaded(now_ms))

    @abstractmethod
    def new_shard(self) -> S: ...

    def as_recorded(self, event: Event) -> Event:
        """An event as it is read from its record."""
        return event

    def compacted(self) -> list[Event]:
        """The log after compaction, if the rig implements it."""
        return self.log

    def perform(self, effect: Effect) -> None:
        raise AssertionError(f"unknown effect {effect}")

    # The coordinator context

    def send(self, command: Any) -> int:
        """Submit a command; returns the ticket of its response."""
        self.tickets += 1
        ticket = self.tickets
        self.run(self.shard.decide(command, Ticket(ticket), self.now_ms))  # type: ignore[attr-defined]
        return ticket

    def ask(self, command: Any) -> Any:
        """Submit a command whose response is immediate."""
        return self.replies[self.send(command)]

    def run(self, step: Step) -> None:
        """Append and apply a step's events, and respond when they are committed."""
        if step.events and self.refusing is not None:
            step = self.shard.refused(step, self.refusing, self.now_ms)
            assert not step.events, "the step after a refusal has no events"
            assert not step.effects, "the step after a refusal has no effects"
        for event in step.events:
            self.log.append(event)
            self.shard.apply(event)  # type: ignore[attr-defined]
        for timer in step.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.at_ms
            else:
                self.timers.pop(timer.key, None)
        self.jobs += step.jobs
        self.held.append(step)
        if not self.holding:
            self.commit()
        if not self.jobs_wait:
            self.run_jobs()

    def run_jobs(self) -> None:
        while self.jobs:
            self.run(self.shard.finish(self.jobs.pop(0).run(), self.now_ms))  # type: ignore[attr-defined]

    def commit(self) -> None:
        """Commit all appended events: send responses and perform effects."""
        self.committed = len(self.log)
        held, self.held = self.held, []
        for step in held:
            for response in step.responses:
                self._respond(response.ticket, response.reply)
            for effect in step.effects:
                self.perform(effect)

    def _respond(self, ticket: Ticket, reply: Reply | BrokerError) -> None:
        assert ticket not in self.replies, f"two responses to request {ticket}"
        self.replies[ticket] = reply

    # Time

    def pass_ms(self, duration_ms: int) -> None:
        """Advance the clock; timers expire when they are due."""
        end_ms = self.now_ms + duration_ms
        for _ in range(TIMERS_MAX):
            due = [(at_ms, order, key) for order, (key, at_ms) in enumerate(self.timers.items()) if at_ms <= end_ms]
            if not due:
                self.now_ms = end_ms
                return
            at_ms, _, key = min(due, key=lambda item: item[:2])
            del self.timers[key]
            self.now_ms = max(self.now_ms, at_ms)
            self.run(self.shard.wake(key, self.now_ms))
        raise AssertionError("timers without end")

    # Faults

    def restart(self) -> None:
        """The broker restarts cleanly: appended events are committed, waiting requests fail."""
        self.commit()
        self.run(self.shard.unloaded())
        self.commit()
        self._reload(self.log)

    def lose_leadership(self, survives: int = 0) -> None:
        """Another broker becomes the leader, with this many uncommitted events; waiting requests fail."""
        held, self.held = self.held, []
        for step in held:
            for response in step.responses:
                self._respond(response.ticket, NotCoordinator())
        for response in self.shard.unloaded().responses:
            self._respond(response.ticket, response.reply)
        self.crash(survives)

    def crash(self, survives: int = 0, *, compacted: bool = False) -> None:
        """The broker dies: this many uncommitted events survive, and no response is sent."""
        del self.log[self.committed + survives :]
        self.held.clear()
        self.dropped.update(set(range(1, self.tickets + 1)) - self.replies.keys())
        self._reload(self.compacted() if compacted else self.log)

    def _reload(self, events: list[Event]) -> None:
        self.committed = len(self.log)
        self.timers.clear()
        self.jobs.clear()
        self.shard = self.new_shard()
        self.replay(self.shard, events)
        self.run(self.shard.loaded(self.now_ms))

    def replay(self, shard: S, events: list[Event]) -> None:
        """Apply the events of the log, as read from their records."""
        for event in events:
            shard.apply(self.as_recorded(event))  # type: ignore[attr-defined]
