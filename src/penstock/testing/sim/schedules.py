"""A topic of schedules while brokers fail: clients that write, move and cancel them, and a check of what was delivered.

Each client has keys of its own and repeats every write until it knows, so that the last write of a key is known. Its
message is delivered once; what it replaced is delivered once at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from penstock.config.log import SCHEDULE_TARGET
from penstock.model.ids import ProducerEpoch, ProducerId
from penstock.schedules.headers import DELIVER_AT
from penstock.testing.sim.actors import Worker
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.consumers import Seen
from penstock.testing.sim.links import UNDECIDED, Code, Link
from penstock.testing.sim.plan import Plan, Topic
from penstock.testing.sim.producers import INIT_PRODUCER_ID_VERSION, NOT_APPENDED, send_batch
from penstock.wire.api import init_producer_id
from penstock.wire.records import Record, build_batch

TARGET = Topic(name="due", partitions=3)
LATER = Topic(name="later", partitions=2)
LATER_CONFIGS = {
    SCHEDULE_TARGET: TARGET.name,
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "2000",
    "internal.segment.bytes": "8000",
}
"""Compacted again and again, tombstones included."""
DELAY_MS_MAX = 4_000
SEND_PAUSE_MAX_S = 0.25
RECORDS_MAX = 4
MOVES = 0.25
CANCELS = 0.15
KEYS_REMEMBERED_MAX = 40


class Agenda:
    """What was scheduled."""

    def __init__(self) -> None:
        self.written: dict[int, bytes] = {}
        """By value: the key that it was written for."""
        self.last: dict[bytes, int | None] = {}
        """The last acknowledged write of each key; None: a tombstone."""
        self.doubtful: set[bytes] = set()
        """Keys with a write whose outcome is not known."""
        self.counts: Counter[str] = Counter()
        self.lives = 0

    @property
    def owed(self) -> set[int]:
        """Values that have to be delivered."""
        return {value for key, value in self.last.items() if value is not None and key not in self.doubtful}

    def check(self, seen: Seen) -> Iterator[str]:
        """What is wrong with what was delivered."""
        found = Counter(value for pairs in seen.values() for _, value in pairs)
        doubled = sorted(value for value, count in found.items() if count > 1)
        strange = sorted(value for value in found if value not in self.written)
        lost = sorted(value for value in self.owed if value not in found)
        if doubled:
            yield f"{TARGET.name} has values twice: {doubled[:5]}"
        if strange:
            yield f"{TARGET.name} has values that were not scheduled: {strange[:5]}"
        if lost:
            yield f"{TARGET.name} lacks values that were scheduled: {[(v, self.written[v]) for v in lost[:5]]}"


class Scheduler:
    """An idempotent producer that writes, moves and cancels schedules, each batch until it knows."""

    def __init__(self, link: Link, plan: Plan, agenda: Agenda) -> None:
        self._link = link
        self._plan = plan
        self._agenda = agenda
        agenda.lives += 1
        self._name = f"{link.name}-{agenda.lives}"
        self._keys: list[bytes] = []

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
            await self._write_with(response.producer_id, response.producer_epoch)

    async def _write_with(self, producer_id: int, epoch: int) -> None:
        link, agenda = self._link, self._agenda
        sequences: Counter[int] = Counter()
        while not self._plan.stopping:
            index = LATER.any_index(link.random)
            writes = [self._write(index) for _ in range(link.random.randrange(1, RECORDS_MAX + 1))]
            keys = {key for key, _ in writes}
            agenda.doubtful |= keys
            batch = self._batch(writes, producer_id, epoch, sequences[index])
            if not await self._insist(index, batch):
                return
            agenda.doubtful -= keys
            agenda.last.update(writes)
            sequences[index] += len(writes)
            await asyncio.sleep(link.random.random() * SEND_PAUSE_MAX_S)

    def _write(self, index: int) -> tuple[bytes, int | None]:
        """A key, and its next value or None."""
        link, agenda = self._link, self._agenda
        drawn = link.random.random()
        own = [key for key in self._keys if key.endswith(b"/%d" % index)]
        if own and drawn < CANCELS:
            agenda.counts["cancel"] += 1
            return link.random.choice(own), None
        [value] = link.recording.values(1)
        if own and drawn < CANCELS + MOVES:
            agenda.counts["move"] += 1
            key = link.random.choice(own)
        else:
            agenda.counts["schedule"] += 1
            key = b"%s/%d/%d" % (self._name.encode(), value, index)
            self._keys = [*self._keys, key][-KEYS_REMEMBERED_MAX:]
        agenda.written[value] = key
        return key, value

    def _batch(self, writes: list[tuple[bytes, int | None]], producer_id: int, epoch: int, sequence: int) -> bytes:
        link = self._link
        now_ms = link.clock.now_ms()
        records: list[Record] = []
        for at, (key, value) in enumerate(writes):
            due = b"%d" % (now_ms + link.random.randrange(DELAY_MS_MAX))
            if value is None:
                records.append(Record(at, now_ms, key, None))
            else:
                records.append(Record(at, now_ms, key, b"%d " % value, [(DELIVER_AT, due)]))
        return bytes(
            build_batch(
                records,
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(epoch),
                base_sequence=sequence,
            )
        )

    async def _insist(self, index: int, batch: bytes) -> bool:
        link = self._link
        while True:
            try:
                code, _ = await send_batch(link, LATER.name, index, batch)
            except Disconnected:
                await link.backoff()
                continue
            if code == Code.NONE:
                return True
            if code not in UNDECIDED and code not in NOT_APPENDED:
                link.recording.finding(f"{self._name}: a produce to {LATER.name}-{index} got {code}", key=None)
                return False
            await link.backoff()


def schedule_workers(plan: Plan, agenda: Agenda) -> dict[str, Callable[[Link], Worker]]:
    """What makes the worker of each client of the topic."""
    return {f"scheduler-{number}": lambda link: Scheduler(link, plan, agenda) for number in (1, 2, 3)}


SCHEDULE_EVENTS = ("schedule", "move", "cancel")
"""What a run must have done, each at least once."""
