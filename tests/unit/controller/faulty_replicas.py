"""Three brokers that die, return with and without their records, and propose ISRs, on a store with every fault on.

The judge sees every transaction as the store does it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tests.unit.controller.faulty_run import Violation
from tests.unit.metadata.virtual_time import SeededRandomness

from penstock.config.broker import BrokerConfig
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, Step
from penstock.controller.controller import Controller
from penstock.controller.elections import LogEnd
from penstock.controller.isr import IsrChange
from penstock.controller.leaders import Election
from penstock.controller.membership import Membership, bootstrap_cluster, reached
from penstock.controller.topics import NewTopic
from penstock.metadata.catalog import Catalog
from penstock.metadata.operations import Operation
from penstock.metadata.records import (
    Admission,
    BrokerState,
    admission_path,
    broker_path,
    chunk_path,
    unpack_admission,
    unpack_broker,
    unpack_partitions,
)
from penstock.metadata.store import StoreFault, StoreUnavailable
from penstock.model.errors import BrokerError
from penstock.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, TopicId, TopicPartition
from penstock.model.topic import NO_LEADER, LeaderRecoveryState, PartitionState, TopicState
from penstock.observe.log import logger
from penstock.storage.registration import RegistrationRecord
from penstock.testing.sim.store import SimSource, SimStore, StoreFaults

FAULTS = StoreFaults(watch_delay_s_max=0.5, coalesce_percent=30, lose_percent=3, unknown_percent=10, lag_percent=50)
IDS = (BrokerId(1), BrokerId(2), BrokerId(3))
STEPS = 80
PARTITIONS = 3
REQUEST_TIMEOUT_S = 60.0


class Judge:
    """Checks each transaction against what the store had before it."""

    def __init__(self, server: SimStore) -> None:
        self.server = server
        self.topic_id: TopicId | None = None
        self.events: Counter[str] = Counter()
        self.proposed: dict[tuple[int, int], list[dict[BrokerId, BrokerEpoch]]] = {}
        """Epochs of the members of proposals, by the partition and the partition epoch that they were made from."""
        commit = server.commit

        def judged(session: int, operations: list[Operation]) -> int | StoreFault:
            before, admitted = self.states(), self.admissions()
            outcome = commit(session, operations)
            if isinstance(outcome, int) and self.topic_id is not None:
                self._judge(before, admitted)
            return outcome

        server.commit = judged  # type: ignore[method-assign, assignment]

    def states(self) -> tuple[PartitionState, ...]:
        node = None if self.topic_id is None else self.server.nodes.get(chunk_path(self.topic_id, 0))
        return () if node is None else unpack_partitions(node.data, 0)

    def admissions(self) -> dict[BrokerId, Admission]:
        found = {each: self.server.nodes.get(admission_path(each)) for each in IDS}
        return {each: unpack_admission(each, node.data, node.version) for each, node in found.items() if node}

    def _judge(self, before: tuple[PartitionState, ...], admitted: dict[BrokerId, Admission]) -> None:
        after = self.states()
        for was, now in zip(before, after, strict=False):
            if was != now:
                self._judge_change(was, now)
        for broker, admission in self.admissions().items():
            if admission != admitted.get(broker):
                self.events["admitted"] += 1
                self._judge_admission(broker, admission, admitted.get(broker), after)

    def _judge_change(self, was: PartitionState, now: PartitionState) -> None:
        if not set(now.isr) <= set(now.replicas):
            raise Violation(f"9: the ISR {now.isr} is not among the replicas")
        if now.leader != NO_LEADER and now.leader not in now.isr:
            raise Violation(f"9: leader {now.leader} is not in the ISR {now.isr}")
        if now.partition_epoch != was.partition_epoch + 1:
            raise Violation(f"7: the partition epoch went from {was.partition_epoch} to {now.partition_epoch}")
        if now.leader != was.leader and now.leader_epoch <= was.leader_epoch:
            raise Violation(f"6: a new leader in epoch {now.leader_epoch}, after {was.leader_epoch}")
        if now.leader_epoch > was.leader_epoch:
            self._judge_election(was, now)
        elif set(now.isr) - set(was.isr):
            self.events["expanded"] += 1
            made = self.proposed.get((was.index, was.partition_epoch), [])
            given = [each for each in made if set(each) == set(now.isr)]
            if not given:
                raise Violation(f"7: an ISR change that was not made from partition epoch {was.partition_epoch}")
            admissions = self.admissions()
            admitted = {member: admissions[member].epoch for member in now.isr}
            if admitted not in given:
                raise Violation(f"13: the members' epochs were {given}, and {admitted} are admitted")
        elif len(now.isr) < len(was.isr):
            self.events["shrunk"] += 1

    def _judge_election(self, was: PartitionState, now: PartitionState) -> None:
        if now.leader == NO_LEADER:
            self.events["without leader"] += 1
            return
        self.events["elected"] += 1
        if now.leader in was.isr or now.leader in was.eligible_leader_replicas:
            return
        if was.isr or was.eligible_leader_replicas:
            raise Violation(f"12: {now.leader} elected while {was.isr} and {was.eligible_leader_replicas} are safe")
        if now.leader_recovery_state is not LeaderRecoveryState.RECOVERING:
            raise Violation(f"10: the election of {now.leader} is not reported")
        self.events["last resort"] += 1

    def _judge_admission(
        self, broker: BrokerId, now: Admission, was: Admission | None, states: tuple[PartitionState, ...]
    ) -> None:
        node = self.server.nodes.get(broker_path(broker))
        if node is None or node.created != now.epoch:
            # It is gone already, so it will not act on it.
            return
        if was is not None and was.epoch == now.epoch:
            # It asked to stop.
            return
        registered = unpack_broker(broker, node.data, node.created)
        unsafe = registered.may_have_lost or (was is not None and registered.admitted_before != was.epoch)
        for state in states:
            if state.leader == broker:
                raise Violation(f"5: {broker} is admitted and leads in epoch {state.leader_epoch} of its former life")
            if unsafe and broker in {*state.isr, *state.eligible_leader_replicas}:
                raise Violation(f"11: {broker} is admitted, may have lost records, and is not caught up")


class Broker:
    """One broker over several lives: its disk keeps the record of its registration."""

    def __init__(self, cluster: FaultyReplicas, broker_id: BrokerId) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.record = RegistrationRecord()
        self.lost_until: BrokerEpoch | None = None
        self.lives = 0
        self.running = False
        self.task: asyncio.Task[None] | None = None
        self.epochs_seen: dict[BrokerId, list[BrokerEpoch]] = {each: [] for each in IDS}

    def start(self) -> None:
        self.lives += 1
        self.running = True
        self.source = SimSource(self.cluster.server)
        self.catalog = Catalog()
        self.task = asyncio.get_running_loop().create_task(self._live())

    async def _live(self) -> None:
        session = await self.source.open()
        self.session = session
        config = BrokerConfig(broker_id=self.id)
        self.controller = Controller(
            store=session,
            catalog=self.catalog,
            randomness=self.cluster.randomness,
            config=lambda: config,
            log=logger("test"),
        )
        self.controller.ask_log_ends = self.cluster.log_ends
        self.membership = Membership(
            store=session,
            catalog=self.catalog,
            controller=self.controller,
            broker=BrokerState(
                broker_id=self.id, endpoints=(), rack=None, directories=(f"d{self.id}",), host="h", clean=False
            ),
            log=logger("test"),
            record=self.record,
            keep=self._keep,
        )
        await reached(lambda: bootstrap_cluster(session, lambda: "the-cluster"))
        await reached(lambda: self.catalog.open(session))
        while True:
            try:
                await reached(self.membership.join)
                break
            except StoreUnavailable:
                await asyncio.sleep(1)
        await self.membership.run()

    async def _keep(self, record: RegistrationRecord) -> None:
        life = self.lives
        await asyncio.sleep(self.cluster.randomness.below(100) / 1_000)
        if life == self.lives and self.running:
            self.record = record

    def kill(self, *, lost: bool) -> None:
        self.running = False
        self.catalog.close()
        if self.task is not None:
            self.task.cancel()
        self.source.kill()
        if lost:
            self.record = replace(self.record, may_have_lost=True)

    @property
    def is_admitted(self) -> bool:
        return self.running and hasattr(self, "membership") and self.membership.admitted_epoch != NO_BROKER_EPOCH


class FaultyReplicas:
    """A schedule of deaths, returns, proposals and requests."""

    def __init__(self, seed: int) -> None:
        self.randomness = SeededRandomness(seed)
        self.server = SimStore(self.randomness, session_timeout_s=4.0)
        self.judge = Judge(self.server)
        self.brokers = {each: Broker(self, each) for each in IDS}
        self._asked: list[asyncio.Task[None]] = []

    async def log_ends(self, broker: BrokerId, partitions: Any) -> dict[TopicPartition, LogEnd]:
        return {tp: LogEnd(epoch=LeaderEpoch(self.randomness.below(3)), offset=broker) for tp in partitions}

    async def run(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        await self._until(lambda: all(broker.is_admitted for broker in self.brokers.values()))
        assignments = tuple((index, (*IDS[index:], *IDS[:index])) for index in range(PARTITIONS))
        topic = NewTopic(name="t", assignments=assignments, configs=(("min.insync.replicas", "2"),))
        [made] = await self._controller().create_topics([topic])
        assert isinstance(made, TopicState), made
        self.judge.topic_id = made.topic_id
        self.server.faults = FAULTS
        for _ in range(STEPS):
            await self._act()
            await asyncio.sleep(self.randomness.below(1_500) / 1_000)
        await asyncio.gather(*self._asked)
        await self._heal()

    def _controller(self) -> Controller:
        [active] = [each.controller for each in self.brokers.values() if each.running and each.controller.is_active]
        return active

    async def _act(self) -> None:
        broker = self.brokers[IDS[self.randomness.below(3)]]
        match self.randomness.below(12):
            case 0 | 1 if broker.running and broker.task is not None and hasattr(broker, "membership"):
                broker.kill(lost=not self.randomness.below(3))
            case 0 | 1 | 2 if not broker.running:
                broker.start()
            case 3 if broker.running and hasattr(broker, "session"):
                self.server.expire(broker.session.session)
            case 4 if broker.running and hasattr(broker, "session"):
                self.server.suspend(broker.session.session, self.randomness.below(8_000) / 1_000)
            case 5:
                await self._ask(self._balance())
            case 6:
                await self._ask(self._change_min())
            case 7 if broker.is_admitted and not self.randomness.below(3):
                await self._ask(self._shut_down(broker))
            case _:
                self._asked.append(asyncio.get_running_loop().create_task(self._ask(self._propose(broker))))

    async def _ask(self, request: Any) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                with suppress(BrokerError):
                    await request
        except TimeoutError:
            raise Violation("a request was never answered") from None

    def _any_controller(self) -> Controller | None:
        """One of those who think that they are it."""
        active = [each.controller for each in self.brokers.values() if each.is_admitted and each.controller.is_active]
        return active[self.randomness.below(len(active))] if active else None

    async def _balance(self) -> None:
        controller = self._any_controller()
        if controller is not None:
            await controller.elect_leaders(
                Election.PREFERRED, [TopicPartition("t", each) for each in range(PARTITIONS)]
            )

    async def _change_min(self) -> None:
        controller = self._any_controller()
        if controller is not None:
            step = SettingStep(name="min.insync.replicas", step=Step.SET, value=str(1 + self.randomness.below(3)))
            await controller.change_configs([ConfigChange(resource_type=ResourceType.TOPIC, name="t", steps=(step,))])

    async def _shut_down(self, broker: Broker) -> None:
        controller = self._any_controller()
        if controller is not None:
            await controller.shut_down(broker.id, broker.membership.admitted_epoch)

    async def _propose(self, broker: Broker) -> None:
        """Propose as a leader does that knows some states and followers of the past."""
        controller = self._any_controller()
        if controller is None or not broker.is_admitted:
            return
        image = broker.catalog.image
        topic = image.topics.get("t")
        if topic is None:
            return
        for each in IDS:
            if image.live_epoch(each) != NO_BROKER_EPOCH:
                broker.epochs_seen[each].append(image.live_epoch(each))
        state = topic.partitions[self.randomness.below(PARTITIONS)]
        if state.leader != broker.id:
            return
        wanted = [broker.id, *(each for each in IDS if each != broker.id and self.randomness.below(4))]
        if set(wanted) == set(state.isr):
            return
        epochs = {each: self._known_epoch(broker, each) for each in wanted}
        partition_epoch = state.partition_epoch
        self.judge.proposed.setdefault((state.index, partition_epoch), []).append(epochs)
        change = IsrChange(
            topic_id=topic.topic_id,
            partition=state.index,
            leader_epoch=state.leader_epoch,
            partition_epoch=partition_epoch,
            isr=tuple(epochs.items()),
        )
        await asyncio.sleep(self.randomness.below(2_000) / 1_000)
        await controller.alter_partitions(broker.id, broker.membership.admitted_epoch, [change])

    def _known_epoch(self, broker: Broker, member: BrokerId) -> BrokerEpoch:
        """The epoch in which a member fetched last, which may be one of its former lives."""
        if member == broker.id:
            return broker.membership.admitted_epoch
        seen = broker.epochs_seen[member]
        if not seen:
            return NO_BROKER_EPOCH
        return seen[-1 - self.randomness.below(min(2, len(seen)))]

    async def _heal(self) -> None:
        """Switch the faults off: every broker is admitted, and every partition has a leader."""
        self.server.faults = StoreFaults()
        for broker in self.brokers.values():
            if not broker.running:
                broker.start()
        await self._until(lambda: all(broker.is_admitted for broker in self.brokers.values()))
        await self._until(lambda: all(state.leader != NO_LEADER for state in self.judge.states()))

    async def _until(self, fact: Any) -> None:
        try:
            async with asyncio.timeout(300):
                while not fact():  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise Violation(f"32: the cluster does not settle: {self.judge.states()}") from None

    def stop(self) -> None:
        for broker in self.brokers.values():
            if broker.running:
                broker.kill(lost=False)
