"""Transactions on a disk in memory: their log, their markers, and their state after a crash."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.eventual import deliver
from tests.unit.groups.coordinator_rig import TURNS_MAX, Groups, offsets_topic
from tests.unit.partition.rig import HOME, NOW_MS, topic

from penstock.api.txn_admin import MarkerWriting
from penstock.coordinator.step import Reply
from penstock.groups.commands import ALL_COMMITTED, CommitEntry, CommitOffsets, CommitTxnOffsets
from penstock.model.clock import SystemClock
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    NotCoordinator,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from penstock.model.ids import TopicPartition
from penstock.model.turns import Turns
from penstock.testing.mem_disk import MemDisk
from penstock.transactions.commands import AddPartitions, EndTransaction, InitProducer, TxnCommand
from penstock.transactions.events import TransactionSaved
from penstock.transactions.markers import MarkerLog
from penstock.transactions.record_formats import encode_event
from penstock.transactions.service import TxnCoordinatorService
from penstock.transactions.state import BUMPING_VERSION, FIRST_VERSION, TxnState
from penstock.wire.api import write_txn_markers as markers_api
from penstock.wire.records import COMMIT_MARKER, RecordBatchBuilder, decode_records, parse_marker

STATE = "__transaction_state"
ORDERS = TopicPartition("orders", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
PRODUCER_ID = 7


class Transactions:
    """One broker's transaction coordinators and group coordinators."""

    def __init__(self, disk: MemDisk | None = None, *, partitions: int = 1, paths: tuple[str, ...] = (HOME,)) -> None:
        state = topic(STATE, partitions, number=98, configs={"cleanup.policy": "compact"})
        self.groups = Groups(offsets_topic(), disk=disk, more=(state,), paths=paths)
        rig = self.rig = self.groups.rig
        ids = iter(range(PRODUCER_ID, PRODUCER_ID + 100))
        self.markers = MarkerLog(replicas=rig.replicas, groups=self.groups.coordinators, clock=rig.clock)
        self.coordinators = TxnCoordinatorService(
            replicas=rig.replicas,
            logs=rig.store,
            image=self.groups.image,
            config=lambda: rig.config,
            clock=rig.clock,
            timers=rig.timers,
            threads=rig.threads,
            log=rig.notes,
            markers=self.markers,
            take_producer_id=lambda: next(ids),
        )
        self.coordinators.start()

    def ask(self, command: TxnCommand) -> Any:
        responses: list[Reply | BrokerError] = []
        deliver(self.coordinators.of(command.transactional_id).submit(command), responses)
        assert len(responses) == 1, f"{len(responses)} responses to {command}"
        return responses[0]

    async def finish(self, command: TxnCommand) -> Any:
        """End a transaction and wait for its markers; returns the response."""
        response = self.ask(command)
        await asyncio.sleep(0)
        return response

    def state(self, name: str = "t") -> TxnState:
        return self.coordinators.of(name).shard().describe(name).state

    async def load(self) -> None:
        """Load all queued partitions."""
        loads = [asyncio.create_task(one.run()) for one in (self.groups.coordinators, self.coordinators)]
        for _ in range(TURNS_MAX):
            if not self.groups.coordinators.loading and not self.coordinators.loading:
                break
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        for one in loads:
            one.cancel()
        await asyncio.wait(loads)
        self.rig.loop.pass_ms(200)

    def outcomes(self, tp: TopicPartition = ORDERS) -> list[bool]:
        """The outcomes of the markers in a partition, in order."""
        log = self.rig.replica(tp.topic, tp.partition).log
        batches = [batch for batch in log.view().walk_from(0, bodies=True) if batch.header.is_control]
        return [parse_marker(decode_records(bytes(batch.data))[0])[0] == COMMIT_MARKER for batch in batches]


def begin(world: Transactions, *partitions: TopicPartition, version: int = BUMPING_VERSION) -> tuple[int, int]:
    made = world.ask(InitProducer(transactional_id="t", timeout_ms=60_000))
    add = AddPartitions(
        transactional_id="t",
        producer_id=made.producer_id,
        epoch=made.epoch,
        partitions=partitions,
        transaction_version=version,
    )
    assert not isinstance(world.ask(add), BrokerError)
    return made.producer_id, made.epoch


def end(producer_id: int, epoch: int, *, commit: bool = True, version: int = BUMPING_VERSION) -> EndTransaction:
    return EndTransaction(
        transactional_id="t", producer_id=producer_id, epoch=epoch, commit=commit, transaction_version=version
    )


def commit_offset(producer_id: int, epoch: int, offset: int) -> CommitTxnOffsets:
    entry = CommitEntry("orders", 0, offset)
    commit = CommitOffsets(group="g", member_id="", group_instance_id=None, generation=-1, entries=(entry,), version=5)
    return CommitTxnOffsets(producer_id=producer_id, producer_epoch=epoch, commit=commit)


def test_a_commit_reaches_every_partition_and_is_then_complete() -> None:
    async def act() -> None:
        world = Transactions()
        producer_id, epoch = begin(world, ORDERS, TopicPartition("orders", 1), OFFSETS)
        assert await world.groups.response(commit_offset(producer_id, epoch, 5)) == ALL_COMMITTED
        assert world.groups.offsets() == {}
        assert world.groups.of().shard().unsettled("g", "orders", 0)

        ended = await world.finish(end(producer_id, epoch))

        assert (ended.producer_id, ended.epoch) == (producer_id, epoch + 1)
        assert world.state() is TxnState.COMPLETE_COMMIT
        assert world.outcomes() == world.outcomes(TopicPartition("orders", 1)) == world.outcomes(OFFSETS) == [True]
        assert world.groups.offsets() == {("orders", 0): 5}

    asyncio.run(act())


def test_an_abort_discards_the_offsets() -> None:
    async def act() -> None:
        world = Transactions()
        producer_id, epoch = begin(world, OFFSETS, version=FIRST_VERSION)
        await world.groups.response(commit_offset(producer_id, epoch, 5))

        await world.finish(end(producer_id, epoch, commit=False, version=FIRST_VERSION))

        assert world.state() is TxnState.COMPLETE_ABORT
        assert world.outcomes(OFFSETS) == [False]
        assert world.groups.offsets() == {}
        assert not world.groups.of().shard().unsettled("g", "orders", 0)

    asyncio.run(act())


def test_an_open_transaction_and_its_offsets_survive_a_crash() -> None:
    async def act() -> None:
        world = Transactions()
        producer_id, epoch = begin(world, ORDERS, OFFSETS)
        await world.groups.response(commit_offset(producer_id, epoch, 5))

        again = Transactions(world.rig.stop(clean=False))
        await again.load()

        assert again.state() is TxnState.ONGOING
        assert again.groups.offsets() == {}
        assert again.groups.of().shard().unsettled("g", "orders", 0)
        await again.finish(end(producer_id, epoch))
        assert again.groups.offsets() == {("orders", 0): 5}

        third = Transactions(again.rig.stop(clean=False))
        await third.load()
        assert third.groups.offsets() == {("orders", 0): 5}
        assert not third.groups.of().shard().unsettled("g", "orders", 0)

    asyncio.run(act())


def test_a_transaction_prepared_before_a_crash_is_completed_after_it() -> None:
    async def act() -> None:
        world = Transactions()
        producer_id, epoch = begin(world, ORDERS, OFFSETS)
        await world.groups.response(commit_offset(producer_id, epoch, 5))
        ongoing = world.coordinators.of("t").shard().describe("t")
        decided = replace(ongoing, state=TxnState.PREPARE_COMMIT, epoch=epoch + 1)
        key, value = encode_event(TransactionSaved(decided))
        builder = RecordBatchBuilder()
        builder.add(NOW_MS, key, value)
        world.rig.append(world.rig.replica(STATE), builder.build(), internal=True)

        again = Transactions(world.rig.stop(clean=False))
        await again.load()

        assert again.state() is TxnState.COMPLETE_COMMIT
        assert again.outcomes() == again.outcomes(OFFSETS) == [True]
        assert again.groups.offsets() == {("orders", 0): 5}

    asyncio.run(act())


def test_a_corrupt_batch_of_the_log_loses_its_transaction_and_not_the_coordinator() -> None:
    async def act() -> None:
        world = Transactions()
        for name in ("a", "b", "c"):
            world.ask(InitProducer(transactional_id=name, timeout_ms=60_000))
        log = world.rig.replica(STATE).log
        second = [found.position + found.header.size for found in log.view().walk_from(0, bodies=True)][1]
        disk = world.rig.stop()
        disk.flip(f"{HOME}/{STATE}-0/{0:020d}.log", second - 2)

        again = Transactions(disk)
        await again.load()

        assert [again.state(name) for name in ("a", "c")] == [TxnState.EMPTY, TxnState.EMPTY]
        with pytest.raises(TransactionalIdNotFound):
            again.state("b")
        [lost] = again.rig.notes.named("coordinator_records_lost")
        assert (lost["topic"], lost["offset"]) == (STATE, 1)

    asyncio.run(act())


def test_a_partition_that_was_not_added_is_not_verified() -> None:
    async def act() -> None:
        world = Transactions()
        producer_id, epoch = begin(world, ORDERS)

        verify = world.coordinators.verify
        assert verify("t", ORDERS, producer_id, epoch) is None
        assert isinstance(verify("t", TopicPartition("orders", 1), producer_id, epoch), TransactionAbortable)
        assert isinstance(verify("t", ORDERS, producer_id, epoch + 1), ProducerFenced)

    asyncio.run(act())


def test_a_deleted_topic_does_not_block_a_transaction() -> None:
    async def act() -> None:
        world = Transactions()
        producer_id, epoch = begin(world, ORDERS, OFFSETS)
        world.groups.change(world.groups.image.topics["orders"], None)

        await world.finish(end(producer_id, epoch))

        assert world.state() is TxnState.COMPLETE_COMMIT
        assert world.outcomes(OFFSETS) == [True]

    asyncio.run(act())


def test_the_end_txn_response_precedes_the_markers() -> None:
    async def act() -> None:
        world = Transactions()
        producer_id, epoch = begin(world, ORDERS)

        world.ask(end(producer_id, epoch))

        assert world.state() is TxnState.PREPARE_COMMIT
        assert world.outcomes() == []
        await asyncio.sleep(0)
        assert world.state() is TxnState.COMPLETE_COMMIT
        assert world.outcomes() == [True]

    asyncio.run(act())


def test_an_end_that_timed_out_is_completed_when_the_disk_is_back() -> None:
    async def act() -> None:
        world = Transactions()
        producer_id, epoch = begin(world, ORDERS)
        state = world.groups.image.topics[STATE]
        world.groups.change(state, replace(state, configs={**state.configs, "flush": "group"}))
        responses: list[Reply | BrokerError] = []

        deliver(world.coordinators.of("t").submit(end(producer_id, epoch)), responses)
        world.rig.loop.pass_ms(world.rig.config.request_timeout_ms + 100)

        assert [type(response) for response in responses] == [CoordinatorNotAvailable]
        assert world.outcomes() == []
        for _ in range(3):
            world.rig.flush()
            await asyncio.sleep(0)
        assert world.outcomes() == [True]

    asyncio.run(act())


def test_markers_of_many_partitions_yield_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        monkeypatch.setattr("penstock.transactions.context.MARKERS_PER_TURN_MAX", 1)
        world = Transactions()
        second = TopicPartition("orders", 1)
        producer_id, epoch = begin(world, ORDERS, second)

        await world.finish(end(producer_id, epoch))

        assert (world.outcomes(), world.outcomes(second)) == ([True], [])
        assert world.state() is TxnState.PREPARE_COMMIT
        await asyncio.sleep(0)
        assert world.outcomes(second) == [True]
        assert world.state() is TxnState.COMPLETE_COMMIT

    asyncio.run(act())


def test_a_crash_between_two_markers_leaves_no_partition_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act() -> None:
        monkeypatch.setattr("penstock.transactions.context.MARKERS_PER_TURN_MAX", 1)
        world = Transactions()
        second = TopicPartition("orders", 1)
        producer_id, epoch = begin(world, ORDERS, second)
        await world.finish(end(producer_id, epoch))
        assert (world.outcomes(), world.outcomes(second)) == ([True], [])

        # The crashed coordinator writes nothing more.
        world.coordinators.close()
        again = Transactions(world.rig.stop(clean=False))
        await again.load()
        await asyncio.sleep(0)

        assert again.state() is TxnState.COMPLETE_COMMIT
        # The first gets its marker twice, as its completion was not recorded; consumers see no difference.
        assert set(again.outcomes()) == set(again.outcomes(second)) == {True}

    asyncio.run(act())


async def written_by_request(
    world: Transactions, marker: markers_api.WritableTxnMarker, *, budget_s: float = 60
) -> Eventual[markers_api.Response]:
    """The result of a request for one marker; with a budget of 0 it yields to the loop after each step."""
    writing = MarkerWriting(
        world.markers,
        markers_api.Request(markers=[marker]),
        timers=world.rig.timers,
        timeout_ms=world.rig.config.request_timeout_ms,
    )
    return await writing.run(Turns(asyncio.get_running_loop().call_soon, SystemClock().monotonic, budget_s))


@pytest.mark.parametrize("disk_is_back", [False, True])
def test_a_request_for_markers_succeeds_or_times_out_and_leaves_no_waiter(*, disk_is_back: bool) -> None:
    async def act() -> None:
        world = Transactions()
        orders = world.groups.image.topics["orders"]
        world.groups.change(orders, replace(orders, configs={"flush": "group"}))
        responses = list[markers_api.Response]()
        asked = markers_api.WritableTxnMarker(
            producer_id=PRODUCER_ID,
            topics=[markers_api.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
        )
        replica = world.rig.replica("orders")
        timers_before = len(world.rig.timers)

        response = await written_by_request(world, asked)
        assert isinstance(response, Deferred)
        deliver(response, responses)
        if disk_is_back:
            world.rig.flush()
        else:
            world.rig.loop.pass_ms(world.rig.config.request_timeout_ms + 100)
        await asyncio.sleep(0)

        [response] = responses
        assert response.markers[0].topics[0].partitions[0].error_code == (0 if disk_is_back else RequestTimedOut.code)
        assert (len(replica._commit_waiters), len(world.rig.timers)) == (0, timers_before)

    asyncio.run(act())


def test_many_markers_of_one_request_yield_to_the_loop() -> None:
    async def act() -> None:
        world = Transactions()
        second = TopicPartition("orders", 1)
        asked = markers_api.WritableTxnMarker(
            producer_id=PRODUCER_ID,
            topics=[markers_api.WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 9, 1])],
        )
        timers_before = len(world.rig.timers)

        writing = asyncio.create_task(written_by_request(world, asked, budget_s=0))
        seen = list[tuple[list[bool], list[bool]]]()
        while not writing.done():
            await asyncio.sleep(0)
            seen.append((world.outcomes(), world.outcomes(second)))

        assert ([False], []) in seen, "the second marker is not written in the turn of the first"
        response = writing.result()
        assert isinstance(response, markers_api.Response)
        (marked,) = response.markers[0].topics
        codes = [(result.partition_index, result.error_code) for result in marked.partitions]
        assert codes == [(0, 0), (9, UnknownTopicOrPartition.code), (1, 0)]
        assert len(world.rig.timers) == timers_before

    asyncio.run(act())


@pytest.mark.parametrize("topic_name", ["__consumer_offsets", "orders"])
def test_a_marker_for_a_negative_partition_is_rejected(topic_name: str) -> None:
    async def act() -> None:
        world = Transactions()

        with pytest.raises((NotCoordinator, UnknownTopicOrPartition)):
            world.markers.write(
                TopicPartition(topic_name, -1),
                producer_id=PRODUCER_ID,
                epoch=0,
                commit=True,
                coordinator_epoch=0,
                transaction_version=0,
            )

        assert world.outcomes(OFFSETS) == []
        with pytest.raises(NotCoordinator):
            world.coordinators.at(-1)

    asyncio.run(act())
