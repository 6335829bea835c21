"""Registration, admission and elections over a simulated store: three brokers' memberships and controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.metadata.virtual_time import SeededRandomness, run_virtual

from penstock.config.broker import BrokerConfig
from penstock.controller.controller import SUSPENSION_WAIT_MS, Controller
from penstock.controller.elections import LogEnd
from penstock.controller.isr import IsrChange
from penstock.controller.leaders import Election
from penstock.controller.membership import Membership, bootstrap_cluster, reached, register
from penstock.controller.topics import NewTopic
from penstock.metadata.catalog import Catalog
from penstock.metadata.operations import Delete
from penstock.metadata.records import CONTROLLER, BrokerEndpoint, BrokerState, broker_path
from penstock.metadata.store import OutcomeUnknown, StoreUnreachable
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import IneligibleReplica, NotController, RequestTimedOut, StaleBrokerEpoch
from penstock.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition
from penstock.model.topic import NO_LEADER, LeaderRecoveryState, PartitionState, TopicState
from penstock.observe.log import logger
from penstock.storage.directories import StartRefused
from penstock.storage.registration import RegistrationRecord
from penstock.testing.sim.store import SimSession, SimSource, SimStore

TP = TopicPartition("t", 0)


class Broker:
    """One broker, as far as its metadata goes, over several lives."""

    def __init__(self, server: SimStore, broker_id: int) -> None:
        self.server = server
        self.id = BrokerId(broker_id)
        self.record = RegistrationRecord()
        self.events: list[str] = []
        self.facts: dict[str, Any] = {"directories": (f"d{broker_id}",), "host": "here"}
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self, *, wait: bool = True, **facts: Any) -> None:
        self.source = SimSource(self.server)
        self.session = await self.source.open()
        self.catalog = Catalog()
        config = BrokerConfig(broker_id=self.id)
        self.controller = Controller(
            store=self.session,
            catalog=self.catalog,
            randomness=SeededRandomness(self.id),
            config=lambda: config,
            log=logger("test"),
        )
        endpoint = BrokerEndpoint(listener="PLAINTEXT", host="here", port=9000 + self.id)
        state = BrokerState(broker_id=self.id, endpoints=(endpoint,), rack=None, **{**self.facts, **facts})
        self.membership = Membership(
            store=self.session,
            catalog=self.catalog,
            controller=self.controller,
            broker=state,
            log=logger("test"),
            record=self.record,
            keep=self._keep,
        )
        self.membership.on_fenced = lambda: self.events.append("fenced")
        self.membership.on_admitted = lambda epoch: self.events.append("admitted")
        await reached(lambda: bootstrap_cluster(self.session, lambda: "the-cluster"))
        await reached(lambda: self.catalog.open(self.session))
        await reached(self.membership.join)
        self.tasks.append(asyncio.get_running_loop().create_task(self.membership.run()))
        if wait:
            await self.membership.admitted()

    async def _keep(self, record: RegistrationRecord) -> None:
        await asyncio.sleep(0.001)
        self.record = record

    @property
    def epoch(self) -> BrokerEpoch:
        return self.membership.admitted_epoch

    def kill(self) -> None:
        """The process ends; its session goes on until its timeout."""
        self.stop()
        self.source.kill()

    def stop(self) -> None:
        self.catalog.close()
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()

    def state(self) -> PartitionState:
        return self.catalog.image.topics["t"].partitions[0]


class Cluster:
    """Three brokers, of which broker 1 is the controller, and a partition with a replica on each."""

    def __init__(self, server: SimStore) -> None:
        self.server = server
        self.brokers = {each: Broker(server, each) for each in (1, 2, 3)}

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()
        topic = NewTopic(name="t", assignments=((0, (BrokerId(1), BrokerId(2), BrokerId(3))),), configs=(MIN_TWO,))
        [made] = await self.controller.create_topics([topic])
        assert isinstance(made, TopicState), made

    @property
    def controller(self) -> Controller:
        [active] = [each.controller for each in self.brokers.values() if each.tasks and each.controller.is_active]
        return active

    def __getitem__(self, broker: int) -> Broker:
        return self.brokers[broker]

    async def until(self, fact: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not fact():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def change(self, leader: int, *members: int) -> IsrChange:
        topic = self[leader].catalog.image.topics["t"]
        state = topic.partitions[0]
        return IsrChange(
            topic_id=topic.topic_id,
            partition=0,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=tuple((BrokerId(each), self[each].epoch) for each in members),
        )

    async def alter(self, leader: int, change: IsrChange) -> PartitionState | BrokerError:
        broker = self[leader]
        [outcome] = await self.controller.alter_partitions(broker.id, broker.epoch, [change])
        return outcome


MIN_TWO = ("min.insync.replicas", "2")


def with_cluster(act: Callable[[Cluster], Any]) -> None:
    async def run() -> None:
        cluster = Cluster(SimStore(SeededRandomness(3), session_timeout_s=4.0))
        await cluster.start()
        try:
            await act(cluster)
        finally:
            for broker in cluster.brokers.values():
                broker.stop()

    run_virtual(run())


def test_every_broker_is_admitted_by_the_controller_and_acts_then() -> None:
    async def act(cluster: Cluster) -> None:
        for broker in cluster.brokers.values():
            assert broker.events == ["admitted"]
            assert broker.record.admitted_before == broker.epoch == broker.catalog.image.admissions[broker.id].epoch
        assert cluster[3].state().isr == (1, 2, 3)
        assert cluster[3].state().in_sync_min == 2

    with_cluster(act)


def test_leaders_move_when_their_broker_dies_and_its_return_changes_none() -> None:
    async def act(cluster: Cluster) -> None:
        cluster[2].kill()
        await cluster.until(lambda: cluster[1].state().isr == (1, 3))
        await cluster[2].start()
        assert cluster[2].state().leader == 1
        assert cluster[2].events == ["admitted", "admitted"]
        assert cluster[2].membership.admitted_epoch > cluster[1].epoch

    with_cluster(act)


def test_another_controller_takes_over_and_elects_new_leaders() -> None:
    async def act(cluster: Cluster) -> None:
        cluster[1].kill()
        await cluster.until(lambda: cluster[2].state().leader not in (1, NO_LEADER))
        assert cluster[2].state().isr == (2, 3)
        assert cluster.controller in (cluster[2].controller, cluster[3].controller)
        await cluster.until(lambda: cluster.controller.elections == 1)

    with_cluster(act)


def test_a_lost_session_fences_the_broker_until_it_is_admitted_again_in_a_new_leader_epoch() -> None:
    async def act(cluster: Cluster) -> None:
        before, epoch = cluster[1].state().leader_epoch, cluster[1].epoch
        cluster.server.suspend(cluster[1].session.session, 6.0)
        await asyncio.sleep(0.5)
        assert cluster[1].membership.is_suspended
        assert not cluster[1].membership.may_propose()
        assert cluster[1].events == ["admitted"], "suspended is not lost"
        await cluster.until(lambda: cluster[1].events == ["admitted", "fenced", "admitted"])
        assert cluster[1].epoch > epoch
        assert cluster[1].membership.may_propose()
        assert cluster[1].state().leader == 2
        assert cluster[1].state().leader_epoch > before
        assert not cluster[1].catalog.image.brokers[1].may_have_lost

    with_cluster(act)


def test_a_broker_that_others_disown_while_it_is_suspended_is_fenced_and_leads_again_in_a_new_leader_epoch() -> None:
    async def act(cluster: Cluster) -> None:
        before, epoch, session = cluster[1].state().leader_epoch, cluster[1].epoch, cluster[1].session.session
        cluster[1].membership.disowned(epoch)
        assert cluster[1].events == ["admitted"], "its session lives, as it knows itself"
        cluster.server.suspend(session, 1.0)
        await cluster.until(lambda: cluster[1].membership.is_suspended)
        cluster[1].membership.disowned(BrokerEpoch(epoch - 1))
        assert cluster[1].events == ["admitted"], "that was a former life"

        cluster[1].membership.disowned(epoch)

        assert cluster[1].events == ["admitted", "fenced"]
        await cluster.until(lambda: cluster[1].events == ["admitted", "fenced", "admitted"])
        assert cluster[1].session.session == session
        assert cluster[1].epoch > epoch
        await cluster.until(lambda: cluster[1].state().leader_epoch > before)

    with_cluster(act)


def test_a_quick_restart_takes_over_from_its_former_session_and_gets_new_leader_epochs() -> None:
    async def act(cluster: Cluster) -> None:
        loop = asyncio.get_running_loop()
        before, epoch = cluster[1].state().leader_epoch, cluster[1].epoch
        cluster[1].kill()
        killed_s = loop.time()
        await cluster[1].start()
        assert loop.time() - killed_s < cluster.server.session_timeout_s / 2, "it does not wait for the old session"
        assert cluster[1].epoch > epoch
        assert cluster[1].state().leader_epoch > before
        assert cluster[1].state().isr == (1, 2, 3), "it has lost nothing"

    with_cluster(act)


def test_a_second_broker_with_the_id_is_refused_and_both_are_named() -> None:
    async def act(cluster: Cluster) -> None:
        session = await SimSource(cluster.server).open()
        endpoint = BrokerEndpoint(listener="PLAINTEXT", host="there", port=1)
        other = BrokerState(broker_id=BrokerId(1), endpoints=(endpoint,), rack=None, directories=("x",), host="there")
        with pytest.raises(StartRefused, match=r"registered by another session: here:9001.*d1.*this one is there:1.*x"):
            await register(session, other)
        copied = replace(other, directories=("d1",))
        with pytest.raises(StartRefused):
            await register(session, copied)
        assert cluster[1].events == ["admitted"]

    with_cluster(act)


def test_a_broker_that_may_have_lost_records_says_so_until_an_admission_took_it_into_account() -> None:
    async def act(cluster: Cluster) -> None:
        cluster[3].kill()
        cluster[3].record = replace(cluster[3].record, may_have_lost=True)
        # The controller is away: this life registers, is not admitted, and dies.
        cluster.server.commit(0, [Delete(CONTROLLER)])
        for each in (1, 2):
            cluster[each].kill()
        await asyncio.sleep(10)
        joining = asyncio.ensure_future(cluster[3].start(wait=False))
        await cluster.until(lambda: broker_path(BrokerId(3)) in cluster.server.nodes)
        cluster[3].kill()
        joining.cancel()
        assert cluster[3].record.may_have_lost or cluster[3].record.admitted_before == cluster[3].epoch
        await asyncio.sleep(10)
        await cluster[3].start()
        await cluster.until(lambda: 3 not in cluster[3].state().isr)
        assert not cluster[3].record.may_have_lost

    with_cluster(act)


def test_a_store_that_went_back_is_refused() -> None:
    async def act(cluster: Cluster) -> None:
        cluster[3].kill()
        cluster[3].record = RegistrationRecord(admitted_before=BrokerEpoch(1_000_000))
        with pytest.raises(StartRefused, match="has gone back"):
            await cluster[3].start()

    with_cluster(act)


def test_a_store_that_went_back_is_refused_however_many_transactions_it_has_done_since() -> None:
    async def act(cluster: Cluster) -> None:
        cluster[3].kill()
        newest = cluster[1].catalog.number
        # Its last admission is one that the store does not have, of a transaction that the store has done otherwise.
        cluster[3].record = replace(cluster[3].record, admitted_before=BrokerEpoch(newest))
        with pytest.raises(StartRefused, match=r"has gone back.*its last admission there is"):
            await cluster[3].start()

    with_cluster(act)


def test_a_broker_whose_session_is_renewed_in_a_store_that_went_back_stays_fenced() -> None:
    async def act(cluster: Cluster) -> None:
        membership = cluster[3].membership
        membership._record = replace(membership._record, admitted_before=BrokerEpoch(cluster[3].epoch + 1))
        cluster.server.expire(cluster[3].session.session)
        await cluster.until(lambda: cluster[3].events == ["admitted", "fenced"])
        await asyncio.sleep(10)

        assert cluster[3].events == ["admitted", "fenced"]
        await cluster.until(lambda: 3 not in cluster[1].catalog.image.brokers)

    with_cluster(act)


def test_a_store_that_a_broker_has_left_for_another_is_refused() -> None:
    async def act(cluster: Cluster) -> None:
        cluster[3].kill()
        cluster[3].record = replace(cluster[3].record, store_id="of a store that has this one's metadata")
        with pytest.raises(StartRefused, match="another metadata store"):
            await cluster[3].start()

    with_cluster(act)


def test_a_broker_that_stops_hands_over_first() -> None:
    async def act(cluster: Cluster) -> None:
        assert await cluster.controller.shut_down(cluster[1].id, cluster[1].epoch)
        assert (cluster[1].state().leader, cluster[1].state().isr) == (2, (2, 3))
        await cluster.until(lambda: cluster[2].state().leader == 2)
        joins = cluster.change(2, 1, 2, 3)
        assert isinstance(await cluster.alter(2, joins), IneligibleReplica)
        with pytest.raises(StaleBrokerEpoch):
            await cluster.controller.shut_down(cluster[1].id, BrokerEpoch(1))

    with_cluster(act)


def test_an_isr_change_that_shows_a_newer_state_makes_the_controller_read_again() -> None:
    async def act(cluster: Cluster) -> None:
        controller = cluster.controller
        assert isinstance(await cluster.alter(1, cluster.change(1, 1, 2)), PartitionState)
        assert cluster[1].state().isr == (1, 2)
        changed = await cluster.alter(1, cluster.change(1, 1, 2, 3))
        assert isinstance(changed, PartitionState)
        assert controller.image.topics["t"].partitions[0] == changed

    with_cluster(act)


def test_a_controller_whose_session_is_suspended_decides_nothing() -> None:
    async def act(cluster: Cluster) -> None:
        controller = cluster.controller
        joins = cluster.change(1, 1, 2)
        cluster.server.suspend(cluster[1].session.session, 2.0)
        await asyncio.sleep(0.1)
        assert controller.is_active
        refused = replace(joins, isr=((BrokerId(1), BrokerEpoch(0)),))
        with pytest.raises(NotController):
            await cluster.alter(1, refused)
        await asyncio.sleep(3.0)
        assert isinstance(await cluster.alter(1, refused), IneligibleReplica)

    with_cluster(act)


def test_a_change_waits_while_the_controllers_session_is_suspended() -> None:
    async def act(cluster: Cluster) -> None:
        cluster.server.suspend(cluster[1].session.session, 2.0)
        await asyncio.sleep(0.1)
        assert cluster.controller.is_suspended
        [made] = await cluster.controller.create_topics([NewTopic(name="late", partitions=1)])
        assert isinstance(made, TopicState), made
        assert "/topics/late" in cluster.server.nodes

    with_cluster(act)


def test_a_change_is_refused_as_not_done_when_the_suspended_session_turns_out_to_be_lost() -> None:
    async def act(cluster: Cluster) -> None:
        former = cluster.controller
        cluster.server.suspend(cluster[1].session.session, 8.0)
        await asyncio.sleep(0.1)
        with pytest.raises(NotController):
            await former.create_topics([NewTopic(name="late", partitions=1)])
        assert not former.is_active, "it waited for the end of the suspension"
        await asyncio.sleep(30.0)
        assert "/topics/late" not in cluster.server.nodes

    with_cluster(act)


def test_changes_that_wait_for_a_suspended_session_wait_together_and_not_for_ever() -> None:
    async def act(cluster: Cluster) -> None:
        former, began_s = cluster.controller, asyncio.get_running_loop().time()
        cluster.server.suspend(cluster[1].session.session, 60.0)
        await asyncio.sleep(0.1)
        asked = [former.create_topics([NewTopic(name=f"late-{each}", partitions=1)]) for each in range(5)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in outcomes] == [NotController] * 5
        assert asyncio.get_running_loop().time() - began_s < 2 * SUSPENSION_WAIT_MS / 1000, "virtual time"

    with_cluster(act)


def test_a_change_waits_no_longer_for_a_suspended_session_than_it_may() -> None:
    async def act(cluster: Cluster) -> None:
        cluster.server.suspend(cluster[1].session.session, 3.0)
        await asyncio.sleep(0.1)
        for wait_ms in (0, 500):
            with pytest.raises(NotController):
                await cluster.controller.create_topics([NewTopic(name="late", partitions=1)], wait_ms=wait_ms)
        assert cluster.controller.is_suspended

    with_cluster(act)


def test_the_controller_goes_on_with_its_own_work_after_a_suspension() -> None:
    async def act(cluster: Cluster) -> None:
        cluster.server.suspend(cluster[1].session.session, 2.0)
        await asyncio.sleep(0.1)
        cluster.controller._work.set()
        await asyncio.sleep(0.1)
        assert not cluster.controller._work.is_set(), "it has tried"
        reconciled: list[bool] = []
        reconcile = cluster.controller.reconcile

        async def noted() -> None:
            await reconcile()
            reconciled.append(True)

        cluster.controller.reconcile = noted  # type: ignore[method-assign]
        await cluster.until(lambda: bool(reconciled))

    with_cluster(act)


def test_the_minimum_in_the_controllers_settings_becomes_that_of_a_cluster_without_one() -> None:
    async def act(cluster: Cluster) -> None:
        controller = cluster.controller
        assert "min.insync.replicas" not in controller.image.broker_settings("<default>")
        for broker in cluster.brokers.values():
            broker.controller._in_sync_min = 3
        cluster.server.commit(0, [Delete(CONTROLLER)])
        await cluster.until(lambda: cluster[2].catalog.image.broker_settings("<default>") != {})
        for broker in cluster.brokers.values():
            broker.controller._in_sync_min = 2
        cluster.server.commit(0, [Delete(CONTROLLER)])
        await asyncio.sleep(5)
        assert cluster[2].catalog.image.broker_settings("<default>") == {"min.insync.replicas": "3"}

    with_cluster(act)


class Silent:
    """Hides the outcome of a session's next transactions: they are under way until they are landed."""

    def __init__(self, session: SimSession, server: SimStore) -> None:
        self.session, self.server = session, server
        self.held: list[Any] = []
        self.on = True
        self._multi = session.multi
        self._sync = session.sync
        session.multi = self.multi  # type: ignore[method-assign, assignment]
        session.sync = self.sync  # type: ignore[method-assign]

    def multi(self, operations: Any) -> Any:
        if not self.on:
            return self._multi(operations)
        self.held.append(operations)

        async def unknown() -> int:
            raise OutcomeUnknown("no response")

        return unknown()

    async def sync(self) -> None:
        if self.on:
            raise StoreUnreachable("no response")
        await self._sync()


def test_a_change_of_unknown_outcome_is_not_refused_as_not_done_when_another_broker_becomes_controller() -> None:
    async def act(cluster: Cluster) -> None:
        former = cluster.controller
        silent = Silent(cluster[1].session, cluster.server)
        asked = asyncio.ensure_future(former.create_topics([NewTopic(name="doubtful", partitions=1)]))
        await cluster.until(lambda: bool(silent.held))
        for operations in silent.held:
            cluster.server.commit(cluster[1].session.session, operations)
        cluster.server.expire(cluster[1].session.session)
        await cluster.until(lambda: cluster[2].controller.is_active or cluster[3].controller.is_active)
        successor = cluster[2].controller if cluster[2].controller.is_active else cluster[3].controller
        await successor.create_topics([NewTopic(name="another", partitions=1)])
        silent.on = False
        with pytest.raises(RequestTimedOut):
            await asked
        assert "/topics/doubtful" in cluster.server.nodes

    with_cluster(act)


def test_a_change_that_is_done_and_not_in_the_image_yet_is_not_refused_as_not_done() -> None:
    async def act(cluster: Cluster) -> None:
        cluster[1].catalog.close()
        with pytest.raises(RequestTimedOut):
            await cluster.controller.create_topics([NewTopic(name="done", partitions=1)])
        assert "/topics/done" in cluster.server.nodes

    with_cluster(act)


def test_nothing_is_refused_while_an_earlier_change_may_still_be_written() -> None:
    async def act(cluster: Cluster) -> None:
        assert isinstance(await cluster.alter(1, cluster.change(1, 1, 2)), PartitionState)
        joins = cluster.change(1, 1, 2, 3)
        silent = Silent(cluster[1].session, cluster.server)
        with pytest.raises(RequestTimedOut):
            await cluster.alter(1, joins)
        # Broker 3 is gone: without the first attempt its proposal would be refused for good.
        cluster[3].kill()
        await cluster.until(lambda: broker_path(BrokerId(3)) not in cluster.server.nodes)
        with pytest.raises(RequestTimedOut):
            await cluster.alter(1, joins)
        # The first attempt is done after all, and only then the controller goes on.
        cluster.server.commit(cluster[1].session.session, silent.held[0])
        silent.on = False
        await cluster.until(lambda: cluster[1].state().partition_epoch == joins.partition_epoch + 2)
        assert cluster[1].state().isr == (1, 2)

    with_cluster(act)


def test_the_last_resort_is_elected_when_every_live_replica_has_responded() -> None:
    async def act(cluster: Cluster) -> None:
        for broker in cluster.brokers.values():
            broker.kill()
            broker.record = replace(broker.record, may_have_lost=True)
        await asyncio.sleep(10)
        ends = {1: (5, 10), 2: (6, 1), 3: (5, 99)}
        asked: list[int] = []

        async def log_ends(broker: BrokerId, partitions: Any) -> Any:
            asked.append(broker)
            if asked.count(2) < 2 and broker == 2:
                return {}
            epoch, offset = ends[broker]
            return {tp: LogEnd(epoch=LeaderEpoch(epoch), offset=offset) for tp in partitions}

        for broker in cluster.brokers.values():
            await broker.start()
            broker.controller.ask_log_ends = log_ends
        await cluster.until(lambda: cluster[1].state().leader != NO_LEADER)
        state = cluster[1].state()
        assert (state.leader, state.isr) == (2, (2,))
        assert state.leader_recovery_state is LeaderRecoveryState.RECOVERING
        await cluster.until(lambda: cluster.controller.unclean_elections == 1)

    with_cluster(act)


def test_leaders_are_elected_on_request() -> None:
    async def act(cluster: Cluster) -> None:
        cluster.server.expire(cluster[1].session.session)
        await cluster.until(lambda: cluster[2].state().leader == 2 and cluster[1].epoch != NO_BROKER_EPOCH)
        await cluster.until(lambda: len(cluster[2].catalog.image.live_brokers()) == 3)
        await cluster.until(lambda: sum(each.controller.is_active for each in cluster.brokers.values()) == 1)
        if cluster[2].state().isr != (1, 2, 3):
            assert isinstance(await cluster.alter(2, cluster.change(2, 1, 2, 3)), PartitionState)
        [elected] = await cluster.controller.elect_leaders(Election.PREFERRED, [TP])
        assert isinstance(elected, PartitionState)
        assert elected.leader == 1

    with_cluster(act)


def test_replicas_whose_logs_failed_leave_their_isrs() -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.controller.replicas_failed(cluster[1].id, cluster[1].epoch, [TP], keep_records=True)
        assert (cluster[1].state().leader, cluster[1].state().isr) == (2, (2, 3))

    with_cluster(act)
