"""The window of message ids of a partition with `dedupe.window.records`: which records repeat an earlier one.

A record repeats an id if a record with that id is in the log, at most so many offsets before it. That is a function of
the log and of offsets, never of time, so that a new leader finds the same window in its copy. Removed records keep
their offsets and leave no id behind; records of transactions have none either, because an aborted original would
otherwise swallow its retry.
"""

from collections import deque
from collections.abc import Collection, Sequence
from hashlib import blake2b

from penstock.model.ids import Offset

ID_HEADER = b"penstock-msg-id"
DIGEST_BYTES = 16
"""Ids are compared by digest: a false match would lose a record, and takes 2^64 ids to be likely."""

MessageIds = Sequence[tuple[int, bytes]]
"""Offset delta and id of each record of a batch that has one."""


def digest(message_id: bytes) -> bytes:
    return blake2b(message_id, digest_size=DIGEST_BYTES).digest()


class IdWindow:
    """The ids of a partition's last records, as of the newest one added."""

    __slots__ = ("_offsets", "_order", "_records")

    def __init__(self, records: int) -> None:
        """The window reaches `records` offsets back."""
        self._records = records
        self._offsets: dict[bytes, Offset] = {}
        self._order: deque[bytes] = deque()
        """Digests in the order of their offsets, for eviction."""

    def __len__(self) -> int:
        return len(self._offsets)

    def repeated(self, ids: MessageIds, base: Offset, log_floor: Offset) -> frozenset[int]:
        """Offset deltas of the records, of a batch appended at `base`, whose ids an earlier record has.

        `log_floor` is the first offset whose record is still in the log's files: no other replica knows older ids.
        """
        found: set[int] = set()
        own: dict[bytes, int] = {}
        for delta, message_id in ids:
            key = digest(message_id)
            known = self._offsets.get(key, -1)
            floor = max(base + delta - self._records, log_floor)
            first = own.get(key)
            if known >= floor or (first is not None and base + first >= floor):
                found.add(delta)
            else:
                own[key] = delta
        return frozenset(found)

    def add(self, ids: MessageIds, base: Offset, log_floor: Offset, without: Collection[int] = ()) -> None:
        """Add the ids of a batch that is in the log at `base`, without the records that were removed from it."""
        offsets, order = self._offsets, self._order
        for delta, message_id in ids:
            if delta in without:
                continue
            offset = Offset(base + delta)
            floor = max(offset - self._records, log_floor)
            while order and offsets[order[0]] < floor:
                del offsets[order.popleft()]
            key = digest(message_id)
            if key not in offsets:
                order.append(key)
            offsets[key] = offset
