"""Where the logs of partitions on other brokers start and end, for metrics: a little old, and never waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from penstock.metadata.image import MetadataImage
from penstock.model.ids import BrokerId, TopicPartition
from penstock.replication.peers import Peers, Purpose
from penstock.wire.api import list_offsets as gen

REFRESH_S = 10.0
"""A partition is asked for at most so often."""

FORGET_S = 600.0
"""A partition that no scrape has wanted for so long is forgotten."""

PARTITIONS_PER_REQUEST_MAX = 1_000
EARLIEST, LATEST = -2, -1
CONSUMER = -1

Bounds = tuple[int, int]
"""Log start offset and high watermark."""


class _Known:
    """What is known of one partition."""

    __slots__ = ("asked_s", "end", "start", "wanted_s")

    def __init__(self, now_s: float) -> None:
        self.wanted_s = now_s
        self.asked_s = -REFRESH_S
        self.start: int | None = None
        self.end: int | None = None


class RemoteBounds:
    """The bounds of partitions that this broker has no replica of, as their leaders told them last."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        image: MetadataImage,
        peers: Peers,
        monotonic: Callable[[], float],
        timeout_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._peers = peers
        self._monotonic = monotonic
        self._timeout_ms = timeout_ms
        self._known: dict[TopicPartition, _Known] = {}

    def get(self, tp: TopicPartition) -> Bounds | None:
        """The last known bounds; None until the leader has responded. The next `refresh` asks for them."""
        known = self._known.get(tp)
        if known is None:
            self._known[tp] = _Known(self._monotonic())
            return None
        known.wanted_s = self._monotonic()
        return None if known.start is None or known.end is None else (known.start, known.end)

    def refresh(self) -> None:
        """Ask the leaders for the bounds that `get` was asked for, unless they were asked a moment ago."""
        now_s = self._monotonic()
        for tp in [tp for tp, known in self._known.items() if now_s - known.wanted_s > FORGET_S]:
            del self._known[tp]
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for tp, known in self._known.items():
            leader = self._leader(tp)
            if leader is not None and now_s - known.asked_s >= REFRESH_S:
                known.asked_s = now_s
                by_leader.setdefault(leader, []).append(tp)
        for leader, partitions in by_leader.items():
            for part in parts(partitions):
                self._ask(leader, part, EARLIEST)
                self._ask(leader, part, LATEST)

    def _leader(self, tp: TopicPartition) -> BrokerId | None:
        topic = self._image.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return None
        leader = topic.shown(tp.partition).leader
        return leader if leader != self._broker_id and self._image.is_live(leader) else None

    def _ask(self, leader: BrokerId, partitions: Sequence[TopicPartition], timestamp: int) -> None:
        by_topic: dict[str, list[gen.ListOffsetsPartition]] = {}
        for topic, partition in partitions:
            wanted = gen.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            by_topic.setdefault(topic, []).append(wanted)
        request = gen.Request(
            replica_id=CONSUMER,
            topics=[gen.ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in by_topic.items()],
        )
        sent = self._peers.send(leader, Purpose.QUERIES, gen, request, timeout_ms=float(self._timeout_ms()))
        # A leader that does not respond leaves the bounds as they were; the next scrape asks again.
        sent.deliver_to(partial(self._learn, timestamp), ignored)

    def _learn(self, timestamp: int, response: gen.Response) -> None:
        for topic in response.topics:
            for found in topic.partitions:
                known = self._known.get(TopicPartition(topic.name, found.partition_index))
                if known is None or found.error_code:
                    continue
                if timestamp == EARLIEST:
                    known.start = found.offset
                else:
                    known.end = found.offset


def parts(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for at in range(0, len(partitions), PARTITIONS_PER_REQUEST_MAX):
        yield partitions[at : at + PARTITIONS_PER_REQUEST_MAX]


def ignored(_: Exception) -> None:
    pass
