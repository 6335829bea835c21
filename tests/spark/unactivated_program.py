"""Reads a topic in a session that was made without this package, before and after registering the data source.

    python unactivated_program.py BOOTSTRAP TOPIC

The environment names no Python for Spark's workers, as in a virtual environment that is not activated.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import pyspark_penstock


def main(bootstrap: str, topic: str) -> None:
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    read = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    try:
        print("found", read.load().count())
    except Exception as error:
        print("refused", "DATA_SOURCE_NOT_FOUND" in str(error))
    pyspark_penstock.register(spark)
    print("registered", read.load().count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
