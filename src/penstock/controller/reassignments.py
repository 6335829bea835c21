"""Plans reassignments: which brokers hold a partition, changed while it is served.

A reassignment has two changes of a partition's state. The first adds the new replicas, which copy the log as followers.
The second removes those that are no longer wanted, once the added ones are in sync. It follows from the state and the
brokers alone, so it comes with the ISR change that allows it, or from the next controller where the one before stopped.

A removal raises the leader epoch: what the removed replica has fetched does not count any more, so that it may be added
again with an empty log.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from penstock.controller.cordons import check_not_cordoned
from penstock.controller.elections import Brokers, elected, in_order, in_sync_needed, raised, with_isr, without_leader
from penstock.controller.plan import Plan, PlanStep
from penstock.controller.topics import check_replicas, in_sync_min_of, unclean_allowed, write_partitions
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import brokers_shared
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId, LeaderEpoch, TopicPartition
from penstock.model.topic import NO_LEADER, PartitionState, TopicState


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """The replicas that a partition is to have; None cancels the reassignment in progress."""

    tp: TopicPartition
    replicas: tuple[BrokerId, ...] | None


def plan_reassignments(
    image: MetadataImage,
    wanted: Sequence[Reassignment],
    *,
    brokers: Brokers,
    allow_factor_change: bool = True,
    unclean_by_default: bool = False,
) -> Plan[PartitionState]:
    """Plan the beginning or the cancellation of reassignments; the outcome is each partition's next state."""
    outcomes: list[PartitionState | BrokerError] = []
    changed: dict[str, dict[int, PartitionState]] = {}
    for each in wanted:
        try:
            topic, state = topic_and_state(image, each.tp)
            before = changed.get(topic.name, {}).get(state.index, state)
            if each.replicas is None:
                unclean = unclean_allowed(topic.configs, default=unclean_by_default)
                after = cancelled(each.tp, before, brokers, unclean_allowed=unclean)
            else:
                check_replicas(image, each.replicas, None)
                check_not_cordoned(image, each.replicas, held=before.replicas)
                if not allow_factor_change:
                    check_factor(before, each.replicas)
                after = begun(before, each.replicas, brokers, in_sync_min=in_sync_min_of(image, topic.configs))
        except BrokerError as error:
            outcomes.append(error)
            continue
        if after != before:
            after = raised(after, state)
            changed.setdefault(topic.name, {})[state.index] = after
        outcomes.append(after)
    steps: list[PlanStep] = []
    for name, states in changed.items():
        steps += ((operation,) for _, operation in write_partitions(image, image.topics[name], states))
    return Plan(steps=tuple(steps), outcomes=tuple(outcomes))


def topic_and_state(image: MetadataImage, tp: TopicPartition) -> tuple[TopicState, PartitionState]:
    topic = image.topics.get(tp.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {tp.topic}.")
    if not 0 <= tp.partition < len(topic.partitions):
        raise UnknownTopicOrPartition(f"Unable to find partition {tp.topic}:{tp.partition}.")
    state = topic.partitions[tp.partition]
    if state.is_ghost:
        raise InvalidReplicaAssignment(
            f"Partition {tp.topic}:{tp.partition} is drained and empty: it has no replicas, and the leader "
            f"of partition {state.drained_into} serves it."
        )
    return topic, state


def check_factor(state: PartitionState, replicas: Sequence[BrokerId]) -> None:
    """Refuse another number of replicas than the partition has, or will have after the reassignment in progress."""
    before = len(state.target_replicas)
    if len(replicas) != before:
        raise InvalidReplicationFactor(f"The replication factor is changed from {before} to {len(replicas)}")


def begun(state: PartitionState, target: Sequence[BrokerId], brokers: Brokers, *, in_sync_min: int) -> PartitionState:
    """The state with a reassignment to `target` in progress, or completed where nothing has to be copied.

    It takes the place of one in progress. What that one added stays among the added replicas, so that a cancellation
    returns to the replicas before both.
    """
    current, original = set(state.replicas), set(state.original_replicas)
    removing = tuple(sorted(current - set(target)))
    adding = tuple(sorted((current | set(target)) - original))
    replicas = (*target, *removing)
    after = replace(
        state,
        replicas=brokers_shared(replicas),
        adding_replicas=brokers_shared(adding),
        removing_replicas=brokers_shared(removing),
        in_sync_min=in_sync_min if len(replicas) > 1 and len(state.replicas) == 1 else state.in_sync_min,
    )
    return completed(with_isr(after, state.isr), brokers)


def is_complete(state: PartitionState) -> bool:
    """Whether the replicas to remove are no longer needed.

    Every added replica is in sync, and the ISR without the removed ones is large enough to commit. A smaller number of
    replicas than before needs all of them in sync.
    """
    if not state.is_reassigning:
        return False
    adding, removing = set(state.adding_replicas), set(state.removing_replicas)
    added, removed = adding - removing, removing - adding
    target = state.target_replicas
    isr = set(state.isr) - removing
    if not isr or not added <= isr or len(isr) < max(1, min(state.in_sync_min, len(target))):
        return False
    return len(added) >= len(removed) or isr.issuperset(target)


def completed(state: PartitionState, brokers: Brokers) -> PartitionState:
    """The state after the reassignment in progress; the same object while it is not complete.

    It waits for a leader among the replicas that stay.
    """
    if not is_complete(state):
        return state
    after = with_replicas(state, state.target_replicas, set(state.isr) - set(state.removing_replicas))
    after = with_leader_among(after, brokers, removed=bool(state.removing_replicas))
    return state if after.leader == NO_LEADER else after


def cancelled(tp: TopicPartition, state: PartitionState, brokers: Brokers, *, unclean_allowed: bool) -> PartitionState:
    """The state without what the reassignment in progress has added."""
    if not state.is_reassigning:
        raise NoReassignmentInProgress()
    after = with_replicas(state, state.original_replicas, set(state.isr) - set(state.adding_replicas))
    after = with_leader_among(after, brokers, removed=bool(state.adding_replicas))
    lost_leader = state.leader != NO_LEADER and after.leader == NO_LEADER
    lost_holders = bool(state.isr or state.eligible_leader_replicas) and not (
        after.isr or after.eligible_leader_replicas
    )
    if (lost_leader or lost_holders) and not unclean_allowed:
        raise InvalidReplicaAssignment(
            f"Unable to revert partition assignment for {tp.topic}:{tp.partition} because it would require an unclean "
            "leader election."
        )
    return after


def with_replicas(state: PartitionState, replicas: Sequence[BrokerId], isr: Collection[BrokerId]) -> PartitionState:
    """The state with fewer replicas, none of them about to be added or removed."""
    after = replace(
        state,
        replicas=brokers_shared(tuple(replicas)),
        adding_replicas=(),
        removing_replicas=(),
        in_sync_min=state.in_sync_min if len(replicas) > 1 else 0,
        last_known_leader=state.last_known_leader if state.last_known_leader in replicas else NO_LEADER,
    )
    after = replace(
        after,
        replaced_replicas=in_order(after, state.replaced_replicas),
        failed_replicas=in_order(after, state.failed_replicas),
    )
    after = with_isr(after, isr)
    # Members of the former ISR that are still replicas and left it with this change do not exist: only those that are
    # added or removed leave it.
    assert len(after.isr) >= in_sync_needed(after) or set(after.eligible_leader_replicas) <= set(
        state.eligible_leader_replicas
    ), f"{after.eligible_leader_replicas} became eligible"
    return after


def with_leader_among(state: PartitionState, brokers: Brokers, *, removed: bool) -> PartitionState:
    """The state with a leader from its replicas, in a new leader epoch if one of them was removed."""
    if removed:
        # Also without a leader: a replica that is added again begins in an epoch that its former log does not have.
        begun_epoch = LeaderEpoch(state.leader_epoch + 1)
    else:
        begun_epoch = state.leader_epoch
    if state.leader in state.isr:
        return replace(state, leader_epoch=begun_epoch)
    after = without_leader(state)
    if after.last_known_leader not in after.replicas:
        after = replace(after, last_known_leader=NO_LEADER)
    after = elected(after, brokers.electable) or elected(after, brokers.live) or after
    return replace(after, leader_epoch=LeaderEpoch(max(after.leader_epoch, begun_epoch)))
