"""The parts of a broker: those that exist before it serves (`Ground`), and those that serve (`Parts`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any

import penstock
from penstock.config.broker import BrokerConfig
from penstock.controller.controller import Controller
from penstock.controller.deletions import Deletions
from penstock.controller.internal_topics import InternalTopics, ShareStateTopic
from penstock.controller.producer_ids import ProducerIds
from penstock.groups.consumed_records import ConsumedRecords
from penstock.groups.image_topics import ImageTopics
from penstock.groups.service import GroupCoordinatorService
from penstock.groups.share.latest_offsets import LatestOffsets
from penstock.groups.share.offsets import ShareOffsets
from penstock.maintenance.moves import Moving
from penstock.maintenance.schedule import Maintenance
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import ImageDelta
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.store import MetadataStore
from penstock.model.clock import Clock, Randomness, monotonic_ms
from penstock.model.cluster_versions import SHARE_GROUPS
from penstock.model.ids import BrokerId, TopicId, TopicPartition
from penstock.model.threads import Threads
from penstock.model.timers import Timers
from penstock.model.turns import Turns
from penstock.net.transport import Network
from penstock.observe.counters import ScheduleCounters, StorageCounters, TopicTraffic
from penstock.observe.log import Levels, Logger
from penstock.partition.cluster_port import ClusterPort
from penstock.partition.fetch import Fetches
from penstock.partition.fetch_session import FetchSessions
from penstock.partition.replica_selector import SELECTORS
from penstock.partition.replicas import Replicas
from penstock.partition.watchers import WatcherNotifier
from penstock.quotas.client_quotas import ClientQuotas
from penstock.quotas.replication import ReplicationThrottle
from penstock.replication.addresses import registered_address
from penstock.replication.controller_channel import ControllerChannel
from penstock.replication.controller_client import ControllerClient
from penstock.replication.controller_requests import ControllerRequests
from penstock.replication.fetchers import Fetchers
from penstock.replication.isr import IsrProposals
from penstock.replication.log_ends import LogEnds
from penstock.replication.peers import Peers
from penstock.replication.redirects import Redirects
from penstock.replication.request_versions import sent_versions
from penstock.replication.shutdown import ControlledShutdown
from penstock.replication.tasks import Tasks
from penstock.schedules.service import Schedules, record_check
from penstock.shares.dead_letters import DeadLetters
from penstock.shares.fetch import ShareFetches
from penstock.shares.leader import LedSharePartitions
from penstock.shares.sessions import ShareSessions
from penstock.shares.settings import GroupSettings
from penstock.shares.state.routing import RemoteStates, RoutedPersister
from penstock.shares.state.service import ShareCoordinatorService
from penstock.storage.directories import LogDirectory
from penstock.storage.group_commit import GroupCommit
from penstock.storage.store import LogStore
from penstock.transactions.markers import MarkerLog, RemoteMarkers, RoutedMarkers
from penstock.transactions.service import TxnCoordinatorService
from penstock.transactions.verifier import RemoteVerifier, RoutedVerifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Settings, metadata, logs, time, randomness, threads, network and counters, which all parts use."""

    live: LiveConfig
    catalog: Catalog
    logs: LogStore
    clock: Clock
    randomness: Randomness
    threads: Threads
    network: Network
    log: Logger
    quotas: ClientQuotas
    traffic: TopicTraffic
    storage_counters: StorageCounters
    schedule_counters: ScheduleCounters = field(default_factory=ScheduleCounters)
    levels: Levels = field(default_factory=Levels)
    """Of the loggers."""
    alone: bool = True
    """Whether no other broker can join this one's cluster."""

    def settings(self) -> BrokerConfig:
        """The current settings: some change while the broker runs."""
        return self.live.current


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that serve. `begin` loads what exists and `close` ends it; in between, `background` must run."""

    ground: Ground
    controller: Controller
    loop: asyncio.AbstractEventLoop
    turns: Turns
    timers: Timers
    tasks: Tasks
    peers: Peers
    controller_requests: ControllerRequests
    controller_client: ControllerClient
    replicas: Replicas
    fetchers: Fetchers
    isr: IsrProposals
    shutdown: ControlledShutdown
    maintenance: Maintenance
    moving: Moving
    fetches: Fetches
    groups: GroupCoordinatorService
    consumed: ConsumedRecords
    transactions: TxnCoordinatorService
    share_states: ShareCoordinatorService
    share_persister: RoutedPersister
    share_offsets: ShareOffsets
    share_sessions: ShareSessions
    share_fetches: ShareFetches
    markers: MarkerLog
    redirects: Redirects
    schedules: Schedules
    verifier: RoutedVerifier
    producer_ids: ProducerIds
    internal_topics: InternalTopics
    deletions: Deletions

    def begin(self) -> None:
        """Serve what the catalog has, and follow its changes: partitions first, then the coordinators in them."""
        ground, cluster = self.ground, self.replicas.cluster
        cluster.propose, cluster.may_propose = self.isr.propose, self.isr.may_propose
        cluster.may_be_deposed = lambda: not self.isr.may_propose()
        cluster.on_roles_changed, cluster.on_resigned = self.fetchers.roles_changed, self.isr.resigned
        self.replicas.start(ground.catalog.image.topics.values())
        self.replicas.views.start(ground.catalog.image.views.values())
        # Followers begin to fetch with their roles.
        self.replicas.unfence()
        ground.catalog.listen(self.replicas.apply)
        ground.catalog.listen(self.redirects.follow)
        self.redirects.start(ground.catalog.image.topics.values())
        ground.catalog.listen(self.deletions.follow)
        ground.catalog.listen(self._follow_brokers)
        self.groups.start()
        self.transactions.start()
        self.share_states.start()
        self.schedules.start()
        ground.catalog.listen(self.groups.follow)
        ground.catalog.listen(self.transactions.follow)
        ground.catalog.listen(self.share_states.follow)
        ground.catalog.listen(self.schedules.follow)
        cluster.on_roles_changed = self._follow_roles
        ground.live.listen(lambda _, after: self.replicas.reconfigure_all(after))
        ground.live.listen(lambda _, after: self.groups.reconfigure(after))
        ground.live.listen(lambda _, after: self.share_states.reconfigure(after))

    def _follow_brokers(self, delta: ImageDelta) -> None:
        if delta.brokers:
            self.peers.drop_stale()

    def _follow_roles(self, changed: Collection[TopicPartition]) -> None:
        self.fetchers.roles_changed(changed)
        self.groups.follow_roles(changed)
        self.transactions.follow_roles(changed)
        self.schedules.follow_roles(changed)
        self.share_states.follow_roles(changed)

    def went_offline(self, directory: LogDirectory) -> None:
        """Stop serving partitions of a log directory that failed."""
        self.replicas.went_offline(directory)
        # Not at once: it may be a coordinator's own write that has just failed.
        self.loop.call_soon(self.groups.end_offline)
        self.loop.call_soon(self.transactions.end_offline)
        self.loop.call_soon(self.share_states.end_offline)

    def background(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return (
            self.maintenance.run(),
            self.moving.run(),
            self.groups.run(),
            self.consumed.run(),
            self.transactions.run(),
            self.share_states.run(),
            self.deletions.run(),
            self.tasks.run(),
            self.isr.run(),
            self.isr.run_checks(),
        )

    def close(self) -> None:
        self.fetchers.close()
        self.tasks.close()
        self.peers.close()
        self.transactions.close()
        self.share_states.close()
        self.groups.close()
        self.timers.close()
        self.replicas.close()


def make_parts(ground: Ground, controller: Controller, metadata: MetadataStore) -> Parts:
    """Make every part, in the order of their dependencies; none of them does anything yet."""
    loop = asyncio.get_running_loop()
    turns = Turns(loop.call_soon, ground.clock.monotonic)
    timers = Timers(loop)
    flushes = GroupCommit(
        ground.threads.executor, loop.call_soon_threadsafe, clock=ground.clock, counters=ground.storage_counters
    )
    tasks = Tasks()
    peers = make_peers(ground, timers, tasks)
    requests = ControllerRequests(controller)
    client = make_controller_client(ground, controller, peers, requests)
    replicas = make_replicas(ground, loop, turns, timers, flushes)
    controller.ask_log_ends = make_log_ends(ground, replicas, peers).ask
    internal_topics = InternalTopics(
        controller=client,
        config=ground.settings,
        alone=ground.alone,
        log=ground.log.bind(part="internal_topics"),
    )
    share_states = make_share_states(ground, replicas, timers)
    share_persister = make_share_persister(
        ground, loop, share_states, ShareStateTopic(internal_topics, tasks.spawn), peers, timers
    )
    share_sessions = ShareSessions()
    groups = make_groups(ground, replicas, timers, share_persister)
    redirects = make_redirects(ground, replicas, peers, client, tasks)
    markers = MarkerLog(replicas=replicas, groups=groups, clock=ground.clock, redirects=redirects)
    producer_ids = ProducerIds(client, spawn=tasks.spawn)
    transactions = make_transactions(ground, loop, replicas, timers, markers, peers, producer_ids)
    schedules = make_schedules(ground, turns, replicas, peers, producer_ids, tasks)
    fetchers = make_fetchers(ground, loop, turns, timers, replicas, peers, client)
    return Parts(
        ground=ground,
        controller=controller,
        loop=loop,
        turns=turns,
        timers=timers,
        tasks=tasks,
        peers=peers,
        controller_requests=requests,
        controller_client=client,
        replicas=replicas,
        fetchers=fetchers,
        isr=make_isr(ground, metadata, turns, replicas, client),
        shutdown=make_shutdown(ground, client, fetchers),
        maintenance=make_maintenance(ground, replicas, flushes),
        moving=make_moving(ground, replicas),
        fetches=make_fetches(ground, replicas, timers),
        groups=groups,
        consumed=make_consumed(ground, replicas, groups, peers),
        transactions=transactions,
        share_states=share_states,
        share_persister=share_persister,
        share_offsets=ShareOffsets(
            coordinators=groups,
            shares=share_persister,
            topics=ImageTopics(ground.catalog.image),
            ends=LatestOffsets(
                broker_id=BrokerId(ground.settings().broker_id),
                image=ground.catalog.image,
                replicas=replicas,
                peers=peers,
                timeout_ms=request_timeout_ms(ground),
            ),
        ),
        share_sessions=share_sessions,
        share_fetches=make_share_fetches(ground, loop, replicas, timers, tasks, peers, share_persister, share_sessions),
        markers=markers,
        redirects=redirects,
        schedules=schedules,
        verifier=RoutedVerifier(
            broker_id=BrokerId(ground.settings().broker_id),
            image=ground.catalog.image,
            coordinators=transactions,
            remote=RemoteVerifier(peers=peers, call_soon=loop.call_soon, timeout_ms=request_timeout_ms(ground)),
        ),
        producer_ids=producer_ids,
        internal_topics=internal_topics,
        deletions=make_deletions(ground, loop, metadata),
    )


def make_peers(ground: Ground, timers: Timers, tasks: Tasks) -> Peers:
    config = ground.settings()
    listener = config.inter_broker_listener_name
    log = ground.log.bind(part="replication")
    return Peers(
        network=ground.network,
        timers=timers,
        spawn=tasks.spawn,
        address_of=registered_address(ground.catalog.image, None if listener is None else listener.upper()),
        client_id=f"broker-{config.broker_id}",
        version=penstock.__version__,
        version_max=lambda api_key: sent_versions(ground.catalog.image.level)[api_key],
        on_bug=lambda name, error: log.error("handler_failed", api=name, exc_info=error),
    )


def make_controller_client(
    ground: Ground, controller: Controller, peers: Peers, requests: ControllerRequests
) -> ControllerClient:
    broker_id = BrokerId(ground.settings().broker_id)
    channel = ControllerChannel(
        broker_id=broker_id,
        controller=controller,
        peers=peers,
        clock=ground.clock,
        timeout_ms=request_timeout_ms(ground),
        local=requests.handlers(),
    )
    return ControllerClient(broker_id=broker_id, controller=controller, catalog=ground.catalog, channel=channel)


def request_timeout_ms(ground: Ground) -> Callable[[], int]:
    """How long a request to another broker may take."""
    return lambda: ground.settings().request_timeout_ms


def make_replicas(
    ground: Ground, loop: asyncio.AbstractEventLoop, turns: Turns, timers: Timers, flushes: GroupCommit
) -> Replicas:
    config = ground.settings()
    cluster = ClusterPort()
    cluster.broker_epoch_of = ground.catalog.image.live_epoch
    return Replicas(
        cluster=cluster,
        broker_id=BrokerId(config.broker_id),
        config=config,
        store=ground.logs,
        clock=ground.clock,
        notifier=WatcherNotifier(loop.call_soon, turns),
        flushes=flushes,
        threads=ground.threads,
        timers=timers,
        log=ground.log.bind(part="runtime"),
        is_deleted=ground.catalog.image.deletions.__contains__,
        deleted_names=lambda: {found.name for found in ground.catalog.image.deletions.values()},
        record_check=record_check,
    )


def make_fetchers(
    ground: Ground,
    loop: asyncio.AbstractEventLoop,
    turns: Turns,
    timers: Timers,
    replicas: Replicas,
    peers: Peers,
    client: ControllerClient,
) -> Fetchers:
    return Fetchers(
        broker_id=BrokerId(ground.settings().broker_id),
        broker_epoch=lambda: client.broker_epoch,
        replicas=replicas,
        peers=peers,
        timers=timers,
        turns=turns,
        call_soon=loop.call_soon,
        clock=ground.clock,
        config=ground.settings,
        in_sync=lambda tp: ground.catalog.image.in_sync(tp, BrokerId(ground.settings().broker_id)),
        log=ground.log.bind(part="replication"),
    )


def make_redirects(
    ground: Ground, replicas: Replicas, peers: Peers, client: ControllerClient, tasks: Tasks
) -> Redirects:
    return Redirects(
        broker_id=BrokerId(ground.settings().broker_id),
        replicas=replicas,
        peers=peers,
        client=client,
        clock=ground.clock,
        spawn=tasks.spawn,
        timeout_ms=request_timeout_ms(ground),
        log=ground.log.bind(part="replication"),
        level=lambda: ground.catalog.image.level,
    )


def make_schedules(
    ground: Ground, turns: Turns, replicas: Replicas, peers: Peers, producer_ids: ProducerIds, tasks: Tasks
) -> Schedules:
    return Schedules(
        broker_id=BrokerId(ground.settings().broker_id),
        replicas=replicas,
        image=ground.catalog.image,
        peers=peers,
        take_producer_id=producer_ids.next,
        clock=ground.clock,
        turns=turns,
        threads=ground.threads,
        spawn=tasks.spawn,
        timeout_ms=request_timeout_ms(ground),
        counters=ground.schedule_counters,
        log=ground.log.bind(part="schedules"),
    )


def make_isr(
    ground: Ground, metadata: MetadataStore, turns: Turns, replicas: Replicas, client: ControllerClient
) -> IsrProposals:
    proposals = IsrProposals(
        replicas=replicas,
        client=client,
        clock=ground.clock,
        turns=turns,
        config=ground.settings,
        log=ground.log.bind(part="replication"),
    )
    metadata.on_session(proposals.session_changed)
    return proposals


def make_shutdown(ground: Ground, client: ControllerClient, fetchers: Fetchers) -> ControlledShutdown:
    return ControlledShutdown(
        broker_id=BrokerId(ground.settings().broker_id),
        client=client,
        fetchers=fetchers,
        image=ground.catalog.image,
        clock=ground.clock,
        log=ground.log.bind(part="replication"),
    )


def make_log_ends(ground: Ground, replicas: Replicas, peers: Peers) -> LogEnds:
    return LogEnds(
        broker_id=BrokerId(ground.settings().broker_id),
        replicas=replicas,
        peers=peers,
        timeout_ms=request_timeout_ms(ground),
    )


def make_deletions(ground: Ground, loop: asyncio.AbstractEventLoop, metadata: MetadataStore) -> Deletions:
    async def gone(topic_ids: Collection[TopicId]) -> frozenset[TopicId]:
        found = ground.logs.deleted_for_good(topic_ids)
        if found:
            await loop.run_in_executor(ground.threads.executor, ground.logs.sync_names)
        return found

    return Deletions(
        store=metadata,
        image=ground.catalog.image,
        broker_id=BrokerId(ground.settings().broker_id),
        gone=gone,
        log=ground.log.bind(part="deletions"),
    )


def make_maintenance(ground: Ground, replicas: Replicas, flushes: GroupCommit) -> Maintenance:
    return Maintenance(
        replicas=replicas,
        store=ground.logs,
        config=ground.settings,
        clock=ground.clock,
        threads=ground.threads,
        flushes=flushes,
        log=ground.log.bind(part="maintenance"),
        quotas=ground.quotas,
        counters=ground.storage_counters,
    )


def make_moving(ground: Ground, replicas: Replicas) -> Moving:
    return Moving(
        replicas=replicas,
        store=ground.logs,
        config=ground.settings,
        clock=ground.clock,
        randomness=ground.randomness,
        threads=ground.threads,
        log=ground.log.bind(part="moving"),
    )


def make_fetches(ground: Ground, replicas: Replicas, timers: Timers) -> Fetches:
    slots = ground.settings().max_incremental_fetch_session_cache_slots
    selector = ground.settings().replica_selector_class
    image = ground.catalog.image

    def rack_of(broker_id: BrokerId, listener: str) -> str | None:
        broker = image.brokers.get(broker_id)
        return None if broker is None or broker.endpoint(listener) is None else broker.rack

    return Fetches(
        replicas=replicas,
        sessions=FetchSessions(slots, ground.randomness.below),
        timers=timers,
        now_ms=lambda: monotonic_ms(ground.clock),
        throttle=ReplicationThrottle(
            lambda: ground.settings().leader_replication_throttled_rate, ground.clock.monotonic
        ),
        select=None if selector is None else SELECTORS[selector],
        rack_of=rack_of,
    )


def make_groups(ground: Ground, replicas: Replicas, timers: Timers, shares: RoutedPersister) -> GroupCoordinatorService:
    return GroupCoordinatorService(
        replicas=replicas,
        logs=ground.logs,
        image=ground.catalog.image,
        config=ground.settings,
        clock=ground.clock,
        randomness=ground.randomness,
        timers=timers,
        threads=ground.threads.executor,
        log=ground.log.bind(part="groups"),
        counters=ground.storage_counters,
        shares=shares,
    )


def make_consumed(ground: Ground, replicas: Replicas, groups: GroupCoordinatorService, peers: Peers) -> ConsumedRecords:
    return ConsumedRecords(
        broker_id=BrokerId(ground.settings().broker_id),
        replicas=replicas,
        image=ground.catalog.image,
        coordinators=groups,
        peers=peers,
        interval_ms=lambda: ground.settings().log_consume_check_interval_ms,
        timeout_ms=request_timeout_ms(ground),
        log=ground.log.bind(part="groups"),
    )


def make_transactions(
    ground: Ground,
    loop: asyncio.AbstractEventLoop,
    replicas: Replicas,
    timers: Timers,
    markers: MarkerLog,
    peers: Peers,
    producer_ids: ProducerIds,
) -> TxnCoordinatorService:
    return TxnCoordinatorService(
        replicas=replicas,
        logs=ground.logs,
        image=ground.catalog.image,
        config=ground.settings,
        clock=ground.clock,
        timers=timers,
        threads=ground.threads.executor,
        log=ground.log.bind(part="transactions"),
        counters=ground.storage_counters,
        markers=RoutedMarkers(
            broker_id=BrokerId(ground.settings().broker_id),
            image=ground.catalog.image,
            local=markers,
            remote=RemoteMarkers(peers=peers, call_soon=loop.call_soon, timeout_ms=request_timeout_ms(ground)),
        ),
        take_producer_id=producer_ids.next_at_hand,
    )


def make_share_states(ground: Ground, replicas: Replicas, timers: Timers) -> ShareCoordinatorService:
    return ShareCoordinatorService(
        replicas=replicas,
        logs=ground.logs,
        image=ground.catalog.image,
        config=ground.settings,
        clock=ground.clock,
        timers=timers,
        threads=ground.threads.executor,
        log=ground.log.bind(part="shares"),
        counters=ground.storage_counters,
    )


def make_share_fetches(
    ground: Ground,
    loop: asyncio.AbstractEventLoop,
    replicas: Replicas,
    timers: Timers,
    tasks: Tasks,
    peers: Peers,
    persister: RoutedPersister,
    sessions: ShareSessions,
) -> ShareFetches:
    dead_letters = DeadLetters(
        broker_id=BrokerId(ground.settings().broker_id),
        image=ground.catalog.image,
        replicas=replicas,
        peers=peers,
        timers=timers,
        threads=ground.threads.executor,
        clock=ground.clock,
        spawn=tasks.spawn,
        timeout_ms=request_timeout_ms(ground),
        log=ground.log.bind(part="shares"),
    )
    led = LedSharePartitions(
        dead_letters=dead_letters,
        replicas=replicas,
        persister=persister,
        settings=GroupSettings(ground.catalog.image.group_configs, ground.settings),
        timers=timers,
        threads=ground.threads.executor,
        spawn=tasks.spawn,
        now_ms=lambda: monotonic_ms(ground.clock),
        now_wall_ms=ground.clock.now_ms,
        has_sessions=sessions.of_group.__contains__,
        log=ground.log.bind(part="shares"),
    )
    return ShareFetches(led=led, timers=timers, threads=ground.threads.executor, loop=loop)


def make_share_persister(
    ground: Ground,
    loop: asyncio.AbstractEventLoop,
    coordinators: ShareCoordinatorService,
    topic: ShareStateTopic,
    peers: Peers,
    timers: Timers,
) -> RoutedPersister:
    return RoutedPersister(
        broker_id=BrokerId(ground.settings().broker_id),
        image=ground.catalog.image,
        coordinators=coordinators,
        topic=topic,
        remote=RemoteStates(
            peers=peers,
            call_soon=loop.call_soon,
            timeout_ms=request_timeout_ms(ground),
            serves=lambda: ground.catalog.image.level >= SHARE_GROUPS,
        ),
        timers=timers,
        monotonic=ground.clock.monotonic,
    )
