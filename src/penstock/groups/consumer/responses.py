"""Responses of a group with the consumer protocol, and its description for operators."""

from dataclasses import dataclass

from penstock.model.ids import TopicId

TopicPartitions = tuple[tuple[TopicId, tuple[int, ...]], ...]
"""Partitions as requests and replies list them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatReply:
    """A member's epoch, its heartbeat interval, and its partitions if they changed or the request was a full one."""

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
    """A member as an operator sees it. Partitions that it is revoking count as assigned: it still owns them."""

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
    """1 for the consumer protocol, 0 for the classic one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    """A group as an operator sees it; states have Kafka's names: Empty, Assigning, Reconciling, Stable."""

    group: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
