"""The clients of a simulation, by name: who does what."""

from __future__ import annotations

from collections.abc import Callable

from penstock.testing.sim.actors import Worker
from penstock.testing.sim.administrators import Administrator, Reassigner
from penstock.testing.sim.consumers import Reader
from penstock.testing.sim.links import Link
from penstock.testing.sim.members import ClassicMember, ConsumerMember
from penstock.testing.sim.observer import Observer
from penstock.testing.sim.plan import EVENTS, LEDGER, PAIRS, Plan, rack_name
from penstock.testing.sim.producers import IdempotentProducer, PlainProducer, UnflushedProducer
from penstock.testing.sim.transactors import Copier, Transactor

WORKLOADS = (
    "produce",
    "idempotent produce",
    "unflushed produce",
    "unflushed read",
    "consume",
    "classic-readers join",
    "classic-readers poll",
    "classic-readers commit",
    "consumer-readers join",
    "consumer-readers poll",
    "consumer-readers commit",
    "transaction v1",
    "transaction v2",
    "copy",
    "topic change",
    "look",
)
"""What a run must have done, each at least once."""


def rack_of(plan: Plan, broker_id: int) -> str:
    """The rack of a reader beside one of the brokers; none where there is one broker."""
    return rack_name(broker_id) if plan.replicated else ""


def workers_of(plan: Plan) -> dict[str, Callable[[Link], Worker]]:
    """What makes the worker of each client."""
    workers: dict[str, Callable[[Link], Worker]] = {
        "plain-1": lambda link: PlainProducer(link, plan, acks=1),
        "plain-2": lambda link: PlainProducer(link, plan, acks=-1),
        "idempotent-1": lambda link: IdempotentProducer(link, plan),
        "idempotent-2": lambda link: IdempotentProducer(link, plan),
        "unflushed": lambda link: UnflushedProducer(link, plan),
        "reader-1": lambda link: Reader(link, plan, topic=EVENTS, committed=False, sessions=True),
        "reader-2": lambda link: Reader(
            link, plan, topic=LEDGER, committed=True, sessions=False, rack=rack_of(plan, 2)
        ),
        "classic-1": lambda link: ClassicMember(link, plan),
        "classic-2": lambda link: ClassicMember(link, plan),
        "consumer-1": lambda link: ConsumerMember(link, plan),
        "consumer-2": lambda link: ConsumerMember(link, plan),
        "transactor-1": lambda link: Transactor(link, plan, transactional_id="first", version=1),
        "transactor-2": lambda link: Transactor(link, plan, transactional_id="second", version=2),
        # Two that have one transactional id: each start of one fences the other.
        "transactor-3": lambda link: Transactor(link, plan, transactional_id="shared", version=2),
        "transactor-4": lambda link: Transactor(link, plan, transactional_id="shared", version=1),
        "copier-0": lambda link: Copier(link, plan, index=0, version=1),
        "copier-1": lambda link: Copier(link, plan, index=1, version=2),
        "administrator": lambda link: Administrator(link, plan),
        "observer": lambda link: Observer(link, plan),
    }
    if plan.replicated:
        workers["pairs"] = lambda link: PlainProducer(link, plan, acks=-1, topic=PAIRS)
        workers["reader-3"] = lambda link: Reader(
            link, plan, topic=PAIRS, committed=False, sessions=True, rack=rack_of(plan, 3)
        )
    if plan.reassigned:
        workers["reassigner"] = lambda link: Reassigner(link, plan)
    return workers
