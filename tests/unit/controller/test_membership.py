"""Registration and election across sessions, and what a claim of unknown outcome means."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.controller.faulty_cluster import Member
from tests.unit.metadata.virtual_time import SeededRandomness, run_virtual

from penstock.controller.controller import Controller
from penstock.controller.membership import bootstrap_cluster, elect_controller, reached, register
from penstock.controller.outcomes import Claim, Found, Sent, found_after, read_claim
from penstock.controller.topics import NewTopic
from penstock.metadata.nodes import Node
from penstock.metadata.operations import Create, Delete, Operation, Set
from penstock.metadata.records import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    BrokerState,
    ControllerState,
    broker_path,
    pack_controller,
    unpack_controller,
)
from penstock.metadata.store import OutcomeUnknown, StoreFault, StoreUnreachable
from penstock.model.generated_errors import NotController
from penstock.model.topic import TopicState
from penstock.storage.directories import StartRefused
from penstock.testing.sim.store import SimSession, SimSource, SimStore

BROKER = BrokerState(broker_id=1, endpoints=(), rack=None)


def node(data: bytes, version: int = 0, owner: int = 0) -> Node:
    return Node(data=data, version=version, owner=owner, created=1)


def claim_of(epoch: int, owner: int) -> Node:
    return node(pack_controller(ControllerState(broker_id=1, epoch=epoch)), owner=owner)


@pytest.mark.parametrize(
    ("controller", "sent", "claim"),
    [
        (None, {}, Claim.FREE),
        (claim_of(5, owner=8), {5: 1}, Claim.TAKEN),
        (claim_of(5, owner=7), {5: 1}, Claim.WON),
        (claim_of(5, owner=7), {6: 1}, Claim.LATE),
        (claim_of(5, owner=7), {}, Claim.LATE),
    ],
)
def test_a_claim_is_won_by_this_session_with_an_epoch_it_sent(
    controller: Node | None, sent: dict[int, int], claim: Claim
) -> None:
    assert read_claim(controller, 7, sent) is claim


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (node(b"before", 4), Found.PENDING),
        (node(b"mine", 5), Found.DONE),
        (node(b"another", 5), Found.NEVER),
        (node(b"mine", 6), Found.SUPERSEDED),
        (None, Found.SUPERSEDED),
    ],
)
def test_the_node_of_changes_shows_what_became_of_a_transaction(changes: Node | None, found: Found) -> None:
    assert found_after(Sent(mark=b"mine", expected=4), changes) is found


async def bootstrapped(server: SimStore) -> SimSession:
    session = await SimSource(server).open()
    await bootstrap_cluster(session, lambda: "the-cluster")
    return session


def sim_store() -> SimStore:
    return SimStore(SeededRandomness(3), session_timeout_s=4.0)


def test_one_broker_is_controller() -> None:
    async def act() -> None:
        server = sim_store()
        first, second = await bootstrapped(server), await bootstrapped(server)
        won = await elect_controller(first, 1)
        assert won is not None
        assert await elect_controller(second, 2) is None
        found = await second.get(CONTROLLER_EPOCH)
        assert found is not None
        assert (found.data, found.version) == (b"1", won.epoch_version)

    run_virtual(act())


class Unsure(SimSession):
    """Does the next transactions as told, and does not say so."""

    def __init__(self, server: SimStore, outcomes: list[str]) -> None:
        super().__init__(server)
        self.outcomes = outcomes
        self.held: list[list[Operation]] = []

    def multi(self, operations: object) -> object:  # type: ignore[override]
        assert isinstance(operations, list)
        if not self.outcomes:
            return super().multi(operations)
        outcome = self.outcomes.pop(0)
        if outcome == "done":
            self.land(operations)
        elif outcome == "late":
            self.held.append(operations)

        async def unknown() -> int:
            raise OutcomeUnknown(outcome)

        return unknown()

    def land(self, operations: list[Operation]) -> int | StoreFault:
        return self._server.commit(self.session, operations)


@pytest.mark.parametrize("outcomes", [["done"], ["never"], ["late"], ["late", "done"], ["never", "late", "never"]])
def test_an_election_of_unknown_outcome_is_found_out(outcomes: list[str]) -> None:
    async def act() -> None:
        server = sim_store()
        await bootstrapped(server)
        session = Unsure(server, outcomes)
        won = await elect_controller(session, 1)
        assert won is not None
        assert (server.nodes[CONTROLLER].owner, server.nodes[CONTROLLER_EPOCH].version) == (
            session.session,
            won.epoch_version,
        )
        for operations in session.held:
            assert isinstance(session.land(operations), StoreFault), "a claim was done after a later one"

    run_virtual(act())


def test_a_claim_that_was_done_late_is_deleted_and_claimed_again() -> None:
    async def act() -> None:
        server = sim_store()
        session = await bootstrapped(server)
        late = pack_controller(ControllerState(broker_id=1, epoch=1))
        server.commit(session.session, [Create(CONTROLLER, late, ephemeral=True), Set(CONTROLLER_EPOCH, b"1", 0)])

        won = await elect_controller(session, 1)

        assert won is not None
        assert unpack_controller(server.nodes[CONTROLLER].data).epoch == 2
        assert won.epoch_version == server.nodes[CONTROLLER_EPOCH].version == 2

    run_virtual(act())


def test_a_deletion_of_a_late_claim_is_not_done_after_the_next_claim() -> None:
    async def act() -> None:
        server = sim_store()
        await bootstrapped(server)
        session = Unsure(server, [])
        late = pack_controller(ControllerState(broker_id=1, epoch=1))
        server.commit(session.session, [Create(CONTROLLER, late, ephemeral=True), Set(CONTROLLER_EPOCH, b"1", 0)])
        session.outcomes = ["late"]
        assert await elect_controller(session, 1) is not None
        [deletion] = session.held
        assert isinstance(session.land(deletion), StoreFault)

    run_virtual(act())


@pytest.mark.parametrize("outcome", ["done", "never", "late"])
def test_a_registration_of_unknown_outcome_is_found_out(outcome: str) -> None:
    async def act() -> None:
        server = sim_store()
        await bootstrapped(server)
        session = Unsure(server, [outcome])
        epoch = await register(session, BROKER)
        registered = server.nodes[broker_path(1)]
        assert (registered.created, registered.owner) == (epoch, session.session)

    run_virtual(act())


def test_a_registration_waits_for_the_session_of_an_earlier_life_and_refuses_a_second_broker() -> None:
    async def act() -> None:
        server = sim_store()
        first = SimSource(server)
        session = await first.open()
        await bootstrap_cluster(session, lambda: "the-cluster")
        await register(session, BROKER)
        first.kill()
        second = await SimSource(server).open()
        await register(second, BROKER)
        assert server.nodes[broker_path(1)].owner == second.session

        with pytest.raises(StartRefused, match="broker id 1 is registered by another session"):
            await register(await SimSource(server).open(), BROKER)

    run_virtual(act())


async def started(server: SimStore, broker_id: int) -> Member:
    member = Member(broker_id, await SimSource(server).open(), SeededRandomness(broker_id))
    await member.start()
    return member


async def created(controller: Controller, name: str) -> bool:
    [outcome] = await controller.create_topics([NewTopic(name=name, replication_factor=1)])
    return isinstance(outcome, TopicState)


def test_a_broker_that_lost_its_session_registers_and_stands_for_election_again() -> None:
    async def act() -> None:
        server = sim_store()
        member = await started(server, 1)
        epoch = server.nodes[broker_path(1)].created
        assert await created(member.controller, "before")

        server.suspend(member.session.session, 10.0)
        await asyncio.sleep(8.0)
        assert broker_path(1) not in server.nodes
        await asyncio.sleep(8.0)

        assert server.nodes[broker_path(1)].created > epoch
        assert member.catalog.image.brokers[1].epoch == server.nodes[broker_path(1)].created
        assert await created(member.controller, "after")
        member.stop()

    run_virtual(act())


def test_another_broker_becomes_controller_when_the_first_is_gone_and_the_first_is_refused() -> None:
    async def act() -> None:
        server = sim_store()
        first, second = await started(server, 1), await started(server, 2)
        assert (first.controller.is_active, second.controller.is_active) == (True, False)
        with pytest.raises(NotController):
            await created(second.controller, "a")

        # It goes on as if nothing had happened.
        first.tasks.pop().cancel()
        server.commit(0, [Delete(CONTROLLER)])
        await asyncio.sleep(5.0)

        assert second.controller.is_active
        assert await created(second.controller, "a")
        assert first.controller.is_active
        with pytest.raises(NotController):
            await created(first.controller, "b")
        assert not first.controller.is_active
        assert set(second.catalog.image.topics) == {"a"}
        first.stop()
        second.stop()

    run_virtual(act())


def test_a_controller_whose_node_is_gone_claims_again() -> None:
    async def act() -> None:
        server = sim_store()
        member = await started(server, 1)
        server.commit(0, [Delete(CONTROLLER)])
        await asyncio.sleep(5.0)
        assert server.nodes[CONTROLLER].owner == member.session.session
        assert await created(member.controller, "a")
        member.stop()

    run_virtual(act())


def test_a_broker_whose_registration_was_deleted_registers_again() -> None:
    async def act() -> None:
        server = sim_store()
        member = await started(server, 1)
        epoch = member.membership.admitted_epoch
        server.commit(0, [Delete(broker_path(1))])
        await asyncio.sleep(5.0)
        assert server.nodes[broker_path(1)].owner == member.session.session
        assert member.membership.admitted_epoch == server.nodes[broker_path(1)].created > epoch
        member.stop()

    run_virtual(act())


def test_a_session_that_is_lost_while_the_broker_joins_is_noticed() -> None:
    async def act() -> None:
        server = sim_store()
        session = await bootstrapped(server)
        member = Member(1, session, SeededRandomness(1))
        await member.catalog.open(session)
        joining = asyncio.ensure_future(member.membership.join())
        await asyncio.sleep(0.001)
        server.suspend(session.session, 6.0)
        with pytest.raises(StoreUnreachable):
            await joining
        assert await reached(member.membership.join)
        assert server.nodes[broker_path(1)].owner == session.session == server.nodes[CONTROLLER].owner
        member.stop()

    run_virtual(act())
