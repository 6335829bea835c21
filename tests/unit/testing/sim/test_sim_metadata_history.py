"""The history of a simulated cluster's metadata: what it counts, and what it finds wrong."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.metadata import records
from penstock.metadata.operations import Create, Delete, Operation, Set
from penstock.metadata.records import Admission, BrokerState
from penstock.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from penstock.model.topic import NO_LEADER, LeaderRecoveryState, PartitionState, TopicState
from penstock.testing.sim.clock import SimRandomness
from penstock.testing.sim.metadata_history import MetadataHistory, Moment
from penstock.testing.sim.store import SimStore
from penstock.testing.sim.world import World

TOPIC_ID = TopicId(bytes(15) + b"\x01")
CHUNK = records.chunk_path(TOPIC_ID, 0)
LED_BY_1 = PartitionState(
    index=0,
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(0),
    replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
    isr=(BrokerId(1), BrokerId(2), BrokerId(3)),
)


class Metadata:
    """A store that tests write to, and its history."""

    def __init__(self, world: World) -> None:
        self.store = SimStore(SimRandomness(world.stream("store")))
        self.history = MetadataHistory(self.store, world)
        self.do(*(Create(path, b"") for path in (records.PARTITIONS, *records.DIRECTORIES)))
        for broker_id in (1, 2, 3):
            self.register(broker_id)
            self.admit(broker_id)
        topic = TopicState(name="events", topic_id=TOPIC_ID, configs={}, partitions=(LED_BY_1,))
        self.do(Create(CHUNK, records.pack_partitions([LED_BY_1])))
        self.do(Create(records.topic_path("events"), records.pack_topic(topic)))
        self.last = LED_BY_1

    def do(self, *operations: Operation) -> int:
        done = self.store.commit(1, operations)
        assert isinstance(done, int), done
        return done

    def register(self, broker_id: int, *, may_have_lost: bool = False) -> None:
        known = self.history.admissions.get(BrokerId(broker_id))
        path = records.broker_path(BrokerId(broker_id))
        if BrokerId(broker_id) in self.history.brokers:
            self.do(Delete(path))
        broker = BrokerState(
            broker_id=BrokerId(broker_id),
            endpoints=(),
            rack=None,
            directories=(f"disk of {broker_id}",),
            admitted_before=BrokerEpoch(-1) if known is None else known.epoch,
            may_have_lost=may_have_lost,
        )
        self.do(Create(path, records.pack_broker(broker)))

    def admit(self, broker_id: int) -> None:
        broker = self.history.brokers[BrokerId(broker_id)]
        admission = Admission(broker_id=broker.broker_id, epoch=broker.epoch, directories=broker.directories)
        path, data = records.admission_path(broker.broker_id), records.pack_admission(admission)
        self.do(Set(path, data) if broker.broker_id in self.history.admissions else Create(path, data))

    def change(self, **fields: object) -> None:
        """Change the partition, in the next partition epoch unless that is a field."""
        raised = {"partition_epoch": PartitionEpoch(self.last.partition_epoch + 1), **fields}
        self.last = replace(self.last, **raised)  # type: ignore[arg-type]
        self.do(Set(CHUNK, records.pack_partitions([self.last])))


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    world = World(1)
    yield Metadata(world)
    world.close()


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def test_a_sound_change_is_counted_and_is_no_finding(metadata: Metadata) -> None:
    metadata.change(leader=BrokerId(2), leader_epoch=LeaderEpoch(1), isr=ids(2, 3))
    metadata.change(isr=ids(2, 3, 1))

    history = metadata.history
    assert history.findings == []
    assert history.counts[Moment.ELECTION] == 1
    assert history.counts[Moment.ISR_CHANGE] == 2
    assert history.counts[Moment.RISKY_ELECTION] == 0
    state = history.state("events", 0)
    assert state is not None
    assert (state.leader, state.isr) == (2, ids(2, 3, 1))


@pytest.mark.parametrize("recovery", LeaderRecoveryState)
def test_a_leader_from_outside_of_isr_and_eligible_replicas_is_a_risk_and_says_so(
    metadata: Metadata, recovery: LeaderRecoveryState
) -> None:
    metadata.change(leader=NO_LEADER, leader_epoch=LeaderEpoch(1), isr=())
    metadata.change(leader=BrokerId(3), leader_epoch=LeaderEpoch(2), isr=ids(3), leader_recovery_state=recovery)

    assert metadata.history.counts[Moment.RISKY_ELECTION] == 1
    assert list(metadata.history.risky()) == ["events/0"]
    assert bool(metadata.history.findings) is (recovery is LeaderRecoveryState.RECOVERED)


def test_no_other_leader_is_elected_while_an_eligible_replica_may_return(metadata: Metadata) -> None:
    metadata.change(leader=NO_LEADER, leader_epoch=LeaderEpoch(1), isr=(), eligible_leader_replicas=ids(1))
    metadata.change(
        leader=BrokerId(3),
        leader_epoch=LeaderEpoch(2),
        isr=ids(3),
        eligible_leader_replicas=(),
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
    )

    assert [each for each in metadata.history.findings if "replicas with every record" in each]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"leader": BrokerId(2)}, "another leader in the same epoch"),
        ({"isr": ids(2, 3)}, "the leader of events-0 is not in the ISR"),
        ({"isr": ids(1, 4)}, "brokers that are no replicas"),
        ({"leader_epoch": LeaderEpoch(-1)}, "leader epoch of events-0 went back"),
        ({"isr": ids(1), "partition_epoch": PartitionEpoch(0)}, "without a new partition epoch"),
    ],
)
def test_a_state_that_no_controller_may_write_is_found(
    metadata: Metadata, fields: dict[str, object], found: str
) -> None:
    metadata.change(**fields)

    assert [each for each in metadata.history.findings if found in each]


def test_a_broker_that_may_have_lost_records_is_not_admitted_in_an_isr(metadata: Metadata) -> None:
    metadata.register(2, may_have_lost=True)
    metadata.admit(2)

    assert [each for each in metadata.history.findings if "admitted in the ISR or eligible set of events-0" in each]
    assert metadata.history.counts[Moment.RESTART_WITH_LOSS] == 1


def test_a_leader_is_not_admitted_in_the_epoch_of_its_former_life(metadata: Metadata) -> None:
    metadata.register(1)
    metadata.admit(1)

    assert metadata.history.findings == ["broker 1 was admitted and leads events-0 in its old epoch"]


def test_partitions_without_leader_or_with_replicas_out_of_sync_are_unhealthy(metadata: Metadata) -> None:
    assert metadata.history.unhealthy() == []

    metadata.change(isr=ids(1, 2))

    assert metadata.history.unhealthy() == ["events-0 (leader 1, ISR [1, 2] of [1, 2, 3])"]


def test_a_reassignment_in_progress_is_unhealthy_and_counts_when_it_ends(metadata: Metadata) -> None:
    metadata.change(removing_replicas=ids(3))
    assert metadata.history.unhealthy() == ["events-0 (leader 1, ISR [1, 2, 3] of [1, 2, 3], being reassigned)"]

    metadata.change(leader_epoch=LeaderEpoch(1), replicas=ids(1, 2), isr=ids(1, 2), removing_replicas=())
    assert metadata.history.unhealthy() == []
    assert metadata.history.counts[Moment.REASSIGNMENT] == 1
    assert metadata.history.findings == []


def test_a_removal_without_a_new_leader_epoch_is_found(metadata: Metadata) -> None:
    metadata.change(removing_replicas=ids(3))
    metadata.change(replicas=ids(1, 2), isr=ids(1, 2), removing_replicas=())

    [finding] = metadata.history.findings
    assert "lost replicas [3] without a new leader epoch" in finding


def test_a_partition_whose_disks_were_all_replaced_waits_for_an_operator(metadata: Metadata) -> None:
    metadata.change(leader=NO_LEADER, leader_epoch=LeaderEpoch(1), isr=(), replaced_replicas=ids(1, 2, 3))

    assert metadata.history.unhealthy() == []


def test_another_controller_is_a_take_over(metadata: Metadata) -> None:
    for broker_id, epoch in ((1, 1), (1, 2), (3, 3)):
        state = records.ControllerState(broker_id=broker_id, epoch=epoch)
        metadata.do(Create(records.CONTROLLER, records.pack_controller(state)))
        metadata.do(Delete(records.CONTROLLER))

    assert metadata.history.counts[Moment.TAKE_OVER] == 1
    assert metadata.history.controller == 3
