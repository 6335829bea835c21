"""Fetch sessions: incremental requests name only partitions that changed, and so do the responses.

Without a session, a reader of a thousand quiet partitions sends and receives all thousand at each poll. A session keeps
the reader's last request and response for each partition; the next response leaves out what has not changed.

A quiet partition costs the broker nothing either: a session knows which partitions may have news (`active`). The broker
settles a partition that has nothing new, and activates it when its log changes.

A full request is served from an unregistered session; its response registers the session if the request asked for one
and there is room.

Requests carry a session id and an epoch:

    id 0, epoch 0     a full request that asks for a session
    any id, epoch -1  a full request without one; the session named, if any, is closed
    id n, epoch 0     close session n and open a new one
    id n, epoch k     the k-th incremental request of session n; k wraps from 2^31 - 1 to 1
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol

from penstock.model.generated_errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from penstock.model.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from penstock.wire.fetch import HIGH_WATERMARK_UNKNOWN

NO_SESSION = 0
EPOCH_INITIAL = 0
EPOCH_FIRST = 1
EPOCH_FINAL = -1
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
IDLE_MS_BEFORE_EVICTION = 120_000
"""A session younger than this is not evicted for a bigger one; a session unused for longer may always be evicted."""

PartitionKey = tuple[object, int]
"""Topic (its id as bytes or its name, as the request has it) and partition index."""


def epoch_after(epoch: int) -> int:
    """Epochs of a session go 1, 2, ... and wrap to 1: 0 and -1 have meanings of their own."""
    if epoch < 0:
        return EPOCH_FINAL
    return EPOCH_FIRST if epoch == EPOCH_MAX else epoch + 1


class Watch(Protocol):
    """A watch on the replica of a partition."""

    def close(self) -> None:
        """Stop notifications."""
        ...


class WaitingFetch(Protocol):
    """A request that waits until there is enough to read."""

    def complete(self) -> None:
        """Stop waiting and respond with the records available."""
        ...


class CachedPartition:
    """A reader's request for one partition, and the offsets it was last sent."""

    __slots__ = (
        "bytes_max",
        "fetch_offset",
        "fetched_epoch",
        "follower_high_watermark",
        "follower_log_start",
        "held_end",
        "high_watermark",
        "leader_epoch",
        "log_start",
        "partition",
        "topic",
        "watch",
    )

    def __init__(
        self,
        topic: object,
        partition: int,
        fetch_offset: Offset,
        bytes_max: int,
        leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        follower_log_start: Offset = NO_OFFSET,
        fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        held_end: Offset = NO_OFFSET,
        follower_high_watermark: Offset = HIGH_WATERMARK_UNKNOWN,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.bytes_max = bytes_max
        self.leader_epoch = leader_epoch
        self.follower_log_start = follower_log_start
        self.fetched_epoch = fetched_epoch
        self.held_end = held_end
        """Up to where a follower holds its log; `NO_OFFSET`: up to `fetch_offset`."""
        self.follower_high_watermark = follower_high_watermark
        """The high watermark of a follower that wants to know of a greater one at once; else the greatest number."""
        self.high_watermark = NO_OFFSET
        self.log_start = NO_OFFSET
        self.watch: Watch | None = None
        """The watch on its replica; None before the first read."""

    @property
    def key(self) -> PartitionKey:
        return (self.topic, self.partition)

    def ask(self, request: "CachedPartition") -> None:
        """Replace the request; the offsets last sent stay, unless they were sent in another leader epoch.

        A follower has to hear from its leader in each epoch, even if nothing else is new.
        """
        if request.leader_epoch != self.leader_epoch:
            self.high_watermark = NO_OFFSET
        self.fetch_offset = request.fetch_offset
        self.bytes_max = request.bytes_max
        self.leader_epoch = request.leader_epoch
        self.follower_log_start = request.follower_log_start
        self.fetched_epoch = request.fetched_epoch
        self.held_end = request.held_end
        self.follower_high_watermark = request.follower_high_watermark

    def unwatch(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None

    def note_response(self, records_size: int, high_watermark: Offset, log_start: Offset, failed: bool) -> bool:
        """Note what is about to be sent; False when nothing in it is new and the response may leave it out.

        An error is always sent. It resets the high watermark, so that the recovery is sent too.
        """
        news = failed or records_size > 0 or high_watermark != self.high_watermark or log_start != self.log_start
        self.high_watermark = NO_OFFSET if failed else high_watermark
        self.log_start = log_start
        return news


class FetchSession:
    """The partitions of one reader, in the order in which they are to be served: for one request, or registered."""

    __slots__ = (
        "_partitions",
        "active",
        "by_topic_id",
        "closed",
        "created_ms",
        "epoch",
        "has_views",
        "id",
        "privileged",
        "size",
        "used_ms",
        "waiting",
    )

    def __init__(self, partitions: Iterable[CachedPartition], *, privileged: bool, by_topic_id: bool) -> None:
        """A partition named more than once counts as named last."""
        self.id = NO_SESSION
        """Assigned by `FetchSessions.register`."""
        self.privileged = privileged
        self.by_topic_id = by_topic_id
        self.created_ms = 0
        self.used_ms = 0
        self.epoch = EPOCH_FIRST
        self.size = 0
        """Number of partitions when last used; eviction compares it."""
        self.closed = False
        self.has_views = False
        """Whether a partition of a view was among its partitions."""
        self._partitions: dict[PartitionKey, CachedPartition] = {
            (partition.topic, partition.partition): partition for partition in partitions
        }
        self.active = self._partitions
        """Partitions that may have news, in the order of serving: all of them until the session is registered."""
        self.waiting: WaitingFetch | None = None
        """The request that waits; at most one."""

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[CachedPartition]:
        return iter(self._partitions.values())

    def get(self, key: PartitionKey) -> CachedPartition | None:
        return self._partitions.get(key)

    def update(self, asked: Iterable[CachedPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Apply an incremental request: the partitions it names become active."""
        partitions = self._partitions
        active = self.active
        for request in asked:
            key = (request.topic, request.partition)
            held = partitions.get(key)
            if held is None:
                partitions[key] = active[key] = request
            else:
                held.ask(request)
                active[key] = held
        for key in forgotten:
            held = partitions.pop(key, None)
            if held is not None:
                active.pop(key, None)
                held.unwatch()

    def settle(self, partition: CachedPartition) -> None:
        """The partition has nothing new: skip it until it is activated or requested again."""
        self.active.pop((partition.topic, partition.partition), None)

    def activate(self, partition: CachedPartition) -> None:
        """The partition's log changed, or its replica is gone: read it at the next poll."""
        key = (partition.topic, partition.partition)
        if self._partitions.get(key) is partition:
            self.active[key] = partition

    def served(self, partition: CachedPartition) -> None:
        """The partition gave records: move it to the end, so that no partition starves behind a busy one."""
        key = (partition.topic, partition.partition)
        if self._partitions.pop(key, None) is not None:
            self._partitions[key] = partition
            self.active.pop(key, None)
            self.active[key] = partition

    def check_response(self, request_epoch: int) -> None:
        """Raise for a response that waited while a later request of the session arrived."""
        if self.epoch != epoch_after(request_epoch):
            raise InvalidFetchSessionEpoch()

    def close(self) -> None:
        """Stop watching the partitions, and complete the request that waits."""
        if not self.closed:
            self.closed = True
            for partition in self._partitions.values():
                partition.unwatch()
            if self.waiting is not None:
                self.waiting.complete()


class FetchSessions:
    """The sessions of one broker: at most `slots_max`; the stalest, then the smallest is evicted for a new one.

    A new session may evict one that has been unused for two minutes, or an unprivileged one if it is privileged itself
    (a follower's), or one that is at least two minutes old if it has at least as many partitions.
    """

    __slots__ = ("_choose_id", "_sessions", "_stale", "evictions", "partitions_cached", "slots_max")

    def __init__(self, slots_max: int, choose_id: Callable[[int], int]) -> None:
        """`choose_id(bound)` gives a random number below the bound, so that clients cannot guess ids."""
        self.slots_max = slots_max
        self._choose_id = choose_id
        self._sessions: dict[int, FetchSession] = {}
        self._stale: list[tuple[int, int]] = []
        """Heap of (last use when pushed, id); an entry whose session was used since is pushed again at the top."""
        self.evictions = 0
        self.partitions_cached = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def resume(
        self,
        session_id: int,
        epoch: int,
        by_topic_id: bool,
        asked: Iterable[CachedPartition],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
    ) -> FetchSession | None:
        """The session of an incremental request, updated and with the next epoch.

        None when the request forgot the last partition: the session is closed, and the response is empty.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound()
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch()
        if session.by_topic_id != by_topic_id:
            raise FetchSessionTopicIdError()
        session.update(asked, forgotten)
        size = len(session)
        if size == 0:
            self._remove(session)
            return None
        if size != session.size:
            self.partitions_cached += size - session.size
            session.size = size
        session.used_ms = now_ms
        session.epoch = EPOCH_FIRST if epoch == EPOCH_MAX else epoch + 1
        return session

    def close(self, session_id: int) -> None:
        """Close the session that a full request names, if there is one."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._remove(session)

    def register(self, session: FetchSession, now_ms: int) -> bool:
        """Keep the session of a full request for incremental ones; False when there is no room."""
        assert session.id == NO_SESSION, f"session {session.id} is registered already"
        size = len(session)
        if len(self._sessions) >= self.slots_max and not self._make_room(session.privileged, size, now_ms):
            return False
        session.id = self._free_id()
        session.active = session.active.copy()
        session.created_ms = session.used_ms = now_ms
        session.size = size
        self.partitions_cached += size
        self._sessions[session.id] = session
        heappush(self._stale, (now_ms, session.id))
        return True

    def _free_id(self) -> int:
        while True:
            id_ = 1 + self._choose_id(SESSION_ID_MAX)
            if id_ not in self._sessions:
                return id_

    def _make_room(self, privileged: bool, size: int, now_ms: int) -> bool:
        victim = self._stalest()
        if victim is None:
            return False
        if now_ms - victim.used_ms <= IDLE_MS_BEFORE_EVICTION:
            victim = self._least_valuable(privileged)
            if victim is None or (privileged, size, 0) < (victim.privileged, victim.size, victim.id):
                return False
        self._remove(victim)
        self.evictions += 1
        return True

    def _stalest(self) -> FetchSession | None:
        """The session unused for longest. Amortised: each use costs at most one more push, here."""
        heap = self._stale
        if len(heap) > 4 * self.slots_max + 64:
            heap[:] = [(session.used_ms, session.id) for session in self._sessions.values()]
            heapify(heap)
        while heap:
            used_ms, id_ = heap[0]
            session = self._sessions.get(id_)
            if session is None:
                heappop(heap)
            elif session.used_ms != used_ms:
                heappop(heap)
                heappush(heap, (session.used_ms, id_))
            else:
                return session
        return None

    def _least_valuable(self, privileged: bool) -> FetchSession | None:
        """The first candidate for eviction. Only a follower may evict a session not used since two minutes of age."""
        replaceable = (
            session
            for session in self._sessions.values()
            if session.used_ms - session.created_ms > IDLE_MS_BEFORE_EVICTION or (privileged and not session.privileged)
        )
        return min(replaceable, key=lambda session: (session.privileged, session.size, session.id), default=None)

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.id]
        self.partitions_cached -= session.size
        session.close()
