"""A broker without its sockets: requests go through the codec to a handler and back."""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.unit.eventual import settled

from penstock.api.registry import Api, RequestContext
from penstock.broker.apis import every_api
from penstock.broker.parts import Ground, Parts, make_parts
from penstock.config.broker import BrokerConfig
from penstock.controller.controller import Controller
from penstock.controller.membership import bootstrap_cluster, elect_controller, register
from penstock.metadata.catalog import Catalog
from penstock.metadata.embedded import EmbeddedStore
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.records import BrokerEndpoint, BrokerState
from penstock.model.clock import Clock, SystemClock, SystemRandomness
from penstock.model.threads import ThreadPool
from penstock.net.connection import Connection, ConnectionLimits
from penstock.net.frame_memory import FrameMemory
from penstock.net.sockets import SocketNetwork, SocketTransport
from penstock.net.turns import Turns
from penstock.observe.counters import StorageCounters, TopicTraffic
from penstock.observe.log import logger
from penstock.partition.replicas import Replicas
from penstock.quotas.client_quotas import ClientQuotas
from penstock.storage.disk import RealDisk
from penstock.storage.store import LogStore
from penstock.wire.api.table import TABLE

NOW_MS = 1_700_000_000_000
LISTENER = "PLAINTEXT"


class World:
    """The real metadata, partitions and coordinators that the handlers work with."""

    def __init__(self, store: EmbeddedStore, parts: Parts) -> None:
        self.store = store
        self.parts = parts
        self.sockets = socket.socketpair()
        self.connection = connection_on(self.sockets[0])
        self.loading = asyncio.create_task(parts.groups.run())
        self.apis: dict[int, Api] = {api.key: api for api in every_api(parts)}

    @property
    def catalog(self) -> Catalog:
        return self.parts.ground.catalog

    @property
    def controller(self) -> Controller:
        return self.parts.controller

    @property
    def replicas(self) -> Replicas:
        return self.parts.replicas

    @classmethod
    async def start(cls, directory: Path, config: BrokerConfig, clock: Clock | None = None) -> World:
        store = await EmbeddedStore.open(directory)
        await bootstrap_cluster(store, lambda: "the-cluster")
        ground = ground_on(directory, config, clock or SystemClock())
        await ground.catalog.open(store)
        endpoint = BrokerEndpoint(listener=LISTENER, host="broker.example", port=9092)
        await register(store, BrokerState(broker_id=config.broker_id, endpoints=(endpoint,), rack="r1"))
        elected = await elect_controller(store, config.broker_id)
        assert elected is not None
        ground.live.follow(ground.catalog)
        ground.logs.load(config.topic_defaults, broker_id=config.broker_id, cluster_id="the-cluster")
        controller = Controller(
            store=store,
            catalog=ground.catalog,
            randomness=ground.randomness,
            config=ground.settings,
            epoch_version=elected.epoch_version,
        )
        await controller.reconcile()
        parts = make_parts(ground, controller, store)
        parts.begin()
        return cls(store, parts)

    async def ask(self, key: int, request: Any, version: int | None = None, codec: Any = None) -> Any:
        """The response as a client of that version and codec reads it; by default, of the highest version."""
        api = self.apis[key]
        codec = codec or importlib.import_module(f"penstock.wire.api.{TABLE[key].module}")
        version = api.versions[-1] if version is None else version
        assert version in api.versions
        context = RequestContext(self.connection, key, version, 1, "test", NOW_MS)
        decode, encode = api.decode or codec.decode_request, api.encode or codec.encode_response
        decoded = decode(memoryview(codec.encode_request(request, version)), 0, version)
        body = encode(await settled(api.handle(context, decoded)), version)
        assert isinstance(body, bytes)
        return codec.decode_response(memoryview(body), 0, version)

    async def stop(self) -> None:
        self.loading.cancel()
        await asyncio.wait([self.loading])
        self.parts.close()
        self.parts.ground.logs.close()
        self.parts.ground.threads.shutdown()
        for end in self.sockets:
            end.close()
        await self.store.close()


def ground_on(directory: Path, config: BrokerConfig, clock: Clock) -> Ground:
    randomness, threads, log = SystemRandomness(), ThreadPool(1), logger("test")
    return Ground(
        live=LiveConfig(config),
        catalog=Catalog(),
        logs=LogStore(
            [str(directory / "logs")], disk=RealDisk(), threads=threads, clock=clock, randomness=randomness, log=log
        ),
        clock=clock,
        randomness=randomness,
        threads=threads,
        network=SocketNetwork(),
        log=log,
        quotas=ClientQuotas(config.quota_window_num, config.quota_window_size_seconds * 1000),
        traffic=TopicTraffic(),
        storage_counters=StorageCounters(),
    )


def connection_on(end: socket.socket, kind: type[Connection] = Connection) -> Connection:
    """A client's connection that is never read."""
    return kind(
        SocketTransport(end, asyncio.get_running_loop()),
        peer="127.0.0.1:1",
        listener=LISTENER,
        serve=lambda connection, frame: None,
        limits=ConnectionLimits(frame_bytes_max=1 << 20),
        memory=FrameMemory(16 << 20),
        turns=Turns(asyncio.get_running_loop().call_soon, SystemClock().monotonic),
        loop=asyncio.get_running_loop(),
        monotonic=SystemClock().monotonic,
        spawn=asyncio.get_running_loop().create_task,
        on_closed=lambda connection, reason: None,
        on_bug=lambda name, error: None,
    )


def in_world(
    directory: Path,
    act: Callable[[World], Coroutine[Any, Any, None]],
    config: BrokerConfig | None = None,
    clock: Clock | None = None,
) -> None:
    async def whole() -> None:
        world = await World.start(directory, config or BrokerConfig(), clock)
        try:
            await act(world)
        finally:
            await world.stop()

    asyncio.run(whole())
