"""`--processes N`: several brokers on one host under one parent, which shares its metadata store."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import penstock
from penstock.broker.child_output import OneLog
from penstock.broker.siblings import (
    capped_factors,
    check_all_started,
    check_owners,
    check_ports,
    shared_settings,
    sibling_endpoints,
    sibling_settings,
)
from penstock.broker.stopping import stop_signals
from penstock.broker.supervisor import ChildBroker, Supervisor
from penstock.config.broker import BrokerConfig
from penstock.config.network import Endpoint
from penstock.metadata.embedded import EmbeddedSource, EmbeddedStore, StoreDamaged, StoreInUse
from penstock.metadata.shared_server import SharedStoreServer
from penstock.metadata.store import StoreUnavailable
from penstock.observe.log import LogFormat, Logger, configure, logger
from penstock.observe.log_queue import QueuedStream
from penstock.storage.directories import StartRefused

EXIT_FAILED = 1
PRIVATE_UMASK = 0o077
ID_ALIAS = "node.id"


def run_several(config: BrokerConfig, processes: int, given: Mapping[str, str], file: Path | None) -> int:
    """Run so many brokers until a signal stops them; the exit status.

    `given` are the settings of the command line, which the brokers get with the file and the environment.
    """
    queue = QueuedStream(sys.stderr)
    try:
        text = config.log_format == LogFormat.TEXT or (config.log_format == LogFormat.AUTO and queue.isatty())
        log_format = LogFormat.TEXT if text else LogFormat.JSON
        output = OneLog(queue, [config.broker_id + number for number in range(processes)], text=text)
        configure(level=config.log_level, log_format=log_format, stream=output)
        common = {name: value for name, value in given.items() if name != ID_ALIAS}
        common |= {**shared_settings(config, processes), "log.format": log_format.value}
        return _run(config, processes, common, file, output)
    finally:
        queue.drain()


def _run(config: BrokerConfig, processes: int, common: Mapping[str, str], file: Path | None, output: OneLog) -> int:
    log = logger("supervisor")
    for warning in config.warnings:
        log.warning("setting_without_effect", detail=warning)
    log.info("starting", version=penstock.__version__, processes=processes, data=list(config.data_directories))
    os.umask(PRIVATE_UMASK)
    try:
        check_ports(config, processes)
        check_all_started(config, processes)
        embedded = EmbeddedSource(Path(config.data_directories[0]))
        check_owners(config, processes, has_metadata=bool(config.zookeeper_connect) or embedded.exists())
        for number in range(processes):
            for endpoint in sibling_endpoints(config, number):
                check_free(endpoint)
        status = asyncio.run(_supervise(config, processes, common, file, output, log))
    except (StartRefused, StoreInUse, StoreDamaged, StoreUnavailable, OSError) as reason:
        log.error("start_refused", reason=str(reason))
        return EXIT_FAILED
    log.info("stopped")
    return status


async def _supervise(
    config: BrokerConfig, processes: int, common: Mapping[str, str], file: Path | None, output: OneLog, log: Logger
) -> int:
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if not config.zookeeper_connect:
        common = {**common, **capped_factors(config, processes)}
    async with _store(config, log) as store_arguments:
        brokers = [
            ChildBroker(
                broker_id=config.broker_id + number,
                endpoints=tuple(map(str, sibling_endpoints(config, number))),
                arguments=(*_arguments({**common, **sibling_settings(config, number)}, file), *store_arguments),
            )
            for number in range(processes)
        ]
        supervisor = Supervisor(brokers, environment=os.environ, write_line=output.write_line, log=log)
        return await supervisor.run(stop)


@asynccontextmanager
async def _store(config: BrokerConfig, log: Logger) -> AsyncGenerator[tuple[str, ...]]:
    """Arguments by which brokers find their metadata store: ZooKeeper by their settings, else the one shared here."""
    if config.zookeeper_connect:
        yield ()
        return
    directory = Path(config.data_directories[0])
    directory.mkdir(parents=True, exist_ok=True)
    store = await EmbeddedStore.open(directory)
    try:
        server = await SharedStoreServer.open(store, directory, log.bind(part="metadata"))
        try:
            yield "--metadata-socket", str(server.path.absolute())
        finally:
            await server.close()
    finally:
        await store.close()


def _arguments(settings: Mapping[str, str], file: Path | None) -> list[str]:
    """Flags of `python -m penstock.broker`."""
    found = [] if file is None else ["--config", str(file)]
    for name, value in settings.items():
        found += ["--set", f"{name}={value}"]
    return found


def check_free(endpoint: Endpoint) -> None:
    """Refuse a port that another program has, before the first broker starts."""
    if not endpoint.port:
        return
    family, kind, protocol, _, address = socket.getaddrinfo(
        endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise StartRefused(
                f"cannot listen on {endpoint.host}:{endpoint.port}: {error.strerror}. Another program may have the "
                "port: stop it, or choose other ones with --listen HOST:PORT, which is that of the first broker"
            ) from error
