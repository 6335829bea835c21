"""A step in Python: the three products of every minute that sell best."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PRODUCTS = 3


def top_products(sold: DataFrame) -> DataFrame:
    """``sold`` has a row for every minute and product; this has one for every minute."""
    ranked = F.sort_array(F.collect_list(F.struct("sold", "product")), asc=False)
    minutes = sold.groupBy(F.window("window", "1 minute").alias("minute")).agg(ranked.alias("ranked"))
    return minutes.select(
        F.date_format("minute.start", "yyyy-MM-dd'T'HH:mm").alias("minute"),
        F.expr(f"transform(slice(ranked, 1, {PRODUCTS}), each -> each.product)").alias("products"),
    )
