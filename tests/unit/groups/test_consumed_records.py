"""cleanup.policy=consume: what is removed, when, and for whom (C1)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.groups.coordinator_rig import Groups
from tests.unit.partition.rig import batch, topic, values

from penstock.config.broker import BrokerConfig
from penstock.config.log import check_topic_configs
from penstock.controller.queue_settings import check_queue_settings
from penstock.groups.commands import CommitEntry, CommitOffsets
from penstock.groups.consumed_records import CommittedAt, ConsumedRecords, committed_in, question, removable
from penstock.model.cluster_versions import SHARE_GROUPS
from penstock.model.deferred import Deferred
from penstock.model.generated_errors import InvalidConfig
from penstock.model.ids import BrokerId, Offset
from penstock.model.topic import PartitionState, TopicState
from penstock.partition.replica import Replica
from penstock.storage.retention import retain
from penstock.wire.api import offset_fetch as gen

CONSUMED = {"cleanup.policy": "consume", "consume.group": "workers"}
JOBS = topic("jobs", 2, number=7, configs=CONSUMED)
OTHER_BROKER = BrokerId(2)


class Peers:
    """Coordinators on other brokers, which answer when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, gen.Request, Deferred[gen.Response]]] = []

    def send(self, broker_id: int, purpose: object, api: object, request: gen.Request, **_: Any) -> Deferred[Any]:
        answer: Deferred[gen.Response] = Deferred()
        self.asked.append((broker_id, request, answer))
        return answer


class World:
    """A broker that leads topic `jobs` and, unless told otherwise, coordinates its group."""

    def __init__(self, jobs: TopicState = JOBS) -> None:
        self.jobs = jobs
        self.groups = Groups(more=(jobs,))
        self.peers = Peers()
        self.consumed = ConsumedRecords(
            broker_id=BrokerId(1),
            replicas=self.groups.rig.replicas,
            image=self.groups.image,
            coordinators=self.groups.coordinators,
            peers=self.peers,  # type: ignore[arg-type]
            interval_ms=lambda: 1,
            timeout_ms=lambda: 1_000,
            log=self.groups.rig.notes,
        )

    def replica(self, partition: int = 0) -> Replica:
        return self.groups.rig.replica("jobs", partition)

    def produce(self, *texts: bytes, partition: int = 0) -> None:
        self.groups.rig.append(self.replica(partition), batch(*texts))

    async def commit(self, offset: int, group: str = "workers", partition: int = 0, topic_id: Any = None) -> None:
        entry = CommitEntry("jobs", partition, offset, topic_id=topic_id or self.jobs.topic_id)
        await self.groups.response(
            CommitOffsets(group=group, entries=(entry,), member_id="", group_instance_id=None, generation=-1, version=9)
        )

    def elsewhere(self) -> None:
        """Another broker leads the coordinators' partition from now on."""
        before = self.groups.image.topics["__consumer_offsets"]
        moved = PartitionState(index=0, leader=OTHER_BROKER, leader_epoch=1, replicas=(2,), isr=(2,))
        self.groups.image.topics[before.name] = TopicState(
            name=before.name, topic_id=before.topic_id, configs=before.configs, partitions=(moved,)
        )


def answer_for(request: gen.Request, offset_of: Callable[[int], int], error: int = 0) -> gen.Response:
    [group] = request.groups
    assert group.topics is not None
    topics = [
        gen.OffsetFetchResponseTopics(
            name=each.name,
            topic_id=each.topic_id,
            partitions=[
                gen.OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=offset_of(index), error_code=error
                )
                for index in each.partition_indexes
            ],
        )
        for each in group.topics
    ]
    return gen.Response(groups=[gen.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)])


def test_what_the_group_has_committed_is_removed_and_what_others_committed_is_not() -> None:
    async def run() -> None:
        world = World()
        world.produce(b"a", b"b", b"c")
        world.produce(b"x", partition=1)
        await world.commit(3, group="others")

        world.consumed.check()
        assert values(world.replica()) == [b"a", b"b", b"c"]
        await world.commit(2)
        world.consumed.check()

        assert values(world.replica(), 2) == [b"c"]
        assert world.replica().offsets.log_start == 2
        assert values(world.replica(1)) == [b"x"]

    asyncio.run(run())


def test_a_commit_that_is_not_committed_removes_nothing_yet() -> None:
    async def run() -> None:
        world = World()
        world.produce(b"a", b"b")
        await world.commit(1)
        context = world.groups.of("workers")
        committed: Deferred[None] = Deferred()
        context.__class__.committed, before = (lambda _: committed), context.__class__.committed  # type: ignore[method-assign]
        try:
            world.consumed.check()
            world.consumed.check()
        finally:
            context.__class__.committed = before  # type: ignore[method-assign]
        assert world.replica().offsets.log_start == 0

        committed.resolve(None)

        assert world.replica().offsets.log_start == 1

    asyncio.run(run())


def test_an_offset_of_an_earlier_topic_of_the_name_removes_nothing() -> None:
    async def run() -> None:
        world = World()
        world.produce(b"a", b"b")

        await world.commit(2, topic_id=topic("jobs", number=6).topic_id)
        world.consumed.check()

        assert values(world.replica()) == [b"a", b"b"]
        [asked] = question("workers", [world.replica()]).groups
        assert asked.topics is not None
        assert [each.topic_id for each in asked.topics] == [JOBS.topic_id]

    asyncio.run(run())


def test_a_coordinator_on_another_broker_is_asked_once_at_a_time() -> None:
    world = World()
    world.produce(b"a", b"b", b"c")
    world.produce(b"x", partition=1)
    world.elsewhere()

    world.consumed.check()
    world.consumed.check()
    [(broker, request, answer)] = world.peers.asked
    answer.resolve(answer_for(request, lambda index: 2 if index == 0 else -1))
    assert (broker, world.replica(0).offsets.log_start, world.replica(1).offsets.log_start) == (OTHER_BROKER, 2, 0)

    world.consumed.check()
    _, request, answer = world.peers.asked[1]
    answer.resolve(answer_for(request, lambda _: 3, error=15))
    world.consumed.check()
    _, _, answer = world.peers.asked[2]
    answer.fail(ConnectionError())
    assert world.replica().offsets.log_start == 2
    world.consumed.check()
    assert len(world.peers.asked) == 4


def test_an_answer_for_a_group_or_a_topic_that_is_no_longer_the_topics_is_ignored() -> None:
    world = World()
    world.produce(b"a", b"b")
    world.elsewhere()
    world.consumed.check()
    [(_, request, answer)] = world.peers.asked

    changed = topic("jobs", 2, number=7, configs={**CONSUMED, "consume.group": "others"})
    world.groups.change(JOBS, changed)
    answer.resolve(answer_for(request, lambda _: 2))

    assert values(world.replica()) == [b"a", b"b"]


def test_only_partitions_that_are_led_here_are_asked_about() -> None:
    world = World()
    world.produce(b"a")
    world.elsewhere()
    replica = world.replica()
    replica.assume(PartitionState(index=0, leader=2, leader_epoch=1, replicas=(1, 2), isr=(2,)), 0)

    world.consumed.check()

    assert world.peers.asked == []


@given(st.integers(-1, 9), st.integers(0, 9), st.integers(0, 9))
def test_the_log_start_never_passes_the_commit_nor_the_high_watermark(committed: int, start: int, more: int) -> None:
    to = removable(Offset(committed), Offset(start), Offset(start + more))

    if to is None:
        assert min(committed, start + more) <= start
    else:
        assert start < to == min(committed, start + more)


def test_a_consumed_log_takes_no_space_but_for_its_window_of_ids() -> None:
    for window, left in ((0, []), (2, [b"b", b"c"])):
        configs = {**CONSUMED, "dedupe.window.records": str(window)} if window else CONSUMED
        world = World(topic("jobs", 2, number=7, configs=configs))
        for text in (b"a", b"b", b"c"):
            world.produce(text)
            world.replica().log.roll()
        replica = world.replica()
        replica.delete_records(Offset(3))

        retain(
            replica.log,
            world.groups.rig.clock.ms,
            committed=replica.offsets.high_watermark,
            trash=world.groups.rig.store.trash,
        )

        kept = [bytes(found.data) for found in replica.log.view().walk_from(Offset(0), bodies=True)]
        assert [text for text in (b"a", b"b", b"c") if any(text in data for data in kept)] == left
        assert replica.offsets.log_end == 3


def test_other_groups_cannot_commit_and_the_log_says_why_once() -> None:
    world = World()
    coordinators = world.groups.coordinators

    assert coordinators.may_commit(JOBS, "workers")
    assert coordinators.may_commit(topic("orders"), "others")
    assert [coordinators.may_commit(JOBS, "others") for _ in range(2)] == [False, False]

    [refusal] = world.groups.rig.notes.named("commit_refused")
    assert "consume.group=workers" in refusal["reason"]


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"cleanup.policy": "consume"}, "needs consume.group"),
        ({"consume.group": "g"}, "needs cleanup.policy=consume"),
        ({"cleanup.policy": "consume,compact", "consume.group": "g"}, "compact"),
    ],
)
def test_a_policy_and_its_group_go_together(configs: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        check_topic_configs(configs, BrokerConfig())
    check_topic_configs({**CONSUMED, "cleanup.policy": "consume,delete"}, BrokerConfig())


def test_a_cluster_of_an_earlier_version_refuses_the_settings_of_queues() -> None:
    with pytest.raises(InvalidConfig, match=f"version {SHARE_GROUPS}"):
        check_queue_settings(CONSUMED, {}, SHARE_GROUPS - 1)
    check_queue_settings(CONSUMED, CONSUMED, SHARE_GROUPS - 1)
    check_queue_settings(CONSUMED, {}, SHARE_GROUPS)


def test_a_cluster_of_an_earlier_version_takes_the_defaults_of_settings_of_queues() -> None:
    defaults = {"consume.group": "", "dedupe.window.records": "0", "ttl.enable": "false"}

    check_queue_settings(defaults, {}, SHARE_GROUPS - 1)
    with pytest.raises(InvalidConfig, match=r"ttl\.enable"):
        check_queue_settings({**defaults, "ttl.enable": "true"}, defaults, SHARE_GROUPS - 1)


def test_a_failed_group_has_committed_nothing() -> None:
    empty: CommittedAt = committed_in(gen.Response(groups=[gen.OffsetFetchResponseGroup(group_id="g", error_code=16)]))
    assert empty == {}
