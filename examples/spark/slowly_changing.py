"""The history of customers as a slowly changing dimension (type 2) in Delta: python slowly_changing.py [HOST:PORT]

Every change in the topic closes the customer's current row and opens a new one: who lived where, from when to when. A
batch becomes one commit of the table, which also holds how far each partition has been read. So a record changes the
table once, even if processes are killed, or the checkpoint is older than the table or lost.

It needs penstock[lake]. Current rows are compared in the driver: they must fit into its memory.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

CUSTOMERS = "customer-changes"
TIME = pyarrow.timestamp("us", "UTC")
HISTORY = pyarrow.schema(
    [
        pyarrow.field("customer", pyarrow.string()),
        pyarrow.field("city", pyarrow.string()),
        pyarrow.field("valid_from", TIME),
        pyarrow.field("valid_to", TIME),
    ]
)


def keep_history(path: str) -> Callable[[DataFrame, int], None]:
    """A function for foreachBatch that writes each batch into the table once."""

    def write(changes: DataFrame, batch_id: int) -> None:
        table = DeltaTable.create(path, HISTORY, mode="ignore")
        read = Progress(table)
        arrived = [row for row in changes.orderBy("partition", "offset").toArrow().to_pylist() if read.is_new(row)]
        if not arrived:
            return
        history = table.to_pyarrow_table()
        current = history.filter(history["valid_to"].is_null()).to_pylist()
        upserts = pyarrow.Table.from_pylist(versions(current, arrived), HISTORY)
        same_row = "old.customer = new.customer and old.valid_from = new.valid_from"
        merge = table.merge(
            upserts, same_row, source_alias="new", target_alias="old", commit_properties=read.until(arrived)
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return write


class Progress:
    """The last offset of each partition that is in the table, kept by Delta as versions of applications."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._known: dict[int, int] = {}

    def is_new(self, row: dict[str, Any]) -> bool:
        partition = row["partition"]
        if partition not in self._known:
            known = self._table.transaction_version(f"{CUSTOMERS}-{partition}")
            self._known[partition] = -1 if known is None else known
        return row["offset"] > self._known[partition]

    def until(self, rows: list[dict[str, Any]]) -> CommitProperties:
        last = {row["partition"]: row["offset"] for row in rows}
        return CommitProperties(
            app_transactions=[Transaction(f"{CUSTOMERS}-{partition}", offset) for partition, offset in last.items()]
        )


def versions(rows: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that changes close or open, given the customers' current ones."""
    current = {row["customer"]: row for row in rows}
    touched: dict[tuple[str, Any], dict[str, Any]] = {}
    for change in changes:
        before = current.get(change["customer"])
        if before is not None and before["city"] == change["city"]:
            continue
        if before is not None:
            before["valid_to"] = change["changed_at"]
            touched[before["customer"], before["valid_from"]] = before
        after = {
            "customer": change["customer"],
            "city": change["city"],
            "valid_from": change["changed_at"],
            "valid_to": None,
        }
        current[change["customer"]] = touched[change["customer"], change["changed_at"]] = after
    return list(touched.values())


def run(spark: SparkSession, bootstrap: str, folder: str) -> list[dict[str, Any]]:
    """Read the topic and return the history."""
    schema = "customer string, city string, changed_at timestamp"
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", CUSTOMERS).option("startingOffsets", "earliest")
    changes = reader.options(**{"value.format": "json", "value.schema": schema}).load()
    changes = changes.where("value_error is null").select("value.*", "partition", "offset")
    writer = changes.writeStream.foreachBatch(keep_history(f"{folder}/history"))
    writer.option("checkpointLocation", f"{folder}/history-checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()

    found = DeltaTable(f"{folder}/history").to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["customer"], row["valid_from"]))


def send(spark: SparkSession, bootstrap: str, moves: list[tuple[str, str, str]]) -> None:
    """Changes of (customer, city, day of May), keyed by customer: all of one customer are in one partition."""
    frame = spark.createDataFrame(moves, "customer string, city string, day string").coalesce(1)
    time = f.concat(f.lit("2026-05-"), "day", f.lit("T00:00:00Z"))
    values = f.to_json(f.struct("customer", "city", time.alias("changed_at")))
    writer = frame.select(f.col("customer").alias("key"), values.alias("value")).write.format("penstock")
    writer.mode("append").option("kafka.bootstrap.servers", bootstrap).option("topic", CUSTOMERS).save()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from where import bootstrap_servers

    from pyspark_penstock import local_session

    servers = bootstrap_servers(*sys.argv[1:2])
    session = local_session("slowly-changing")
    send(session, servers, [("ada", "London", "01"), ("bob", "Boston", "01"), ("ada", "Bath", "09")])
    for version in run(session, servers, tempfile.mkdtemp()):
        print(version["customer"], version["city"], version["valid_from"], version["valid_to"])
