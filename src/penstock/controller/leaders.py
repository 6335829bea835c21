"""Plans elections that are asked for: of preferred leaders, of what a failed disk or an operator leaves without one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum

from penstock.controller.brokers import brokers_of
from penstock.controller.elections import (
    Brokers,
    LogEnd,
    Risk,
    elected,
    elected_at_risk,
    in_order,
    led_by,
    longest,
    raised,
    risk_of,
    risky_candidates,
    with_isr,
    without_leader,
)
from penstock.controller.plan import Plan, PlanStep
from penstock.controller.topics import unclean_allowed, without_broker, write_partitions
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Delete
from penstock.metadata.records import admission_path, broker_config_path
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    BrokerIdNotRegistered,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId, LeaderEpoch, TopicPartition
from penstock.model.topic import NO_LEADER, PartitionState

LogEnds = Mapping[tuple[TopicPartition, BrokerId], LogEnd]
"""What the replicas of partitions responded about their logs."""


class Election(IntEnum):
    """The elections of ElectLeaders, by their number in the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


Decide = Callable[[TopicPartition, PartitionState], PartitionState]
"""A partition's state after an election; raises why there is none."""


def plan_elections(image: MetadataImage, partitions: Iterable[TopicPartition], decide: Decide) -> Plan[PartitionState]:
    """Plan an election in each partition; the outcome is its next state, or why it has none."""
    outcomes: list[PartitionState | BrokerError] = []
    changed: dict[str, dict[int, PartitionState]] = {}
    for tp in partitions:
        try:
            state = state_of(image, tp)
            after = raised(decide(tp, state), state)
        except BrokerError as error:
            outcomes.append(error)
            continue
        changed.setdefault(tp.topic, {})[tp.partition] = after
        outcomes.append(after)
    steps: list[PlanStep] = []
    for name, states in changed.items():
        steps += ((operation,) for _, operation in write_partitions(image, image.topics[name], states))
    return Plan(steps=tuple(steps), outcomes=tuple(outcomes))


def state_of(image: MetadataImage, tp: TopicPartition) -> PartitionState:
    topic = image.topics.get(tp.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"No such topic as {tp.topic}")
    if not 0 <= tp.partition < len(topic.partitions):
        raise UnknownTopicOrPartition(f"No such partition as {tp.topic}-{tp.partition}")
    state = topic.partitions[tp.partition]
    if state.is_ghost:
        raise ElectionNotNeeded(f"{tp.topic}-{tp.partition} is drained and has no replicas")
    return state


def elect_preferred(brokers: Brokers) -> Decide:
    """Give the first replica its leadership back."""

    def decide(_: TopicPartition, state: PartitionState) -> PartitionState:
        preferred = state.replicas[0]
        if state.leader == preferred:
            raise ElectionNotNeeded()
        if preferred not in state.isr or preferred not in brokers.electable:
            raise PreferredLeaderNotAvailable()
        return led_by(state, preferred, state.leader_recovery_state)

    return decide


def elect_uncleanly(brokers: Brokers, ends: LogEnds) -> Decide:
    """Elect as an operator orders: without loss where possible, else the replica that lost least, any disk allowed."""

    def decide(tp: TopicPartition, state: PartitionState) -> PartitionState:
        if state.leader != NO_LEADER:
            raise ElectionNotNeeded()
        safe = elected(state, brokers.live)
        if safe is not None:
            return safe
        leader = longest_of(tp, risky_candidates(state, brokers) or in_live(state, brokers), ends)
        if leader is None:
            raise EligibleLeadersNotAvailable()
        return elected_at_risk(state, leader)

    return decide


def elect_at_risk(image: MetadataImage, brokers: Brokers, ends: LogEnds, *, unclean_by_default: bool = False) -> Decide:
    """Elect where no replica is known to have everything, or the topic does not wait for those that have."""

    def decide(tp: TopicPartition, state: PartitionState) -> PartitionState:
        allowed = unclean_allowed(image.topics[tp.topic].configs, default=unclean_by_default)
        if risk_of(state, brokers, unclean_allowed=allowed) is None:
            raise ElectionNotNeeded()
        leader = longest_of(tp, risky_candidates(state, brokers), ends)
        if leader is None:
            raise EligibleLeadersNotAvailable()
        return elected_at_risk(state, leader)

    return decide


def longest_of(tp: TopicPartition, candidates: Sequence[BrokerId], ends: LogEnds) -> BrokerId | None:
    """The candidate whose log goes furthest, of those that responded."""
    return longest((each, ends[tp, each]) for each in candidates if (tp, each) in ends)


def in_live(state: PartitionState, brokers: Brokers) -> tuple[BrokerId, ...]:
    return tuple(
        replica for replica in state.replicas if replica in brokers.live and replica not in state.failed_replicas
    )


def at_risk(image: MetadataImage, *, unclean_by_default: bool = False) -> dict[TopicPartition, Risk]:
    """The partitions that only an election with possible loss gives a leader, and why."""
    brokers = brokers_of(image)
    found: dict[TopicPartition, Risk] = {}
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.leader == NO_LEADER:
                allowed = unclean_allowed(topic.configs, default=unclean_by_default)
                risk = risk_of(state, brokers, unclean_allowed=allowed)
                if risk is not None:
                    found[TopicPartition(topic.name, state.index)] = risk
    return found


def leave_isr(brokers: Brokers, broker_id: BrokerId, *, keeps_records: bool) -> Decide:
    """Take a replica whose log failed out of the ISR, and its leadership with it.

    One that `keeps_records`, in a directory that failed, leaves as one whose broker is gone does: below the minimum ISR
    it stays eligible, so that no election loses what it alone has. It is not elected before its broker registers again.
    Any other, damaged or gone for good, is not eligible either.

    A new leader epoch begins even where the leader stays: what the replica fetched, and a proposal to add it, do not
    count any more, so it may be cut where it is damaged. The only replica of a partition stays: its clients learn from
    it why it does not serve.
    """

    def decide(_: TopicPartition, state: PartitionState) -> PartitionState:
        if len(state.replicas) == 1 or (keeps_records and broker_id in state.failed_replicas):
            raise ElectionNotNeeded()
        after = with_isr(state, set(state.isr) - {broker_id}, unsafe=() if keeps_records else {broker_id})
        failed = {*after.failed_replicas, broker_id} if keeps_records else {*after.failed_replicas} - {broker_id}
        after = replace(after, failed_replicas=in_order(state, failed))
        if state.leader == broker_id:
            after = without_leader(after)
            after = elected(after, brokers.electable) or elected(after, brokers.live) or after
        return replace(after, leader_epoch=LeaderEpoch(state.leader_epoch + 1))

    return decide


def not_preferred(image: MetadataImage, brokers: Brokers) -> Iterator[TopicPartition]:
    """The partitions whose preferred leader is in sync and does not lead."""
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.is_ghost:
                continue
            preferred = state.replicas[0]
            if state.leader != preferred and preferred in state.isr and preferred in brokers.electable:
                yield TopicPartition(topic.name, state.index)


def plan_unregistration(image: MetadataImage, broker_id: BrokerId) -> Plan[None]:
    """Forget a broker that will not return: no partition and no deletion waits for it any more.

    Its replicas stay assigned until an operator reassigns them. Its own dynamic settings are forgotten, too.
    """
    admission = image.admissions.get(broker_id)
    if admission is None:
        raise BrokerIdNotRegistered(f"Broker ID {broker_id} is not currently registered")
    held = [
        TopicPartition(topic.name, state.index)
        for topic in image.topics.values()
        for state in topic.partitions
        if broker_id in state.isr or broker_id in state.eligible_leader_replicas
    ]
    steps = list(plan_elections(image, held, leave_isr(brokers_of(image), broker_id, keeps_records=False)).steps)
    steps += ((without_broker(each, broker_id),) for each in image.deletions.values() if broker_id in each.brokers)
    if str(broker_id) in image.broker_configs:
        # Another broker with this id starts without the settings of this one.
        steps.append((Delete(broker_config_path(str(broker_id))),))
    # Last: until then the broker can be unregistered again.
    steps.append((Delete(admission_path(broker_id), admission.version),))
    return Plan(steps=tuple(steps), outcomes=(None,))
