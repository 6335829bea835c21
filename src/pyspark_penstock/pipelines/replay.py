"""Sends a table's records to a topic, each once, however often the replay is interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark_penstock.lake import TableFormat, open_table
from pyspark_penstock.pipelines.checkpoint import WrongCheckpoint
from pyspark_penstock.pipelines.replay_plan import Plan, Wanted, make_plan
from pyspark_penstock.pipelines.replay_source import PLAN_FILE, SOURCE_NAME, ReplaySource
from pyspark_penstock.pipelines.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The settings of a replay."""

    name: str
    bootstrap: str
    table: str
    to_topic: str
    checkpoint: str
    format: TableFormat = TableFormat.PARQUET
    table_name: str = ""
    catalog: str = ""
    wanted: Wanted = field(default_factory=Wanted)
    rate: float = 0.0
    """Records per second; 0 for no limit."""
    keeps_times: bool = True
    keeps_partitions: bool = False
    """Whether a record goes to the partition it came from instead of that of its key."""
    kafka: Mapping[str, str] = field(default_factory=dict[str, str])


def start_replay(spark: SparkSession, replay: Replay) -> StreamingQuery:
    """Start the query; it ends when everything is sent."""
    plan_for(replay)
    spark.dataSource.register(ReplaySource)
    rows = (
        spark.readStream.format(SOURCE_NAME).option("plan", replay.checkpoint).option("rate", str(replay.rate)).load()
    )
    columns = ["key", "value", "headers"]
    columns += ["timestamp"] if replay.keeps_times else []
    columns += ["source_partition AS partition"] if replay.keeps_partitions else []
    options = {
        "kafka.bootstrap.servers": replay.bootstrap,
        **{f"kafka.{name}": value for name, value in replay.kafka.items()},
        "topic": replay.to_topic,
        "checkpointLocation": f"{replay.checkpoint}/query",
    }
    if replay.keeps_times:
        options["timestamp.column"] = "timestamp"
    writer = rows.selectExpr(*columns).writeStream.queryName(replay.name).format("penstock").options(**options)
    return writer.trigger(availableNow=True).start()


def plan_for(replay: Replay) -> Plan:
    """The plan of an earlier start, or a new one; WrongCheckpoint if the earlier one was another replay."""
    store = Store.at(replay.checkpoint)
    requested: dict[str, Any] = {
        "table": replay.table,
        "format": replay.format.value,
        "to_topic": replay.to_topic,
        "wanted": {**asdict(replay.wanted), "topics": list(replay.wanted.topics)},
    }
    known: Any = store.read_json(PLAN_FILE)
    if known is not None:
        if known["asked"] != requested:
            raise WrongCheckpoint(
                f"the checkpoint {replay.checkpoint} is of another replay ({known['asked']['table']} to "
                f"{known['asked']['to_topic']}): choose another --name or --checkpoint"
            )
        return Plan.of_json(known)
    table = open_table(replay.format, replay.table, name=replay.table_name, catalog=replay.catalog)
    plan = make_plan(table, replay.wanted)
    store.write_json(PLAN_FILE, {**plan.to_json(), "asked": requested})
    return plan
