"""A group with the consumer protocol (KIP-848): the coordinator assigns, and members follow one by one.

A change of members, subscriptions or topics raises the group's epoch. For a new epoch an assignor makes a target. Each
member is led to its part of the target by its own heartbeats: what it is to lose it gives back first, and what it is to
get it gets once nobody else has it. So a partition never has two owners, and nobody stops for others.
"""

from collections.abc import Callable, Hashable, Iterable

from penstock.config.broker import BrokerConfig
from penstock.core.group.commands import ConsumerHeartbeat, Heartbeat, JoinGroup, LeaveGroup, ListedGroup, SyncGroup
from penstock.core.group.consumer_events import ConsumerEvent
from penstock.core.group.consumer_replies import DescribedConsumerGroup
from penstock.core.group.step import JobDone, Step, Ticket
from penstock.core.group.topics import TopicsView
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicId

CommitCheck = Callable[[str, TopicId, int], BrokerError | None]
"""Whether a commit for one partition (topic, its id, index) is refused, where the whole request is not."""


class ConsumerGroup:
    """One group. What it knows is what its events told it; what it forgets with its shard it can do without."""

    def __init__(
        self,
        group: str,
        config: BrokerConfig,
        topics: TopicsView,
        choose_member_id: Callable[[str], str],
    ) -> None:
        self.group = group

    def heartbeat(self, command: ConsumerHeartbeat, ticket: Ticket, now_ms: int) -> Step:
        """A member joins, stays or leaves. The caller found or made the group; failures are answers."""
        raise NotImplementedError

    def join_classic(self, command: JoinGroup, ticket: Ticket, now_ms: int) -> Step:
        """A member that speaks the classic protocol joins, in a group that is not empty."""
        raise NotImplementedError

    def sync_classic(self, command: SyncGroup, ticket: Ticket, now_ms: int) -> Step:
        """It asks for its partitions."""
        raise NotImplementedError

    def heartbeat_classic(self, command: Heartbeat, ticket: Ticket, now_ms: int) -> Step:
        """It is alive, and told to join again where its partitions change."""
        raise NotImplementedError

    def leave_classic(self, command: LeaveGroup, ticket: Ticket, now_ms: int) -> Step:
        """Members of either protocol are made to leave."""
        raise NotImplementedError

    def wake(self, key: Hashable, now_ms: int) -> Step:
        """One of this group's timers rang."""
        raise NotImplementedError

    def finish(self, done: JobDone, now_ms: int) -> Step:
        """One of this group's jobs ended."""
        raise NotImplementedError

    def loaded(self, now_ms: int) -> Step:
        """All records have been applied: members have a full session from now."""
        raise NotImplementedError

    def on_topics(self, names: Iterable[str], now_ms: int) -> Step:
        """These topics appeared, changed or went."""
        raise NotImplementedError

    def apply(self, event: ConsumerEvent) -> None:
        """Remember a fact. After the tombstone of ConsumerGroupMetadata there is no such group."""
        raise NotImplementedError

    def tombstones(self) -> tuple[ConsumerEvent, ...]:
        """What has to be written to forget the group."""
        raise NotImplementedError

    def validate_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> CommitCheck | None:
        """None where any partition may be committed; else the check for each. Raises what fails the whole request."""
        raise NotImplementedError

    def validate_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises UnknownMemberId, StaleMemberEpoch or IllegalGeneration."""
        raise NotImplementedError

    def validate_delete(self) -> None:
        """Raises NonEmptyGroup."""
        raise NotImplementedError

    @property
    def empty(self) -> bool:
        raise NotImplementedError

    @property
    def member_count(self) -> int:
        raise NotImplementedError

    def subscribed_to(self, topic: str) -> bool:
        """Whether any member reads the topic, by name or pattern."""
        raise NotImplementedError

    def listed(self) -> ListedGroup:
        raise NotImplementedError

    def describe(self) -> DescribedConsumerGroup:
        raise NotImplementedError
