"""The effect of the transaction coordinator's decisions, carried out once their events are committed."""

from dataclasses import dataclass

from penstock.model.ids import CoordinatorEpoch, ProducerEpoch, ProducerId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers:
    """Write the transaction's marker to each of these partitions, retrying until it succeeds.

    When all of them have the marker or are deleted, the context sends `MarkersWritten` with the same ids and epoch.
    `epoch` is the markers' epoch: with transaction version 2 it is one higher than that of the records.
    """

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    commit: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: CoordinatorEpoch
    transaction_version: int
