"""Chooses the transactional id of an attempt of a task.

Spark runs a task several times: retries and speculative attempts have an attempt number each, but a stage that is run
again because an executor with shuffle files was lost starts at number 0 while tasks of its first run still write, and
Python does not know the number of the stage's run. Two attempts under one id would fence each other. A new id for each
attempt would fill the brokers' memory.

So each task has slots, an id for each. An attempt begins at a slot that Spark's id of the attempt determines, and skips
slots with an open transaction, which belongs to an attempt that is writing or has reported to the driver. An attempt
that is fenced before it has sent a row takes the next slot. One case remains: an attempt stalls between its check of a
slot and its request for it, while another opens its transaction in that slot. It aborts that transaction; the driver
finds that before it decides, and the batch fails.
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
class CheckSlot:
    """Check whether the slot's transaction is open; the result is sent back."""

    slot: int


@dataclass(frozen=True, slots=True)
class TakeSlot:
    """Become the slot's producer and open a transaction; the result is whether it was fenced before it was open."""

    slot: int


def slot_steps(first: int) -> Generator[CheckSlot | TakeSlot, bool, int]:
    """The steps of an attempt to its slot, from ``first`` on: the caller sends the result of each; returns the slot."""
    for slot in range(first, first + SLOTS_MAX):
        is_open = yield CheckSlot(slot)
        if is_open:
            continue
        is_fenced = yield TakeSlot(slot)
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

    ``check`` is called after a slot was found free and before it is taken, so it sees every commit before that. It gets
    the described transactions, including those of the transactional ids ``beside``. Its exceptions propagate.
    """
    steps = slot_steps(first)
    producer: Producer | None = None
    looked: Mapping[str, Described] = {}
    step = next(steps)
    while True:
        name = name_of(step.slot)
        match step:
            case CheckSlot():
                looked = described(link, [name, *beside])
                result = name in looked and looked[name].is_open
            case TakeSlot():
                check(looked)
                producer = init_producer(link, name, timeout_ms)
                try:
                    add_partitions(link, producer, partitions)
                    result = False
                except REPLACED:
                    result = True
        try:
            step = steps.send(result)
        except StopIteration as end:
            assert producer is not None, "a slot without a producer"
            return end.value, producer
