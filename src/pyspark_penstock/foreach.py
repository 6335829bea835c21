"""Writing from ``foreachBatch``, exactly once: for output modes that Spark gives to no Python sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def each_batch(sink_id: str, options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch``: a batch that is handed to it again writes nothing.

    ``sink_id`` names this output of this query, and nothing else: its ledger counts the query's batches.
    """
    chosen = dict(options)

    def write(table: DataFrame, batch_id: int) -> None:
        writer = table.write.format("penstock").mode("append").options(**chosen)
        writer.option("sinkId", sink_id).option("batchId", str(batch_id)).save()

    return write
