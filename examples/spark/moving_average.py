"""The average of the last five minutes, every minute, of readings in a topic: python moving_average.py [HOST:PORT]

A window is written when it is closed, by a reading that is two minutes younger than its end. Later readings are
dropped.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

READINGS = "readings"
AVERAGES = "reading-averages"
SCHEMA = "sensor string, at timestamp, celsius double"


def averages(readings: DataFrame) -> DataFrame:
    """One row for each sensor and window."""
    window = f.window("at", "5 minutes", "1 minute")
    found = readings.withWatermark("at", "2 minutes").groupBy("sensor", window).agg(f.avg("celsius").alias("celsius"))
    return found.select("sensor", f.col("window.end").alias("until"), f.round("celsius", 3).alias("celsius"))


def run(spark: SparkSession, bootstrap: str, folder: str) -> list[Any]:
    """Read the topic, write the closed windows, and return them."""
    brokers = {"kafka.bootstrap.servers": bootstrap}
    typed = {"subscribe": READINGS, "startingOffsets": "earliest", "value.format": "json", "value.schema": SCHEMA}
    readings = spark.readStream.format("penstock").options(**brokers, **typed).load().select("value.*")
    records = averages(readings).select(f.col("sensor").alias("key"), f.to_json(f.struct("*")).alias("value"))
    writer = records.writeStream.format("penstock").options(**brokers).option("topic", AVERAGES)
    writer.option("checkpointLocation", f"{folder}/averages").trigger(availableNow=True).start().awaitTermination()

    written = spark.read.format("penstock").options(**brokers).option("subscribe", AVERAGES)
    typed = {"value.format": "json", "value.schema": "sensor string, until timestamp, celsius double"}
    return written.options(**typed).load().select("value.*").orderBy("sensor", "until").collect()


def send(spark: SparkSession, bootstrap: str) -> None:
    """A reading every minute for ten minutes, rising by one degree, and one that closes the windows."""
    minutes = [*range(10), 30]
    rows = [("roof", f"2026-05-01T12:{minute:02}:00Z", 10.0 + minute) for minute in minutes]
    frame = spark.createDataFrame(rows, "sensor string, at string, celsius double")
    records = frame.select(f.col("sensor").alias("key"), f.to_json(f.struct("*")).alias("value"))
    writer = records.coalesce(1).write.format("penstock").mode("append")
    writer.option("kafka.bootstrap.servers", bootstrap).option("topic", READINGS).save()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from where import bootstrap_servers

    from pyspark_penstock import local_session

    servers = bootstrap_servers(*sys.argv[1:2])
    session = local_session("moving-average")
    send(session, servers)
    for row in run(session, servers, tempfile.mkdtemp()):
        print(row.sensor, row.until, row.celsius)
