"""Plans the ISR changes that leaders propose (AlterPartition).

A change is a compare-and-set: it names the partition epoch and leader epoch that it was made from, and the broker epoch
of every member. Only a refusal as ineligible tells a leader that its proposal will never be written. After any other
one it may have been written by an earlier attempt, and the leader waits for the partition's next state.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from penstock.controller.brokers import brokers_of
from penstock.controller.draining import ghost_of
from penstock.controller.elections import raised, with_isr
from penstock.controller.plan import Plan, PlanStep
from penstock.controller.reassignments import completed
from penstock.controller.topics import write_partitions
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Check, Operation
from penstock.metadata.records import PARTITIONS_PER_CHUNK, admission_path
from penstock.model.cluster_versions import GHOST_PARTITIONS
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import NO_OFFSET, BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, TopicId
from penstock.model.topic import NO_PARTITION, LeaderRecoveryState, PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """An ISR that the leader of a partition proposes, and what it was made from."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[tuple[BrokerId, BrokerEpoch], ...]
    """Each member with the epoch of its registration."""
    resumed: bool = False
    """Whether the leader of a partition that was drained knows what its producers wrote in the meantime."""
    emptied: Offset = NO_OFFSET
    """Where the log of a drained partition ends that is empty, and to which nothing is appended any more."""

    @property
    def members(self) -> frozenset[BrokerId]:
        return frozenset(broker for broker, _ in self.isr)


def check_broker_epoch(image: MetadataImage, broker_id: BrokerId, epoch: BrokerEpoch) -> None:
    """Refuse a request of a former life of a broker, and of one that is not admitted."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or not image.is_live(broker_id):
        raise StaleBrokerEpoch(f"broker {broker_id} is not admitted with epoch {epoch}")


def shows_newer(image: MetadataImage, changes: Sequence[IsrChange]) -> bool:
    """Whether a leader knows a newer state of a partition, or a newer admission of a member, than the image has.

    A refusal from such an image would not be final: a controller elected since may have written the change.
    """
    for change in changes:
        topic = image.topics_by_id.get(change.topic_id)
        if topic is None or change.partition >= len(topic.partitions):
            return True
        state = topic.partitions[change.partition]
        if (change.leader_epoch, change.partition_epoch) > (state.leader_epoch, state.partition_epoch):
            return True
        if any(is_unknown(image, member, epoch) for member, epoch in change.isr):
            return True
    return False


def is_unknown(image: MetadataImage, member: BrokerId, epoch: BrokerEpoch) -> bool:
    """Whether the image lacks the admission of a member's epoch: only an admitted broker fetches."""
    admitted = image.admissions.get(member)
    return admitted is None or admitted.epoch < epoch


def plan_isr_changes(
    image: MetadataImage,
    broker_id: BrokerId,
    broker_epoch: BrokerEpoch,
    changes: Sequence[IsrChange],
) -> Plan[PartitionState]:
    """Plan every valid change; the outcome of each is the partition's next state."""
    check_broker_epoch(image, broker_id, broker_epoch)
    brokers = brokers_of(image)
    outcomes: list[PartitionState | BrokerError] = []
    changed: dict[TopicId, dict[int, PartitionState]] = {}
    added: dict[tuple[TopicId, int], set[BrokerId]] = {}
    for change in changes:
        try:
            state = checked(image, broker_id, change)
        except BrokerError as error:
            outcomes.append(error)
            continue
        after = replace(with_isr(state, change.members), leader_recovery_state=LeaderRecoveryState.RECOVERED)
        if change.resumed:
            after = replace(after, resumes_from=NO_PARTITION)
        if change.emptied >= 0:
            after = ghost_of(after, change.emptied)
        # An added replica that joins may complete a reassignment, which may give the partition another leader.
        after = raised(completed(after, brokers) if after.is_reassigning else after, state)
        outcomes.append(after)
        changed.setdefault(change.topic_id, {})[change.partition] = after
        joined = added.setdefault((change.topic_id, change.partition // PARTITIONS_PER_CHUNK), set())
        joined |= change.members - set(state.isr)
    steps: list[PlanStep] = []
    for topic_id, states in changed.items():
        for chunk, write in write_partitions(image, image.topics_by_id[topic_id], states):
            steps.append((*admission_checks(image, added[topic_id, chunk]), write))
    return Plan(steps=tuple(steps), outcomes=tuple(outcomes))


def checked(image: MetadataImage, broker_id: BrokerId, change: IsrChange) -> PartitionState:
    """The state that a change starts from; raises why it is refused."""
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        raise UnknownTopicId()
    if not 0 <= change.partition < len(topic.partitions):
        raise UnknownTopicOrPartition()
    state = topic.partitions[change.partition]
    if change.leader_epoch > state.leader_epoch or change.partition_epoch > state.partition_epoch:
        raise NotController("this controller does not know that state of the partition")
    if change.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch()
    if state.leader != broker_id:
        raise InvalidRequest(f"broker {broker_id} does not lead the partition")
    if change.partition_epoch < state.partition_epoch:
        raise InvalidUpdateVersion()
    if change.emptied >= 0 and (state.drained_into == NO_PARTITION or image.level < GHOST_PARTITIONS):
        raise InvalidRequest("the partition is not drained, or the cluster's version is too low")
    members = change.members
    if broker_id not in members or not members <= set(state.replicas) or len(members) < len(change.isr):
        raise InvalidRequest(f"{sorted(members)} is no ISR of replicas {state.replicas} led by {broker_id}")
    for member, epoch in change.isr:
        if member in image.admissions and is_unknown(image, member, epoch):
            raise NotController(f"this controller does not know that broker {member} is admitted with epoch {epoch}")
        joins_and_stops = member not in state.isr and member in image.admissions and image.admissions[member].stopping
        if not is_eligible(image, member, epoch) or joins_and_stops:
            raise IneligibleReplica(f"broker {member} is not admitted with epoch {epoch}, or it is about to stop")
    return state


def is_eligible(image: MetadataImage, member: BrokerId, epoch: BrokerEpoch) -> bool:
    """Whether a member's epoch is the registered and the admitted one: it fetched with the logs that it has now."""
    broker, admitted = image.brokers.get(member), image.admissions.get(member)
    return broker is not None and admitted is not None and broker.epoch == admitted.epoch == epoch


def admission_checks(image: MetadataImage, members: Collection[BrokerId]) -> list[Operation]:
    """Have the transaction fail where a member that joins is admitted again meanwhile."""
    return [Check(admission_path(each), image.admissions[each].version) for each in sorted(members)]
