"""What the leader of a target partition accepts of schedules, and what it takes for a duplicate."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.partition.rig import Rig, everything, topic

from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    InvalidProducerEpoch,
    InvalidRecord,
    MessageTooLarge,
    OutOfOrderSequenceNumber,
)
from penstock.model.ids import ProducerEpoch, ProducerId
from penstock.model.producers import schedule_producer_id
from penstock.partition.deduplication import ids_of
from penstock.partition.redirect import Drain
from penstock.partition.replica import RefusedDelivery, Replica
from penstock.partition.results import Appended
from penstock.testing.manual import NOW_MS
from penstock.wire.records import Record, build_batch

SCHEDULES = schedule_producer_id(ProducerId(7))
SMALL = {"max.message.bytes": "200"}


def delivery(sequence: int, *contents: bytes, epoch: int = 0, producer: ProducerId = SCHEDULES) -> memoryview:
    records = [Record(at, NOW_MS, b"k", value) for at, value in enumerate(contents or (b"%d" % sequence,))]
    return memoryview(
        build_batch(records, producer_id=producer, producer_epoch=ProducerEpoch(epoch), base_sequence=sequence)
    )


def accept(replica: Replica, batch: memoryview) -> int:
    return replica.accept_delivery(batch, NOW_MS)


def test_what_was_accepted_is_a_duplicate_however_old_and_idle_it_is() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    for sequence in range(20):
        assert accept(replica, delivery(sequence)) == sequence + 1

    replica.producers.expire(2**62, 0)

    assert accept(replica, delivery(3)) == 20
    assert replica.offsets.log_end == 20


def test_a_gap_is_refused_and_a_new_epoch_begins_at_zero() -> None:
    replica = Rig(topic()).replica()
    with pytest.raises(OutOfOrderSequenceNumber):
        accept(replica, delivery(5))
    accept(replica, delivery(0, b"a", b"b"))
    with pytest.raises(OutOfOrderSequenceNumber):
        accept(replica, delivery(1, b"b", b"c"))
    with pytest.raises(OutOfOrderSequenceNumber):
        accept(replica, delivery(3))
    with pytest.raises(OutOfOrderSequenceNumber):
        accept(replica, delivery(2, epoch=1))
    assert accept(replica, delivery(0, epoch=1)) == 3
    with pytest.raises(InvalidProducerEpoch):
        accept(replica, delivery(2))


def test_what_is_refused_for_good_is_not_accepted_when_settings_change() -> None:
    rig = Rig(topic(configs=SMALL))
    replica = rig.replica()
    accept(replica, delivery(0))

    with pytest.raises(RefusedDelivery) as refused:
        accept(replica, delivery(1, b"x" * 500))
    replica.configure(*rig.replicas.settings({}))

    assert isinstance(refused.value.reason, MessageTooLarge)
    with pytest.raises(InvalidProducerEpoch):
        accept(replica, delivery(1, b"x" * 500))
    assert accept(replica, delivery(0, b"next", epoch=1)) == refused.value.end + 1


def test_a_drained_partition_accepts_nothing_now_or_later() -> None:
    replica = Rig(topic()).replica()
    accept(replica, delivery(0))
    replica.detour = Drain(partition=0, target=1, leader_epoch=replica.role.leader_epoch)

    assert accept(replica, delivery(0)) == 1
    with pytest.raises(RefusedDelivery) as refused:
        accept(replica, delivery(1))
    assert isinstance(refused.value.reason, InvalidProducerEpoch)

    replica.detour = None
    with pytest.raises(InvalidProducerEpoch):
        accept(replica, delivery(1))


def test_of_a_message_id_one_record_is_readable_whether_a_schedule_or_a_producer_brings_it() -> None:
    rig = Rig(topic(configs={"dedupe.window.records": "100"}))
    replica = rig.replica()

    def batch(sequence: int, *ids: bytes) -> memoryview:
        records = [Record(at, NOW_MS, b"k", each, [("penstock-msg-id", each)]) for at, each in enumerate(ids)]
        if sequence < 0:
            return memoryview(build_batch(records))
        epoch = ProducerEpoch(0)
        return memoryview(build_batch(records, producer_id=SCHEDULES, producer_epoch=epoch, base_sequence=sequence))

    async def produce(*ids: bytes) -> None:
        appended = replica.append(batch(-1, *ids), NOW_MS)
        if not isinstance(appended, Appended):
            await appended

    async def story() -> None:
        with pytest.raises(CoordinatorLoadInProgress):
            accept(replica, batch(0, b"a", b"b"))
        await replica.read_ids()
        assert accept(replica, batch(0, b"a", b"b")) == 2
        await produce(b"b", b"c")
        assert accept(replica, batch(2, b"c", b"d")) == 6
        assert accept(replica, batch(4, b"d")) == 7
        # Sequences go on, also past a record that was removed, and what was sent before is a duplicate.
        assert accept(replica, batch(2, b"c", b"d")) == 7
        assert accept(replica, batch(5, b"e")) == 8

    asyncio.run(story())
    assert [record.value for record in everything(replica)] == [b"a", b"b", b"c", b"d", b"e"]
    assert replica.dedupe is not None
    known = ids_of(batch(0, b"a", b"b", b"c", b"d", b"e"))
    live = replica.dedupe.repeated(known, replica.log)
    # The next leader reads the same window.
    replica.dedupe.forget()
    asyncio.run(replica.read_ids())
    assert replica.dedupe.repeated(known, replica.log) == live == {0, 1, 2, 3, 4}


def test_only_batches_of_schedules_are_accepted() -> None:
    replica = Rig(topic()).replica()
    with pytest.raises(InvalidRecord):
        accept(replica, delivery(0, producer=ProducerId(7)))
