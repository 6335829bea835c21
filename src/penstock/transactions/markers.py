"""Writes transaction markers to the partitions of a transaction.

A marker in a partition of `__consumer_offsets` also commits or discards the transaction's pending offsets in the group
coordinator of that partition. The leader of a partition may be another broker: brokers send each other markers with
WriteTxnMarkers, those of one turn of the loop for the same broker in one request.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.groups.service import GroupCoordinatorService
from penstock.metadata.image import MetadataImage
from penstock.model.clock import Clock
from penstock.model.deferred import Deferred
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import NotLeaderOrFollower, UnknownServerError, UnknownTopicOrPartition
from penstock.model.ids import BrokerId, CoordinatorEpoch, ProducerEpoch, ProducerId, TopicPartition
from penstock.model.topic import GROUP_OFFSETS_TOPIC, NO_LEADER
from penstock.partition.redirect import Drain
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.partition.results import Appended
from penstock.replication.peers import Peers, Purpose
from penstock.replication.redirects import Redirects
from penstock.transactions.record_formats import by_topic
from penstock.wire import redirect
from penstock.wire.api import write_txn_markers as gen
from penstock.wire.records import build_marker

MARKERS_PER_TURN_MAX = 100
"""Markers written for one request in one turn of the loop."""

MARKERS_PER_REQUEST_MAX = 1_000
"""Markers in one request to another broker."""


class Marker(NamedTuple):
    """How a transaction ended."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    commit: bool
    coordinator_epoch: CoordinatorEpoch
    transaction_version: int


class Markers(Protocol):
    """Writes markers to partitions, wherever their leaders are."""

    def write(self, tp: TopicPartition, marker: Marker) -> Deferred[None] | None:
        """Append a marker; None if it is committed, else a Deferred that completes then.

        Raises a `BrokerError` if the append fails; a Deferred fails with one.
        """


class MarkerLog:
    """Appends markers to replicas on this broker."""

    __slots__ = ("_clock", "_groups", "_redirects", "_replicas")

    def __init__(
        self, *, replicas: Replicas, groups: GroupCoordinatorService, clock: Clock, redirects: Redirects | None = None
    ) -> None:
        """`redirects` is for partitions that are drained into others."""
        self._redirects = redirects
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    def write(self, tp: TopicPartition, marker: Marker) -> Deferred[None] | None:
        # A group coordinator that is loading would miss the marker, so this raises until it is loaded.
        group_context = self._groups.at(tp.partition) if tp.topic == GROUP_OFFSETS_TOPIC else None
        if group_context is not None:
            group_context.check()
            group_context.write_pending()
        replica = self._replicas.get(tp.topic, tp.partition)
        if isinstance(replica.detour, Drain) and replica.detour.is_ghost:
            # It has no log; the target's leader is its own.
            return self._write_target(replica, marker, None)
        now_ms = self._clock.now_ms()
        batch = build_marker(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        appended = replica.append(
            memoryview(batch), now_ms, acks_all=True, internal=True, transaction_version=marker.transaction_version
        )
        assert isinstance(appended, Appended), "a marker is not compressed, so it is appended at once"
        if group_context is not None:
            group_context.decided(marker.producer_id, commit=marker.commit, end=appended.end)
        written = replica.committed(appended.end)
        return written if replica.detour is None else self._write_target(replica, marker, written)

    def _write_target(self, replica: Replica, marker: Marker, written: Deferred[None] | None) -> Deferred[None] | None:
        """Write the marker where the partition is, or was, drained into, too: the transaction may be open there.

        It is in the partition's own log in any case, which proves that this broker leads it.
        """
        assert self._redirects is not None, f"{replica.tp} is drained by a broker that cannot"
        ending = redirect.Marker(
            producer_id=marker.producer_id,
            epoch=marker.epoch,
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        try:
            elsewhere = self._redirects.mark(replica, ending)
        except BrokerError:
            if written is not None:
                written.abandon()
            raise
        if written is None or elsewhere is None:
            return elsewhere if written is None else written
        both = Deferred.all([written, elsewhere])
        assert isinstance(both, Deferred), "both wait"
        return both.then(lambda _: None)


class RemoteMarkers:
    """Sends markers to the leaders of partitions on other brokers."""

    def __init__(
        self, *, peers: Peers, call_soon: Callable[[Callable[[], object]], object], timeout_ms: Callable[[], int]
    ) -> None:
        """`call_soon` calls a function at the end of this turn of the loop."""
        self._peers = peers
        self._call_soon = call_soon
        self._timeout_ms = timeout_ms
        self._unsent: dict[int, MarkerBatch] = {}

    def write(self, broker_id: BrokerId, tp: TopicPartition, marker: Marker) -> Deferred[None]:
        batch = self._unsent.get(broker_id)
        if batch is not None and not batch.has_room(tp, marker):
            self._send(broker_id, batch)
            batch = None
        if batch is None:
            made = batch = self._unsent[broker_id] = MarkerBatch()
            self._call_soon(lambda: self._send(broker_id, made))
        return batch.add(tp, marker)

    def _send(self, broker_id: BrokerId, batch: "MarkerBatch") -> None:
        if self._unsent.get(broker_id) is not batch:
            return
        del self._unsent[broker_id]
        # One time limit for the request: whatever has no result by then is retried.
        sent = self._peers.send(broker_id, Purpose.MARKERS, gen, batch.request(), timeout_ms=float(self._timeout_ms()))
        sent.deliver_to(batch.responded, batch.failed)


class MarkerBatch:
    """The markers of one WriteTxnMarkers request. Its response tells them apart by producer id and partition."""

    def __init__(self) -> None:
        self._markers: dict[int, tuple[Marker, dict[TopicPartition, Deferred[None]]]] = {}
        self._size = 0

    def has_room(self, tp: TopicPartition, marker: Marker) -> bool:
        if self._size >= MARKERS_PER_REQUEST_MAX:
            return False
        found = self._markers.get(marker.producer_id)
        return found is None or (found[0] == marker and tp not in found[1])

    def add(self, tp: TopicPartition, marker: Marker) -> Deferred[None]:
        result: Deferred[None] = Deferred()
        self._markers.setdefault(marker.producer_id, (marker, {}))[1][tp] = result
        self._size += 1
        return result

    def request(self) -> gen.Request:
        return gen.Request(
            markers=[
                gen.WritableTxnMarker(
                    producer_id=marker.producer_id,
                    producer_epoch=marker.epoch,
                    transaction_result=marker.commit,
                    coordinator_epoch=marker.coordinator_epoch,
                    transaction_version=marker.transaction_version,
                    topics=[
                        gen.WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))
                        for topic, indexes in by_topic(results)
                    ],
                )
                for marker, results in self._markers.values()
            ]
        )

    def responded(self, response: gen.Response) -> None:
        codes = {
            (each.producer_id, TopicPartition(topic.name, result.partition_index)): result.error_code
            for each in response.markers
            for topic in each.topics
            for result in topic.partitions
        }
        for producer_id, (_, results) in self._markers.items():
            for tp, result in results.items():
                # A partition that the response leaves out may have no marker.
                code = codes.get((producer_id, tp), UnknownServerError.code)
                if code:
                    result.fail(error_of(code))
                else:
                    result.resolve(None)

    def failed(self, reason: Exception) -> None:
        """Whether the markers were written is unknown; writing them twice is harmless."""
        for _, results in self._markers.values():
            for result in results.values():
                result.fail(NotLeaderOrFollower(str(reason)))


class RoutedMarkers:
    """Writes a marker at the partition's leader, as the metadata has it."""

    def __init__(
        self, *, broker_id: BrokerId, image: MetadataImage, local: MarkerLog, remote: RemoteMarkers | None
    ) -> None:
        """`remote` is None for a broker that is the only one of its cluster."""
        self._broker_id = broker_id
        self._image = image
        self._local = local
        self._remote = remote

    def write(self, tp: TopicPartition, marker: Marker) -> Deferred[None] | None:
        remote = self._remote
        leader = NO_LEADER if remote is None else self._leader(tp)
        if remote is None or leader in (NO_LEADER, self._broker_id):
            return self._local.write(tp, marker)
        return remote.write(leader, tp, marker)

    def _leader(self, tp: TopicPartition) -> BrokerId:
        topic = self._image.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return NO_LEADER
        return topic.shown(tp.partition).leader


def error_of(code: int) -> BrokerError:
    if code == UnknownTopicOrPartition.code:
        # The partition exists as far as this broker knows, so the other one has yet to learn of it.
        return NotLeaderOrFollower()
    return ERRORS_BY_CODE.get(code, UnknownServerError)()
