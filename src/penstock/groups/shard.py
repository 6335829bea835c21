"""All groups of one partition of `__consumer_offsets`: their members and their committed offsets.

The shard finds the group that a command is for and lets it decide. Times are milliseconds since the epoch, because
records hold them, of a clock that never goes back: the context anchors a monotonic one.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import assert_never

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import NOTHING, CancelTimer, Event, JobDone, Response, SetTimer, Step, Ticket, failed
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.commands import (
    NO_MEMBER_ID,
    AlterShareOffsets,
    CommitOffsets,
    CommittedOffset,
    CommitTxnOffsets,
    ConsumerHeartbeat,
    DeleteGroups,
    DeleteGroupsReply,
    DeleteOffsets,
    DeleteShareOffsets,
    DescribedGroup,
    GroupCommand,
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
from penstock.groups.commits import commit, commit_in_txn, delete_offsets
from penstock.groups.consumer.events import ConsumerEvent, ConsumerGroupMetadata
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer.migration import MigrationPolicy, check_upgrade, upgraded
from penstock.groups.consumer.requests import refusal
from penstock.groups.consumer.responses import DescribedConsumerGroup
from penstock.groups.consumer.settings import no_overrides
from penstock.groups.draft import Draft
from penstock.groups.events import (
    NO_STATE_MS,
    ClassicGroupForgotten,
    ClassicGroupSaved,
    OffsetCommitted,
    OffsetEvent,
    OffsetForgotten,
    TxnOffsetPending,
    TxnOffsetsDecided,
)
from penstock.groups.group import VALID, CommitValidation, Group, GroupTimer
from penstock.groups.offset_store import OffsetStore
from penstock.groups.retention import RetentionCheck, RetentionSweep
from penstock.groups.share.events import ShareEvent, ShareGroupMetadata
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.requests import refusal as share_refusal
from penstock.groups.topics import TopicsView
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    InvalidSessionTimeout,
    NotCoordinator,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
from penstock.wire.group_values import JOINING_EPOCH

MS_PER_MINUTE = 60_000
GROUP_NOT_FOUND_VERSION_MIN = 9
"""From this version on, an OffsetCommit with a generation for an unknown group fails with GROUP_ID_NOT_FOUND."""


class GroupShard:
    """One partition's groups. The context writes a step's events, applies each, and only then asks for another step.

    The one exception: any number of `CommitOffsets` may be decided before their events are applied.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicsView,
        choose_member_id: Callable[[str | None], str],
        overrides: Callable[[str], Mapping[str, str]] = no_overrides,
    ) -> None:
        """`choose_member_id` makes a unique id: a prefix, a dash and a random UUID; for None, a UUID alone.

        `overrides` returns the dynamic configs of a group.
        """
        self.config = config
        self._overrides = overrides
        self._topics = topics
        self._choose_member_id = choose_member_id
        self._groups: dict[str, Group | None] = {}
        """None is a group that has offsets but never had members; there may be a great many of these."""
        self._begun: ShareGroup | None = None
        """A share group whose first events are decided and not applied yet."""
        self._offset_store = OffsetStore()
        self._sweep = RetentionSweep(self._groups, self._offset_store)

    # Decisions

    def decide(self, command: GroupCommand, ticket: Ticket, now_ms: int) -> Step:
        """Decide on a command. Every ticket gets one response, perhaps an error, in this step or a later one."""
        if isinstance(command, CommitOffsets):
            return self._commit(command, ticket, now_ms)
        if isinstance(command, Heartbeat):
            return self._heartbeat(command, ticket, now_ms)
        match command:
            case JoinGroup():
                return self._join(command, ticket, now_ms)
            case SyncGroup():
                return self._sync(command, ticket, now_ms)
            case LeaveGroup():
                return self._leave(command, ticket, now_ms)
            case CommitTxnOffsets():
                return self._commit_in_txn(command, ticket, now_ms)
            case DeleteOffsets():
                return self._delete_offsets(command, ticket)
            case DeleteGroups():
                return self._delete_groups(command, ticket, now_ms)
            case ConsumerHeartbeat():
                return self._consumer_heartbeat(command, ticket, now_ms)
            case ShareHeartbeat():
                return self._share_heartbeat(command, ticket, now_ms)
            case AlterShareOffsets():
                return self._alter_share_offsets(command, ticket, now_ms)
            case SharesInitialized() | DeleteShareOffsets() | SharesDeleted():
                return self._with_shares(command, ticket, now_ms)
        assert_never(command)

    def wake(self, key: Hashable, now_ms: int) -> Step:
        """A timer of this shard expired. A timer whose group is gone is ignored."""
        if isinstance(key, RetentionCheck):
            draft = Draft(now_ms)
            retention_ms = self.config.offsets_retention_minutes * MS_PER_MINUTE
            self._sweep.check_slice(retention_ms, self.config.offsets_retention_check_interval_ms, draft)
            return draft.step()
        assert isinstance(key, GroupTimer), f"{key} is no timer of a group"
        group = self._groups.get(key.group)
        return NOTHING if group is None else group.wake(key, now_ms)

    def finish(self, done: JobDone, now_ms: int) -> Step:
        """A job of a step of this shard ended."""
        group = self._groups.get(done.group)
        return NOTHING if group is None else group.finish(done, now_ms)

    def loaded(self, now_ms: int) -> Step:
        """Every record has been applied: start the sessions of members and the retention checks of offsets."""
        draft = Draft(now_ms)
        for group in self._managed():
            draft.add(group.loaded(now_ms))
        draft.set_timer(RetentionCheck(), now_ms + self.config.offsets_retention_check_interval_ms)
        return draft.step()

    def refused(self, step: Step, error: BrokerError, now_ms: int) -> Step:
        """The append of a step failed, so its events were not applied: its requests fail with the error.

        The returned step replaces the refused one: it has a response for each of its responses and the timers that are
        needed now, and no events.
        """
        draft = Draft(now_ms)
        self._begun = None
        for response in step.responses:
            joining = isinstance(response.reply, JoinReply)
            draft.respond(response.ticket, JoinReply(member_id=NO_MEMBER_ID, error=type(error)) if joining else error)
        unchanged: dict[str, None] = {}
        for event in step.events:
            if isinstance(event, OffsetEvent):
                continue
            if isinstance(event, ClassicGroupSaved) and not event.value.members:
                # As in Kafka: a record without members is dispensable, and a member that joins may go on.
                self.apply(event)
                unchanged.pop(event.group, None)
            else:
                unchanged[event.group] = None  # type: ignore[attr-defined]
        # Grouped in one pass: a step of a retention check can span thousands of groups.
        kept: list[SetTimer | CancelTimer] = []
        dropped: dict[str | None, list[SetTimer | CancelTimer]] = {name: [] for name in unchanged}
        for timer in step.timers:
            dropped.get(getattr(timer.key, "group", None), kept).append(timer)
        draft.add(Step(timers=tuple(kept), jobs=step.jobs))
        for name in unchanged:
            group = self._groups.get(name)
            if group is not None:
                draft.add(group.refused(Step(responses=step.responses, timers=tuple(dropped[name])), now_ms))
        return draft.step()

    def unloaded(self) -> Step:
        """This broker no longer coordinates these groups: requests that wait fail with NOT_COORDINATOR.

        The step has only responses: the context drops the shard, and its timers with it.
        """
        draft = Draft(now_ms=0)
        for group in self._managed():
            draft.add(group.unloaded(NotCoordinator))
        return draft.step()

    def on_topics(self, names: Iterable[str], now_ms: int) -> Step:
        """These topics were created, extended, cut or deleted; offsets of partitions that are gone are dropped."""
        names = tuple(names)
        draft = Draft(now_ms)
        for name in names:
            for event in self._offset_store.of_gone_topic(
                name, self._topics.topic_id(name), self._topics.partition_count(name)
            ):
                draft.append(event)
        for group in self._managed():
            draft.add(group.on_topics(names, now_ms))
        return draft.step()

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings changed; they apply from the next command or timer on."""
        self.config = config
        for group in self._managed():
            group.reconfigure(config)

    def _managed(self) -> Iterator[Group]:
        """The groups that have or had members."""
        return (group for group in self._groups.values() if group is not None)

    # Events

    def apply(self, event: Event) -> None:
        """Apply an event that is in the log, when it was appended or when the log is loaded."""
        match event:
            case OffsetCommitted():
                if event.group not in self._groups:
                    self._groups[event.group] = None
                self._offset_store.committed(event)
            case OffsetForgotten():
                self._offset_store.forgotten(event)
            case TxnOffsetPending(offset=OffsetCommitted(group=name)):
                self._groups.setdefault(name, None)
                self._offset_store.pending(event)
            case TxnOffsetsDecided():
                self._offset_store.decided(event)
            case ClassicGroupSaved():
                group = self._groups.get(event.group)
                if not isinstance(group, ClassicGroup):
                    group = self._groups[event.group] = self._new_classic(event.group)
                group.apply(event)
            case ClassicGroupForgotten():
                if not isinstance(self._groups.get(event.group), ConsumerGroup | ShareGroup):
                    self._groups.pop(event.group, None)
            case _:
                if isinstance(event, ShareEvent):
                    self._apply_share(event)
                else:
                    assert isinstance(event, ConsumerEvent), f"{event} is not an event of a group"
                    self._apply_consumer(event)

    def _apply_consumer(self, event: ConsumerEvent) -> None:
        group = self._groups.get(event.group)
        if not isinstance(group, ConsumerGroup):
            if event.value is None:
                return
            group = self._groups[event.group] = self._new_consumer(event.group)
        group.apply(event)
        if isinstance(event, ConsumerGroupMetadata) and event.value is None:
            del self._groups[event.group]

    def _apply_share(self, event: ShareEvent) -> None:
        group = self._groups.get(event.group)
        if not isinstance(group, ShareGroup):
            if event.value is None:
                return
            begun, self._begun = self._begun, None
            if begun is None or begun.name != event.group:
                begun = self._new_share(event.group)
            group = self._groups[event.group] = begun
        group.apply(event)
        if isinstance(event, ShareGroupMetadata) and event.value is None:
            del self._groups[event.group]

    # Queries

    def fetch_offsets(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> list[CommittedOffset]:
        """The committed offsets of these partitions, or of all. An unknown group has none.

        Raises UnknownMemberId or StaleMemberEpoch for an outdated member of a group with the consumer protocol.
        """
        found = self._groups.get(group)
        if found is not None:
            found.validate_fetch(member_id, member_epoch)
        return self._offset_store.all_of(group) if partitions is None else self._offset_store.some_of(group, partitions)

    def unsettled(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may change what a group has committed for a partition."""
        return self._offset_store.unsettled(group, topic, partition)

    def committed(self) -> Iterator[tuple[str, CommittedOffset]]:
        """Every committed offset with its group, for lag."""
        return self._offset_store.everything()

    def group_names(self) -> list[str]:
        return list(self._groups)

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = (), names: Iterable[str] | None = None
    ) -> list[ListedGroup]:
        """The groups in one of these states and of one of these types; none given means any. Case is ignored.

        `names` limits the list to these groups: a shard with many groups is listed in slices.
        """
        in_states = {state.strip().lower() for state in states}
        of_types = {type_.lower() for type_ in types}
        found: list[ListedGroup] = []
        for name in self._groups if names is None else names:
            if name not in self._groups:
                continue
            listed = (self._groups[name] or self._new_classic(name)).listed()
            if in_states and listed.state.lower() not in in_states:
                continue
            if of_types and listed.type.lower() not in of_types:
                continue
            found.append(listed)
        return found

    def describe(self, group: str) -> DescribedGroup:
        """A classic group. Raises GroupIdNotFound, with Kafka's message, if no classic group has this name."""
        return self._found(group).described()

    def describe_consumer(self, group: str) -> DescribedConsumerGroup:
        """A group with the consumer protocol. Raises GroupIdNotFound as `describe` does."""
        return self._found(group).described_consumer()

    def share_group(self, group: str) -> ShareGroup:
        """A share group. Raises GroupIdNotFound as `describe` does."""
        found = self._found(group)
        if not isinstance(found, ShareGroup):
            raise not_a_share_group(group)
        return found

    def is_share_group(self, group: str) -> bool:
        return isinstance(self._groups.get(group), ShareGroup)

    def is_managed(self, group: str) -> bool:
        """Whether a group has or had members, as opposed to one that only stores offsets."""
        return self._groups.get(group) is not None

    def members_by_group(self) -> Iterator[tuple[str, int]]:
        """How many members each group has."""
        for name, group in self._groups.items():
            yield name, 0 if group is None else group.member_count

    # Commands

    def _commit(self, command: CommitOffsets, ticket: Ticket, now_ms: int) -> Step:
        group = self._groups.get(command.group)
        try:
            if group is not None:
                validation = group.validate_commit(command, now_ms)
            elif command.generation >= 0:
                raise self._no_generation(command)
            else:
                validation = VALID
        except BrokerError as error:
            return failed(ticket, error)
        return commit(command, validation, self.config.offset_metadata_max_bytes, ticket, now_ms)

    def _commit_in_txn(self, command: CommitTxnOffsets, ticket: Ticket, now_ms: int) -> Step:
        try:
            validation = self._validate_txn_commit(command.commit)
        except StaleMemberEpoch:
            return failed(ticket, IllegalGeneration())
        except BrokerError as error:
            return failed(ticket, error)
        return commit_in_txn(command, validation, self.config.offset_metadata_max_bytes, ticket, now_ms)

    def _validate_txn_commit(self, command: CommitOffsets) -> CommitValidation:
        group = self._groups.get(command.group)
        if group is not None:
            return group.validate_txn_commit(command)
        if command.generation >= 0:
            raise UnknownMemberId if command.group in self._groups else IllegalGeneration
        return VALID

    def _no_generation(self, command: CommitOffsets) -> BrokerError:
        """The error of a commit with a generation to a group that never had members."""
        if command.group in self._groups:
            return UnknownMemberId()
        if command.version >= GROUP_NOT_FOUND_VERSION_MIN:
            return GroupIdNotFound(f"Group {command.group} not found.")
        return IllegalGeneration()

    def _join(self, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step:
        error: type[BrokerError] | None = None
        if not command.group:
            error = InvalidGroupId
        elif not (
            self.config.group_min_session_timeout_ms
            <= command.session_timeout_ms
            <= self.config.group_max_session_timeout_ms
        ):
            error = InvalidSessionTimeout
        elif command.group not in self._groups and command.member_id != NO_MEMBER_ID:
            error = UnknownMemberId
        if error is not None:
            return Step(responses=(Response(ticket, JoinReply(member_id=command.member_id, error=error)),))
        group = self._groups.get(command.group)
        if isinstance(group, ConsumerGroup) and group.empty:
            return self._become_classic(group, command, ticket, now_ms)
        if group is not None:
            return group.join(command, ticket, now_ms)
        created = self._new_classic(command.group, now_ms)
        if command.group not in self._groups:
            return created.join_first(command, ticket, now_ms)
        step = created.join(command, ticket, now_ms)
        self._groups[command.group] = created
        return step

    def _become_classic(self, group: ConsumerGroup, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step:
        """A classic member joins an empty group with the consumer protocol, which ends."""
        if command.member_id != NO_MEMBER_ID:
            return Step(responses=(Response(ticket, JoinReply(member_id=command.member_id, error=UnknownMemberId)),))
        joined = self._new_classic(group.name, now_ms).join_first(command, ticket, now_ms)
        return group.deletion(now_ms).then(joined)

    def _sync(self, command: SyncGroup, ticket: Ticket, now_ms: int) -> Step:
        group = self._groups.get(command.group)
        if not command.group:
            return failed(ticket, InvalidGroupId())
        if group is None or group.empty:
            return failed(ticket, UnknownMemberId())
        return group.sync(command, ticket, now_ms)

    def _heartbeat(self, command: Heartbeat, ticket: Ticket, now_ms: int) -> Step:
        group = self._groups.get(command.group)
        if not command.group:
            return failed(ticket, InvalidGroupId())
        if group is None:
            return failed(ticket, UnknownMemberId())
        return group.heartbeat(command, ticket, now_ms)

    def _leave(self, command: LeaveGroup, ticket: Ticket, now_ms: int) -> Step:
        if not command.group:
            return failed(ticket, InvalidGroupId())
        if command.group not in self._groups:
            return failed(ticket, UnknownMemberId())
        return self._found(command.group).leave(command, ticket, now_ms)

    def _delete_offsets(self, command: DeleteOffsets, ticket: Ticket) -> Step:
        if not command.group:
            return failed(ticket, InvalidGroupId())
        try:
            group = self._found(command.group)
            group.validate_offset_delete()
        except BrokerError as error:
            return failed(ticket, error)
        return delete_offsets(command, group.subscribed_to, self._offset_store, ticket)

    def _delete_groups(self, command: DeleteGroups, ticket: Ticket, now_ms: int) -> Step:
        draft = Draft(now_ms)
        failures: dict[str, BrokerError] = {}
        for name in dict.fromkeys(command.groups):
            try:
                group = self._found(name)
                group.validate_delete()
            except BrokerError as error:
                failures[name] = error
            else:
                draft.add(Step(events=tuple(self._offset_store.tombstones_of(name))))
                draft.add(group.deletion(now_ms))
        draft.respond(ticket, DeleteGroupsReply(failures))
        return draft.step()

    def _consumer_heartbeat(self, command: ConsumerHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        error = refusal(command, self.config)
        if error is not None:
            return failed(ticket, error)
        joins = command.member_epoch == JOINING_EPOCH
        if command.group in self._groups:
            group = self._found(command.group)
            if joins and isinstance(group, ClassicGroup):
                return self._upgrade(group, command, ticket, now_ms)
            return group.consumer_heartbeat(command, ticket, now_ms)
        if joins:
            return self._new_consumer(command.group).consumer_heartbeat(command, ticket, now_ms)
        kind = "Consumer group" if command.member_epoch > JOINING_EPOCH else "Group"
        return failed(ticket, GroupIdNotFound(f"{kind} {command.group} not found."))

    def _upgrade(self, group: ClassicGroup, command: ConsumerHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        """A member with the consumer protocol joins a classic group: the group is upgraded.

        The decision is made on a scratch group; the real one is created when the events are applied.
        """
        draft = Draft(now_ms)
        draft.add(group.deletion(now_ms))
        becomes = self._new_consumer(group.name)
        if not group.empty:
            image = group.image()
            try:
                policy = MigrationPolicy.named(self.config.group_consumer_migration_policy)
                check_upgrade(image, policy, self.config.group_consumer_max_size)
                events = upgraded(image, self._topics)
            except BrokerError as error:
                return failed(ticket, error)
            for event in events:
                draft.append(event)
                becomes.apply(event)
        joined = becomes.consumer_heartbeat(command, ticket, now_ms)
        if any(isinstance(response.reply, BrokerError) for response in joined.responses):
            return joined  # The join failed, so the group stays classic.
        if not group.empty:
            draft.add(group.unloaded(RebalanceInProgress))
            draft.add(becomes.loaded(now_ms))
        draft.add(joined)
        return draft.step()

    def _share_heartbeat(self, command: ShareHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        error = share_refusal(command)
        if error is not None:
            return failed(ticket, error)
        if command.group in self._groups:
            group = self._groups[command.group]
            if not isinstance(group, ShareGroup):
                return failed(ticket, not_a_share_group(command.group))
            return group.share_heartbeat(command, ticket, now_ms)
        if command.member_epoch == JOINING_EPOCH:
            self._begun = self._new_share(command.group)
            return self._begun.share_heartbeat(command, ticket, now_ms)
        kind = "Share group" if command.member_epoch > JOINING_EPOCH else "Group"
        return failed(ticket, GroupIdNotFound(f"{kind} {command.group} not found."))

    def _alter_share_offsets(self, command: AlterShareOffsets, ticket: Ticket, now_ms: int) -> Step:
        """Alter the offsets of a share group, which may begin with that."""
        if not command.group:
            return failed(ticket, InvalidGroupId())
        if command.group not in self._groups:
            self._begun = self._new_share(command.group)
            return self._begun.alter(command, ticket, now_ms)
        group = self._groups[command.group]
        if not isinstance(group, ShareGroup):
            return failed(ticket, not_a_share_group(command.group))
        return group.alter(command, ticket, now_ms)

    def _with_shares(
        self, command: SharesInitialized | DeleteShareOffsets | SharesDeleted, ticket: Ticket, now_ms: int
    ) -> Step:
        """Commands to a share group that exists."""
        try:
            group = self.share_group(command.group)
        except BrokerError as error:
            return failed(ticket, error)
        match command:
            case SharesInitialized():
                return group.initialized(command, ticket, now_ms)
            case DeleteShareOffsets():
                return group.delete_offsets(command, ticket, now_ms)
            case SharesDeleted():
                return group.deleted(command, ticket, now_ms)
            case _:
                assert_never(command)

    # Groups

    def _found(self, name: str) -> Group:
        """The group of that name. Raises GroupIdNotFound."""
        if name not in self._groups:
            raise GroupIdNotFound(f"Group {name} not found.")
        return self._groups[name] or self._new_classic(name)

    def _new_classic(self, name: str, state_ms: int = NO_STATE_MS) -> ClassicGroup:
        return ClassicGroup(name, self.config, self._choose_member_id, state_ms=state_ms)

    def _new_share(self, name: str) -> ShareGroup:
        return ShareGroup(name, self.config, self._topics, self._overrides)

    def _new_consumer(self, name: str) -> ConsumerGroup:
        return ConsumerGroup(name, self.config, self._topics, self._choose_member_id, self._overrides)


def not_a_share_group(name: str) -> BrokerError:
    return GroupIdNotFound(f"Group {name} is not a share group.")
