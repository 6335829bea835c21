"""How a group with the consumer protocol answers, and how it shows itself to operators."""

from dataclasses import dataclass

from penstock.model.ids import TopicId

TopicPartitions = tuple[tuple[TopicId, tuple[int, ...]], ...]
"""Partitions as requests and replies list them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReply:
    """A member's epoch, when to come again, and its partitions where they changed or it asked in full."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: TopicPartitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartitions:
    """Partitions of a topic that still exists."""

    topic_id: TopicId
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumer:
    """A member as an operator sees it. What it has yet to give back counts as assigned: it still answers for it."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    subscribed_regex: str | None
    assigned: tuple[DescribedPartitions, ...]
    target: tuple[DescribedPartitions, ...]
    member_type: int
    """1 where the member speaks the consumer protocol, 0 where it speaks the classic one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    """A group as an operator sees it; states are Kafka's words: Empty, Assigning, Reconciling, Stable."""

    group: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
