"""Batches and markers of drained partitions between two brokers, and the way of a partition back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.eventual import deliver
from tests.unit.partition.rig import Rig, batch, records, topic, values

from penstock.controller.isr import IsrChange
from penstock.metadata.image import ImageDelta, TopicChange
from penstock.model.batch import TRANSACTIONAL_FLAG
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    InvalidRecord,
    InvalidRequest,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId, CoordinatorEpoch, LeaderEpoch, ProducerEpoch, ProducerId
from penstock.model.topic import NO_LEADER, TopicState
from penstock.partition.redirect import Resumption, derived_id
from penstock.partition.results import Appended
from penstock.partition.validation import HEAVY_BYTES
from penstock.partition.verification import NOT_REQUIRED
from penstock.replication import redirects as redirects_module
from penstock.replication.peers import NotSent, PeerUnavailable, Purpose
from penstock.replication.redirects import Redirects
from penstock.wire import redirect as wire
from penstock.wire.compression import GZIP
from penstock.wire.records import RecordBatchBuilder, build_marker

PRODUCER = ProducerId(5)
DRAINED, TARGET = 2, 0
SOURCE_BROKER, TARGET_BROKER = 2, 1
TURNS = 20
"""Of the loop, after which a task that waits for nothing has done all it can."""


def spread(**facts: Any) -> TopicState:
    """Three partitions, the last of which broker 2 leads, and broker 1 the others; `facts` are of the last."""
    made = topic(partitions=3)
    *others, last = made.partitions
    own = replace(last, leader=2, replicas=(2,), isr=(2,), **facts)
    return replace(made, partitions=(*others, own))


NORMAL = spread()
DRAINED_TOPIC = spread(leader_epoch=1, drained_into=TARGET)
RESUMING = spread(leader_epoch=2, resumes_from=TARGET)


def settled(eventual: Eventual[Any]) -> Any:
    """The value of what does not wait here; raises its error."""
    [found] = waited(eventual)
    if isinstance(found, Exception):
        raise found
    return found


def waited(eventual: Eventual[Any]) -> list[Any]:
    values: list[Any] = []
    deliver(eventual, values)
    return values


class FakePeers:
    """Delivers to the other broker at once, or fails."""

    def __init__(self) -> None:
        self.others: dict[int, Redirects] = {}
        self.failure: Exception | None = None
        self.dropped: list[Any] | None = None
        """Requests that are not delivered, while there is such a list."""
        self.sent = 0
        self.lanes: list[tuple[int, int]] = []
        """Target and lane of each request."""

    def send(
        self, broker_id: int, purpose: Purpose, api: Any, request: Any, *, timeout_ms: float, lane: int
    ) -> Deferred[Any]:
        assert purpose is Purpose.REDIRECTS
        self.lanes.append((request.target, lane))
        self.sent += 1
        result: Deferred[Any] = Deferred()
        if self.failure is not None:
            result.fail(self.failure)
            return result
        frame = bytearray(api.encode_request(request, 0))
        if self.dropped is not None:
            self.dropped.append(api.decode_request(memoryview(frame), 0, 0))
            result.fail(PeerUnavailable("no response"))
            return result
        response = self.others[broker_id].serve(api.decode_request(memoryview(frame), 0, 0))
        assert isinstance(response, wire.Response | Deferred)
        answered = settled(response)
        result.resolve(api.decode_response(api.encode_response(answered, 0), 0, 0))
        return result


class FakeClient:
    """The controller, which writes what it is told."""

    def __init__(self) -> None:
        self.changes: list[IsrChange] = []
        self.written: Any = None

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> tuple[BrokerError | None, ...]:
        self.changes += changes
        self.written()
        return (None,) * len(changes)


class Pair:
    """Two brokers, of which one leads the drained partition and the other its target."""

    def __init__(self, state: TopicState = DRAINED_TOPIC) -> None:
        self.state = state
        self.peers = FakePeers()
        self.client = FakeClient()
        self.spawned: list[Coroutine[Any, Any, None]] = []
        self.rigs = {number: Rig(state, broker_id=number) for number in (1, 2)}
        self.redirects: dict[int, Redirects] = {}
        for number, rig in self.rigs.items():
            self._connect(number, rig)
        self.peers.others = self.redirects
        self.source = self.rigs[SOURCE_BROKER].replica(partition=DRAINED)
        self.target = self.rigs[TARGET_BROKER].replica(partition=TARGET)

    def become(self, state: TopicState) -> None:
        """Both brokers learn of another state of the topic."""
        for number, rig in self.rigs.items():
            change = TopicChange(before=self.state, after=state)
            rig.replicas.apply(ImageDelta(topics=(change,)))
            self.redirects[number].follow(ImageDelta(topics=(change,)))
        self.state = state

    def restart_source(self) -> None:
        """Stop the drained partition's broker, cleanly, and start it: the only replica leads on in its epoch."""
        rig = self.rigs[SOURCE_BROKER] = Rig(self.state, broker_id=SOURCE_BROKER, disk=self.rigs[SOURCE_BROKER].stop())
        self._connect(SOURCE_BROKER, rig)
        self.source = rig.replica(partition=DRAINED)

    def _connect(self, number: int, rig: Rig) -> None:
        self.redirects[number] = Redirects(
            broker_id=BrokerId(number),
            replicas=rig.replicas,
            peers=self.peers,  # type: ignore[arg-type]
            client=self.client,  # type: ignore[arg-type]
            clock=rig.clock,
            spawn=self._spawn,
            timeout_ms=lambda: 1_000,
            log=rig.notes,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if "_look_for_empty" in work.__qualname__:
            # Tests call `report_empty` themselves.
            work.close()
        else:
            self.spawned.append(work)

    def produce(self, data: bytes | bytearray, *, acks: int = -1) -> Appended:
        """Produce to the drained partition; the response of its broker."""
        rig = self.rigs[SOURCE_BROKER]
        handed = self.redirects[SOURCE_BROKER].hand_over(
            self.source, memoryview(bytearray(data)), rig.clock.ms, acks=acks, version=11, proof=NOT_REQUIRED
        )
        if isinstance(handed, Deferred):
            found: Appended = settled(handed)
            return found
        _, appended = handed
        assert isinstance(appended, Appended)
        return appended

    def mark(self, *, commit: bool, epoch: int = 0) -> None:
        """End a transaction in the drained partition, as its leader does."""
        rig = self.rigs[SOURCE_BROKER]
        own = build_marker(
            commit=commit,
            producer_id=PRODUCER,
            producer_epoch=ProducerEpoch(epoch),
            coordinator_epoch=CoordinatorEpoch(0),
            timestamp_ms=rig.clock.ms,
        )
        rig.append(self.source, own, internal=True)
        marker = wire.Marker(
            producer_id=PRODUCER,
            epoch=ProducerEpoch(epoch),
            commit=commit,
            coordinator_epoch=CoordinatorEpoch(0),
            transaction_version=1,
        )
        written = self.redirects[SOURCE_BROKER].mark(self.source, marker)
        if written is not None:
            settled(written)


def numbered(sequence: int, *texts: bytes) -> bytearray:
    return batch(*(texts or (b"%d" % sequence,)), producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)


def transactional(sequence: int, *texts: bytes, epoch: int = 0) -> bytearray:
    builder = RecordBatchBuilder()
    for text in texts:
        builder.add(0, b"k", text)
    return builder.build(
        attributes=TRANSACTIONAL_FLAG,
        producer_id=PRODUCER,
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
    )


def test_a_batch_for_a_drained_partition_is_in_the_target_on_the_other_broker() -> None:
    pair = Pair()
    pair.rigs[TARGET_BROKER].append(pair.target, batch(b"own"))

    assert pair.produce(numbered(0, b"a", b"b")).base_offset == 1
    appended = pair.produce(numbered(2, b"c"))

    assert (appended.base_offset, appended.end) == (3, 4)
    assert values(pair.target) == [b"own", b"a", b"b", b"c"]
    assert pair.peers.sent == 2


def test_targets_do_not_wait_for_each_other_and_requests_for_one_stay_in_order() -> None:
    pair = Pair()
    for sequence in range(3):
        pair.produce(numbered(sequence))

    [(target, lane)] = set(pair.peers.lanes)
    marker = wire.Request(
        topic_id=pair.state.topic_id,
        source=3,
        source_epoch=LeaderEpoch(0),
        number=1,
        target=target + 1,
        target_epoch=LeaderEpoch(0),
        kind=wire.Kind.FENCE,
    )
    assert redirects_module.lane_of(marker) != lane


def test_a_retry_that_the_other_broker_has_gets_the_first_response() -> None:
    pair = Pair()
    first = pair.produce(numbered(0))

    assert pair.produce(numbered(0)).base_offset == first.base_offset
    assert values(pair.target) == [b"0"]


def test_what_is_not_sent_and_what_is_not_answered_are_told_apart() -> None:
    pair = Pair()
    pair.produce(numbered(0))

    pair.peers.failure = NotSent("no connection")
    with pytest.raises(NotLeaderOrFollower):
        pair.produce(numbered(1))
    pair.peers.failure = PeerUnavailable("no response")
    with pytest.raises(RequestTimedOut):
        pair.produce(numbered(1))
    pair.peers.failure = None
    assert pair.produce(numbered(1)).base_offset == 1


def test_a_target_without_a_leader_is_no_leader_to_the_client() -> None:
    pair = Pair()
    pair.produce(numbered(0))
    first, *others = pair.state.partitions
    pair.become(replace(pair.state, partitions=(replace(first, leader=NO_LEADER, leader_epoch=1), *others)))

    with pytest.raises(NotLeaderOrFollower):
        pair.produce(numbered(1))


def test_a_target_of_another_leader_epoch_is_no_leader_to_the_client() -> None:
    pair = Pair()
    pair.produce(numbered(0))
    first, *others = pair.state.partitions
    after = replace(pair.state, partitions=(replace(first, leader_epoch=1), *others))
    # Only the target's broker has heard of it.
    pair.rigs[TARGET_BROKER].change(pair.state, after)

    with pytest.raises(NotLeaderOrFollower):
        pair.produce(numbered(1))


def test_a_gap_is_refused_once_the_target_is_known_to_lead() -> None:
    pair = Pair()
    pair.produce(numbered(0))
    end = pair.target.offsets.log_end

    with pytest.raises(OutOfOrderSequenceNumber):
        pair.produce(numbered(5))
    assert pair.target.offsets.log_end == end + 1, "a control batch proves it"


@pytest.mark.parametrize("lost", [NotSent("no connection"), PeerUnavailable("no response")])
def test_the_second_batch_of_a_new_producer_waits_for_the_first(lost: Exception) -> None:
    """Neither partition knows the producer, and the way to the target may fail between two batches of one client."""
    pair = Pair()
    pair.peers.failure = lost
    with pytest.raises(BrokerError):
        pair.produce(numbered(0))
    pair.peers.failure = None

    with pytest.raises(OutOfOrderSequenceNumber):
        pair.produce(numbered(1))

    pair.produce(numbered(0))
    pair.produce(numbered(1))
    assert values(pair.target)[-2:] == [b"0", b"1"]


def test_a_producer_that_the_target_forgets_goes_on_if_the_drained_partition_never_knew_it() -> None:
    pair = Pair()
    pair.produce(numbered(0))
    assert pair.target.producers.expire(pair.rigs[TARGET_BROKER].clock.ms, 0) == 1

    pair.produce(numbered(1))

    assert values(pair.target) == [b"0", b"1"]


def test_a_new_producer_whose_first_batch_is_refused_for_good_goes_on() -> None:
    pair = Pair()
    with pytest.raises(MessageTooLarge):
        pair.produce(numbered(0, bytes(2 << 20)))

    pair.produce(numbered(1))

    assert values(pair.target) == [b"1"]


def test_a_transaction_ends_in_both_partitions() -> None:
    pair = Pair(NORMAL)
    rig = pair.rigs[SOURCE_BROKER]
    rig.append(pair.source, transactional(0, b"before"), proof=NOT_REQUIRED)
    pair.become(spread(leader_epoch=1, drained_into=TARGET))
    pair.produce(transactional(1, b"after"))
    assert values(pair.target, read_committed=True) == []
    assert values(pair.source, read_committed=True) == []

    pair.mark(commit=True)

    assert b"after" in values(pair.target, read_committed=True)
    assert b"before" in values(pair.source, read_committed=True)
    assert pair.target.producers.first_unstable is None
    assert pair.source.producers.first_unstable is None


def test_an_aborted_transaction_is_aborted_in_the_target() -> None:
    pair = Pair()
    pair.produce(transactional(0, b"gone"))

    pair.mark(commit=False)

    found = pair.target.read(0, 1 << 20, at_least_one=True, read_committed=True)
    assert found.aborted is not None
    assert [each.producer_id for each in found.aborted] == [derived_id(PRODUCER, DRAINED)]


@pytest.mark.parametrize("fenced", [False, True])
def test_the_next_life_of_an_only_replica_ends_the_transactions_of_the_last_one(fenced: bool) -> None:
    """It leads on in its leader epoch, and its numbers begin again."""
    pair = Pair()
    late: list[wire.Request] = []
    for sequence in range(3):
        pair.produce(transactional(sequence, b"x"))
    pair.peers.dropped = late
    with pytest.raises(RequestTimedOut):
        pair.produce(transactional(3, b"late"))
    pair.peers.dropped = None
    epoch = pair.source.role.leader_epoch
    if fenced:
        replicas = pair.rigs[SOURCE_BROKER].replicas
        replicas.fence()
        replicas.unfence()
    else:
        pair.restart_source()
    assert pair.source.role.leader_epoch == epoch

    pair.mark(commit=True)

    assert pair.target.producers.first_unstable is None
    [request] = late
    refused = settled(pair.redirects[TARGET_BROKER].serve(request))
    assert refused.error_code == FencedLeaderEpoch.code, "the transaction would be open for ever"
    pair.produce(transactional(3, b"next"))


def test_batches_on_their_way_to_another_broker_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their clients may have left, or not wait for a response."""
    pair = Pair()
    pair.produce(numbered(0))
    monkeypatch.setattr(redirects_module, "UNANSWERED_BYTES_MAX", 3_000)
    sent: list[Deferred[Any]] = []

    def send(*_: Any, **__: Any) -> Deferred[Any]:
        sent.append(Deferred())
        return sent[-1]

    def hand_over() -> Deferred[Appended]:
        data = memoryview(batch(bytes(1_000)))
        now_ms = pair.rigs[SOURCE_BROKER].clock.ms
        found = pair.redirects[SOURCE_BROKER].hand_over(
            pair.source, data, now_ms, acks=0, version=11, proof=NOT_REQUIRED
        )
        assert isinstance(found, Deferred)
        return found

    monkeypatch.setattr(pair.peers, "send", send)
    hand_over().abandon()
    hand_over()
    with pytest.raises(NotEnoughReplicas):
        hand_over()
    sent[0].resolve(wire.Response())
    hand_over()
    for unanswered in sent[1:]:
        unanswered.fail(PeerUnavailable("no response"))
    assert pair.redirects[SOURCE_BROKER]._bytes_in_flight.total() == 0


def forged(pair: Pair, **facts: Any) -> wire.Response:
    """The response to a request that the drained partition's leader did not send."""
    request: dict[str, Any] = {
        "topic_id": pair.target.topic_id,
        "source": DRAINED,
        "source_epoch": 1,
        "number": 50,
        "target": TARGET,
        "target_epoch": 0,
        "kind": wire.Kind.RECORDS,
    }
    frame = bytearray(wire.encode_request(wire.Request(**request | facts), 0))
    served = pair.redirects[TARGET_BROKER].serve(wire.decode_request(memoryview(frame), 0, 0))
    assert isinstance(served, wire.Response | Deferred)
    response: wire.Response = settled(served)
    return response


@pytest.mark.parametrize("kind", [wire.Kind.RECORDS, wire.Kind.MARKER])
@pytest.mark.parametrize("producer_id", [PRODUCER, derived_id(PRODUCER, 1)])
def test_a_redirect_is_of_a_producer_of_the_drained_partition(kind: wire.Kind, producer_id: ProducerId) -> None:
    pair = Pair()
    pair.produce(numbered(0))
    marker = wire.Marker(
        producer_id=producer_id,
        epoch=ProducerEpoch(0),
        commit=False,
        coordinator_epoch=CoordinatorEpoch(0),
        transaction_version=1,
    )
    records = batch(b"forged", producer_id=producer_id)

    response = forged(pair, kind=kind, payload=records if kind is wire.Kind.RECORDS else wire.pack_marker(marker))

    assert response.error_code == InvalidRecord.code
    assert values(pair.target) == [b"0"]


def test_a_redirect_is_of_a_partition_that_is_drained_in_a_leader_epoch_that_is_known() -> None:
    pair = Pair()
    fence = {"kind": wire.Kind.FENCE}

    assert forged(pair, source_epoch=2**31 - 1, **fence).error_code == UnknownLeaderEpoch.code
    assert forged(pair, source=1, source_epoch=LeaderEpoch(0), **fence).error_code == NotLeaderOrFollower.code
    assert forged(pair, source=TARGET, source_epoch=LeaderEpoch(0), **fence).error_code == NotLeaderOrFollower.code
    assert forged(pair, source=9, **fence).error_code == UnknownTopicOrPartition.code
    assert forged(pair, source_epoch=LeaderEpoch(0), **fence).error_code == FencedLeaderEpoch.code
    assert forged(pair, kind=wire.Kind.MARKER, payload=b"short").error_code == InvalidRequest.code
    pair.produce(numbered(0))
    assert values(pair.target) == [b"0"]


def resume(pair: Pair) -> None:
    """Run what the metadata set off, until the controller has written the end of it."""
    finished = spread(leader_epoch=2, partition_epoch=1)
    pair.client.written = lambda: pair.become(finished)

    async def run() -> None:
        while pair.spawned:
            await asyncio.wait_for(pair.spawned.pop(), 30)

    asyncio.run(run())


def test_a_partition_resumes_with_what_its_producers_wrote_elsewhere() -> None:
    pair = Pair()
    for sequence in range(3):
        pair.produce(numbered(sequence))
    pair.become(RESUMING)
    assert isinstance(pair.source.detour, Resumption)

    resume(pair)

    rig = pair.rigs[SOURCE_BROKER]
    assert pair.source.detour is None
    assert [change.resumed for change in pair.client.changes] == [True]
    end = pair.source.offsets.log_end
    rig.append(pair.source, numbered(2))
    assert pair.source.offsets.log_end == end, "a retry was appended"
    rig.append(pair.source, numbered(3))
    assert [record.value for record in records(pair.source)][-1] == b"3"


def test_a_partition_adopts_many_producers_over_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redirects_module, "ADOPTED_PER_TURN_MAX", 3)
    pair = Pair()
    producers = [ProducerId(100 + at) for at in range(8)]
    for producer_id in producers:
        pair.produce(batch(b"0", producer_id=producer_id))
    pair.become(RESUMING)
    before = pair.source.offsets.log_end

    async def count_in_turns() -> None:
        task = asyncio.ensure_future(pair.spawned.pop())
        adopted: list[int] = []
        for _ in range(TURNS):
            await asyncio.sleep(0)
            grown = pair.source.offsets.log_end - before
            detour = pair.source.detour
            if isinstance(detour, Resumption) and not detour.is_ready and grown:
                adopted.append(grown)
                with pytest.raises(NotEnoughReplicas):
                    pair.rigs[SOURCE_BROKER].append(pair.source, numbered(0))
        assert adopted == [3, 6, 8]
        await asyncio.wait_for(task, 30)

    pair.client.written = lambda: pair.become(spread(leader_epoch=2, partition_epoch=1))
    asyncio.run(count_in_turns())

    end = pair.source.offsets.log_end
    for producer_id in producers:
        pair.rigs[SOURCE_BROKER].append(pair.source, batch(b"0", producer_id=producer_id))
    assert pair.source.offsets.log_end == end, "a retry was appended"


def test_a_partition_has_not_resumed_while_a_transaction_is_open_in_the_target() -> None:
    pair = Pair()
    pair.produce(transactional(0, b"open"))
    pair.produce(batch(b"other", producer_id=PRODUCER + 1))
    pair.become(RESUMING)

    async def wait_for_readiness() -> None:
        task = asyncio.ensure_future(pair.spawned.pop())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert isinstance(pair.source.detour, Resumption)
        assert pair.source.detour.is_ready
        assert pair.client.changes == []
        rig = pair.rigs[SOURCE_BROKER]
        rig.append(pair.source, transactional(1, b"more"), proof=NOT_REQUIRED)
        pair.mark(commit=True)
        pair.client.written = lambda: pair.become(spread(leader_epoch=2, partition_epoch=1))
        await asyncio.wait_for(task, 30)

    asyncio.run(wait_for_readiness())

    assert pair.source.detour is None
    assert values(pair.target, read_committed=True)[:1] == [b"open"]
    assert b"more" in values(pair.source, read_committed=True)
    assert pair.target.producers.first_unstable is None


class Local:
    """One broker that leads the drained partition and its target, whose threads work when they are told to."""

    def __init__(self) -> None:
        made = topic(partitions=3)
        *others, last = made.partitions
        self.state = replace(made, partitions=(*others, replace(last, leader_epoch=1, drained_into=TARGET)))
        self.rig = Rig(self.state)
        self.rig.threads.eager = False
        self.redirects = Redirects(
            broker_id=BrokerId(1),
            replicas=self.rig.replicas,
            peers=FakePeers(),  # type: ignore[arg-type]
            client=FakeClient(),  # type: ignore[arg-type]
            clock=self.rig.clock,
            spawn=Coroutine.close,
            timeout_ms=lambda: 1_000,
            log=self.rig.notes,
        )
        self.source = self.rig.replica(partition=DRAINED)
        self.target = self.rig.replica(partition=TARGET)

    def produce(self, data: bytearray) -> Appended | Coroutine[Any, Any, Appended]:
        handed = self.redirects.hand_over(
            self.source, memoryview(data), self.rig.clock.ms, acks=-1, version=11, proof=NOT_REQUIRED
        )
        assert not isinstance(handed, Deferred)
        return handed[1]

    def commit(self) -> None:
        marker = wire.Marker(
            producer_id=PRODUCER,
            epoch=ProducerEpoch(0),
            commit=True,
            coordinator_epoch=CoordinatorEpoch(0),
            transaction_version=1,
        )
        assert self.redirects.mark(self.source, marker) is None


def heavy(sequence: int) -> bytearray:
    """A batch of a transaction that is validated off the loop."""
    return batch(
        random.Random(sequence).randbytes(2 * HEAVY_BYTES),
        codec=GZIP,
        producer_id=PRODUCER,
        base_sequence=sequence,
        is_transactional=True,
    )


@pytest.mark.parametrize("new_epoch", [False, True])
def test_a_batch_that_was_validated_too_late_does_not_follow_the_marker(new_epoch: bool) -> None:
    async def act() -> None:
        local = Local()
        assert isinstance(local.produce(transactional(0, b"first")), Appended)
        work = local.produce(heavy(1))
        assert not isinstance(work, Appended)
        validated = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        local.commit()
        if new_epoch:
            # What the target remembers of drained partitions is of its leader epoch.
            first, *others = local.state.partitions
            local.rig.change(local.state, replace(local.state, partitions=(replace(first, leader_epoch=1), *others)))
        assert local.rig.threads.work() == 1

        with pytest.raises(NotLeaderOrFollower):
            await validated
        assert local.target.producers.first_unstable is None

    asyncio.run(act())


def test_a_gap_that_is_found_off_the_loop_is_refused_once_the_target_is_known_to_lead() -> None:
    async def act() -> None:
        local = Local()
        assert isinstance(local.produce(transactional(0, b"first")), Appended)
        end = local.target.offsets.log_end
        work = local.produce(heavy(5))
        assert not isinstance(work, Appended)
        validated = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        local.rig.threads.work()

        with pytest.raises(OutOfOrderSequenceNumber):
            await validated
        assert local.target.offsets.log_end == end + 1, "a control batch proves it"

    asyncio.run(act())
