"""One broker: binds its ports, joins its cluster, serves, and closes. No logic of its own.

Its parts are in `penstock.broker.parts`, and its APIs in `penstock.broker.apis`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Iterable
from typing import Any

from penstock.api.api_versions import ApiVersions
from penstock.api.dispatch import Dispatcher
from penstock.api.registry import Registry
from penstock.broker.apis import every_api
from penstock.broker.descriptors import DescriptorBudget
from penstock.broker.parts import Ground, Parts, make_parts
from penstock.broker.readings import Readings
from penstock.config.broker import BrokerConfig
from penstock.controller.controller import Controller
from penstock.controller.membership import Membership, bootstrap_cluster, reached
from penstock.groups.lag import GroupLag
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import ImageDelta
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.records import BrokerEndpoint, BrokerState
from penstock.metadata.store import MetadataStore, StoreSource
from penstock.model.clock import Clock, Randomness
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.generated_errors import NotController, RequestTimedOut
from penstock.model.ids import BrokerId
from penstock.model.threads import Threads
from penstock.net.connection import ConnectionLimits
from penstock.net.frame_memory import FrameMemory
from penstock.net.listener import Listener, ListenerLimits
from penstock.net.transport import Network
from penstock.observe.counters import RequestCounters, StorageCounters, ThrottleCounters, TopicTraffic
from penstock.observe.groups import GroupSource
from penstock.observe.http import ObserveServer
from penstock.observe.log import Levels, Logger
from penstock.observe.loop_lag import LoopLag
from penstock.observe.metrics import Collector
from penstock.observe.partitions import ClusterSource
from penstock.quotas.client_quotas import ClientQuotas
from penstock.storage.directories import LogDirectory, StartRefused
from penstock.storage.disk import Disk
from penstock.storage.producer_id_floor import ProducerIdFloor
from penstock.storage.store import LogStore
from penstock.wire.api.table import TABLE

FOREVER_S = 1e9


class Broker:
    """All parts of one broker. `serve` creates them, runs until it is stopped, and closes the logs cleanly.

    What it asks of a machine (files, threads, connections, time, randomness) and the metadata store are given to it; it
    runs on the event loop that runs `serve`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk,
        threads: Threads,
        network: Network,
        store: StoreSource,
        clock: Clock,
        randomness: Randomness,
        log: Logger,
        descriptors: DescriptorBudget,
        levels: Levels | None = None,
    ) -> None:
        self._config = config
        self._disk = disk
        self._threads = threads
        self._network = network
        self._store = store
        self._descriptors = descriptors
        self._listeners: list[Listener] = []
        self._throttles = ThrottleCounters()
        self._lag = LoopLag()
        self._requests = RequestCounters(
            {key: entry.name for key, entry in TABLE.items()},
            {code: error.name for code, error in ERRORS_BY_CODE.items()},
        )
        logs = LogStore(
            config.data_directories,
            disk=disk,
            threads=threads,
            clock=clock,
            randomness=randomness,
            log=log.bind(part="storage"),
            on_offline=self._went_offline,
            files_open_max=descriptors.log_files_max,
        )
        self._ground = Ground(
            live=LiveConfig(config),
            catalog=Catalog(),
            logs=logs,
            clock=clock,
            randomness=randomness,
            threads=threads,
            log=log,
            levels=levels or Levels(),
            quotas=ClientQuotas(config.quota_window_num, config.quota_window_size_seconds * 1000),
            traffic=TopicTraffic(),
            storage_counters=StorageCounters(),
        )
        self._parts: Parts | None = None

    def _went_offline(self, directory: LogDirectory) -> None:
        if self._parts is not None:
            self._parts.went_offline(directory)

    async def serve(self, stop: asyncio.Event) -> None:
        """Bind, load, serve; return when `stop` is set and everything is closed."""
        try:
            listeners = self._bind()
            self._disk.make_directory(self._config.data_directories[0], parents=True)
            if not self._store.exists():
                # Before anything is stored: a start that is refused leaves no trace.
                self._new_cluster_id()
            metadata = await self._store.open()
            try:
                await self._join(metadata, listeners)
                await self._run(metadata, listeners, stop)
            finally:
                # Nothing is left of it after a stop; a start that failed has files open and directories locked.
                self._ground.logs.close(clean=False)
                self._ground.catalog.close()
                await metadata.close()
        finally:
            for listener in self._listeners:
                listener.close()
            self._threads.shutdown()

    # Starting

    def _bind(self) -> list[Listener]:
        config = self._config
        idle_ms = config.connections_max_idle_ms
        memory = FrameMemory(config.request_memory_bytes)
        listeners = [
            Listener(
                name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                network=self._network,
                serve=lambda connection, frame: self._dispatcher(connection, frame),
                limits=self._listener_limits,
                connections_of_all=lambda: sum(each.connections for each in self._listeners),
                connection_limits=ConnectionLimits(
                    frame_bytes_max=config.socket_request_max_bytes,
                    idle_s=FOREVER_S if idle_ms < 0 else idle_ms / 1000,
                    frame_s=config.connections_frame_timeout_ms / 1000,
                    first_request_s=config.connections_frame_timeout_ms / 1000,
                ),
                memory=memory,
                monotonic=self._ground.clock.monotonic,
                on_event=lambda event, fields: self._ground.log.debug(event, **fields),
                on_warning=lambda event, fields: self._ground.log.warning(event, **fields),
                on_bug=self._on_bug,
            )
            for endpoint in config.endpoints
        ]
        self._listeners = listeners
        for listener in listeners:
            try:
                listener.bind()
            except OSError as error:
                raise StartRefused(
                    f"cannot listen on {listener.host}:{listener.port}: {error.strerror}. Another program may have the "
                    "port: stop it, or choose another with --listen HOST:PORT"
                ) from error
        return listeners

    def _on_bug(self, name: str, error: BaseException) -> None:
        self._ground.log.error("handler_failed", api=name, exc_info=error)

    def _listener_limits(self) -> ListenerLimits:
        """The current limits: some settings change while the broker runs."""
        config = self._ground.settings()
        return ListenerLimits(
            connections_max=min(config.max_connections, self._descriptors.connections_max),
            connections_per_address_max=config.max_connections_per_ip,
            connections_of_address_max=config.connections_of_address_max,
            connections_per_second_max=config.max_connection_creation_rate,
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )

    async def _join(self, metadata: MetadataStore, listeners: list[Listener]) -> None:
        """Bootstrap or find the cluster, load its metadata, open the logs and register."""
        config = self._config
        await reached(lambda: bootstrap_cluster(metadata, self._new_cluster_id))
        await reached(lambda: self._ground.catalog.open(metadata))
        self._ground.live.follow(self._ground.catalog)
        cluster_id = self._ground.catalog.image.cluster_id
        self._ground.logs.load(
            config.topic_defaults,
            broker_id=BrokerId(config.broker_id),
            cluster_id=cluster_id,
            recovery_threads=config.num_recovery_threads_per_data_dir,
        )
        self._controller = Controller(
            store=metadata,
            catalog=self._ground.catalog,
            randomness=self._ground.randomness,
            config=self._ground.settings,
            id_floor=ProducerIdFloor(self._disk, config.data_directories[0], self._threads.executor),
        )
        self._membership = Membership(
            store=metadata,
            catalog=self._ground.catalog,
            controller=self._controller,
            broker=self._described(listeners),
            log=self._ground.log.bind(part="membership"),
        )
        await reached(self._membership.join)
        if not self._ground.logs.stopped_clean:
            await reached(self._begin_epochs)

    async def _begin_epochs(self) -> None:
        """Give what this broker leads new leader epochs, which the controller of the cluster does."""
        while await self._membership.join():
            try:
                await self._controller.begin_epochs(BrokerId(self._config.broker_id))
            except (NotController, RequestTimedOut):
                # Its session was lost, or the outcome is not known: a further epoch does no harm.
                continue
            return
        self._ground.log.warning("leader_epochs_kept", reason="another broker is the controller")

    def _new_cluster_id(self) -> str:
        """The id of a new cluster; `StartRefused` where there are logs of a cluster whose metadata is missing."""
        wanted = self._config.cluster_id
        for path, theirs in self._ground.logs.cluster_ids():
            if theirs != wanted:
                home = self._config.data_directories[0]
                raise StartRefused(
                    f"{path} holds logs of cluster {theirs}, and {self._store}, which names their topics, is missing "
                    f"or empty. Restore it from a copy. Without one, 'penstock log adopt --data {home}' makes "
                    f"topics of the logs; or set cluster.id={theirs} to start with none, which sets the logs aside."
                )
        return wanted or readable_id(self._ground.randomness)

    def _described(self, listeners: list[Listener]) -> BrokerState:
        advertised = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in self._config.advertised_endpoints}
        endpoints = tuple(
            BrokerEndpoint(listener=listener.name, host=host, port=port)
            for listener in listeners
            for host, port in [advertised.get(listener.name, (listener.host, listener.port))]
        )
        return BrokerState(
            broker_id=BrokerId(self._config.broker_id), endpoints=endpoints, rack=self._config.broker_rack
        )

    # Running

    async def _run(self, metadata: MetadataStore, listeners: list[Listener], stop: asyncio.Event) -> None:
        parts = make_parts(self._ground, self._controller, metadata)
        # Set before it begins: a disk that fails meanwhile takes its partitions offline.
        self._parts = parts
        parts.begin()
        self._ground.catalog.listen(self._follow_traffic)
        self._ground.catalog.listen(self._follow_quotas)
        self._follow_quotas(self._ground.catalog.everything())
        self._dispatcher = self._make_dispatcher(parts)
        observed = self._make_observer(parts, listeners)
        try:
            await self._observe(observed)
            await self._serve_until(stop, listeners, (*parts.background(), self._lag.run(), self._membership.run()))
        finally:
            await observed.stop()
            parts.close()
            self._ground.logs.close(clean=True)

    def _make_dispatcher(self, parts: Parts) -> Dispatcher:
        api_versions = ApiVersions(lambda: registry.advertised())
        registry = Registry((*every_api(parts), *api_versions.apis()), self._requests)
        return Dispatcher(
            registry=registry,
            api_versions=api_versions,
            clock=self._ground.clock,
            on_bug=self._on_bug,
            quotas=self._ground.quotas,
            throttles=self._throttles,
            turns=parts.turns,
            threads=self._threads.executor,
        )

    def _make_observer(self, parts: Parts, listeners: list[Listener]) -> ObserveServer:
        readings = Readings(
            image=self._ground.catalog.image,
            replicas=parts.replicas,
            logs=self._ground.logs,
            listeners=listeners,
            fetches=parts.fetches,
        )
        sources = (
            readings,
            ClusterSource(
                brokers=readings.brokers,
                topics=readings.topics,
                partitions=readings.partitions,
                per_partition=self._shows_partitions,
            ),
            GroupSource(
                GroupLag(coordinators=parts.groups, replicas=parts.replicas, logs=self._ground.logs).rows,
                per_partition=self._shows_partitions,
            ),
            self._requests,
            self._ground.traffic,
            self._throttles,
            self._lag,
            self._ground.storage_counters,
        )
        return ObserveServer(
            Collector(sources),
            readings.waiting_for,
            self._ground.log.bind(part="observe"),
            parts.turns,
            self._threads.executor,
        )

    def _shows_partitions(self) -> bool:
        return self._ground.settings().metrics_partitions_enable

    async def _observe(self, server: ObserveServer) -> None:
        address = self._config.metrics_address
        if address is not None:
            await server.start(*address)

    def _follow_traffic(self, delta: ImageDelta) -> None:
        for change in delta.topics:
            if change.after is None and change.before is not None:
                self._ground.traffic.forget(change.before.name)

    def _follow_quotas(self, delta: ImageDelta) -> None:
        for entity, limits in delta.quotas:
            for kind, limit in self._ground.quotas.follow(entity, limits).items():
                self._ground.log.warning("quota_ignored", entity=dict(entity), quota=kind, value=limit)

    async def _serve_until(
        self, stop: asyncio.Event, listeners: list[Listener], background: Iterable[Coroutine[Any, Any, None]]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(listener.run(lambda: None)) for listener in listeners]
            running += [tasks.create_task(work) for work in background]
            self._ground.log.info(
                "ready", listeners=[f"{listener.name}://{listener.host}:{listener.port}" for listener in listeners]
            )
            await stop.wait()
            self._ground.log.info("stopping")
            for task in running:
                task.cancel()


def readable_id(randomness: Randomness) -> str:
    """Sixteen random bytes as Kafka writes ids."""
    return base64.urlsafe_b64encode(randomness.uuid_bytes()).decode().rstrip("=")
