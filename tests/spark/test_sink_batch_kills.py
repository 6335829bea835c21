"""A driver's commit of a batch write is killed around its decision: the table is committed whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pyspark_penstock.finish import finish
from pyspark_penstock.link import BrokerLink, LinkSettings
from spark.cutting import CLIENT, END_TXN, TXN_OFFSET_COMMIT, Cut, CuttingProxy
from spark.topic_contents import make_topic, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 300


@pytest.fixture(scope="module")
def proxy() -> Iterator[CuttingProxy]:
    with CuttingProxy() as made:
        yield made


def write(spark: SparkSession, bootstrap: str, topic: str) -> None:
    table = spark.range(0, ROWS, 1, 3).selectExpr("cast(id as string) as value")
    table.write.format("penstock").mode("append").option("kafka.bootstrap.servers", bootstrap).option(
        "topic", topic
    ).save()


# The first end is that of the ledger's own transaction, which is the decision.
@pytest.mark.parametrize(
    ("cut", "is_decided"),
    [
        (Cut(TXN_OFFSET_COMMIT, 1, True, CLIENT), False),
        (Cut(END_TXN, 1, False, CLIENT), False),
        (Cut(END_TXN, 1, True, CLIENT), True),
        (Cut(END_TXN, 3, True, CLIENT), True),
    ],
    ids=str,
)
def test_a_table_is_in_whole_once_it_is_decided_and_not_at_all_before(
    spark: SparkSession, proxy: CuttingProxy, cut: Cut, is_decided: bool
) -> None:
    topic = make_topic(proxy.bootstrap)
    proxy.arm(cut)
    with pytest.raises(Exception, match=r"(?i)commit|abort|worker"):
        write(spark, proxy.bootstrap, topic)
    assert proxy.fired

    with BrokerLink(LinkSettings(bootstrap=proxy.bootstrap)) as link:
        assert len(finish(link)) == is_decided
        assert finish(link) == []

    assert sorted(map(int, values(proxy.bootstrap, topic))) == (list(range(ROWS)) if is_decided else [])
    write(spark, proxy.bootstrap, topic)
    assert len(values(proxy.bootstrap, topic)) == ROWS * (2 if is_decided else 1)
