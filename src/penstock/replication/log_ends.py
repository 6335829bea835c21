"""Finds how far the logs of replicas go: the controller compares them before an election that may lose records."""

from collections.abc import Callable, Mapping, Sequence

from penstock.controller.elections import LogEnd
from penstock.model.errors import BrokerError
from penstock.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from penstock.partition.replicas import Replicas
from penstock.replication.controller_channel import awaited
from penstock.replication.peers import Peers, PeerUnavailable, Purpose
from penstock.wire.api import offset_for_leader_epoch as gen

ANY_REPLICA = -2
"""Kafka's id of a debugging consumer, which any replica serves; here its response has the end of that replica's log."""


class LogEnds:
    """Asks the replicas of this broker and of others."""

    def __init__(self, *, broker_id: BrokerId, replicas: Replicas, peers: Peers, timeout_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._peers = peers
        self._timeout_ms = timeout_ms

    async def ask(self, broker_id: BrokerId, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, LogEnd]:
        """The log end of each partition on a broker; those without a response are left out."""
        if broker_id == self._broker_id:
            return self._own(partitions)
        topics: dict[str, gen.OffsetForLeaderTopic] = {}
        for tp in partitions:
            topic = topics.setdefault(tp.topic, gen.OffsetForLeaderTopic(topic=tp.topic))
            topic.partitions.append(gen.OffsetForLeaderPartition(partition=tp.partition))
        request = gen.Request(replica_id=ANY_REPLICA, topics=list(topics.values()))
        try:
            response: gen.Response = await awaited(
                self._peers.send(broker_id, Purpose.CONTROLLER, gen, request, timeout_ms=float(self._timeout_ms()))
            )
        except PeerUnavailable:
            return {}
        return {
            TopicPartition(topic.topic, found.partition): LogEnd(
                epoch=LeaderEpoch(found.leader_epoch), offset=Offset(found.end_offset)
            )
            for topic in response.topics
            for found in topic.partitions
            if not found.error_code
        }

    def _own(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LogEnd]:
        found: dict[TopicPartition, LogEnd] = {}
        for tp in partitions:
            try:
                replica = self._replicas.get(*tp)
            except BrokerError:
                continue
            if not replica.is_offline:
                found[tp] = LogEnd(epoch=replica.log.epochs.latest, offset=replica.offsets.log_end)
        return found
