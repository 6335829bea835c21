"""The effects of share groups: what is asked of share coordinators once the events of a step are committed."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.ids import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeShares:
    """Begin these share partitions. The context submits `SharesInitialized` with the result."""

    group: str
    state_epoch: int
    partitions: Mapping[TopicId, frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShares:
    """End these share partitions; a deletion that a former coordinator began. The context submits `SharesDeleted`."""

    group: str
    partitions: Mapping[TopicId, frozenset[int]]
