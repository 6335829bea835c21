"""The epoch of a group with the consumer protocol: every change that needs a new target raises it."""

from collections.abc import Iterable

from penstock.groups.consumer.events import ConsumerGroupMetadata
from penstock.groups.consumer.state import Change, ConsumerState, Member, TopicHashes, count
from penstock.groups.draft import Draft
from penstock.groups.topics import TopicsView
from penstock.wire.group_values import GroupEpoch


class GroupEpochs:
    """Raises the epoch of one group when its members, their subscriptions or the subscribed topics change."""

    def __init__(self, state: ConsumerState, topics: TopicsView) -> None:
        self._state = state
        self._hashes = TopicHashes(topics)
        self._checked: int | None = None
        """The epoch for which the topics' hash has been compared."""

    def after(self, change: Change, draft: Draft, *, bump: bool) -> int:
        """The epoch after a change of a member; raised if `bump` is set or the subscribed topics changed."""
        epoch = self._state.epoch.epoch
        if not bump and self._checked is not None and epoch >= self._checked:
            return epoch
        new_hash = self._hashes.of(self._names_after(change.removed, change.after))
        if bump or new_hash != self._state.epoch.metadata_hash:
            epoch += 1
            draft.append(ConsumerGroupMetadata(self._state.group, GroupEpoch(epoch, new_hash)))
        self._checked = epoch
        return epoch

    def without(self, members: Iterable[Member], draft: Draft) -> None:
        """Raise the epoch because these members left."""
        new_hash = self._hashes.of(self._names_after(members))
        epoch = GroupEpoch(self._state.epoch.epoch + 1, new_hash)
        draft.append(ConsumerGroupMetadata(self._state.group, epoch))

    def reading(self, names: Iterable[str], draft: Draft, *, bump: bool) -> bool:
        """Raise the epoch if `bump` is set or these topics, all that are subscribed, changed; whether it did."""
        new_hash = self._hashes.of(names)
        if not bump and new_hash == self._state.epoch.metadata_hash:
            return False
        epoch = self._state.epoch.epoch + 1
        draft.append(ConsumerGroupMetadata(self._state.group, GroupEpoch(epoch, new_hash)))
        self._checked = epoch
        return True

    def forget(self, names: Iterable[str]) -> None:
        """Drop the cached hashes of topics that changed or were deleted."""
        self._hashes.forget(names)

    def _names_after(self, removed: Iterable[Member], added: Member | None = None) -> Iterable[str]:
        """The subscribed topics, by name or pattern, after some members were removed and one was added."""
        state = self._state
        readers = dict(state.topic_readers)
        patterns = dict(state.pattern_readers)
        for member in removed:
            count(readers, member.metadata.topics, -1)
            count(patterns, [member.metadata.pattern] if member.metadata.pattern else [], -1)
        if added is not None:
            count(readers, added.metadata.topics, 1)
            count(patterns, [added.metadata.pattern] if added.metadata.pattern else [], 1)
        names = set(readers)
        for pattern, resolved in state.patterns.items():
            if pattern in patterns:
                names.update(resolved.topics)
        return names
