"""All groups of one partition of `__consumer_offsets`: who is in them and how far they got.

The shard finds the group that a command is for and lets it decide. Times are milliseconds since the epoch, because
records hold them, of a clock that never goes back: the shell anchors a monotonic one.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Protocol

from penstock.config.broker import BrokerConfig
from penstock.core.group.commands import CommittedOffset, DescribedGroup, GroupCommand, ListedGroup
from penstock.core.group.step import Event, Step, Ticket
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicId


class TopicsView(Protocol):
    """What a coordinator has to know of the topics its groups read."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, or None where there is no such topic."""
        ...

    def topic_id(self, topic: str) -> TopicId | None:
        """The id of the topic that has this name now."""
        ...

    def topic_name(self, topic_id: TopicId) -> str | None:
        """The name of the topic with this id."""
        ...

    def racks(self, topic: str, partition: int) -> Sequence[str]:
        """The racks where a partition has replicas."""
        ...

    def names(self) -> Iterable[str]:
        """Every topic, for subscriptions by pattern."""
        ...


class GroupShard:
    """One partition's groups. The shell writes a step's events, applies each, and only then asks for another step.

    The one exception: any number of `CommitOffsets` may be decided before their events are applied.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicsView,
        choose_member_id: Callable[[str], str],
    ) -> None:
        """`choose_member_id` makes an id nobody has of a prefix: it, a dash and a random UUID, as Kafka does."""
        self.config = config
        self._topics = topics
        self._choose_member_id = choose_member_id

    # Decisions

    def decide(self, command: GroupCommand, ticket: Ticket, now_ms: int) -> Step:
        """What a command leads to. Every ticket is answered once, now or in a later step; nothing is raised."""
        raise NotImplementedError

    def wake(self, key: Hashable, now_ms: int) -> Step:
        """A timer of this shard rang. One that no longer matters leads to nothing."""
        raise NotImplementedError

    def loaded(self, now_ms: int) -> Step:
        """Every record has been applied: watch over the members from now on, and over stale offsets."""
        raise NotImplementedError

    def refused(self, step: Step, error: BrokerError, now_ms: int) -> Step:
        """The log did not take a step's events, so they were not applied: its requests are answered with the failure.

        The returned step has an answer for each of the refused step's, which must not be sent; its timers count.
        """
        raise NotImplementedError

    def unloaded(self) -> Step:
        """This broker coordinates these groups no longer: whoever waits is told to look elsewhere."""
        raise NotImplementedError

    def abandon(self, ticket: Ticket) -> None:
        """The connection of a waiting request closed: nobody hears its answer. What the member asked for stands."""
        raise NotImplementedError

    def on_topics(self, names: Iterable[str], now_ms: int) -> Step:
        """These topics appeared, grew or went; the offsets of those that are gone are forgotten."""
        raise NotImplementedError

    def apply(self, event: Event) -> None:
        """Remember a fact that is in the log now; also replays it."""
        raise NotImplementedError

    # Readings

    def fetch_offsets(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> list[CommittedOffset]:
        """The committed offsets among these partitions, or all. An unknown group has none.

        Raises UnknownMemberId or StaleMemberEpoch where a member of a group with the consumer protocol is out of date.
        """
        raise NotImplementedError

    def committed(self) -> Iterator[tuple[str, CommittedOffset]]:
        """Every committed offset with its group, for lag."""
        raise NotImplementedError

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """The groups in one of these states and of one of these types; none given means any. Case does not matter."""
        raise NotImplementedError

    def describe(self, group: str) -> DescribedGroup:
        """A classic group. Raises GroupIdNotFound, in Kafka's words, where there is none of that name and kind."""
        raise NotImplementedError

    def members_by_group(self) -> Iterator[tuple[str, int]]:
        """How many members each group has."""
        raise NotImplementedError
