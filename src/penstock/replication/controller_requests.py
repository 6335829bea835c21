"""Serves the requests that brokers send to the controller, on the controller."""

from penstock.controller.controller import Controller
from penstock.controller.isr import IsrChange
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotController, StaleBrokerEpoch
from penstock.model.ids import (
    NO_BROKER,
    NO_OFFSET,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from penstock.replication.controller_channel import LocalHandler
from penstock.wire.api import allocate_producer_ids, alter_partition, assign_replicas_to_dirs, broker_heartbeat

DIRECTORY_LOST = bytes(15) + b"\1"
"""Kafka's id of a log directory that failed: the records of its replicas are kept, and cannot be used."""
DIRECTORY_UNASSIGNED = bytes(16)
"""Kafka's id where a replica is in no directory: here one whose log is damaged, and is copied from its leader again."""

RESUMED = 2
"""In the place of a leader recovery state: the leader of a partition that was drained reports that it has resumed."""
EMPTIED = 3
"""The same: the leader of a drained partition reports that it is empty. The last of the members is then none: its
epoch is where the log ends."""


def emptied_of(wanted: alter_partition.RequestPartitionData) -> Offset:
    """Where the empty log of a drained partition ends; -1 where that is not what the leader reports."""
    if wanted.leader_recovery_state != EMPTIED:
        return NO_OFFSET
    return next((Offset(each.broker_epoch) for each in wanted.new_isr_with_epochs if each.broker_id < 0), NO_OFFSET)


class ControllerRequests:
    """The controller's side of these requests. Each handler responds with NOT_CONTROLLER after another election."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[int, LocalHandler]:
        """Every handler by the key of its API."""
        return {
            alter_partition.API_KEY: self.alter_partition,
            broker_heartbeat.API_KEY: self.heartbeat,
            allocate_producer_ids.API_KEY: self.allocate_producer_ids,
            assign_replicas_to_dirs.API_KEY: self.assign_replicas,
        }

    async def alter_partition(self, request: alter_partition.Request) -> alter_partition.Response:
        """Write the ISRs that the leaders of partitions propose."""
        changes = [
            IsrChange(
                topic_id=TopicId(topic.topic_id),
                partition=wanted.partition_index,
                leader_epoch=LeaderEpoch(wanted.leader_epoch),
                partition_epoch=PartitionEpoch(wanted.partition_epoch),
                isr=tuple(
                    (BrokerId(member.broker_id), BrokerEpoch(member.broker_epoch))
                    for member in wanted.new_isr_with_epochs
                    if member.broker_id != NO_BROKER
                ),
                resumed=wanted.leader_recovery_state == RESUMED,
                emptied=emptied_of(wanted),
            )
            for topic in request.topics
            for wanted in topic.partitions
        ]
        try:
            outcomes = await self._controller.alter_partitions(
                BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch), changes
            )
        except BrokerError as error:
            return alter_partition.Response(error_code=error.code)
        topics: dict[TopicId, alter_partition.ResponseTopicData] = {}
        for change, outcome in zip(changes, outcomes, strict=True):
            found = alter_partition.ResponsePartitionData(partition_index=change.partition)
            if isinstance(outcome, BrokerError):
                found.error_code = outcome.code
            else:
                found.leader_id = outcome.leader
                found.leader_epoch = outcome.leader_epoch
                found.isr = list(outcome.isr)
                found.leader_recovery_state = outcome.leader_recovery_state
                found.partition_epoch = outcome.partition_epoch
            topic = topics.setdefault(change.topic_id, alter_partition.ResponseTopicData(topic_id=change.topic_id))
            topic.partitions.append(found)
        return alter_partition.Response(topics=list(topics.values()))

    async def heartbeat(self, request: broker_heartbeat.Request) -> broker_heartbeat.Response:
        """Move leaders away from a broker that wants to stop. Sessions of the metadata store tell which ones live."""
        broker_id, epoch = BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)
        may_stop = False
        try:
            self._check_epoch(broker_id, epoch)
            if request.want_shut_down:
                may_stop = await self._controller.shut_down(broker_id, epoch)
        except BrokerError as error:
            return broker_heartbeat.Response(error_code=error.code)
        return broker_heartbeat.Response(is_caught_up=True, is_fenced=False, should_shut_down=may_stop)

    async def allocate_producer_ids(self, request: allocate_producer_ids.Request) -> allocate_producer_ids.Response:
        try:
            self._check_epoch(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch))
            claimed = await self._controller.claim_producer_ids()
        except BrokerError as error:
            return allocate_producer_ids.Response(error_code=error.code)
        return allocate_producer_ids.Response(producer_id_start=claimed.start, producer_id_len=len(claimed))

    async def assign_replicas(self, request: assign_replicas_to_dirs.Request) -> assign_replicas_to_dirs.Response:
        """Take replicas whose log failed out of their ISRs. Brokers report no other directories."""
        known = self._controller.image.topics_by_id
        try:
            for directory in request.directories:
                failed = [
                    TopicPartition(known[TopicId(topic.topic_id)].name, partition.partition_index)
                    for topic in directory.topics
                    if topic.topic_id in known
                    for partition in topic.partitions
                ]
                if failed:
                    await self._controller.replicas_failed(
                        BrokerId(request.broker_id),
                        BrokerEpoch(request.broker_epoch),
                        failed,
                        keep_records=directory.id_ == DIRECTORY_LOST,
                    )
        except BrokerError as error:
            return assign_replicas_to_dirs.Response(error_code=error.code)
        return assign_replicas_to_dirs.Response()

    def _check_epoch(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """Refuse a request of a former life of a broker."""
        if not self._controller.is_active:
            raise NotController()
        registered = self._controller.image.brokers.get(broker_id)
        if registered is None or registered.epoch != broker_epoch:
            raise StaleBrokerEpoch()
