"""The ends of partitions, for the lag of share groups: asked of their leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.ids import BrokerId, Offset, TopicPartition
from penstock.partition.replicas import Replicas
from penstock.replication.peers import Peers, PeerUnavailable, Purpose
from penstock.wire.api import list_offsets as gen

LATEST = -1
CONSUMER = -1

Ends = Mapping[TopicPartition, Offset]
"""High watermarks; partitions whose leader did not respond are left out."""


class LatestOffsets:
    """Asks the leaders of partitions for their high watermarks."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        image: MetadataImage,
        replicas: Replicas,
        peers: Peers,
        timeout_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._replicas = replicas
        self._peers = peers
        self._timeout_ms = timeout_ms

    def of(self, partitions: Iterable[TopicPartition]) -> Eventual[Ends]:
        found: dict[TopicPartition, Offset] = {}
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for tp in partitions:
            topic = self._image.topics.get(tp.topic)
            if topic is None or tp.partition >= len(topic.partitions):
                continue
            leader = topic.partitions[tp.partition].leader
            if leader != self._broker_id:
                by_leader.setdefault(leader, []).append(tp)
                continue
            try:
                # No request may have used the partition yet, since it was created or the broker was started.
                replica = self._replicas.get(tp.topic, tp.partition)
            except BrokerError:
                continue
            if replica.is_leader:
                found[tp] = replica.offsets.high_watermark
        asked = [
            self._ask(leader, wanted, found) for leader, wanted in by_leader.items() if self._image.is_live(leader)
        ]
        return after(Deferred.all(asked), lambda _: found)

    def _ask(
        self, leader: BrokerId, partitions: Iterable[TopicPartition], found: dict[TopicPartition, Offset]
    ) -> Deferred[None]:
        by_topic: dict[str, list[gen.ListOffsetsPartition]] = {}
        for topic, index in partitions:
            wanted = gen.ListOffsetsPartition(partition_index=index, timestamp=LATEST)
            by_topic.setdefault(topic, []).append(wanted)
        request = gen.Request(
            replica_id=CONSUMER,
            topics=[gen.ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in by_topic.items()],
        )
        sent = self._peers.send(leader, Purpose.QUERIES, gen, request, timeout_ms=float(self._timeout_ms()))
        return sent.then(partial(learn, found)).catch(PeerUnavailable, nothing)


def learn(found: dict[TopicPartition, Offset], response: gen.Response) -> None:
    for topic in response.topics:
        for each in topic.partitions:
            if not each.error_code:
                found[TopicPartition(topic.name, each.partition_index)] = Offset(each.offset)


def nothing(_: Exception) -> None:
    """The lag of these partitions is unknown."""
