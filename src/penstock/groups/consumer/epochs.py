"""The epoch of a group with the consumer protocol: it counts what has to lead to a new target."""

from collections.abc import Iterable

from penstock.groups.consumer.events import ConsumerGroupMetadata
from penstock.groups.consumer.state import Change, ConsumerState, Member, TopicHashes, count
from penstock.groups.draft import Draft
from penstock.groups.topics import TopicsView
from penstock.wire.group_values import GroupEpoch


class GroupEpochs:
    """Raises the epoch of one group where its members, what they read, or those topics change."""

    def __init__(self, state: ConsumerState, topics: TopicsView) -> None:
        self._state = state
        self._hashes = TopicHashes(topics)
        self._checked: int | None = None
        """The epoch for which the topics have been compared; they are compared again when they change."""

    def after(self, change: Change, draft: Draft, *, bump: bool) -> int:
        """The epoch after a change of a member, one higher where what is read changed, or the topics did."""
        epoch = self._state.epoch.epoch
        if not bump and self._checked is not None and epoch >= self._checked:
            return epoch
        new_hash = self._hashes.of(self._names_after(change.removed, change.after))
        if bump or new_hash != self._state.epoch.metadata_hash:
            epoch += 1
            draft.remember(ConsumerGroupMetadata(self._state.group, GroupEpoch(epoch, new_hash)))
        self._checked = epoch
        return epoch

    def without(self, members: Iterable[Member], draft: Draft) -> None:
        """The next epoch: these members are gone."""
        new_hash = self._hashes.of(self._names_after(members))
        epoch = GroupEpoch(self._state.epoch.epoch + 1, new_hash)
        draft.remember(ConsumerGroupMetadata(self._state.group, epoch))

    def reading(self, names: Iterable[str], draft: Draft, *, bump: bool) -> bool:
        """Raise the epoch where the topics of these names, which the group reads, changed; whether they did."""
        new_hash = self._hashes.of(names)
        if not bump and new_hash == self._state.epoch.metadata_hash:
            return False
        epoch = self._state.epoch.epoch + 1
        draft.remember(ConsumerGroupMetadata(self._state.group, GroupEpoch(epoch, new_hash)))
        self._checked = epoch
        return True

    def forget(self, names: Iterable[str]) -> None:
        """These topics changed, or went."""
        self._hashes.forget(names)

    def _names_after(self, removed: Iterable[Member], added: Member | None = None) -> Iterable[str]:
        """The topics that are read, by name or pattern, once some members are gone and one has come."""
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
