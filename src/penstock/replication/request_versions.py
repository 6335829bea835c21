"""The newest version of each request that goes from broker to broker, by the version of their cluster.

A connection finds out what its two ends support. That is not enough where a request makes the receiver write or pass on
what a third broker reads, or where it carries the request of a client, who knows only the versions of the broker it
asked. So these versions go up with a version of the cluster, which every broker supports by then.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType

from penstock.model.cluster_versions import DRAINED_PARTITIONS, FIRST, SCHEDULES, SHARE_GROUPS

SENT: Mapping[int, Mapping[int, int]] = MappingProxyType(
    {
        FIRST: {
            1: 18,  # Fetch
            2: 11,  # ListOffsets
            23: 4,  # OffsetForLeaderEpoch
            24: 5,  # AddPartitionsToTxn
            27: 2,  # WriteTxnMarkers
            56: 3,  # AlterPartition
            58: 0,  # Envelope
            63: 2,  # BrokerHeartbeat
            67: 0,  # AllocateProducerIds
            73: 0,  # AssignReplicasToDirs
        },
        DRAINED_PARTITIONS: {
            20552: 0,  # Redirect
        },
        SCHEDULES: {
            20550: 0,  # DeliverScheduled
        },
        SHARE_GROUPS: {
            0: 13,  # Produce
            9: 10,  # OffsetFetch
            83: 0,  # InitializeShareGroupState
            84: 0,  # ReadShareGroupState
            85: 1,  # WriteShareGroupState
            86: 0,  # DeleteShareGroupState
            87: 1,  # ReadShareGroupStateSummary
        },
    }
)
"""What brokers send: versions by API key that a cluster version brought."""

FORWARDED: Mapping[int, Mapping[int, int]] = MappingProxyType(
    {
        FIRST: {
            19: 7,  # CreateTopics
            20: 6,  # DeleteTopics
            33: 2,  # AlterConfigs
            37: 3,  # CreatePartitions
            43: 2,  # ElectLeaders
            44: 1,  # IncrementalAlterConfigs
            45: 1,  # AlterPartitionReassignments
            46: 0,  # ListPartitionReassignments
            49: 1,  # AlterClientQuotas
            57: 2,  # UpdateFeatures
            63: 2,  # BrokerHeartbeat
            64: 0,  # UnregisterBroker
        },
    }
)
"""What brokers carry to the controller in an Envelope."""

Row = tuple[int, int, int]
"""An API key with its lowest and highest version, as in ApiVersions."""


def versions_at(level: int, raised: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """The newest version of each API in a cluster of a version."""
    found: dict[int, int] = {}
    for each in sorted(raised):
        if each <= level:
            found |= raised[each]
    return found


@lru_cache(maxsize=4)
def sent_versions(level: int) -> Mapping[int, int]:
    """The newest version of each request that brokers of a cluster send to each other."""
    return versions_at(level, SENT)


@lru_cache(maxsize=4)
def forwarded_versions(level: int) -> Mapping[int, int]:
    """The newest version of each request that the controller of a cluster understands for certain."""
    return versions_at(level, FORWARDED)


def shown_to_clients(rows: Iterable[Row], level: int) -> list[Row]:
    """The APIs of a broker, up to the versions that it can carry to a controller of the version before its own."""
    bounds = forwarded_versions(level)
    return [(key, lowest, min(highest, bounds.get(key, highest))) for key, lowest, highest in rows]
