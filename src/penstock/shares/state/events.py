"""The events of the share coordinator: one per record of `__share_group_state`.

A snapshot replaces everything before it of its share partition, updates add to it.
"""

from typing import NamedTuple

from penstock.wire.share_records import ShareKey, SnapshotValue, UpdateValue


class SnapshotSaved(NamedTuple):
    """The whole state of a share partition."""

    key: ShareKey
    value: SnapshotValue


class StateUpdated(NamedTuple):
    """A change since the last snapshot."""

    key: ShareKey
    value: UpdateValue


class StateForgotten(NamedTuple):
    """The tombstone of a share partition."""

    key: ShareKey


StateEvent = SnapshotSaved | StateUpdated | StateForgotten
