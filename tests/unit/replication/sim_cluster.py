"""Brokers that share a store in one simulated world, and a client that may connect to each of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import ModuleType
from typing import Any, TypeVar

from penstock.broker.parts import Parts
from penstock.model.cluster_versions import SUPPORTED, VersionRange
from penstock.testing.sim.broker import SimBroker
from penstock.testing.sim.client import SimClient
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.store import SimStore
from penstock.testing.sim.world import World

T = TypeVar("T")

LIMIT_S = 300.0
SHOWN = re.compile(r" (info|warning|error|starts|killed|exited|cut|healed|failed)\b")
"""Lines of the trace that a failed test shows."""
SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


class SimCluster:
    """Brokers 1 to `size`, and a client on a node of its own."""

    def __init__(
        self,
        *,
        size: int = 3,
        seed: int = 1,
        settings: Mapping[str, str] | None = None,
        versions: VersionRange = SUPPORTED,
    ) -> None:
        self.world = World(seed, recorded=True)
        self.store = SimStore(SimRandomness(self.world.stream("store")))
        self.brokers = {
            number: SimBroker(
                self.world,
                broker_id=number,
                store=self.store,
                alone=False,
                settings={**SETTINGS, **(settings or {})},
                versions=versions,
            )
            for number in range(1, size + 1)
        }
        self._client = self.world.node("client")
        self._links: dict[int, SimClient] = {}

    def run(self, story: Callable[[SimCluster], Coroutine[Any, Any, T]]) -> T:
        """Start the brokers, run a story on the client's node, and check that no code failed."""
        try:
            return self.world.run(self._run(story), limit_s=LIMIT_S)
        except BaseException:
            print("\n".join(filter(SHOWN.search, self.world.trace.lines or [])))
            raise
        finally:
            failures = list(self.world.failures)
            self.world.close()
            assert not failures, failures[0]

    async def _run(self, story: Callable[[SimCluster], Coroutine[Any, Any, T]]) -> T:
        for broker in self.brokers.values():
            broker.start()
        for broker in self.brokers.values():
            await broker.ready()
            assert not broker.refusals, broker.refusals
        life = self._client.start()
        self.network = self.world.fabric.at(life)
        result = await self._client.spawn(story(self))
        for broker in self.brokers.values():
            await broker.stop()
        return result

    def parts(self, broker_id: int) -> Parts:
        broker = self.brokers[broker_id].broker
        assert broker is not None
        parts = broker._parts  # pyright: ignore[reportPrivateUsage]
        assert parts is not None
        return parts

    @property
    def controller(self) -> int:
        """The broker that is controller."""
        [found] = [
            each for each in self.brokers if self.brokers[each].running and self.parts(each).controller.is_active
        ]
        return found

    def has_controller(self) -> bool:
        return any(self.brokers[each].running and self.parts(each).controller.is_active for each in self.brokers)

    async def ask(self, broker_id: int, api: ModuleType, version: int, request: Any, *, timeout_s: float = 40.0) -> Any:
        """A broker's response."""
        link = self._links.get(broker_id)
        if link is None or link.closed:
            link = self._links[broker_id] = await SimClient.open(self.network, *self.brokers[broker_id].address)
        return await link.ask(api, version, request, timeout_s=timeout_s)

    async def until(self, fact: Callable[[], bool | Awaitable[bool]], *, limit_s: float = 60.0) -> None:
        """Wait for a fact."""
        ends = self.world.now + limit_s
        while True:
            found = fact()
            if (found if isinstance(found, bool) else await found) is True:
                return
            assert self.world.now < ends, "the fact did not come true"
            await asyncio.sleep(0.05)
