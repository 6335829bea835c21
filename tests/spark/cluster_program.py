"""Writes a table to a topic, reads it back, and copies it by a stream, in whatever Spark the environment names.

python cluster_program.py remote|master ADDRESS BOOTSTRAP TOPIC COPY CHECKPOINT
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from pyspark_penstock.session import local_session

ROWS = 2000
SECRET = "hunter2"


def session(kind: str, address: str, folder: str) -> Any:
    if kind == "remote":
        return SparkSession.builder.remote(address).getOrCreate()
    conf = {
        "spark.master": address,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.log.level": "INFO",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{folder}",
    }
    return local_session("cluster", conf=conf)


def main(kind: str, address: str, bootstrap: str, topic: str, copy: str, folder: str) -> None:
    spark = session(kind, address, folder)
    brokers = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.sasl.jaas.config": f'PlainLoginModule required username="a" password="{SECRET}";',
        "kafka.ssl.key.password": SECRET,
    }
    table = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) as key", "concat('value-', id) as value")
    table.write.format("penstock").mode("append").options(**brokers).option("topic", topic).save()
    read = spark.read.format("penstock").options(**brokers).option("subscribe", topic).load()
    read.explain(True)
    print("read", read.selectExpr("cast(value as string) as value").distinct().count())
    stream = spark.readStream.format("penstock").options(**brokers).option("subscribe", topic)
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .selectExpr("key", "value")
        .writeStream.format("penstock")
        .options(**brokers)
        .option("topic", copy)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("copied")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
