"""Exactly-once writes from ``foreachBatch``, for output modes that Spark does not offer to Python sinks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING

from penstock.model.clock import SystemRandomness
from pyspark_penstock.batch_identity import offsets_in_foreach_batch, offsets_of_batch
from pyspark_penstock.spark_internals import query_of_foreach_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@cache
def run_of_process() -> str:
    """A name for the run of a query in this process: Spark Connect starts a new process for each run.

    Called inside of the function, as Spark sends the function to that process.
    """
    return SystemRandomness().uuid_bytes().hex()


def each_batch(sink_id: str, options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch`` that writes each batch once.

    ``sink_id`` names this output of this query, and nothing else: its state counts the query's batches, from the first
    one on, so call the function for an empty table as well. On Spark Connect the calling query is not known; set the
    option ``checkpointLocation`` to the query's own.
    """
    chosen = {name: value for name, value in options.items() if name.lower() != "checkpointlocation"}
    checkpoint = next((value for name, value in options.items() if name.lower() == "checkpointlocation"), "")

    def write(table: DataFrame, batch_id: int) -> None:
        writer = table.write.format("penstock").mode("append").options(**chosen)
        writer = writer.option("sinkId", sink_id).option("batchId", str(batch_id))
        query = query_of_foreach_batch(table.sparkSession)
        if query is not None:
            writer = writer.option("queryId", query.query)
        writer = writer.option("queryRun", run_of_process() if query is None else query.run)
        offsets = offsets_in_foreach_batch(table, batch_id)
        if offsets is None and checkpoint:
            offsets = offsets_of_batch(checkpoint, batch_id)
        if offsets is not None:
            writer = writer.option("batchOffsets", json.dumps(asdict(offsets)))
        writer.save()

    return write
