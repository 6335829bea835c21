"""What clients of a replicated partition are told: offsets of a new leader, ends of epochs, the leader's address."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.eventual import settled
from tests.unit.partition.rig import NOW_MS, Rig, batch
from tests.unit.partition.test_following import shared

from penstock.api.fetch import Fetch
from penstock.api.leader_hints import LeaderHints
from penstock.api.offsets import Offsets
from penstock.api.produce import Produce
from penstock.metadata.image import MetadataImage
from penstock.metadata.records import Admission, BrokerEndpoint, BrokerState
from penstock.model.generated_errors import (
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    RequestTimedOut,
)
from penstock.model.topic import TopicState
from penstock.observe.counters import TopicTraffic
from penstock.quotas.client_quotas import ClientQuotas
from penstock.wire.api import fetch as fetched
from penstock.wire.api import list_offsets as by_time
from penstock.wire.api import offset_for_leader_epoch as by_epoch
from penstock.wire.api import produce as produced
from penstock.wire.fetch import FetchPartition, FetchRequest
from penstock.wire.produce import ProduceRequest

LATEST = -1


class Context:
    """The context of a request, whose handler is awaited by its caller."""

    client_id = user = "c"
    listener = "PLAINTEXT"
    closed = False

    def __init__(self, version: int) -> None:
        self.api_version = version
        self.now_ms = NOW_MS

    @property
    def connection(self) -> Context:
        return self

    def run(self, work: Any) -> Any:
        return work


class Served:
    """A partition of three replicas on broker 1, and the handlers of its clients."""

    def __init__(self, topic: TopicState) -> None:
        self.rig = Rig(topic)
        self.image = MetadataImage()
        self.image.topics[topic.name] = topic
        for broker in (1, 2):
            endpoint = BrokerEndpoint(listener="PLAINTEXT", host=f"host{broker}", port=9090 + broker)
            self.image.brokers[broker] = BrokerState(broker_id=broker, endpoints=(endpoint,), rack="r", epoch=broker)
            self.image.admissions[broker] = Admission(broker_id=broker, epoch=broker, directories=())
        hints = LeaderHints(self.image)
        self.offsets: Any = Offsets(replicas=self.rig.replicas, threads=self.rig.threads, turns=self.rig.turns)
        self.produce: Any = Produce(
            replicas=self.rig.replicas,
            timers=self.rig.timers,
            quotas=ClientQuotas(11, 1_000),
            traffic=TopicTraffic(),
            verification=None,  # type: ignore[arg-type]
            turns=self.rig.turns,
            hints=hints,
        )
        self.fetch: Any = Fetch(
            fetches=self.rig.fetches,
            threads=self.rig.threads,
            loop=None,  # type: ignore[arg-type]
            bytes_max=lambda: 1 << 20,
            quotas=ClientQuotas(11, 1_000),
            traffic=TopicTraffic(),
            turns=self.rig.turns,
            hints=hints,
            views=None,  # type: ignore[arg-type]
        )

    async def offset_at(
        self, timestamp: int, version: int = 8, replica_id: int = -1
    ) -> by_time.ListOffsetsPartitionResponse:
        item = by_time.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = by_time.Request(
            topics=[by_time.ListOffsetsTopic(name="orders", partitions=[item])], replica_id=replica_id
        )
        response: by_time.Response = await self.offsets.list_offsets(Context(version), request)
        (found,) = response.topics[0].partitions
        return found

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        item = by_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        asked = by_epoch.OffsetForLeaderTopic(topic="orders", partitions=[item])
        request = by_epoch.Request(replica_id=-1, topics=[asked])
        response = self.offsets.offset_for_leader_epoch(Context(4), request)
        (found,) = next(iter(response.topics)).partitions
        return found.leader_epoch, found.end_offset

    async def produced(self, version: int = 12, timeout_ms: int = 1_000, batches: int = 1) -> Any:
        """The response to a Produce with acks=all, through the codec."""
        parts = [(0, memoryview(batch(b"x"))) for _ in range(batches)]
        request = ProduceRequest(None, -1, timeout_ms, [("orders", None, parts)])
        eventual = self.produce.handle(Context(version), request)
        waiting = asyncio.ensure_future(settled(eventual))
        await asyncio.sleep(0)
        self.rig.loop.pass_ms(2 * timeout_ms)
        encoded = self.produce.apis()[0].encode(await waiting, version)
        return produced.decode_response(encoded, 0, version)


def newly_elected() -> Served:
    """Broker 1 leads epoch 5; of its three records one is known to be committed."""
    served = Served(shared(replicas=(1, 2, 3), epoch=0))
    rig = served.rig
    for at in range(3):
        rig.append(rig.replica(), batch(b"a", at_ms=NOW_MS + at))
    for follower in (2, 3):
        fetch(served, follower, 1)
    rig.change(shared(replicas=(1, 2, 3)), shared(replicas=(1, 2, 3), epoch=5, version=1))
    return served


def fetch(served: Served, follower: int, offset: int, epoch: int = 0) -> None:
    served.rig.replica().follower_fetched(
        follower,
        broker_epoch=follower,
        leader_epoch=epoch,
        fetch_offset=offset,
        held_end=offset,
        log_start=0,
        now_ms=NOW_MS,
    )


@pytest.mark.parametrize(("version", "error"), [(4, LeaderNotAvailable), (5, OffsetNotAvailable)])
def test_the_latest_offset_is_not_available_before_a_new_leader_knows_what_is_committed(
    version: int, error: type[Exception]
) -> None:
    async def run() -> None:
        served = newly_elected()

        assert (await served.offset_at(LATEST, version)).error_code == error.code  # type: ignore[attr-defined]
        assert (await served.offset_at(NOW_MS + 2, version)).error_code == error.code  # type: ignore[attr-defined]
        assert (await served.offset_at(NOW_MS, version)).offset == 0
        for follower in (2, 3):
            fetch(served, follower, 3, epoch=5)

        assert (await served.offset_at(LATEST, version)).offset == 3
        assert (await served.offset_at(NOW_MS + 2, version)).offset == 2

    asyncio.run(run())


def test_a_follower_asks_for_the_log_end() -> None:
    async def run() -> None:
        assert (await newly_elected().offset_at(LATEST, replica_id=2)).offset == 3

    asyncio.run(run())


def test_earlier_epochs_end_where_an_epoch_without_records_begins() -> None:
    served = newly_elected()

    assert [served.epoch_end(epoch) for epoch in (0, 3, 5, 6)] == [(0, 3), (0, 3), (5, 3), (-1, -1)]


def test_a_produce_to_the_wrong_broker_names_the_leader_and_its_endpoint() -> None:
    async def run() -> None:
        response = await Served(shared(leader=2, epoch=7)).produced()

        (result,) = response.responses[0].partition_responses
        assert result.error_code == NotLeaderOrFollower.code
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (2, 7)
        (node,) = response.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (2, "host2", 9092, "r")

    asyncio.run(run())


def test_a_produce_that_waits_when_leadership_ends_names_the_next_leader() -> None:
    async def run() -> None:
        served = Served(shared())
        request = ProduceRequest(None, -1, 1_000, [("orders", None, [(0, memoryview(batch(b"x")))])])
        waiting = asyncio.ensure_future(settled(served.produce.handle(Context(12), request)))
        await asyncio.sleep(0)

        after = shared(leader=2, epoch=1, version=1)
        served.image.topics["orders"] = after
        served.rig.change(shared(), after)

        response = await waiting
        (result,) = response.topics[0][2]
        assert (result.error_code, result.current_leader) == (NotLeaderOrFollower.code, (2, 1))
        assert response.node_endpoints == ((2, "host2", 9092, "r"),)

    asyncio.run(run())


def test_a_fetch_from_the_wrong_broker_names_the_leader_and_its_endpoint() -> None:
    served = Served(shared(leader=2, epoch=7))
    item = FetchPartition(0, 0, 1 << 20)
    request = FetchRequest(-1, 0, 1, 1 << 20, 0, 0, -1, [(None, served.rig.replica().topic_id, [item])], [], "")

    encoded = b"".join(
        bytes(part) for part in served.fetch.apis()[0].encode(served.fetch.handle(Context(17), request), 17)
    )

    response = fetched.decode_response(encoded, 0, 17)
    (result,) = response.responses[0].partitions
    assert result.error_code == NotLeaderOrFollower.code
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (2, 7)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [(2, "host2", 9092)]


def test_a_leader_that_is_not_live_has_no_endpoint() -> None:
    served = Served(shared(leader=2, epoch=7))
    del served.image.admissions[2]

    assert LeaderHints(served.image).endpoints([(2, 7), (-1, 3), None], "PLAINTEXT") == ()


def test_acks_all_is_refused_while_the_isr_is_too_small() -> None:
    async def run() -> None:
        served = Served(shared(isr=(1,), configs={"min.insync.replicas": "2"}))

        response = await served.produced()

        assert response.responses[0].partition_responses[0].error_code == NotEnoughReplicas.code
        assert served.rig.replica().log.log_end == 0

    asyncio.run(run())


def test_acks_all_times_out_where_a_member_of_the_isr_does_not_fetch() -> None:
    async def run() -> None:
        response = await Served(shared()).produced()

        assert response.responses[0].partition_responses[0].error_code == RequestTimedOut.code

    asyncio.run(run())


@pytest.mark.parametrize("batches", [1, 2])
def test_a_write_that_times_out_where_another_may_lead_sends_its_client_to_the_leader(batches: int) -> None:
    async def run() -> None:
        served = Served(shared())
        served.rig.replicas.cluster.may_be_deposed = lambda: True

        response = await served.produced(batches=batches)

        codes = {part.error_code for part in response.responses[0].partition_responses}
        assert codes == {NotLeaderOrFollower.code}

    asyncio.run(run())
