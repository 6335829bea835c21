"""The group coordinators of a broker: partitions of groups, loading, failures, and lag."""

import asyncio
import errno
import struct
from dataclasses import replace

import pytest
from fastcrc.crc32 import iscsi as crc32c
from tests.unit.groups.coordinator_rig import OFFSETS, Groups, beat, commit, offsets_topic, took, with_groups
from tests.unit.partition.rig import HOME, batch, topic

from penstock.config.broker import BrokerConfig
from penstock.coordinator import loading
from penstock.coordinator import runtime as coordinator_runtime
from penstock.coordinator.runtime import LOAD_CHANGED_MS, partition_of
from penstock.groups import lag as group_lag
from penstock.groups.commands import HeartbeatReply
from penstock.groups.lag import GroupLag
from penstock.model.batch import ATTRIBUTES_AT, CRC_AT
from penstock.model.generated_errors import CoordinatorLoadInProgress, NotCoordinator
from penstock.model.ids import TopicId, TopicPartition
from penstock.observe.groups import CoverageView, GroupSource, LagView
from penstock.observe.metrics import Collector
from penstock.storage.log import Log
from penstock.storage.view import LogView
from penstock.wire.group_records import group_key
from penstock.wire.records import Record, build_batch, parse_batch_header


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("", 0),
        ("g", 3),
        ("group", 47),
        ("my-consumer-group", 13),
        ("grüppe-\N{GRINNING FACE}", 14),
        ("polygenelubricants", 0),
        ("console-consumer-12345", 6),
        ("a" * 40, 22),
    ],
)
def test_a_group_is_in_the_partition_that_java_computes(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


def test_a_group_stays_in_its_partition_when_partitions_are_added() -> None:
    async def act(groups: Groups) -> None:
        places = {f"g{at}": groups.coordinators.partition_of(f"g{at}") for at in range(20)}

        groups.change(offsets_topic(4), replace(offsets_topic(9), grown_from=4))

        assert {group: groups.coordinators.partition_of(group) for group in places} == places
        assert set(places.values()) == {0, 1, 2, 3}

    with_groups(act, offsets_topic(4))


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_offsets_are_found_after_their_topic_grew_and_the_broker_restarted(clean: bool) -> None:
    async def act(groups: Groups) -> None:
        for at in range(20):
            assert took(await groups.commit(at, f"g{at}"))
        groups.change(offsets_topic(4), replace(offsets_topic(9), grown_from=4))

        loaded = groups.again(clean=clean)
        await loaded.load()

        assert [loaded.offsets(f"g{at}") for at in range(20)] == [{("orders", 0): at} for at in range(20)]

    with_groups(act, offsets_topic(4))


def test_without_the_topic_there_is_no_coordinator() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)

        groups.change(offsets_topic(), None)

        with pytest.raises(NotCoordinator):
            groups.of()
        assert list(groups.coordinators.serving()) == []
        groups.change(None, replace(offsets_topic(), topic_id=topic(number=7).topic_id))
        assert groups.offsets() == {}
        assert took(await groups.commit(8))

    with_groups(act)


def test_an_empty_partition_serves_at_once_and_others_are_not_opened() -> None:
    async def act(groups: Groups) -> None:
        assert took(await groups.commit(7, "g0"))

        assert len(list(groups.coordinators.serving())) == 1
        assert groups.coordinators.loading == 0

    with_groups(act, offsets_topic(50))


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_committed_offsets_survive_a_restart(clean: bool) -> None:
    async def act(groups: Groups) -> None:
        for at in range(30):
            assert took(await groups.commit(100 + at, f"g{at}", at % 4))
        assert took(await groups.commit(999, "g3", 3))

        loaded = groups.again(clean=clean)
        with pytest.raises(CoordinatorLoadInProgress):
            loaded.of("g3").check()
        with pytest.raises(CoordinatorLoadInProgress):
            list(loaded.coordinators.serving())
        await loaded.load()

        assert {at: loaded.offsets(f"g{at}") for at in range(30) if at != 3} == {
            at: {("orders", at % 4): 100 + at} for at in range(30) if at != 3
        }
        assert loaded.offsets("g3") == {("orders", 3): 999}
        assert [note["unreadable"] for note in loaded.rig.notes.named("coordinator_loaded")] == [0] * 4
        assert len(list(loaded.coordinators.serving())) == 4

    with_groups(act, offsets_topic(4))


def test_a_member_stays_in_its_group_after_a_restart_of_the_broker() -> None:
    async def act(groups: Groups) -> None:
        member, generation = await groups.member()

        loaded = groups.again()
        await loaded.load()

        assert await loaded.response(beat("g", member, generation)) == HeartbeatReply()
        loaded.rig.loop.pass_ms(60_000)
        assert dict(loaded.of().shard().members_by_group()) == {"g": 0}

    with_groups(act)


def test_batches_that_cannot_be_decoded_are_skipped_and_logged() -> None:
    async def act(groups: Groups) -> None:
        for at in range(30):
            await groups.commit(100 + at, f"g{at}")
        log = groups.rig.replica(OFFSETS, 2).log
        poison = build_batch([Record(0, 0, b"k", b"v")])
        poison[-8:] = b"\xff" * 8
        struct.pack_into(">I", poison, CRC_AT, crc32c(bytes(poison[ATTRIBUTES_AT:])))
        offset = log.append(memoryview(poison), parse_batch_header(poison), 0)

        loaded = groups.again()
        await loaded.load()

        assert [loaded.offsets(f"g{at}") for at in range(30)] == [{("orders", 0): 100 + at} for at in range(30)]
        lost = loaded.rig.notes.named("coordinator_records_lost")
        assert [(note["partition"], note["offset"]) for note in lost] == [(2, offset)]

    with_groups(act, offsets_topic(4))


def rot(groups: Groups, base: int) -> None:
    """Flip a bit in the body of the batch at an offset of the first partition."""
    for found in groups.rig.replica(OFFSETS).log.view().walk_from(0, bodies=True):
        if found.header.base_offset == base:
            groups.rig.disk.flip(f"{HOME}/{OFFSETS}-0/{0:020d}.log", found.position + found.header.size - 2)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_corrupt_batch_loses_its_records_and_not_the_coordinator(clean: bool) -> None:
    async def act(groups: Groups) -> None:
        for at in range(40):
            await groups.commit(at, f"g{at}")
        groups.rig.replica(OFFSETS).snapshot(0)
        rot(groups, 7)

        loaded = groups.again(clean=clean)
        await loaded.load()

        assert [at for at in range(40) if not loaded.offsets(f"g{at}")] == [7]
        assert [note["offset"] for note in loaded.rig.notes.named("segment_quarantined")] == [7]
        # After a kill, log recovery finds the damage before the load does.
        assert [note["offset"] for note in loaded.rig.notes.named("coordinator_records_lost")] == ([7] if clean else [])
        assert loaded.rig.disk.exists(f"{HOME}/{OFFSETS}-0/{0:020d}.log.quarantined")
        assert took(await loaded.commit(99, "g7"))
        third = loaded.again(clean=clean)
        await third.load()
        assert [third.offsets(f"g{at}") for at in (6, 7, 8)] == [{("orders", 0): at} for at in (6, 99, 8)]
        assert third.rig.notes.named("coordinator_records_lost") == []

    with_groups(act)


def test_a_topic_deleted_during_a_repair_takes_no_directory_offline() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        rot(groups, 0)
        loaded = groups.again(clean=True)

        def deleted_meanwhile() -> bool:
            log = loaded.rig.store.get(TopicPartition(OFFSETS, 0))
            if log is not None and log.offline is not None:
                loaded.change(offsets_topic(), None)
            return not loaded.coordinators.loading

        await loaded.load(deleted_meanwhile)

        assert loaded.rig.store.get(TopicPartition(OFFSETS, 0)) is None, "it was deleted while it was repaired"
        assert loaded.rig.store.all_directories[0].offline is None

    with_groups(act)


@pytest.mark.parametrize("fails", [False, True])
def test_the_load_of_a_deleted_topic_does_not_affect_the_recreated_one(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        loaded = groups.again()
        begun, deleted, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def load(*_: object) -> int:
            begun.set()
            await deleted.wait()
            over.set()
            if fails:
                raise OSError(errno.EIO, "the files are gone")
            return 0

        monkeypatch.setattr(coordinator_runtime, "load", load)
        loading = asyncio.create_task(loaded.coordinators.run())
        await begun.wait()
        before = loaded.image.topics[OFFSETS]
        loaded.change(before, None)
        loaded.change(None, replace(before, topic_id=TopicId(b"n" * 16)))
        await loaded.commit(8)
        of_the_next = loaded.of()

        deleted.set()
        await over.wait()
        await asyncio.sleep(0)

        assert loaded.of() is of_the_next
        assert of_the_next.serving
        assert loaded.offsets() == {("orders", 0): 8}
        assert loaded.rig.notes.named("coordinator_not_loaded") == []
        loading.cancel()
        await asyncio.wait([loading])

    with_groups(act)


def test_failed_loads_back_off_and_do_not_block_listing() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        loaded = groups.again()
        loaded.rig.disk.fail("pread", OFFSETS, errno.EIO)
        waits: list[int] = []

        def failed_again() -> bool:
            return len(loaded.rig.notes.named("coordinator_not_loaded")) > len(waits)

        for _ in range(11):
            await loaded.load(failed_again)
            waits.append(loaded.rig.notes.named("coordinator_not_loaded")[-1]["again_ms"])
            loaded.rig.loop.pass_ms(waits[-1] + 100)

        assert waits[:4] == [5_000, 10_000, 20_000, 40_000]
        assert set(waits[7:]) == {coordinator_runtime.LOAD_AGAIN_MS_MAX}
        assert list(loaded.coordinators.serving()) == []

    with_groups(act)


def test_a_load_yields_to_the_loop_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "SLICE_BYTES", 300)
    monkeypatch.setattr(loading, "EVENTS_AT_ONCE", 2)

    async def act(groups: Groups) -> None:
        for at in range(40):
            await groups.commit(at, f"g{at}")
        loaded = groups.again()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        await loaded.load()
        beside.cancel()

        assert turns > 20
        assert all(loaded.offsets(f"g{at}") == {("orders", 0): at} for at in range(40))

    with_groups(act)


def test_offsets_of_a_topic_deleted_before_the_load_are_deleted() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        loaded = groups.again()
        loaded.change(topic("orders", 4), None)

        await loaded.load()

        assert loaded.offsets() == {}

    with_groups(act)


def test_offsets_of_a_topic_recreated_before_the_load_are_deleted() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        loaded = groups.again()
        loaded.change(topic("orders", 4), topic("orders", 4, number=17))

        await loaded.load()

        assert loaded.offsets() == {}

    with_groups(act)


def test_a_topic_deleted_during_a_load_is_not_missed() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        loaded = groups.again()
        went = False

        def mid_load() -> bool:
            nonlocal went
            if not went and loaded.coordinators.loading and loaded.coordinators.begun:
                went = True
                loaded.change(topic("orders", 4), None)
            return not loaded.coordinators.loading

        await loaded.load(mid_load)

        assert went
        assert loaded.offsets() == {}

    with_groups(act)


def test_records_that_cannot_be_decoded_are_counted_and_skipped() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        replica = groups.rig.replica(OFFSETS)
        strange = [
            Record(0, groups.rig.clock.ms, b"\0\x63of the future", b"\0\0"),
            Record(1, groups.rig.clock.ms, group_key(2, "g"), b"\0\x63"),
            Record(2, groups.rig.clock.ms, group_key(3, "old")[:1] + b"\4" + group_key(3, "old")[2:], b"\0\0\1\0"),
            Record(3, groups.rig.clock.ms, b"", b""),
        ]
        groups.rig.append(replica, build_batch(strange), internal=True)

        loaded = groups.again()
        await loaded.load()

        assert loaded.offsets() == {("orders", 0): 7}
        # Kafka's partition metadata records (up to 4.0) are known and ignored.
        assert [note["unreadable"] for note in loaded.rig.notes.named("coordinator_loaded")] == [3]

    with_groups(act)


def test_a_partition_compacted_during_its_load_is_loaded_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, views = Log.view, 0

    def view(log: Log) -> LogView:
        nonlocal views
        made = real(log)
        views += log.tp.topic == OFFSETS
        if views == 1:
            # As a compaction does when it swaps in its first segments.
            log.partition_directory.rewrites += 1
        return made

    async def act(groups: Groups) -> None:
        await groups.commit(7)
        loaded = groups.again()
        before = loaded.rig.loop.alarms
        monkeypatch.setattr(Log, "view", view)
        await loaded.load(lambda: loaded.rig.loop.alarms > before)
        with pytest.raises(CoordinatorLoadInProgress):
            loaded.of()

        loaded.rig.loop.pass_ms(2 * LOAD_CHANGED_MS)
        await loaded.load()

        assert loaded.offsets() == {("orders", 0): 7}
        assert not loaded.rig.notes.named("coordinator_not_loaded")

    with_groups(act)


def test_the_load_of_a_partition_that_cannot_be_read_is_retried() -> None:
    async def act(groups: Groups) -> None:
        await groups.commit(7)
        loaded = groups.again()
        loaded.rig.disk.fail("pread", OFFSETS, errno.EIO, times=1)
        await loaded.load(lambda: loaded.rig.notes.named("coordinator_not_loaded"))
        with pytest.raises(CoordinatorLoadInProgress):
            loaded.of()

        loaded.rig.loop.pass_ms(6000)
        await loaded.load()

        assert loaded.offsets() == {("orders", 0): 7}

    with_groups(act)


def test_a_coordinator_ends_when_another_broker_leads_its_partition() -> None:
    async def act(groups: Groups) -> None:
        joining = groups.ask(commit(7))
        coordinator = groups.of()
        [led] = offsets_topic().partitions
        elsewhere = replace(offsets_topic(), partitions=(replace(led, leader=2, replicas=(2, 1), leader_epoch=1),))

        groups.change(offsets_topic(), elsewhere)

        assert isinstance(joining[0], NotCoordinator)
        assert coordinator.ended
        with pytest.raises(NotCoordinator):
            groups.of()

    with_groups(act)


def test_loaded_groups_follow_changed_broker_settings() -> None:
    async def act(groups: Groups) -> None:
        await groups.member()
        changed = BrokerConfig(group_consumer_assignment_interval_ms=7)

        groups.coordinators.reconfigure(changed)

        assert groups.of().shard().config is changed

    with_groups(act)


# Lag


def lags(groups: Groups) -> dict[tuple[str, int], tuple[int, int]]:
    rows = GroupLag(coordinators=groups.coordinators, replicas=groups.rig.replicas, logs=groups.rig.store).rows()
    return {(one.group, one.partition): (one.offset, one.lag) for one in rows if isinstance(one, LagView)}


def test_lag_is_the_distance_to_the_high_watermark() -> None:
    async def act(groups: Groups) -> None:
        replica = groups.rig.replica("orders", 1)
        for _ in range(10):
            groups.rig.append(replica, batch(b"v"))
        await groups.commit(4, partition=1)
        await groups.commit(0, partition=2)
        await groups.commit(25, "ahead", partition=1)

        assert lags(groups) == {("g", 1): (4, 6), ("g", 2): (0, 0), ("ahead", 1): (25, 0)}

    with_groups(act)


def test_lag_excludes_records_that_retention_deleted() -> None:
    async def act(groups: Groups) -> None:
        replica = groups.rig.replica("orders", 1)
        for _ in range(10):
            groups.rig.append(replica, batch(b"v"))
        await groups.commit(4, partition=1)

        replica.delete_records(7)

        assert lags(groups) == {("g", 1): (4, 3)}

    with_groups(act)


def test_lag_is_known_for_partitions_unused_since_the_start() -> None:
    async def act(groups: Groups) -> None:
        for _ in range(10):
            groups.rig.append(groups.rig.replica("orders", 1), batch(b"v"))
        await groups.commit(4, partition=1)

        loaded = groups.again(clean=True)
        await loaded.load()

        assert lags(loaded) == {("g", 1): (4, 6)}

    with_groups(act)


def test_a_scrape_has_a_bounded_number_of_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "OFFSETS_REPORTED_MAX", 5)

    async def act(groups: Groups) -> None:
        for at in range(20):
            await groups.commit(at, f"g{at}")
        lag = GroupLag(coordinators=groups.coordinators, replicas=groups.rig.replicas, logs=groups.rig.store)
        rows = list(lag.rows())

        assert sum(isinstance(row, LagView) for row in rows) == 5
        assert rows[-1] == CoverageView(loading=0, truncated=True)

    with_groups(act, offsets_topic(4))


def test_samples_have_kafka_exporters_names() -> None:
    async def act(groups: Groups) -> None:
        for partition in (0, 1):
            for _ in range(10):
                groups.rig.append(groups.rig.replica("orders", partition), batch(b"v"))
            await groups.commit(4, partition=partition)
        lag = GroupLag(coordinators=groups.coordinators, replicas=groups.rig.replicas, logs=groups.rig.store)

        def shown(*, per_partition: bool) -> dict[tuple[str, tuple[str, ...]], object]:
            source = GroupSource(lag.rows, per_partition=lambda: per_partition)
            return {(one.metric.name, one.labels): one.value for one in Collector([source]).snapshot()}

        samples = shown(per_partition=True)
        sums = shown(per_partition=False)
        assert sums == {key: value for key, value in samples.items() if len(key[1]) < 3}

        assert samples == {
            ("penstock_groups_loading", ()): 0,
            ("penstock_consumergroup_offsets_truncated", ()): 0,
            ("kafka_consumergroup_members", ("g",)): 0,
            ("kafka_consumergroup_current_offset", ("g", "orders", "0")): 4,
            ("kafka_consumergroup_current_offset", ("g", "orders", "1")): 4,
            ("kafka_consumergroup_lag", ("g", "orders", "0")): 6,
            ("kafka_consumergroup_lag", ("g", "orders", "1")): 6,
            ("kafka_consumergroup_current_offset_sum", ("g", "orders")): 8,
            ("kafka_consumergroup_lag_sum", ("g", "orders")): 12,
        }

    with_groups(act)
