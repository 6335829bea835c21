"""What `penstock cluster upgrade` reads of brokers, and says of versions."""

from __future__ import annotations

from penstock.cli.upgrade import finalized_by, news, range_of, row
from penstock.client.cluster import BrokerInfo, BrokerVersions
from penstock.model.cluster_versions import FEATURE, LEVELS, VersionRange


def broker(*, finalized: int | None, supported: tuple[int, int] | None) -> BrokerInfo:
    versions = BrokerVersions(
        apis={},
        features={} if finalized is None else {FEATURE: finalized},
        supported={} if supported is None else {FEATURE: supported},
    )
    return BrokerInfo(broker_id=3, host="h", port=9092, rack=None, versions=versions)


def test_a_broker_without_versions_supports_the_first() -> None:
    old = broker(finalized=None, supported=None)

    assert range_of(old) == VersionRange(lowest=1, highest=1)
    assert finalized_by(old) == 1


def test_a_broker_shows_what_it_supports_and_what_is_finalized() -> None:
    new = broker(finalized=1, supported=(1, 2))

    assert row(new, range_of(new)) == (3, "h", 9092, "1 to 2", 1)


def test_each_version_on_the_way_is_explained_with_its_way_back() -> None:
    [line] = news(1, 2)

    assert line.startswith("2: partition states")
    assert line.endswith("there is no way back")
    assert news(2, 1) == []
    assert news(max(LEVELS), 99) == [], "what this penstock does not know, it does not describe"
