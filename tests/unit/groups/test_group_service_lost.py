"""A coordinator whose log directory fails: its requests fail, and other coordinators are not affected."""

import asyncio
import errno
from typing import Any

import pytest
from tests.unit.groups.coordinator_rig import Groups, commit, join, with_groups
from tests.unit.transactions.test_txn_service import ORDERS, STATE, Transactions

from penstock.coordinator.runtime import partition_of
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidProducerIdMapping, NotCoordinator
from penstock.testing.mem_disk import MemDisk
from penstock.transactions.commands import AddPartitions, EndTransaction, InitProducer
from penstock.transactions.state import BUMPING_VERSION, TxnState

PATHS = ("/one", "/two")
NAMES = {partition_of(name, 2): name for name in ("t0", "t1", "t2", "t3")}
"""A transactional id for each of two partitions."""


def two_directories(disk: MemDisk | None = None) -> Transactions:
    world = Transactions(disk, partitions=2, paths=PATHS)
    first, second = (world.rig.replica(STATE, partition).log.directory for partition in range(2))
    assert first is not second, "each partition of the coordinators' topic is on a disk of its own"
    return world


def init(name: str) -> InitProducer:
    return InitProducer(transactional_id=name, timeout_ms=60_000)


def opened(world: Transactions, name: str) -> Any:
    """A producer with an open transaction in `orders`."""
    made = world.ask(init(name))
    asked = AddPartitions(
        transactional_id=name,
        producer_id=made.producer_id,
        epoch=made.epoch,
        partitions=(ORDERS,),
        transaction_version=BUMPING_VERSION,
    )
    assert not isinstance(world.ask(asked), BrokerError)
    return made


def end_of(name: str, made: Any) -> EndTransaction:
    return EndTransaction(
        transactional_id=name,
        producer_id=made.producer_id,
        epoch=made.epoch,
        commit=True,
        transaction_version=BUMPING_VERSION,
    )


def fail(world: Transactions, partition: int) -> None:
    """Make every further write to a directory fail."""
    path = world.rig.replica(STATE, partition).log.directory.path
    world.rig.disk.fail("append", path, errno.EIO)


def test_a_commit_that_fails_with_the_disk_writes_no_marker() -> None:
    async def act() -> None:
        world = two_directories()
        lost, kept = NAMES[0], NAMES[1]
        made = opened(world, lost)
        opened(world, kept)
        fail(world, 0)

        refused = await world.finish(end_of(lost, made))
        world.coordinators.end_offline()

        assert isinstance(refused, NotCoordinator)
        with pytest.raises(NotCoordinator):
            world.ask(end_of(lost, made))
        world.rig.loop.pass_ms(120_000)
        assert world.outcomes() == [], "nothing was decided, not even by a timeout"
        assert [one.partition for one in world.coordinators.serving()] == [1]

    asyncio.run(act())


def test_transactional_ids_on_another_disk_are_not_affected() -> None:
    async def act() -> None:
        world = two_directories()
        made = opened(world, NAMES[1])
        fail(world, 0)
        assert isinstance(world.ask(init(NAMES[0])), NotCoordinator)
        world.coordinators.end_offline()

        ended = await world.finish(end_of(NAMES[1], made))

        assert not isinstance(ended, BrokerError)
        assert world.coordinators.is_online(1)
        assert not world.coordinators.is_online(0)

    asyncio.run(act())


def test_a_transaction_continues_when_the_disk_is_back() -> None:
    async def act() -> None:
        world = two_directories()
        made = opened(world, NAMES[0])
        fail(world, 0)
        assert isinstance(await world.finish(end_of(NAMES[0], made)), NotCoordinator)
        world.coordinators.close()
        disk = world.rig.stop(clean=False)
        disk.faults.clear()

        again = two_directories(disk)
        await again.load()

        assert again.state(NAMES[0]) is TxnState.ONGOING
        assert not isinstance(await again.finish(end_of(NAMES[0], made)), BrokerError)
        assert again.state(NAMES[0]) is TxnState.COMPLETE_COMMIT

    asyncio.run(act())


def test_transactional_ids_of_an_emptied_disk_are_new_and_old_producers_cannot_end_a_transaction() -> None:
    async def act() -> None:
        world = two_directories()
        name = NAMES[0]
        made = opened(world, name)
        folder = world.rig.replica(STATE, 0).log.directory.path
        world.coordinators.close()
        disk = world.rig.stop()
        disk.remove_tree(folder)

        again = two_directories(disk)
        await again.load()

        assert isinstance(again.ask(end_of(name, made)), InvalidProducerIdMapping)
        assert again.outcomes() == []
        initialized = again.ask(init(name))
        assert not isinstance(initialized, BrokerError)
        assert initialized.epoch == 0

    asyncio.run(act())


def test_requests_waiting_for_a_group_fail_at_once_when_its_disk_fails() -> None:
    async def act(groups: Groups) -> None:
        joining = groups.ask(join())
        assert joining == []
        groups.rig.disk.fail("append", "/", errno.EIO)
        refused = groups.ask(commit(7, "another"))
        await asyncio.sleep(0)

        groups.coordinators.end_offline()

        assert [type(response) for response in refused] == [NotCoordinator]
        assert len(joining) == 1
        with pytest.raises(NotCoordinator):
            groups.of()

    with_groups(act)


def test_a_disk_that_fails_before_the_load_does_not_block_listing() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        loaded = groups.again()
        assert loaded.coordinators.loading == 1
        loaded.rig.store.all_directories[0].go_offline("gone")

        await loaded.load(lambda: loaded.rig.notes.named("coordinator_not_loaded"))

        assert list(loaded.coordinators.serving()) == []
        with pytest.raises(NotCoordinator):
            loaded.of()

    with_groups(act)
