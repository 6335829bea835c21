"""The simulated world: virtual time, one queue of events, random numbers by name, and the trace of what happened.

Everything a simulation does follows from its seed. Time passes only when nothing is left to do at the current time, and
then jumps to the next event. Each part draws from a stream of its own, so that an additional draw in one part does not
change what another part draws.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappush
from itertools import count
from typing import Any, TypeVar

from penstock.testing.sim.handle import SimHandle
from penstock.testing.sim.loop import SimLoop
from penstock.testing.sim.network import Fabric
from penstock.testing.sim.node import Node
from penstock.testing.sim.trace import Trace

T = TypeVar("T")

START_S = 1000.0
"""Virtual time at the beginning of a simulation; not 0, which code might take for "never"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An exception that no code handled: a bug in what is simulated."""

    at_s: float
    node: str
    message: str
    error: BaseException | None


class World:
    """One simulation. `run` drives it; `close` releases what is still suspended in it."""

    def __init__(self, seed: int, *, shuffled: bool = False, recorded: bool = False) -> None:
        self.seed = seed
        self.now = START_S
        self.events: list[tuple[float, float, int, SimHandle]] = []
        """Time, order among equal times, number, and what happens then: a heap."""
        self.ready: deque[SimHandle] = deque()
        """What happens now, in order."""
        self.counts: Counter[str] = Counter()
        """How often each event that matters to a test occurred."""
        self.failures: list[Failure] = []
        self.callbacks = 0
        """Callbacks run so far."""
        self.nodes: dict[str, Node] = {}
        self.numbers = count()
        self.tie: Callable[[], float] = self.stream("order of equal times").random if shuffled else float
        """What orders events of equal time: nothing but their number, or chance."""
        self.trace = Trace(self, recorded=recorded)
        self.fabric = Fabric(self)
        # What it lacks needs an operating system: sockets, processes, pipes.
        self.loop = SimLoop(self)  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]

    # Randomness

    def stream(self, name: str) -> random.Random:
        """Random numbers that depend on the seed and the name only."""
        digest = blake2b(f"{self.seed} {name}".encode(), digest_size=16).digest()
        return random.Random(int.from_bytes(digest, "big"))

    # Events

    def schedule(self, when: float, handle: SimHandle) -> None:
        """Let a callback happen at a time."""
        heappush(self.events, (when, self.tie(), next(self.numbers), handle))

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> SimHandle:
        """Let the world itself do something at a time; no node has to be running for it."""
        handle = SimHandle(callback, args, None, None, when)
        self.schedule(when, handle)
        return handle

    def after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> SimHandle:
        return self.at(self.now + delay_s, callback, *args)

    def soon(self, callback: Callable[[], object], context: Context) -> None:
        """Let the node that a context belongs to do something now, after what it is already about to do."""
        self.loop.call_soon(callback, context=context)

    # Nodes

    def node(self, name: str) -> Node:
        """A machine of this name, which is its host name as well; made where there is none yet."""
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = Node(self, name)
        return found

    def failed(self, node: str, message: str, error: BaseException | None) -> None:
        """Note a bug: a simulation with failures proves nothing."""
        self.trace.line(f"{node} failed: {message}: {error!r}")
        self.failures.append(Failure(at_s=self.now, node=node, message=message, error=error))

    # Running

    def run(self, main: Awaitable[T], *, limit_s: float | None = None) -> T:
        """Run until a coroutine that belongs to no node returns; `Stuck` if that takes more virtual time than this."""
        limit = None if limit_s is None else self.after(limit_s, self.loop.stuck, f"not done within {limit_s:g} s")
        try:
            return self.loop.run_until_complete(main)
        finally:
            if limit is not None:
                limit.cancel()

    def close(self) -> None:
        """End every node's life and release what is suspended. The simulation cannot go on afterwards."""
        self.loop.close()
