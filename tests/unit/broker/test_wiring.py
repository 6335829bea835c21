"""A broker in this process, on a disk in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.partition.rig import Notes

from penstock.broker.descriptors import divide
from penstock.broker.wiring import Broker
from penstock.config.load import load
from penstock.metadata.embedded import EmbeddedSource
from penstock.metadata.records import BrokerState
from penstock.metadata.store import MetadataStore, StoreSource, StoreUnavailable
from penstock.model.clock import SystemClock, SystemRandomness
from penstock.model.threads import ThreadPool
from penstock.net.sockets import SocketNetwork
from penstock.net.transport import Acceptor
from penstock.storage.directories import StartRefused
from penstock.testing.mem_disk import MemDisk

HOME = "/logs"
PATIENCE_S = 60.0


class NotedNetwork(SocketNetwork):
    """Remembers the ports that were bound."""

    def __init__(self) -> None:
        self.bound: list[Acceptor] = []

    def bind(self, host: str, port: int) -> Acceptor:
        self.bound.append(super().bind(host, port))
        return self.bound[-1]


class Unavailable:
    """A metadata store that cannot be opened."""

    exclusive = True

    def exists(self) -> bool:
        return True

    async def open(self) -> Any:
        raise StartRefused("no store")


def broker(disk: MemDisk, network: NotedNetwork, store: StoreSource, notes: Notes) -> Broker:
    flags = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": HOME, "metrics.listener": ""}
    return Broker(
        load(file=None, env={}, flags=flags),
        disk=disk,
        threads=ThreadPool(2),
        network=network,
        store=store,
        clock=SystemClock(),
        randomness=SystemRandomness(),
        log=notes,
        descriptors=divide(1000, log_files_wanted=100),
    )


async def refused(network: NotedNetwork) -> bool:
    try:
        (await network.connect("127.0.0.1", network.bound[0].port)).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_broker_keeps_its_logs_on_the_disk_it_is_given_and_stops_clean(tmp_path: Path) -> None:
    disk, network, notes = MemDisk(), NotedNetwork(), Notes()

    async def scenario() -> None:
        stop = asyncio.Event()
        serving = asyncio.ensure_future(broker(disk, network, EmbeddedSource(tmp_path), notes).serve(stop))
        async with asyncio.timeout(PATIENCE_S):
            while not notes.named("ready"):
                assert not serving.done(), serving.exception()
                await asyncio.sleep(0)
        assert not await refused(network)
        stop.set()
        await serving
        assert await refused(network)

    asyncio.run(scenario())

    assert ".kafka_cleanshutdown" in disk.list_directory(HOME)
    assert not Path(HOME).exists()


def test_a_start_that_fails_releases_its_ports() -> None:
    network = NotedNetwork()

    async def scenario() -> None:
        with pytest.raises(StartRefused):
            await broker(MemDisk(), network, Unavailable(), Notes()).serve(asyncio.Event())
        with pytest.raises(OSError, match="Bad file descriptor"):
            network.bound[0].listen(1, lambda: None)

    asyncio.run(scenario())


def test_a_start_that_fails_after_the_logs_are_loaded_releases_their_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, network, notes = MemDisk(), NotedNetwork(), Notes()

    async def unavailable(metadata: MetadataStore, broker: BrokerState, *, wait_s: float) -> None:
        raise StoreUnavailable("the metadata store cannot be written")

    async def refused_start() -> None:
        with pytest.raises(StoreUnavailable):
            await broker(disk, network, EmbeddedSource(tmp_path), notes).serve(asyncio.Event())

    async def start_and_stop() -> None:
        stop = asyncio.Event()
        stop.set()
        await broker(disk, network, EmbeddedSource(tmp_path), notes).serve(stop)

    with monkeypatch.context() as patch:
        patch.setattr("penstock.controller.membership.register", unavailable)
        asyncio.run(refused_start())
    asyncio.run(start_and_stop())

    assert len(notes.named("directory_loaded")) == 2
    assert ".kafka_cleanshutdown" in disk.list_directory(HOME)


def test_a_stop_that_is_requested_while_the_broker_starts_releases_its_ports_and_stops_clean(tmp_path: Path) -> None:
    disk, network, notes = MemDisk(), NotedNetwork(), Notes()

    async def scenario() -> None:
        stop = asyncio.Event()
        stop.set()
        await broker(disk, network, EmbeddedSource(tmp_path), notes).serve(stop)
        assert await refused(network)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())

    assert ".kafka_cleanshutdown" in disk.list_directory(HOME)
