"""Encodes the share coordinator's events as records of `__share_group_state`, and decodes them."""

from typing import assert_never

from penstock.model.batch import BatchHeader
from penstock.shares.state.events import SnapshotSaved, StateEvent, StateForgotten, StateUpdated
from penstock.wire import share_records as wire
from penstock.wire.primitives import Malformed
from penstock.wire.record_columns import Columns


def encode_event(event: StateEvent) -> tuple[bytes, bytes | None]:
    """The key and the value of an event's record; no value is a tombstone."""
    match event:
        case StateUpdated(key, update):
            return wire.share_key(wire.UPDATE, key), wire.update_value(update)
        case SnapshotSaved(key, snapshot):
            return wire.share_key(wire.SNAPSHOT, key), wire.snapshot_value(snapshot)
        case StateForgotten(key):
            return wire.share_key(wire.SNAPSHOT, key), None
        case _:
            assert_never(event)


class StateReader:
    """Decodes records into events."""

    __slots__ = ("unreadable",)

    def __init__(self) -> None:
        self.unreadable = 0

    def read(self, columns: Columns) -> list[StateEvent]:
        """The events of these records, in order. A record that cannot be decoded is counted and skipped."""
        events: list[StateEvent] = []
        data = bytes(columns.data)
        for key_at, key_size, value_at, value_size in zip(
            columns.key_at, columns.key_sizes, columns.value_at, columns.value_sizes, strict=True
        ):
            key = data[key_at : key_at + key_size] if key_size >= 0 else b""
            try:
                event = read_event(key, data[value_at : value_at + value_size] if value_size >= 0 else None)
            except Malformed:
                event = None
            if event is None:
                self.unreadable += 1
            else:
                events.append(event)
        return events

    def read_transactional(self, header: BatchHeader, batch: bytes) -> list[StateEvent]:
        """Skip transactional batches: no coordinator writes them to this topic."""
        self.unreadable += header.record_count
        return []


def read_event(raw: bytes, value: bytes | None) -> StateEvent | None:
    """The event of a record; None if its key is of an unknown kind. Raises `Malformed`."""
    found = wire.read_share_key(raw)
    if found is None:
        return None
    kind, key = found
    if value is None:
        # Only compaction, which the topic does not have, would leave the tombstone of an update behind.
        return StateForgotten(key) if kind == wire.SNAPSHOT else None
    if kind == wire.SNAPSHOT:
        return SnapshotSaved(key, wire.read_snapshot(value))
    return StateUpdated(key, wire.read_update(value))
