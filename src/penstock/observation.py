"""What one broker shows of itself: the sources of its metrics, its health pages, and how late its loop is."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence

import penstock
from penstock.core.controller.image import MetadataImage
from penstock.core.fetch_session import FetchSessions
from penstock.model.ids import TopicPartition
from penstock.net.listener import Listener
from penstock.observe import catalog
from penstock.observe.counters import Readings, RequestCounters, StorageCounters, ThrottleCounters, TopicTraffic
from penstock.observe.http import ObserveServer, Readiness
from penstock.observe.log import Logger
from penstock.observe.loop_lag import LoopLag
from penstock.observe.metric import Frozen, Sample
from penstock.observe.metrics import Collector
from penstock.observe.partitions import BrokerView, ClusterSource, PartitionView
from penstock.runtime.fetching import Fetches
from penstock.runtime.hosts import Hosts
from penstock.storage.store import LogStore
from penstock.wire.build import compiled_modules


class Observation:
    """Reads the parts of a running broker when somebody scrapes; costs nothing in between."""

    def __init__(
        self,
        *,
        image: MetadataImage,
        hosts: Hosts,
        logs: LogStore,
        fetches: Fetches,
        listeners: Sequence[Listener],
        requests: RequestCounters,
        throttles: ThrottleCounters,
        traffic: TopicTraffic,
        storage: StorageCounters,
        log: Logger,
        ready: Callable[[], Readiness],
        startup_seconds: float,
    ) -> None:
        self._image = image
        self._hosts = hosts
        self._logs = logs
        self._fetches = fetches
        self._listeners = listeners
        self._startup_seconds = startup_seconds
        self._ready = ready
        self._lag = LoopLag()
        collector = Collector(
            (
                Readings(self._process),
                self._lag,
                requests,
                throttles,
                Readings(self._connections),
                traffic,
                ClusterSource(brokers=self._brokers, partitions=self._partitions),
                Readings(self._directories),
                storage,
            )
        )
        self._server = ObserveServer(collector, ready, log)

    async def run(self, address: tuple[str, int] | None) -> None:
        """Serve the pages at the address, if there is one, until cancelled."""
        if address is not None:
            await self._server.start(*address)
        try:
            await self._lag.run()
        finally:
            await self._server.stop()

    def _process(self) -> Iterator[Sample]:
        compiled = ",".join(name for name, yes in compiled_modules().items() if yes)
        yield catalog.BUILD_INFO.sample(1, penstock.__version__, platform.python_version(), compiled)
        yield catalog.READY.sample(int(self._ready().ready))
        yield catalog.STARTUP_SECONDS.sample(self._startup_seconds)
        yield catalog.FETCHES_WAITING.sample(self._fetches.waiting)
        yield catalog.FETCH_SESSIONS.sample(len(self._sessions))

    @property
    def _sessions(self) -> FetchSessions:
        return self._fetches.sessions

    def _connections(self) -> Iterator[Sample]:
        traffic = [listener.traffic() for listener in self._listeners]
        yield catalog.CONNECTIONS.sample(sum(listener.connections for listener in self._listeners))
        yield catalog.CONNECTIONS_ACCEPTED.sample(sum(listener.accepted for listener in self._listeners))
        yield catalog.CONNECTIONS_REFUSED.sample(sum(listener.refused for listener in self._listeners))
        yield catalog.NETWORK_BYTES_IN.sample(sum(received for received, _ in traffic))
        yield catalog.NETWORK_BYTES_OUT.sample(sum(sent for _, sent in traffic))

    def _brokers(self) -> Iterator[BrokerView]:
        for broker in self._image.brokers.values():
            place = broker.endpoints[0] if broker.endpoints else None
            yield BrokerView(broker.broker_id, f"{place.host}:{place.port}" if place is not None else "")

    def _partitions(self) -> Iterator[PartitionView]:
        """Partitions that nobody has used since the start have no host yet; their logs know as much."""
        watermarks = {host.tp: host.state.high_watermark for host in self._hosts.live()}
        for topic in self._image.topics.values():
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.index)
                log = self._logs.get(tp)
                start, end, size = (0, 0, 0) if log is None else (log.log_start, log.log_end, log.size_bytes)
                yield PartitionView(
                    topic.name,
                    each.index,
                    each.leader,
                    each.replicas,
                    each.isr,
                    start,
                    watermarks.get(tp, end),
                    size,
                )

    def _directories(self) -> Frozen:
        """Asking a file system for its free bytes may block, so that is done where the scrape is formatted."""
        directories = [(each.path, each.offline is not None, each.disk) for each in self._logs.all_directories]
        open_now = len(self._logs.all_directories[0].files)

        def samples() -> Iterator[Sample]:
            offline = sum(1 for _, is_offline, _ in directories if is_offline)
            yield catalog.LOG_DIRECTORIES.sample(len(directories) - offline, "online")
            yield catalog.LOG_DIRECTORIES.sample(offline, "offline")
            yield catalog.FILES_OPEN.sample(open_now)
            for path, is_offline, disk in directories:
                if not is_offline:
                    yield catalog.LOG_DIRECTORY_FREE_BYTES.sample(disk.free_bytes(path)[0], path)

        return Frozen(samples)
