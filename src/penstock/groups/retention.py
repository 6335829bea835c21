"""Deletes offsets past their retention, and then the empty groups that had them.

A shard may hold a million offsets, so it is checked in slices that do not block the loop.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.groups.draft import Draft
from penstock.groups.events import ClassicGroupForgotten
from penstock.groups.group import Group
from penstock.groups.offset_store import SINCE_COMMIT, OffsetStore

OFFSETS_PER_SLICE_MAX = 5_000
"""A slice ends with the topic that reaches this many, or this many groups without offsets."""

Groups = Mapping[str, Group | None]
"""Groups by name; None is a group that has offsets but never had members."""


@dataclass(frozen=True, slots=True)
class RetentionCheck:
    """Timer: start or continue the check for offsets past their retention."""


class RetentionSweep:
    """One pass over all offsets of a shard, and its position."""

    __slots__ = ("_groups", "_left", "_offset_store")

    def __init__(self, groups: Groups, store: OffsetStore) -> None:
        self._groups = groups
        self._offset_store = store
        self._left: Iterator[tuple[str, str | None]] | None = None

    def check_slice(self, retention_ms: int, interval_ms: int, draft: Draft) -> None:
        """Check one slice; the timer expires at once if there are more, else after the interval."""
        if self._left is None:
            self._left = self._places()
        checked = dropped = 0
        for group, topic in self._left:
            if topic is None:
                # Offsets that this slice drops are in the store until the step is applied.
                if self._offset_store.count_of(group) == dropped:
                    self._forget(group, draft)
                checked += 1
                dropped = 0
            else:
                checked += self._offset_store.count_of(group, topic)
                dropped += self._drop_expired(group, topic, retention_ms, draft)
            if checked >= OFFSETS_PER_SLICE_MAX:
                draft.set_timer(RetentionCheck(), draft.now_ms)
                return
        self._left = None
        draft.set_timer(RetentionCheck(), draft.now_ms + interval_ms)

    def _places(self) -> Iterator[tuple[str, str | None]]:
        """Each topic of each group, and then the group itself."""
        for group in tuple(self._groups):
            for topic in self._offset_store.topics_of(group):
                yield group, topic
            yield group, None

    def _drop_expired(self, name: str, topic: str, retention_ms: int, draft: Draft) -> int:
        if name not in self._groups:
            return 0
        group = self._groups[name]
        from_ms = SINCE_COMMIT if group is None else group.offsets_expire_from()
        if from_ms is None or (group is not None and group.subscribed_to(topic)):
            return 0
        expired = self._offset_store.expired(name, topic, from_ms, retention_ms, draft.now_ms)
        for event in expired:
            draft.append(event)
        return len(expired)

    def _forget(self, name: str, draft: Draft) -> None:
        """Delete a group without offsets and members, unless a member is about to join."""
        if name not in self._groups:
            return
        group = self._groups[name]
        if group is None:
            draft.append(ClassicGroupForgotten(group=name))
        elif group.expires and group.empty and not group.has_pending_members:
            draft.add(group.deletion(draft.now_ms))
