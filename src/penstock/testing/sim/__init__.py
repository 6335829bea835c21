"""A simulator that runs whole brokers and their clients in one process on virtual time.

Everything that happens follows from a seed: how long messages and disks take, what fails and when. A `World` has nodes;
a `SimBroker` is the unmodified broker on one of them; clients are coroutines that other nodes run. The same seed gives
the same trace hash in every process, so a run that failed can be repeated and looked into.
"""

from penstock.testing.sim.broker import SimBroker
from penstock.testing.sim.clock import SimClock, SimRandomness
from penstock.testing.sim.loop import SimLoop, Stuck
from penstock.testing.sim.network import Fabric, SimNetwork, SimTransport
from penstock.testing.sim.node import Ending, Life, LifeEnded, Node
from penstock.testing.sim.world import Failure, World

__all__ = [
    "Ending",
    "Fabric",
    "Failure",
    "Life",
    "LifeEnded",
    "Node",
    "SimBroker",
    "SimClock",
    "SimLoop",
    "SimNetwork",
    "SimRandomness",
    "SimTransport",
    "Stuck",
    "World",
]
