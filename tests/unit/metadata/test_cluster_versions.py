"""Versions of a cluster: who may join it, when one is finalized, and the forms of records that they allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages import ROOT
from penstock.metadata.image import MetadataImage
from penstock.metadata.nodes import Change, Node
from penstock.metadata.records import (
    FEATURES,
    FORMAT,
    Admission,
    BrokerState,
    Features,
    RecordTooNew,
    StoreIdentity,
    broker_path,
    chunk_path,
    pack,
    pack_admission,
    pack_broker,
    pack_features,
    pack_partitions,
    pack_store,
    unpack,
    unpack_admission,
    unpack_broker,
    unpack_partitions,
    unpack_store,
)
from penstock.model.cluster_versions import (
    BEFORE_VERSIONS,
    COMPACT_PARTITIONS,
    FEATURE,
    FIRST,
    LEVELS,
    SUPPORTED,
    Level,
    UpgradeType,
    VersionRange,
    check_change,
    refuses_broker,
)
from penstock.model.generated_errors import InvalidUpdateVersion
from penstock.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from penstock.model.topic import PartitionState

WIDE = VersionRange(lowest=1, highest=4)
THREE_IS_ONE_WAY = {each: Level(adds=f"what {each} adds", one_way=each == 3) for each in range(1, 5)}
"""Versions of some later penstock."""


def brokers(*ranges: VersionRange) -> dict[BrokerId, VersionRange]:
    return {BrokerId(number): each for number, each in enumerate(ranges, 1)}


def change(
    finalized: int,
    wanted: int,
    *,
    how: UpgradeType = UpgradeType.UPGRADE,
    up: Mapping[BrokerId, VersionRange] | None = None,
    down: Mapping[BrokerId, VersionRange] | None = None,
    supported: VersionRange = WIDE,
) -> None:
    check_change(
        finalized,
        wanted,
        upgrade_type=how,
        supported=supported,
        brokers=up or {},
        down=down or {},
        levels=THREE_IS_ONE_WAY,
    )


def refusal(finalized: int, wanted: int, **facts: object) -> str:
    with pytest.raises(InvalidUpdateVersion) as caught:
        change(finalized, wanted, **facts)  # type: ignore[arg-type]
    return caught.value.wire_message or ""


# Who may join


def test_a_broker_joins_a_cluster_of_a_version_it_supports() -> None:
    assert refuses_broker(1, WIDE) is None
    assert refuses_broker(4, WIDE) is None


def test_an_old_broker_is_told_to_be_started_with_the_version_of_the_others() -> None:
    assert "penstock.version 2, and this broker supports 1: start it with the version" in (
        refuses_broker(2, BEFORE_VERSIONS) or ""
    )


def test_a_broker_that_skips_versions_is_told_how_far_to_upgrade_the_cluster_first() -> None:
    assert "first upgrade the cluster to version 3" in (refuses_broker(1, VersionRange(lowest=3, highest=5)) or "")


# What is finalized


def test_a_version_is_finalized_when_every_broker_supports_it() -> None:
    change(1, 2, up=brokers(WIDE, WIDE), down={BrokerId(3): WIDE})


def test_a_version_that_one_broker_does_not_support_is_refused_with_its_name() -> None:
    assert "Broker 2 supports versions 1 to 2" in refusal(1, 3, up=brokers(WIDE, VersionRange(lowest=1, highest=2)))


def test_a_broker_that_is_down_counts_with_what_it_supported() -> None:
    said = refusal(1, 2, up=brokers(WIDE), down={BrokerId(7): BEFORE_VERSIONS})

    assert "Broker 7 is down, and supported versions 1 when it was up" in said
    assert "unregister it" in said


def test_a_version_that_the_controller_does_not_support_is_refused() -> None:
    assert "The controller supports versions 1 to 4" in refusal(1, 5)
    assert "The controller supports versions 1 to 4" in refusal(1, 0)


def test_a_downgrade_over_records_that_older_brokers_cannot_read_is_refused_even_as_unsafe() -> None:
    for how in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        said = refusal(4, 2, how=how)
        assert "from 3 on the metadata has records that brokers of version 2 cannot read: what 3 adds" in said


def test_a_downgrade_that_harms_nothing_is_done_where_it_is_requested_as_one() -> None:
    change(4, 3, how=UpgradeType.SAFE_DOWNGRADE)
    change(2, 1, how=UpgradeType.SAFE_DOWNGRADE)
    assert "was not requested as a downgrade" in refusal(4, 3)


def test_an_upgrade_requested_as_a_downgrade_is_refused() -> None:
    assert "this is an upgrade" in refusal(1, 2, how=UpgradeType.SAFE_DOWNGRADE)


@given(
    st.integers(1, 4),
    st.integers(0, 5),
    st.sampled_from(UpgradeType),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), max_size=4),
)
def test_no_change_ever_excludes_a_member_or_leaves_records_that_one_cannot_read(
    finalized: int, wanted: int, how: UpgradeType, ranges: list[tuple[int, int]]
) -> None:
    up = brokers(*(VersionRange(lowest=low, highest=low + more) for low, more in ranges))
    try:
        change(finalized, wanted, how=how, up=up)
    except InvalidUpdateVersion:
        return
    assert all(wanted in each for each in up.values())
    assert not (wanted < 3 <= finalized)
    assert wanted >= finalized or how is not UpgradeType.UPGRADE


def test_every_version_that_is_supported_is_described() -> None:
    assert sorted(LEVELS) == list(range(SUPPORTED.lowest, SUPPORTED.highest + 1))


def test_the_page_of_clusters_lists_every_version() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| version | what it adds | way back |\n|---|---|---|\n")
    rows = [line.strip("| ").split(" | ") for line in table.partition("\n\n")[0].splitlines()]

    assert [int(row[0]) for row in rows] == list(LEVELS)
    assert [row[-1] == "none" for row in rows] == [level.one_way for level in LEVELS.values()]
    assert f"--feature {FEATURE}={max(LEVELS)}" in page


# The forms of records


def states(count: int = 3) -> tuple[PartitionState, ...]:
    replicas = tuple(map(BrokerId, (10, 20, 30)))
    usual = PartitionState(
        index=0,
        leader=BrokerId(10),
        leader_epoch=LeaderEpoch(4),
        replicas=replicas,
        isr=replicas,
        partition_epoch=PartitionEpoch(9),
    )
    lagging = replace(usual, isr=replicas[:2], in_sync_min=2)
    moved = replace(usual, isr=replicas[::-1])
    return tuple(replace((usual, lagging, moved)[index % 3], index=index) for index in range(count))


@pytest.mark.parametrize("level", sorted(LEVELS))
def test_partitions_are_read_back_in_the_form_of_every_version(level: int) -> None:
    assert unpack_partitions(pack_partitions(states(), level), 0) == states()
    same = tuple(replace(each, in_sync_min=2) for each in states())
    assert unpack_partitions(pack_partitions(same, level), 0) == same
    assert unpack_partitions(pack_partitions((), level), 0) == ()
    other = (*same, replace(same[0], index=3, in_sync_min=0))
    assert unpack_partitions(pack_partitions(other, level), 0) == other


def test_the_second_version_writes_brokers_of_a_partition_in_sync_once() -> None:
    in_sync = [replace(states()[0], index=index) for index in range(128)]

    first, second = pack_partitions(in_sync, FIRST), pack_partitions(in_sync, COMPACT_PARTITIONS)

    assert len(first) - len(second) == 128 * (len("[10,20,30]") - len("0"))


def test_the_second_version_writes_the_minimum_isr_of_a_topic_once() -> None:
    usual = [replace(states()[0], index=index, in_sync_min=2) for index in range(128)]
    none = [replace(each, in_sync_min=0) for each in usual]

    assert len(pack_partitions(usual, COMPACT_PARTITIONS)) - len(pack_partitions(none, COMPACT_PARTITIONS)) == len(
        ',"in_sync_min":2'
    )


def test_partitions_and_the_store_are_not_read_by_brokers_of_the_version_before() -> None:
    with pytest.raises(RecordTooNew, match="format 2, and this version knows 1"):
        unpack_partitions(pack_partitions(states(), COMPACT_PARTITIONS), 0, FORMAT)
    with pytest.raises(RecordTooNew, match="format 2, and this version knows 1"):
        unpack_store(pack_store(StoreIdentity(store_id="s"), COMPACT_PARTITIONS), FORMAT)


def test_what_is_written_for_the_first_version_has_the_form_of_before() -> None:
    assert unpack(pack_partitions(states(), FIRST))["v"] == 1
    assert unpack(pack_store(StoreIdentity(store_id="s"), FIRST))["v"] == 1


def test_registrations_and_admissions_without_a_range_are_of_the_first_version() -> None:
    broker = BrokerState(broker_id=BrokerId(1), endpoints=(), rack=None, versions=WIDE)
    admission = Admission(broker_id=BrokerId(1), epoch=BrokerEpoch(3), directories=(), versions=WIDE)
    assert unpack_broker(BrokerId(1), pack_broker(broker), 0).versions == WIDE
    assert unpack_admission(BrokerId(1), pack_admission(admission), 0).versions == WIDE

    old_broker, old_admission = unpack(pack_broker(broker)), unpack(pack_admission(admission))
    del old_broker["versions"], old_admission["versions"]

    assert unpack_broker(BrokerId(1), pack(old_broker), 0).versions == BEFORE_VERSIONS
    assert unpack_admission(BrokerId(1), pack(old_admission), 0).versions == BEFORE_VERSIONS


# The image


def test_a_cluster_without_a_finalized_version_is_of_the_first() -> None:
    assert MetadataImage().level == FIRST


def test_the_image_follows_the_finalized_version_and_never_goes_back_to_an_older_node() -> None:
    image = MetadataImage()
    second, third = (pack_features(Features(level=level, epoch=level)) for level in (2, 1))

    assert image.apply([Change(path=FEATURES, data=second, version=1)]).brokers
    assert not image.apply([Change(path=FEATURES, data=third, version=0)]).brokers
    assert image.features == Features(level=2, epoch=2, version=1)

    image.replace_with({})
    assert image.level == FIRST


def test_a_broker_of_the_first_version_does_not_guess_at_partitions_of_the_second() -> None:
    topic_id = TopicId(b"t" * 16)
    written = Change(path=chunk_path(topic_id, 0), data=pack_partitions(states(), COMPACT_PARTITIONS))

    MetadataImage().apply([written])
    with pytest.raises(RecordTooNew):
        MetadataImage(BEFORE_VERSIONS).apply([written])


def test_a_broker_shows_its_range_in_the_image() -> None:
    image = MetadataImage()
    data = pack_broker(BrokerState(broker_id=BrokerId(5), endpoints=(), rack=None, versions=WIDE))

    image.replace_with({broker_path(BrokerId(5)): Node(data=data, version=0, created=7, owner=1)})

    assert image.brokers[5].versions == WIDE


def test_the_page_of_clusters_has_every_version_and_whether_there_is_a_way_back() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "cluster.md").read_text()
    table = page.partition("| version | what it adds | way back |\n")[2].partition("\n\n")[0]

    rows = {int(row.split("|")[1]): row.split("|")[3].strip() for row in table.splitlines()[1:]}

    assert {version: way == "none" for version, way in rows.items()} == {
        version: level.one_way for version, level in LEVELS.items()
    }
