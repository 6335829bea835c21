"""A driver in a process of its own, to be killed: writes tables to a topic, and notes which it began and ended.

    python batch_driver_program.py FOLDER TOPIC BOOTSTRAP TABLES

Started again it goes on after the last table that it began; a named table is retried first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark_penstock.session import local_session
from spark.batch_tables import name_of, write_table

BEGUN, ENDED = "begun", "ended"
TIMEOUT_MS = 40_000
"""What a driver has not decided when it dies stays open for so long, and readers wait for it."""


def is_named(table: int) -> bool:
    return table % 2 == 1


def noted(folder: Path, what: str) -> set[int]:
    """The tables that drivers of this folder have begun, or ended."""
    file = folder / what
    return set(map(int, file.read_text().split())) if file.exists() else set()


def note(folder: Path, what: str, table: int) -> None:
    with (folder / what).open("a") as file:
        file.write(f"{table}\n")
        file.flush()
        os.fsync(file.fileno())


def main(place: str, topic: str, bootstrap: str, tables: str) -> None:
    folder = Path(place)
    spark = local_session("killed", cores="2,4", conf={"spark.log.level": "WARN"})
    for table in range(int(tables)):
        if table in noted(folder, ENDED) or (table in noted(folder, BEGUN) and not is_named(table)):
            continue
        note(folder, BEGUN, table)
        options = name_of(topic, table // 2) if is_named(table) else {"kafka.transaction.timeout.ms": str(TIMEOUT_MS)}
        write_table(spark, bootstrap, topic, table, **options)
        note(folder, ENDED, table)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
