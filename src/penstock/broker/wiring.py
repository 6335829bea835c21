"""One broker: its parts made in the order in which they need each other. No logic of its own.

python -m penstock.broker --listen HOST:PORT --data DIR [--config FILE] [--set KEY=VALUE]... [--insecure-listen]
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from penstock.api.absent import Absent
from penstock.api.api_versions import ApiVersions
from penstock.api.cluster import Cluster
from penstock.api.configs import Configs
from penstock.api.consumer_groups import ConsumerGroups
from penstock.api.coordinator import Coordinators
from penstock.api.dispatch import Dispatcher
from penstock.api.fetch import Fetch
from penstock.api.group_offsets import GroupOffsets
from penstock.api.groups import Groups
from penstock.api.log_dirs import LogDirs
from penstock.api.offsets import Offsets
from penstock.api.produce import Produce
from penstock.api.producer_ids import ProducerIdentities
from penstock.api.quotas import ClientQuotas as QuotaApis
from penstock.api.registry import Api, Registry
from penstock.api.topics import Topics
from penstock.api.topics_describe import TopicsDescribe
from penstock.api.topics_records import TopicsRecords
from penstock.api.topics_replicas import TopicsReplicas
from penstock.api.transactions import Transactions
from penstock.api.txn_admin import TxnAdmin
from penstock.api.txn_vouching import TxnVouching
from penstock.broker.readings import Readings
from penstock.cluster.catalog import Catalog
from penstock.cluster.controller import Controller, found, register, take_office
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.internal_topics import InternalTopics
from penstock.cluster.live_config import LiveConfig
from penstock.cluster.producer_ids import ProducerIds
from penstock.config.broker import BrokerConfig
from penstock.core.controller.image import ImageDelta
from penstock.core.controller.records import BrokerEndpoint, BrokerState
from penstock.core.fetch_session import FetchSessions
from penstock.core.quota import ClientQuotas
from penstock.model.clock import Chance, Clock
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.net.connection import ConnectionLimits
from penstock.net.listener import Listener, ListenerLimits
from penstock.observe.counters import RequestCounters, StorageCounters, ThrottleCounters, TopicTraffic
from penstock.observe.groups import GroupSource
from penstock.observe.http import ObserveServer, Readiness
from penstock.observe.log import Logger
from penstock.observe.loop_lag import LoopLag
from penstock.observe.metrics import Collector
from penstock.observe.partitions import ClusterSource
from penstock.runtime.coordinators import GroupCoordinators
from penstock.runtime.fetching import Fetches
from penstock.runtime.group_commit import GroupCommit
from penstock.runtime.group_lag import GroupLag
from penstock.runtime.hosts import Hosts
from penstock.runtime.maintenance import Maintenance
from penstock.runtime.moving import Moving
from penstock.runtime.timers import Timers
from penstock.runtime.txn_coordinators import TxnCoordinators
from penstock.runtime.txn_markers import MarkerLog
from penstock.runtime.wakes import Wakes
from penstock.storage.directories import LogDirectory, StartRefused
from penstock.storage.disk import RealDisk
from penstock.storage.store import LogStore
from penstock.wire.api.table import TABLE

BACKGROUND_THREADS_MIN = 4
FOREVER_S = 1e9


class Broker:
    """All parts of one broker. `serve` makes them, runs until told to stop, and closes the logs clean."""

    def __init__(self, config: BrokerConfig, *, clock: Clock, chance: Chance, log: Logger) -> None:
        self._config = config
        self._clock = clock
        self._chance = chance
        self._log = log
        self._live = LiveConfig(config)
        self._catalog = Catalog()
        self._threads = ThreadPoolExecutor(max(config.background_threads, BACKGROUND_THREADS_MIN), "background")
        self._quotas = ClientQuotas(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._throttles = ThrottleCounters()
        self._traffic = TopicTraffic()
        self._lag = LoopLag()
        self._requests = RequestCounters(
            {key: entry.name for key, entry in TABLE.items()},
            {code: error.name for code, error in ERRORS_BY_CODE.items()},
        )
        self._logs = LogStore(
            config.data_directories,
            disk=RealDisk(),
            clock=clock,
            chance=chance,
            log=log.bind(part="storage"),
            on_offline=self._went_offline,
            files_open_max=config.log_files_open_max,
        )
        self._hosts: Hosts | None = None

    def _went_offline(self, directory: LogDirectory) -> None:
        if self._hosts is not None:
            self._hosts.went_offline(directory)

    async def serve(self, stop: asyncio.Event) -> None:
        """Bind, load, serve; return when `stop` is set and everything is closed."""
        listeners = self._bind()
        home = Path(self._config.data_directories[0])
        home.mkdir(parents=True, exist_ok=True)
        metadata = await EmbeddedStore.open(home)
        try:
            await self._join(metadata, listeners)
            await self._run(metadata, listeners, stop)
        finally:
            self._catalog.close()
            await metadata.close()
            self._threads.shutdown()

    # Starting

    def _bind(self) -> list[Listener]:
        config = self._config
        idle_ms = config.connections_max_idle_ms
        listeners = [
            Listener(
                name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                serve=lambda connection, frame: self._dispatcher(connection, frame),
                limits=self._listener_limits,
                connection_limits=ConnectionLimits(
                    frame_bytes_max=config.socket_request_max_bytes,
                    idle_s=FOREVER_S if idle_ms < 0 else idle_ms / 1000,
                    frame_s=config.connections_frame_timeout_ms / 1000,
                    first_request_s=config.connections_frame_timeout_ms / 1000,
                ),
                monotonic=self._clock.monotonic,
                on_event=lambda event, fields: self._log.debug(event, **fields),
            )
            for endpoint in config.endpoints
        ]
        for listener in listeners:
            try:
                listener.bind()
            except OSError as error:
                raise StartRefused(
                    f"cannot listen on {listener.host}:{listener.port}: {error.strerror}. Another program may have the "
                    "port: stop it, or choose another with --listen HOST:PORT"
                ) from error
        return listeners

    def _listener_limits(self) -> ListenerLimits:
        """As the settings are now: some of them change while the broker runs."""
        config = self._live.current
        return ListenerLimits(
            connections_max=config.max_connections,
            connections_per_address_max=config.max_connections_per_ip,
            connections_of_address_max=config.connections_of_address_max,
            connections_per_second_max=config.max_connection_creation_rate,
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )

    async def _join(self, metadata: EmbeddedStore, listeners: list[Listener]) -> None:
        """Make or find the cluster, take in its metadata, and open the logs."""
        config = self._config
        await found(metadata, lambda: config.cluster_id or readable_id(self._chance))
        await self._catalog.open(metadata)
        self._live.follow(self._catalog)
        cluster_id = self._catalog.image.cluster_id
        self._logs.load(
            config.topic_defaults,
            broker_id=config.broker_id,
            cluster_id=cluster_id,
            recovery_threads=config.num_recovery_threads_per_data_dir,
        )
        await register(metadata, self._described(listeners))
        await take_office(metadata, config.broker_id)
        self._controller = Controller(
            store=metadata, catalog=self._catalog, chance=self._chance, config=lambda: self._live.current
        )
        if not self._logs.stopped_clean:
            await self._controller.begin_epochs(config.broker_id)

    def _described(self, listeners: list[Listener]) -> BrokerState:
        advertised = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in self._config.advertised_endpoints}
        endpoints = tuple(
            BrokerEndpoint(listener=listener.name, host=host, port=port)
            for listener in listeners
            for host, port in [advertised.get(listener.name, (listener.host, listener.port))]
        )
        return BrokerState(broker_id=self._config.broker_id, endpoints=endpoints, rack=self._config.broker_rack)

    # Running

    async def _run(self, metadata: EmbeddedStore, listeners: list[Listener], stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        config = self._live.current
        timers = Timers(loop)
        counters = StorageCounters()
        flushes = GroupCommit(self._threads, loop.call_soon_threadsafe, clock=self._clock, counters=counters)
        hosts = Hosts(
            broker_id=config.broker_id,
            config=config,
            store=self._logs,
            clock=self._clock,
            wakes=Wakes(loop.call_soon),
            flushes=flushes,
            threads=self._threads,
            log=self._log.bind(part="runtime"),
        )
        self._hosts = hosts
        maintenance = Maintenance(
            hosts=hosts,
            store=self._logs,
            config=lambda: self._live.current,
            clock=self._clock,
            threads=self._threads,
            flushes=flushes,
            log=self._log.bind(part="maintenance"),
            quotas=self._quotas,
            counters=counters,
        )
        moving = Moving(
            hosts=hosts, store=self._logs, chance=self._chance, threads=self._threads, log=self._log.bind(part="moving")
        )
        hosts.start(self._catalog.image.topics.values())
        self._catalog.listen(hosts.apply)
        groups = GroupCoordinators(
            hosts=hosts,
            logs=self._logs,
            image=self._catalog.image,
            config=lambda: self._live.current,
            clock=self._clock,
            chance=self._chance,
            timers=timers,
            threads=self._threads,
            log=self._log.bind(part="groups"),
        )
        producer_ids = ProducerIds(self._controller)
        markers = MarkerLog(hosts=hosts, groups=groups, clock=self._clock)
        transactions = TxnCoordinators(
            hosts=hosts,
            logs=self._logs,
            image=self._catalog.image,
            config=lambda: self._live.current,
            clock=self._clock,
            timers=timers,
            threads=self._threads,
            log=self._log.bind(part="transactions"),
            markers=markers,
            take_producer_id=producer_ids.next_at_hand,
        )
        groups.start()
        transactions.start()
        self._catalog.listen(groups.follow)
        self._catalog.listen(transactions.follow)
        self._catalog.listen(self._follow_traffic)
        self._catalog.listen(self._follow_quotas)
        self._follow_quotas(self._catalog.everything())
        self._live.listen(lambda _, after: hosts.reconfigure_all(after))
        sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, self._chance.below)
        fetches = Fetches(hosts=hosts, sessions=sessions, timers=timers)
        api_versions = ApiVersions(lambda: registry.advertised())
        vouching = TxnVouching(
            coordinators=transactions, enabled=lambda: self._live.current.transaction_partition_verification_enable
        )
        internal = InternalTopics(controller=self._controller, config=lambda: self._live.current)
        transactional: tuple[Any, ...] = (
            Produce(hosts=hosts, timers=timers, quotas=self._quotas, traffic=self._traffic, vouching=vouching),
            Transactions(
                coordinators=transactions,
                groups=groups,
                vouching=vouching,
                image=self._catalog.image,
                internal=internal,
                producer_ids=producer_ids,
            ),
            TxnAdmin(coordinators=transactions, markers=markers),
            ProducerIdentities(producer_ids=producer_ids, coordinators=transactions),
            Coordinators(
                controller=self._controller,
                config=self._live,
                groups=groups,
                transactions=transactions,
                internal=internal,
            ),
            api_versions,
        )
        registry = Registry(
            (
                *self._apis(loop, hosts, fetches, moving, groups),
                *(api for family in transactional for api in family.apis()),
            ),
            self._requests,
        )
        self._dispatcher = Dispatcher(
            registry=registry,
            api_versions=api_versions,
            clock=self._clock,
            on_bug=lambda name, error: self._log.error("handler_failed", api=name, exc_info=error),
            quotas=self._quotas,
            throttles=self._throttles,
        )
        readings = Readings(
            image=self._catalog.image, hosts=hosts, logs=self._logs, listeners=listeners, fetches=fetches
        )
        cluster = ClusterSource(brokers=readings.brokers, partitions=readings.partitions)
        lag = GroupSource(GroupLag(coordinators=groups, hosts=hosts, logs=self._logs).view)
        observed = ObserveServer(
            Collector((readings, cluster, lag, self._requests, self._traffic, self._throttles, self._lag, counters)),
            lambda: Readiness(ready=True),
            self._log.bind(part="observe"),
        )
        try:
            await self._observe(observed)
            background = (maintenance.run(), moving.run(), groups.run(), transactions.run(), self._lag.run())
            await self._serve_until(stop, listeners, background)
        finally:
            await observed.stop()
            transactions.close()
            groups.close()
            timers.close()
            hosts.close()
            self._logs.close(clean=True)

    async def _observe(self, server: ObserveServer) -> None:
        if self._config.metrics_listener:
            host, _, port = self._config.metrics_listener.rpartition(":")
            await server.start(host, int(port))

    def _follow_traffic(self, delta: ImageDelta) -> None:
        for change in delta.topics:
            if change.after is None and change.before is not None:
                self._traffic.forget(change.before.name)

    def _follow_quotas(self, delta: ImageDelta) -> None:
        for entity, limits in delta.quotas:
            self._quotas.follow(entity, limits)

    def _apis(
        self,
        loop: asyncio.AbstractEventLoop,
        hosts: Hosts,
        fetches: Fetches,
        moving: Moving,
        groups: GroupCoordinators,
    ) -> tuple[Api, ...]:
        controller, live = self._controller, self._live
        families: tuple[Any, ...] = (
            Fetch(
                fetches=fetches,
                threads=self._threads,
                loop=loop,
                bytes_max=lambda: live.current.fetch_max_bytes,
                quotas=self._quotas,
                traffic=self._traffic,
            ),
            Offsets(hosts=hosts),
            Cluster(controller=controller, config=live),
            Topics(controller=controller, config=live),
            TopicsDescribe(controller=controller, config=live),
            TopicsRecords(hosts=hosts),
            TopicsReplicas(controller=controller),
            Configs(controller=controller, config=live),
            Groups(coordinators=groups),
            GroupOffsets(coordinators=groups, image=self._catalog.image),
            ConsumerGroups(coordinators=groups, config=live),
            QuotaApis(controller=controller),
            LogDirs(moving=moving, store=self._logs),
            Absent(controller=controller),
        )
        return tuple(api for family in families for api in family.apis())

    async def _serve_until(
        self, stop: asyncio.Event, listeners: list[Listener], background: Iterable[Coroutine[Any, Any, None]]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(listener.run(lambda: None)) for listener in listeners]
            running += [tasks.create_task(work) for work in background]
            self._log.info(
                "ready", listeners=[f"{listener.name}://{listener.host}:{listener.port}" for listener in listeners]
            )
            await stop.wait()
            self._log.info("stopping")
            for task in running:
                task.cancel()


def readable_id(chance: Chance) -> str:
    """Sixteen random bytes as Kafka writes ids."""
    return base64.urlsafe_b64encode(chance.uuid_bytes()).decode().rstrip("=")
