"""A broker's metadata and partitions without its sockets: requests go through the codec to a handler and back."""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from inspect import iscoroutine
from pathlib import Path
from typing import Any

from penstock.api.absent import Absent
from penstock.api.cluster import Cluster
from penstock.api.configs import Configs
from penstock.api.consumer_groups import ConsumerGroups
from penstock.api.coordinator import Coordinators
from penstock.api.group_offsets import GroupOffsets
from penstock.api.groups import Groups
from penstock.api.log_dirs import LogDirs
from penstock.api.producer_ids import ProducerIdentities
from penstock.api.quotas import ClientQuotas
from penstock.api.registry import Api, RequestContext
from penstock.api.topics import Topics
from penstock.api.topics_describe import TopicsDescribe
from penstock.api.topics_records import TopicsRecords
from penstock.api.topics_replicas import TopicsReplicas
from penstock.api.transactions import Transactions
from penstock.api.txn_admin import TxnAdmin
from penstock.api.txn_vouching import TxnVouching
from penstock.cluster.catalog import Catalog
from penstock.cluster.controller import Controller, found, register, take_office
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.internal_topics import InternalTopics
from penstock.cluster.live_config import LiveConfig
from penstock.cluster.producer_ids import ProducerIds
from penstock.config.broker import BrokerConfig
from penstock.core.controller.records import BrokerEndpoint, BrokerState
from penstock.model.clock import SystemChance, SystemClock
from penstock.net.connection import Connection, ConnectionLimits
from penstock.net.reply import Pending
from penstock.observe.log import logger
from penstock.runtime.coordinators import GroupCoordinators
from penstock.runtime.group_commit import GroupCommit
from penstock.runtime.hosts import Hosts
from penstock.runtime.moving import Moving
from penstock.runtime.timers import Timers
from penstock.runtime.txn_coordinators import TxnCoordinators
from penstock.runtime.txn_markers import MarkerLog
from penstock.runtime.wakes import Wakes
from penstock.storage.disk import RealDisk
from penstock.storage.store import LogStore
from penstock.wire.api.table import TABLE

NOW_MS = 1_700_000_000_000
LISTENER = "PLAINTEXT"


@dataclass
class World:
    """Everything the handlers work with, all of it real."""

    store: EmbeddedStore
    catalog: Catalog
    live: LiveConfig
    controller: Controller
    hosts: Hosts
    logs: LogStore
    connection: Connection
    sockets: tuple[socket.socket, socket.socket]
    threads: ThreadPoolExecutor
    groups: GroupCoordinators
    transactions: TxnCoordinators
    producer_ids: ProducerIds
    timers: Timers
    loading: asyncio.Task[None]
    apis: dict[int, Api] = field(default_factory=dict)

    @classmethod
    async def start(cls, directory: Path, config: BrokerConfig) -> World:
        store = await EmbeddedStore.open(directory)
        await found(store, lambda: "the-cluster")
        catalog = Catalog()
        await catalog.open(store)
        endpoint = BrokerEndpoint(listener=LISTENER, host="broker.example", port=9092)
        await register(store, BrokerState(broker_id=config.broker_id, endpoints=(endpoint,), rack="r1"))
        assert await take_office(store, config.broker_id)
        live = LiveConfig(config)
        live.follow(catalog)
        controller = Controller(store=store, catalog=catalog, chance=SystemChance(), config=lambda: live.current)
        loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor(max_workers=1)
        logs = LogStore(
            [str(directory / "logs")], disk=RealDisk(), clock=SystemClock(), chance=SystemChance(), log=logger("test")
        )
        (directory / "logs").mkdir(exist_ok=True)
        hosts = Hosts(
            broker_id=config.broker_id,
            config=live.current,
            store=logs,
            clock=SystemClock(),
            wakes=Wakes(loop.call_soon),
            flushes=GroupCommit(threads, loop.call_soon_threadsafe),
            threads=threads,
            log=logger("test"),
        )
        logs.load(hosts.settings({})[0], broker_id=config.broker_id, cluster_id="the-cluster")
        hosts.start(catalog.image.topics.values())
        catalog.listen(hosts.apply)
        live.listen(lambda _, new: hosts.reconfigure_all(new))
        timers = Timers(loop)
        groups = GroupCoordinators(
            hosts=hosts,
            logs=logs,
            image=catalog.image,
            config=lambda: live.current,
            clock=SystemClock(),
            chance=SystemChance(),
            timers=timers,
            threads=threads,
            log=logger("test"),
        )
        producer_ids = ProducerIds(controller)
        transactions = TxnCoordinators(
            hosts=hosts,
            logs=logs,
            image=catalog.image,
            config=lambda: live.current,
            clock=SystemClock(),
            timers=timers,
            threads=threads,
            log=logger("test"),
            markers=MarkerLog(hosts=hosts, groups=groups, clock=SystemClock()),
            take_producer_id=producer_ids.next_at_hand,
        )
        groups.start()
        transactions.start()
        catalog.listen(groups.follow)
        catalog.listen(transactions.follow)
        sockets = socket.socketpair()
        world = cls(
            store=store,
            catalog=catalog,
            live=live,
            controller=controller,
            hosts=hosts,
            logs=logs,
            connection=connection_on(sockets[0]),
            sockets=sockets,
            threads=threads,
            groups=groups,
            transactions=transactions,
            producer_ids=producer_ids,
            timers=timers,
            loading=asyncio.create_task(groups.run()),
        )
        world.apis = {api.key: api for family in world.families() for api in family.apis()}
        return world

    def moving(self) -> Moving:
        return Moving(
            hosts=self.hosts, store=self.logs, chance=SystemChance(), threads=self.threads, log=logger("test")
        )

    def internal(self) -> InternalTopics:
        return InternalTopics(controller=self.controller, config=lambda: self.live.current)

    def families(self) -> tuple[Any, ...]:
        known = {"controller": self.controller, "config": self.live}
        return (
            Cluster(**known),
            Topics(**known),
            TopicsDescribe(**known),
            Configs(**known),
            Coordinators(
                **known,
                groups=self.groups,
                transactions=self.transactions,
                internal=self.internal(),
            ),
            Transactions(
                coordinators=self.transactions,
                groups=self.groups,
                vouching=TxnVouching(coordinators=self.transactions, enabled=lambda: True),
                image=self.catalog.image,
                internal=self.internal(),
                producer_ids=self.producer_ids,
            ),
            TxnAdmin(
                coordinators=self.transactions,
                markers=MarkerLog(hosts=self.hosts, groups=self.groups, clock=SystemClock()),
            ),
            Groups(coordinators=self.groups),
            GroupOffsets(coordinators=self.groups, image=self.catalog.image),
            ConsumerGroups(coordinators=self.groups, config=self.live),
            ProducerIdentities(producer_ids=self.producer_ids, coordinators=self.transactions),
            ClientQuotas(controller=self.controller),
            TopicsReplicas(controller=self.controller),
            TopicsRecords(hosts=self.hosts),
            LogDirs(moving=self.moving(), store=self.logs),
            Absent(controller=self.controller),
        )

    async def ask(self, key: int, request: Any, version: int | None = None) -> Any:
        """The answer as a client of that version would read it; of the highest version where none is given."""
        api = self.apis[key]
        codec = importlib.import_module(f"penstock.wire.api.{TABLE[key].module}")
        version = api.versions[-1] if version is None else version
        assert version in api.versions
        context = RequestContext(self.connection, key, version, 1, "test", NOW_MS)
        decode, encode = api.decode or codec.decode_request, api.encode or codec.encode_response
        decoded = decode(memoryview(codec.encode_request(request, version)), 0, version)
        answer: Any = api.handle(context, decoded)
        if iscoroutine(answer):
            answer = await answer
        if isinstance(answer, Pending):
            there = asyncio.get_running_loop().create_future()
            answer.deliver_to(there.set_result)
            answer = await there
        body = encode(answer, version)
        assert isinstance(body, bytes)
        return codec.decode_response(memoryview(body), 0, version)

    async def stop(self) -> None:
        self.loading.cancel()
        await asyncio.wait([self.loading])
        self.transactions.close()
        self.groups.close()
        self.timers.close()
        self.hosts.close()
        self.logs.close()
        self.threads.shutdown()
        for end in self.sockets:
            end.close()
        await self.store.close()


def connection_on(end: socket.socket) -> Connection:
    """A client's connection that nothing is read from."""
    return Connection(
        end,
        peer="127.0.0.1:1",
        listener=LISTENER,
        serve=lambda connection, frame: None,
        limits=ConnectionLimits(frame_bytes_max=1 << 20),
        loop=asyncio.get_running_loop(),
        monotonic=SystemClock().monotonic,
        spawn=lambda work: work.close(),
        on_closed=lambda connection, reason: None,
    )


def in_world(
    directory: Path, act: Callable[[World], Coroutine[Any, Any, None]], config: BrokerConfig | None = None
) -> None:
    async def whole() -> None:
        world = await World.start(directory, config or BrokerConfig())
        try:
            await act(world)
        finally:
            await world.stop()

    asyncio.run(whole())
