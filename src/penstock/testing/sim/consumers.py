"""Reading in a simulation: positions, fetch sessions, checksums, and what a reader of committed data leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop
from typing import NamedTuple

from penstock.testing.histories import Moved
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.links import ELSEWHERE, UNDECIDED, Address, Code, Link
from penstock.testing.sim.plan import Plan, Topic
from penstock.testing.sim.recording import key_of
from penstock.wire.api import fetch, list_offsets, offset_for_leader_epoch
from penstock.wire.primitives import Malformed
from penstock.wire.record_columns import decode_columns
from penstock.wire.records import COMMIT_MARKER, crc_ok, decode_records, iter_batches, parse_marker

FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
OFFSET_FOR_LEADER_EPOCH_VERSION = 4
WAIT_MS = 500
PARTITION_BYTES_MAX = 64 * 1024
READ_COMMITTED = 1
LATEST = -1
EARLIEST = -2
NO_SESSION_EPOCH = -1
LEASE_S_MAX = 20.0
"""For how long a preferred replica is read from at most, before the leader is asked again."""
FOLLOWER_READS = "reads from followers"
IDLE_POLLS_MAX = 200
"""So many fetches without a record, and more will not bring one."""

Seen = dict[str, tuple[tuple[int, int], ...]]
"""Offset and value of each record, by partition."""

TRIED_AGAIN = ELSEWHERE | UNDECIDED
RESET_SESSION = frozenset({Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH})


class Lease(NamedTuple):
    """A replica to read from, and until when."""

    broker_id: int
    ends_at: float


class FetchSession:
    """A fetch session with one broker, as a reader knows it."""

    __slots__ = ("epoch", "known", "number")

    def __init__(self) -> None:
        self.number = 0
        self.epoch = 0
        self.known: dict[tuple[str, int], tuple[int, int]] = {}
        """Position and leader epoch of the partitions that the broker knows."""


class Fetcher:
    """Positions in partitions, and the next records from there.

    A position is checked against each new leader before it is read from (KIP-320): what this reader has read must be
    in the new leader's log. With a rack it reads from the replica that the leader prefers (KIP-392), and from the
    leader again after an error or when the lease ends.
    """

    def __init__(
        self,
        link: Link,
        *,
        committed: bool,
        sessions: bool,
        process: int | None = None,
        lossy: bool = False,
        goes_on: bool = False,
        rack: str = "",
    ) -> None:
        """`process` reads, in the history; `lossy`: a position that is gone is no finding."""
        self._link = link
        self._rack = rack
        self._preferred: dict[tuple[str, int], Lease] = {}
        """The replicas to read from, other than the leaders."""
        self._process = process
        self._committed = committed
        self._lossy = lossy
        self._goes_on = goes_on
        self._sessions: dict[Address, FetchSession] | None = {} if sessions else None
        self._epochs_read: dict[tuple[str, int], int] = {}
        """The leader epoch of the last batch that was read."""
        self._epochs_checked: dict[tuple[str, int], int] = {}
        """The leader epoch for which a position was last checked."""
        self.positions: dict[tuple[str, int], int] = {}

    async def poll(self, *, wait_ms: int = WAIT_MS) -> Seen:
        """What came; nothing where a broker did not respond."""
        link = self._link
        if not self.positions:
            return {}
        by_source: dict[Address, dict[tuple[str, int], Address]] = {}
        try:
            for place in self.positions:
                leader = await link.leader(*place)
                by_source.setdefault(self._source(place, leader), {})[place] = leader
        except Disconnected:
            await link.backoff()
            if not by_source:
                return {}
        address = link.random.choice(list(by_source))
        places = by_source[address]
        try:
            if not await self._check_positions(places):
                await link.backoff()
                return {}
            return await self._fetch(address, list(places), wait_ms)
        except Disconnected:
            self._close_session(address)
            for place in places:
                self._preferred.pop(place, None)
            await link.backoff()
            return {}

    def _source(self, place: tuple[str, int], leader: Address) -> Address:
        """The replica to read a partition from: the one that its leader prefers, while the lease lasts."""
        lease = self._preferred.get(place)
        if lease is not None and lease.ends_at > self._link.world.now:
            address = self._link.address_of(lease.broker_id)
            if address is not None:
                return address
        self._preferred.pop(place, None)
        return leader

    async def _check_positions(self, leaders: Mapping[tuple[str, int], Address]) -> bool:
        """Whether the leaders have what was read from the leaders before them, or that is not to be checked."""
        for place, address in leaders.items():
            epoch, read = self._link.leader_epoch(*place), self._epochs_read.get(place)
            if read is not None and read < epoch != self._epochs_checked.get(place):
                if not await self._check_position(address, place, epoch, read):
                    return False
                self._epochs_checked[place] = epoch
        return True

    async def _check_position(self, address: Address, place: tuple[str, int], epoch: int, read: int) -> bool:
        link = self._link
        wanted = offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=place[1], current_leader_epoch=epoch, leader_epoch=read
        )
        topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=place[0], partitions=[wanted])
        request = offset_for_leader_epoch.Request(replica_id=-1, topics=[topic])
        response = await link.ask(address, offset_for_leader_epoch, OFFSET_FOR_LEADER_EPOCH_VERSION, request)
        [result] = response.topics[0].partitions
        if result.error_code:
            link.forget()
            return False
        position = self.positions[place]
        if result.end_offset < position:
            if not self._lossy:
                link.recording.finding(
                    f"{link.name}: {place[0]}-{place[1]} was read up to {position} in epoch {read}, which ends at "
                    f"{result.end_offset} by the leader of epoch {epoch}",
                    key=key_of(*place),
                )
            self._move_back(place, max(result.end_offset, 0))
        return True

    def _move_back(self, place: tuple[str, int], position: int) -> None:
        self.positions[place] = position
        self._epochs_read.pop(place, None)
        if self._process is not None:
            self._link.recording.add(Moved(process=self._process, keys=(key_of(*place),)))

    async def _fetch(self, address: Address, places: Sequence[tuple[str, int]], wait_ms: int) -> Seen:
        link = self._link
        session = FetchSession() if self._sessions is None else self._sessions.setdefault(address, FetchSession())
        wanted = {place: (self.positions[place], link.leader_epoch(*place)) for place in places}
        incremental = session.number != 0
        changed = {place: at for place, at in wanted.items() if session.known.get(place) != at}
        forgotten = [place for place in session.known if place not in wanted]
        request = fetch.Request(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=int(self._committed),
            session_id=session.number,
            session_epoch=session.epoch if self._sessions is not None else NO_SESSION_EPOCH,
            rack_id=self._rack,
            topics=[
                fetch.FetchTopic(
                    topic=topic,
                    partitions=[
                        fetch.FetchPartition(
                            partition=index,
                            current_leader_epoch=epoch,
                            fetch_offset=at,
                            partition_max_bytes=PARTITION_BYTES_MAX,
                        )
                    ],
                )
                for (topic, index), (at, epoch) in (changed if incremental else wanted).items()
            ],
            forgotten_topics_data=[
                fetch.ForgottenTopic(topic=topic, partitions=[index])
                for topic, index in (forgotten if incremental else ())
            ],
        )
        response = await link.ask(address, fetch, FETCH_VERSION, request)
        if response.error_code:
            self._close_session(address)
            if response.error_code not in RESET_SESSION:
                link.unexpected("a fetch", response.error_code)
            return {}
        if self._sessions is not None and response.session_id:
            session.number = response.session_id
            session.epoch += 1
            session.known = wanted
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
            nearest = self._preferred.pop(place, None)
            if part.error_code == Code.OFFSET_OUT_OF_RANGE and nearest is not None:
                # Only the leader's word counts: the follower may have deleted the offset, or not have it yet.
                pass
            elif part.error_code == Code.OFFSET_OUT_OF_RANGE and self._goes_on:
                earliest = await end_offset(link, *place, committed=False, timestamp=EARLIEST)
                self.positions[place] = max(earliest, self.positions[place])
            elif part.error_code == Code.OFFSET_OUT_OF_RANGE:
                if not self._lossy:
                    name = f"{topic}-{part.partition_index} at {self.positions[place]}"
                    link.unexpected(f"a fetch of {name}", part.error_code, key=key_of(*place))
                self._move_back(place, 0)
            elif part.error_code not in TRIED_AGAIN:
                link.unexpected(f"a fetch of {topic}-{part.partition_index}", part.error_code)
            await link.backoff()
            return
        if part.preferred_read_replica >= 0:
            self._prefer(place, part)
            return
        try:
            pairs, self.positions[place], epoch = read_records(part, self.positions[place], committed=self._committed)
        except Malformed as error:
            link.recording.finding(f"{link.name}: a fetch of {topic}-{part.partition_index} brought damage: {error}")
            # There is no way past it.
            del self.positions[place]
            return
        if epoch is not None:
            self._epochs_read[place] = epoch
            if place in self._preferred:
                link.world.counts[FOLLOWER_READS] += 1
        if pairs:
            seen[key_of(*place)] = tuple(pairs)

    def _prefer(self, place: tuple[str, int], part: fetch.PartitionData) -> None:
        """Read from another replica next; a leader sends a consumer on without records."""
        link, name = self._link, f"{place[0]}-{place[1]}"
        if not self._rack or part.records or place in self._preferred:
            link.recording.finding(f"{link.name}: {name}: sent to {part.preferred_read_replica} without need")
        self._preferred[place] = Lease(
            broker_id=part.preferred_read_replica, ends_at=link.world.now + link.random.uniform(0, LEASE_S_MAX)
        )

    def seek(self, place: tuple[str, int], position: int) -> None:
        """Read a partition from here; which leader epoch the position is of is not known."""
        self.positions[place] = position
        self._epochs_read.pop(place, None)

    def _close_session(self, address: Address) -> None:
        if self._sessions is not None:
            self._sessions.pop(address, None)


def read_records(
    part: fetch.PartitionData, position: int, *, committed: bool
) -> tuple[list[tuple[int, int]], int, int | None]:
    """Offset and value of the records from a position on, the next position, and the last batch's leader epoch."""
    data = bytes(part.records or b"")
    aborted: list[tuple[int, int]] = []
    if committed:
        aborted = [(each.first_offset, each.producer_id) for each in part.aborted_transactions or ()]
        heapify(aborted)
    aborting: set[int] = set()
    wanted = b""
    following = position
    epoch: int | None = None
    for at, header in iter_batches(data):
        if not crc_ok(data, at, header):
            raise Malformed(f"the batch at offset {header.base_offset} has a wrong checksum")
        while aborted and aborted[0][0] <= header.last_offset:
            aborting.add(heappop(aborted)[1])
        if header.is_control:
            [marker] = decode_records(data[at : at + header.size])
            if parse_marker(marker)[0] != COMMIT_MARKER:
                aborting.discard(header.producer_id)
        elif not (committed and header.is_transactional and header.producer_id in aborting):
            wanted += data[at : at + header.size]
        following = max(following, header.last_offset + 1)
        epoch = header.leader_epoch
    return pairs_of(wanted, position), following, epoch


def pairs_of(batches: bytes, position: int) -> list[tuple[int, int]]:
    """Offset and value of the records of some batches, from a position on."""
    if not batches:
        return []
    columns = decode_columns(batches)
    data = bytes(columns.data)
    return [
        (offset, int(data[start : start + size].split(b" ", 1)[0]))
        for offset, start, size in zip(columns.offsets, columns.value_at, columns.value_sizes, strict=True)
        if offset >= position
    ]


class Reader:
    """Reads a topic from its beginning for as long as it lives, and belongs to no group."""

    def __init__(
        self, link: Link, plan: Plan, *, topic: Topic, committed: bool, sessions: bool, rack: str = ""
    ) -> None:
        self._link = link
        self._plan = plan
        self._topic = topic
        self._process = link.recording.process(link.name)
        self._fetcher = Fetcher(link, committed=committed, sessions=sessions, process=self._process, rack=rack)

    async def run(self) -> None:
        recording = self._link.recording
        self._fetcher.positions = {(self._topic.name, index): 0 for index in range(self._topic.partitions)}
        recording.add(Moved(process=self._process, keys=tuple(self._topic.partition_keys())))
        while not self._plan.stopping:
            seen = await self._fetcher.poll()
            if seen:
                recording.polled_by("consume", self._process, seen)
            await asyncio.sleep(self._link.random.random() * 0.1 / self._plan.pace)


async def end_offset(link: Link, topic: str, index: int, *, committed: bool, timestamp: int = LATEST) -> int:
    """The high watermark, or the last stable offset; -1 where the leader did not say."""
    address = await link.leader(topic, index)
    partition = list_offsets.ListOffsetsPartition(
        partition_index=index, current_leader_epoch=link.leader_epoch(topic, index), timestamp=timestamp
    )
    request = list_offsets.Request(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[partition])],
    )
    response = await link.ask_reigning(address, (topic, index), list_offsets, LIST_OFFSETS_VERSION, request)
    [result] = response.topics[0].partitions
    if result.error_code:
        link.forget()
        return -1
    return int(result.offset)


async def read_everything(
    link: Link, topics: Iterable[Topic], ends: dict[str, int], starts: Mapping[str, int] | None = None
) -> Seen:
    """Every committed record of every partition, from its beginning up to the end that is given for it.

    `starts` are of partitions whose log does not begin at 0. It may begin later where there were no records.
    """
    fetcher = Fetcher(link, committed=True, sessions=False, goes_on=starts is not None)
    begun = starts or {}
    places = [(topic.name, index) for topic in topics for index in range(topic.partitions)]
    fetcher.positions = {place: begun.get(key_of(*place), 0) for place in places}
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
