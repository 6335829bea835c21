"""The options of `penstock pipeline`, each declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class LakeFormat(StrEnum):
    """What a table is made of."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class ValueFormat(StrEnum):
    """What values are."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"


FormatOption = Annotated[LakeFormat, typer.Option("--format", "-f", help="What the table is made of.")]
NameOption = Annotated[str | None, typer.Option("--name", "-n", help="The pipeline's name; made up if unset.")]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="PENSTOCK_STATE_DIR",
        metavar="DIR",
        help="Where pipelines and checkpoints are noted; ~/.local/state/penstock if unset.",
    ),
]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", metavar="DIR|URI", help="Spark's checkpoint; in the state dir if unset.")
]
MasterOption = Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")]
ConfOption = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's.")]
TableNameOption = Annotated[
    str, typer.Option("--table-name", metavar="NAMESPACE.TABLE", help="An Iceberg table's name in its catalog.")
]
CatalogOption = Annotated[
    str, typer.Option("--catalog", metavar="NAME", help="An Iceberg catalog of pyiceberg's; a file in DIR if unset.")
]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics to keep.")]
ToOption = Annotated[str, typer.Option("--to", metavar="DIR|URI", help="The table, by topic and day.")]
ValueFormatOption = Annotated[ValueFormat, typer.Option("--value-format", help="What values are.")]
ValueSchemaOption = Annotated[
    str, typer.Option("--value-schema", metavar="SCHEMA|@FILE", help="Of json: `id BIGINT, ...`; of avro: its JSON.")
]
DropBytesOption = Annotated[
    bool, typer.Option("--drop-bytes", help="Keep typed values alone; they cannot be replayed then.")
]
DeadLettersOption = Annotated[
    str, typer.Option("--dead-letters", metavar="TOPIC", help="For values that do not parse; a folder if unset.")
]
StartOption = Annotated[str, typer.Option("--from", help="Where a new table begins: earliest, latest, -1h, ...")]
OnceOption = Annotated[bool, typer.Option("--once", help="Take what there is, and end.")]
EveryOption = Annotated[float, typer.Option("--every", min=0, metavar="SECONDS", help="How often to write a batch.")]
BatchOption = Annotated[int, typer.Option("--batch", min=1, metavar="N", help="Records of a batch at most.")]
CompactOption = Annotated[bool, typer.Option("--compact", help="Merge small files.")]
GroupOption = Annotated[str, typer.Option("--group", help="A group to commit offsets to, so that its lag shows.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The table's folder or address.")]
ToTopicOption = Annotated[str, typer.Option("--to-topic", metavar="TOPIC", help="Where its records go.")]
FromPositionOption = Annotated[
    str, typer.Option("--from", help="An offset, or a time: @-1h, @2026-11-01T08:00, @MILLISECONDS.")
]
ToPositionOption = Annotated[str, typer.Option("--to", help="The same; records from there on are not sent.")]
OfTopicOption = Annotated[list[str] | None, typer.Option("--topic", help="Of these topics alone; repeat for more.")]
RateOption = Annotated[str, typer.Option("--rate", metavar="N/s", help="Records a second at most.")]
NewTimesOption = Annotated[bool, typer.Option("--new-times", help="Records get the time of the replay.")]
KeepPartitionsOption = Annotated[
    bool, typer.Option("--keep-partitions", help="To the partition a record came from, whatever its key.")
]
