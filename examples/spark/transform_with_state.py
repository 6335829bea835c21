"""An alert for three failed logins of a user in a row: python transform_with_state.py [HOST:PORT]

`transformWithState` (Spark 4.1 and newer) keeps a counter for each user, in RocksDB and in the checkpoint. It needs the
package protobuf, which pyspark[connect] installs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

LOGINS, ALERTS = "logins", "login-alerts"
FAILURES_MAX = 3
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class FailuresInARow(StatefulProcessor):
    """Counts failures since the last success, and emits a row at every third."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._failures = handle.getValueState("failures", "count int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count = self._failures.get()[0] if self._failures.exists() else 0
        for row in sorted(rows, key=lambda each: each["offset"]):
            count = 0 if row["success"] else count + 1
            if count == FAILURES_MAX:
                yield Row(user=key[0], failures=count)
                count = 0
        self._failures.update((count,))

    def close(self) -> None:
        pass


def run(spark: SparkSession, bootstrap: str, folder: str) -> list[Any]:
    """Read the topic and return the alerts that have been written."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    brokers = {"kafka.bootstrap.servers": bootstrap}
    typed = {"subscribe": LOGINS, "value.format": "json", "value.schema": "user string, success boolean"}
    logins = spark.readStream.format("penstock").options(**brokers, **typed).option("startingOffsets", "earliest")
    alerts = (
        logins.load()
        .select("value.*", "offset")
        .groupBy("user")
        .transformWithState(FailuresInARow(), "user string, failures int", "Append", "None")
    )
    records = alerts.select(f.col("user").alias("key"), f.to_json(f.struct("*")).alias("value"))
    writer = records.writeStream.format("penstock").options(**brokers).option("topic", ALERTS)
    writer.option("checkpointLocation", f"{folder}/alerts").trigger(availableNow=True).start().awaitTermination()

    written = spark.read.format("penstock").options(**brokers).option("subscribe", ALERTS).load()
    return written.selectExpr("cast(key as string) as user", "cast(value as string) as alert").collect()


def send(spark: SparkSession, bootstrap: str) -> None:
    """Logins in the order of a single partition: ada fails three times in a row, bob does not."""
    logins = [("ada", False), ("bob", False), ("ada", False), ("bob", True), ("bob", False), ("ada", False)]
    frame = spark.createDataFrame(logins, "user string, success boolean").coalesce(1)
    writer = frame.select(f.col("user").alias("key"), f.to_json(f.struct("*")).alias("value")).write.format("penstock")
    writer.mode("append").option("kafka.bootstrap.servers", bootstrap).option("topic", LOGINS).save()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from where import bootstrap_servers

    from pyspark_penstock import local_session

    servers = bootstrap_servers(*sys.argv[1:2])
    session = local_session("transform-with-state")
    send(session, servers)
    for row in run(session, servers, tempfile.mkdtemp()):
        print(row.user, row.alert)
