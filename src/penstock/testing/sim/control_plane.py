"""The control plane of a large cluster, without data: controllers, their planners, and brokers that only register.

Two brokers have a controller, the one that is active and one that takes over. The others are their registrations in the
metadata store. What their leaders and followers would ask of the controller is asked for them. Every transaction is
counted, with its operations and bytes, and so is the processor time outside of the simulated store.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.controller.brokers import brokers_of
from penstock.controller.controller import Controller
from penstock.controller.isr import IsrChange
from penstock.controller.leaders import Election, not_preferred
from penstock.controller.membership import Membership, bootstrap_cluster, register
from penstock.controller.topics import NewTopic
from penstock.metadata.catalog import Catalog
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Operation, size_of
from penstock.metadata.records import BrokerEndpoint, BrokerState
from penstock.metadata.store import StoreFault
from penstock.model.errors import BrokerError
from penstock.model.ids import BrokerEpoch, BrokerId
from penstock.model.topic import PartitionState, TopicState
from penstock.observe.log import Logger
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.store import SimSession, SimSource, SimStore
from penstock.testing.sim.world import World

RACKS = 3
FACTOR = 3
SESSION_TIMEOUT_S = 18.0
PARTITIONS_AT_ONCE = 10_000
"""In one request that creates topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one phase took."""

    phase: str
    cpu_s: float
    """Processor time of everything but the simulated store."""
    transactions: int
    """Of the metadata store: each is one write that ZooKeeper makes durable."""
    operations: int
    bytes: int


class Meter:
    """Counts the transactions of a store that were done, and the processor time outside of it."""

    def __init__(self, server: SimStore) -> None:
        self.transactions = 0
        self.operations = 0
        self.bytes = 0
        self._store_s = 0.0
        self.costs: list[Cost] = []
        commit = server.commit

        def counted(session: int, operations: Sequence[Operation]) -> int | StoreFault:
            began_s = time.process_time()
            outcome = commit(session, operations)
            self._store_s += time.process_time() - began_s
            if isinstance(outcome, int):
                self.transactions += 1
                self.operations += len(operations)
                self.bytes += sum(map(size_of, operations))
            return outcome

        server.commit = counted  # type: ignore[method-assign]

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        before = self.transactions, self.operations, self.bytes, time.process_time() - self._store_s
        yield
        after = self.transactions, self.operations, self.bytes, time.process_time() - self._store_s
        transactions, operations, size, cpu_s = (now - then for now, then in zip(after, before, strict=True))
        cost = Cost(
            phase=name, cpu_s=cpu_s, transactions=int(transactions), operations=int(operations), bytes=int(size)
        )
        self.costs.append(cost)

    def cost(self, phase: str) -> Cost:
        [found] = [each for each in self.costs if each.phase == phase]
        return found


class Events:
    """A log that only counts, and wakes what waits for an event."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged = asyncio.Event()

    def info(self, event: str, /, **fields: Any) -> None:
        self.counts[event] += 1
        self._logged.set()

    debug = warning = error = exception = info

    def bind(self, **fields: Any) -> Logger:
        return self

    async def next_of(self, event: str, before: int) -> None:
        """Wait until an event was logged more than `before` times."""
        while self.counts[event] <= before:
            self._logged.clear()
            await self._logged.wait()


class Registered:
    """A broker of which there is nothing but its registration."""

    def __init__(self, server: SimStore, broker_id: int) -> None:
        self._server = server
        self.state = described(broker_id)
        self._session: SimSession | None = None

    async def join(self, admitted_before: BrokerEpoch | None = None) -> None:
        """Register; after a crash with what its disk knows of its former life."""
        self._session = await SimSource(self._server).open()
        state = self.state
        if admitted_before is not None:
            state = replace(state, admitted_before=admitted_before, clean=False)
        await register(self._session, state)

    async def leave(self) -> None:
        """Its session ends."""
        assert self._session is not None, "it has not joined"
        await self._session.close()


class Steered:
    """A broker with a controller, as far as its metadata goes."""

    def __init__(self, world: World, server: SimStore, broker_id: int) -> None:
        self.broker_id = BrokerId(broker_id)
        self._server = server
        self.events = Events()
        self.catalog = Catalog()
        self._world = world
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.session = await SimSource(self._server).open()
        config = BrokerConfig(broker_id=self.broker_id)
        self.controller = Controller(
            store=self.session,
            catalog=self.catalog,
            randomness=SimRandomness(self._world.stream(f"controller {self.broker_id}")),
            config=lambda: config,
            log=self.events,
        )
        self.membership = Membership(
            store=self.session,
            catalog=self.catalog,
            controller=self.controller,
            broker=described(self.broker_id),
            log=self.events,
        )
        await bootstrap_cluster(self.session, lambda: "the-cluster", lambda: "the-store")
        await self.catalog.open(self.session)
        await self.membership.join()
        self._tasks.append(asyncio.get_running_loop().create_task(self.membership.run()))
        await self.membership.admitted()

    @property
    def image(self) -> MetadataImage:
        return self.catalog.image

    async def leave(self) -> None:
        """Its process and its session end."""
        self.catalog.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.session.close()


class ControlPlane:
    """A cluster of `brokers` brokers. Broker 1 is its first controller, and broker 2 the next."""

    def __init__(self, world: World, *, brokers: int) -> None:
        assert brokers > FACTOR, "a broker that is lost leaves too few for a replica each"
        self._world = world
        self.server = SimStore(SimRandomness(world.stream("store")), session_timeout_s=SESSION_TIMEOUT_S)
        self.meter = Meter(self.server)
        self.active = Steered(world, self.server, 1)
        self.standby = Steered(world, self.server, 2)
        self.heirs: Counter[int] = Counter()
        """How many partitions of a broker that was lost each other broker leads since."""
        self.registered = {number: Registered(self.server, number) for number in range(3, brokers + 1)}

    @property
    def image(self) -> MetadataImage:
        return self.active.image

    async def start(self) -> None:
        """Start the first controller and register the brokers; all are admitted when this returns."""
        with self.meter.phase("start"):
            await self.active.start()
            await asyncio.gather(*(each.join() for each in self.registered.values()))
            while len(self.image.live_brokers()) <= len(self.registered):
                await self.active.events.next_of(
                    "registration_admitted", self.active.events.counts["registration_admitted"]
                )

    async def load_standby(self) -> None:
        """Start the broker that takes over later: it reads all metadata, and follows it."""
        with self.meter.phase("start of a broker"):
            await self.standby.start()

    async def create_topics(self, partitions: int, *, per_topic: int) -> None:
        """Create topics of equal size, as many in a request as it may have."""
        names = [f"topic-{number:06d}" for number in range(partitions // per_topic)]
        at_once = max(PARTITIONS_AT_ONCE // per_topic, 1)
        with self.meter.phase("creation of all topics"):
            for first in range(0, len(names), at_once):
                wanted = [
                    NewTopic(name=name, partitions=per_topic, replication_factor=FACTOR)
                    for name in names[first : first + at_once]
                ]
                check(await self.active.controller.create_topics(wanted))

    async def take_over(self) -> None:
        """The controller's broker is lost; the standby is elected, and elects leaders for what that broker led."""
        lost, events = self.active, self.standby.events
        before = events.counts["partitions_reconciled"]
        with self.meter.phase("take-over"):
            await lost.leave()
            await events.next_of("partitions_reconciled", before)
        self.active = self.standby

    async def lose(self, broker_id: int) -> None:
        before = self.active.events.counts["partitions_reconciled"]
        led = self._led(broker_id)
        with self.meter.phase("loss of a broker"):
            await self.registered[broker_id].leave()
            await self.active.events.next_of("partitions_reconciled", before)
        self.heirs = Counter(self.image.topics[topic].partitions[index].leader for topic, index in led)

    async def bring_back(self, broker_id: BrokerId) -> None:
        """The broker registers and is admitted, catches up, and gets its leaderships back."""
        events = self.active.events
        before = events.counts["registration_admitted"]
        with self.meter.phase("its return: admission"):
            await self.registered[broker_id].join(self.image.admissions[broker_id].epoch)
            await events.next_of("registration_admitted", before)
        with self.meter.phase("its return: ISRs"):
            for leader, changes in self._joins(broker_id).items():
                epoch = self.image.brokers[leader].epoch
                check(await self.active.controller.alter_partitions(leader, epoch, changes))
        with self.meter.phase("its return: leaderships"):
            partitions = list(not_preferred(self.image, brokers_of(self.image)))
            check(await self.active.controller.elect_leaders(Election.PREFERRED, partitions))

    def _joins(self, broker_id: BrokerId) -> dict[BrokerId, list[IsrChange]]:
        """What the leaders propose once a follower has caught up with all of them, by leader."""
        found: dict[BrokerId, list[IsrChange]] = {}
        for topic in self.image.topics.values():
            for state in topic.partitions:
                if broker_id in state.replicas and broker_id not in state.isr:
                    found.setdefault(state.leader, []).append(self._join(topic, state, broker_id))
        return found

    def _join(self, topic: TopicState, state: PartitionState, broker_id: BrokerId) -> IsrChange:
        members = (*state.isr, broker_id)
        return IsrChange(
            topic_id=topic.topic_id,
            partition=state.index,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=tuple((each, self.image.brokers[each].epoch) for each in members),
        )

    def led_by(self, broker_id: int) -> int:
        """Partitions that a broker leads."""
        return len(self._led(broker_id))

    def _led(self, broker_id: int) -> list[tuple[str, int]]:
        return [
            (topic.name, state.index)
            for topic in self.image.topics.values()
            for state in topic.partitions
            if state.leader == broker_id
        ]

    def in_isr(self, broker_id: int) -> int:
        """Partitions that a broker is in sync with."""
        return sum(broker_id in state.isr for topic in self.image.topics.values() for state in topic.partitions)

    async def stop(self) -> None:
        """The controller first: without it, the loss of the others costs nothing."""
        await self.active.leave()
        for each in self.registered.values():
            await each.leave()


def described(broker_id: int) -> BrokerState:
    host = f"host-{broker_id}"
    return BrokerState(
        broker_id=BrokerId(broker_id),
        endpoints=(BrokerEndpoint(listener="PLAINTEXT", host=host, port=9092),),
        rack=f"rack-{broker_id % RACKS}",
        host=host,
        directories=(f"directory-{broker_id}",),
    )


def check(outcomes: Sequence[Any]) -> None:
    """No outcome may be a refusal: a measurement would be of less than it says."""
    refused = [each for each in outcomes if isinstance(each, BrokerError)]
    assert not refused, f"{len(refused)} of {len(outcomes)} were refused: {refused[0]!r}"
