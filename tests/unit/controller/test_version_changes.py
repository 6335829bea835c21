"""The version of a cluster and its brokers: registration, admission, election, and what is written when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from tests.unit.controller.cluster_image import ClusterImage, partition
from tests.unit.controller.test_admission import Broker
from tests.unit.metadata.virtual_time import SeededRandomness, run_virtual

from penstock.controller.membership import bootstrap_cluster, elect_controller, register
from penstock.controller.versions import plan_version_change
from penstock.metadata.catalog import Catalog
from penstock.metadata.operations import Create, Operation, Set
from penstock.metadata.records import (
    CLUSTER,
    CONTROLLER,
    FEATURES,
    STORE,
    BrokerState,
    Features,
    RecordTooNew,
    broker_path,
    chunk_path,
    pack_features,
    pack_partitions,
    unpack,
    unpack_features,
)
from penstock.metadata.store import StoreUnavailable
from penstock.model.cluster_versions import BEFORE_VERSIONS, COMPACT_PARTITIONS, SUPPORTED, UpgradeType, VersionRange
from penstock.model.generated_errors import InvalidUpdateVersion
from penstock.model.ids import BrokerId, TopicId
from penstock.storage.directories import StartRefused
from penstock.testing.sim.store import SimSession, SimSource, SimStore

OLD = BrokerState(broker_id=BrokerId(9), endpoints=(), rack=None, versions=BEFORE_VERSIONS)


def upgraded(cluster: ClusterImage, level: int) -> None:
    plan = plan_version_change(cluster.image, level, upgrade_type=UpgradeType.UPGRADE, supported=SUPPORTED)
    cluster.carry_out(plan)


async def session_on(server: SimStore) -> SimSession:
    return await SimSource(server).open()


async def level_of(session: SimSession) -> int:
    node = await session.get(FEATURES)
    assert node is not None
    return unpack_features(node.data, node.version).level


# What the controller plans


def test_a_broker_of_another_version_is_not_admitted() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2)
    upgraded(cluster, 2)

    cluster.register(3, versions=BEFORE_VERSIONS)
    cluster.settle()

    assert not cluster.image.is_live(3)
    cluster.register(3)
    cluster.settle()
    assert cluster.image.is_live(3)


def test_a_version_is_planned_once_every_member_supports_it() -> None:
    cluster = ClusterImage()
    cluster.start(1)
    cluster.register(2, versions=BEFORE_VERSIONS)
    cluster.settle()

    with pytest.raises(InvalidUpdateVersion, match="Broker 2 supports versions 1:"):
        upgraded(cluster, 2)
    cluster.gone(2)
    with pytest.raises(InvalidUpdateVersion, match="Broker 2 is down, and supported versions 1"):
        upgraded(cluster, 2)
    cluster.register(2)
    upgraded(cluster, 2)

    assert cluster.image.features.level == 2
    assert cluster.image.features.epoch == 2, "clients take the features of the greatest epoch"


def test_records_take_the_form_of_the_version_when_they_are_next_written() -> None:
    cluster = ClusterImage()
    cluster.start(1, 2, 3)
    cluster.topic(partition(1, 2, 3, in_sync_min=1))

    cluster.gone(2)
    before = [unpack(each.data)["v"] for each in written(cluster)]
    cluster.register(2)
    cluster.settle()
    upgraded(cluster, 2)
    cluster.gone(3)
    after = [unpack(each.data)["v"] for each in written(cluster)]

    assert before == [1]
    assert after == [2]


def written(cluster: ClusterImage) -> list[Set]:
    """The partition states that the next settlement writes; they are written."""
    steps = cluster.settle_once().steps
    found = [each for step in steps for each in step if isinstance(each, Set) and each.path.startswith("/partitions")]
    cluster.settle()
    return found


def test_a_version_that_is_finalized_already_is_not_written() -> None:
    cluster = ClusterImage()
    cluster.start(1)

    plan = plan_version_change(cluster.image, 1, upgrade_type=UpgradeType.UPGRADE, supported=SUPPORTED)

    assert plan.steps == ()


# The store


def test_a_new_cluster_has_the_latest_version_and_its_store_is_marked() -> None:
    async def story(server: SimStore) -> None:
        session = await session_on(server)
        await bootstrap_cluster(session, lambda: "c", lambda: "s")
        store = await session.get(STORE)
        assert store is not None
        assert await level_of(session) == SUPPORTED.highest
        assert unpack(store.data)["v"] == 2

    run_on_store(story)


def test_a_cluster_from_before_versions_is_of_the_first_and_stays_so() -> None:
    async def story(server: SimStore) -> None:
        session = await session_on(server)
        await session.multi([Create(CLUSTER, b"c")])
        for _ in range(2):
            await bootstrap_cluster(session, lambda: "never", lambda: "s")
        store = await session.get(STORE)
        assert store is not None
        assert await level_of(session) == 1
        assert unpack(store.data)["v"] == 1, "its other brokers have to read it"

    run_on_store(story)


def test_a_broker_is_refused_with_words_before_it_reads_what_it_does_not_understand() -> None:
    async def story(server: SimStore) -> None:
        session = await session_on(server)
        await bootstrap_cluster(session, lambda: "c", lambda: "s")
        with pytest.raises(
            StartRefused, match=rf"has penstock.version {SUPPORTED.highest}, and this broker supports 1"
        ):
            await bootstrap_cluster(session, lambda: "c", lambda: "s", supported=BEFORE_VERSIONS)
        with pytest.raises(StartRefused, match="start it with the version of penstock that the other brokers have"):
            await register(session, OLD)
        with pytest.raises(StartRefused, match=rf"penstock.version {SUPPORTED.highest}"):
            await elect_controller(session, 9, BEFORE_VERSIONS)
        later = VersionRange(lowest=SUPPORTED.highest + 1, highest=SUPPORTED.highest + 2)
        with pytest.raises(StartRefused, match=f"first upgrade the cluster to version {SUPPORTED.highest + 1}"):
            await bootstrap_cluster(session, lambda: "c", supported=later)

    run_on_store(story)


def test_a_registration_does_not_overtake_a_version_that_is_finalized_meanwhile() -> None:
    async def story(server: SimStore) -> None:
        session = await session_on(server)
        await bootstrap_cluster(session, lambda: "c", supported=BEFORE_VERSIONS)
        multi = session.multi

        async def finalized_first(operations: Sequence[Operation]) -> int:
            session.multi = multi  # type: ignore[method-assign]
            await multi([Set(FEATURES, pack_features(Features(level=2, epoch=2)))])
            return await multi(operations)

        session.multi = finalized_first  # type: ignore[method-assign, assignment]
        with pytest.raises(StartRefused, match=r"penstock.version 2"):
            await register(session, OLD)
        assert await session.get(broker_path(OLD.broker_id)) is None

    run_on_store(story)


def test_a_broker_whose_cluster_has_outgrown_it_is_fenced_and_not_elected() -> None:
    async def story(server: SimStore) -> None:
        first, old = Broker(server, 1), Broker(server, 2)
        await first.start()
        session = first.session
        features = await session.get(FEATURES)
        assert features is not None
        # As a store that an operator changed by hand: the controller would have refused.
        await session.multi([Set(FEATURES, pack_features(Features(level=1, epoch=2)), features.version)])
        await old.start(versions=BEFORE_VERSIONS)
        await session.multi([Set(FEATURES, pack_features(Features(level=2, epoch=3)))])

        await until(lambda: "fenced" in old.events)
        first.kill()
        await until(lambda: broker_path(first.id) not in server.nodes)
        # Longer than an election, or any number of retries of one, takes.
        await asyncio.sleep(10)
        assert not old.controller.is_active
        assert CONTROLLER not in server.nodes
        old.stop()

    run_on_store(story)


def test_a_broker_stops_following_metadata_that_it_cannot_read_and_says_so() -> None:
    async def story(server: SimStore) -> None:
        session = await session_on(server)
        await bootstrap_cluster(session, lambda: "c", supported=BEFORE_VERSIONS)
        catalog, said = Catalog(BEFORE_VERSIONS), list[str]()
        catalog.on_unreadable = said.append
        await catalog.open(session)
        chunk = chunk_path(TopicId(b"t" * 16), 0)

        number = await session.multi([Create(chunk, pack_partitions([partition(1, 2, 3)], COMPACT_PARTITIONS))])

        with pytest.raises(StoreUnavailable, match="format 2, and this version knows 1"):
            await catalog.at_least(number)
        await until(lambda: bool(said))
        assert "format 2, and this version knows 1" in said[0]
        with pytest.raises(RecordTooNew):
            await Catalog(BEFORE_VERSIONS).open(session)

    run_on_store(story)


async def until(fact: Callable[[], bool]) -> None:
    for _ in range(600):
        if fact():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the fact did not come true")


def run_on_store(story: Callable[[SimStore], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await story(SimStore(SeededRandomness(1)))

    run_virtual(whole())
