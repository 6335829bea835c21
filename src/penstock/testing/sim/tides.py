"""A topic that is drained and resumes while brokers fail: producers that retry until they know, and a check at the end.

A record of a drained partition is found in another one, so the history of other topics cannot hold it. Every record
that was acknowledged is in the topic once, every other at most once, and within a partition the records that a producer
sent to one partition are in the order of sending.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from penstock.controller.configs import ResourceType, Step
from penstock.model.topic import PARTITIONS_ACTIVE
from penstock.testing.histories import Outcome
from penstock.testing.sim.actors import Worker
from penstock.testing.sim.administrators import TIMEOUT_MS, TRIED_AGAIN
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.consumers import EARLIEST, Seen, end_offset, read_everything
from penstock.testing.sim.links import UNDECIDED, Code, Link
from penstock.testing.sim.plan import Plan, Topic
from penstock.testing.sim.producers import (
    INIT_PRODUCER_ID_VERSION,
    NOT_APPENDED,
    batch_of,
    send_batch,
)
from penstock.testing.sim.recording import key_of
from penstock.testing.sim.transactors import ABORTS, BATCHES_MAX, Doomed, Fenced, Transactions
from penstock.wire.api import create_partitions, delete_records, incremental_alter_configs, init_producer_id

TIDE = Topic(name="tide", partitions=4)
GROWN_MAX = 6
"""Partitions after growth; producers use those that the topic was created with."""
ALTER_VERSION = 1
CREATE_PARTITIONS_VERSION = 3
TURN_PAUSE_MAX_S = 4.0
SEND_PAUSE_MAX_S = 0.3
RECORDS_MAX = 3
GROWS = 0.35
DISCARDS = 0.3
DELETE_RECORDS_VERSION = 2
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40


class Tide:
    """What was sent to the topic, and how it was changed."""

    def __init__(self) -> None:
        self.sent: dict[int, tuple[str, int]] = {}
        """By value: producer and the partition that it was sent to."""
        self.acknowledged: set[int] = set()
        self.aborted: set[int] = set()
        """Values of transactions that are known not to be committed."""
        self.partitions = TIDE.partitions
        self.counts: Counter[str] = Counter()
        self.lives = 0
        self.discarded: dict[int, list[tuple[int, int]]] = {}
        """What was read of partitions before it was discarded."""
        self.starts: dict[int, int] = {}
        """Up to where each partition was."""
        self.discards: Counter[int] = Counter()
        """How often records of each partition were to be deleted."""

    async def start_of(self, link: Link, index: int) -> int:
        """Where the records begin that were not discarded: a log that begins later had none in between."""
        while True:
            try:
                earliest = await end_offset(link, TIDE.name, index, committed=False, timestamp=EARLIEST)
            except Disconnected:
                earliest = -1
            if earliest >= 0:
                return max(earliest, self.starts.get(index, 0))
            await link.backoff()

    def check(self, seen: Seen) -> Iterator[str]:
        """What is wrong with the records of the topic."""
        found: Counter[int] = Counter()
        for key, kept in seen.items():
            pairs = [*self.discarded.get(int(key.rpartition("/")[2]), ()), *kept]
            last: dict[tuple[str, int], int] = {}
            for offset, value in pairs:
                found[value] += 1
                sender = self.sent.get(value)
                if sender is None:
                    yield f"{value} at {offset} of {key} was not sent"
                elif last.get(sender, 0) > value:
                    yield f"{value} at {offset} of {key} comes after {last[sender]} of the same producer and partition"
                else:
                    last[sender] = value
        doubled = sorted(value for value, count in found.items() if count > 1)
        lost = sorted(value for value in self.acknowledged if value not in found)
        shown = sorted(self.aborted & found.keys())
        if shown:
            yield f"{TIDE.name} shows values of aborted transactions: {shown[:5]}"
        if doubled:
            yield f"{TIDE.name} has values twice: {doubled[:5]}"
        if lost:
            yield f"{TIDE.name} has lost acknowledged values: {[(each, self.sent[each]) for each in lost[:5]]}"


class LastSends:
    """Whether the records of a producer's last batch in each partition may be deleted since it was sent.

    A broker then forgets the producer's sequence, as in Kafka: one that crashes, or copies the log from its new start,
    does not know it any more. The target of a partition that is drained again may know an earlier one from the last
    time, and refuses what follows the forgotten batch as out of order.
    """

    def __init__(self, tide: Tide) -> None:
        self._tide = tide
        self._discards: dict[int, int] = {}
        """By partition, as of before its last batch."""

    def seen_now(self, index: int) -> int:
        return self._tide.discards[index]

    def sent(self, index: int, seen: int) -> None:
        """Note that a batch was acknowledged, with what `seen_now` returned before it was sent."""
        self._discards[index] = seen

    def may_be_forgotten(self, index: int) -> bool:
        return self._tide.discards[index] > self._discards.get(index, 0)


class TideProducer:
    """An idempotent producer that sends each batch until it knows."""

    def __init__(self, link: Link, plan: Plan, tide: Tide) -> None:
        self._link = link
        self._plan = plan
        self._tide = tide
        tide.lives += 1
        self._name = f"{link.name}, life {tide.lives}"

    async def run(self) -> None:
        link = self._link
        request = init_producer_id.Request(transactional_id=None)
        while not self._plan.stopping:
            try:
                response = await link.ask(link.any_broker(), init_producer_id, INIT_PRODUCER_ID_VERSION, request)
            except Disconnected:
                await link.backoff()
                continue
            if response.error_code:
                await link.backoff()
                continue
            await self._send_with(response.producer_id, response.producer_epoch)

    async def _send_with(self, producer_id: int, epoch: int) -> None:
        link, tide = self._link, self._tide
        sequences: Counter[int] = Counter()
        last_sends = LastSends(tide)
        while not self._plan.stopping:
            index = TIDE.any_index(link.random)
            discards = last_sends.seen_now(index)
            values = link.recording.values(link.random.randrange(1, RECORDS_MAX + 1))
            tide.sent.update((value, (self._name, index)) for value in values)
            batch = batch_of(
                link, values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequences[index]
            )
            if not await self._insist(index, batch, last_sends):
                return
            last_sends.sent(index, discards)
            tide.acknowledged.update(values)
            tide.counts["tide produce"] += 1
            sequences[index] += len(values)
            await asyncio.sleep(link.random.random() * SEND_PAUSE_MAX_S)

    async def _insist(self, index: int, batch: bytes, last_sends: LastSends) -> bool:
        link = self._link
        while True:
            try:
                code, _ = await send_batch(link, TIDE.name, index, batch)
            except Disconnected:
                await link.backoff()
                continue
            if code == Code.NONE:
                return True
            if code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER and last_sends.may_be_forgotten(index):
                return False
            if code not in UNDECIDED and code not in NOT_APPENDED:
                link.recording.finding(f"{self._name}: a produce to {TIDE.name}-{index} got {code}", key=None)
                return False
            await link.backoff()


class TideTransactor:
    """Sends values to several partitions in transactions, of which some are aborted."""

    def __init__(self, link: Link, plan: Plan, tide: Tide, *, transactional_id: str, version: int) -> None:
        self._link = link
        self._plan = plan
        self._tide = tide
        self._version = version
        tide.lives += 1
        self._name = f"{link.name}, life {tide.lives}"
        self._last_sends = LastSends(tide)
        self._transactions = Transactions(
            link,
            plan,
            transactional_id=transactional_id,
            version=version,
            may_be_forgotten=self._last_sends.may_be_forgotten,
        )

    async def run(self) -> None:
        link, tide, transactions = self._link, self._tide, self._transactions
        while not self._plan.stopping:
            if not await transactions.prepare():
                continue
            sent: list[int] = []
            outcome = Outcome.UNKNOWN
            try:
                for _ in range(link.random.randrange(1, BATCHES_MAX + 1)):
                    index = TIDE.any_index(link.random)
                    values = link.recording.values(link.random.randrange(1, RECORDS_MAX + 1))
                    tide.sent.update((value, (self._name, index)) for value in values)
                    sent += values
                    discards = self._last_sends.seen_now(index)
                    await transactions.send(TIDE.name, index, values)
                    self._last_sends.sent(index, discards)
                    await asyncio.sleep(link.random.random() * SEND_PAUSE_MAX_S)
                outcome = await transactions.end(commit=link.random.random() >= ABORTS)
            except Doomed:
                await transactions.abort()
                transactions.doubtful = True
                outcome = Outcome.FAIL
            except Fenced:
                transactions.doubtful = True
                outcome = Outcome.FAIL
            if outcome is Outcome.OK:
                tide.acknowledged.update(sent)
                tide.counts[f"tide transaction v{self._version}"] += 1
            elif outcome is Outcome.FAIL:
                tide.aborted.update(sent)
            await asyncio.sleep(link.random.random() * SEND_PAUSE_MAX_S)


def tide_workers(plan: Plan, tide: Tide) -> dict[str, Callable[[Link], Worker]]:
    """What makes the worker of each client of the topic."""
    return {
        "tide-1": lambda link: TideProducer(link, plan, tide),
        "tide-2": lambda link: TideProducer(link, plan, tide),
        "tide-3": lambda link: TideTransactor(link, plan, tide, transactional_id="ebb", version=1),
        "tide-4": lambda link: TideTransactor(link, plan, tide, transactional_id="flow", version=2),
        "turner": lambda link: TideTurner(link, plan, tide),
    }


TIDE_EVENTS = ("tide produce", "tide transaction v1", "tide transaction v2", "drain", "undo")
"""What a run must have done, each at least once."""
DISCARD = "discard"
GROWTH = "growth"
"""What most runs have done: a topic grows only when all its partitions have resumed."""


class TideTurner:
    """Drains the topic's last partitions, lets them resume, and adds one now and then."""

    def __init__(self, link: Link, plan: Plan, tide: Tide) -> None:
        self._link = link
        self._plan = plan
        self._tide = tide

    async def run(self) -> None:
        link, tide = self._link, self._tide
        while not self._plan.stopping:
            await asyncio.sleep(link.random.random() * TURN_PAUSE_MAX_S)
            try:
                if link.random.random() < GROWS and tide.partitions < GROWN_MAX:
                    await self._grow()
                elif link.random.random() < DISCARDS:
                    await self._discard(link.random.randrange(1, TIDE.partitions))
                elif link.random.random() < 0.5:
                    await self._set(str(link.random.randrange(1, TIDE.partitions)))
                else:
                    await self._set(None)
            except Disconnected:
                await link.backoff()

    async def _set(self, active: str | None) -> None:
        step = Step.DELETE if active is None else Step.SET
        change = incremental_alter_configs.AlterableConfig(name=PARTITIONS_ACTIVE, config_operation=step, value=active)
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=TIDE.name, configs=[change]
        )
        request = incremental_alter_configs.Request(resources=[resource])
        response = await self._link.ask(self._link.any_broker(), incremental_alter_configs, ALTER_VERSION, request)
        [result] = response.responses
        self._note(f"active {active}", "drain" if active is not None else "undo", result.error_code)

    async def _discard(self, index: int) -> None:
        """Read a partition to its end, and delete what was read. If it is drained, it loses its log then."""
        link, tide = self._link, self._tide
        end = await end_offset(link, TIDE.name, index, committed=False)
        if end < 0 or end != await end_offset(link, TIDE.name, index, committed=True):
            return
        starts = {key_of(TIDE.name, each): 0 for each in range(TIDE.partitions)}
        starts[key_of(TIDE.name, index)] = start = await tide.start_of(link, index)
        if start >= end:
            return
        seen = await read_everything(link, (TIDE,), {**starts, key_of(TIDE.name, index): end}, starts)
        # The last response may go beyond `end`: what was produced meanwhile is not deleted.
        gone = [(offset, value) for offset, value in seen[key_of(TIDE.name, index)] if offset < end]
        tide.discarded.setdefault(index, []).extend(gone)
        tide.starts[index] = end
        tide.discards[index] += 1
        wanted = delete_records.DeleteRecordsPartition(partition_index=index, offset=end)
        topic = delete_records.DeleteRecordsTopic(name=TIDE.name, partitions=[wanted])
        request = delete_records.Request(topics=[topic], timeout_ms=TIMEOUT_MS)
        address = await link.leader(TIDE.name, index)
        response = await link.ask(address, delete_records, DELETE_RECORDS_VERSION, request)
        code = response.topics[0].partitions[0].error_code
        link.recording.line(f"{link.name}: discard {index} up to {end} got {code}")
        tide.counts[DISCARD] += not code
        if code:
            link.forget()

    async def _grow(self) -> None:
        wanted = create_partitions.CreatePartitionsTopic(
            name=TIDE.name, count=self._tide.partitions + 1, assignments=None
        )
        request = create_partitions.Request(topics=[wanted], timeout_ms=TIMEOUT_MS)
        response = await self._link.ask(self._link.any_broker(), create_partitions, CREATE_PARTITIONS_VERSION, request)
        [result] = response.results
        self._note("grow", GROWTH, result.error_code)
        if not result.error_code:
            self._tide.partitions += 1

    def _note(self, what: str, kind: str, code: int) -> None:
        link = self._link
        link.recording.line(f"{link.name}: {what} got {code}")
        if not code:
            self._tide.counts[kind] += 1
        elif code not in TRIED_AGAIN and code not in (INVALID_CONFIG, INVALID_PARTITIONS):
            # Refused where partitions are drained in another way, or have yet to resume.
            link.unexpected(f"{what} of {TIDE.name}", code)
