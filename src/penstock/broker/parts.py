"""The parts of a broker: those that exist before it serves (`Ground`), and those that serve (`Parts`)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.controller.controller import Controller
from penstock.controller.deletions import Deletions
from penstock.controller.internal_topics import InternalTopics
from penstock.controller.producer_ids import ProducerIds
from penstock.groups.service import GroupCoordinatorService
from penstock.maintenance.moves import Moving
from penstock.maintenance.schedule import Maintenance
from penstock.metadata.catalog import Catalog
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.store import MetadataStore
from penstock.model.clock import Clock, Randomness
from penstock.model.ids import BrokerId, TopicId
from penstock.model.threads import Threads
from penstock.model.timers import Timers
from penstock.model.turns import Turns
from penstock.observe.counters import StorageCounters, TopicTraffic
from penstock.observe.log import Levels, Logger
from penstock.partition.fetch import Fetches
from penstock.partition.fetch_session import FetchSessions
from penstock.partition.replicas import Replicas
from penstock.partition.watchers import WatcherNotifier
from penstock.quotas.client_quotas import ClientQuotas
from penstock.storage.directories import LogDirectory
from penstock.storage.group_commit import GroupCommit
from penstock.storage.store import LogStore
from penstock.transactions.markers import MarkerLog, RoutedMarkers
from penstock.transactions.service import TxnCoordinatorService
from penstock.transactions.verifier import RoutedVerifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Settings, metadata, logs, time, randomness, threads and counters, which all parts use."""

    live: LiveConfig
    catalog: Catalog
    logs: LogStore
    clock: Clock
    randomness: Randomness
    threads: Threads
    log: Logger
    quotas: ClientQuotas
    traffic: TopicTraffic
    storage_counters: StorageCounters
    levels: Levels = field(default_factory=Levels)
    """Of the loggers."""

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
    replicas: Replicas
    maintenance: Maintenance
    moving: Moving
    fetches: Fetches
    groups: GroupCoordinatorService
    transactions: TxnCoordinatorService
    markers: MarkerLog
    verifier: RoutedVerifier
    producer_ids: ProducerIds
    internal_topics: InternalTopics
    deletions: Deletions

    def begin(self) -> None:
        """Serve what the catalog has, and follow its changes: partitions first, then the coordinators in them."""
        ground = self.ground
        self.replicas.start(ground.catalog.image.topics.values())
        ground.catalog.listen(self.replicas.apply)
        ground.catalog.listen(self.deletions.follow)
        self.groups.start()
        self.transactions.start()
        ground.catalog.listen(self.groups.follow)
        ground.catalog.listen(self.transactions.follow)
        ground.live.listen(lambda _, after: self.replicas.reconfigure_all(after))
        ground.live.listen(lambda _, after: self.groups.reconfigure(after))

    def went_offline(self, directory: LogDirectory) -> None:
        """Stop serving partitions of a log directory that failed."""
        self.replicas.went_offline(directory)
        # Not at once: it may be a coordinator's own write that has just failed.
        self.loop.call_soon(self.groups.end_offline)
        self.loop.call_soon(self.transactions.end_offline)

    def background(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return (
            self.maintenance.run(),
            self.moving.run(),
            self.groups.run(),
            self.transactions.run(),
            self.deletions.run(),
        )

    def close(self) -> None:
        self.transactions.close()
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
    replicas = make_replicas(ground, loop, turns, flushes)
    groups = make_groups(ground, replicas, timers)
    markers = MarkerLog(replicas=replicas, groups=groups, clock=ground.clock)
    producer_ids = ProducerIds(controller)
    transactions = make_transactions(ground, replicas, timers, markers, producer_ids)
    return Parts(
        ground=ground,
        controller=controller,
        loop=loop,
        turns=turns,
        timers=timers,
        replicas=replicas,
        maintenance=make_maintenance(ground, replicas, flushes),
        moving=make_moving(ground, replicas),
        fetches=make_fetches(ground, replicas, timers),
        groups=groups,
        transactions=transactions,
        markers=markers,
        verifier=RoutedVerifier(
            broker_id=BrokerId(ground.settings().broker_id),
            image=ground.catalog.image,
            coordinators=transactions,
            remote=None,
        ),
        producer_ids=producer_ids,
        internal_topics=InternalTopics(controller=controller, config=ground.settings),
        deletions=make_deletions(ground, loop, metadata),
    )


def make_replicas(ground: Ground, loop: asyncio.AbstractEventLoop, turns: Turns, flushes: GroupCommit) -> Replicas:
    config = ground.settings()
    return Replicas(
        broker_id=BrokerId(config.broker_id),
        config=config,
        store=ground.logs,
        clock=ground.clock,
        notifier=WatcherNotifier(loop.call_soon, turns),
        flushes=flushes,
        threads=ground.threads,
        log=ground.log.bind(part="runtime"),
        is_deleted=ground.catalog.image.deletions.__contains__,
        deleted_names=lambda: {found.name for found in ground.catalog.image.deletions.values()},
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
    return Fetches(replicas=replicas, sessions=FetchSessions(slots, ground.randomness.below), timers=timers)


def make_groups(ground: Ground, replicas: Replicas, timers: Timers) -> GroupCoordinatorService:
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
    )


def make_transactions(
    ground: Ground, replicas: Replicas, timers: Timers, markers: MarkerLog, producer_ids: ProducerIds
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
            broker_id=BrokerId(ground.settings().broker_id), image=ground.catalog.image, local=markers, remote=None
        ),
        take_producer_id=producer_ids.next_at_hand,
    )
