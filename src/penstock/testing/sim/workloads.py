"""The clients of a simulation, by name: who does what."""

from __future__ import annotations

from collections.abc import Callable

from penstock.testing.sim.actors import Worker
from penstock.testing.sim.consumers import Reader
from penstock.testing.sim.links import Link
from penstock.testing.sim.observer import Observer
from penstock.testing.sim.plan import EVENTS, LEDGER, Plan
from penstock.testing.sim.producers import IdempotentProducer, PlainProducer

WORKLOADS = (
    "produce",
    "idempotent produce",
    "consume",
    "look",
)
"""What a run must have done, each at least once."""


def workers_of(plan: Plan) -> dict[str, Callable[[Link], Worker]]:
    """What makes the worker of each client."""
    return {
        "plain-1": lambda link: PlainProducer(link, plan, acks=1),
        "plain-2": lambda link: PlainProducer(link, plan, acks=-1),
        "idempotent-1": lambda link: IdempotentProducer(link, plan),
        "idempotent-2": lambda link: IdempotentProducer(link, plan),
        "reader-1": lambda link: Reader(link, plan, topic=EVENTS, committed=False, sessions=True),
        "reader-2": lambda link: Reader(link, plan, topic=LEDGER, committed=True, sessions=False),
        "observer": lambda link: Observer(link, plan),
    }
