"""A group with the consumer protocol (KIP-848): the coordinator assigns, and members follow one by one.

A change of members, subscriptions or topics raises the group's epoch. For a new epoch an assignor makes a target. Each
member is led to its part of the target by its own heartbeats: what it is to lose it gives back first, and what it is to
get it gets once nobody else has it. So a partition never has two owners, and nobody stops for others.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

from penstock.coordinator.step import NOTHING, JobDone, Step, Ticket
from penstock.groups.commands import ConsumerHeartbeat, ListedGroup
from penstock.groups.consumer.classic_members import ClassicMembers, refused
from penstock.groups.consumer.events import (
    JOINING_EPOCH,
    LEFT_EPOCH,
    STATIC_LEFT_EPOCH,
    ConsumerCurrentMemberAssignment,
    ConsumerEvent,
    ConsumerGroupMetadata,
    ConsumerRegularExpression,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    PartitionEpochs,
    Partitions,
    ResolvedPattern,
    no_partition_epochs,
)
from penstock.groups.consumer.membership import (
    PATTERN_REFRESH_MS_MIN,
    Alarm,
    Change,
    ConsumerTimer,
    Repattern,
)
from penstock.groups.consumer.patterns import PatternsResolved
from penstock.groups.consumer.reconciliation import Owned
from penstock.groups.consumer.requests import refusal
from penstock.groups.consumer.responses import (
    ConsumerHeartbeatReply,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedPartitions,
    TopicPartitions,
)
from penstock.groups.consumer.state import Member, count
from penstock.groups.consumer.target_assignment import TargetComputed, preferred_assignor
from penstock.groups.draft import Draft
from penstock.groups.subscription import CONSUMER_PROTOCOL_TYPE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedMemberEpoch,
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from penstock.model.ids import TopicId

CONSUMER = "Consumer"
"""What Kafka calls groups of this kind."""

COMMIT_VERSION_MIN = 9
"""Older commits know no member epochs."""

CommitCheck = Callable[[str, TopicId, int], BrokerError | None]
"""Why a commit for one partition (topic, its id, index) is refused, where the whole request is not."""


class ConsumerGroup(ClassicMembers):
    """One group. What it knows is what its events told it; what it forgets with its shard it can do without."""

    # Heartbeats

    def heartbeat(self, command: ConsumerHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        """A member joins, stays or leaves. The caller found or made the group; failures are responses."""
        draft = Draft(now_ms)
        try:
            error = refusal(command, self.config)
            if error is not None:
                raise error
            if command.member_epoch in (LEFT_EPOCH, STATIC_LEFT_EPOCH):
                reply = self._leave(command, draft)
            else:
                reply = self._beat(command, draft)
        except BrokerError as error:
            return refused(ticket, error)
        draft.respond(ticket, reply)
        return draft.step()

    def _beat(self, command: ConsumerHeartbeat, draft: Draft) -> ConsumerHeartbeatReply:
        self._check_room(command.member_id)
        member_id = command.member_id or self._choose_member_id(None)
        owned = None if command.owned is None else {topic: frozenset(indexes) for topic, indexes in command.owned}
        before, replaced = self._beating(command, member_id, owned, draft)
        after = replace(before, metadata=metadata_of(before, command))
        change = Change(before, after, replaced, known=member_id in self.state.members and replaced is None)
        renamed = self._remember_metadata(change, draft)
        repattern = self._remember_pattern(change, draft)
        epoch = self._raise_epoch(change, draft, bump=renamed or repattern is Repattern.RESOLVED)
        target = self._current_target(change, epoch, draft)
        resubscribed = renamed or repattern is not Repattern.KEPT
        after = self._lead(change, target, owned, draft, resubscribed=resubscribed)
        draft.wake_at(self._timer(Alarm.SESSION, member_id), draft.now_ms + self._session_timeout_ms)
        tells = command.member_epoch == JOINING_EPOCH or asks_in_full(command)
        return ConsumerHeartbeatReply(
            member_id=member_id,
            member_epoch=after.current.member_epoch,
            heartbeat_interval_ms=self._pace_ms(epoch, draft.now_ms),
            assignment=listed(after.current.assigned)
            if tells or after.current.assigned != before.current.assigned
            else None,
        )

    def _beating(
        self, command: ConsumerHeartbeat, member_id: str, owned: Owned | None, draft: Draft
    ) -> tuple[Member, Member | None]:
        """The member as it was, and whom it replaces. A static one may come back once it has left for a while."""
        joins = command.member_epoch == JOINING_EPOCH
        instance_id = command.group_instance_id
        existing = self.state.static(instance_id)
        if instance_id is None or (joins and existing is None):
            member = self.state.members.get(member_id, Member(member_id)) if joins else self._known(member_id)
            check_epoch(member, command.member_epoch, owned)
            return member, None
        if not joins:
            member = self._known_static(instance_id)
            self._check_instance(member, member_id, instance_id)
            check_epoch(member, command.member_epoch, owned)
            return member, None
        assert existing is not None
        if not existing.classic and existing.current.member_epoch != STATIC_LEFT_EPOCH:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {existing.member_id} member."
            )
        return self._replace_static(existing, member_id, draft), existing

    def _leave(self, command: ConsumerHeartbeat, draft: Draft) -> ConsumerHeartbeatReply:
        """For good, or, a static member, for a while: then its partitions wait for it."""
        instance_id = command.group_instance_id
        if instance_id is None:
            member = self._known(command.member_id)
        else:
            member = self._known_static(instance_id)
            self._check_instance(member, command.member_id, instance_id)
        if instance_id is not None and command.member_epoch == STATIC_LEFT_EPOCH:
            # Partition epochs begin anew, so that whoever comes back may commit what it did before.
            waiting = replace(
                member.current,
                member_epoch=STATIC_LEFT_EPOCH,
                assigned={topic: dict.fromkeys(epochs, 0) for topic, epochs in member.current.assigned.items()},
                revoking=no_partition_epochs(),
            )
            draft.remember(ConsumerCurrentMemberAssignment(self.group, member.member_id, waiting))
        else:
            self._fence([member], draft)
        return ConsumerHeartbeatReply(member_id=command.member_id, member_epoch=command.member_epoch)

    # Time, jobs and topics

    def wake(self, key: Hashable, now_ms: int) -> Step:
        """One of this group's timers rang. Whoever it was set for may be gone since."""
        assert isinstance(key, ConsumerTimer), key
        draft = Draft(now_ms)
        member = self.state.members.get(key.member_id)
        match key.alarm:
            case Alarm.ASSIGN:
                self._compute_target_assignment(draft)
            case Alarm.PATTERNS:
                self._match_patterns(self.state.pattern_readers, draft)
            case Alarm.REBALANCE:
                if member is not None and member.current.state is MemberState.UNREVOKED_PARTITIONS:
                    self._fence([member], draft)
            case Alarm.SESSION | Alarm.JOIN | Alarm.SYNC:
                if member is not None:
                    self._fence([member], draft)
        return draft.step()

    def finish(self, done: JobDone, now_ms: int) -> Step:
        """One of this group's jobs ended. The group may have changed meanwhile."""
        draft = Draft(now_ms)
        if isinstance(done, TargetComputed):
            self._take_target(done, draft)
        else:
            assert isinstance(done, PatternsResolved), done
            self._take_patterns(done, draft)
        return draft.step()

    def _take_target(self, done: TargetComputed, draft: Draft) -> None:
        """Remember a target, for the members that are still here. Those who came since get theirs with the next."""
        state = self.state
        self._computing_until_ms = 0
        retry_ms = draft.now_ms + self._assignment_interval_ms
        if done.fault is not None:
            draft.wake_at(self._timer(Alarm.ASSIGN), retry_ms)
            return
        if not state.assignment.epoch < done.epoch <= state.epoch.epoch:
            self._compute_target_assignment(draft)
            return
        changed: dict[str, Partitions] = {}
        for member_id, partitions in done.changed.items():
            # A static member that came back under another id has the part of the old one.
            heir = member_id if member_id in state.members else state.instances.get(done.instances.get(member_id, ""))
            if heir is not None:
                changed[heir] = partitions
        self._remember_target(done.epoch, changed, draft)
        if done.epoch < state.epoch.epoch:
            draft.wake_at(self._timer(Alarm.ASSIGN), retry_ms)

    def _take_patterns(self, done: PatternsResolved, draft: Draft) -> None:
        """Remember what patterns mean now; where that is something else, the group is assigned anew."""
        state = self.state
        self._resolving_until_ms = 0
        matched = dict(state.matched)
        changed = False
        for pattern, topics in done.topics.items():
            if pattern not in state.pattern_readers:
                continue
            before = state.patterns.get(pattern)
            if before is None or before.topics != topics:
                changed = True
                count(matched, before.topics if before is not None else (), -1)
                count(matched, topics, 1)
            resolved = ResolvedPattern(topics, 0, done.started_ms)
            draft.remember(ConsumerRegularExpression(self.group, pattern, resolved))
        self._reread(state.topic_readers.keys() | matched.keys(), draft, bump=changed)
        if not state.pattern_readers.keys() <= done.topics.keys():
            self._match_patterns(state.pattern_readers, draft, unmatched=True)
        elif self._topics_appeared:
            draft.wake_at(self._timer(Alarm.PATTERNS), done.started_ms + PATTERN_REFRESH_MS_MIN + 1)

    def on_topics(self, names: Iterable[str], now_ms: int) -> Step:
        """These topics appeared, changed or went."""
        names = tuple(names)
        self._hashes.forget(names)
        state = self.state
        if not state.members:
            return NOTHING
        draft = Draft(now_ms)
        if any(state.subscribed(name) for name in names):
            self._reread(state.topic_readers.keys() | state.matched.keys(), draft, bump=False)
        if state.pattern_readers:
            self._topics_appeared = True
            self._match_patterns(state.pattern_readers, draft)
        return draft.step()

    def _reread(self, names: Iterable[str], draft: Draft, *, bump: bool) -> None:
        """Raise the epoch where what is read is something else, and see to it that a target follows."""
        new_hash = self._hashes.of(names)
        if not bump and new_hash == self.state.epoch.metadata_hash:
            return
        epoch = self.state.epoch.epoch + 1
        draft.remember(ConsumerGroupMetadata(self.group, GroupEpoch(epoch, new_hash)))
        self._checked_epoch = epoch
        draft.wake_at(self._timer(Alarm.ASSIGN), self._assignable_ms(draft.now_ms))

    # Memory

    def apply(self, event: ConsumerEvent) -> None:
        """Remember a fact. After the tombstone of ConsumerGroupMetadata there is no such group."""
        self.state.apply(event)

    def loaded(self, now_ms: int) -> Step:
        """All records have been applied: members have a full session from now."""
        draft = Draft(now_ms)
        self._topics_appeared = True
        for member in self.state.members.values():
            self._extend_session(member, draft)
            if member.current.state is MemberState.UNREVOKED_PARTITIONS and not member.classic:
                due_ms = now_ms + member.metadata.rebalance_timeout_ms
                draft.wake_at(self._timer(Alarm.REBALANCE, member.member_id), due_ms)
        if self.state.members and self.state.assignment.epoch < self.state.epoch.epoch:
            draft.wake_at(self._timer(Alarm.ASSIGN), self._assignable_ms(now_ms))
        return draft.step()

    def tombstones(self) -> tuple[ConsumerEvent, ...]:
        """What has to be written to forget the group."""
        return tuple(self._tombstones())

    # Commits and fetches

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CommitCheck | None:
        """None where any partition may be committed; else the check for each. Raises what fails the whole request."""
        if epoch < 0 and not self.state.members:
            return None
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return None
        member = self._known(member_id)
        if not transactional and not member.classic and version < COMMIT_VERSION_MIN:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            )
        current = member.current.member_epoch
        if epoch == current:
            return None
        noun, stale = stale_words(member)
        if epoch > current:
            raise stale(f"Received {noun} {epoch} is newer than current member epoch {current}.")

        def check(topic: str, topic_id: TopicId, partition: int) -> BrokerError | None:
            """An older epoch may commit what the member has had since then: its response may have been lost."""
            since = assigned_since(member.current, topic_id, partition)
            if since is None:
                return stale(f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
            if epoch < since:
                return stale(
                    f"Received {noun} {epoch} is older than assignment epoch {since} for partition {topic}-{partition}."
                )
            return None

        return check

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises UnknownMemberId, StaleMemberEpoch or IllegalGeneration."""
        if member_id is None and epoch < 0:
            return
        member = self.state.members.get(member_id or "")
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group}.")
        expected = member.current.member_epoch
        if epoch != expected:
            noun, stale = stale_words(member)
            raise stale(f"The received {noun} {epoch} does not match the expected member epoch {expected}.")

    def validate_delete(self) -> None:
        """Raises NonEmptyGroup."""
        if not self.empty:
            raise NonEmptyGroup

    # Showing

    @property
    def empty(self) -> bool:
        return not self.state.members

    @property
    def member_count(self) -> int:
        return len(self.state.members)

    @property
    def state_name(self) -> str:
        """Kafka's word for where the group is on its way to its target."""
        state = self.state
        if not state.members:
            return "Empty"
        if state.epoch.epoch > state.assignment.epoch:
            return "Assigning"
        settled = all(member.settled(state.assignment.epoch) for member in state.members.values())
        return "Stable" if settled else "Reconciling"

    def subscribed_to(self, topic: str) -> bool:
        """Whether any member reads the topic, by name or pattern."""
        return self.state.subscribed(topic)

    def listed(self) -> ListedGroup:
        return ListedGroup(group=self.group, protocol_type=CONSUMER_PROTOCOL_TYPE, state=self.state_name, type=CONSUMER)

    def describe(self) -> DescribedConsumerGroup:
        """The group and its members as an operator sees them."""
        state = self.state
        return DescribedConsumerGroup(
            group=self.group,
            state=self.state_name,
            group_epoch=state.epoch.epoch,
            assignment_epoch=state.assignment.epoch,
            assignor=preferred_assignor(state.assignors, self.config.group_consumer_assignors),
            members=tuple(map(self._described, state.members.values())),
        )

    def _described(self, member: Member) -> DescribedConsumer:
        metadata, current = member.metadata, member.current
        topics = {**current.assigned, **current.revoking}
        having = {t: frozenset(current.assigned.get(t, {})).union(current.revoking.get(t, {})) for t in topics}
        return DescribedConsumer(
            member_id=member.member_id,
            instance_id=metadata.instance_id,
            rack_id=metadata.rack_id,
            member_epoch=current.member_epoch,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topics=metadata.topics,
            subscribed_regex=metadata.pattern,
            assigned=self._named(having),
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


def check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    """Fence a member that is not where the coordinator thinks it is.

    One that comes with the epoch before may not have heard of its new one: it is believed if it has nothing that it
    does not have in the new one.
    """
    current = member.current
    if epoch in (JOINING_EPOCH, current.member_epoch):
        return
    unheard = epoch == current.previous_epoch < current.member_epoch
    if unheard and owned is not None and within(owned, current.assigned):
        return
    relation = "greater" if epoch > current.member_epoch else "smaller"
    raise FencedMemberEpoch(
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current.member_epoch}). The member must abandon all its partitions and rejoin."
    )


def within(owned: Owned, assigned: PartitionEpochs) -> bool:
    return all(partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items())


def metadata_of(before: Member, command: ConsumerHeartbeat) -> MemberMetadata:
    """What is known of a member after its heartbeat: what it does not say stays as it was."""
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
    """A member that says everything wants to hear everything: it has missed something."""
    subscribes = command.subscribed_topics is not None or command.subscribed_regex is not None
    return command.rebalance_timeout_ms != -1 and subscribes and command.owned is not None


def listed(assigned: PartitionEpochs) -> TopicPartitions:
    return tuple((topic, tuple(sorted(epochs))) for topic, epochs in assigned.items())


def assigned_since(current: CurrentAssignment, topic: TopicId, partition: int) -> int | None:
    """The epoch in which a member got a partition that it has, or has yet to give back."""
    since = current.assigned.get(topic, {}).get(partition)
    return current.revoking.get(topic, {}).get(partition) if since is None else since


def stale_words(member: Member) -> tuple[str, type[BrokerError]]:
    """What its epoch is called in a member's own protocol, and the failure when it is another."""
    return ("generation id", IllegalGeneration) if member.classic else ("member epoch", StaleMemberEpoch)
