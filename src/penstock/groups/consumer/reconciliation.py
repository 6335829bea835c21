"""Reconciliation of one member with its target assignment.

A member first revokes the partitions that are not in its target; its heartbeat acknowledges that by no longer listing
them. Then it moves to the target's epoch and gets the free partitions at once, the others as their owners revoke them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never

from penstock.groups.consumer.events import ConsumerCurrentMemberAssignment
from penstock.groups.consumer.state import Change, ConsumerState, Member
from penstock.groups.consumer.timers import Alarm, ConsumerTimer
from penstock.groups.draft import Draft
from penstock.groups.topics import TopicsView
from penstock.model.generated_errors import FencedMemberEpoch
from penstock.model.ids import TopicId
from penstock.wire.group_values import CurrentAssignment, MemberMetadata, MemberState, PartitionEpochs, Partitions

NONE: Final = frozenset[int]()

Owned = Mapping[TopicId, frozenset[int]]
"""The partitions that a member reports as owned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The target of a member's reconciliation."""

    epoch: int
    target: Partitions
    subscribed: Callable[[TopicId], bool]
    """Whether the topic exists and the member subscribes to it."""
    taken: Callable[[TopicId, int], bool]
    """Whether another member owns this partition."""


def reconcile(
    current: CurrentAssignment, to: Destination, owned: Owned | None, *, resubscribed: bool
) -> CurrentAssignment:
    """The member's assignment after this heartbeat; the same value if it has to wait.

    `owned` are the partitions in the heartbeat, None if it omits them. `resubscribed` means that the heartbeat changed
    the subscription: partitions of topics no longer subscribed are revoked at once.
    """
    match current.state:
        case MemberState.STABLE:
            if current.member_epoch != to.epoch:
                return advance(current, to, owned)
            return unsubscribe(current, to, owned) if resubscribed else current
        case MemberState.UNREVOKED_PARTITIONS:
            if still_owns(current.revoking, owned):
                return unsubscribe(current, to, owned) if resubscribed else current
            return advance(current, to, owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return advance(current, to, owned)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise FencedMemberEpoch(
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin."
                )
            return advance(replace(current, member_epoch=to.epoch), to, owned)
    assert_never(current.state)


def still_owns(revoking: PartitionEpochs, owned: Owned | None) -> bool:
    """Whether the member still owns a partition it has to revoke; true if it does not report its partitions."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic, ())) for topic, partitions in owned.items())


def advance(current: CurrentAssignment, to: Destination, owned: Owned | None) -> CurrentAssignment:
    """Revoke first; otherwise assign the free partitions, in the target's epoch."""
    assigned: dict[TopicId, Mapping[int, int]] = {}
    revoking: dict[TopicId, Mapping[int, int]] = {}
    gained: dict[TopicId, frozenset[int]] = {}
    waits = False
    for topic in {**to.target, **current.assigned}:
        target: frozenset[int] = to.target.get(topic, NONE) if to.subscribed(topic) else NONE
        have = current.assigned.get(topic, {})
        keep = {partition: epoch for partition, epoch in have.items() if partition in target}
        if keep:
            assigned[topic] = keep
        if len(keep) < len(have):
            revoking[topic] = {partition: epoch for partition, epoch in have.items() if partition not in target}
        missing = target.difference(keep)
        free = frozenset(partition for partition in missing if not to.taken(topic, partition))
        waits = waits or len(free) < len(missing)
        if free:
            gained[topic] = free
    if revoking and still_owns(revoking, owned):
        return CurrentAssignment(
            member_epoch=current.member_epoch,
            previous_epoch=current.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=assigned,
            revoking=revoking,
        )
    for topic, partitions in gained.items():
        assigned[topic] = {**assigned.get(topic, {}), **dict.fromkeys(partitions, to.epoch)}
    return CurrentAssignment(
        member_epoch=to.epoch,
        previous_epoch=current.member_epoch,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        assigned=assigned,
    )


def unsubscribe(current: CurrentAssignment, to: Destination, owned: Owned | None) -> CurrentAssignment:
    """Revoke the topics that the member no longer subscribes to, and nothing else."""
    gone = {topic: epochs for topic, epochs in current.assigned.items() if not to.subscribed(topic)}
    if not gone:
        return current
    assigned = {topic: epochs for topic, epochs in current.assigned.items() if topic not in gone}
    revoking = dict(current.revoking)
    for topic, epochs in gone.items():
        revoking[topic] = {**revoking.get(topic, {}), **epochs}
    left = replace(current, previous_epoch=current.member_epoch, assigned=assigned)
    if still_owns(revoking, owned):
        return replace(left, state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)
    return left


class Reconciler:
    """Moves the members of one group to their targets."""

    def __init__(self, state: ConsumerState, topics: TopicsView) -> None:
        self._state = state
        self._topics = topics

    def reconcile(
        self, change: Change, target: tuple[int, Partitions], owned: Owned | None, draft: Draft, *, resubscribed: bool
    ) -> Member:
        """Move the member one step to its target, a pair of epoch and partitions; returns the changed member."""
        member = change.after
        epoch, partitions = target
        if not resubscribed and member.settled(epoch):
            return member
        mine = {None, member.member_id, change.replaced.member_id if change.replaced is not None else None}
        destination = Destination(
            epoch=epoch,
            target=partitions,
            subscribed=self._subscribed(member.metadata),
            taken=lambda topic, partition: self._state.owner(topic, partition) not in mine,
        )
        current = reconcile(member.current, destination, owned, resubscribed=resubscribed)
        if current == member.current:
            return member
        draft.append(ConsumerCurrentMemberAssignment(self._state.group, member.member_id, current))
        if not member.classic:
            timer = ConsumerTimer(self._state.group, Alarm.REBALANCE, member.member_id)
            if current.state is MemberState.UNREVOKED_PARTITIONS:
                draft.set_timer(timer, draft.now_ms + member.metadata.rebalance_timeout_ms)
            else:
                draft.cancel_timer(timer)
        return replace(member, current=current)

    def _subscribed(self, metadata: MemberMetadata) -> Callable[[TopicId], bool]:
        names = frozenset(self._state.topics_of(metadata))

        def subscribed(topic: TopicId) -> bool:
            return self._topics.topic_name(topic) in names

        return subscribed
