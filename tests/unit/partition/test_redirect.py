"""Drained partitions: what their leader hands over, what the target accepts, and how they resume."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.partition.rig import Rig, batch, topic, values

from penstock.api.offsets import Offsets
from penstock.model.generated_errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidRecord,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownLeaderEpoch,
)
from penstock.model.ids import LeaderEpoch, ProducerEpoch, ProducerId
from penstock.model.producers import PRODUCER_ID_MAX
from penstock.model.topic import TopicState
from penstock.partition import redirect as rules
from penstock.partition.producers import ProducerTable
from penstock.partition.redirect import (
    AdoptedProducer,
    Drain,
    Handover,
    Resumption,
    Source,
    Sources,
    adoptable,
    derived_id,
    is_derived,
    producers_of,
    source_of,
)
from penstock.partition.replica import Replica
from penstock.partition.results import Appended
from penstock.wire.api import offset_for_leader_epoch as by_epoch
from penstock.wire.records import FENCE, decode_records, iter_batches, parse_marker

PRODUCER = 5


def drained(epoch: int = 1) -> TopicState:
    """A topic of three partitions, the last of which is drained into the first."""
    made = topic(partitions=3)
    first, second, last = made.partitions
    return replace(made, partitions=(first, second, replace(last, leader_epoch=epoch, drained_into=0)))


def resuming(epoch: int = 2) -> TopicState:
    made = topic(partitions=3)
    first, second, last = made.partitions
    return replace(made, partitions=(first, second, replace(last, leader_epoch=epoch, resumes_from=0)))


def source(epoch: int = 1, known: int = 0) -> Source:
    return Source(2, LeaderEpoch(epoch), LeaderEpoch(0), LeaderEpoch(known))


def sent(sequence: int, *texts: bytes, producer_id: int = PRODUCER, epoch: int = 0) -> memoryview:
    made = batch(*(texts or (b"%d" % sequence,)), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return memoryview(made)


def ready(rig: Rig) -> Replica:
    """The drained partition, whose barrier is committed."""
    replica = rig.replica(partition=2)
    assert isinstance(replica.detour, Drain)
    assert replica.detour.barrier is None
    handed(rig, replica, memoryview(batch(b"first")))
    assert replica.detour.barrier == replica.offsets.high_watermark, "the only replica commits at once"
    return replica


def handed(rig: Rig, replica: Replica, records: memoryview) -> tuple[Handover, bytearray]:
    found = replica.hand_over(records, rig.clock.ms, version=9, proof=None)
    assert not isinstance(found, Appended)
    return found


def redirect(rig: Rig, sequence: int, *texts: bytes, epoch: int = 0, source_epoch: int = 1) -> Appended:
    """Send a batch to the drained partition, and append what it hands over to its target."""
    handover, made = handed(rig, rig.replica(partition=2), sent(sequence, *texts, epoch=epoch))
    appended = rig.replica().accept(
        source(source_epoch), handover, memoryview(made), rig.clock.ms, acks_all=True, version=9
    )
    assert isinstance(appended, Appended)
    return appended


def test_a_derived_producer_id_names_its_producer_and_partition() -> None:
    derived = derived_id(ProducerId(PRODUCER), 2)

    assert is_derived(derived)
    assert source_of(derived) == (PRODUCER, 2)
    assert derived_id(ProducerId(PRODUCER_ID_MAX), 3) != derived_id(ProducerId(PRODUCER_ID_MAX), 2)
    assert derived_id(ProducerId(-1), 2) == -1


def test_a_drained_partition_accepts_no_records() -> None:
    rig = Rig(drained())

    with pytest.raises(NotLeaderOrFollower):
        rig.append(rig.replica(partition=2), batch(b"a"))


def test_a_batch_is_appended_to_the_target_under_a_derived_producer_id() -> None:
    rig = Rig(drained())
    ready(rig)

    assert redirect(rig, 0, b"a", b"b").base_offset == 0
    assert redirect(rig, 2, b"c").base_offset == 2
    assert values(rig.replica()) == [b"a", b"b", b"c"]
    found = rig.replica().producers.get(derived_id(ProducerId(PRODUCER), 2))
    assert found is not None
    assert found.batches[-1][0] == 2
    assert rig.replica().producers.get(ProducerId(PRODUCER)) is None


def test_a_batch_without_a_producer_is_handed_over_as_it_is() -> None:
    rig = Rig(drained())
    ready(rig)
    records = batch(b"a")

    handover, made = handed(rig, rig.replica(partition=2), memoryview(records))

    assert handover.producer_id == -1
    assert made == records


def test_damage_is_not_hidden_by_the_new_checksum() -> None:
    rig = Rig(drained())
    ready(rig)
    damaged = bytearray(sent(0))
    damaged[-1] ^= 1

    with pytest.raises(CorruptMessage):
        rig.replica(partition=2).hand_over(memoryview(damaged), rig.clock.ms, version=9, proof=None)


def test_a_client_cannot_use_a_derived_producer_id() -> None:
    rig = Rig(drained())
    ready(rig)
    derived = derived_id(ProducerId(PRODUCER), 2)

    with pytest.raises(InvalidRecord):
        rig.append(rig.replica(), sent(0, producer_id=derived))
    with pytest.raises(InvalidRecord):
        rig.replica(partition=2).hand_over(sent(0, producer_id=derived), rig.clock.ms, version=9, proof=None)


def test_nothing_is_handed_over_before_a_record_of_the_leader_epoch_is_committed() -> None:
    rig = Rig(drained())
    replica = rig.replica(partition=2)

    drain = Drain(partition=2, target=0, leader_epoch=LeaderEpoch(1))
    with pytest.raises(NotEnoughReplicas):
        drain.check_ready(replica.offsets.high_watermark)
    drain.barrier = replica.offsets.log_end
    drain.check_ready(replica.offsets.high_watermark)


def test_a_drained_partition_remembers_where_a_new_producer_begins() -> None:
    drain = Drain(partition=2, target=0, leader_epoch=LeaderEpoch(1))
    known = table((0, 4))

    def begins_at(sequence: int, *, epoch: int = 0, own: ProducerTable | None = None) -> int:
        found = drain.hand_over(
            ProducerTable() if own is None else own,
            ProducerId(PRODUCER),
            ProducerEpoch(epoch),
            sequence,
            0,
            transactional=False,
            proof=None,
        )
        assert isinstance(found, Handover)
        return found.begins_at

    def note(sequence: int, *, epoch: int = 0, own: ProducerTable | None = None, now_ms: int = 0) -> None:
        producers = ProducerTable() if own is None else own
        drain.note(producers, ProducerId(PRODUCER), ProducerEpoch(epoch), sequence, now_ms)

    note(5, own=known)
    assert begins_at(5) == -1, "the partition knows where it goes on"
    note(5)
    note(6)
    assert begins_at(6) == 5
    note(3)
    assert begins_at(6) == 3
    assert begins_at(0, epoch=1) == -1
    note(0, epoch=1)
    note(7)
    assert begins_at(1, epoch=1) == 0
    note(8, epoch=1, now_ms=rules.BEGUN_MS_MAX)
    assert begins_at(8, epoch=1) == 8, "the target may have forgotten the producer"
    drain.forget(ProducerId(PRODUCER))
    assert begins_at(9, epoch=1) == -1


def test_few_new_producers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "BEGUN_MAX", 2)
    drain = Drain(partition=2, target=0, leader_epoch=LeaderEpoch(1))
    for producer_id in range(3):
        drain.note(ProducerTable(), ProducerId(producer_id), ProducerEpoch(0), 0, 0)

    assert list(drain._begun) == [1, 2]


def test_a_retry_of_a_batch_that_the_drained_partition_has_is_answered_from_it() -> None:
    rig = Rig(topic(partitions=3))
    replica = rig.replica(partition=2)
    rig.append(replica, sent(0, b"a"))
    rig.change(topic(partitions=3), drained())
    ready(rig)

    found = replica.hand_over(sent(0, b"a"), rig.clock.ms, version=9, proof=None)

    assert isinstance(found, Appended)
    assert found.base_offset == 0
    assert values(rig.replica()) == []


def test_sequences_in_the_target_continue_those_of_the_drained_partition() -> None:
    rig = Rig(topic(partitions=3))
    rig.append(rig.replica(partition=2), sent(0, b"a"))
    rig.change(topic(partitions=3), drained())
    ready(rig)

    with pytest.raises(OutOfOrderSequenceNumber):
        redirect(rig, 2, b"c")
    redirect(rig, 1, b"b")
    redirect(rig, 2, b"c")
    assert values(rig.replica()) == [b"b", b"c"]


def test_an_older_epoch_of_a_producer_is_fenced_by_what_the_drained_partition_knows() -> None:
    rig = Rig(topic(partitions=3))
    rig.append(rig.replica(partition=2), sent(0, b"a", epoch=3))
    rig.change(topic(partitions=3), drained())
    ready(rig)

    with pytest.raises(InvalidProducerEpoch):
        redirect(rig, 1, b"b", epoch=2)
    redirect(rig, 0, b"b", epoch=4)


def test_a_retry_of_a_batch_that_the_target_has_is_a_duplicate() -> None:
    rig = Rig(drained())
    ready(rig)
    first = redirect(rig, 0, b"a")

    assert redirect(rig, 0, b"a").base_offset == first.base_offset
    assert values(rig.replica()) == [b"a"]


def test_a_batch_that_was_overtaken_by_a_later_request_is_refused() -> None:
    sources, producer, other = Sources(), derived_id(ProducerId(PRODUCER), 2), derived_id(ProducerId(6), 2)
    sources.check(source(), 1, producer)
    sources.check(source(), 4, producer, ends=True)

    with pytest.raises(FencedLeaderEpoch):
        sources.check(source(), 3, producer)
    with pytest.raises(FencedLeaderEpoch):
        sources.check(source(), 2, producer, ends=True)
    sources.check(source(), 2, other)
    sources.check(source(), 5, producer)
    with pytest.raises(FencedLeaderEpoch):
        sources.check(source(), 5, producer, ends=True)


def test_two_batches_of_a_producer_may_overtake_each_other() -> None:
    sources, producer = Sources(), derived_id(ProducerId(PRODUCER), 2)
    sources.check(source(), 2, producer)
    sources.check(source(), 1, producer)


def test_what_is_forgotten_of_producers_is_refused_rather_than_accepted_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "PRODUCERS_REMEMBERED_MAX", 2)
    sources = Sources()
    for number in range(1, 4):
        sources.check(source(), number, derived_id(ProducerId(number), 2), ends=True)

    with pytest.raises(FencedLeaderEpoch):
        sources.check(source(), 1, derived_id(ProducerId(1), 2))
    sources.check(source(), 4, derived_id(ProducerId(1), 2))


def test_an_older_leader_of_the_drained_partition_is_refused() -> None:
    sources = Sources()
    sources.fence(source(epoch=2), 1)

    with pytest.raises(FencedLeaderEpoch):
        sources.check(source(), 9, derived_id(ProducerId(PRODUCER), 2))
    with pytest.raises(FencedLeaderEpoch):
        Sources().check(source(known=2), 1, derived_id(ProducerId(PRODUCER), 2))


def test_a_request_for_another_leader_epoch_of_the_target_is_refused() -> None:
    rig = Rig(drained())
    ready(rig)
    handover, made = handed(rig, rig.replica(partition=2), sent(0))
    early = source()._replace(target_epoch=LeaderEpoch(7))

    with pytest.raises(UnknownLeaderEpoch):
        rig.replica().accept(early, handover, memoryview(made), rig.clock.ms, acks_all=True, version=9)


def test_a_partition_that_resumes_accepts_records_once_it_knows_what_the_target_has() -> None:
    rig = Rig(drained())
    ready(rig)
    for sequence in range(3):
        redirect(rig, sequence)
    rig.change(drained(), resuming())
    replica = rig.replica(partition=2)
    with pytest.raises(NotEnoughReplicas):
        rig.append(replica, sent(3))

    _, known = rig.replica().accept_fence(source(epoch=2), 1, rig.clock.ms)
    replica.adopt(known, rig.clock.ms)

    rig.append(replica, sent(3, b"after"))
    again = rig.append(replica, sent(2))
    assert again.end <= replica.offsets.log_end
    assert values(replica)[-1:] == [b"after"]
    with pytest.raises(OutOfOrderSequenceNumber):
        rig.append(replica, sent(5))


def test_the_target_accepts_nothing_of_the_drained_partition_after_the_fence() -> None:
    rig = Rig(drained())
    ready(rig)
    handover, made = handed(rig, rig.replica(partition=2), sent(0))
    rig.replica().accept_fence(source(epoch=2), 1, rig.clock.ms)

    with pytest.raises(FencedLeaderEpoch):
        rig.replica().accept(source(), handover, memoryview(made), rig.clock.ms, acks_all=True, version=9)


def test_what_a_partition_adopted_is_known_after_a_restart() -> None:
    rig = Rig(drained())
    ready(rig)
    for sequence in range(7):
        redirect(rig, sequence)
    rig.change(drained(), resuming())
    _, known = rig.replica().accept_fence(source(epoch=2), 1, rig.clock.ms)
    rig.replica(partition=2).adopt(known, rig.clock.ms)
    after = topic(partitions=3, epoch=3)

    rig = Rig(after, disk=rig.stop(clean=False))

    replica = rig.replica(partition=2)
    end = replica.offsets.log_end
    for sequence in range(3, 7):
        rig.append(replica, sent(sequence))
    assert replica.offsets.log_end == end, "a retry was appended"
    rig.append(replica, sent(7))
    assert values(rig.replica())[:7] == [b"%d" % sequence for sequence in range(7)]


def test_epochs_without_records_of_clients_are_no_gap_for_a_consumer() -> None:
    """It takes its epoch from the last record, and its position from the last batch."""

    def in_epoch(epoch: int, **changes: int) -> TopicState:
        first, second, last = topic(partitions=3).partitions
        return replace(topic(partitions=3), partitions=(first, second, replace(last, leader_epoch=epoch, **changes)))

    rig = Rig(in_epoch(0))
    replica = rig.replica(partition=2)
    offsets = Offsets(replicas=rig.replicas, threads=rig.threads, turns=rig.turns)

    def end_of(epoch: int, replica_id: int) -> tuple[int, int]:
        item = by_epoch.OffsetForLeaderPartition(partition=2, leader_epoch=epoch)
        asked = by_epoch.OffsetForLeaderTopic(topic=replica.tp.topic, partitions=[item])
        request = by_epoch.Request(replica_id=replica_id, topics=[asked])
        found = offsets.offset_for_leader_epoch(SimpleNamespace(api_version=4), request)  # type: ignore[arg-type]
        [response] = next(iter(found.topics)).partitions
        return response.leader_epoch, response.end_offset

    for sequence in range(3):
        rig.append(replica, sent(sequence))
    before = in_epoch(0)
    for epoch in (1, 2):
        after = in_epoch(epoch, drained_into=0, drained_since=1)
        rig.change(before, after)
        replica.begin_drain(rig.clock.ms)
        before = after
    assert [end_of(0, -1), end_of(1, -1)] == [(0, 5), (1, 5)]
    rig.change(before, in_epoch(3, resumes_from=0))
    replica.adopt((), rig.clock.ms)
    rig.append(replica, sent(3))

    assert [end_of(epoch, -1) for epoch in range(5)] == [(0, 5), (1, 5), (2, 5), (3, 6), (-1, -1)]
    assert [end_of(epoch, 2) for epoch in range(5)] == [(0, 3), (1, 4), (2, 5), (3, 6), (-1, -1)]


def test_a_fence_is_a_control_batch_without_a_producer() -> None:
    rig = Rig(drained())
    rig.replica().accept_fence(source(epoch=2), 1, rig.clock.ms)

    found = rig.replica().read(0, 1 << 20, at_least_one=True).records
    data = found if isinstance(found, bytes) else found.contents()
    [(at, header)] = iter_batches(data)
    assert header.is_control
    assert header.producer_id == -1
    assert parse_marker(decode_records(data[at : at + header.size])[0])[0] == FENCE
    assert len(rig.replica().producers) == 0


def table(*batches: tuple[int, int], producer_id: int = PRODUCER) -> ProducerTable:
    """A table with batches of one record, by epoch and sequence."""
    made = ProducerTable()
    for offset, (epoch, sequence) in enumerate(batches):
        made.record(ProducerId(producer_id), ProducerEpoch(epoch), sequence, 0, False, offset, 0, 0)
    return made


def test_only_what_is_later_than_its_own_is_adopted() -> None:
    known = AdoptedProducer(ProducerId(PRODUCER), ProducerEpoch(0), False, ((3, 0, 0), (4, 0, 0)))

    def adopted(own: ProducerTable) -> list[int]:
        return [each.base_sequence for each in adoptable(own, known)]

    assert adopted(table()) == [3, 4]
    assert adopted(table((0, 2))) == [3, 4]
    assert adopted(table((0, 3))) == [4]
    assert adopted(table((0, 9))) == []
    assert adopted(table((1, 0))) == []


def test_an_epoch_without_batches_is_adopted_unless_a_transaction_of_the_one_before_is_open() -> None:
    known = AdoptedProducer(ProducerId(PRODUCER), ProducerEpoch(4), False, ())
    opened = ProducerTable()
    opened.record(ProducerId(PRODUCER), ProducerEpoch(3), 0, 0, True, 0, 0, 0)

    assert [each.base_sequence for each in adoptable(table((3, 7)), known)] == [-1]
    assert adoptable(opened, known) == []


def test_the_producers_of_one_drained_partition_are_told_apart() -> None:
    target = table((0, 1), producer_id=derived_id(ProducerId(PRODUCER), 2))
    target.record(derived_id(ProducerId(PRODUCER), 3), ProducerEpoch(0), 8, 0, False, 1, 0, 0)
    target.record(ProducerId(PRODUCER), ProducerEpoch(0), 9, 0, False, 2, 0, 0)

    [found] = producers_of(target, 2)

    assert (found.producer_id, found.batches[0][0]) == (PRODUCER, 1)
    assert producers_of(target, 2, open_only=True) == []
    target.record(derived_id(ProducerId(PRODUCER + 1), 2), ProducerEpoch(0), 0, 0, True, 3, 0, 0)
    assert [each.producer_id for each in producers_of(target, 2, open_only=True)] == [PRODUCER + 1]
    assert [each.producer_id for each in target.of_clients()] == [PRODUCER]


def test_a_state_is_kept_within_a_leader_epoch() -> None:
    rig = Rig(drained())
    replica = rig.replica(partition=2)
    before = replica.detour
    made = drained()
    first, second, last = made.partitions
    rig.change(made, replace(made, partitions=(first, second, replace(last, partition_epoch=1))))

    assert replica.detour is before
    rig.change(made, drained(epoch=2))
    assert replica.detour is not before
    rig.change(drained(epoch=2), resuming(epoch=3))
    assert isinstance(replica.detour, Resumption)
