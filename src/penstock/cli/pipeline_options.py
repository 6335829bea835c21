"""The options of `penstock pipeline`, each declared once, and in groups those that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from penstock.cli.options import BOOTSTRAP, OutputFormat, OutputOption, PropertyOption, assignments, client_properties

if TYPE_CHECKING:
    from pyspark_penstock.lake import TableFormat

MASTER = "local[*]"


class LakeFormat(StrEnum):
    """The format of a table."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class ValueFormat(StrEnum):
    """The format of values."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"


FormatOption = Annotated[LakeFormat, typer.Option("--format", "-f", help="The table's format.")]
NameOption = Annotated[str | None, typer.Option("--name", "-n", help="The pipeline's name; derived if unset.")]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        envvar="PENSTOCK_STATE_DIR",
        metavar="DIR",
        help="Where the state of pipelines and checkpoints is kept; ~/.local/state/penstock if unset.",
    ),
]
CheckpointOption = Annotated[
    str | None, typer.Option("--checkpoint", metavar="DIR|URI", help="Spark's checkpoint; in the state dir if unset.")
]
MasterOption = Annotated[
    str | None, typer.Option("--master", metavar="URL", help=f"Where Spark runs; {MASTER} by default.")
]
BrokersOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="PENSTOCK_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help=f"Where the brokers are; {BOOTSTRAP} by default.",
    ),
]
ConfOption = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's.")]
TableNameOption = Annotated[
    str, typer.Option("--table-name", metavar="NAMESPACE.TABLE", help="An Iceberg table's name in its catalog.")
]
CatalogOption = Annotated[
    str, typer.Option("--catalog", metavar="NAME", help="An Iceberg catalog of pyiceberg's; a file in DIR if unset.")
]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics to keep.")]
ToOption = Annotated[str, typer.Option("--to", metavar="DIR|URI", help="The table.")]
PartitionByOption = Annotated[
    str,
    typer.Option("--partition-by", metavar="COLUMN,...", help="Of topic, day, hour, value.FIELD, hour(value.FIELD)."),
]
ExpireOption = Annotated[
    str, typer.Option("--expire", metavar="AGE", help="Delete files that only older versions need, such as 7d.")
]
AgeOption = Annotated[str, typer.Option("--older-than", metavar="AGE", help="How old: 12h, 7d; at least 1h.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="List the files, and delete nothing.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Also delete files that a replay has yet to send.")]
ValueFormatOption = Annotated[ValueFormat, typer.Option("--value-format", help="The format of values.")]
ValueSchemaOption = Annotated[
    str, typer.Option("--value-schema", metavar="SCHEMA|@FILE", help="Of json: `id BIGINT, ...`; of avro: its JSON.")
]
DropBytesOption = Annotated[
    bool, typer.Option("--drop-bytes", help="Keep only typed values; they cannot be replayed then.")
]
DeadLettersOption = Annotated[
    str, typer.Option("--dead-letters", metavar="TOPIC", help="For values that do not parse; a folder if unset.")
]
StartOption = Annotated[str, typer.Option("--from", help="Where a new table begins: earliest, latest, -1h, ...")]
OnceOption = Annotated[bool, typer.Option("--once", help="Process the records present, and exit.")]
EveryOption = Annotated[float, typer.Option("--every", min=0, metavar="SECONDS", help="How often to write a batch.")]
BatchOption = Annotated[int, typer.Option("--batch", min=1, metavar="N", help="The most records of a batch.")]
CompactOption = Annotated[bool, typer.Option("--compact", help="Merge small files.")]
GroupOption = Annotated[str, typer.Option("--group", help="A group to commit offsets to, so that its lag shows.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The table's folder or address.")]
ToTopicOption = Annotated[str, typer.Option("--to-topic", metavar="TOPIC", help="Where its records go.")]
FromPositionOption = Annotated[
    str, typer.Option("--from", help="An offset, or a time: @-1h, @2026-11-01T08:00, @MILLISECONDS.")
]
ToPositionOption = Annotated[str, typer.Option("--to", help="The same; records from there on are not sent.")]
OfTopicOption = Annotated[list[str] | None, typer.Option("--topic", help="Only of these topics; repeat for more.")]
RateOption = Annotated[str, typer.Option("--rate", metavar="N/s", help="The most records per second.")]
NewTimesOption = Annotated[bool, typer.Option("--new-times", help="Records get the time of the replay.")]
KeepPartitionsOption = Annotated[
    bool, typer.Option("--keep-partitions", help="Send a record to the partition it came from, not to that of its key.")
]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, in TOML.")]
CheckOption = Annotated[bool, typer.Option("--check", help="Only check the file.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The options that choose a lake table."""

    format_: FormatOption = LakeFormat.PARQUET
    table_name: TableNameOption = ""
    catalog: CatalogOption = ""

    @property
    def kind(self) -> TableFormat:
        from pyspark_penstock.lake import TableFormat

        return TableFormat(self.format_.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of every pipeline."""

    name: NameOption = None
    checkpoint: CheckpointOption = None
    state_dir: StateOption = None
    master: MasterOption = None
    conf: ConfOption = None
    bootstrap: BrokersOption = None
    output: OutputOption = OutputFormat.TABLE
    properties: PropertyOption = None

    @property
    def spark_settings(self) -> dict[str, str]:
        return assignments(self.conf or (), option="--conf")

    @property
    def kafka(self) -> dict[str, str]:
        return client_properties(self.properties or ())


Command = Callable[..., None]


def takes(**groups: type[Any]) -> Callable[[Command], Command]:
    """Give a command the options of some groups after its own; it gets each group as one value, by its name."""

    def decorate(command: Command) -> Command:
        own = signature(command, eval_str=True).parameters.values()
        parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own if each.name not in groups]
        for group in groups.values():
            hints = get_type_hints(group, include_extras=True)
            parameters += [
                Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
                for each in fields(group)
            ]

        @wraps(command)
        def run(**given: Any) -> None:
            for name, group in groups.items():
                given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
            command(**given)

        typed: Any = run
        typed.__signature__ = Signature(parameters)
        typed.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
