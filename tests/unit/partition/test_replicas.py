"""Replicas follow the metadata: topics are created, grown, changed, deleted and created again."""

import copy
import errno
from dataclasses import replace

import pytest
from tests.unit.partition.rig import Rig, Seeded, batch, topic, values

from penstock.model.generated_errors import (
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.topic import PartitionState, TopicState


def test_a_partition_is_found_by_name_and_by_id() -> None:
    rig = Rig(topic(partitions=2))

    replica = rig.replicas.get("orders", 1)

    assert replica.tp == TopicPartition("orders", 1)
    assert rig.replicas.get("orders", 1) is replica
    assert rig.replicas.find((1).to_bytes(16, "big"), 1) is replica
    assert rig.replicas.topic_name((1).to_bytes(16, "big")) == "orders"
    assert rig.replicas.topic_name((2).to_bytes(16, "big")) is None


def test_topics_and_partitions_that_do_not_exist_are_unknown() -> None:
    rig = Rig(topic(partitions=2))

    for name, partition in (("orders", 2), ("orders", -1), ("other", 0)):
        with pytest.raises(UnknownTopicOrPartition):
            rig.replicas.get(name, partition)
    with pytest.raises(UnknownTopicId):
        rig.replicas.find(bytes(16), 0)
    with pytest.raises(UnknownTopicOrPartition):
        rig.replicas.find((1).to_bytes(16, "big"), 7)


def test_no_log_is_opened_after_the_replicas_are_closed() -> None:
    rig = Rig(topic(partitions=2))
    rig.append(rig.replica("orders", 0), batch(b"a"))

    rig.replicas.close()

    for partition in (0, 1):
        with pytest.raises(NotLeaderOrFollower):
            rig.replicas.get("orders", partition)


def test_a_partition_of_other_brokers_has_no_log() -> None:
    elsewhere = PartitionState(index=0, leader=2, leader_epoch=0, replicas=(2, 3), isr=(2,))
    rig = Rig(replace(topic(), partitions=(elsewhere,)))

    with pytest.raises(NotLeaderOrFollower):
        rig.replicas.get("orders", 0)
    assert rig.store.get(TopicPartition("orders", 0)) is None


def test_ten_thousand_partitions_cost_nothing_until_they_are_used() -> None:
    many = topic(partitions=10_000)
    rig = Rig()

    rig.change(None, many)

    assert len(rig.replicas) == 10_000
    assert len(list(rig.replicas.live())) == 0
    assert rig.disk.list_directory("/data").count("orders-0") == 0
    rig.append(rig.replica(partition=9_999), batch(b"a"))
    assert len(list(rig.replicas.live())) == 1


def test_topics_of_the_same_settings_share_them() -> None:
    rig = Rig(topic("a", number=1, configs={"retention.ms": "5"}), topic("b", number=2, configs={"retention.ms": "5"}))

    assert rig.replica("a").config is rig.replica("b").config


def test_a_deleted_topic_is_unknown_also_to_holders_of_its_replica_and_has_no_log() -> None:
    was = topic(partitions=2)
    rig = Rig(was)
    replica = rig.replica()
    rig.append(replica, batch(b"a"))

    rig.change(was, None)

    with pytest.raises(UnknownTopicOrPartition):
        rig.replicas.get("orders", 0)
    with pytest.raises(UnknownTopicOrPartition):
        rig.append(replica, batch(b"b"))
    assert rig.store.get(TopicPartition("orders", 0)) is None
    assert len(rig.replicas) == 0


def test_a_topic_created_again_starts_empty_and_its_old_id_is_unknown() -> None:
    was = topic(number=1)
    rig = Rig(was)
    old = rig.replica()
    rig.append(old, batch(b"old", producer_id=5))

    rig.change(was, topic(number=2))

    new = rig.replica()
    assert values(new) == []
    assert rig.append(new, batch(b"new", producer_id=5, base_sequence=9)).base_offset == 0
    with pytest.raises(UnknownTopicOrPartition):
        old.read(0, 1, at_least_one=True)
    with pytest.raises(UnknownTopicId):
        rig.replicas.find((1).to_bytes(16, "big"), 0)


def strays(rig: Rig) -> list[str]:
    return [name for name in rig.disk.list_directory("/data") if name.endswith("-stray")]


def empty_the_trash(rig: Rig) -> None:
    rig.store.trash.remove(rig.store.trash.take_due(2**63))


def test_a_log_of_another_topic_of_the_name_is_set_aside_and_never_removed() -> None:
    rig = Rig(topic(number=1))
    rig.append(rig.replica(), batch(b"old"))

    again = Rig(topic(number=2), disk=rig.stop())

    assert values(again.replica()) == []
    assert again.replica().topic_id == TopicId((2).to_bytes(16, "big"))
    empty_the_trash(again)
    [aside] = strays(again)
    [fields] = again.notes.named("log_set_aside")
    assert fields["path"] == f"/data/{aside}"
    assert again.disk.stat(f"/data/{aside}/{0:020d}.log").size > 0


def test_creating_a_topic_does_not_remove_an_older_log_of_its_name() -> None:
    rig = Rig(topic(number=1))
    rig.append(rig.replica(), batch(b"old"))
    again = Rig(disk=rig.stop())

    again.change(None, topic(number=2))

    rig.append(again.replica(), batch(b"new"))
    empty_the_trash(again)
    assert values(Rig(topic(number=1), disk=again.stop()).replica()) == [b"old"]


def test_a_log_without_a_topic_is_set_aside_and_restored_when_the_metadata_has_its_topic_again() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    for value in (b"a", b"b", b"c"):
        rig.append(replica, batch(value))
    replica.delete_records(1)

    again = Rig(disk=rig.stop())

    assert [fields["partition"] for fields in again.notes.named("log_set_aside")] == ["orders-0"]
    assert "orders-0" not in again.disk.list_directory("/data")
    third = Rig(topic(), disk=again.stop(clean=False))
    assert (third.replica().offsets.log_start, third.replica().offsets.log_end) == (1, 3)
    assert values(third.replica(), 1) == [b"b", b"c"]
    assert strays(third) == []
    fourth = Rig(topic(), disk=third.stop(clean=False))
    assert (fourth.replica().offsets.log_start, fourth.replica().offsets.log_end) == (1, 3)


def test_a_log_set_aside_after_a_power_cut_is_recovered_when_it_is_restored() -> None:
    rig = Rig(topic())
    replica = rig.replica()
    rig.append(replica, batch(b"a"))
    replica.log.flush()
    disk = rig.stop(clean=False)
    disk.open(f"/data/orders-0/{0:020d}.log").append(b"torn")

    again = Rig(topic(), disk=Rig(disk=disk).stop())

    assert values(again.replica()) == [b"a"]
    assert again.append(again.replica(), batch(b"b")).base_offset == 1


def test_a_deletion_that_a_stop_interrupted_is_finished_at_the_next_start() -> None:
    was = topic(number=1, partitions=2)
    rig = Rig(was)
    rig.append(rig.replica(), batch(b"deleted by request"))

    again = Rig(topic(number=2), disk=rig.stop(), deleted=(was,))

    assert values(again.replica()) == []
    empty_the_trash(again)
    assert strays(again) == []
    assert again.disk.list_directory("/data").count("orders-0") == 0


def test_records_of_a_deleted_topic_do_not_reappear_in_the_next_topic_of_its_name() -> None:
    was, now = topic(number=1), topic(number=2)
    for seed in range(300):
        rig = Rig(was)
        for at in range(3):
            rig.append(rig.replica(), batch(b"%d" % at + b"deleted by request" * 40))
        rig.change(was, None)
        rig.change(None, now)
        rig.append(rig.replica(), batch(b"new"))
        rig.disk.crash(Seeded(seed))

        again = Rig(now, disk=rig.disk, deleted=(was,))

        assert values(again.replica()) in ([], [b"new"]), f"seed {seed}"


def test_a_partition_that_older_metadata_does_not_have_is_restored_when_the_topic_grows() -> None:
    rig = Rig(topic(partitions=3))
    rig.append(rig.replica(partition=2), batch(b"c"))
    older = topic(partitions=1)
    again = Rig(older, disk=rig.stop())
    assert len(strays(again)) == 1

    again.change(older, topic(partitions=3))

    assert values(again.replica(partition=2)) == [b"c"]


def test_a_log_that_cannot_be_set_aside_keeps_its_name_and_refuses_the_new_topic() -> None:
    rig = Rig(topic(number=1))
    rig.append(rig.replica(), batch(b"old"))
    disk = rig.stop()
    disk.fail("rename", "/data/orders-0", errno.ENOSPC)

    again = Rig(topic(number=2), disk=disk)

    with pytest.raises(KafkaStorageError):
        again.replica()
    assert "orders-0" in disk.list_directory("/data")
    assert values(Rig(topic(number=1), disk=again.stop()).replica()) == [b"old"]


def test_a_topic_grows() -> None:
    was = topic(partitions=1)
    rig = Rig(was)
    first = rig.replica()

    rig.change(was, topic(partitions=3))

    assert rig.append(rig.replica(partition=2), batch(b"a")).base_offset == 0
    assert rig.replica() is first


def test_new_settings_reach_replicas_and_unused_logs() -> None:
    was = topic(partitions=2)
    rig = Rig(was)
    rig.replica(partition=0)

    rig.change(was, topic(partitions=2, configs={"retention.ms": "77"}))

    assert rig.replica(partition=0).config.retention_ms == 77
    idle = rig.store.get(TopicPartition("orders", 1))
    assert idle is not None
    assert idle.config.retention_ms == 77


def test_new_defaults_of_the_broker_reach_topics_that_do_not_override_them() -> None:
    rig = Rig(topic("a", number=1), topic("b", number=2, configs={"retention.ms": "5"}))
    rig.replica("a"), rig.replica("b")

    rig.replicas.reconfigure_all(replace(rig.config, log_retention_ms=1234))

    assert rig.replica("a").config.retention_ms == 1234
    assert rig.replica("b").config.retention_ms == 5


def test_a_new_leader_epoch_is_applied() -> None:
    was = topic()
    rig = Rig(was)
    replica = rig.replica()
    rig.append(replica, batch(b"a"))

    rig.change(was, topic(epoch=3))
    rig.append(replica, batch(b"b"))

    assert replica.role.leader_epoch == 3
    assert replica.log.epochs.latest == 3
    assert values(replica) == [b"a", b"b"]


def test_a_failed_directory_takes_only_its_partitions_offline() -> None:
    rig = Rig(topic(partitions=2), paths=("/one", "/two"))
    first, second = rig.replica(partition=0), rig.replica(partition=1)
    assert first.log.directory is not second.log.directory
    rig.append(first, batch(b"a"))
    rig.append(second, batch(b"b"))
    rig.disk.fail("append", first.log.directory.path, errno.EIO)

    with pytest.raises(KafkaStorageError):
        rig.append(first, batch(b"c"))

    assert first.is_offline
    with pytest.raises(KafkaStorageError, match="offline"):
        rig.replica(partition=0).read(0, 1, at_least_one=True)
    assert values(second) == [b"b"]
    rig.append(second, batch(b"d"))


def test_a_partition_is_not_recreated_elsewhere_while_its_log_directory_is_offline() -> None:
    rig = Rig(topic(partitions=2), paths=("/one", "/two"))
    lost = rig.replica(partition=0).log.directory.path
    for partition in range(2):
        rig.append(rig.replica(partition=partition), batch(b"a"))
    disk = rig.stop()
    disk.fail("list", lost, errno.EIO)

    again = Rig(topic(partitions=2), disk=disk, paths=("/one", "/two"))

    with pytest.raises(KafkaStorageError):
        again.replica(partition=0)
    assert values(again.replica(partition=1)) == [b"a"]


def test_a_topic_can_be_made_while_a_directory_is_offline() -> None:
    rig = Rig(paths=("/one", "/two"))
    rig.store.all_directories[0].go_offline("gone")

    rig.change(None, topic())

    assert rig.append(rig.replica(), batch(b"a")).base_offset == 0


def test_after_a_crash_every_log_has_all_acknowledged_records() -> None:
    rig = Rig(topic("a", number=1, partitions=3), topic("b", number=2))
    for name, partition in (("a", 0), ("a", 1), ("a", 2), ("b", 0)):
        rig.append(rig.replica(name, partition), batch(name.encode(), b"%d" % partition, producer_id=partition))

    again = Rig(topic("a", number=1, partitions=3), topic("b", number=2), disk=rig.stop(clean=False))

    for name, partition in (("a", 0), ("a", 1), ("a", 2), ("b", 0)):
        assert values(again.replica(name, partition)) == [name.encode(), b"%d" % partition]
        known = again.replica(name, partition).producers.get(partition)
        assert known is not None


def test_with_flush_group_records_read_after_a_kill_survive_a_power_cut() -> None:
    """That includes records that were neither flushed nor acknowledged before the kill."""
    durable = topic(configs={"flush": "group"})
    rig = Rig(durable)
    rig.append(rig.replica(), batch(b"acknowledged"))
    rig.flush()
    rig.append(rig.replica(), batch(b"neither flushed nor acknowledged"))
    assert values(rig.replica()) == [b"acknowledged"]

    again = Rig(durable, disk=rig.stop(clean=False))

    seen = values(again.replica())
    assert seen[:1] == [b"acknowledged"]
    for seed in range(20):
        disk = copy.deepcopy(again.disk)
        disk.crash(Seeded(seed))
        assert values(Rig(durable, disk=disk).replica())[: len(seen)] == seen


def test_a_flush_that_fails_at_the_start_takes_its_directory_offline() -> None:
    durable = topic(configs={"flush": "group"})
    rig = Rig(durable)
    rig.append(rig.replica(), batch(b"neither flushed nor acknowledged"))
    disk = rig.stop(clean=False)
    disk.fail("sync", ".log", errno.EIO)

    again = Rig(durable, disk=disk)

    with pytest.raises(KafkaStorageError):
        again.replica()
    assert again.store.all_directories[0].offline is not None


def moved(before: TopicState, *replicas: int) -> TopicState:
    """A topic whose partitions have other replicas now, of which the first leads."""
    return replace(
        before,
        partitions=tuple(
            replace(
                one,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=one.leader_epoch + 1,
                partition_epoch=one.partition_epoch + 1,
            )
            for one in before.partitions
        ),
    )


@pytest.mark.parametrize("used", [True, False], ids=["in use", "not used since the start"])
def test_a_broker_that_is_no_longer_a_replica_removes_its_log(used: bool) -> None:
    before = topic(partitions=3)
    rig = Rig(before)
    replicas = [rig.replica(partition=index) for index in range(3)]
    for replica in replicas:
        rig.append(replica, batch(b"x"))
    if not used:
        rig = Rig(before, disk=rig.stop())

    rig.change(before, moved(before, 2))

    assert [log.tp for log in rig.store] == []
    assert [fields["partition"] for fields in rig.notes.named("replica_removed")] == [
        "orders-0",
        "orders-1",
        "orders-2",
    ]
    with pytest.raises(NotLeaderOrFollower):
        rig.replica()
    if used:
        with pytest.raises(NotLeaderOrFollower):
            rig.append(replicas[2], batch(b"late"))


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_replica_removed_while_the_broker_was_down_loses_its_log(clean: bool) -> None:
    before = topic(partitions=2)
    rig = Rig(before)
    for index in range(2):
        rig.append(rig.replica(partition=index), batch(b"x"))
    after = replace(moved(before, 2), partitions=(moved(before, 2).partitions[0], before.partitions[1]))

    again = Rig(after, disk=rig.stop(clean=clean))

    assert [log.tp.partition for log in again.store] == [1]
    assert values(again.replica(partition=1)) == [b"x"]


def test_a_new_replica_has_a_log_at_once() -> None:
    before = moved(topic(partitions=2), 2)
    rig = Rig(before)
    assert [log.tp for log in rig.store] == []

    rig.change(before, moved(before, 2, 1))

    assert [log.tp.partition for log in rig.store] == [0, 1]
