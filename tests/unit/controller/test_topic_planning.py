"""Plans of changes of topics, without a store."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.broker import BrokerConfig
from penstock.controller.placement import place
from penstock.controller.plan import Plan
from penstock.controller.topics import (
    PARTITIONS_PER_REQUEST_MAX,
    Growth,
    NewTopic,
    plan_creations,
    plan_deletions,
    plan_growths,
)
from penstock.metadata.image import MetadataImage
from penstock.metadata.nodes import Change
from penstock.metadata.operations import Create, Delete, Set
from penstock.metadata.records import (
    Admission,
    BrokerState,
    chunk_path,
    deletion_path,
    pack_admission,
    pack_broker,
    topic_path,
)
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import TopicId
from penstock.model.topic import TopicState


def image_of(*brokers: int) -> MetadataImage:
    image = MetadataImage()
    image.apply(
        Change(
            path=f"/brokers/{broker}",
            data=pack_broker(BrokerState(broker_id=broker, endpoints=(), rack=None)),
            created=broker,
        )
        for broker in brokers
    )
    image.apply(
        Change(
            path=f"/admissions/{broker}",
            data=pack_admission(Admission(broker_id=broker, epoch=broker, directories=())),
        )
        for broker in brokers
    )
    return image


def plan(image: MetadataImage, *topics: NewTopic, config: BrokerConfig | None = None) -> Plan[TopicState]:
    ids = count(1)
    return plan_creations(
        image, topics, config=config or BrokerConfig(), make_id=lambda: next(ids).to_bytes(16, "big"), first=0
    )


def carried_out(image: MetadataImage, planned: Plan[TopicState]) -> MetadataImage:
    image.apply(
        Change(path=o.path, data=None if isinstance(o, Delete) else o.data, version=getattr(o, "version", -1) + 1)
        for o in planned.operations
        if isinstance(o, Create | Set | Delete)
    )
    return image


def refusal(planned: Plan[TopicState]) -> BrokerError:
    (outcome,) = planned.outcomes
    assert isinstance(outcome, BrokerError)
    assert planned.operations == ()
    return outcome


def with_topic(name: str, partitions: int = 1, **configs: str) -> MetadataImage:
    image = image_of(1)
    settings = tuple((key.replace("_", "."), value) for key, value in configs.items())
    return carried_out(image, plan(image, NewTopic(name=name, partitions=partitions, configs=settings)))


def test_a_new_topic_has_live_leaders_and_full_isrs() -> None:
    planned = plan(image_of(1, 2, 3), NewTopic(name="a", partitions=6, replication_factor=2))
    (topic,) = planned.outcomes
    assert isinstance(topic, TopicState)
    assert Counter(p.leader for p in topic.partitions) == {1: 2, 2: 2, 3: 2}
    for partition in topic.partitions:
        assert partition.leader == partition.replicas[0]
        assert partition.isr == partition.replicas
        assert len(set(partition.replicas)) == 2
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_a_planned_topic_reads_back_as_its_outcome() -> None:
    planned = plan(image_of(1), NewTopic(name="a", partitions=2, configs=(("retention.ms", "5"),)))
    *partitions, operation = planned.operations
    assert isinstance(operation, Create)
    assert operation.path == topic_path("a")
    assert [each.path for each in partitions] == ["/partitions/" + "0" * 31 + "1.0"]
    assert carried_out(image_of(1), planned).topics["a"] == planned.outcomes[0]


def test_omitted_counts_are_the_brokers_defaults() -> None:
    config = BrokerConfig(num_partitions=7)
    (topic,) = plan(image_of(1), NewTopic(name="a"), config=config).outcomes
    assert isinstance(topic, TopicState)
    assert len(topic.partitions) == 7


@pytest.mark.parametrize(
    ("topic", "error", "words"),
    [
        (NewTopic(name="a", partitions=0), InvalidPartitions, "invalid non-positive value"),
        (NewTopic(name="a", partitions=-2), InvalidPartitions, "invalid non-positive value"),
        (NewTopic(name="a", replication_factor=0), InvalidReplicationFactor, "larger than 0"),
        (NewTopic(name="a", replication_factor=2), InvalidReplicationFactor, "target replication factor of 2"),
        (NewTopic(name=""), InvalidTopic, "the empty string is not allowed"),
        (NewTopic(name=".."), InvalidTopic, r"'\.\.' is not allowed"),
        (NewTopic(name="a/b"), InvalidTopic, "'a/b' contains one or more characters"),
        (NewTopic(name="x" * 250), InvalidTopic, "longer than the max allowed length 249"),
        (NewTopic(name="__cluster_metadata"), InvalidRequest, "__cluster_metadata is prohibited"),
        (NewTopic(name="a", configs=(("nope", "1"),)), InvalidConfig, "Unknown topic config name: nope"),
        (
            NewTopic(name="a", configs=(("retention.ms", None),)),
            InvalidConfig,
            "Null value not supported.*retention.ms",
        ),
        (NewTopic(name="a", assignments=((0, (9,)),)), InvalidReplicaAssignment, "broker 9, but no such broker"),
        (NewTopic(name="a", assignments=((0, (1, 1)),)), InvalidReplicaAssignment, "broker 1 more than once"),
        (NewTopic(name="a", assignments=((0, ()),)), InvalidReplicaAssignment, "empty replica list"),
        (NewTopic(name="a", assignments=((1, (1,)),)), InvalidReplicaAssignment, "consecutive 0-based"),
        (NewTopic(name="a", assignments=((0, (1,)), (0, (1,)))), InvalidReplicaAssignment, "for partition 0"),
        (NewTopic(name="a", assignments=((0, (1,)),), partitions=1), InvalidRequest, "numPartitions was not set to -1"),
        (
            NewTopic(name="a", assignments=((0, (1,)),), replication_factor=1),
            InvalidRequest,
            "factor was not set to -1",
        ),
    ],
)
def test_an_invalid_topic_is_refused_with_the_reason(topic: NewTopic, error: type[BrokerError], words: str) -> None:
    refused = refusal(plan(image_of(1), topic))
    with pytest.raises(error, match=words):
        raise refused


def test_an_invalid_topic_does_not_affect_a_valid_one() -> None:
    planned = plan(image_of(1), NewTopic(name="bad", partitions=0), NewTopic(name="good"))
    assert isinstance(planned.outcomes[0], InvalidPartitions)
    assert isinstance(planned.outcomes[1], TopicState)
    assert [each.path for each in planned.operations][-1:] == ["/topics/good"]
    assert len(planned.operations) == 2


def test_a_name_can_be_used_once() -> None:
    assert isinstance(refusal(plan(with_topic("a"), NewTopic(name="a"))), TopicAlreadyExists)


def test_names_that_metrics_cannot_distinguish_collide() -> None:
    refused = refusal(plan(with_topic("a.b_c"), NewTopic(name="a_b.c")))
    assert str(refused) == "Topic 'a_b.c' collides with existing topic: a.b_c"


def test_a_deleted_topic_collides_with_nothing() -> None:
    image = with_topic("a.b")
    carried_out(image, plan_deletions(image, ["a.b"], config=BrokerConfig()))
    assert isinstance(plan(image, NewTopic(name="a_b")).outcomes[0], TopicState)


def test_too_many_partitions_in_one_request_refuse_all_of_it() -> None:
    half = PARTITIONS_PER_REQUEST_MAX // 2 + 1
    with pytest.raises(PolicyViolation, match="Excessively large number of partitions per request"):
        plan(image_of(1), NewTopic(name="a", partitions=half), NewTopic(name="b", partitions=half))


def test_assigned_replicas_are_kept_in_the_order_of_partitions() -> None:
    topic = NewTopic(name="a", assignments=((1, (3, 1)), (0, (2, 3))))
    (made,) = plan(image_of(1, 2, 3), topic).outcomes
    assert isinstance(made, TopicState)
    assert [p.replicas for p in made.partitions] == [(2, 3), (3, 1)]


def test_assignments_of_different_lengths_are_refused() -> None:
    refused = refusal(plan(image_of(1, 2), NewTopic(name="a", assignments=((0, (1, 2)), (1, (1,))))))
    assert "a partition with 1 replica(s)" in str(refused)
    assert "which have 2 replica(s)" in str(refused)


def test_topics_are_deleted_by_name_or_by_id() -> None:
    image = with_topic("a")
    topic_id = image.topics["a"].topic_id
    for wanted in ("a", topic_id):
        planned = plan_deletions(image, [wanted], config=BrokerConfig())
        assert planned.steps == (
            (
                Delete(topic_path("a"), image.topics["a"].version),
                Create(deletion_path(topic_id), b'{"brokers":[1],"topic":"a"}'),
            ),
            (Delete(chunk_path(topic_id, 0)),),
        )


def test_unknown_topics_cannot_be_deleted() -> None:
    planned = plan_deletions(image_of(1), ["a", TopicId(b"x" * 16)], config=BrokerConfig())
    assert [type(outcome) for outcome in planned.outcomes] == [UnknownTopicOrPartition, UnknownTopicId]


def test_deletion_can_be_switched_off() -> None:
    planned = plan_deletions(with_topic("a"), ["a"], config=BrokerConfig(delete_topic_enable=False))
    assert isinstance(refusal(planned), TopicDeletionDisabled)


def test_growth_keeps_the_existing_partitions() -> None:
    image = with_topic("a", 2, retention_ms="5")
    before = image.topics["a"]
    (grown,) = plan_growths(image, [Growth(name="a", count=5)], first=0).outcomes
    assert isinstance(grown, TopicState)
    assert grown.partitions[:2] == before.partitions
    assert [p.index for p in grown.partitions] == [0, 1, 2, 3, 4]
    assert (grown.topic_id, grown.configs) == (before.topic_id, {"retention.ms": "5"})


def test_a_topic_that_grows_remembers_how_many_partitions_it_was_created_with() -> None:
    image = with_topic("a", 3)
    assert image.topics["a"].partitions_at_creation == 3

    for wanted in (5, 9):
        carried_out(image, plan_growths(image, [Growth(name="a", count=wanted)], first=0))

    assert (len(image.topics["a"].partitions), image.topics["a"].partitions_at_creation) == (9, 3)


@pytest.mark.parametrize(
    ("growth", "error", "words"),
    [
        (Growth(name="a", count=3), InvalidPartitions, r"Topic already has 3 partition\(s\)\."),
        (Growth(name="a", count=2), InvalidPartitions, r"currently has 3 partition\(s\); 2 would not be an increase"),
        (Growth(name="b", count=2), UnknownTopicOrPartition, "^$"),
        (Growth(name="a", count=5, assignments=((1,),)), InvalidReplicaAssignment, r"add 2 .* only 1 assignment\(s\)"),
        (Growth(name="a", count=4, assignments=((9,),)), InvalidReplicaAssignment, "broker 9"),
        (Growth(name="a", count=2_000_000_000), PolicyViolation, "Excessively large"),
    ],
)
def test_invalid_growth_is_refused(growth: Growth, error: type[BrokerError], words: str) -> None:
    refused = refusal(plan_growths(with_topic("a", 3), [growth], first=0))
    with pytest.raises(error, match=words):
        raise refused


BROKER_SETS = st.lists(st.sampled_from(["r1", "r2", "r3", None]), min_size=1, max_size=7)


@given(BROKER_SETS, st.integers(0, 50), st.integers(1, 20), st.data())
def test_placement_is_even_and_uses_every_rack_before_one_twice(
    racks: list[str | None], first: int, partitions: int, data: st.DataObject
) -> None:
    brokers = [BrokerState(broker_id=i, endpoints=(), rack=rack) for i, rack in enumerate(racks)]
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, first=first, count=partitions, factor=factor)
    assert len(placed) == partitions
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker.broker_id] for broker in brokers) <= 1
    named = {rack for rack in racks if rack is not None}
    for replicas in placed:
        assert len(set(replicas)) == factor
        leader_rack = racks[replicas[0]]
        reachable = len(named | {leader_rack})
        used = len({racks[broker] for broker in replicas})
        assert used >= min(factor, reachable if leader_rack is not None or factor > 1 else 1)


def test_replicas_of_one_rack_are_on_different_hosts() -> None:
    hosts = ["a", "a", "b", "b", "c", "c"]
    brokers = [BrokerState(broker_id=i, endpoints=(), rack=None, host=host) for i, host in enumerate(hosts)]
    for replicas in place(brokers, first=0, count=24, factor=3):
        assert {hosts[broker] for broker in replicas} == {"a", "b", "c"}


def test_racks_come_before_hosts() -> None:
    where = [("r1", "a"), ("r1", "b"), ("r2", "c"), ("r2", "d")]
    brokers = [BrokerState(broker_id=i, endpoints=(), rack=rack, host=host) for i, (rack, host) in enumerate(where)]
    for replicas in place(brokers, first=0, count=12, factor=3):
        assert {where[broker][0] for broker in replicas[:2]} == {"r1", "r2"}
        assert len({where[broker][1] for broker in replicas}) == 3
