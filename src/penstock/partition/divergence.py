"""Whether a reader's history is this log's."""

from penstock.model.generated_errors import OffsetOutOfRange
from penstock.partition.state import Partition
from penstock.storage.log import Log


def divergence(log: Log, state: Partition, offset: int, fetched_epoch: int) -> tuple[int, int] | None:
    """Where a reader at `offset`, whose last batch is of `fetched_epoch`, left this log's history; None: it did not.

    The response is an epoch and where it ended: up to there the two agree.
    """
    if fetched_epoch == state.leader_epoch:
        # Known also while nothing has been written in it.
        epoch, end = fetched_epoch, state.log_end
    else:
        epoch, end = log.epochs.end_of(fetched_epoch, state.log_end)
    if epoch < 0 or end < 0 or offset < state.log_start:
        raise OffsetOutOfRange(
            f"Could not determine the end offset of the last fetched epoch {fetched_epoch} of {log.tp}"
        )
    return (epoch, end) if epoch < fetched_epoch or end < offset else None
