"""The image of the metadata: what a change does to it, and that it never goes back."""

from __future__ import annotations

import pytest

from penstock.metadata.image import MetadataImage
from penstock.metadata.nodes import Change, Node
from penstock.metadata.records import (
    FORMAT_MAX,
    PARTITIONS_PER_CHUNK,
    BrokerState,
    RecordTooNew,
    broker_path,
    chunk_path,
    chunk_slice,
    chunks_needed,
    pack,
    pack_broker,
    pack_partitions,
    pack_topic,
    topic_path,
    unpack_partitions,
)
from penstock.model.ids import TOPIC_ID_ZERO, TopicId, TopicPartition
from penstock.model.topic import LeaderRecoveryState, PartitionState, TopicState


def state(index: int, epoch: int = 0) -> PartitionState:
    return PartitionState(index=index, leader=1, leader_epoch=epoch, replicas=(1,), isr=(1,))


def id_of(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def own_node(version: int, *, number: int = 1, partitions: int = 1, name: str = "a") -> Change:
    states = tuple(state(index) for index in range(partitions))
    made = TopicState(name=name, topic_id=id_of(number), configs={}, partitions=states)
    return Change(path=topic_path(name), data=pack_topic(made), version=version)


def chunks(version: int, *, number: int = 1, partitions: int = 1, epoch: int = 0) -> list[Change]:
    states = [state(index, epoch) for index in range(partitions)]
    return [
        Change(path=chunk_path(id_of(number), chunk), data=pack_partitions(states[chunk_slice(chunk)]), version=version)
        for chunk in range(chunks_needed(partitions))
    ]


def registration(created: int, rack: str) -> Change:
    data = pack_broker(BrokerState(broker_id=1, endpoints=(), rack=rack))
    return Change(path=broker_path(1), data=data, created=created)


def image_of(partitions: int, version: int = 0) -> MetadataImage:
    image = MetadataImage()
    image.apply([*chunks(version, partitions=partitions), own_node(version, partitions=partitions)])
    return image


def nodes_of(image_changes: list[Change]) -> dict[str, Node]:
    return {
        change.path: Node(data=change.data or b"", version=change.version, owner=0, created=change.created)
        for change in image_changes
    }


@pytest.mark.parametrize("late", [own_node(2, partitions=2), *chunks(2, epoch=9)], ids=["topic", "partitions"])
def test_a_change_of_a_topic_that_comes_late_changes_nothing(late: Change) -> None:
    image = image_of(4, version=3)
    before = image.topics["a"]

    delta = image.apply([late])

    assert delta.topics == ()
    assert image.topics["a"] is image.topics_by_id[before.topic_id] is before
    assert image.partition_count == 4


def test_a_topic_created_again_begins_with_version_0() -> None:
    image = image_of(1, version=3)

    delta = image.apply([*chunks(0, number=2, partitions=2), own_node(0, number=2, partitions=2)])

    assert len(delta.topics) == 1
    assert (image.topics["a"].topic_id, image.partition_count) == (id_of(2), 2)


def test_a_registration_that_comes_late_does_not_replace_a_later_one() -> None:
    image = MetadataImage()
    image.apply([registration(created=7, rack="new")])

    delta = image.apply([registration(created=5, rack="old")])

    assert not delta.brokers
    assert (image.brokers[1].epoch, image.brokers[1].rack) == (7, "new")


def test_a_topic_exists_when_its_own_node_does() -> None:
    image = MetadataImage()
    for chunk in chunks(0, partitions=300):
        assert image.apply([chunk]).topics == ()
    assert (dict(image.topics), image.orphans()) == ({}, [id_of(1)])

    [made] = image.apply([own_node(0, partitions=300)]).topics

    assert made.after is image.topics["a"]
    assert [partition.index for partition in image.topics["a"].partitions] == list(range(300))
    assert (image.topics["a"].chunk_versions, image.orphans()) == ((0, 0, 0), [])


def test_partitions_may_follow_their_topic_in_one_report() -> None:
    image = image_of(1)

    delta = image.apply([own_node(0, number=2, partitions=200), *chunks(0, number=2, partitions=200)])

    [change] = delta.topics
    assert change.before is not None
    assert change.after is image.topics["a"]
    assert len(image.topics["a"].partitions) == 200


def test_new_partitions_exist_when_the_topics_own_node_says_so() -> None:
    image = image_of(100)
    grown = chunks(1, partitions=200)
    for chunk in grown:
        image.apply([chunk])
        assert len(image.topics["a"].partitions) == 100
    assert image.chunks_of(id_of(1)) == [0, 1]

    image.apply([own_node(1, partitions=200)])

    assert (len(image.topics["a"].partitions), image.partition_count) == (200, 200)
    assert image.topics["a"].chunk_versions == (1, 1)


def test_a_deletion_leaves_orphans_until_the_last_of_its_nodes_is_gone() -> None:
    image = image_of(200)

    [gone] = image.apply([Change(path=topic_path("a"), data=None)]).topics
    assert (gone.after, image.partition_count, image.orphans()) == (None, 0, [id_of(1)])
    assert image.chunks_of(id_of(1)) == [0, 1]

    for number in (0, 1):
        image.apply([Change(path=chunk_path(id_of(1), number), data=None)])
    assert image.orphans() == []


def test_a_deletion_in_one_transaction_leaves_nothing() -> None:
    image = image_of(200)
    image.apply(
        [Change(path=path, data=None) for path in (topic_path("a"), *(chunk_path(id_of(1), n) for n in range(2)))]
    )
    assert (image.orphans(), image.partition_count) == ([], 0)


def test_a_tree_read_again_gives_only_what_differs() -> None:
    image = image_of(200)
    image.apply([*chunks(0, number=2), own_node(0, number=2, name="b"), registration(created=3, rack="r")])
    kept = [*chunks(0, partitions=200)[:1], *chunks(1, partitions=200, epoch=5)[1:], own_node(0, partitions=200)]

    delta = image.replace_with(nodes_of([*kept, registration(created=3, rack="r")]))

    assert not delta.brokers
    assert {(change.before and change.before.name, change.after is None) for change in delta.topics} == {
        ("a", False),
        ("b", True),
    }
    assert [p.leader_epoch for p in image.topics["a"].partitions] == [0] * 128 + [5] * 72
    assert image.orphans() == []
    assert image.replace_with(nodes_of([*kept, registration(created=3, rack="r")])).topics == ()


def test_every_field_of_a_partition_is_kept() -> None:
    usual = state(PARTITIONS_PER_CHUNK)
    rare = PartitionState(
        index=PARTITIONS_PER_CHUNK + 1,
        leader=-1,
        leader_epoch=4,
        replicas=(1, 2, 3),
        isr=(),
        partition_epoch=9,
        adding_replicas=(3,),
        removing_replicas=(1,),
        eligible_leader_replicas=(2,),
        last_known_leader=1,
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
        in_sync_min=2,
    )
    assert unpack_partitions(pack_partitions([usual, rare]), 1) == (usual, rare)


def test_a_log_without_a_topic_id_counts_as_a_copy_of_the_topic_of_its_name() -> None:
    several = PartitionState(index=0, leader=1, leader_epoch=0, replicas=(1, 2), isr=(1, 2))
    image = MetadataImage()
    image.topics["a"] = TopicState(name="a", topic_id=id_of(1), configs={}, partitions=(several, state(1)))

    def is_replicated(partition: int, topic_id: TopicId) -> bool:
        return image.is_replicated(TopicPartition("a", partition), topic_id)

    assert is_replicated(0, id_of(1))
    assert is_replicated(0, TOPIC_ID_ZERO), "a power cut may take the file with the id"
    assert not is_replicated(0, id_of(2)), "the log of an earlier topic of the name"
    assert not is_replicated(1, id_of(1)), "the only replica"
    assert not is_replicated(2, id_of(1))


def test_a_record_of_a_later_version_is_not_guessed_at() -> None:
    with pytest.raises(RecordTooNew, match=f"format {FORMAT_MAX + 1}"):
        unpack_partitions(pack({"v": FORMAT_MAX + 1, "partitions": []}), 0)
