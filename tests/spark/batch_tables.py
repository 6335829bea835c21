"""Batch writes that must be committed whole and once, or not at all; each table has its own rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark_penstock.pipelines.running import is_late_worker
from spark.topic_contents import values

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

TASKS = 3
TASK_ROWS = 60
TABLE_ROWS = TASKS * TASK_ROWS
TRIES_MAX = 8


def rows_of(table: int) -> set[str]:
    return {f"{table}/{row}" for row in range(TABLE_ROWS)}


def write_table(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    table: int,
    between: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    **options: str,
) -> None:
    """Write one table, whose rows have its number."""
    rows = spark.range(0, TABLE_ROWS, 1, TASKS).selectExpr(f"concat('{table}/', id) as value")
    writer = between(rows).write.format("penstock").mode("append")
    writer.option("kafka.bootstrap.servers", bootstrap).option("topic", topic).options(**options).save()


def name_of(topic: str, number: int) -> dict[str, str]:
    """Options with which a table may be retried and is written once."""
    return {"sinkId": f"tables-{topic}", "batchId": str(number)}


@dataclass(slots=True, kw_only=True)
class Tables:
    """Which tables must be in a topic."""

    topic: str
    whole: set[int] = field(default_factory=set[int])
    """Reported as written."""
    unsure: dict[int, str] = field(default_factory=dict[int, str])
    """Reported as failed, and with which words: in whole, or not at all."""
    tables: int = 0
    named: int = 0

    def write(self, spark: SparkSession, bootstrap: str, **options: str) -> str:
        """Write one more table, tried once; returns its failure."""
        return self.try_again(spark, bootstrap, self.begin(), **options)

    def try_again(self, spark: SparkSession, bootstrap: str, table: int, **options: str) -> str:
        """Try a table once; returns its failure."""
        for _ in range(TRIES_MAX):
            try:
                write_table(spark, bootstrap, self.topic, table, **options)
            except Exception as error:
                if is_late_worker(error):
                    continue
                self.unsure[table] = str(error)
                return str(error)
            self.whole.add(table)
            self.unsure.pop(table, None)
            return ""
        raise AssertionError("Python workers do not start in time")

    def begin_named(self) -> tuple[int, dict[str, str]]:
        """One more table that may be tried again, and its options."""
        table, options = self.begin(), name_of(self.topic, self.named)
        self.named += 1
        return table, options

    def write_named(self, spark: SparkSession, bootstrap: str, **options: str) -> list[str]:
        """Write one more table, retried until it succeeds; returns the failures."""
        table, name = self.begin_named()
        failures: list[str] = []
        for _ in range(TRIES_MAX):
            try:
                write_table(spark, bootstrap, self.topic, table, **name, **options)
            except Exception as error:
                failures.append(str(error))
                continue
            self.whole.add(table)
            return failures
        raise AssertionError(f"failed {TRIES_MAX} times: {failures[-1]}")

    def begin(self) -> int:
        """One more table."""
        self.tables += 1
        return self.tables - 1

    def check(self, bootstrap: str) -> None:
        """Tables reported as written are committed once; the others once, or not at all."""
        counts: dict[int, Counter[str]] = {}
        for value in values(bootstrap, self.topic):
            counts.setdefault(int(value.partition("/")[0]), Counter())[value] += 1
        lost = sorted(self.whole - set(counts))
        assert not lost, f"tables {lost} were written and are missing"
        for table, found in counts.items():
            assert table in self.whole | set(self.unsure), f"table {table} is committed, and was never begun"
            part = f"{len(found)} of {TABLE_ROWS} rows of table {table} are in ({self.unsure.get(table, 'written')})"
            assert set(found) == rows_of(table), part
            assert found.total() == TABLE_ROWS, f"doubled {found.total() - TABLE_ROWS} rows of table {table}"
