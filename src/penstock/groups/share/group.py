"""A share group (KIP-932): members share partitions, and the records of a partition are divided among them.

A change of members, subscriptions or topics raises the group's epoch, and for a new epoch the assignor computes a
target. No partition has to be revoked before another member gets it, so a member has its part of the target with its
next heartbeat. A partition is assigned once its share coordinator has begun its state: the first heartbeat that needs
it asks for that, as an effect.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import NOTHING, Event, JobDone, SetTimer, Step, Ticket, failed
from penstock.groups.assignors.simple import share_partitions
from penstock.groups.assignors.spec import MemberSpec
from penstock.groups.commands import (
    AlterShareOffsets,
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteShareOffsets,
    DescribedGroup,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    ListedGroup,
    ShareHeartbeat,
    SharesDeleted,
    SharesInitialized,
    SyncGroup,
)
from penstock.groups.consumer.responses import DescribedConsumerGroup, DescribedPartitions
from penstock.groups.consumer.settings import (
    RECONCILING_INTERVAL_MS,
    RECONCILING_MS,
    RECONCILING_MS_PER_MEMBER,
    ConsumerGroupSettings,
    no_overrides,
)
from penstock.groups.consumer.state import TopicHashes
from penstock.groups.draft import Draft
from penstock.groups.group import CommitValidation, GroupTimer
from penstock.groups.share.effects import DeleteShares, InitializeShares
from penstock.groups.share.events import (
    ShareEvent,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
)
from penstock.groups.share.responses import (
    SHARES_SETTLED,
    DescribedShareGroup,
    DescribedShareMember,
    ShareHeartbeatReply,
    SharesChosen,
)
from penstock.groups.share.state import Named, ShareMember, ShareState, indexes, united, without
from penstock.groups.share.timers import ShareSessionEnd
from penstock.groups.topics import TopicsView
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    NonEmptyGroup,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import TopicId
from penstock.wire.group_values import (
    JOINING_EPOCH,
    LEFT_EPOCH,
    AssignmentEpoch,
    GroupEpoch,
    NamedPartitions,
    Partitions,
    ShareMemberMetadata,
    SharePartitions,
)

SHARE = "Share"
"""Kafka's name of this group type."""

SHARE_PROTOCOL_TYPE = "share"
ASSIGNOR = "simple"


class ShareGroup:
    """One group. Its state is its applied events; when a share partition began to begin is lost with the shard."""

    __slots__ = (
        "_began_ms",
        "_hashes",
        "_is_stale",
        "_level_with",
        "_settings",
        "_settling_until_ms",
        "_topics",
        "name",
        "state",
    )

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        topics: TopicsView,
        overrides: Callable[[str], Mapping[str, str]] = no_overrides,
    ) -> None:
        self.name = name
        self.state = ShareState(name)
        self._topics = topics
        self._settings = ConsumerGroupSettings(name, config, overrides)
        self._hashes = TopicHashes(topics)
        self._is_stale = True
        """Whether the subscribed topics may have changed since the epoch was last compared with them."""
        self._began_ms: dict[TopicId, int] = {}
        """When share coordinators were last asked to begin partitions of a topic."""
        self._level_with: tuple[int, SharePartitions] | None = None
        """The epoch of a target that has all of these share partitions."""
        self._settling_until_ms = 0
        """Until then members heartbeat more often."""

    # Heartbeats

    def share_heartbeat(self, command: ShareHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        """A member joins, stays or leaves. The shard has validated the request and found or created the group."""
        draft = Draft(now_ms)
        try:
            reply = self._leave(command, draft) if command.member_epoch == LEFT_EPOCH else self._beat(command, draft)
        except BrokerError as error:
            return failed(ticket, error)
        draft.respond(ticket, reply)
        return draft.step()

    def _beat(self, command: ShareHeartbeat, draft: Draft) -> ShareHeartbeatReply:
        """The member's subscription, then the group's epoch, the target assignment, and the member's part of it."""
        member_id, joins = command.member_id, command.member_epoch == JOINING_EPOCH
        known = self.state.members.get(member_id)
        self._check_room(known)
        before = known
        if before is None:
            if not joins:
                raise self._unknown(member_id)
            before = ShareMember(member_id)
        check_epoch(before, command.member_epoch)
        if self._is_stale:
            self._forget_gone(draft)
        after = replace(before, metadata=metadata_of(before, command))
        if after != known:
            draft.append(ShareGroupMemberMetadata(self.name, member_id, after.metadata))
        resubscribed = after.metadata.topics != before.metadata.topics
        names = self.state.names_after(known, after)
        epoch = self._epoch_after(names, draft, bump=resubscribed or self._is_behind())
        target_epoch, target = self._target_for(after, epoch, draft)
        after = self._reconciled(after, target_epoch, target, draft, resubscribed=resubscribed)
        settings = self._settings.current
        draft.set_timer(ShareSessionEnd(self.name, member_id), draft.now_ms + settings.share_session_timeout_ms)
        self._begin_shares(names, epoch, draft)
        in_full = joins or command.subscribed_topics is not None
        changed = after.current.assigned != before.current.assigned
        return ShareHeartbeatReply(
            member_id=member_id,
            member_epoch=after.current.member_epoch,
            heartbeat_interval_ms=self._interval_ms(epoch, target_epoch, draft.now_ms),
            assignment=listed(after.current.assigned) if in_full or changed else None,
        )

    def _leave(self, command: ShareHeartbeat, draft: Draft) -> ShareHeartbeatReply:
        member = self.state.members.get(command.member_id)
        if member is None:
            raise self._unknown(command.member_id)
        self._fence(member, draft)
        return ShareHeartbeatReply(member_id=member.member_id, member_epoch=LEFT_EPOCH)

    def _check_room(self, known: ShareMember | None) -> None:
        size_max = self._settings.broker.group_share_max_size
        if known is None and len(self.state.members) >= size_max:
            raise GroupMaxSizeReached(f"The share group has reached its maximum capacity of {size_max} members.")

    def _unknown(self, member_id: str) -> BrokerError:
        return UnknownMemberId(f"Member {member_id} is not a member of group {self.name}.")

    def _epoch_after(self, names: Iterable[str], draft: Draft, *, bump: bool) -> int:
        """The epoch with these topics subscribed; raised if `bump` is set or one of them changed."""
        epoch = self.state.epoch.epoch
        if not bump and not self._is_stale:
            return epoch
        self._is_stale = False
        new_hash = self._hashes.of(names)
        if bump or new_hash != self.state.epoch.metadata_hash:
            epoch += 1
            draft.append(ShareGroupMetadata(self.name, GroupEpoch(epoch, new_hash)))
        return epoch

    def _is_behind(self) -> bool:
        """Whether partitions have begun since the target of the present epoch was computed."""
        state = self.state
        if not state.members or state.assignment.epoch < state.epoch.epoch:
            return False
        level = self._level_with
        if level is not None and level[0] == state.assignment.epoch and level[1] is state.partitions:
            return False
        assigned: dict[TopicId, set[int]] = {}
        for target in state.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        for topic_id, (name, partitions) in state.partitions.initialized.items():
            shown = self._shown(name, partitions)
            if name in state.readers and shown.symmetric_difference(assigned.get(topic_id, ())):
                return True
        self._level_with = (state.assignment.epoch, state.partitions)
        return False

    def _target_for(self, member: ShareMember, epoch: int, draft: Draft) -> tuple[int, Partitions]:
        """The target's epoch and the member's part; computes a new target if one is due."""
        state = self.state
        last = (state.assignment.epoch, state.target(member.member_id))
        interval_ms = self._settings.current.share_assignment_interval_ms
        computed_ms = state.assignment.computed_ms
        if state.assignment.epoch >= epoch or computed_ms <= draft.now_ms < computed_ms + interval_ms:
            return last
        members = {**state.members, member.member_id: member}
        assignable = self.offset_partitions()
        ids = {
            found.name: topic_id for topic_id, found in state.partitions.initialized.items() if topic_id in assignable
        }
        specs = [
            MemberSpec(
                member_id=each.member_id,
                topics=frozenset(ids[name] for name in each.metadata.topics if name in ids),
                target=state.target(each.member_id),
                rack_id=each.metadata.rack_id,
            )
            for each in members.values()
        ]
        targets = share_partitions(specs, assignable)
        for member_id, target in targets.items():
            if target != state.targets.get(member_id):
                draft.append(ShareGroupTargetAssignmentMember(self.name, member_id, target))
        draft.append(ShareGroupTargetAssignmentMetadata(self.name, AssignmentEpoch(epoch, draft.now_ms)))
        return epoch, targets[member.member_id]

    def _reconciled(
        self, member: ShareMember, target_epoch: int, target: Partitions, draft: Draft, *, resubscribed: bool
    ) -> ShareMember:
        """The member with its part of the target; before that, without the topics it no longer subscribes to."""
        current = member.current
        if current.member_epoch != target_epoch:
            current = replace(current, member_epoch=target_epoch, previous_epoch=current.member_epoch, assigned=target)
        elif resubscribed:
            wanted = {self._topics.topic_id(name) for name in member.metadata.topics}
            left = {topic_id: found for topic_id, found in current.assigned.items() if topic_id in wanted}
            current = replace(current, assigned=left)
        if current != member.current:
            draft.append(ShareGroupCurrentMemberAssignment(self.name, member.member_id, current))
        return replace(member, current=current)

    def _interval_ms(self, epoch: int, target_epoch: int, now_ms: int) -> int:
        """The heartbeat interval: shorter than configured while the assignment is about to change."""
        if epoch != self.state.epoch.epoch or target_epoch != epoch or self.state.partitions.initializing:
            self._settling_until_ms = now_ms + RECONCILING_MS
        configured_ms = self._settings.current.share_heartbeat_interval_ms
        if now_ms >= self._settling_until_ms:
            return configured_ms
        return min(configured_ms, max(RECONCILING_INTERVAL_MS, len(self.state.members) * RECONCILING_MS_PER_MEMBER))

    # Share partitions that begin

    def _begin_shares(self, names: Iterable[str], epoch: int, draft: Draft) -> None:
        """Let the partitions of subscribed topics begin that have not, or whose beginning took too long.

        Those of a view never do: its records are its parent's, and no leader could keep books about what it hides.
        """
        partitions = self.state.partitions
        retry_ms = self._settings.broker.group_share_initialize_retry_interval_ms
        wanted: dict[TopicId, NamedPartitions] = {}
        for name in names:
            topic_id, count = self._topics.topic_id(name), self._topics.partition_count(name)
            if topic_id is None or not count or self._topics.is_view(name):
                continue
            begun = partitions.initialized.get(topic_id)
            if begun is not None and len(begun.partitions) >= count:
                continue
            missing = frozenset(range(count)) - (begun.partitions if begun is not None else frozenset())
            if draft.now_ms < self._began_ms.get(topic_id, -retry_ms) + retry_ms:
                beginning = partitions.initializing.get(topic_id)
                missing -= beginning.partitions if beginning is not None else frozenset()
            if missing:
                wanted[topic_id] = NamedPartitions(name, missing)
        if wanted:
            self._choose(wanted, epoch, draft)
            draft.perform(InitializeShares(group=self.name, state_epoch=epoch, partitions=indexes(wanted)))

    def _choose(self, wanted: Named, epoch: int, draft: Draft) -> None:
        """Note that these partitions begin."""
        partitions = self.state.partitions
        self._began_ms.update(dict.fromkeys(wanted, draft.now_ms))
        value = replace(
            partitions,
            initializing=united(partitions.initializing, wanted),
            deleting={topic_id: name for topic_id, name in partitions.deleting.items() if topic_id not in wanted},
        )
        draft.append(ShareGroupStatePartitionMetadata(self.name, value))

    def initialized(self, command: SharesInitialized, ticket: Ticket, now_ms: int) -> Step:
        """Share coordinators have begun partitions: they are assigned with the next heartbeat."""
        draft = Draft(now_ms)
        partitions = self.state.partitions
        begun = {
            topic_id: NamedPartitions(name, found)
            for topic_id, (name, beginning) in partitions.initializing.items()
            if (found := beginning & command.partitions.get(topic_id, frozenset()))
        }
        initializing = without(without(partitions.initializing, command.partitions), command.failed)
        value = replace(partitions, initializing=initializing, initialized=united(partitions.initialized, begun))
        for topic_id in command.failed:
            self._began_ms.pop(topic_id, None)
        if value != partitions:
            draft.append(ShareGroupStatePartitionMetadata(self.name, value))
        draft.respond(ticket, SHARES_SETTLED)
        return draft.step()

    # Offsets

    def alter(self, command: AlterShareOffsets, ticket: Ticket, now_ms: int) -> Step:
        """Choose the partitions that are to begin elsewhere. A higher epoch fences what leaders know of them."""
        if self.state.members:
            return failed(ticket, NonEmptyGroup("The group is not empty."))
        draft = Draft(now_ms)
        chosen: dict[TopicId, NamedPartitions] = {}
        topics: dict[str, TopicId] = {}
        for name, partitions in command.partitions:
            topic_id, count = self._topics.topic_id(name), self._topics.partition_count(name)
            if topic_id is None or count is None or self._topics.is_view(name):
                continue
            topics[name] = topic_id
            found = frozenset(index for index in partitions if 0 <= index < count)
            if found:
                chosen = united(chosen, {topic_id: NamedPartitions(name, found)})
        epoch = self.state.epoch.epoch
        if chosen:
            epoch += 1
            draft.append(ShareGroupMetadata(self.name, replace(self.state.epoch, epoch=epoch)))
            self._choose(chosen, epoch, draft)
        draft.respond(ticket, SharesChosen(state_epoch=epoch, partitions=indexes(chosen), topics=topics, failures={}))
        return draft.step()

    def delete_offsets(self, command: DeleteShareOffsets, ticket: Ticket, now_ms: int) -> Step:
        """Choose the share partitions that are to end."""
        if self.state.members:
            return failed(ticket, NonEmptyGroup("The group is not empty."))
        draft = Draft(now_ms)
        partitions = self.state.partitions
        known: Named = partitions.initialized
        if command.topics is None:
            known = united(partitions.initialized, partitions.initializing)
        chosen: dict[TopicId, frozenset[int]] = {}
        topics: dict[str, TopicId] = {}
        failures: dict[str, BrokerError] = {}
        wanted = self._all_topics() if command.topics is None else command.topics
        for name in wanted:
            topic_id, count = self._topics.topic_id(name), self._topics.partition_count(name)
            if topic_id is None or count is None:
                failures[name] = UnknownTopicOrPartition()
            elif topic_id in known:
                chosen[topic_id] = known[topic_id].partitions
            elif topic_id in partitions.deleting:
                chosen[topic_id] = frozenset(range(count))
            else:
                failures[name] = UnknownTopicOrPartition("There is no offset information to delete.")
            if topic_id is not None and topic_id in chosen:
                topics[name] = topic_id
        if chosen:
            ending = {topic_id: name for name, topic_id in topics.items()}
            value = SharePartitions(
                initializing=left_without(partitions.initializing, chosen),
                initialized=left_without(partitions.initialized, chosen),
                deleting={**partitions.deleting, **ending},
            )
            if value != partitions:
                draft.append(ShareGroupStatePartitionMetadata(self.name, value))
        reply = SharesChosen(state_epoch=self.state.epoch.epoch, partitions=chosen, topics=topics, failures=failures)
        draft.respond(ticket, reply)
        return draft.step()

    def deleted(self, command: SharesDeleted, ticket: Ticket, now_ms: int) -> Step:
        """Share coordinators have ended the partitions of these topics."""
        draft = Draft(now_ms)
        partitions = self.state.partitions
        deleting = {topic_id: name for topic_id, name in partitions.deleting.items() if topic_id not in command.topics}
        if deleting != partitions.deleting:
            draft.append(ShareGroupStatePartitionMetadata(self.name, replace(partitions, deleting=deleting)))
        draft.respond(ticket, SHARES_SETTLED)
        return draft.step()

    def _all_topics(self) -> list[str]:
        """The names of all topics that exist and whose state is kept, begins or ends."""
        partitions = self.state.partitions
        ids = dict.fromkeys((*partitions.initialized, *partitions.initializing, *partitions.deleting))
        return [name for topic_id in ids if (name := self._topics.topic_name(topic_id)) is not None]

    def offset_partitions(self) -> Mapping[TopicId, frozenset[int]]:
        """The share partitions that have begun, of partitions that exist."""
        return {
            topic_id: self._shown(found.name, found.partitions)
            for topic_id, found in self.state.partitions.initialized.items()
            if self._topics.topic_name(topic_id) is not None
        }

    def _shown(self, name: str, partitions: frozenset[int]) -> frozenset[int]:
        """Without those that were taken out of their topic: they go on from their state when they are brought back."""
        count = self._topics.partition_count(name) or 0
        return partitions if len(partitions) <= count else frozenset(index for index in partitions if index < count)

    # Members that go

    def _fence(self, member: ShareMember, draft: Draft) -> None:
        """Remove a member from the group. Its partitions go to others with their next heartbeats."""
        member_id = member.member_id
        draft.append(ShareGroupCurrentMemberAssignment(self.name, member_id, None))
        draft.append(ShareGroupTargetAssignmentMember(self.name, member_id, None))
        draft.append(ShareGroupMemberMetadata(self.name, member_id, None))
        new_hash = self._hashes.of(self.state.names_after(member, None))
        draft.append(ShareGroupMetadata(self.name, GroupEpoch(self.state.epoch.epoch + 1, new_hash)))
        draft.cancel_timer(ShareSessionEnd(self.name, member_id))

    # Time and topics

    def wake(self, key: GroupTimer, now_ms: int) -> Step:
        draft = Draft(now_ms)
        if isinstance(key, ShareSessionEnd):
            member = self.state.members.get(key.member_id)
            if member is not None:
                self._fence(member, draft)
        return draft.step()

    def finish(self, done: JobDone, now_ms: int) -> Step:
        raise AssertionError(f"a share group has no jobs: {done}")

    def on_topics(self, names: Iterable[str], now_ms: int) -> Step:
        """The next heartbeat compares the epoch with the topics."""
        names = tuple(names)
        self._hashes.forget(names)
        self._is_stale = True
        draft = Draft(now_ms)
        self._forget_gone(draft)
        return draft.step()

    def _forget_gone(self, draft: Draft) -> None:
        """Forget the share partitions of topics that were deleted; their coordinators do that by themselves."""
        partitions, named = self.state.partitions, self._topics.topic_name
        gone = {
            topic_id
            for topics in (partitions.initializing, partitions.initialized, partitions.deleting)
            for topic_id in topics
            if named(topic_id) is None
        }
        if gone:
            value = SharePartitions(
                initializing={each: found for each, found in partitions.initializing.items() if each not in gone},
                initialized={each: found for each, found in partitions.initialized.items() if each not in gone},
                deleting={each: name for each, name in partitions.deleting.items() if each not in gone},
            )
            draft.append(ShareGroupStatePartitionMetadata(self.name, value))

    def reconfigure(self, config: BrokerConfig) -> None:
        self._settings.broker = config

    # Events, loading, unloading

    def apply(self, event: Event) -> None:
        """Apply an event. The shard drops the group after the tombstone of ShareGroupMetadata."""
        assert isinstance(event, ShareEvent), f"{event} is not an event of a share group"
        self.state.apply(event)

    def loaded(self, now_ms: int) -> Step:
        """Start the sessions, and ask again for what a former coordinator may not have finished."""
        draft = Draft(now_ms)
        timeout_ms = self._settings.current.share_session_timeout_ms
        for member_id in self.state.members:
            draft.set_timer(ShareSessionEnd(self.name, member_id), now_ms + timeout_ms)
        partitions, topics = self.state.partitions, self._topics
        beginning = {
            topic_id: found.partitions
            for topic_id, found in partitions.initializing.items()
            if topics.topic_name(topic_id) is not None and self.state.members
        }
        if beginning:
            self._began_ms.update(dict.fromkeys(beginning, now_ms))
            epoch = self.state.epoch.epoch
            draft.perform(InitializeShares(group=self.name, state_epoch=epoch, partitions=beginning))
        ending = {
            topic_id: frozenset(range(count))
            for topic_id in partitions.deleting
            if (name := topics.topic_name(topic_id)) is not None and (count := topics.partition_count(name))
        }
        if ending:
            draft.perform(DeleteShares(group=self.name, partitions=ending))
        return draft.step()

    def unloaded(self, error: type[BrokerError]) -> Step:
        """No request waits in such a group: every response is immediate."""
        return NOTHING

    def refused(self, step: Step, now_ms: int) -> Step:
        """Sessions end when they would have; a member that was to be fenced gets another session."""
        self._is_stale = True
        self._began_ms.clear()
        draft = Draft(now_ms)
        for timer in step.timers:
            key = timer.key
            if isinstance(key, ShareSessionEnd) and key.member_id in self.state.members:
                again_ms = now_ms + self._settings.current.share_session_timeout_ms
                draft.set_timer(key, timer.at_ms if isinstance(timer, SetTimer) else again_ms)
        return draft.step()

    def deletion(self, now_ms: int) -> Step:
        """The tombstones of the group; its timers are cancelled."""
        draft = Draft(now_ms)
        members = self.state.members
        for member_id in members:
            draft.append(ShareGroupCurrentMemberAssignment(self.name, member_id, None))
        for member_id in members:
            draft.append(ShareGroupTargetAssignmentMember(self.name, member_id, None))
        draft.append(ShareGroupTargetAssignmentMetadata(self.name, None))
        for member_id in members:
            draft.append(ShareGroupMemberMetadata(self.name, member_id, None))
            draft.cancel_timer(ShareSessionEnd(self.name, member_id))
        draft.append(ShareGroupStatePartitionMetadata(self.name, None))
        draft.append(ShareGroupMetadata(self.name, None))
        return draft.step()

    # Requests of members of other groups

    def join(self, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step:
        draft = Draft(now_ms)
        draft.respond(ticket, JoinReply(member_id=command.member_id, error=InconsistentGroupProtocol))
        return draft.step()

    def sync(self, command: SyncGroup, ticket: Ticket, now_ms: int) -> Step:
        return failed(ticket, UnknownMemberId())

    def heartbeat(self, command: Heartbeat, ticket: Ticket, now_ms: int) -> Step:
        return failed(ticket, UnknownMemberId())

    def leave(self, command: LeaveGroup, ticket: Ticket, now_ms: int) -> Step:
        return failed(ticket, UnknownMemberId())

    def consumer_heartbeat(self, command: ConsumerHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        return failed(ticket, self._no_consumers())

    def validate_commit(self, command: CommitOffsets, now_ms: int) -> CommitValidation:
        raise self._no_consumers()

    def validate_txn_commit(self, command: CommitOffsets) -> CommitValidation:
        raise self._no_consumers()

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """It has no committed offsets, as any unknown group."""

    def validate_offset_delete(self) -> None:
        raise self._no_consumers()

    def _no_consumers(self) -> BrokerError:
        return GroupIdNotFound(f"Group {self.name} is not a consumer group.")

    def validate_delete(self) -> None:
        if self.state.members:
            raise NonEmptyGroup

    # Queries

    @property
    def empty(self) -> bool:
        return not self.state.members

    @property
    def expires(self) -> bool:
        """An operator deletes it: its state is elsewhere, and would be lost with it."""
        return False

    @property
    def has_pending_members(self) -> bool:
        """The share protocol has no pending members."""
        return False

    @property
    def member_count(self) -> int:
        return len(self.state.members)

    @property
    def state_name(self) -> str:
        """Kafka's name of the group's state."""
        return "Stable" if self.state.members else "Empty"

    def subscribed_to(self, topic: str) -> bool:
        return topic in self.state.readers

    def offsets_expire_from(self) -> int | None:
        return None

    def listed(self) -> ListedGroup:
        return ListedGroup(group=self.name, protocol_type=SHARE_PROTOCOL_TYPE, state=self.state_name, type=SHARE)

    def described(self) -> DescribedGroup:
        raise GroupIdNotFound(f"Group {self.name} is not a classic group.")

    def described_consumer(self) -> DescribedConsumerGroup:
        raise self._no_consumers()

    def described_share(self) -> DescribedShareGroup:
        state = self.state
        return DescribedShareGroup(
            group=self.name,
            state=self.state_name,
            group_epoch=state.epoch.epoch,
            assignment_epoch=state.assignment.epoch,
            assignor=ASSIGNOR,
            members=tuple(map(self._described, state.members.values())),
        )

    def _described(self, member: ShareMember) -> DescribedShareMember:
        metadata, current = member.metadata, member.current
        named = ((self._topics.topic_name(topic), topic, found) for topic, found in current.assigned.items())
        return DescribedShareMember(
            member_id=member.member_id,
            rack_id=metadata.rack_id,
            member_epoch=current.member_epoch,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topics=metadata.topics,
            assigned=tuple(
                DescribedPartitions(topic_id=topic, topic=name, partitions=tuple(sorted(found)))
                for name, topic, found in named
                if name is not None
            ),
        )


def metadata_of(before: ShareMember, command: ShareHeartbeat) -> ShareMemberMetadata:
    """A member's metadata after its heartbeat: null fields of the request are unchanged."""
    topics = command.subscribed_topics
    return ShareMemberMetadata(
        rack_id=before.metadata.rack_id if command.rack_id is None else command.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=before.metadata.topics if topics is None else tuple(sorted(set(topics))),
    )


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Fence a member whose epoch differs from the coordinator's, unless it missed the response with its new one."""
    known, previous = member.current.member_epoch, member.current.previous_epoch
    if epoch in (JOINING_EPOCH, known) or (epoch < known and epoch == previous):
        return
    relation = "greater" if epoch > known else "smaller"
    previously = "" if epoch > known else f", and it does not match the previous member epoch ({previous})"
    raise FencedMemberEpoch(
        f"The share group member has a {relation} member epoch ({epoch}) than the one known by the group coordinator "
        f"({known}){previously}. The member must abandon all its partitions and rejoin."
    )


def left_without(named: Named, gone: Mapping[TopicId, frozenset[int]]) -> dict[TopicId, NamedPartitions]:
    """Other topics than these."""
    return {topic_id: found for topic_id, found in named.items() if topic_id not in gone}


def listed(assigned: Partitions) -> tuple[tuple[TopicId, tuple[int, ...]], ...]:
    return tuple((topic, tuple(sorted(found))) for topic, found in assigned.items())
