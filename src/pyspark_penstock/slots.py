"""Which transactional id an attempt of a task writes under.

Spark runs a task several times: retries and speculative attempts have an attempt number each, but a stage that is run
again because an executor with shuffle files was lost starts at number 0 while tasks of its first run still write, and
Python is not told the number of the stage's run. Two attempts under one id would fence each other. A new id for each
attempt would fill the brokers' memory.

So each task has slots, an id for each. An attempt begins at a slot that Spark's id of the attempt chooses, and passes
over those whose transaction is open: it belongs to an attempt that is writing or has reported to the driver. An attempt
that is fenced before it has sent a row takes the next slot. What is left is an attempt that stalls between its look at
a slot and its request for it, while another opens its transaction in that slot: it aborts that transaction, which the
driver finds before it decides, and the batch fails whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from pyspark_penstock.link import BrokerLink
from pyspark_penstock.sink_state import SinkError
from pyspark_penstock.txn_calls import REPLACED, Described, Producer, add_partitions, described, init_producer

SLOTS_MAX = 100


class NoSlot(SinkError):
    """Every slot of a task has an open transaction."""


@dataclass(frozen=True, slots=True)
class Look:
    """Answered with whether the slot's transaction is open."""

    slot: int


@dataclass(frozen=True, slots=True)
class Take:
    """Become the slot's producer and open a transaction; answered with whether that was fenced before it was open."""

    slot: int


def slot_steps(first: int) -> Generator[Look | Take, bool, int]:
    """How an attempt comes to its slot, from ``first`` on: each step is answered by the caller; returns the slot."""
    for slot in range(first, first + SLOTS_MAX):
        is_open = yield Look(slot)
        if is_open:
            continue
        is_fenced = yield Take(slot)
        if not is_fenced:
            return slot
    raise NoSlot(
        f"{SLOTS_MAX} transactions of one task are open: attempts that were killed hold them until"
        " kafka.transaction.timeout.ms. Start the query again, which ends them"
    )


def open_in_free_slot(
    link: BrokerLink,
    name_of: Callable[[int], str],
    first: int,
    partitions: Mapping[str, Sequence[int]],
    timeout_ms: int,
    check: Callable[[Mapping[str, Described]], None],
    beside: Sequence[str] = (),
) -> tuple[int, Producer]:
    """Begin a transaction with these partitions in the first free slot, from ``first`` on; the slot and its producer.

    ``check`` is called before each slot is taken, after it was seen to be free: a transaction that was committed before
    the look is known to be by the time of the check. It is given what the look found out about the transactional ids
    ``beside``. What it raises is raised.
    """
    steps = slot_steps(first)
    producer: Producer | None = None
    looked: Mapping[str, Described] = {}
    step = next(steps)
    while True:
        name = name_of(step.slot)
        match step:
            case Look():
                looked = described(link, [name, *beside])
                answer = name in looked and looked[name].is_open
            case Take():
                check(looked)
                producer = init_producer(link, name, timeout_ms)
                try:
                    add_partitions(link, producer, partitions)
                    answer = False
                except REPLACED:
                    answer = True
        try:
            step = steps.send(answer)
        except StopIteration as end:
            assert producer is not None, "a slot without a producer"
            return end.value, producer
