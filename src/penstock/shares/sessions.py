"""Share sessions: the partitions that a member of a share group fetches from this broker.

A request names what changed since the one before, and its epoch: 0 opens a session, or replaces it, k is the k-th
request of an open one, and -1 closes it. A session also ends with the connection that opened it. What the member holds
is released when its session ends; a session that is replaced keeps it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple, Protocol

from penstock.model.generated_errors import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound
from penstock.model.ids import TopicId

EPOCH_INITIAL = 0
EPOCH_FINAL = -1
EPOCH_FIRST = 1
EPOCH_MAX = 2**31 - 1


def epoch_after(epoch: int) -> int:
    """Epochs go 0, 1, 2, ... and wrap to 1: 0 and -1 have meanings of their own."""
    return EPOCH_FIRST if epoch == EPOCH_MAX else epoch + 1


class SharedPartition(NamedTuple):
    """One partition of a topic, by the topic's id."""

    topic_id: TopicId
    partition: int


class SessionKey(NamedTuple):
    """One member of one share group."""

    group: str
    member: str


class WaitingFetch(Protocol):
    """A request that waits for records."""

    def end(self) -> None:
        """Respond without acquiring anything."""
        ...


class ShareSession:
    """The partitions of one member, and the epoch of its next request."""

    __slots__ = ("epoch", "key", "opened_by", "partitions", "waiting")

    def __init__(self, key: SessionKey, opened_by: Hashable, partitions: Iterable[SharedPartition]) -> None:
        self.key = key
        self.opened_by = opened_by
        """The connection that opened it."""
        self.epoch = EPOCH_FIRST
        self.partitions: dict[SharedPartition, bool] = dict.fromkeys(partitions, False)
        """Each with whether the next response has to name it, even if it has nothing new."""
        self.waiting: WaitingFetch | None = None
        """The fetch that waits; a later request of the member ends it."""

    def follows(self, epoch: int) -> bool:
        """Whether no request came after the one with this epoch."""
        return self.epoch == epoch_after(epoch)

    def interrupt(self) -> None:
        """End the fetch that waits: its response would be to a request of the past."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.end()

    def update(self, asked: Iterable[SharedPartition], forgotten: Iterable[SharedPartition]) -> None:
        """Apply the changes that a request names."""
        for partition in asked:
            if partition not in self.partitions:
                self.partitions[partition] = True
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def rotated(self) -> list[SharedPartition]:
        """The partitions in the order in which this request serves them: each comes first in turn."""
        partitions = list(self.partitions)
        if len(partitions) > 1:
            at = self.epoch % len(partitions)
            partitions = partitions[at:] + partitions[:at]
        return partitions

    def names(self, partition: SharedPartition, *, has_news: bool, failed: bool) -> bool:
        """Whether the response names a partition; notes that it does."""
        named = self.partitions.get(partition)
        if named is None:
            return has_news or failed
        if failed:
            # The recovery is sent too.
            self.partitions[partition] = True
        elif named:
            self.partitions[partition] = False
        return has_news or failed or named


class ShareSessions:
    """The sessions of one broker, and how many each group has."""

    __slots__ = ("_by_connection", "_sessions", "of_group")

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[Hashable, set[SessionKey]] = {}
        self.of_group: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound()
        return session

    def open(
        self, key: SessionKey, opened_by: Hashable, partitions: Iterable[SharedPartition], *, sessions_max: int
    ) -> ShareSession:
        """Begin a session; one of the same member ends, and keeps what it holds."""
        self.remove(key)
        if len(self._sessions) >= sessions_max:
            raise ShareSessionLimitReached()
        session = self._sessions[key] = ShareSession(key, opened_by, partitions)
        self._by_connection.setdefault(opened_by, set()).add(key)
        self.of_group[key.group] = self.of_group.get(key.group, 0) + 1
        return session

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session of a request with this epoch, which is its last one with -1."""
        session = self.get(key)
        if epoch not in (EPOCH_FINAL, session.epoch):
            raise InvalidShareSessionEpoch()
        if epoch != EPOCH_FINAL:
            session.epoch = epoch_after(epoch)
        session.interrupt()
        return session

    def is_current(self, session: ShareSession) -> bool:
        """Whether the session has neither ended nor been replaced."""
        return self._sessions.get(session.key) is session

    def remove(self, key: SessionKey) -> ShareSession | None:
        """End a session; the caller releases what the member holds."""
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        session.interrupt()
        keys = self._by_connection[session.opened_by]
        keys.discard(key)
        if not keys:
            del self._by_connection[session.opened_by]
        left = self.of_group[key.group] - 1
        if left:
            self.of_group[key.group] = left
        else:
            del self.of_group[key.group]
        return session

    def of_connection(self, connection: Hashable) -> list[SessionKey]:
        """The sessions that a connection opened."""
        return sorted(self._by_connection.get(connection, ()))
