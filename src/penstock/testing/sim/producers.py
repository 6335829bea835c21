"""Producers of a simulation: plain ones that never retry, and idempotent ones that retry until they know."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from penstock.model.ids import ProducerEpoch, ProducerId
from penstock.testing.histories import Outcome, Send
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.consumers import Fetcher
from penstock.testing.sim.links import ELSEWHERE, PERHAPS_KEPT, UNDECIDED, Code, Link, NotSent
from penstock.testing.sim.plan import EVENTS, UNFLUSHED, Plan, Topic
from penstock.testing.sim.recording import key_of
from penstock.wire.api import init_producer_id, produce
from penstock.wire.records import Record, build_batch

PRODUCE_VERSION = 10
INIT_PRODUCER_ID_VERSION = 4
PRODUCE_TIMEOUT_MS = 2_000
BATCH_RECORDS_MAX = 4
PADDING_BYTES_MAX = 700
PAUSE_MAX_S = 0.7
UNFLUSHED_READ = 0.1
"""How often a producer that may lose records reads them again."""

NOT_APPENDED = ELSEWHERE | {Code.NOT_ENOUGH_REPLICAS}


def batch_of(
    link: Link,
    values: Sequence[int],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    keys: int = 0,
) -> bytes:
    """A batch with one record per value, of sizes that end anywhere in a sector, and with one of so many keys."""
    now_ms = link.clock.now_ms()
    records = [
        Record(
            number,
            now_ms,
            key_of_value(value, keys) if keys else None,
            b"%d " % value + b"." * link.random.randrange(PADDING_BYTES_MAX),
        )
        for number, value in enumerate(values)
    ]
    return bytes(
        build_batch(
            records,
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(producer_epoch),
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    )


async def send_batch(
    link: Link,
    topic: str,
    index: int,
    batch: bytes,
    *,
    acks: int = -1,
    version: int = PRODUCE_VERSION,
    transactional_id: str | None = None,
) -> tuple[int, int]:
    """Produce one batch: the error code and the base offset.

    A deposed leader that does not know it yet misses the batches that its successor has, and a client that knew neither
    may have asked it: its OUT_OF_ORDER_SEQUENCE_NUMBER is taken for the NOT_LEADER_OR_FOLLOWER that it should be.
    """
    partition = produce.PartitionProduceData(index=index, records=batch)
    request = produce.Request(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[partition])],
    )
    place = (topic, index)
    leader = await link.leader(topic, index)
    epoch = link.reign_of(leader, place)
    response = await link.ask(leader, produce, version, request)
    [result] = response.responses[0].partition_responses
    if result.error_code:
        link.recording.line(f"{link.name}: a produce to {topic}-{index} got {result.error_code}")
    if result.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER and not link.reigned(leader, place, epoch):
        link.forget()
        return Code.NOT_LEADER_OR_FOLLOWER, result.base_offset
    if result.error_code in ELSEWHERE:
        link.forget()
        hint = result.current_leader
        if hint.leader_id >= 0:
            link.learn(topic, index, hint.leader_id, hint.leader_epoch)
            for each in response.node_endpoints:
                link.learn_address(each.node_id, (each.host, each.port))
    return result.error_code, result.base_offset


def sends_of(key: str, values: Sequence[int], base_offset: int | None) -> tuple[Send, ...]:
    return tuple(
        Send(key=key, value=value, offset=None if base_offset is None else base_offset + number)
        for number, value in enumerate(values)
    )


def key_of_value(value: int, keys: int) -> bytes:
    """The key of a record, one of so many."""
    return b"%d" % (value % keys)


class PlainProducer:
    """Sends each batch once. A lost response leaves its outcome unknown."""

    def __init__(self, link: Link, plan: Plan, *, acks: int, topic: Topic = EVENTS, keys: int = 0) -> None:
        self._link = link
        self._plan = plan
        self._acks = acks
        self._topic = topic
        self._keys = keys
        self._process = link.recording.process(link.name)

    async def run(self) -> None:
        link, recording, topic = self._link, self._link.recording, self._topic
        while not self._plan.stopping:
            index = topic.any_index(link.random)
            key = key_of(topic.name, index)
            values = recording.values(link.random.randrange(1, BATCH_RECORDS_MAX + 1))
            operation = recording.begin("produce", self._process, sends_of(key, values, None))
            batch = batch_of(link, values, keys=self._keys)
            sent_at = link.world.now
            try:
                code, base_offset = await send_batch(link, topic.name, index, batch, acks=self._acks)
            except NotSent:
                operation.end(Outcome.FAIL)
                await link.backoff()
            except Disconnected:
                operation.end(Outcome.UNKNOWN)
                await link.backoff()
            else:
                if code == Code.NONE and self._acks == 1 and self._plan.replicated:
                    # Whether it stays is up to the next leader: a promise of its own, see `check_weak`.
                    operation.end(Outcome.UNKNOWN)
                    recording.weak.update(((key, value), sent_at) for value in values)
                elif code == Code.NONE:
                    operation.end(Outcome.OK, sends_of(key, values, base_offset))
                elif code in NOT_APPENDED and code not in PERHAPS_KEPT:
                    operation.end(Outcome.FAIL)
                else:
                    operation.end(Outcome.UNKNOWN)
                    if code not in UNDECIDED | PERHAPS_KEPT:
                        link.unexpected("a produce", code, key=key)
                if code:
                    await link.backoff()
            await asyncio.sleep(link.random.random() * PAUSE_MAX_S / self._plan.pace)


class UnflushedProducer:
    """Writes to a topic that a power cut may take records from, and reads what is left: in order, and sound."""

    def __init__(self, link: Link, plan: Plan) -> None:
        self._link = link
        self._plan = plan

    async def run(self) -> None:
        link, recording = self._link, self._link.recording
        while not self._plan.stopping:
            values = recording.values(BATCH_RECORDS_MAX)
            recording.unflushed.update(values)
            try:
                code, _ = await send_batch(link, UNFLUSHED.name, 0, batch_of(link, values), acks=1)
            except NotSent:
                await link.backoff()
            except Disconnected:
                recording.unflushed_doubtful.update(values)
                await link.backoff()
            else:
                recording.operations["unflushed produce"] += 1
                if code:
                    await link.backoff()
            if link.random.random() < UNFLUSHED_READ:
                await self.read()
            await asyncio.sleep(link.random.random() * PAUSE_MAX_S)

    async def read(self) -> None:
        """Read from the beginning to where nothing more comes."""
        link, recording = self._link, self._link.recording
        fetcher = Fetcher(link, committed=False, sessions=False, lossy=True)
        fetcher.positions = {(UNFLUSHED.name, 0): 0}
        values: list[int] = []
        while seen := await fetcher.poll(wait_ms=0):
            values += [value for pairs in seen.values() for _, value in pairs]
        recording.operations["unflushed read"] += 1
        if not recording.unflushed.issuperset(values):
            recording.finding(f"{link.name}: {UNFLUSHED.name} has values that were not sent to it")
        values = [value for value in values if value not in recording.unflushed_doubtful]
        if values != sorted(set(values)):
            recording.finding(f"{link.name}: {UNFLUSHED.name} has values twice, or not in the order of sending")


class IdempotentProducer:
    """Sends each batch until it knows: a batch is there once, and in the order of sending."""

    def __init__(self, link: Link, plan: Plan) -> None:
        self._link = link
        self._plan = plan
        self._process = link.recording.process(link.name)

    async def run(self) -> None:
        while not self._plan.stopping:
            identity = await self._identity()
            if identity is not None:
                await self._send_with(*identity)

    async def _identity(self) -> tuple[int, int] | None:
        """Producer id and epoch."""
        link = self._link
        request = init_producer_id.Request(transactional_id=None)
        try:
            response = await link.ask(link.any_broker(), init_producer_id, INIT_PRODUCER_ID_VERSION, request)
        except Disconnected:
            await link.backoff()
            return None
        if response.error_code:
            await link.backoff()
            return None
        return response.producer_id, response.producer_epoch

    async def _send_with(self, producer_id: int, epoch: int) -> None:
        """Send until the broker denies knowing this producer."""
        link, recording = self._link, self._link.recording
        sequences: Counter[int] = Counter()
        while not self._plan.stopping:
            index = EVENTS.any_index(link.random)
            key = key_of(EVENTS.name, index)
            values = recording.values(link.random.randrange(1, BATCH_RECORDS_MAX + 1))
            batch = batch_of(
                link, values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequences[index]
            )
            operation = recording.begin("idempotent produce", self._process, sends_of(key, values, None))
            attempts = 0
            while True:
                attempts += 1
                try:
                    code, base_offset = await send_batch(link, EVENTS.name, index, batch)
                except Disconnected:
                    await link.backoff()
                    continue
                if code in UNDECIDED or code in NOT_APPENDED:
                    await link.backoff()
                    continue
                break
            link.world.counts["idempotent retries"] += attempts - 1
            if code:
                operation.end(Outcome.UNKNOWN)
                link.unexpected(f"attempt {attempts} of an idempotent produce", code, key=key)
                return
            operation.end(Outcome.OK, sends_of(key, values, base_offset))
            sequences[index] += len(values)
            await asyncio.sleep(link.random.random() * PAUSE_MAX_S / self._plan.pace)
