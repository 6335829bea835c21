"""What a shard gives back for a command: events to write, responses to send, timers to set.

A shard decides on a command and changes nothing but its short-lived lists of waiting requests; what it has to remember
are events. The context of the partition (`coordinator.context`) writes a step's events to the log in one batch, applies
them to the shard at once, and sends the step's responses when the batch is committed. So a response never reports what
a crash could undo, and the state is always what replaying the log would make it.

Terms: a request is a command with a ticket. The shard's `Reply`, or an error, is the request's `Result`; a `Response`
is a result with the ticket it is for. Handlers in `api` make the response of the Kafka protocol from the result.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NewType, Protocol

from penstock.model.errors import BrokerError

Ticket = NewType("Ticket", int)
"""Names a request that waits for its reply; the context gives each command one."""


class Event(Protocol):
    """A fact to be remembered: a record of the coordinator's partition. The latest of a key counts."""


class Reply(Protocol):
    """What a request is answered with, in the coordinator's own terms; an API handler puts it on the wire."""


Result = Reply | BrokerError
"""What came of a request: a reply, or why there is none."""


@dataclass(frozen=True, slots=True)
class Response:
    """A reply, or the failure, for one waiting request. The command's own ticket or one that has waited for long."""

    ticket: Ticket
    reply: Result


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Wake the coordinator with `key` at a time; a timer of the same key is replaced."""

    key: Hashable
    at_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Do not wake it; harmless when there is no such timer."""

    key: Hashable


class JobDone(Protocol):
    """What a job found out, for the group that asked for it."""

    @property
    def group(self) -> str: ...

    @property
    def fault(self) -> str | None:
        """What went wrong, for the log: a bug. The coordinator tries again later."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """Work too long for the loop: the context runs it in a thread, and hands what it returns back to the coordinator.

    It computes on values that nobody changes, and never raises. It runs whatever becomes of its step's events: what
    it finds is compared with the group as it is then.
    """

    group: str
    run: Callable[[], JobDone]


class Effect(Protocol):
    """Something to be done outside once the step's events are committed; what comes of it is told by a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision. Events are written together or not at all; responses wait for them; timers and jobs start at once.

    Effects wait as responses do, and are dropped where the events were not written or may be undone.
    """

    events: tuple[Event, ...] = ()
    responses: tuple[Response, ...] = ()
    timers: tuple[SetTimer | CancelTimer, ...] = ()
    jobs: tuple[Job, ...] = ()
    effects: tuple[Effect, ...] = ()

    def then(self, other: "Step") -> "Step":
        """Both, in order."""
        return Step(
            events=self.events + other.events,
            responses=self.responses + other.responses,
            timers=self.timers + other.timers,
            jobs=self.jobs + other.jobs,
            effects=self.effects + other.effects,
        )


NOTHING = Step()


def failed(ticket: Ticket, error: BrokerError) -> Step:
    """Nothing but the failure of a request."""
    return Step(responses=(Response(ticket, error),))
