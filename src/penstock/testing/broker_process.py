"""A penstock broker as a process, as users start it, for tests and benchmarks."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.testing.broker_child import BrokerChild
from penstock.testing.probe import speaks_kafka
from penstock.testing.processes import LOOPBACK, free_port

READY_SECONDS_MAX = 90.0


class PenstockProcess(BrokerChild):
    """One broker started as ``python -m penstock.broker`` on a free port.

        with PenstockProcess(settings={"num.partitions": "3"}) as broker:
            ... broker.bootstrap ...
            broker.kill()
            broker.start()

    Leaving it stops the process by its id and removes its data, if the folder is a temporary one. ``start_seconds``
    is the time from the start of the process to the first response.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        data: Path | None = None,
        port: int | None = None,
        environment: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
        within: Path | None = None,
        group: int | None = None,
    ) -> None:
        """A `group` id of its own, which needs root, lets a packet filter recognise what it sends."""
        folder = Path(tempfile.mkdtemp(prefix="penstock-broker-", dir=within))
        super().__init__(folder, free_port() if port is None else port)
        self.data = self.folder / "data" if data is None else data
        self._settings = dict(settings or {})
        self.environment = dict(environment or {})
        """Variables of its next start."""
        self._arguments = arguments
        self._group = group

    @property
    def command(self) -> tuple[str, ...]:
        settings = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        return (
            sys.executable,
            "-m",
            "penstock.broker",
            "--listen",
            self.bootstrap,
            "--data",
            str(self.data),
            *settings,
            *self._arguments,
        )

    def start(self, seconds_max: float = READY_SECONDS_MAX) -> None:
        """Start it on its port and its data; return when it responds."""
        self.launch(
            self.command,
            lambda: speaks_kafka(LOOPBACK, self.port),
            what="response to ApiVersions",
            seconds_max=seconds_max,
            environment=self.environment,
            group=self._group,
        )

    def close(self) -> None:
        """Stop it and remove its temporary folders."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
