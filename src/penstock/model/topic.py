"""The metadata of topics and partitions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from penstock.model.generated_errors import InvalidTopic
from penstock.model.ids import (
    NO_BROKER,
    NO_LEADER_EPOCH,
    OFFSET_ZERO,
    PARTITION_EPOCH_ZERO,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
)

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


VIEW_OF = "view.of"
VIEW_FILTER = "view.filter"
"""Settings with which CreateTopics makes a filtered view."""

INTERNAL_TOPICS = frozenset(COORDINATOR_FACTORS)


PARTITIONS_ACTIVE = "partitions.active"
PARTITIONS_FINALIZED = "partitions.finalized"
"""Settings of a topic: how many of its partitions are written to, and whether clients see only these."""

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
    drained_since: LeaderEpoch = NO_LEADER_EPOCH
    """The leader epoch from which on a drained partition has no records of clients in its log, where it is known."""
    log_base: Offset = OFFSET_ZERO
    """Where a new log of this partition begins: no offset of a log that was removed with all its replicas is used
    again."""

    @property
    def is_ghost(self) -> bool:
        """Whether this is a drained partition without replicas: it was empty. The target's leader serves it."""
        return not self.replicas

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

    def shown(self, index: int) -> PartitionState:
        """A partition as clients see it: a ghost has the leader and the replicas of its target.

        Its leader epoch goes up with that of the target, and with its own.
        """
        state = self.partitions[index]
        if not state.is_ghost:
            return state
        target = self.partitions[state.drained_into]
        return replace(
            target,
            index=index,
            leader_epoch=LeaderEpoch(state.leader_epoch + target.leader_epoch),
            drained_into=state.drained_into,
            log_base=state.log_base,
        )

    @property
    def is_finalized(self) -> bool:
        """Whether clients see only the active partitions. What they send to the others still goes to these."""
        return bool(self.configs) and self.configs.get(PARTITIONS_FINALIZED, "").strip().lower() == "true"

    @property
    def shown_count(self) -> int:
        """How many partitions clients see."""
        return int(self.configs[PARTITIONS_ACTIVE]) if self.is_finalized else len(self.partitions)

    @property
    def shown_partitions(self) -> tuple[PartitionState, ...]:
        """The partitions that clients see, as they see them."""
        if self.is_finalized:
            return self.partitions[: self.shown_count]
        if not any(state.is_ghost for state in self.partitions):
            return self.partitions
        return tuple(self.shown(state.index) for state in self.partitions)

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """A filtered view of a topic, its parent."""

    topic: TopicState
    """As clients see it: a topic with a name and an id of its own, and with the partitions of its parent."""
    parent: str
    parent_id: TopicId
    filter: str
    """The text that it was created with."""
    form: Mapping[str, object]
    """What the text means, see `penstock.views.form`."""


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
