"""The state of every partition, in the names that kafka_exporter made common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from penstock.observe import catalog
from penstock.observe.metric import Frozen, Sample


class PartitionView(NamedTuple):
    """What a scrape needs to know of one partition; a tuple, because a broker may have ten thousand."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start: int
    high_watermark: int
    size_bytes: int


class BrokerView(NamedTuple):
    """One broker of the cluster."""

    id: int
    address: str


class ClusterSource:
    """Turns the brokers and partitions that a broker knows into samples."""

    __slots__ = ("_brokers", "_partitions")

    def __init__(
        self, *, brokers: Callable[[], Iterable[BrokerView]], partitions: Callable[[], Iterable[PartitionView]]
    ) -> None:
        self._brokers = brokers
        self._partitions = partitions

    def samples(self) -> Frozen:
        brokers, partitions = list(self._brokers()), list(self._partitions())
        return Frozen(lambda: _cluster_samples(brokers, partitions))


def _cluster_samples(brokers: list[BrokerView], partitions: list[PartitionView]) -> Iterator[Sample]:
    yield catalog.BROKERS.sample(len(brokers))
    for broker in brokers:
        yield catalog.BROKER_INFO.sample(1, str(broker.id), broker.address)
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
