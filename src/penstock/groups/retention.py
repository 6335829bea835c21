"""Forgetting what nobody comes back to: offsets past their retention, and then the groups that had them.

A shard may hold a million offsets, so it is gone through in slices, none of which holds up the loop.
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
"""Groups by name; None is one that never had members, of which nothing is known but its offsets."""


@dataclass(frozen=True, slots=True)
class RetentionCheck:
    """Timer: look for offsets past their retention, or go on looking."""


class RetentionSweep:
    """One way through all offsets of a shard, and where it is."""

    __slots__ = ("_groups", "_left", "_offset_store")

    def __init__(self, groups: Groups, store: OffsetStore) -> None:
        self._groups = groups
        self._offset_store = store
        self._left: Iterator[tuple[str, str | None]] | None = None

    def look(self, retention_ms: int, interval_ms: int, draft: Draft) -> None:
        """Look through one slice; come again at once for the next, or after the interval."""
        if self._left is None:
            self._left = self._places()
        looked_at = dropped = 0
        for group, topic in self._left:
            if topic is None:
                # What this slice drops is still in the store: it is applied when it is written.
                if self._offset_store.count_of(group) == dropped:
                    self._forget(group, draft)
                looked_at += 1
                dropped = 0
            else:
                looked_at += self._offset_store.count_of(group, topic)
                dropped += self._drop_expired(group, topic, retention_ms, draft)
            if looked_at >= OFFSETS_PER_SLICE_MAX:
                draft.wake_at(RetentionCheck(), draft.now_ms)
                return
        self._left = None
        draft.wake_at(RetentionCheck(), draft.now_ms + interval_ms)

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
            draft.remember(event)
        return len(expired)

    def _forget(self, name: str, draft: Draft) -> None:
        """A group without offsets and without members is nothing, unless somebody is about to join."""
        if name not in self._groups:
            return
        group = self._groups[name]
        if group is None:
            draft.remember(ClassicGroupForgotten(group=name))
        elif group.empty and not group.expected:
            draft.add(group.deletion(draft.now_ms))
