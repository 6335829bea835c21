"""Mutable builder for a Step."""

from collections.abc import Hashable

from penstock.coordinator.step import CancelTimer, Effect, Event, Job, Reply, Response, SetTimer, Step, Ticket
from penstock.model.errors import BrokerError


class Draft:
    """Collects the events, responses, timers, jobs and effects of one `Step`."""

    __slots__ = ("_effects", "_events", "_jobs", "_responses", "_timers", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._events: list[Event] = []
        self._responses: list[Response] = []
        self._timers: dict[Hashable, SetTimer | CancelTimer] = {}
        self._jobs: list[Job] = []
        self._effects: list[Effect] = []

    @property
    def writes(self) -> bool:
        """Whether the step has events, whose append may fail."""
        return bool(self._events)

    def append(self, event: Event) -> None:
        self._events.append(event)

    def respond(self, ticket: Ticket, reply: Reply | BrokerError) -> None:
        self._responses.append(Response(ticket, reply))

    def perform(self, effect: Effect) -> None:
        self._effects.append(effect)

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
        self._effects += step.effects
        for timer in step.timers:
            self._timers[timer.key] = timer

    def step(self) -> Step:
        return Step(
            events=tuple(self._events),
            responses=tuple(self._responses),
            timers=tuple(self._timers.values()),
            jobs=tuple(self._jobs),
            effects=tuple(self._effects),
        )
