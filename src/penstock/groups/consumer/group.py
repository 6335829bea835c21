"""A group with the consumer protocol (KIP-848): the coordinator assigns, and each member reconciles on its own.

A change of members, subscriptions or topics raises the group's epoch. For a new epoch an assignor computes a target.
Each member moves to its part of the target through its own heartbeats: it first revokes the partitions it loses, and
gets new ones once their owners have revoked them. So a partition never has two owners, and no member waits for others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import NOTHING, Event, JobDone, Step, Ticket, failed
from penstock.groups.classic.rebalance import JoinDeadline, SessionEnd, SyncDeadline
from penstock.groups.commands import (
    CommitOffsets,
    ConsumerHeartbeat,
    DescribedGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListedGroup,
    SyncGroup,
)
from penstock.groups.consumer.classic_members import ClassicMembers
from penstock.groups.consumer.epochs import GroupEpochs
from penstock.groups.consumer.events import ConsumerCurrentMemberAssignment, ConsumerEvent
from penstock.groups.consumer.membership import Membership, check_instance
from penstock.groups.consumer.migration import ClassicAdopted
from penstock.groups.consumer.patterns import PatternsResolved, PatternSubscriptions, Repattern
from penstock.groups.consumer.reconciliation import Owned, Reconciler
from penstock.groups.consumer.responses import (
    ConsumerHeartbeatReply,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedPartitions,
    TopicPartitions,
)
from penstock.groups.consumer.settings import ConsumerGroupSettings, HeartbeatPace, no_overrides
from penstock.groups.consumer.state import Change, ConsumerState, Member
from penstock.groups.consumer.target_assignment import TargetAssignment, TargetComputed
from penstock.groups.consumer.timers import Alarm, ConsumerTimer
from penstock.groups.draft import Draft
from penstock.groups.group import VALID, CommitValidation, GroupTimer
from penstock.groups.offset_store import SINCE_COMMIT
from penstock.groups.share.timers import ShareSessionEnd
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE
from penstock.groups.topics import TopicsView
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from penstock.model.ids import TopicId
from penstock.wire.group_values import (
    JOINING_EPOCH,
    LEFT_EPOCH,
    STATIC_LEFT_EPOCH,
    CurrentAssignment,
    MemberMetadata,
    MemberState,
    PartitionEpochs,
    Partitions,
    no_partition_epochs,
)

CONSUMER = "Consumer"
"""Kafka's name of this group type."""

COMMIT_VERSION_MIN = 9
"""Older versions of OffsetCommit have no member epoch."""


class ConsumerGroup:
    """One group. Its state is its applied events; the rest, such as jobs in progress, is lost with the shard."""

    __slots__ = (
        "_choose_member_id",
        "_classic",
        "_epochs",
        "_members",
        "_pace",
        "_patterns",
        "_reconciler",
        "_settings",
        "_targets",
        "_topics",
        "name",
        "state",
    )

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        topics: TopicsView,
        choose_member_id: Callable[[str | None], str],
        overrides: Callable[[str], Mapping[str, str]] = no_overrides,
    ) -> None:
        self.name = name
        self.state = ConsumerState(name)
        self._topics = topics
        self._choose_member_id = choose_member_id
        self._settings = ConsumerGroupSettings(name, config, overrides)
        self._pace = HeartbeatPace(self.state, self._settings)
        self._epochs = GroupEpochs(self.state, topics)
        self._patterns = PatternSubscriptions(self.state, topics)
        self._targets = TargetAssignment(self.state, self._settings, topics)
        self._reconciler = Reconciler(self.state, topics)
        self._members = Membership(self.state, self._settings, topics, self._epochs, self._targets)
        self._classic = ClassicMembers(
            self.state,
            self._settings,
            topics,
            choose_member_id,
            members=self._members,
            epochs=self._epochs,
            patterns=self._patterns,
            targets=self._targets,
            reconciler=self._reconciler,
        )

    # Classic members

    def join(self, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step:
        """A member with the classic protocol joins a group that is not empty."""
        return self._classic.join(command, ticket, now_ms)

    def sync(self, command: SyncGroup, ticket: Ticket, now_ms: int) -> Step:
        return self._classic.sync(command, ticket, now_ms)

    def heartbeat(self, command: Heartbeat, ticket: Ticket, now_ms: int) -> Step:
        return self._classic.heartbeat(command, ticket, now_ms)

    def leave(self, command: LeaveGroup, ticket: Ticket, now_ms: int) -> Step:
        return self._classic.leave(command, ticket, now_ms)

    # Heartbeats

    def consumer_heartbeat(self, command: ConsumerHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        """A member joins, stays or leaves. The shard has validated the request and found or created the group."""
        draft = Draft(now_ms)
        try:
            if command.member_epoch in (LEFT_EPOCH, STATIC_LEFT_EPOCH):
                reply = self._leave(command, draft)
            else:
                reply = self._heartbeat(command, draft)
        except BrokerError as error:
            return failed(ticket, error)
        draft.respond(ticket, reply)
        return draft.step()

    def _heartbeat(self, command: ConsumerHeartbeat, draft: Draft) -> ConsumerHeartbeatReply:
        """Find the member, then: its subscription, the group's epoch, the target assignment, the member's own step."""
        self._members.check_room(command.member_id)
        member_id = command.member_id or self._choose_member_id(None)
        owned = None if command.owned is None else {topic: frozenset(indexes) for topic, indexes in command.owned}
        before, replaced = self._sender(command, member_id, owned, draft)
        after = replace(before, metadata=metadata_of(before, command))
        change = Change(before, after, replaced, known=member_id in self.state.members and replaced is None)
        renamed = self._members.subscribe(change, draft)
        repattern = self._patterns.subscribe(change, draft)
        epoch = self._epochs.after(change, draft, bump=renamed or repattern is Repattern.RESOLVED)
        target = self._targets.for_member(change, epoch, draft)
        resubscribed = renamed or repattern is not Repattern.KEPT
        after = self._reconciler.reconcile(change, target, owned, draft, resubscribed=resubscribed)
        draft.set_timer(
            ConsumerTimer(self.name, Alarm.SESSION, member_id), draft.now_ms + self._settings.session_timeout_ms
        )
        in_full = command.member_epoch == JOINING_EPOCH or asks_in_full(command)
        return ConsumerHeartbeatReply(
            member_id=member_id,
            member_epoch=after.current.member_epoch,
            heartbeat_interval_ms=self._pace.interval_ms(epoch, draft.now_ms),
            assignment=listed(after.current.assigned)
            if in_full or after.current.assigned != before.current.assigned
            else None,
        )

    def _sender(
        self, command: ConsumerHeartbeat, member_id: str, owned: Owned | None, draft: Draft
    ) -> tuple[Member, Member | None]:
        """The member that sent a heartbeat, before it, and the static member that it replaces, if any.

        Raises why the heartbeat is fenced, or UnreleasedInstanceId.
        """
        joins = command.member_epoch == JOINING_EPOCH
        instance_id = command.group_instance_id
        existing = self.state.static(instance_id)
        if instance_id is None or (joins and existing is None):
            member = self.state.members.get(member_id, Member(member_id)) if joins else self._members.known(member_id)
            check_epoch(member, command.member_epoch, owned)
            return member, None
        if not joins:
            member = self._members.known_static(instance_id)
            check_instance(member, member_id, instance_id)
            check_epoch(member, command.member_epoch, owned)
            return member, None
        assert existing is not None
        if not existing.classic and existing.current.member_epoch != STATIC_LEFT_EPOCH:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {existing.member_id} member."
            )
        return self._members.replace_static(existing, member_id, draft), existing

    def _leave(self, command: ConsumerHeartbeat, draft: Draft) -> ConsumerHeartbeatReply:
        """Remove a member. A static member may leave temporarily: it keeps its partitions for its return."""
        instance_id = command.group_instance_id
        if instance_id is None:
            member = self._members.known(command.member_id)
        else:
            member = self._members.known_static(instance_id)
            check_instance(member, command.member_id, instance_id)
        if instance_id is not None and command.member_epoch == STATIC_LEFT_EPOCH:
            # Partition epochs restart at 0, so that the returning instance may commit its earlier work.
            waiting = replace(
                member.current,
                member_epoch=STATIC_LEFT_EPOCH,
                assigned={topic: dict.fromkeys(epochs, 0) for topic, epochs in member.current.assigned.items()},
                revoking=no_partition_epochs(),
            )
            draft.append(ConsumerCurrentMemberAssignment(self.name, member.member_id, waiting))
        else:
            self._members.fence([member], draft)
        return ConsumerHeartbeatReply(member_id=command.member_id, member_epoch=command.member_epoch)

    # Time, jobs and topics

    def wake(self, key: GroupTimer, now_ms: int) -> Step:
        match key:
            case ConsumerTimer():
                draft = Draft(now_ms)
                self._woken(key, draft)
                return draft.step()
            case SessionEnd() | JoinDeadline() | SyncDeadline() | ClassicAdopted() | ShareSessionEnd():
                # Set before the group was upgraded to the consumer protocol.
                return NOTHING
            case _:
                assert_never(key)

    def _woken(self, key: ConsumerTimer, draft: Draft) -> None:
        member = self.state.members.get(key.member_id)
        match key.alarm:
            case Alarm.ASSIGN:
                self._targets.compute(draft)
            case Alarm.PATTERNS:
                self._patterns.match(draft)
            case Alarm.REBALANCE:
                if member is not None and member.current.state is MemberState.UNREVOKED_PARTITIONS:
                    self._members.fence([member], draft)
            case Alarm.SESSION | Alarm.JOIN | Alarm.SYNC:
                if member is not None:
                    self._members.fence([member], draft)
            case _:
                assert_never(key.alarm)

    def finish(self, done: JobDone, now_ms: int) -> Step:
        draft = Draft(now_ms)
        if isinstance(done, TargetComputed):
            self._targets.computed(done, draft)
        else:
            assert isinstance(done, PatternsResolved), done
            matched, changed = self._patterns.resolved(done, draft)
            self._topics_changed(self.state.topic_readers.keys() | matched.keys(), draft, bump=changed)
        return draft.step()

    def on_topics(self, names: Iterable[str], now_ms: int) -> Step:
        names = tuple(names)
        self._epochs.forget(names)
        state = self.state
        if not state.members:
            return NOTHING
        draft = Draft(now_ms)
        if any(state.subscribed(name) for name in names):
            self._topics_changed(state.topic_readers.keys() | state.matched.keys(), draft, bump=False)
        self._patterns.appeared(draft)
        return draft.step()

    def _topics_changed(self, names: Iterable[str], draft: Draft, *, bump: bool) -> None:
        """Raise the epoch if the subscribed topics changed, and schedule a new target."""
        if self._epochs.reading(names, draft, bump=bump):
            self._targets.schedule(draft)

    def reconfigure(self, config: BrokerConfig) -> None:
        self._settings.broker = config

    # Events, loading, unloading

    def apply(self, event: Event) -> None:
        """Apply an event. The shard drops the group after the tombstone of ConsumerGroupMetadata."""
        assert isinstance(event, ConsumerEvent), f"{event} is not an event of a consumer group"
        self.state.apply(event)

    def loaded(self, now_ms: int) -> Step:
        draft = Draft(now_ms)
        self._patterns.loaded()
        for member in self.state.members.values():
            self._members.extend_session(member, draft)
            self._members.expect_revocation(member, draft)
        if self.state.members and self.state.assignment.epoch < self.state.epoch.epoch:
            self._targets.schedule(draft)
        return draft.step()

    def unloaded(self, error: type[BrokerError]) -> Step:
        """No request waits in such a group: every response is immediate."""
        return NOTHING

    def refused(self, step: Step, now_ms: int) -> Step:
        draft = Draft(now_ms)
        self._members.refused(step, draft)
        return draft.step()

    def deletion(self, now_ms: int) -> Step:
        """The tombstones of the group; its timers are cancelled."""
        draft = Draft(now_ms)
        for event in self._members.tombstones():
            draft.append(event)
        self._members.cancel_timers(draft)
        return draft.step()

    # Commits and fetches

    def validate_commit(self, command: CommitOffsets, now_ms: int) -> CommitValidation:
        """With the current epoch any partition may be committed, with an older one those the member had since then."""
        if command.generation < 0 and not self.state.members:
            return VALID
        member = self._members.known(command.member_id)
        if not member.classic and command.version < COMMIT_VERSION_MIN:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        return commit_validation(member, command.generation)

    def validate_txn_commit(self, command: CommitOffsets) -> CommitValidation:
        epoch, member_id = command.generation, command.member_id
        if epoch < 0 and not self.state.members:
            return VALID
        if epoch == -1 and not member_id and command.group_instance_id is None:
            return VALID
        return commit_validation(self._members.known(member_id), epoch)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises UnknownMemberId, StaleMemberEpoch or IllegalGeneration."""
        if member_id is None and member_epoch < 0:
            return
        member = self._members.known(member_id or "")
        expected = member.current.member_epoch
        if member_epoch != expected:
            noun, stale = stale_words(member)
            raise stale(f"The received {noun} {member_epoch} does not match the expected member epoch {expected}.")

    def validate_offset_delete(self) -> None:
        """Subscriptions are always known, so offsets of other topics may be deleted."""

    def validate_delete(self) -> None:
        if not self.empty:
            raise NonEmptyGroup

    # Queries

    @property
    def empty(self) -> bool:
        return not self.state.members

    @property
    def expires(self) -> bool:
        return True

    @property
    def has_pending_members(self) -> bool:
        """The consumer protocol has no pending members."""
        return False

    @property
    def member_count(self) -> int:
        return len(self.state.members)

    @property
    def state_name(self) -> str:
        """Kafka's name of the group's state."""
        state = self.state
        if not state.members:
            return "Empty"
        if state.epoch.epoch > state.assignment.epoch:
            return "Assigning"
        settled = all(member.settled(state.assignment.epoch) for member in state.members.values())
        return "Stable" if settled else "Reconciling"

    def subscribed_to(self, topic: str) -> bool:
        """Whether any member subscribes to the topic, by name or pattern."""
        return self.state.subscribed(topic)

    def offsets_expire_from(self) -> int | None:
        """Offsets of topics without a subscriber expire from their commit; subscriptions are always known."""
        return SINCE_COMMIT

    def listed(self) -> ListedGroup:
        return ListedGroup(group=self.name, protocol_type=CONSUMER_PROTOCOL_TYPE, state=self.state_name, type=CONSUMER)

    def described(self) -> DescribedGroup:
        raise GroupIdNotFound(f"Group {self.name} is not a classic group.")

    def described_consumer(self) -> DescribedConsumerGroup:
        state = self.state
        return DescribedConsumerGroup(
            group=self.name,
            state=self.state_name,
            group_epoch=state.epoch.epoch,
            assignment_epoch=state.assignment.epoch,
            assignor=self._targets.assignor,
            members=tuple(map(self._described, state.members.values())),
        )

    def _described(self, member: Member) -> DescribedConsumer:
        metadata, current = member.metadata, member.current
        topics = {**current.assigned, **current.revoking}
        owned = {t: frozenset(current.assigned.get(t, {})).union(current.revoking.get(t, {})) for t in topics}
        return DescribedConsumer(
            member_id=member.member_id,
            instance_id=metadata.instance_id,
            rack_id=metadata.rack_id,
            member_epoch=current.member_epoch,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topics=metadata.topics,
            subscribed_regex=metadata.pattern,
            assigned=self._named(owned),
            target=self._named(self.state.target(member.member_id)),
            member_type=0 if member.classic else 1,
        )

    def _named(self, partitions: Partitions) -> tuple[DescribedPartitions, ...]:
        named = ((self._topics.topic_name(topic), topic, indexes) for topic, indexes in partitions.items())
        return tuple(
            DescribedPartitions(topic_id=topic, topic=name, partitions=tuple(sorted(indexes)))
            for name, topic, indexes in named
            if name is not None
        )


def commit_validation(member: Member, epoch: int) -> CommitValidation:
    """Reject a commit with a newer epoch than the member's; one with an older epoch is checked by partition."""
    current = member.current.member_epoch
    if epoch == current:
        return VALID
    noun, stale = stale_words(member)
    if epoch > current:
        raise stale(f"Received {noun} {epoch} is newer than current member epoch {current}.")

    def check(topic: str, topic_id: TopicId, partition: int) -> BrokerError | None:
        """An older epoch may commit partitions the member has had since then: it may have missed a response."""
        since = assigned_since(member.current, topic_id, partition)
        if since is None:
            return stale(f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
        if epoch < since:
            return stale(
                f"Received {noun} {epoch} is older than assignment epoch {since} for partition {topic}-{partition}."
            )
        return None

    return CommitValidation(check)


def check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    """Fence a member whose epoch differs from the coordinator's.

    A member with the previous epoch may have missed the response with the new one: it is accepted if it owns only
    partitions that it also has in the new epoch.
    """
    current = member.current
    if epoch in (JOINING_EPOCH, current.member_epoch):
        return
    missed_response = epoch == current.previous_epoch < current.member_epoch
    if missed_response and owned is not None and within(owned, current.assigned):
        return
    relation = "greater" if epoch > current.member_epoch else "smaller"
    raise FencedMemberEpoch(
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current.member_epoch}). The member must abandon all its partitions and rejoin."
    )


def within(owned: Owned, assigned: PartitionEpochs) -> bool:
    return all(partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items())


def metadata_of(before: Member, command: ConsumerHeartbeat) -> MemberMetadata:
    """A member's metadata after its heartbeat: null fields of the request are unchanged."""
    metadata = before.metadata
    topics, timeout_ms = command.subscribed_topics, command.rebalance_timeout_ms
    return MemberMetadata(
        instance_id=metadata.instance_id if command.group_instance_id is None else command.group_instance_id,
        rack_id=metadata.rack_id if command.rack_id is None else command.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=metadata.topics if topics is None else tuple(sorted(set(topics))),
        pattern=metadata.pattern if command.subscribed_regex is None else command.subscribed_regex,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=metadata.assignor if command.server_assignor is None else command.server_assignor,
    )


def asks_in_full(command: ConsumerHeartbeat) -> bool:
    """Whether the request has all fields: the member asks for the full response, as it may have missed one."""
    subscribes = command.subscribed_topics is not None or command.subscribed_regex is not None
    return command.rebalance_timeout_ms != -1 and subscribes and command.owned is not None


def listed(assigned: PartitionEpochs) -> TopicPartitions:
    return tuple((topic, tuple(sorted(epochs))) for topic, epochs in assigned.items())


def assigned_since(current: CurrentAssignment, topic: TopicId, partition: int) -> int | None:
    """The epoch in which a member got a partition that is assigned to it or that it is revoking."""
    since = current.assigned.get(topic, {}).get(partition)
    return current.revoking.get(topic, {}).get(partition) if since is None else since


def stale_words(member: Member) -> tuple[str, type[BrokerError]]:
    """The name of the epoch in the member's protocol, and the error for a stale one."""
    return ("generation id", IllegalGeneration) if member.classic else ("member epoch", StaleMemberEpoch)
