"""The broker's process: flags, settings, logs, signals, exit codes. What runs in it is `penstock.broker.wiring`.

python -m penstock.broker --listen HOST:PORT --data DIR [--config FILE] [--set KEY=VALUE]... [--insecure-listen]
                          [--log-level LEVEL] [--log-format FORMAT] [--zookeeper HOST:PORT[,HOST:PORT...][/path]]
                          [--processes N]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.broker.siblings import PROCESSES_MAX
from penstock.broker.stopping import stop_signals
from penstock.broker.stores import store_source
from penstock.config.broker import BrokerConfig
from penstock.config.load import ConfigFault, load
from penstock.config.network import Endpoint, is_loopback
from penstock.metadata.embedded import StoreDamaged, StoreInUse
from penstock.metadata.store import StoreUnavailable
from penstock.model.clock import SystemClock, SystemRandomness
from penstock.model.threads import ThreadPool
from penstock.observe.log import LEVELS, Levels, LogFormat, configure, logger
from penstock.observe.log_queue import QueuedStream
from penstock.storage.directories import StartRefused
from penstock.storage.disk import RealDisk

if TYPE_CHECKING:
    # A process that supervises brokers has none of their code.
    from penstock.broker.supervisor import SupervisorLink
    from penstock.broker.wiring import Broker

BACKGROUND_THREADS_MIN = 4
EXIT_FAILED = 1
EXIT_USAGE = 2
GC_THRESHOLDS = (50_000, 20, 50)
"""Requests make few reference cycles, so rare collections suffice and keep pauses out of the latencies."""


SWITCH_S = 0.0005
"""How long a background thread may hold the interpreter while the event loop waits for it."""


PRIVATE_UMASK = 0o077
"""Records, offsets and passwords are private to the user: files are 0600 and directories 0700."""


class Refused(Exception):
    """The broker does not start; the message says why and what to do."""


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m penstock.broker", description="Run one broker in this process.")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to listen")
    parser.add_argument("--data", metavar="DIR", help="where the data is kept")
    parser.add_argument("--zookeeper", metavar="HOST:PORT,.../PATH", help="where the metadata of a cluster is kept")
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML, or Kafka's server.properties")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting")
    parser.add_argument("--insecure-listen", action="store_true", help="allow an open listener that others can reach")
    parser.add_argument("--log-level", choices=LEVELS, help="from which level on events are logged")
    parser.add_argument("--log-format", choices=[each.value for each in LogFormat], help="how events are logged")
    parser.add_argument("--processes", metavar="N", type=_processes, default=1, help="run N brokers, each a process")
    # What a supervisor gives to its children.
    parser.add_argument("--metadata-socket", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--supervisor-fd", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def _processes(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) not in range(1, PROCESSES_MAX + 1):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to {PROCESSES_MAX}")
    return int(text)


def given_settings(flags: argparse.Namespace) -> dict[str, str]:
    """The settings that flags give."""
    given: dict[str, str] = {}
    if flags.listen is not None:
        given["listeners"] = f"PLAINTEXT://{flags.listen}"
    if flags.data is not None:
        data: str = flags.data
        if not data or "," in data or data != data.strip():
            raise Refused(f"--data {data!r} is not one directory: say --set log.dirs=DIR,DIR for several")
        given["log.dirs"] = data
    if flags.zookeeper is not None:
        given["zookeeper.connect"] = flags.zookeeper
    if flags.insecure_listen:
        given["insecure.listen"] = "true"
    if flags.log_level is not None:
        given["log.level"] = flags.log_level
    if flags.log_format is not None:
        given["log.format"] = flags.log_format
    for item in flags.set:
        name, equals, value = item.partition("=")
        if not equals:
            raise Refused(f"--set {item}: a setting is KEY=VALUE")
        given[name.strip()] = value.strip()
    return given


def settings(flags: argparse.Namespace) -> BrokerConfig:
    """The settings that flags, environment and file give together; `Refused` where a broker cannot run with them."""
    try:
        config = load(file=flags.config, env=os.environ, flags=given_settings(flags))
    except ConfigFault as fault:
        raise Refused(str(fault)) from None
    for endpoint in config.endpoints:
        if not config.insecure_listen and reached_by_others(endpoint):
            raise Refused(
                f"{endpoint} can be reached from other machines, and a listener without authentication lets anyone in. "
                "Listen on a loopback address (--listen 127.0.0.1:9092), or say --insecure-listen if you trust "
                "everybody on that network"
            )
    return config


def reached_by_others(endpoint: Endpoint) -> bool:
    """Whether other machines can reach an endpoint: through any of its addresses, where it is a name."""
    try:
        found = socket.getaddrinfo(
            endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise Refused(f"{endpoint}: cannot find an address of {endpoint.host}: {error}") from None
    return not all(is_loopback(str(address[0])) for *_, address in found)


async def run(broker: Broker, supervisor: SupervisorLink | None) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in stop_signals():
        loop.add_signal_handler(number, stop.set)
    if supervisor is not None:
        supervisor.follow(stop)
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await broker.serve(stop)


def run_loop(broker: Broker, supervisor: SupervisorLink | None) -> None:
    """On uvloop where it is installed, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(run(broker, supervisor))
    else:
        uvloop.run(run(broker, supervisor))


def main(argv: Sequence[str] | None = None) -> int:
    if not __debug__:
        print("penstock's assertions guard your data: run it without -O", file=sys.stderr)
        return EXIT_USAGE
    flags = arguments(argv)
    try:
        config = settings(flags)
    except Refused as reason:
        print(f"penstock: {reason}", file=sys.stderr)
        return EXIT_USAGE
    if flags.processes > 1:
        from penstock.broker.several import run_several

        return run_several(config, flags.processes, given_settings(flags), flags.config)
    lines = QueuedStream(sys.stderr)
    levels = configure(level=config.log_level, log_format=LogFormat(config.log_format), stream=lines)
    try:
        return run_broker(config, levels, flags)
    finally:
        lines.drain()


def run_broker(config: BrokerConfig, levels: Levels, flags: argparse.Namespace) -> int:
    """Run until a signal stops it; the exit code."""
    from penstock.broker.descriptors import divide, raise_limit
    from penstock.broker.supervisor import SupervisorLink
    from penstock.broker.wiring import Broker
    from penstock.net.sockets import SocketNetwork

    log = logger("broker")
    for warning in config.warnings:
        log.warning("setting_without_effect", detail=warning)
    log.info("starting", version=penstock.__version__, broker_id=config.broker_id, data=list(config.data_directories))
    budget = divide(raise_limit(), log_files_wanted=config.log_files_open_max)
    log.info("descriptors", **asdict(budget))
    os.umask(PRIVATE_UMASK)
    clock = SystemClock()
    supervisor = None if flags.supervisor_fd is None else SupervisorLink(flags.supervisor_fd)
    try:
        broker = Broker(
            config,
            disk=RealDisk(),
            threads=ThreadPool(max(config.background_threads, BACKGROUND_THREADS_MIN)),
            network=SocketNetwork(),
            store=store_source(config, flags.metadata_socket, clock=clock, log=log),
            clock=clock,
            randomness=SystemRandomness(),
            log=log,
            levels=levels,
            descriptors=budget,
        )
        if supervisor is not None:
            broker.on_ready = supervisor.ready
        run_loop(broker, supervisor)
    except (StartRefused, StoreInUse, StoreDamaged, StoreUnavailable, OSError) as reason:
        log.error("start_refused", reason=str(reason))
        return EXIT_FAILED
    log.info("stopped")
    return 0
