"""One broker: binds its ports, joins its cluster, serves, and closes. No logic of its own.

Its parts are in `penstock.broker.parts`, and its APIs in `penstock.broker.apis`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from penstock.api.api_versions import ApiVersions
from penstock.api.dispatch import Dispatcher
from penstock.api.registry import Registry
from penstock.broker.apis import every_api
from penstock.broker.descriptors import DescriptorBudget
from penstock.broker.parts import Ground, Parts, make_parts
from penstock.broker.readings import Readings
from penstock.broker.replication_readings import ReplicationReadings
from penstock.broker.share_readings import ShareReadings
from penstock.config.broker import BrokerConfig
from penstock.config.log import TOPIC_KEYS, TopicConfig
from penstock.controller.controller import Controller
from penstock.controller.membership import Membership, bootstrap_cluster, reached
from penstock.groups.lag import GroupLag
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import ImageDelta, MetadataImage
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.records import NOTHING_KEPT, BrokerEndpoint, BrokerState, RecordTooNew, runs
from penstock.metadata.store import MetadataStore, StoreSource
from penstock.model.clock import Clock, Randomness
from penstock.model.cluster_versions import SUPPORTED, VersionRange
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.ids import NO_BROKER_EPOCH, BrokerId, TopicId, TopicPartition
from penstock.model.threads import Threads
from penstock.model.topic import PartitionState, TopicState
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
from penstock.replication.remote_bounds import RemoteBounds
from penstock.replication.request_versions import shown_to_clients
from penstock.replication.shutdown import ControlledShutdown
from penstock.storage.directories import LogDirectory, StartRefused
from penstock.storage.disk import Disk
from penstock.storage.producer_id_floor import ProducerIdFloor
from penstock.storage.registration import RegistrationFile, RegistrationRecord
from penstock.storage.store import LogStore
from penstock.wire.own_apis import ENTRIES

FOREVER_S = 1e9
FENCED_CHECK_S = 0.1
"""How often a broker that stops looks whether it still has a session."""
REGISTRATION_SESSIONS = 3
"""Session timeouts for which a start waits until the registration of another session of its id is gone."""
IN_SYNC_MIN_DEFAULT = TOPIC_KEYS["min.insync.replicas"].default


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
        versions: VersionRange = SUPPORTED,
    ) -> None:
        """`versions` are the cluster versions that it supports; a simulation has brokers of several."""
        self._config = config
        self._disk = disk
        self._threads = threads
        self._network = network
        self._store = store
        self._descriptors = descriptors
        self._versions = versions
        self._listeners: list[Listener] = []
        self._throttles = ThrottleCounters()
        self._lag = LoopLag()
        self._requests = RequestCounters(
            {key: entry.name for key, entry in ENTRIES.items()},
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
            catalog=Catalog(versions),
            logs=logs,
            clock=clock,
            randomness=randomness,
            threads=threads,
            network=network,
            alone=store.exclusive,
            log=log,
            levels=levels or Levels(),
            quotas=ClientQuotas(config.quota_window_num, config.quota_window_size_seconds * 1000),
            traffic=TopicTraffic(),
            storage_counters=StorageCounters(),
        )
        self._parts: Parts | None = None
        self._kept = NOTHING_KEPT
        """Partitions of this broker that have lost nothing, where others may have."""
        self._following: asyncio.Future[None] | None = None
        """Follows this broker's session for as long as it serves."""
        self.on_ready: Callable[[], None] = lambda: None
        """Called when it serves."""

    @property
    def image(self) -> MetadataImage:
        """The metadata as this broker knows it."""
        return self._ground.catalog.image

    @property
    def parts(self) -> Parts | None:
        """The parts that serve, once there are any."""
        return self._parts

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
                following = self._following = asyncio.ensure_future(self._membership.run())
                try:
                    if await self._is_admitted(following, stop):
                        await self._run(metadata, listeners, following, stop)
                finally:
                    following.cancel()
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
        randomness = self._ground.randomness
        await reached(
            lambda: bootstrap_cluster(
                metadata, self._new_cluster_id, lambda: readable_id(randomness), supported=self._versions
            )
        )
        catalog = self._ground.catalog
        catalog.on_unreadable = lambda why: self._ground.log.error("metadata_unreadable", reason=why)
        try:
            await reached(lambda: catalog.open(metadata))
        except RecordTooNew as error:
            raise StartRefused(f"{error}: start this broker with the version that the others have") from error
        self._ground.live.follow(self._ground.catalog)
        record = self._load_logs()
        self._controller = Controller(
            store=metadata,
            catalog=self._ground.catalog,
            randomness=randomness,
            config=self._ground.settings,
            id_floor=ProducerIdFloor(self._disk, config.data_directories[0], self._threads.executor),
            log=self._ground.log.bind(part="controller"),
            in_sync_min=config.min_insync_replicas if config.min_insync_replicas != IN_SYNC_MIN_DEFAULT else None,
            supported=self._versions,
        )
        self._membership = Membership(
            store=metadata,
            catalog=self._ground.catalog,
            controller=self._controller,
            broker=self._described(listeners),
            log=self._ground.log.bind(part="membership"),
            record=record,
            keep=self._keep_record,
            alone=self._ground.alone,
            # An earlier session of this id is over by then, unless another broker keeps it alive.
            registration_wait_s=REGISTRATION_SESSIONS * config.broker_session_timeout_ms / 1000,
        )
        await reached(self._membership.join)

    def _load_logs(self) -> RegistrationRecord:
        """Open the logs, recover those that need it, and find out whether this broker may have lost records."""
        config, image, logs = self._config, self._ground.catalog.image, self._ground.logs
        file = RegistrationFile(self._disk, config.data_directories)
        before, present = file.read(), file.present()
        lost = before.recovered(lost=True)
        logs.load(
            config.topic_defaults,
            broker_id=BrokerId(config.broker_id),
            cluster_id=image.cluster_id,
            recovery_threads=config.num_recovery_threads_per_data_dir,
            # Recovery may remove the signs of what was lost, and be killed before this broker has registered.
            on_unclean=lambda: file.write(lost),
            is_replicated=image.is_replicated,
        )
        doubtful = doubtful_directories(logs, image, self._ground.settings())
        record = before.recovered(lost=bool(doubtful))
        present = {path: whole and path not in doubtful for path, whole in present.items()}
        if not logs.stopped_clean or record.may_have_lost:
            file.write(record, [path for path, whole in present.items() if whole])
        self._kept = kept_partitions(
            logs, image, BrokerId(config.broker_id), present=present, lost=record.may_have_lost
        )
        return record

    async def _keep_record(self, record: RegistrationRecord) -> None:
        file = RegistrationFile(self._disk, self._config.data_directories)
        await asyncio.get_running_loop().run_in_executor(self._threads.executor, file.write, record)

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
        logs = self._ground.logs
        return BrokerState(
            broker_id=BrokerId(self._config.broker_id),
            endpoints=endpoints,
            rack=self._config.broker_rack,
            host=endpoints[0].host if endpoints else "",
            directories=tuple(
                sorted(each.directory_id for each in logs.all_directories if each.directory_id and not each.offline)
            ),
            clean=logs.stopped_clean,
            kept=self._kept,
            versions=self._versions,
        )

    # Running

    async def _is_admitted(self, following: asyncio.Future[None], stop: asyncio.Event) -> bool:
        """Wait until the controller has admitted this broker, which may be another one; False where it stops before."""
        if self._membership.admitted_epoch == NO_BROKER_EPOCH:
            self._ground.log.info("waiting_for_admission", controller=self._ground.catalog.image.controller_id)
        stopped, admitted = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._membership.admitted())
        await asyncio.wait((stopped, admitted, following), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            following.result()
        is_admitted = admitted.done()
        for waiting in (stopped, admitted):
            waiting.cancel()
        await asyncio.gather(stopped, admitted, return_exceptions=True)
        if not is_admitted:
            self._ground.logs.close(clean=True)
        return is_admitted

    async def _run(
        self,
        metadata: MetadataStore,
        listeners: list[Listener],
        following: asyncio.Future[None],
        stop: asyncio.Event,
    ) -> None:
        parts = make_parts(self._ground, self._controller, metadata)
        # Set before it begins: a disk that fails meanwhile takes its partitions offline.
        self._parts = parts
        self._follow_membership(parts)
        parts.begin()
        self._membership.on_fenced = parts.replicas.fence
        self._membership.on_admitted = lambda _: parts.replicas.unfence()
        if self._membership.admitted_epoch == NO_BROKER_EPOCH:
            # The session was lost meanwhile.
            parts.replicas.fence()
        self._ground.catalog.listen(self._follow_traffic)
        self._ground.catalog.listen(self._follow_quotas)
        self._follow_quotas(self._ground.catalog.everything())
        self._dispatcher = self._make_dispatcher(parts)
        observed = self._make_observer(parts, listeners)
        try:
            await self._observe(observed)
            background = (*parts.background(), self._lag.run(), ended(following))
            await self._serve_until(stop, listeners, background, parts.shutdown)
        finally:
            await observed.stop()
            parts.close()
            self._ground.logs.close(clean=True)

    def _follow_membership(self, parts: Parts) -> None:
        """Lead and follow while this broker is admitted, and propose ISRs while its session is known to live."""
        membership = self._membership
        parts.replicas.cluster.may_propose = membership.may_propose
        parts.fetchers.on_disowned = membership.disowned
        membership.on_fenced = parts.replicas.fence
        membership.on_admitted = lambda _: parts.replicas.unfence()
        if membership.admitted_epoch == NO_BROKER_EPOCH:
            # The session was lost in the meantime.
            parts.replicas.fence()

    def _make_dispatcher(self, parts: Parts) -> Dispatcher:
        def advertised(internal: bool) -> list[tuple[int, int, int]]:
            rows = registry.advertised(internal=internal)
            return rows if internal else shown_to_clients(rows, self.image.level)

        api_versions = ApiVersions(advertised, finalized=lambda: self.image.features, versions=self._versions)
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
            ShareReadings(fetches=parts.share_fetches, sessions=parts.share_sessions),
            ClusterSource(
                brokers=readings.brokers,
                topics=readings.topics,
                partitions=readings.partitions,
                per_partition=self._shows_partitions,
            ),
            GroupSource(
                GroupLag(
                    coordinators=parts.groups,
                    replicas=parts.replicas,
                    logs=self._ground.logs,
                    remote=None if self._ground.alone else self._remote_bounds(parts),
                ).rows,
                per_partition=self._shows_partitions,
            ),
            ReplicationReadings(
                broker_id=BrokerId(self._config.broker_id),
                image=self._ground.catalog.image,
                fetchers=parts.fetchers,
                isr=parts.isr,
                controller=self._controller,
                per_partition=self._shows_partitions,
            ),
            self._requests,
            self._ground.traffic,
            self._throttles,
            self._lag,
            self._ground.storage_counters,
            self._ground.schedule_counters,
        )
        return ObserveServer(
            Collector(sources),
            readings.waiting_for,
            self._ground.log.bind(part="observe"),
            parts.turns,
            self._threads.executor,
        )

    def _remote_bounds(self, parts: Parts) -> RemoteBounds:
        return RemoteBounds(
            broker_id=BrokerId(self._config.broker_id),
            image=self._ground.catalog.image,
            peers=parts.peers,
            monotonic=self._ground.clock.monotonic,
            timeout_ms=lambda: self._ground.settings().request_timeout_ms,
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
        self,
        stop: asyncio.Event,
        listeners: list[Listener],
        background: Iterable[Coroutine[Any, Any, None]],
        shutdown: ControlledShutdown,
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(listener.run(lambda: None)) for listener in listeners]
            running += [tasks.create_task(work) for work in background]
            self._ground.log.info(
                "ready", listeners=[f"{listener.name}://{listener.host}:{listener.port}" for listener in listeners]
            )
            self.on_ready()
            await stop.wait()
            self._ground.log.info("stopping")
            if self._ground.settings().controlled_shutdown_enable:
                await self._hand_over(tasks.create_task(shutdown.run()))
            for task in running:
                task.cancel()

    async def _hand_over(self, shutdown: asyncio.Task[None]) -> None:
        """Let others lead first, while this broker is admitted: one whose session is lost leads nothing."""
        while not shutdown.done() and self._membership.admitted_epoch != NO_BROKER_EPOCH:
            await asyncio.wait([shutdown], timeout=FENCED_CHECK_S)
        shutdown.cancel()


async def ended(task: asyncio.Future[None]) -> None:
    """Wait for a task that ends only by a bug, without cancelling it."""
    await asyncio.shield(task)


def doubtful_directories(logs: LogStore, image: MetadataImage, config: BrokerConfig) -> frozenset[str]:
    """The log directories that may lack records of replicated partitions which this broker has acknowledged.

    A crash of the process keeps the page cache, and `flush=group` acknowledges what is on the disk. Damage counts
    always. A log may be gone with its directory, which is synced with the log's first flush, so the metadata says
    which partitions there were, and any directory that crashed may have had it.
    """
    found: set[str] = set()
    for topic in image.topics.values():
        held = [
            TopicPartition(topic.name, state.index)
            for state in topic.partitions
            if len(state.replicas) > 1 and config.broker_id in state.replicas
        ]
        if not held:
            continue
        unflushed = bool(logs.crashed) and TopicConfig.resolve(topic.configs, config).flush != "group"
        for tp in held:
            log = logs.get(tp)
            if tp in logs.damaged:
                found |= {each.path for each in logs.all_directories} if log is None else {log.directory.path}
            elif unflushed:
                found |= logs.crashed if log is None else logs.crashed & {log.directory.path}
    return frozenset(found)


KEPT_BYTES_MAX = 256 * 1024
"""Of the partitions in a registration; a broker with more of them says nothing of single ones."""


def kept_partitions(
    logs: LogStore, image: MetadataImage, broker_id: BrokerId, *, present: Mapping[str, bool], lost: bool
) -> Mapping[TopicId, frozenset[int]]:
    """The partitions whose logs are in directories that were `present` in the last life, and have lost nothing.

    Each counts by the log that was found, so that one that is gone, or was in a directory that was replaced, is left
    out. Where nothing may be `lost` and no directory is missing, there is nothing to say.
    """
    admitted = image.admissions.get(broker_id)
    there = {each.directory_id for each in logs.all_directories if each.offline is None}
    if not lost and (admitted is None or set(admitted.directories) <= there):
        return NOTHING_KEPT
    kept = {
        topic.topic_id: indexes
        for topic in image.topics.values()
        if (
            indexes := frozenset(
                state.index
                for state in topic.partitions
                if broker_id in state.replicas and is_kept(logs, topic, state, present)
            )
        )
    }
    size = sum(2 * len(topic_id) + 16 * len(runs(indexes)) for topic_id, indexes in kept.items())
    return kept if size <= KEPT_BYTES_MAX else NOTHING_KEPT


def is_kept(logs: LogStore, topic: TopicState, state: PartitionState, present: Mapping[str, bool]) -> bool:
    """Whether a log is the one of the last life, and whole. The only replica of a partition serves what it has."""
    tp = TopicPartition(topic.name, state.index)
    log = logs.get(tp)
    if log is None or log.topic_id != topic.topic_id or log.directory.path not in present:
        return False
    if log.is_lost or log.offline is not None or log.directory.offline is not None or tp in logs.doubled:
        return False
    return len(state.replicas) == 1 or (present[log.directory.path] and tp not in logs.damaged)


def readable_id(randomness: Randomness) -> str:
    """Sixteen random bytes as Kafka writes ids."""
    return base64.urlsafe_b64encode(randomness.uuid_bytes()).decode().rstrip("=")
