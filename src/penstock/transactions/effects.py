"""What the coordinator of transactions wants done in the world when its decision can no longer be undone."""

from dataclasses import dataclass

from penstock.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers:
    """Tell every one of these partitions how the transaction ended, however long it takes.

    When all of them have the marker, or are no more, the context says so with `MarkersWritten` of the same id, producer
    id and epoch. `epoch` is what the markers carry: with transaction version 2 one more than the records have.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int
    transaction_version: int
