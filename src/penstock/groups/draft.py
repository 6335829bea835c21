"""Mutable builder for a Step."""

from collections.abc import Hashable

from penstock.coordinator.step import CancelTimer, Event, Job, Reply, Response, SetTimer, Step, Ticket
from penstock.model.errors import BrokerError


class Draft:
    """Collects the events, responses, timers and jobs of one `Step`."""

    __slots__ = ("_events", "_jobs", "_responses", "_timers", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._events: list[Event] = []
        self._responses: list[Response] = []
        self._timers: dict[Hashable, SetTimer | CancelTimer] = {}
        self._jobs: list[Job] = []

    @property
    def writes(self) -> bool:
        """Whether the step has events, whose append may fail."""
        return bool(self._events)

    def append(self, event: Event) -> None:
        self._events.append(event)

    def respond(self, ticket: Ticket, reply: Reply | BrokerError) -> None:
        self._responses.append(Response(ticket, reply))

    def set_timer(self, key: Hashable, at_ms: int) -> None:
        """Set a timer. The last call for a key wins, here and in `cancel_timer`."""
        self._timers[key] = SetTimer(key, at_ms)

    def cancel_timer(self, key: Hashable) -> None:
        self._timers[key] = CancelTimer(key)

    def add(self, step: Step) -> None:
        """Append another step to this one."""
        self._events += step.events
        self._responses += step.responses
        self._jobs += step.jobs
        for timer in step.timers:
            self._timers[timer.key] = timer

    def step(self) -> Step:
        return Step(
            events=tuple(self._events),
            responses=tuple(self._responses),
            timers=tuple(self._timers.values()),
            jobs=tuple(self._jobs),
        )
