"""Metrics of a broker that are read from its parts at each scrape, under the names of `penstock.observe.catalog`."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator

import penstock
from penstock.metadata.image import MetadataImage
from penstock.model.ids import TopicPartition
from penstock.net.listener import Listener
from penstock.observe import catalog
from penstock.observe.metric import Sample
from penstock.observe.partitions import BrokerView, PartitionView, TopicView
from penstock.partition.fetch import Fetches
from penstock.partition.replicas import Replicas
from penstock.storage.store import LogStore
from penstock.wire.build import compiled_modules

CLIENT_SOFTWARE_SHOWN_MAX = 50
"""Clients choose their names, so only the most frequent are shown: a scrape stays small."""

VIEWS_SHOWN_MAX = 1_000


class Readings:
    """Numbers that need no counter, because a part knows them."""

    def __init__(
        self,
        *,
        image: MetadataImage,
        replicas: Replicas,
        logs: LogStore,
        listeners: list[Listener],
        fetches: Fetches,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._logs = logs
        self._listeners = listeners
        self._fetches = fetches

    def brokers(self) -> list[BrokerView]:
        return [
            BrokerView(broker.broker_id, f"{endpoint.host}:{endpoint.port}")
            for broker in self._image.live_brokers()
            for endpoint in broker.endpoints[:1]
        ]

    def topics(self) -> Iterator[TopicView]:
        for topic in list(self._image.topics.values()):
            yield TopicView(topic.name, len(topic.partitions))

    def partitions(self) -> Iterator[PartitionView]:
        """Every partition that this broker knows, including those not used since it started."""
        for topic in list(self._image.topics.values()):
            for state in topic.partitions:
                tp = TopicPartition(topic.name, state.index)
                log = self._logs.get(tp)
                replica = self._replicas.used(tp)
                used = None if replica is None else replica.offsets
                start = used.log_start if used is not None else log.log_start if log is not None else 0
                end = used.high_watermark if used is not None else log.log_end if log is not None else 0
                size = log.size_bytes if log is not None else 0
                yield PartitionView(topic.name, state.index, state.leader, state.replicas, state.isr, start, end, size)

    def waiting_for(self) -> list[str]:
        """Reasons why the broker cannot serve; none while one log directory is online."""
        directories = self._logs.all_directories
        offline = [f"log directory {each.path}: {each.offline}" for each in directories if each.offline is not None]
        return offline if len(offline) == len(directories) else []

    def samples(self) -> Iterator[Sample]:
        compiled = "yes" if all(compiled_modules().values()) else "no"
        yield catalog.BUILD_INFO.sample(1, penstock.__version__, platform.python_version(), compiled)
        yield catalog.READY.sample(0 if self.waiting_for() else 1)
        yield catalog.FETCHES_WAITING.sample(self._fetches.waiting)
        yield catalog.FETCH_SESSIONS.sample(len(self._fetches.sessions))
        yield catalog.FETCH_SESSION_PARTITIONS.sample(self._fetches.sessions.partitions_cached)
        yield catalog.FETCH_SESSION_EVICTIONS.sample(self._fetches.sessions.evictions)
        yield catalog.CONNECTIONS.sample(sum(listener.connections for listener in self._listeners))
        software = Counter(connection.software for each in self._listeners for connection in each.open_connections)
        for labels, count in software.most_common(CLIENT_SOFTWARE_SHOWN_MAX):
            yield catalog.CONNECTIONS_BY_CLIENT.sample(count, *labels)
        yield catalog.CONNECTIONS_ACCEPTED.sample(sum(listener.accepted for listener in self._listeners))
        yield catalog.CONNECTIONS_REFUSED.sample(sum(listener.refused for listener in self._listeners))
        traffic = [listener.traffic() for listener in self._listeners]
        yield catalog.NETWORK_BYTES_IN.sample(sum(received for received, _ in traffic))
        yield catalog.NETWORK_BYTES_OUT.sample(sum(sent for _, sent in traffic))
        yield from self._views()
        yield catalog.FILES_OPEN.sample(len(self._logs.all_directories[0].files))
        repeated: Counter[str] = Counter()
        for replica in self._replicas.live():
            if replica.dedupe is not None:
                repeated[replica.tp.topic] += replica.dedupe.removed
        for topic, count in repeated.items():
            yield catalog.TOPIC_RECORDS_REPEATED.sample(count, topic)
        states = self._logs.directories()
        offline = sum(state.offline is not None for state in states)
        yield catalog.LOG_DIRECTORIES.sample(offline, "offline")
        yield catalog.LOG_DIRECTORIES.sample(len(states) - offline, "online")
        for state in states:
            yield catalog.LOG_DIRECTORY_FREE_BYTES.sample(state.free_bytes, state.path)

    def _views(self) -> Iterator[Sample]:
        """What readers of views cost: of those that were read, the most looked at."""
        read = [view for view in self._replicas.views if view.tally.records]
        for view in sorted(read, key=lambda each: each.tally.records, reverse=True)[:VIEWS_SHOWN_MAX]:
            name, tally = view.name, view.tally
            yield catalog.VIEW_RECORDS.sample(tally.records, name)
            yield catalog.VIEW_RECORDS_PASSED.sample(tally.records_passed, name)
            yield catalog.VIEW_BYTES.sample(tally.bytes, name)
            yield catalog.VIEW_BYTES_PASSED.sample(tally.bytes_passed, name)
            yield catalog.VIEW_RECORDS_FAILED.sample(tally.failed, name)
            yield catalog.VIEW_RECORDS_UNDECODABLE.sample(tally.undecodable, name)
            yield catalog.VIEW_SECONDS.sample(view.throttle.spent_s, name)
            yield catalog.VIEW_THROTTLED.sample(view.throttled, name)
