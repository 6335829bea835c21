"""Writes a table to a topic, reads it back, and copies it by a stream, as a client of a Connect server.

    python cluster_program.py ADDRESS BOOTSTRAP TOPIC COPY FOLDER

Options that hold secrets go with every read and write.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from spark.late_workers import run_query

ROWS = 2000
SECRET = "hunter2"


def main(address: str, bootstrap: str, topic: str, copy: str, folder: str) -> None:
    spark = SparkSession.builder.remote(address).getOrCreate()
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
    copied = (
        stream.option("startingOffsets", "earliest")
        .load()
        .selectExpr("key", "value")
        .writeStream.format("penstock")
        .options(**brokers)
        .option("topic", copy)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
    )
    run_query(copied.start)
    print("copied")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
