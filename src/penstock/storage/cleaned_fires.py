"""What compaction keeps of a topic of schedules, beyond the newest record of every key.

A fire names the records that are delivered (`wire.schedule_records`). Until its close is committed, a later leader may
have to deliver them, so what open fires name is kept. A fire also says that its records are done, for as long as one of
them is there, and the last fire for a target partition says which sequence comes next. It is the only one that may be
open, so the pass need not end before it. A close is kept with its fire.
"""

from collections.abc import Sequence

from penstock.model.ids import Offset, TopicId
from penstock.storage.view import LogView
from penstock.storage.walk import BatchAt
from penstock.wire.records import RecordKey, decode_records
from penstock.wire.schedule_records import Close, Fire, parse

NAMED_MAX = 2_000_000
"""Records named by closed fires that one pass looks for; the fires after them are kept for the next pass."""


class CleanedFires:
    """The fires of a log, for one pass of compaction."""

    __slots__ = ("_held", "_last", "_named", "_named_to", "_needed", "_pinned", "_survivors")

    def __init__(self, view: LogView, committed: Offset) -> None:
        """Reads every control batch. `committed` is the high watermark: beyond it, records may be truncated yet."""
        self._pinned: set[Offset] = set()
        """Records that open fires name."""
        self._held: set[bytes | None] = set()
        """Keys of such records that have newer ones."""
        self._named: set[Offset] = set()
        self._named_to = view.log_end
        """Fires from here on are kept."""
        self._survivors: set[Offset] = set()
        """Records that closed fires name, and that are kept."""
        self._needed: set[Offset] = set()
        """Fires that are kept."""
        self._last: dict[tuple[TopicId, int], Offset] = {}
        self._scan(view, committed)

    def _scan(self, view: LogView, committed: Offset) -> None:
        fires: dict[tuple[Offset, int], Fire] = {}
        for batch in view.walk_from(view.log_start, bodies=False, control_bodies=True):
            offset = batch.header.base_offset
            for found in records_of(batch):
                if isinstance(found, Fire):
                    fires[offset, found.partition] = found
                    if offset < committed:
                        self._last[found.topic_id, found.partition] = offset
                elif offset < committed:
                    closed = fires.pop((found.fire, found.partition), None)
                    if closed is not None:
                        self._name(found.fire, closed)
        for fire in fires.values():
            self._pinned.update(each.offset for each in fire.named)

    def _name(self, offset: Offset, fire: Fire) -> None:
        if len(self._named) >= NAMED_MAX:
            self._named_to = min(self._named_to, offset)
        else:
            self._named.update(each.offset for each in fire.named)

    def keeps(self, record: RecordKey, is_newest: bool) -> bool:
        """Whether the pass keeps a record: the newest of its key, or one that an open fire names."""
        offset = record.offset
        if not is_newest:
            if offset not in self._pinned:
                return False
            self._held.add(record.key)
        if offset in self._named:
            self._survivors.add(offset)
        return True

    def holds(self, key: bytes | None) -> bool:
        """Whether an older record of a key is kept, so that a tombstone after it has to be."""
        return key in self._held

    def is_needed(self, batch: BatchAt) -> bool | None:
        """Whether a control batch is kept, after all records before it; None if it is not one of schedules."""
        offset, found = batch.header.base_offset, records_of(batch)
        if not found:
            return None
        if offset >= self._named_to:
            needed = True
        else:
            needed = any(self._is_needed(offset, each) for each in found)
        if needed and isinstance(found[0], Fire):
            self._needed.add(offset)
        return needed

    def _is_needed(self, offset: Offset, found: Fire | Close) -> bool:
        if isinstance(found, Close):
            return found.fire in self._needed
        if self._last.get((found.topic_id, found.partition)) == offset:
            return True
        return any(each.offset in self._survivors for each in found.named)


def records_of(batch: BatchAt) -> Sequence[Fire | Close]:
    """The fires or closes of a batch."""
    header = batch.header
    if not header.is_control or header.producer_id >= 0 or not header.record_count:
        return ()
    return parse(decode_records(batch.data)[0])
