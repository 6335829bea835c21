"""Bounds of partitions on other brokers: asked of their leaders now and then, and remembered."""

from types import ModuleType
from typing import Any

from tests.unit.partition.rig import topic

from penstock.metadata.image import MetadataImage
from penstock.metadata.records import Admission, BrokerState
from penstock.model.deferred import Deferred
from penstock.model.ids import TopicPartition
from penstock.replication import remote_bounds
from penstock.replication.peers import PeerUnavailable, Purpose
from penstock.replication.remote_bounds import EARLIEST, FORGET_S, REFRESH_S, RemoteBounds
from penstock.wire.api import list_offsets

HERE, LEADER = 2, 1
ORDERS = [TopicPartition("orders", index) for index in range(3)]


class Leaders:
    """Stands for the connections to other brokers; every log is from 5 to 50 and its index."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, list[int]]] = []
        self.down = False

    def send(
        self, broker_id: int, purpose: Purpose, api: ModuleType, request: Any, *, timeout_ms: float
    ) -> Deferred[Any]:
        assert (purpose, api) == (Purpose.QUERIES, list_offsets)
        result: Deferred[Any] = Deferred()
        if self.down:
            result.fail(PeerUnavailable("down"))
            return result
        [wanted] = request.topics
        timestamp = wanted.partitions[0].timestamp
        self.asked.append((broker_id, timestamp, [each.partition_index for each in wanted.partitions]))
        found = [
            list_offsets.ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                offset=5 if timestamp == EARLIEST else 50 + each.partition_index,
                error_code=6 if each.partition_index == 2 else 0,
            )
            for each in wanted.partitions
        ]
        result.resolve(
            list_offsets.Response(topics=[list_offsets.ListOffsetsTopicResponse(name="orders", partitions=found)])
        )
        return result


class Rig:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.leaders = Leaders()
        self.image = MetadataImage()
        self.image.topics["orders"] = topic("orders", 3)
        self.admit()
        peers: Any = self.leaders
        self.bounds = RemoteBounds(
            broker_id=HERE, image=self.image, peers=peers, monotonic=lambda: self.now_s, timeout_ms=lambda: 1_000
        )

    def admit(self) -> None:
        self.image.brokers[LEADER] = BrokerState(broker_id=LEADER, endpoints=(), rack=None, epoch=1)
        self.image.admissions[LEADER] = Admission(broker_id=LEADER, epoch=1, directories=())

    def scrape(self) -> list[tuple[int, int] | None]:
        found = [self.bounds.get(tp) for tp in ORDERS]
        self.bounds.refresh()
        return found


def test_bounds_are_those_of_the_scrape_before() -> None:
    rig = Rig()

    assert rig.scrape() == [None, None, None]
    assert rig.scrape() == [(5, 50), (5, 51), None], "the third has another leader by now"
    assert rig.leaders.asked == [(LEADER, -2, [0, 1, 2]), (LEADER, -1, [0, 1, 2])]


def test_leaders_are_not_asked_with_every_scrape() -> None:
    rig = Rig()
    for _ in range(5):
        rig.scrape()
        rig.now_s += REFRESH_S / 5
    assert len(rig.leaders.asked) == 2

    rig.scrape()

    assert len(rig.leaders.asked) == 4


def test_a_leader_that_is_away_leaves_the_bounds_as_they_were() -> None:
    rig = Rig()
    rig.scrape()
    rig.leaders.down = True
    rig.now_s += REFRESH_S
    rig.scrape()
    del rig.image.brokers[LEADER]
    rig.now_s += REFRESH_S

    assert rig.scrape()[:2] == [(5, 50), (5, 51)]


def test_partitions_that_no_scrape_wants_are_forgotten() -> None:
    rig = Rig()
    rig.scrape()
    rig.now_s += FORGET_S + 1
    rig.bounds.refresh()

    assert rig.bounds.get(ORDERS[0]) is None


def test_a_request_has_a_bounded_number_of_partitions(monkeypatch: Any) -> None:
    monkeypatch.setattr(remote_bounds, "PARTITIONS_PER_REQUEST_MAX", 2)
    rig = Rig()
    rig.scrape()

    assert [partitions for _, _, partitions in rig.leaders.asked] == [[0, 1], [0, 1], [2], [2]]
