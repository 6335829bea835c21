"""Responses of share groups, and their description for operators."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.groups.consumer.responses import DescribedPartitions, TopicPartitions
from penstock.model.errors import BrokerError
from penstock.model.ids import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatReply:
    """A member's epoch, its heartbeat interval, and its partitions if they changed or the request was a full one."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: TopicPartitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShareMember:
    """A member as an operator sees it."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    assigned: tuple[DescribedPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShareGroup:
    """A group as an operator sees it; its state is Empty or Stable."""

    group: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedShareMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesChosen:
    """The share partitions that are to begin or to end, which is in the log: now their coordinators are asked."""

    state_epoch: int
    partitions: Mapping[TopicId, frozenset[int]]
    topics: Mapping[str, TopicId]
    """The ids of the topics among them, by name."""
    failures: Mapping[str, BrokerError]
    """Why other topics are not among them."""


@dataclass(frozen=True, slots=True)
class SharesSettled:
    """What became of the share partitions is in the log."""


SHARES_SETTLED = SharesSettled()
