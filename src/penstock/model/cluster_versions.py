"""Versions of a cluster: what its brokers may write, and which brokers may join.

Brokers of several versions form one cluster while it is upgraded, one broker after the other. Each of them registers
the range of cluster versions that it supports. One version is finalized, in the metadata; brokers write records and
requests in the form of that version and no newer one, so that every broker of the cluster can read them. An operator
finalizes a newer version when every broker supports it.

A cluster without a finalized version is of the first one, and so is a broker whose registration has no range.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from penstock.model.generated_errors import InvalidUpdateVersion
from penstock.model.ids import BrokerId

FEATURE = "penstock.version"
"""The name that Kafka's protocol and tools know a cluster's version by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A version of a cluster."""

    adds: str
    """What a cluster gets with it, for operators."""
    one_way: bool
    """Whether the metadata may then have records that brokers of the version before cannot read."""


FIRST = 1
COMPACT_PARTITIONS = 2
"""From here on, partition states have in sync replicas and the minimum ISR once where they can."""
DRAINED_PARTITIONS = 3
"""From here on, partitions may be drained into others, and their leaders hand batches to other brokers."""
GHOST_PARTITIONS = 4
"""From here on, a drained partition that is empty loses its replicas."""
SHARE_GROUPS = 5
"""From here on, groups may be share groups, and brokers ask each other for share state."""
FILTERED_VIEWS = 6
"""From here on, topics may have filtered views, which every broker has to serve."""
SCHEDULES = 7
"""From here on, topics may hold schedules, whose leaders deliver to other brokers."""

LEVELS: Mapping[int, Level] = MappingProxyType(
    {
        FIRST: Level(adds="the cluster as it was before it had versions", one_way=False),
        COMPACT_PARTITIONS: Level(
            adds="partition states in less than half the room; brokers without versions cannot join",
            one_way=True,
        ),
        DRAINED_PARTITIONS: Level(
            adds="topics that write to fewer of their partitions (penstock topic shrink)",
            one_way=True,
        ),
        GHOST_PARTITIONS: Level(
            adds="drained partitions that lose their logs and replicas once they are empty, and can be finalized",
            one_way=True,
        ),
        SHARE_GROUPS: Level(adds="share groups, for queues", one_way=True),
        FILTERED_VIEWS: Level(adds="filtered views of topics (penstock topic view)", one_way=True),
        SCHEDULES: Level(adds="delayed, scheduled and recurring messages (schedule.target)", one_way=True),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """The cluster versions that a broker supports."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        return f"{self.lowest}" if self.lowest == self.highest else f"{self.lowest} to {self.highest}"


SUPPORTED = VersionRange(lowest=min(LEVELS), highest=max(LEVELS))
"""By this version of penstock."""

BEFORE_VERSIONS = VersionRange(lowest=FIRST, highest=FIRST)
"""Of a broker whose registration says nothing of versions."""


class UpgradeType(Enum):
    """What a request to change a version allows: the values of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def refuses_broker(finalized: int, supported: VersionRange) -> str | None:
    """Why a broker cannot be a member of a cluster of that version; None where it can."""
    if finalized in supported:
        return None
    what = f"the cluster has {FEATURE} {finalized}, and this broker supports {supported}"
    if finalized > supported.highest:
        return f"{what}: start it with the version of penstock that the other brokers have"
    return (
        f"{what}: first upgrade the cluster to version {supported.lowest}, with brokers of a version of penstock in "
        "between and 'penstock cluster upgrade'"
    )


def check_change(
    finalized: int,
    wanted: int,
    *,
    upgrade_type: UpgradeType,
    supported: VersionRange,
    brokers: Mapping[BrokerId, VersionRange],
    down: Mapping[BrokerId, VersionRange],
    levels: Mapping[int, Level] = LEVELS,
) -> None:
    """Raise `InvalidUpdateVersion`, with words for the operator, where a version must not be finalized.

    `supported` is what this controller supports, `brokers` are those that are registered, and `down` are those that are
    members of the cluster and not registered, with what they supported last.
    """
    if wanted not in supported:
        raise refused(wanted, f"The controller supports versions {supported}.")
    for broker_id, range_ in sorted(brokers.items()):
        if wanted not in range_:
            raise refused(
                wanted, f"Broker {broker_id} supports versions {range_}: replace it with a later version of penstock."
            )
    for broker_id, range_ in sorted(down.items()):
        if wanted not in range_:
            raise refused(
                wanted,
                f"Broker {broker_id} is down, and supported versions {range_} when it was up: start it with a later "
                f"version of penstock, or unregister it if it does not return.",
            )
    if wanted < finalized:
        check_downgrade(finalized, wanted, upgrade_type, levels)
    elif wanted > finalized and upgrade_type is not UpgradeType.UPGRADE:
        raise refused(wanted, f"The version is {finalized}, so this is an upgrade, and a downgrade was requested.")


def check_downgrade(finalized: int, wanted: int, upgrade_type: UpgradeType, levels: Mapping[int, Level]) -> None:
    """Refuse a downgrade where records of the present version may exist: those who cannot read them cannot serve.

    There is no unsafe downgrade either: it would not lose some settings, but leave partitions that no broker can read.
    """
    if upgrade_type is UpgradeType.UPGRADE:
        raise refused(wanted, f"The version is {finalized}, and a lower one was not requested as a downgrade.")
    barrier = next((each for each in range(finalized, wanted, -1) if levels[each].one_way), None)
    if barrier is not None:
        raise refused(
            wanted,
            f"The version is {finalized}, and from {barrier} on the metadata has records that brokers of version "
            f"{barrier - 1} cannot read: {levels[barrier].adds}. There is no way back to before {barrier}.",
        )


def refused(wanted: int, why: str) -> InvalidUpdateVersion:
    """As in Kafka up to the reason."""
    return InvalidUpdateVersion(f"Invalid update version {wanted} for feature {FEATURE}. {why}")
