"""A step, the result of a shard's decision on a command: events to append, responses, timers.

A decision changes only the lists of requests that wait; every other change is an event. The context of the partition
(`coordinator.context`) appends a step's events to the log in one batch, applies them at once, and sends the responses
when the batch is committed. So a crash cannot undo what a response says, and the state always equals a replay of the
log.

Terms: a request is a command with a ticket. The shard's `Reply`, or an error, is the request's `Result`; a `Response`
is a result with the ticket it is for. Handlers in `api` make the response of the Kafka protocol from the result.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NewType, Protocol

from penstock.model.errors import BrokerError

Ticket = NewType("Ticket", int)
"""Identifies a request that waits for its response; the context assigns one to each command."""


class Event(Protocol):
    """A change of state, and a record of the coordinator's partition. The latest of a key counts."""


class Reply(Protocol):
    """The result of a request, independent of the wire format; an API handler encodes it."""


Result = Reply | BrokerError
"""The result of a request: a reply or an error."""


@dataclass(frozen=True, slots=True)
class Response:
    """The result for one request: the command's own, or one that has been waiting."""

    ticket: Ticket
    reply: Result


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call the coordinator with `key` at a time; replaces a timer of the same key."""

    key: Hashable
    at_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Cancel a timer, if it is set."""

    key: Hashable


class JobDone(Protocol):
    """The result of a job, for the group that started it."""

    @property
    def group(self) -> str: ...

    @property
    def fault(self) -> str | None:
        """The description of an exception, for the log: a bug. The coordinator retries later."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """A long computation: the context runs it in a thread, and passes the result to the coordinator.

    It works on immutable values and never raises. It runs even if its step's events are refused; the group checks
    whether the result still applies.
    """

    group: str
    run: Callable[[], JobDone]


class Effect(Protocol):
    """An action outside the coordinator, run once the step's events are committed. A command reports its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision. Events are appended in one batch; responses wait for its commit; timers and jobs start at once.

    Effects wait as responses do, and are dropped if the events are not committed.
    """

    events: tuple[Event, ...] = ()
    responses: tuple[Response, ...] = ()
    timers: tuple[SetTimer | CancelTimer, ...] = ()
    jobs: tuple[Job, ...] = ()
    effects: tuple[Effect, ...] = ()

    def then(self, other: "Step") -> "Step":
        """Both steps as one, in order."""
        return Step(
            events=self.events + other.events,
            responses=self.responses + other.responses,
            timers=self.timers + other.timers,
            jobs=self.jobs + other.jobs,
            effects=self.effects + other.effects,
        )


NOTHING = Step()


def failed(ticket: Ticket, error: BrokerError) -> Step:
    """A step that only fails a request."""
    return Step(responses=(Response(ticket, error),))
