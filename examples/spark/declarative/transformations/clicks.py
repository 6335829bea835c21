"""Clicks of a topic as a table, a count for each page, and pages with many clicks in a topic of their own."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

BROKERS = {"kafka.bootstrap.servers": os.environ.get("PENSTOCK_BOOTSTRAP", "localhost:9092")}
TYPED = {"value.format": "json", "value.schema": "page string, user string"}

spark = SparkSession.active()
dp.create_sink("checkouts", "penstock", {**BROKERS, "topic": "checkouts"})


@dp.table
def clicks() -> DataFrame:
    """Every click, once."""
    reader = spark.readStream.format("penstock").options(**BROKERS, **TYPED).option("subscribe", "clicks")
    return reader.option("startingOffsets", "earliest").load().where("value_error is null").select("value.*")


@dp.materialized_view
def clicks_per_page() -> DataFrame:
    """Recomputed at each run."""
    return spark.read.table("clicks").groupBy("page").count()


@dp.append_flow(target="checkouts")
def checkouts_flow() -> DataFrame:
    """Into a topic, exactly once."""
    return spark.readStream.table("clicks").where("page = 'checkout'").selectExpr("user as key", "page as value")
