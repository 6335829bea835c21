"""Penstock brokers as processes that share one ZooKeeper, for tests and benchmarks.

with PenstockCluster(zookeeper="127.0.0.1:2181/test", folder=folder) as cluster:
    ... cluster.bootstrap ...
    cluster.brokers[0].kill()
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.broker_process import PenstockProcess
from penstock.testing.packet_filter import PacketFilter
from penstock.testing.processes import LOOPBACK, free_ports

SETTINGS: dict[str, str] = {"metrics.listener": ""}
"""Of every broker, where a test does not choose otherwise."""


class ClusterBroker(PenstockProcess):
    """One broker of a cluster; `python` runs it."""

    def __init__(
        self,
        *,
        node_id: int,
        port: int,
        zookeeper: str,
        settings: Mapping[str, str],
        folder: Path,
        python: str,
        group: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            settings={"node.id": str(node_id), **SETTINGS, **settings},
            data=folder / f"broker-{node_id}",
            port=port,
            arguments=("--zookeeper", zookeeper),
            within=folder,
            group=group,
            environment=environment,
        )
        self.node_id = node_id
        self._python = python

    @property
    def command(self) -> tuple[str, ...]:
        return (self._python, *super().command[1:])


class PenstockCluster:
    """Several brokers, with ids from 1 on, started and stopped together or one by one."""

    def __init__(
        self,
        *,
        zookeeper: str,
        folder: Path,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        python: str = sys.executable,
        settings_of: Mapping[int, Mapping[str, str]] | None = None,
        packets: PacketFilter | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`zookeeper` is a connect string: servers, and the path below which the cluster keeps its nodes.

        `settings_of` has further settings of single brokers, by id. With `packets`, brokers can be cut apart.
        `environment` has variables of their first start, as `PYTHONPATH` for another version of penstock.
        """
        self.zookeeper = zookeeper
        self.brokers = [
            ClusterBroker(
                node_id=number,
                port=port,
                zookeeper=zookeeper,
                settings={**(settings or {}), **(settings_of or {}).get(number, {})},
                folder=folder,
                python=python,
                group=None if packets is None else packets.group(port),
                environment=environment,
            )
            for number, port in enumerate(free_ports(brokers, LOOPBACK), 1)
        ]
        self.start_seconds = 0.0

    def start(self) -> None:
        """Start every broker that does not run; return when all of them respond."""
        stopped = [broker for broker in self.brokers if not broker.alive]
        with ThreadPoolExecutor(max(len(stopped), 1)) as at_once:
            list(at_once.map(ClusterBroker.start, stopped))
        self.start_seconds = max((broker.start_seconds for broker in stopped), default=0.0)

    def broker(self, node_id: int) -> ClusterBroker:
        return self.brokers[node_id - 1]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def port(self) -> int:
        return self.brokers[0].port

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers if broker.alive]

    def tail(self) -> str:
        """The last lines that each broker wrote."""
        return "\n".join(f"--- broker {broker.node_id}\n{broker.tail()}" for broker in self.brokers)

    def stop(self) -> None:
        """Stop every broker, all at once."""
        with ThreadPoolExecutor(len(self.brokers)) as at_once:
            list(at_once.map(ClusterBroker.stop, self.brokers))

    def close(self) -> None:
        """Stop them and remove their temporary folders."""
        with ThreadPoolExecutor(len(self.brokers)) as at_once:
            list(at_once.map(ClusterBroker.close, self.brokers))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
