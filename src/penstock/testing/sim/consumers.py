"""Reading in a simulation: positions, fetch sessions, checksums, and what a reader of committed data leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop

from penstock.testing.histories import Moved
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.links import Address, Code, Link
from penstock.testing.sim.plan import Plan, Topic
from penstock.testing.sim.recording import key_of
from penstock.wire.api import fetch, list_offsets
from penstock.wire.primitives import Malformed
from penstock.wire.records import COMMIT_MARKER, crc_ok, decode_records, iter_batches, parse_marker

FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
WAIT_MS = 500
PARTITION_BYTES_MAX = 64 * 1024
READ_COMMITTED = 1
LATEST = -1
NO_SESSION_EPOCH = -1
IDLE_POLLS_MAX = 200
"""So many fetches without a record, and more will not bring one."""

Seen = dict[str, tuple[tuple[int, int], ...]]
"""Offset and value of each record, by partition."""

RESET_SESSION = frozenset({Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH})


class Fetcher:
    """Positions in partitions, and the next records from there."""

    def __init__(self, link: Link, *, committed: bool, sessions: bool, lossy: bool = False) -> None:
        """`lossy`: a position that is gone is no finding."""
        self._link = link
        self._committed = committed
        self._lossy = lossy
        self._sessions = sessions
        self._session_id = 0
        self._session_epoch = 0
        self._in_session: dict[tuple[str, int], int] = {}
        """The positions that the broker knows."""
        self._address: Address | None = None
        self.positions: dict[tuple[str, int], int] = {}

    async def poll(self, *, wait_ms: int = WAIT_MS) -> Seen:
        """What came; nothing where a broker did not answer."""
        link = self._link
        if not self.positions:
            return {}
        by_leader: dict[Address, list[tuple[str, int]]] = {}
        try:
            for place in self.positions:
                by_leader.setdefault(await link.leader(*place), []).append(place)
        except Disconnected:
            await link.backoff()
            return {}
        address = link.random.choice(list(by_leader))
        try:
            return await self._fetch(address, by_leader[address], wait_ms)
        except Disconnected:
            self._close_session()
            await link.backoff()
            return {}

    async def _fetch(self, address: Address, places: Sequence[tuple[str, int]], wait_ms: int) -> Seen:
        link = self._link
        if address != self._address:
            self._close_session()
            self._address = address
        wanted = {place: self.positions[place] for place in places}
        incremental = self._session_id != 0
        changed = {place: at for place, at in wanted.items() if self._in_session.get(place) != at}
        forgotten = [place for place in self._in_session if place not in wanted]
        request = fetch.Request(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=int(self._committed),
            session_id=self._session_id,
            session_epoch=self._session_epoch if self._sessions else NO_SESSION_EPOCH,
            topics=[
                fetch.FetchTopic(
                    topic=topic,
                    partitions=[
                        fetch.FetchPartition(partition=index, fetch_offset=at, partition_max_bytes=PARTITION_BYTES_MAX)
                    ],
                )
                for (topic, index), at in (changed if incremental else wanted).items()
            ],
            forgotten_topics_data=[
                fetch.ForgottenTopic(topic=topic, partitions=[index])
                for topic, index in (forgotten if incremental else ())
            ],
        )
        response = await link.ask(address, fetch, FETCH_VERSION, request)
        if response.error_code:
            self._close_session()
            if response.error_code not in RESET_SESSION:
                link.unexpected("a fetch", response.error_code)
            return {}
        if self._sessions and response.session_id:
            self._session_id = response.session_id
            self._session_epoch += 1
            self._in_session = wanted
        seen: Seen = {}
        for topic in response.responses:
            for part in topic.partitions:
                await self._take(topic.topic, part, seen)
        return seen

    async def _take(self, topic: str, part: fetch.PartitionData, seen: Seen) -> None:
        link, place = self._link, (topic, part.partition_index)
        if place not in self.positions:
            return
        if part.error_code:
            link.forget()
            if part.error_code == Code.OFFSET_OUT_OF_RANGE and not self._lossy:
                link.unexpected(f"a fetch of {topic}-{part.partition_index} at {self.positions.pop(place)}", 1)
            await link.backoff()
            return
        try:
            pairs, self.positions[place] = read_records(part, self.positions[place], committed=self._committed)
        except Malformed as error:
            link.recording.finding(f"{link.name}: a fetch of {topic}-{part.partition_index} brought damage: {error}")
            # There is no way past it.
            del self.positions[place]
            return
        if pairs:
            seen[key_of(*place)] = tuple(pairs)

    def _close_session(self) -> None:
        self._session_id = 0
        self._session_epoch = 0
        self._in_session = {}


def read_records(part: fetch.PartitionData, position: int, *, committed: bool) -> tuple[list[tuple[int, int]], int]:
    """Offset and value of the records from a position on, and the next position."""
    data = bytes(part.records or b"")
    aborted: list[tuple[int, int]] = []
    if committed:
        aborted = [(each.first_offset, each.producer_id) for each in part.aborted_transactions or ()]
        heapify(aborted)
    aborting: set[int] = set()
    pairs: list[tuple[int, int]] = []
    for at, header in iter_batches(data):
        if not crc_ok(data, at, header):
            raise Malformed(f"the batch at offset {header.base_offset} has a wrong checksum")
        while aborted and aborted[0][0] <= header.last_offset:
            aborting.add(heappop(aborted)[1])
        batch = data[at : at + header.size]
        if header.is_control:
            [marker] = decode_records(batch)
            if parse_marker(marker)[0] != COMMIT_MARKER:
                aborting.discard(header.producer_id)
        elif not (committed and header.is_transactional and header.producer_id in aborting):
            pairs += [
                (record.offset, int((record.value or b"").split(b" ", 1)[0]))
                for record in decode_records(batch)
                if record.offset >= position
            ]
        position = max(position, header.last_offset + 1)
    return pairs, position


class Reader:
    """Reads a topic from its beginning for as long as it lives, and belongs to no group."""

    def __init__(self, link: Link, plan: Plan, *, topic: Topic, committed: bool, sessions: bool) -> None:
        self._link = link
        self._plan = plan
        self._topic = topic
        self._process = link.recording.process(link.name)
        self._fetcher = Fetcher(link, committed=committed, sessions=sessions)

    async def run(self) -> None:
        recording = self._link.recording
        self._fetcher.positions = {(self._topic.name, index): 0 for index in range(self._topic.partitions)}
        recording.add(Moved(process=self._process, keys=tuple(self._topic.partition_keys())))
        while not self._plan.stopping:
            seen = await self._fetcher.poll()
            if seen:
                recording.polled_by("consume", self._process, seen)
            await asyncio.sleep(self._link.random.random() * 0.1 / self._plan.pace)


async def end_offset(link: Link, topic: str, index: int, *, committed: bool) -> int:
    """The high watermark, or the last stable offset; -1 where the leader did not say."""
    partition = list_offsets.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
    request = list_offsets.Request(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[partition])],
    )
    response = await link.ask_leader(topic, index, list_offsets, LIST_OFFSETS_VERSION, request)
    [answered] = response.topics[0].partitions
    if answered.error_code:
        link.forget()
        return -1
    return int(answered.offset)


async def read_everything(link: Link, topics: Iterable[Topic], ends: dict[str, int]) -> Seen:
    """Every committed record of every partition, from its beginning up to the end that is given for it."""
    fetcher = Fetcher(link, committed=True, sessions=False)
    fetcher.positions = {(topic.name, index): 0 for topic in topics for index in range(topic.partitions)}
    seen: dict[str, list[tuple[int, int]]] = {key_of(*place): [] for place in fetcher.positions}
    idle = 0
    while behind := {place: at for place, at in fetcher.positions.items() if at < ends[key_of(*place)]}:
        fetcher.positions = dict(behind)
        for key, pairs in (await fetcher.poll(wait_ms=0)).items():
            seen[key] += pairs
        idle = 0 if fetcher.positions != behind else idle + 1
        if idle > IDLE_POLLS_MAX:
            link.recording.finding(f"{link.name}: {IDLE_POLLS_MAX} fetches bring nothing at {behind}, of {ends}")
            break
    return {key: tuple(pairs) for key, pairs in seen.items()}
