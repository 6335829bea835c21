"""Archives and replays as processes that are killed at random moments: nothing is lost or duplicated."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import Child
from pyspark_penstock.lake import TableFormat
from pyspark_penstock.pipelines.replay import Replay, start_replay
from spark.late_workers import run_query
from spark.pipeline_processes import (
    SECONDS_MAX,
    kill_all,
    kill_alone,
    known_state,
    start_pipeline_process,
    wait_for_batches,
)
from spark.test_pipeline_archive import archive, new_archive, seen, send
from spark.topic_contents import committed, make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("PENSTOCK_TEST_PIPELINE_KILLS", "0"))
"""Of each pipeline; a few if it is not set."""
FATES = ("kept", "kept", "lost", "restored")
"""What may become of a checkpoint before the next start."""
FEW_FATES = {TableFormat.PARQUET: "restored", TableFormat.DELTA: "lost", TableFormat.ICEBERG: "kept"}
REPLAYED = (TableFormat.DELTA, TableFormat.ICEBERG) if KILLS else (TableFormat.ICEBERG,)
MOMENT_SECONDS_MAX = 1.5
SEED_VARIABLE = "PENSTOCK_TEST_SEED"
RECORDS = 2_000
"""Before every start: more than an archive takes in until it is killed."""
RECORDS_PER_BATCH = 40
REPLAYED_A_SECOND = 200


def killed(child: Any, chance: random.Random) -> None:
    """Kill a process at a random moment, alone or with its children."""
    time.sleep(chance.uniform(0, MOMENT_SECONDS_MAX))
    chance.choice((kill_alone, kill_all))(child)


def reported_chance() -> random.Random:
    """A failure prints the seed; PENSTOCK_TEST_SEED=<seed> repeats the run."""
    seed = int(os.environ.get(SEED_VARIABLE, "0")) or random.randrange(1, 1 << 32)
    print(f"{SEED_VARIABLE}={seed}")
    return random.Random(seed)


def rows_of(kind: TableFormat, where: Path) -> list[tuple[int, int, int]]:
    """The number, the partition and the offset of every row, as the format's own reader sees the table."""
    columns = ["headers", "partition", "offset"]
    if kind is TableFormat.DELTA:
        import deltalake

        found = deltalake.DeltaTable(str(where)).to_pyarrow_table(columns=columns)
    elif kind is TableFormat.ICEBERG:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("penstock", uri=f"sqlite:///{where}/catalog.sqlite", warehouse=f"file://{where}")
        found = catalog.load_table("penstock.archive").scan(selected_fields=tuple(columns)).to_arrow()
    else:
        found = ds.dataset(str(where), partitioning="hive").to_table(columns=columns)
    return [(int(row["headers"][0]["value"]), row["partition"], row["offset"]) for row in found.to_pylist()]


def check_rows(rows: list[tuple[int, int, int]], sent: int) -> None:
    """Every record once."""
    numbers = Counter(number for number, _, _ in rows)
    lost = [number for number in range(sent) if number not in numbers]
    doubled = [number for number, count in numbers.items() if count > 1]
    assert not lost, f"lost {len(lost)} records: {lost[:10]}"
    assert not doubled, f"doubled {len(doubled)} records: {doubled[:10]}"
    places = {(partition, offset) for _, partition, offset in rows}
    assert len(places) == len(rows) == sent


@dataclass(slots=True)
class KilledArchive:
    """An archive that is killed repeatedly, and whose checkpoint is kept, lost or restored between the starts."""

    folder: Path
    bootstrap: str
    topic: str
    kind: TableFormat
    chance: random.Random
    sent: int = 0

    @property
    def checkpoint(self) -> Path:
        return self.folder / "state" / "checkpoints" / "killed"

    def start(self) -> Child:
        arguments = ["archive", self.topic, "--to", str(self.folder / "table"), "--format", self.kind.value]
        arguments += ["--batch", str(RECORDS_PER_BATCH), "--every", "0"]
        return start_pipeline_process(self.folder, "killed", self.bootstrap, *arguments)

    def run(self, before: str) -> None:
        """Send records, change the checkpoint, start, and kill."""
        send(self.bootstrap, self.topic, self.sent, RECORDS)
        self.sent += RECORDS
        print(f"checkpoint {before}")
        backup = self.folder / "backup"
        if before == "restored" and backup.exists():
            self.restore(backup)
        elif before == "lost":
            shutil.rmtree(self.checkpoint, ignore_errors=True)
        child = self.start()
        wait_for_batches(child, self.folder, "killed")
        killed(child, self.chance)
        assert known_state(self.folder, "killed").status == "died"
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(self.checkpoint, backup)

    def restore(self, backup: Path) -> None:
        """Run once more, so that the backup is older than the table: it is refused, and discarded."""
        child = self.start()
        wait_for_batches(child, self.folder, "killed", count=3)
        killed(child, self.chance)
        shutil.rmtree(self.checkpoint)
        shutil.copytree(backup, self.checkpoint)
        refused = self.start()
        assert refused.wait(SECONDS_MAX) == 1
        error = known_state(self.folder, "killed").error
        assert "older than the table" in error or "they do not belong together" in error, error
        shutil.rmtree(self.checkpoint)


@pytest.mark.slow
@pytest.mark.timeout(1500 + 4 * SECONDS_MAX * KILLS)
@pytest.mark.parametrize("kind", list(TableFormat))
def test_an_archive_that_is_killed_loses_and_duplicates_nothing(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path, kind: TableFormat
) -> None:
    chance = reported_chance()
    topic = make_topic(broker.bootstrap)
    story = KilledArchive(folder=tmp_path, bootstrap=broker.bootstrap, topic=topic, kind=kind, chance=chance)
    fates = [chance.choice(FATES) for _ in range(KILLS)] if KILLS else [FEW_FATES[kind]]
    for fate in fates:
        story.run(fate)
    # The same archive, in this process's Spark, which has started already.
    what = new_archive(broker.bootstrap, topic, tmp_path, kind)
    archive(spark, replace(what, checkpoint=str(story.checkpoint)))
    check_rows(rows_of(kind, tmp_path / "table"), story.sent)


@pytest.mark.slow
@pytest.mark.timeout(1500 + 2 * SECONDS_MAX * KILLS)
@pytest.mark.parametrize("kind", REPLAYED)
def test_a_replay_that_is_killed_goes_on_and_every_record_is_sent_once_in_its_order(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path, kind: TableFormat
) -> None:
    chance = reported_chance()
    topic, again = make_topic(broker.bootstrap), make_topic(broker.bootstrap)
    send(broker.bootstrap, topic, 0, RECORDS)
    what = new_archive(broker.bootstrap, topic, tmp_path, kind)
    archive(spark, what)
    arguments = ["replay", what.to, "--format", kind.value, "--to-topic", again, "--keep-partitions"]
    for _ in range(KILLS or 1):
        rate = ("--rate", f"{REPLAYED_A_SECOND}/s")
        child = start_pipeline_process(tmp_path, "killed", broker.bootstrap, *arguments, *rate)
        wait_for_batches(child, tmp_path, "killed")
        killed(child, chance)
        if known_state(tmp_path, "killed").status == "finished":
            break
    replay = Replay(
        name="killed",
        bootstrap=broker.bootstrap,
        table=what.to,
        to_topic=again,
        checkpoint=str(tmp_path / "state" / "checkpoints" / "killed"),
        format=kind,
        keeps_partitions=True,
    )
    run_query(lambda: start_replay(spark, replay))
    assert seen(committed(broker.bootstrap, again)) == seen(committed(broker.bootstrap, topic))
