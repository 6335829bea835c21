"""A broker in a simulation: the unmodified `penstock.broker.wiring.Broker`, on a node with a simulated machine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.broker.descriptors import divide
from penstock.broker.wiring import Broker
from penstock.config.load import load
from penstock.metadata.store import StoreUnavailable
from penstock.model.cluster_versions import SUPPORTED, VersionRange
from penstock.model.ids import BrokerId
from penstock.observe.log import Logger
from penstock.storage.directories import StartRefused
from penstock.testing.sim.clock import SimClock, SimRandomness
from penstock.testing.sim.disk import LifeDisk, NodeDisk
from penstock.testing.sim.node import Ending, Life, LifeEnded
from penstock.testing.sim.store import SimSource, SimStore
from penstock.testing.sim.threads import SimThreads
from penstock.testing.sim.world import World

PORT = 9092
DATA = "/data"
DESCRIPTORS = 10_000


class SimBroker:
    """A broker on a node of its own. Each start is a new life with the disk that the last one left.

    A broker that is `alone` has its store to itself, as it has the embedded one: its start ends the session of the life
    before. Others share it, and wait for the session timeout of a broker that crashed.
    """

    def __init__(
        self,
        world: World,
        *,
        broker_id: int = 1,
        store: SimStore,
        alone: bool = True,
        settings: Mapping[str, str] | None = None,
        versions: VersionRange = SUPPORTED,
    ) -> None:
        self.world = world
        self.name = f"broker-{broker_id}"
        self.node = world.node(self.name)
        self.broker_id = BrokerId(broker_id)
        self.disk = NodeDisk(self.node)
        self._make_data_directory()
        self.clock = SimClock(world)
        self.log = SimLog(world, self.name)
        self.refusals: list[str] = []
        """Why lives of it ended on their own: a disk or a store that failed while it started, or a bug."""
        self.broker: Broker | None = None
        """The broker of the life that runs or ran last, for checks."""
        self.store = store
        self.versions = versions
        """The cluster versions that its next life supports: an upgrade of its software changes them."""
        self._alone = alone
        self._source: SimSource | None = None
        self._config = load(
            file=None,
            env={},
            flags={
                "listeners": f"PLAINTEXT://{self.name}:{PORT}",
                "log.dirs": DATA,
                "node.id": str(broker_id),
                "metrics.listener": "",
                **(settings or {}),
            },
        )
        self._stop = asyncio.Event()
        self._over = asyncio.Event()

    def _make_data_directory(self) -> None:
        self.disk.files.make_directory(DATA)
        self.disk.files.sync_directory("/")

    def wipe(self) -> None:
        """Replace the disk of a broker that does not run."""
        self.disk.wipe()
        self._make_data_directory()

    @property
    def session(self) -> int | None:
        """Its session in the metadata store, if it has one there."""
        if self._source is None or not self._source.opened:
            return None
        session = self._source.opened[-1].session
        return session if session in self.store.clients else None

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect."""
        return self.name, PORT

    def start(self) -> None:
        """Begin a life that serves until it is stopped or ended. `ready` waits until it accepts clients."""
        life = self.node.start()
        threads = SimThreads(self.world, life)
        self._stop = asyncio.Event()
        self._over = over = asyncio.Event()
        self.log.is_ready = asyncio.Event()
        life.at_end(lambda _: over.set())
        source = self._source = SimSource(self.store, exclusive=self._alone)
        life.at_end(lambda _: source.kill())
        self.broker = Broker(
            self._config,
            disk=LifeDisk(self.disk, life, self.clock, threads.executor),
            threads=threads,
            network=self.world.fabric.at(life),
            store=source,
            clock=self.clock,
            randomness=SimRandomness(self.world.stream(f"{self.name}, life {life.number}")),
            log=self.log,
            descriptors=divide(DESCRIPTORS, log_files_wanted=self._config.log_files_open_max),
            versions=self.versions,
        )
        life.spawn(self._serve(life, self.broker, self._stop), name=f"{self.name}, life {life.number}")

    async def _serve(self, life: Life, broker: Broker, stop: asyncio.Event) -> None:
        try:
            await broker.serve(stop)
        except (StartRefused, StoreUnavailable, OSError) as reason:
            # What a broker's process ends with in a word to its operator.
            self.refusals.append(str(reason))
            self.world.trace.line(f"{self.name} refuses to start: {reason}")
            life.end(Ending.EXITED)
        except Exception as error:
            self.world.failed(self.name, "the broker ended", error)
            life.end(Ending.KILLED)
        else:
            life.end(Ending.EXITED)

    async def ready(self) -> None:
        """Wait until this life serves, or is over."""
        waits = [asyncio.ensure_future(self.log.is_ready.wait()), asyncio.ensure_future(self._over.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    async def stop(self) -> None:
        """Stop it clean, and wait for the end."""
        if self.node.running:
            self.node.resume()
            self._stop.set()
            await self._over.wait()

    def kill(self) -> None:
        """Kill the process; what it wrote is in the page cache."""
        self.node.kill()

    def cut_power(self) -> None:
        """Stop the machine; what was not fsynced may be lost."""
        self.node.cut_power()

    def pause(self) -> None:
        self.node.pause()

    def resume(self) -> None:
        self.node.resume()

    @property
    def running(self) -> bool:
        return self.node.running


class SimLog:
    """The log of a simulated broker: lines of the trace, counts of events, and bugs as failures of the simulation."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self.is_ready = asyncio.Event()
        self.counts: Counter[str] = Counter()
        """How often each event was logged."""
        self.errors: Counter[tuple[str, str]] = Counter()
        """How often each event was logged as an error, by event and partition, if it names one."""

    def debug(self, event: str, /, **fields: Any) -> None:
        self.counts[event] += 1

    def info(self, event: str, /, **fields: Any) -> None:
        self._note("info", event, fields)
        if event == "ready":
            self.is_ready.set()

    def warning(self, event: str, /, **fields: Any) -> None:
        self._note("warning", event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self.errors[event, str(fields.get("partition", ""))] += 1
        self._note("error", event, fields)
        error = fields.get("exc_info")
        # What an ended life trips over is no bug.
        if isinstance(error, BaseException) and not isinstance(error, LifeEnded):
            self._world.failed(self._name, event, error)

    exception = error

    def bind(self, **fields: Any) -> Logger:
        return self

    def _note(self, level: str, event: str, fields: dict[str, Any]) -> None:
        self.counts[event] += 1
        if self._world.trace.lines is not None:
            said = " ".join(f"{key}={value!r}" for key, value in fields.items())
            self._world.trace.line(f"{self._name} {level} {event} {said}")
