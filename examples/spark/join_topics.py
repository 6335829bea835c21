"""Orders joined with their payments, two topics, into a third: python join_topics.py [HOST:PORT]

A payment counts if it arrives within ten minutes of its order. Rows without a partner are dropped once the watermarks
have passed, so the state of the join stays small; paid orders are written once.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

ORDERS, PAYMENTS, PAID = "shop-orders", "shop-payments", "shop-paid-orders"
SCHEMAS = {
    ORDERS: "id bigint, customer string, ordered_at timestamp",
    PAYMENTS: "order_id bigint, amount double, paid_at timestamp",
}
RESULT = "id bigint, customer string, amount double"


def paid_orders(orders: DataFrame, payments: DataFrame) -> DataFrame:
    in_time = "paid_at >= ordered_at and paid_at <= ordered_at + interval 10 minutes"
    orders = orders.withWatermark("ordered_at", "5 minutes")
    payments = payments.withWatermark("paid_at", "5 minutes")
    return orders.join(payments, f.expr(f"id = order_id and {in_time}")).select("id", "customer", "amount")


def run(spark: SparkSession, bootstrap: str, folder: str) -> list[Any]:
    """Join the topics and return the rows written."""
    brokers = {"kafka.bootstrap.servers": bootstrap}

    def stream(topic: str) -> DataFrame:
        reader = spark.readStream.format("penstock").options(**brokers).option("subscribe", topic)
        reader = reader.option("startingOffsets", "earliest")
        return reader.options(**{"value.format": "json", "value.schema": SCHEMAS[topic]}).load().select("value.*")

    found = paid_orders(stream(ORDERS), stream(PAYMENTS))
    records = found.select(f.col("customer").alias("key"), f.to_json(f.struct("*")).alias("value"))
    writer = records.writeStream.format("penstock").options(**brokers).option("topic", PAID)
    writer.option("checkpointLocation", f"{folder}/paid").trigger(availableNow=True).start().awaitTermination()

    written = spark.read.format("penstock").options(**brokers).option("subscribe", PAID)
    typed = {"value.format": "json", "value.schema": RESULT}
    return written.options(**typed).load().select("value.*").orderBy("id").collect()


def send(spark: SparkSession, bootstrap: str) -> None:
    """Three orders: one is paid, one is paid too late, one is not paid."""
    orders = [(1, "ada", "12:00"), (2, "bob", "12:01"), (3, "cyd", "12:02")]
    payments = [(1, 9.5, "12:04"), (2, 3.0, "12:30")]
    tables = {
        ORDERS: spark.createDataFrame(orders, "id bigint, customer string, at string"),
        PAYMENTS: spark.createDataFrame(payments, "order_id bigint, amount double, at string"),
    }
    for topic, time in ((ORDERS, "ordered_at"), (PAYMENTS, "paid_at")):
        frame = tables[topic].withColumn(time, f.concat(f.lit("2026-05-01T"), "at", f.lit(":00Z"))).drop("at")
        writer = frame.select(f.to_json(f.struct("*")).alias("value")).write.format("penstock").mode("append")
        writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from where import bootstrap_servers

    from pyspark_penstock import local_session

    servers = bootstrap_servers(*sys.argv[1:2])
    session = local_session("join-topics")
    send(session, servers)
    for row in run(session, servers, tempfile.mkdtemp()):
        print(row.id, row.customer, row.amount)
