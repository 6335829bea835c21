"""Works of transactions: small and large ones, reading past aborted ones, opening many ids. Brokers of their own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.client_program import run_client
from bench.comparison import cost, costed, counted, moved
from bench.group_wire import NOT_YET, GroupWire, Refused
from bench.groups import gathered, reported
from bench.samples import Sample
from bench.sides import Contender, Meter, Side, fresh_side, started_sides, turns
from bench.works import Sizes
from penstock.testing.processes import Deadline
from penstock.wire.api import find_coordinator, init_producer_id

PARTS = ("txn-small", "txn-bulk", "txn-consume", "txn-ids")
SMALL_RECORDS, SMALL_PARTITIONS = 10, 3
BULK_RECORDS = 10_000
HALF_RECORDS = 2_000
READS = 5
SETTLE_SECONDS_MAX = 60.0
RETRY_SECONDS = 0.05
IDS_CONNECTIONS = 50
TIMEOUT_MS = 60_000
FIND, INIT = 3, 4
"""Versions that both brokers know."""
KEY_TRANSACTION = 1

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One execution of the load program on a topic of its own."""

    name: str
    mode: str
    transactions: int
    records: int
    partitions: int = 1
    arguments: tuple[str, ...] = ()

    def run(self, side: Side, topic: str) -> dict[str, float]:
        counts = ("--messages", str(self.transactions * self.records), "--per-transaction", str(self.records))
        more = ("--partitions", str(self.partitions), *self.arguments)
        return costed(side, lambda: run_client(self.mode, side.bootstrap, topic, *counts, *more))


def measure_transactions(
    parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say
) -> Iterator[Sample]:
    if parts & {"txn-small", "txn-bulk", "txn-consume"}:
        with started_sides(contenders, data) as sides:
            for side in sides:
                asyncio.run(await_coordinator(side.bootstrap))
            yield from compared(chosen_works(parts, sizes), sides, sizes, say)
            if "txn-consume" in parts:
                yield from half_aborted(sides, sizes, say)
    if "txn-ids" in parts:
        yield from opened_ids(contenders, sizes, data, say)


def chosen_works(parts: set[str], sizes: Sizes) -> list[Work]:
    small = Work(
        name="txn-small",
        mode="exchanges",
        transactions=sizes.transactions,
        records=SMALL_RECORDS,
        partitions=SMALL_PARTITIONS,
    )
    by_part = {
        "txn-small": (
            small,
            replace(
                small,
                name="txn-small-librdkafka",
                mode="transactions",
                transactions=sizes.transactions_librdkafka,
                arguments=("--linger-ms", "0"),
            ),
        ),
        "txn-bulk": tuple(
            Work(
                name=name,
                mode="exchanges",
                transactions=sizes.transactions_bulk,
                records=BULK_RECORDS,
                arguments=arguments,
            )
            for name, arguments in (("txn-bulk-plain", ("--plain",)), ("txn-bulk", ()))
        ),
    }
    return [work for part, works in by_part.items() if part in parts for work in works]


def compared(works: Sequence[Work], sides: Sequence[Side], sizes: Sizes, say: Say) -> Iterator[Sample]:
    """Each work on each side in turn; the side that begins changes from round to round."""
    for number in range(-sizes.warm_rounds, sizes.rounds):
        for work in works:
            for side in sides if number % 2 == 0 else reversed(sides):
                topic = f"bench-{work.name}-{number + sizes.warm_rounds}"
                side.create_topics([topic], partitions=work.partitions)
                sample = Sample(work=work.name, side=side.name, round=number, values=work.run(side, topic))
                side.delete_topics([topic])
                yield from counted(sample, say)


def half_aborted(sides: Sequence[Side], sizes: Sizes, say: Say) -> Iterator[Sample]:
    """One topic on each side, with every second transaction aborted, read repeatedly."""
    topic, count = "bench-half-aborted", sizes.transactions_half
    filling = Work(
        name="fill", mode="exchanges", transactions=count, records=HALF_RECORDS, arguments=("--half-aborted",)
    )
    for side in sides:
        side.create_topics([topic], partitions=1)
        filling.run(side, topic)
    # One transaction more was committed before the clock started.
    committed = (1 + (count + 1) // 2) * HALF_RECORDS
    for number, side in turns(sides, sizes.rounds, sizes.warm_rounds):
        values = costed(side, lambda: read_repeatedly(side, topic, committed))  # noqa: B023
        yield from counted(Sample(work="txn-consume", side=side.name, round=number, values=values), say)


def read_repeatedly(side: Side, topic: str, messages: int) -> dict[str, float]:
    """Several reads count as one: a single read is too short to compare the sides."""
    reads = [run_client("consume", side.bootstrap, topic, "--messages", str(messages)) for _ in range(READS)]
    messages, size, seconds = (sum(values[name] for values in reads) for name in ("messages", "bytes", "seconds"))
    return moved(messages, size, seconds)


def opened_ids(contenders: Sequence[Contender], sizes: Sizes, data: Path, say: Say) -> Iterator[Sample]:
    """From the first request for a producer id to the last response, and the broker's memory after it."""
    for number, contender in turns(contenders, sizes.rounds):
        with fresh_side(contender, data) as side:
            side.start()
            asyncio.run(await_coordinator(side.bootstrap))
            os.sync()
            meter = Meter(side)
            seconds = asyncio.run(open_all(side.bootstrap, sizes.transactional_ids))
            values = {"open_seconds": seconds, **cost(meter.read(), {})}
            yield reported(say, "txn-ids", side, number, **values)


async def open_all(bootstrap: str, count: int) -> float:
    names = iter([f"opened-{index}" for index in range(count)])
    wires = [await GroupWire.open(bootstrap) for _ in range(IDS_CONNECTIONS)]

    async def open_some(wire: GroupWire) -> None:
        for name in names:
            await open_id(wire, name)

    began = time.perf_counter()
    await gathered([open_some(wire) for wire in wires])
    seconds = time.perf_counter() - began
    for wire in wires:
        await wire.close()
    return seconds


async def open_id(wire: GroupWire, name: str) -> None:
    """Find the coordinator and get a producer id from it, as a client does at its start."""
    finding = find_coordinator.Request(key=name, key_type=KEY_TRANSACTION)
    opening = init_producer_id.Request(
        transactional_id=name, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )
    deadline = Deadline(SETTLE_SECONDS_MAX)
    while True:
        found = await wire.call(find_coordinator, FIND, finding)
        code = found.error_code
        if code == 0:
            code = (await wire.call(init_producer_id, INIT, opening)).error_code
        if code == 0:
            return
        if code not in NOT_YET or deadline.passed:
            raise Refused(f"{name} was refused with error code {code}")
        await asyncio.sleep(RETRY_SECONDS)


async def await_coordinator(bootstrap: str) -> None:
    """Wait until an id can be opened: the first request creates the internal topic."""
    wire = await GroupWire.open(bootstrap)
    await open_id(wire, "warm-up")
    await wire.close()
