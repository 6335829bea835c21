"""The metadata of topics and partitions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock.model.generated_errors import InvalidTopic
from penstock.model.ids import NO_BROKER, PARTITION_EPOCH_ZERO, BrokerId, LeaderEpoch, PartitionEpoch, TopicId

TOPIC_NAME_LENGTH_MAX = 249
NAME_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
GROUP_OFFSETS_TOPIC = "__consumer_offsets"
"""Holds groups and their committed offsets."""

TRANSACTION_STATE_TOPIC = "__transaction_state"
"""Holds transactional ids and their transactions."""

SHARE_STATE_TOPIC = "__share_group_state"
"""Holds the state of share partitions."""

COORDINATOR_FACTORS = {
    GROUP_OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
    SHARE_STATE_TOPIC: "share.coordinator.state.topic.replication.factor",
}
"""The coordinators' topics, and the setting of each that says how many brokers its creation waits for."""


COORDINATED = {
    GROUP_OFFSETS_TOPIC: "groups",
    TRANSACTION_STATE_TOPIC: "transactional ids",
    SHARE_STATE_TOPIC: "share partitions",
}
"""What has its coordinators in each of these topics."""


def waits_for_brokers(topic: str, factor: int, live: int) -> str:
    """Why a coordinators' topic does not exist, in words for logs and commands."""
    without = COORDINATED[topic]
    return (
        f"{topic} waits for {factor} brokers, {live} {'is' if live == 1 else 'are'} live: {without} have no "
        f"coordinator until then; start more brokers, or set {COORDINATOR_FACTORS[topic]} on all"
    )


INTERNAL_TOPICS = frozenset(COORDINATOR_FACTORS)


NO_LEADER = NO_BROKER
NO_PARTITION = -1


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected from replicas known to have every committed record (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1
    """It was elected uncleanly and has not replaced the ISR yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The replicas, leader and ISR of a partition. Only the controller writes it."""

    index: int
    leader: BrokerId
    """A broker id, or `NO_LEADER`."""
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch = PARTITION_EPOCH_ZERO
    """Goes up with every change of this partition."""
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    """Replicas that a reassignment adds or removes; both are among `replicas` until it ends."""
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    """Replicas outside the ISR that have every committed record (KIP-966)."""
    last_known_leader: BrokerId = NO_LEADER
    """The last leader, while there is none."""
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    in_sync_min: int = 0
    """The min.insync.replicas in force for this partition; 0 where none is recorded and the topic's setting holds."""
    replaced_replicas: tuple[BrokerId, ...] = ()
    """Replicas whose log directory was replaced since they were last in sync: they hold nothing of the partition."""
    failed_replicas: tuple[BrokerId, ...] = ()
    """Replicas outside the ISR whose log their broker could not use: not elected before it has registered again."""

    drained_into: int = NO_PARTITION
    """The partition that records for this one are written to, because the topic has fewer active partitions."""
    resumes_from: int = NO_PARTITION
    """The partition that this one was drained into, until its leader knows what its producers wrote there."""

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas once the reassignment in progress is complete."""
        if not self.removing_replicas:
            return self.replicas
        return tuple(each for each in self.replicas if each not in self.removing_replicas)

    @property
    def original_replicas(self) -> tuple[BrokerId, ...]:
        """The replicas before the reassignment in progress, to which a cancellation returns."""
        if not self.adding_replicas:
            return self.replicas
        return tuple(each for each in self.replicas if each not in self.adding_replicas)

    def in_sync_needed(self, in_sync_min: int) -> int:
        """The ISR size below which nothing is committed: the minimum, or all replicas where there are fewer.

        Replicas that a reassignment adds do not count before it is complete: a partition of one replica goes on
        accepting writes while others are copied from it.
        """
        return max(1, min(in_sync_min, len(self.replicas) - len(self.adding_replicas)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """One topic: its identity, its overrides of the broker's defaults, its partitions in order of index."""

    name: str
    topic_id: TopicId
    configs: Mapping[str, str]
    partitions: tuple[PartitionState, ...]
    version: int = 0
    """Of the topic's own node in the metadata store."""
    grown_from: int | None = None
    """How many partitions the topic was created with, if it has grown since."""
    chunk_versions: tuple[int, ...] = ()
    """Of the nodes that hold the states of its partitions."""

    @property
    def partitions_at_creation(self) -> int:
        """The modulus for keys of an internal topic: adding partitions must not move a key."""
        return len(self.partitions) if self.grown_from is None else self.grown_from

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic, with Kafka's message, for an illegal topic name."""
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopic(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{TOPIC_NAME_LENGTH_MAX}"
        )
    if not NAME_LEGAL.fullmatch(name):
        raise InvalidTopic(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
