"""The interface of a group to its coordinator, the same for the classic and the consumer protocol.

A decision is a `Step`; its events are applied once they are in the log, and change the group only then. A decision
without events, which no log can refuse, takes effect at once.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from penstock.config.broker import BrokerConfig
from penstock.coordinator.step import Event, JobDone, SetTimer, Step, Ticket
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
from penstock.groups.consumer.migration import ClassicAdopted
from penstock.groups.consumer.responses import DescribedConsumerGroup
from penstock.groups.consumer.timers import ConsumerTimer
from penstock.groups.share.timers import ShareSessionEnd
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicId

GroupTimer = SessionEnd | JoinDeadline | SyncDeadline | ClassicAdopted | ConsumerTimer | ShareSessionEnd
"""Every timer names its group. A timer that was set by a group of the other protocol is ignored."""

PartitionCheck = Callable[[str, TopicId, int], BrokerError | None]
"""The error of a commit for one partition (topic, topic id, index), or None if the member may commit it."""


class CommitValidation(NamedTuple):
    """An accepted commit: the check that each partition still has to pass, and the member's session timer."""

    check: PartitionCheck | None = None
    timer: SetTimer | None = None


VALID = CommitValidation()


class Group(Protocol):
    """One group. Errors are responses, in this step or a later one; only `validate_*` and `described*` raise."""

    @property
    def name(self) -> str: ...

    # Requests of members. Members with the classic protocol may be in a group with the consumer protocol.

    def join(self, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step: ...

    def sync(self, command: SyncGroup, ticket: Ticket, now_ms: int) -> Step: ...

    def heartbeat(self, command: Heartbeat, ticket: Ticket, now_ms: int) -> Step: ...

    def leave(self, command: LeaveGroup, ticket: Ticket, now_ms: int) -> Step: ...

    def consumer_heartbeat(self, command: ConsumerHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        """A member that joins a classic group does not come here: the shard upgrades the group."""
        ...

    # Offsets and administration

    def validate_commit(self, command: CommitOffsets, now_ms: int) -> CommitValidation:
        """Raises if the member may not commit. An accepted commit extends the member's session."""
        ...

    def validate_txn_commit(self, command: CommitOffsets) -> CommitValidation:
        """The same for a commit within a transaction, which does not extend the member's session."""
        ...

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises if the member that fetches offsets is unknown or has a stale epoch."""
        ...

    def validate_offset_delete(self) -> None:
        """Raises NonEmptyGroup if the members' subscriptions are unknown."""
        ...

    def validate_delete(self) -> None:
        """Raises NonEmptyGroup."""
        ...

    def deletion(self, now_ms: int) -> Step:
        """The tombstones of the group; its timers are cancelled."""
        ...

    # Timers, jobs, topics, loading

    def wake(self, key: GroupTimer, now_ms: int) -> Step:
        """One of this group's timers expired. Its member may have left since."""
        ...

    def finish(self, done: JobDone, now_ms: int) -> Step:
        """One of this group's jobs ended. The group may have changed meanwhile."""
        ...

    def on_topics(self, names: Iterable[str], now_ms: int) -> Step:
        """These topics were created, changed or deleted."""
        ...

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings changed."""
        ...

    def loaded(self, now_ms: int) -> Step:
        """All records have been applied: every member's session starts now."""
        ...

    def unloaded(self, error: type[BrokerError]) -> Step:
        """Fail the requests that wait: the group moved to another coordinator or another protocol."""
        ...

    def refused(self, step: Step, now_ms: int) -> Step:
        """The append of a step of this group failed, and so did its requests. Returns the timers to set instead."""
        ...

    def apply(self, event: Event) -> None:
        """Apply an event that is in the log, when it was appended or when the log is loaded."""
        ...

    # Queries

    @property
    def empty(self) -> bool: ...

    @property
    def expires(self) -> bool:
        """Whether the group is forgotten when it has neither members nor offsets."""
        ...

    @property
    def has_pending_members(self) -> bool:
        """Whether a member id was given out whose member has not joined yet."""
        ...

    @property
    def member_count(self) -> int: ...

    def subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        ...

    def offsets_expire_from(self) -> int | None:
        """When the retention of the group's offsets begins; None while members may still use them."""
        ...

    def listed(self) -> ListedGroup: ...

    def described(self) -> DescribedGroup:
        """Raises GroupIdNotFound, with Kafka's message, if the group is not a classic one."""
        ...

    def described_consumer(self) -> DescribedConsumerGroup:
        """Raises GroupIdNotFound, with Kafka's message, if the group does not use the consumer protocol."""
        ...
