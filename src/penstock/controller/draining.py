"""Plans fewer active partitions of a topic, and the return to all of them.

A partition beyond the active ones is drained into the one of its index modulo their number, from a new leader epoch on.
The return begins another leader epoch, in which the leader of the partition first learns what its producers wrote
there; it then reports that the partition has resumed.
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock.config.broker import BrokerConfig
from penstock.config.log import ALL_PARTITIONS, TopicConfig
from penstock.metadata.records import PARTITIONS_PER_CHUNK
from penstock.model.cluster_versions import DRAINED_PARTITIONS, GHOST_PARTITIONS
from penstock.model.generated_errors import InvalidConfig
from penstock.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, PartitionEpoch
from penstock.model.topic import (
    NO_LEADER,
    NO_PARTITION,
    PARTITIONS_ACTIVE,
    PARTITIONS_FINALIZED,
    LeaderRecoveryState,
    PartitionState,
    TopicState,
)

PARTITIONS_DRAINABLE_MAX = 32 * PARTITIONS_PER_CHUNK
"""Partitions of a topic with fewer active ones: their states are written in one transaction."""


def active_partitions(configs: Mapping[str, str]) -> int:
    """The number of active partitions that settings ask for; -1 for all of them."""
    return int(configs.get(PARTITIONS_ACTIVE, ALL_PARTITIONS))


def is_draining(topic: TopicState) -> bool:
    """Whether a partition of a topic is drained, or resumes and is not done."""
    return any(state.drained_into >= 0 or state.resumes_from >= 0 for state in topic.partitions)


def check_draining(topic: TopicState, configs: Mapping[str, str], config: BrokerConfig, level: int) -> None:
    """Refuse settings that a topic cannot have because of the partitions that they drain.

    `level` is the version of the cluster, whose brokers all have to know of drained partitions.
    """
    after = TopicConfig.resolve(configs, config)
    if after.partitions_finalized and not topic.is_finalized:
        check_finalizable(topic, after.partitions_active, level)
    if after.partitions_finalized and after.partitions_active == ALL_PARTITIONS:
        raise InvalidConfig(f"{PARTITIONS_FINALIZED} needs {PARTITIONS_ACTIVE}: remove both to write to all partitions")
    wanted, current = after.partitions_active, active_partitions(topic.configs)
    if wanted != ALL_PARTITIONS and "compact" in after.cleanup_policy:
        raise InvalidConfig(
            f"{PARTITIONS_ACTIVE} needs cleanup.policy=delete: compaction never empties a drained partition, and the "
            "last record of a key there would compete with a newer one elsewhere"
        )
    if wanted in (current, ALL_PARTITIONS):
        return
    if level < DRAINED_PARTITIONS:
        raise InvalidConfig(
            f"{PARTITIONS_ACTIVE} needs version {DRAINED_PARTITIONS} of the cluster, which has {level}: see 'penstock "
            "cluster upgrade'"
        )
    have = len(topic.partitions)
    if topic.internal:
        raise InvalidConfig(f"{PARTITIONS_ACTIVE} cannot be set for internal topic {topic.name}")
    if wanted >= have:
        raise InvalidConfig(f"{PARTITIONS_ACTIVE}={wanted}: topic {topic.name} has {have} partition(s)")
    if have > PARTITIONS_DRAINABLE_MAX:
        raise InvalidConfig(
            f"{PARTITIONS_ACTIVE}: topic {topic.name} has more than {PARTITIONS_DRAINABLE_MAX} partitions"
        )
    if current != ALL_PARTITIONS:
        raise InvalidConfig(
            f"{PARTITIONS_ACTIVE} of topic {topic.name} is {current}: remove it, and set it again when every partition "
            "has resumed"
        )
    if is_draining(topic):
        raise InvalidConfig(f"{PARTITIONS_ACTIVE}: partitions of topic {topic.name} have yet to resume; try again")


def check_finalizable(topic: TopicState, active: int, level: int) -> None:
    """Refuse to hide partitions that are not drained, or whose records nobody could read any more."""
    if level < GHOST_PARTITIONS:
        raise InvalidConfig(
            f"{PARTITIONS_FINALIZED} needs version {GHOST_PARTITIONS} of the cluster, which has {level}: see 'penstock "
            "cluster upgrade'"
        )
    if active == ALL_PARTITIONS or active != active_partitions(topic.configs):
        raise InvalidConfig(
            f"{PARTITIONS_FINALIZED}: no partition of topic {topic.name} is drained; set {PARTITIONS_ACTIVE} first"
        )
    left = [state.index for state in topic.partitions[active:] if not state.is_ghost]
    if left:
        raise InvalidConfig(
            f"{PARTITIONS_FINALIZED}: partitions {left[:10]} of topic {topic.name} still have logs; wait until "
            "retention has emptied them, or delete their records"
        )


def with_active(state: PartitionState, active: int, level: int) -> PartitionState:
    """The state of a partition in a topic with so many active partitions; -1 for all. A ghost stays as it is."""
    target = NO_PARTITION if active == ALL_PARTITIONS or state.index < active else state.index % active
    if target == state.drained_into or state.is_ghost:
        return state
    resumes_from = NO_PARTITION if target != NO_PARTITION else state.drained_into
    epoch = LeaderEpoch(state.leader_epoch + 1)
    since = epoch if target != NO_PARTITION and level >= GHOST_PARTITIONS else NO_LEADER_EPOCH
    return replace(state, leader_epoch=epoch, drained_into=target, resumes_from=resumes_from, drained_since=since)


def ghost_of(state: PartitionState, end: Offset) -> PartitionState:
    """The state of a drained partition whose log is empty, and ends at an offset: without replicas."""
    assert state.drained_into != NO_PARTITION, f"partition {state.index} is not drained"
    assert end >= state.log_base, f"the log of partition {state.index} ends at {end}, and began at {state.log_base}"
    return PartitionState(
        index=state.index,
        leader=NO_LEADER,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        replicas=(),
        isr=(),
        partition_epoch=state.partition_epoch,
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        drained_into=state.drained_into,
        log_base=end,
    )


def revived(topic: TopicState, index: int, placed: PartitionState) -> PartitionState:
    """The state of a ghost that resumes, with replicas as those of a new partition.

    Its leader epoch is greater than every one that clients have seen.
    """
    state = topic.partitions[index]
    return replace(
        placed,
        leader_epoch=LeaderEpoch(topic.shown(index).leader_epoch + 1),
        partition_epoch=PartitionEpoch(state.partition_epoch + 1),
        resumes_from=state.drained_into,
        log_base=state.log_base,
    )
