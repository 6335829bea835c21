"""Plans what follows from brokers that come, go and return: changes of partitions first, then admissions.

A registration is admitted after every partition state that speaks of the broker's former life has been changed. The
plan is made from the image alone. Each of its transactions is sound by itself, so a controller that takes over plans
the rest again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.config.log import ALL_PARTITIONS
from penstock.controller.draining import active_partitions, with_active
from penstock.controller.elections import Brokers, next_state, raised, with_in_sync_min
from penstock.controller.plan import Plan, PlanStep
from penstock.controller.reassignments import completed
from penstock.controller.topics import in_sync_min_of, resumed, write_partitions
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Create, Operation, Set
from penstock.metadata.records import (
    Admission,
    BrokerState,
    admission_path,
    pack_admission,
)
from penstock.model.ids import BrokerEpoch, BrokerId
from penstock.model.topic import NO_LEADER, PartitionState, TopicState


def brokers_of(image: MetadataImage) -> Brokers:
    """The brokers as the image shows them."""
    live = frozenset(each.broker_id for each in image.live_brokers())
    fenced = [each for each in image.brokers.values() if each.broker_id not in live]
    replaced = frozenset(each.broker_id for each in fenced if is_replaced(each, image.admissions.get(each.broker_id)))
    unsafe = frozenset(each.broker_id for each in fenced if is_unsafe(each, image.admissions.get(each.broker_id)))
    return Brokers(
        live=live,
        fenced=frozenset(each.broker_id for each in fenced),
        unclean=frozenset(each.broker_id for each in fenced if not each.clean) | unsafe,
        unsafe=unsafe,
        replaced=replaced,
        stopping=frozenset(each for each in live if image.admissions[each].stopping),
        kept={
            each.broker_id: each.kept
            for each in fenced
            if each.kept and knows_last_life(each, image.admissions.get(each.broker_id))
        },
    )


def knows_last_life(broker: BrokerState, admitted: Admission | None) -> bool:
    """Whether a broker's disk is that of the life that was admitted last; else nothing that it says of it counts."""
    return admitted is not None and broker.admitted_before == admitted.last_epoch


def is_unsafe(broker: BrokerState, admitted: Admission | None) -> bool:
    """Whether a registered broker may lack records that a former life of it acknowledged, but for those it has `kept`.

    It says so itself, or a log directory of the former life is missing, or its disk is not that of the life that was
    admitted last: then it does not know that epoch.
    """
    if admitted is None or broker.may_have_lost or not knows_last_life(broker, admitted):
        return True
    return not set(admitted.directories) <= set(broker.directories)


def is_replaced(broker: BrokerState, admitted: Admission | None) -> bool:
    """Whether a log directory is gone and another is in its place. One that is added, or fails, replaces none."""
    if admitted is None:
        return False
    known, found = set(admitted.directories), set(broker.directories)
    return bool(known - found) and bool(found - known)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A partition's state before and after a plan."""

    topic: str
    before: PartitionState
    after: PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What to write so that the metadata agrees with which brokers are up."""

    steps: tuple[PlanStep, ...]
    changes: tuple[PartitionChange, ...]
    admitted: tuple[BrokerState, ...]


def plan_settlement(image: MetadataImage) -> Settlement:
    """Plan every change that follows from the brokers in the image.

    That is deaths, elections, completed reassignments, minimum ISRs and, last, admissions. A broker that does not
    support the cluster's version is not admitted: it registered while that was finalized, and cannot read what others
    write.
    """
    brokers = brokers_of(image)
    steps: list[PlanStep] = []
    changes: list[PartitionChange] = []
    passed = unaffected(brokers)
    for topic in image.topics.values():
        wanted = in_sync_min_of(image, topic.configs)
        changed = {
            state.index: after
            for state in topic.partitions
            if not passed(state, wanted)
            and (after := settled(state, brokers.about(topic.topic_id, state.index), wanted)) is not state
        }
        if changed:
            steps += ((operation,) for _, operation in write_partitions(image, topic, changed))
            changes += (
                PartitionChange(topic=topic.name, before=topic.partitions[index], after=after)
                for index, after in changed.items()
            )
    admitted = tuple(
        image.brokers[each] for each in sorted(brokers.fenced) if image.level in image.brokers[each].versions
    )
    # Last: by then no state names a former life.
    steps += ((admission_step(image, each),) for each in admitted)
    return Settlement(steps=tuple(steps), changes=tuple(changes), admitted=admitted)


def settled(state: PartitionState, brokers: Brokers, in_sync_min: int) -> PartitionState:
    """The state that follows from the brokers and the setting in force; the same object where nothing changes."""
    if state.is_ghost:
        return state
    after = state if len(state.replicas) == 1 else with_in_sync_min(state, in_sync_min)
    after = next_state(after, brokers)
    if after.is_reassigning:
        after = completed(after, brokers)
    return state if after == state else raised(after, state)


def partition_writes(image: MetadataImage, topic: TopicState, configs: Mapping[str, str]) -> list[Operation]:
    """Write what settings say of a topic's partitions into their states: the minimum ISR of the replicated ones, and
    which of them are drained. Raises where there are too few brokers for the replicas of ghosts that resume."""
    wanted, active = in_sync_min_of(image, configs), active_partitions(configs)
    changed: dict[int, PartitionState] = {}
    for state in topic.partitions:
        if state.is_ghost:
            if active == ALL_PARTITIONS:
                changed[state.index] = resumed(image, topic, state.index, wanted)
            continue
        after = with_active(state, active, image.level)
        if len(state.replicas) > 1 and state.in_sync_min != wanted:
            after = with_in_sync_min(after, wanted)
        if after is not state:
            changed[state.index] = raised(after, state)
    return [operation for _, operation in write_partitions(image, topic, changed)]


def unaffected(brokers: Brokers) -> Callable[[PartitionState, int], bool]:
    """A quick test that leaves nothing to change: ten thousand partitions share a handful of ISRs."""
    sound = brokers.electable
    known: dict[tuple[BrokerId, ...], bool] = {}
    suspects = brokers.unsafe | brokers.replaced

    def passed(state: PartitionState, in_sync_min: int) -> bool:
        isr = state.isr
        found = known.get(isr)
        if found is None:
            found = known[isr] = sound.issuperset(isr)
        if not found or state.leader == NO_LEADER or state.failed_replicas or state.is_reassigning:
            return False
        if suspects and not suspects.isdisjoint(state.replicas):
            return False
        return len(state.replicas) == 1 or state.in_sync_min == in_sync_min

    return passed


def admission_step(image: MetadataImage, broker: BrokerState) -> Operation:
    """Admit a registration."""
    path = admission_path(broker.broker_id)
    admission = Admission(
        broker_id=broker.broker_id,
        epoch=BrokerEpoch(broker.epoch),
        directories=broker.directories,
        versions=broker.versions,
    )
    known = image.admissions.get(broker.broker_id)
    data = pack_admission(admission)
    return Create(path, data) if known is None else Set(path, data, known.version)


def plan_stop(image: MetadataImage, broker_id: BrokerId) -> Plan[None]:
    """Mark a live broker as about to stop: the next settlement moves its leaderships and takes it out of ISRs.

    The mark is in the metadata, so that every later controller keeps it out of them, too.
    """
    admission = image.admissions[broker_id]
    if admission.stopping:
        return Plan(steps=(), outcomes=(None,))
    mark = Set(admission_path(broker_id), pack_admission(replace(admission, stopping=True)), admission.version)
    return Plan(steps=((mark,),), outcomes=(None,))
