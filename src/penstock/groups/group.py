"""What the coordinator asks of a group, whichever protocol it has.

A group decides and changes nothing that a response or a record tells of: a decision is a `Step`, and its events are
applied when they are in the log. A decision with nothing to write, which no log can refuse, takes effect as it is made.
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
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicId

GroupTimer = SessionEnd | JoinDeadline | SyncDeadline | ClassicAdopted | ConsumerTimer
"""Every timer names its group. One that was set for a group of the other protocol leads to nothing."""

PartitionCheck = Callable[[str, TopicId, int], BrokerError | None]
"""Why a commit for one partition (topic, its id, index) is refused, where the whole request is not."""


class CommitValidation(NamedTuple):
    """A commit may be written, if each of its partitions passes the check; the member's session is set by the timer."""

    check: PartitionCheck | None = None
    timer: SetTimer | None = None


VALID = CommitValidation()


class Group(Protocol):
    """One group. Requests are answered in the step, now or in a later one; nothing is raised but by `validate_*`."""

    @property
    def name(self) -> str: ...

    # Requests of members. Members with the classic protocol may be in a group with the consumer protocol.

    def join(self, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step: ...

    def sync(self, command: SyncGroup, ticket: Ticket, now_ms: int) -> Step: ...

    def heartbeat(self, command: Heartbeat, ticket: Ticket, now_ms: int) -> Step: ...

    def leave(self, command: LeaveGroup, ticket: Ticket, now_ms: int) -> Step: ...

    def consumer_heartbeat(self, command: ConsumerHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        """Not of a member that joins a classic group: that is an upgrade, which takes two groups."""
        ...

    # Offsets and administration

    def validate_commit(self, command: CommitOffsets, now_ms: int) -> CommitValidation:
        """Raises why the member may not commit; one that may has shown that it is alive."""
        ...

    def validate_txn_commit(self, command: CommitOffsets) -> CommitValidation:
        """The same for a commit within a transaction, which shows nothing of the member."""
        ...

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises where a member that fetches offsets is out of date."""
        ...

    def validate_offset_delete(self) -> None:
        """Raises NonEmptyGroup where it is not known which topics the members read."""
        ...

    def validate_delete(self) -> None:
        """Raises NonEmptyGroup."""
        ...

    def deletion(self, now_ms: int) -> Step:
        """The tombstones of the group, and the end of its timers."""
        ...

    # What happens to it

    def wake(self, key: GroupTimer, now_ms: int) -> Step:
        """One of this group's timers rang. Whoever it was set for may be gone since."""
        ...

    def finish(self, done: JobDone, now_ms: int) -> Step:
        """One of this group's jobs ended. The group may have changed meanwhile."""
        ...

    def on_topics(self, names: Iterable[str], now_ms: int) -> Step:
        """These topics appeared, changed or went."""
        ...

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker has other settings."""
        ...

    def loaded(self, now_ms: int) -> Step:
        """All records have been applied: members have a full session from now."""
        ...

    def unloaded(self, error: type[BrokerError]) -> Step:
        """Responses for whoever waits: the group is coordinated elsewhere, or in another way."""
        ...

    def refused(self, step: Step, now_ms: int) -> Step:
        """The log did not take a step of this group, whose requests have their failure: the timers from now on."""
        ...

    def apply(self, event: Event) -> None:
        """Remember a fact that is in the log; also replays it."""
        ...

    # Readings

    @property
    def empty(self) -> bool: ...

    @property
    def expected(self) -> bool:
        """Whether somebody was given an id to join with."""
        ...

    @property
    def member_count(self) -> int: ...

    def subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic."""
        ...

    def offsets_expire_from(self) -> int | None:
        """When the retention of the group's offsets begins; None while its members may come back to them."""
        ...

    def listed(self) -> ListedGroup: ...

    def described(self) -> DescribedGroup:
        """Raises GroupIdNotFound, in Kafka's words, where the group is not a classic one."""
        ...

    def described_consumer(self) -> DescribedConsumerGroup:
        """Raises GroupIdNotFound, in Kafka's words, where the group does not have the consumer protocol."""
        ...
