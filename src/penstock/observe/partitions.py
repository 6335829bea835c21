"""The metrics of brokers, topics and partitions, with kafka_exporter's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from penstock.observe import catalog
from penstock.observe.metric import Frozen, Sample


class PartitionView(NamedTuple):
    """One partition in a scrape; a tuple, because a broker may have ten thousand."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start: int
    high_watermark: int
    size_bytes: int


class TopicView(NamedTuple):
    """One topic, if its partitions have no samples of their own."""

    name: str
    partitions: int


class BrokerView(NamedTuple):
    """One broker of the cluster."""

    id: int
    address: str


class ClusterSource:
    """The samples of the brokers, topics and partitions in the metadata."""

    __slots__ = ("_brokers", "_partitions", "_per_partition", "_topics")

    def __init__(
        self,
        *,
        brokers: Callable[[], Iterable[BrokerView]],
        topics: Callable[[], Iterable[TopicView]],
        partitions: Callable[[], Iterable[PartitionView]],
        per_partition: Callable[[], bool],
    ) -> None:
        """`per_partition`: each partition has its own samples; otherwise a topic only has its partition count."""
        self._brokers = brokers
        self._topics = topics
        self._partitions = partitions
        self._per_partition = per_partition

    def samples(self) -> Frozen:
        brokers = list(self._brokers())
        if self._per_partition():
            return Frozen(self._partitions(), lambda rows: chain(_broker_samples(brokers), _cluster_samples(rows)))
        return Frozen(self._topics(), lambda rows: chain(_broker_samples(brokers), _topic_samples(rows)))


def _broker_samples(brokers: list[BrokerView]) -> Iterator[Sample]:
    yield catalog.BROKERS.sample(len(brokers))
    for broker in brokers:
        yield catalog.BROKER_INFO.sample(1, str(broker.id), broker.address)


def _topic_samples(topics: list[TopicView]) -> Iterator[Sample]:
    for topic in topics:
        yield catalog.TOPIC_PARTITIONS.sample(topic.partitions, topic.name)


def _cluster_samples(partitions: list[PartitionView]) -> Iterator[Sample]:
    counts: dict[str, int] = {}
    for view in partitions:
        counts[view.topic] = counts.get(view.topic, 0) + 1
        yield from _partition_samples(view)
    for topic, count in counts.items():
        yield catalog.TOPIC_PARTITIONS.sample(count, topic)


def _partition_samples(view: PartitionView) -> tuple[Sample, ...]:
    """All of one partition's samples. Built without `Metric.sample`, whose checks would cost more than the rest."""
    labels = (view.topic, str(view.partition))
    preferred = bool(view.replicas) and view.leader == view.replicas[0]
    return (
        Sample(catalog.PARTITION_END, labels, view.high_watermark),
        Sample(catalog.PARTITION_START, labels, view.log_start),
        Sample(catalog.PARTITION_LEADER, labels, view.leader),
        Sample(catalog.PARTITION_LEADER_PREFERRED, labels, int(preferred)),
        Sample(catalog.PARTITION_REPLICAS, labels, len(view.replicas)),
        Sample(catalog.PARTITION_IN_SYNC, labels, len(view.isr)),
        Sample(catalog.PARTITION_UNDER_REPLICATED, labels, int(len(view.isr) < len(view.replicas))),
        Sample(catalog.PARTITION_BYTES, labels, view.size_bytes),
    )
