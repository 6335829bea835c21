"""A rolling upgrade in the simulator: brokers that support different cluster versions, replaced one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest
from tests.unit.replication.sim_cluster import SimCluster
from tests.unit.replication.test_replicated_writes import ORDERS, create, ends, isr_of, write

from penstock.controller import topics
from penstock.metadata.image import MetadataImage
from penstock.metadata.nodes import Changes
from penstock.metadata.records import (
    ADMISSIONS,
    BROKERS,
    FEATURES,
    PARTITIONS,
    pack_partitions,
    partitions_format,
    unpack,
)
from penstock.model.cluster_versions import BEFORE_VERSIONS, FEATURE, SUPPORTED, UpgradeType, VersionRange
from penstock.model.generated_errors import InvalidUpdateVersion
from penstock.model.topic import PartitionState
from penstock.testing.sim.client import Disconnected
from penstock.testing.sim.store import SimStore, StoreFaults
from penstock.wire.api import api_versions, update_features


async def finalize(
    cluster: SimCluster, level: int, *, broker: int = 1, how: UpgradeType = UpgradeType.UPGRADE
) -> tuple[int, str]:
    """The code and the words of the response."""
    wanted = update_features.FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=how.value)
    response = await cluster.ask(broker, update_features, 2, update_features.Request(feature_updates=[wanted]))
    return response.error_code, response.error_message or ""


async def finalized(cluster: SimCluster, broker: int) -> int:
    request = api_versions.Request(client_software_name="test", client_software_version="1")
    response = await cluster.ask(broker, api_versions, 4, request)
    return {each.name: each.max_version_level for each in response.finalized_features}[FEATURE]


def formats(cluster: SimCluster) -> set[int]:
    """Of the partition states in the store."""
    nodes = cluster.store.nodes
    return {unpack(node.data)["v"] for path, node in nodes.items() if path.startswith(f"{PARTITIONS}/")}


async def replace_broker(cluster: SimCluster, number: int) -> None:
    """Stop a broker and start it with the version of penstock that is tested."""
    broker = cluster.brokers[number]
    await broker.stop()
    broker.versions = SUPPORTED
    broker.start()
    await broker.ready()
    await cluster.until(cluster.has_controller)
    await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})


def test_a_cluster_is_upgraded_broker_by_broker_while_it_is_written_to() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        for written, number in enumerate((1, 2, 3), 1):
            assert await write(cluster, ORDERS) == 0
            code, said = await finalize(cluster, 2, broker=number)
            assert code == InvalidUpdateVersion.code
            assert "supports versions 1" in said

            await replace_broker(cluster, number)

            assert formats(cluster) == {1}, "brokers of the first version have to read it"
            assert set(ends(cluster, ORDERS)) == {written}

        assert await finalize(cluster, 2, broker=2) == (0, "")

        for number in cluster.brokers:
            assert await finalized(cluster, number) == 2
        await create(cluster, "later")
        assert formats(cluster) == {1, 2}
        assert await write(cluster, ORDERS) == 0
        for how in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
            code, said = await finalize(cluster, 1, how=how)
            assert code == InvalidUpdateVersion.code
            assert "There is no way back" in said
        assert await finalized(cluster, 3) == 2

    SimCluster(versions=BEFORE_VERSIONS).run(story)


def test_a_broker_of_the_version_before_is_refused_once_a_later_one_is_finalized() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        late = cluster.brokers[3]
        await late.stop()
        late.versions = BEFORE_VERSIONS
        late.start()
        await late.ready()

        assert not late.running
        assert f"the cluster has penstock.version {SUPPORTED.highest}, and this broker supports 1" in late.refusals[-1]

        late.versions = SUPPORTED
        late.start()
        await late.ready()
        await cluster.until(lambda: isr_of(cluster, ORDERS) == {1, 2, 3})

    SimCluster().run(story)


def test_a_broker_that_is_down_keeps_the_version_from_being_finalized() -> None:
    async def story(cluster: SimCluster) -> None:
        await create(cluster)
        await cluster.brokers[3].stop()
        for number in (1, 2):
            broker = cluster.brokers[number]
            await broker.stop()
            broker.versions = SUPPORTED
            broker.start()
            await broker.ready()
        await cluster.until(cluster.has_controller)

        code, said = await finalize(cluster, 2)

        assert code == InvalidUpdateVersion.code
        assert "Broker 3 is down, and supported versions 1 when it was up" in said

    SimCluster(versions=BEFORE_VERSIONS).run(story)


async def created_by_new_software(cluster: SimCluster) -> None:
    """Broker 1 is upgraded and is controller, and the others see the topic that it creates."""
    await create(cluster)
    await replace_broker(cluster, 1)
    while cluster.controller != 1:
        other = cluster.brokers[cluster.controller]
        await other.stop()
        await cluster.until(cluster.has_controller)
        other.start()
        await other.ready()

    await create(cluster, "later")

    for number in cluster.brokers:
        await cluster.until(lambda number=number: "later" in cluster.parts(number).ground.catalog.image.topics)


def test_brokers_of_the_version_before_read_what_a_controller_of_later_software_writes() -> None:
    SimCluster(versions=BEFORE_VERSIONS).run(created_by_new_software)


def test_a_controller_that_writes_what_its_software_can_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(partitions: Sequence[PartitionState], level: int) -> bytes:
        return pack_partitions(partitions, SUPPORTED.highest)

    monkeypatch.setattr(topics, "pack_partitions", newest)
    cluster = SimCluster(versions=BEFORE_VERSIONS)
    with pytest.raises(AssertionError):
        cluster.run(created_by_new_software)
    assert any(broker.log.counts["metadata_unreadable"] for broker in cluster.brokers.values())


STORE_FAULTS = StoreFaults(watch_delay_s_max=0.5, coalesce_percent=30, lose_percent=2, unknown_percent=8)
STEPS = 24
SEEDS = 4
UNDECIDED = (BEFORE_VERSIONS, SUPPORTED, SUPPORTED)
"""What an operator installs on a broker that is restarted: some go back."""


class Judge:
    """Sees every transaction as the store does it."""

    def __init__(self, store: SimStore) -> None:
        self._store = store
        self.violations: list[str] = []
        store.followers.append(self._judge)

    def _judge(self, done: Changes) -> None:
        image = MetadataImage()
        nodes = self._store.nodes
        kept = (FEATURES, BROKERS, ADMISSIONS)
        image.replace_with({path: node for path, node in nodes.items() if path.startswith(kept)})
        for change in done.changes:
            if change.path.startswith(f"{PARTITIONS}/") and change.data is not None:
                version = unpack(change.data)["v"]
                if version > partitions_format(image.level):
                    self.violations.append(f"format {version} in a cluster of version {image.level}")
        self.violations += (
            f"broker {each.broker_id} is live in a cluster of version {image.level}, and supports {each.versions}"
            for each in image.live_brokers()
            if image.level not in each.versions
        )


def test_no_member_is_outgrown_through_crashes_doubts_and_second_thoughts() -> None:
    finalized_early = refused = 0
    for seed in range(SEEDS):
        cluster = SimCluster(seed=seed, versions=BEFORE_VERSIONS)
        judge = Judge(cluster.store)
        draw = random.Random(seed)

        async def restarted(cluster: SimCluster, number: int, versions: VersionRange) -> bool:
            broker = cluster.brokers[number]
            broker.versions = versions
            broker.start()
            await broker.ready()
            return broker.running

        async def story(cluster: SimCluster, draw: random.Random = draw) -> tuple[int, int]:
            early = refusals = 0
            await create(cluster)
            cluster.store.faults = STORE_FAULTS
            for _ in range(STEPS):
                number = draw.choice((1, 2, 3))
                action = draw.randrange(4)
                if action < 2:
                    with suppress(Disconnected):
                        code, _ = await finalize(cluster, 2, broker=number)
                        early += code == 0
                    continue
                if action == 2:
                    await cluster.brokers[number].stop()
                else:
                    cluster.brokers[number].kill()
                if not await restarted(cluster, number, draw.choice(UNDECIDED)):
                    refusals += 1
                    assert await restarted(cluster, number, SUPPORTED), cluster.brokers[number].refusals
            cluster.store.faults = StoreFaults()
            for number in cluster.brokers:
                await replace_broker(cluster, number)
            assert await finalize(cluster, 2) == (0, "")
            await create(cluster, "later")
            for number in cluster.brokers:
                assert await finalized(cluster, number) == 2
            return early, refusals

        early, refusals = cluster.run(story)
        assert not judge.violations, f"seed {seed}: {judge.violations[:3]}"
        finalized_early += early
        refused += refusals
    assert finalized_early, "no seed finalized the version before all was healed"
    assert refused, "no seed started a broker that the cluster had outgrown"
