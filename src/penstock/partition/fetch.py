"""A fetch request against its partitions: which to look at, what they give, and what is worth telling.

Everything of Fetch that is neither bytes on the wire nor quotas. A request runs through here as

    job = fetches.begin(...)        the session, or none; raises the session's errors
    job.read()                      True: respond now; False: `job.wait(ms, callback)`, whose end reads again
    job.response(now_ms)            the id of the session and the results to send
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotLeaderOrFollower
from penstock.model.timers import Timers
from penstock.model.turns import Turns
from penstock.partition.delayed_fetch import DelayedRead, PartitionWatch, Reader
from penstock.partition.fetch_session import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    NO_SESSION,
    FetchPartition,
    FetchSession,
    FetchSessions,
    PartitionKey,
)
from penstock.partition.leader import Leader
from penstock.partition.replicas import Replicas
from penstock.partition.results import Fetched

PARTITIONS_AT_ONCE_MAX = 200
"""Partitions that one request looks at in one turn of the loop, of more one after another."""

PartitionResult = tuple[FetchPartition, Fetched | BrokerError]
"""A partition, and what it gave or why it gave nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much a response may hold, and how little it should."""

    bytes_min: int
    bytes_max: int
    read_committed: bool = False
    replica_id: int = -1
    """The broker that fetches to keep a copy; negative: a consumer."""


def nobody_left() -> bool:
    """Whether the client is gone, where that cannot be."""
    return False


class FetchJob:
    """One request on its way to a response."""

    __slots__ = (
        "_by_topic_id",
        "_delayed",
        "_epoch",
        "_fetches",
        "_limits",
        "_partitions",
        "_privileged",
        "_reader",
        "_session",
        "_urgent",
        "_wants_session",
        "bytes_read",
        "results",
    )

    def __init__(
        self,
        fetches: "Fetches",
        limits: FetchLimits,
        *,
        session: FetchSession | None,
        partitions: Sequence[FetchPartition],
        epoch: int,
        wants_session: bool,
        by_topic_id: bool,
        privileged: bool,
    ) -> None:
        self._fetches = fetches
        self._limits = limits
        self._session = session
        self._partitions = partitions
        self._epoch = epoch
        self._wants_session = wants_session
        self._by_topic_id = by_topic_id
        self._privileged = privileged
        self._reader = fetches.reader_of(session)
        self._delayed: DelayedRead | None = None
        self._urgent = False
        """Whether a partition failed, or too much happened while it was read."""
        self.results: list[PartitionResult] = []
        """What the last reading found, in the order of the request."""
        self.bytes_read = 0

    @property
    def is_large(self) -> bool:
        """Whether there are too many partitions to look at in one turn of the loop: `read_in_turns` does it."""
        partitions = self._partitions if self._session is None else self._session.active
        return len(partitions) > PARTITIONS_AT_ONCE_MAX

    @property
    def is_enough(self) -> bool:
        """Whether what was read is worth sending now."""
        if self._urgent or self.bytes_read >= self._limits.bytes_min:
            return True
        return self._session is None and not self._partitions

    def read(self) -> bool:
        """Look at every partition that may have news. True when the response is not worth delaying."""
        limits = self._limits
        session = self._session
        results: list[PartitionResult] = []
        bytes_left = limits.bytes_max
        bytes_read = 0
        urgent = False
        partitions = self._partitions if session is None else list(session.active.values())
        for partition in partitions:
            try:
                fetched = self._fetches.look(partition, self._reader, limits, bytes_left, at_least_one=bytes_read == 0)
            except BrokerError as error:
                results.append((partition, error))
                urgent = True
                continue
            if fetched is not None:
                results.append((partition, fetched))
                size = len(fetched.records)
                bytes_read += size
                bytes_left = max(0, bytes_left - size)
        self.results = results
        self.bytes_read = bytes_read
        self._urgent = urgent
        return self.is_enough

    async def read_in_turns(self, turns: Turns, is_gone: Callable[[], bool] = nobody_left) -> bool:
        """`read` for many partitions, over as many turns of the loop as it takes.

        What grew after it was looked at is looked at again before the last turn ends, so that whoever waits next has
        missed nothing. For a client that `is_gone` it stops, without results.
        """
        self._urgent = False
        self.bytes_read = 0
        found: dict[FetchPartition, Fetched | BrokerError] = {}
        readable: dict[FetchPartition, int] = {}
        session = self._session
        for partition in self._partitions if session is None else list(session.active.values()):
            self._read_one(partition, found)
            readable[partition] = readable_in(partition)
            if turns.spent():
                await turns.pause()
                if is_gone():
                    self.results = []
                    return True
        grown = [partition for partition, before in readable.items() if readable_in(partition) != before]
        if len(grown) > PARTITIONS_AT_ONCE_MAX:
            self._urgent = True
        else:
            for partition in grown:
                self._read_one(partition, found)
        self.results = list(found.items())
        return self.is_enough

    def _read_one(self, partition: FetchPartition, found: dict[FetchPartition, Fetched | BrokerError]) -> None:
        before = found.pop(partition, None)
        if isinstance(before, Fetched):
            self.bytes_read -= len(before.records)
        try:
            fetched = self._fetches.look(
                partition,
                self._reader,
                self._limits,
                max(0, self._limits.bytes_max - self.bytes_read),
                at_least_one=self.bytes_read == 0,
            )
        except BrokerError as error:
            found[partition] = error
            self._urgent = True
            return
        if fetched is not None:
            found[partition] = fetched
            self.bytes_read += len(fetched.records)

    def wait(self, wait_ms: int, completed: Callable[[], None]) -> None:
        """Wait for enough, read again and call back; one that is large calls back to be read in turns.

        A later request of the same session ends the wait.
        """
        reader = self._reader
        if reader.waiting is not None:
            reader.waiting.complete()

        def again() -> None:
            self._end_wait()
            if not self.is_large:
                self.read()
            completed()

        watches = [watch for partition, _ in self.results if isinstance(watch := partition.place, PartitionWatch)]
        self._delayed = DelayedRead(
            reader,
            watches,
            bytes_missing=self._limits.bytes_min - self.bytes_read,
            read_committed=self._limits.read_committed,
            completed=again,
        )
        self._fetches.waiting += 1
        self._delayed.start(self._fetches.timers, wait_ms)

    def _end_wait(self) -> None:
        self._delayed = None
        self._fetches.waiting -= 1

    @property
    def session_id(self) -> int:
        """The session the request belongs to, if it came with one."""
        return NO_SESSION if self._session is None else self._session.id

    def cancel(self) -> None:
        """The connection closed: nobody wants the response."""
        if self._delayed is not None:
            self._delayed.cancel()
            self._end_wait()

    def response(self, now_ms: int) -> tuple[int, list[PartitionResult]]:
        """The session to name and what to tell; `InvalidFetchSessionEpoch` when the response has been overtaken.

        Call it when the response goes out and not before: it notes what the reader then knows.
        """
        session = self._session
        if session is not None:
            session.check_response(self._epoch)
            worth_sending: list[PartitionResult] = []
            for partition, outcome in self.results:
                if news(partition, outcome):
                    worth_sending.append((partition, outcome))
                    if isinstance(outcome, Fetched) and len(outcome.records):
                        session.served(partition)
            return session.id, worth_sending
        for partition, outcome in self.results:
            news(partition, outcome)
        if not self._wants_session:
            return NO_SESSION, self.results
        made = self._fetches.sessions.create(
            (partition for partition, _ in self.results),
            privileged=self._privileged,
            by_topic_id=self._by_topic_id,
            now_ms=now_ms,
        )
        if made is None:
            return NO_SESSION, self.results
        self._fetches.adopt(made)
        return made.id, self.results


def readable_in(partition: FetchPartition) -> int:
    """What the partition's replica has made visible so far; 0 where there is none."""
    watch = partition.place
    return watch.replica.watchers.readable_bytes if isinstance(watch, PartitionWatch) else 0


def news(partition: FetchPartition, outcome: Fetched | BrokerError) -> bool:
    """Note what is sent of a partition; False when nothing of it is new."""
    if isinstance(outcome, BrokerError):
        return partition.note_response(0, -1, -1, failed=True)
    return partition.note_response(len(outcome.records), outcome.high_watermark, outcome.log_start, failed=False)


class Fetches:
    """The read path over all partitions of this broker."""

    __slots__ = ("_readers", "replicas", "sessions", "timers", "waiting")

    def __init__(self, *, replicas: Replicas, sessions: FetchSessions, timers: Timers) -> None:
        self.replicas = replicas
        self.sessions = sessions
        self.timers = timers
        self.waiting = 0
        """Requests that wait for something to read."""
        self._readers: dict[int, Reader] = {}
        """By session id; they leave with their sessions."""

    def begin(
        self,
        limits: FetchLimits,
        *,
        session_id: int,
        epoch: int,
        by_topic_id: bool,
        asked: Sequence[FetchPartition],
        forgotten: Iterable[PartitionKey] = (),
        now_ms: int,
        privileged: bool = False,
    ) -> FetchJob:
        """Take a request in. `asked` has each partition once: of several, the last counts."""
        session: FetchSession | None = None
        full = epoch in (EPOCH_INITIAL, EPOCH_FINAL)
        if full:
            self.sessions.close(session_id)
        else:
            session = self.sessions.resume(session_id, epoch, by_topic_id, asked, forgotten, now_ms)
        return FetchJob(
            self,
            limits,
            session=session,
            partitions=() if session is not None else distinct(asked),
            epoch=epoch,
            wants_session=epoch == EPOCH_INITIAL,
            by_topic_id=by_topic_id,
            privileged=privileged,
        )

    def look(
        self, partition: FetchPartition, reader: Reader, limits: FetchLimits, bytes_left: int, *, at_least_one: bool
    ) -> Fetched | None:
        """Read one partition; None when it is in a session, has nothing new, and will make itself heard when it has."""
        watch = partition.place
        if (
            not isinstance(watch, PartitionWatch)
            or not isinstance(watch.replica.role, Leader)
            or watch.reader is not reader
        ):
            if isinstance(watch, PartitionWatch):
                watch.close()
                partition.place = None
            found = self.replicas.find(partition.topic, partition.partition)
            partition.place = watch = PartitionWatch(found, partition, reader)
        replica = watch.replica
        role, offsets = replica.role, replica.offsets
        if limits.replica_id >= 0 and isinstance(role, Leader) and limits.replica_id not in role.followers:
            raise NotLeaderOrFollower()
        offset = partition.fetch_offset
        if (
            reader.session is not None
            and offset == (offsets.last_stable if limits.read_committed else offsets.high_watermark)
            and partition.high_watermark == offsets.high_watermark
            and partition.log_start == offsets.log_start
            and (partition.leader_epoch < 0 or partition.leader_epoch == role.leader_epoch)
            and partition.fetched_epoch < 0
        ):
            watch.open()
            reader.session.settle(partition)
            return None
        return replica.read(
            offset,
            min(partition.bytes_max, bytes_left),
            at_least_one=at_least_one,
            read_committed=limits.read_committed,
            leader_epoch=partition.leader_epoch,
            fetched_epoch=partition.fetched_epoch,
        )

    def reader_of(self, session: FetchSession | None) -> Reader:
        if session is None:
            return Reader(None)
        return self._readers[session.id]

    def adopt(self, session: FetchSession) -> None:
        """Keep a reader for a new session as long as it lives."""
        reader = self._readers[session.id] = Reader(session)
        session.on_close = self._left
        for partition in session:
            if isinstance(partition.place, PartitionWatch):
                partition.place.close()
                partition.place.reader = reader

    def _left(self, session: FetchSession, partitions: Iterable[FetchPartition]) -> None:
        reader = self._readers.pop(session.id) if session.closed else self._readers[session.id]
        reader.left(partitions)


def distinct(asked: Sequence[FetchPartition]) -> list[FetchPartition]:
    """Each partition once, as it was asked for last, where it was asked for first."""
    return list({(partition.topic, partition.partition): partition for partition in asked}.values())
