"""`penstock pipeline`: topics to lake tables and back, and pipelines declared in a file, as named Spark queries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failure import Failure
from penstock.cli.offsets import OffsetsParser
from penstock.cli.options import BOOTSTRAP, BootstrapOption, OutputFormat, OutputOption, PropertyOption, assignments
from penstock.cli.output import counted, show_done, show_json, show_rows, show_table
from penstock.cli.pipeline_options import (
    BatchOption,
    CatalogOption,
    CheckpointOption,
    CompactOption,
    ConfOption,
    DeadLettersOption,
    DropBytesOption,
    EveryOption,
    FormatOption,
    FromPositionOption,
    GroupOption,
    KeepPartitionsOption,
    LakeFormat,
    MasterOption,
    NameOption,
    NewTimesOption,
    OfTopicOption,
    OnceOption,
    RateOption,
    StartOption,
    StateOption,
    TableArgument,
    TableNameOption,
    ToOption,
    TopicsArgument,
    ToPositionOption,
    ToTopicOption,
    ValueFormat,
    ValueFormatOption,
    ValueSchemaOption,
)
from penstock.client.positions import At, AtTime, BeforeEnd, Beginning, End, Position
from penstock.model.clock import SystemClock

if TYPE_CHECKING:
    from pyspark_penstock.lake import TableFormat
    from pyspark_penstock.pipelines.registry import PipelineState, Registry
    from pyspark_penstock.pipelines.replay_plan import Wanted

app = typer.Typer(
    help="Archive topics in tables, replay them, and run declared pipelines, with Spark.",
    no_args_is_help=True,
    add_completion=False,
)

RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?")
FILE_MARK = "@"


MASTER = "local[*]"
DEEP_STACKS = "-Xss4m"
"""Spark looks for Python's errors in long texts with expressions that need deep stacks, when a batch is cut short."""


@app.command()
def archive(
    topics: TopicsArgument,
    to: ToOption,
    format_: FormatOption = LakeFormat.PARQUET,
    value_format: ValueFormatOption = ValueFormat.BINARY,
    value_schema: ValueSchemaOption = "",
    drop_bytes: DropBytesOption = False,
    dead_letters: DeadLettersOption = "",
    start: StartOption = "earliest",
    once: OnceOption = False,
    every: EveryOption = 10.0,
    batch: BatchOption = 5_000_000,
    compact: CompactOption = False,
    group: GroupOption = "",
    table_name: TableNameOption = "",
    catalog: CatalogOption = "",
    name: NameOption = None,
    checkpoint: CheckpointOption = None,
    state_dir: StateOption = None,
    master: MasterOption = MASTER,
    conf: ConfOption = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Keep topics in a table, every record once.

    A stopped or killed archive goes on where it was, from its checkpoint or, without one, from what its table holds.
    """
    registry = registry_at(state_dir)
    from penstock.cli.pipeline_run import archive_job, run_job
    from pyspark_penstock.pipelines.archive import Archive

    chosen = name or "archive-" + "-".join(topics)[:80]
    asked = Archive(
        name=chosen,
        bootstrap=bootstrap,
        topics=tuple(topics),
        to=to,
        format=table_format(format_),
        checkpoint=checkpoint or registry.checkpoint_of(chosen),
        table_name=table_name,
        catalog=catalog,
        value_format=value_format.value,
        value_schema=text_or_file(value_schema, "--value-schema"),
        keeps_bytes=not drop_bytes,
        dead_letters_topic=dead_letters,
        start=start,
        once=once,
        interval_seconds=every,
        records_per_batch_max=batch,
        compacts=compact,
        group=group,
        kafka=assignments(properties or (), option="-X"),
    )
    run_job(archive_job(asked, master, assignments(conf or (), option="--conf")), registry, output)


@app.command()
def replay(
    table: TableArgument,
    to_topic: ToTopicOption,
    format_: FormatOption = LakeFormat.PARQUET,
    start: FromPositionOption = "beginning",
    end: ToPositionOption = "end",
    topic: OfTopicOption = None,
    rate: RateOption = "",
    new_times: NewTimesOption = False,
    keep_partitions: KeepPartitionsOption = False,
    table_name: TableNameOption = "",
    catalog: CatalogOption = "",
    name: NameOption = None,
    checkpoint: CheckpointOption = None,
    state_dir: StateOption = None,
    master: MasterOption = MASTER,
    conf: ConfOption = None,
    bootstrap: BootstrapOption = BOOTSTRAP,
    output: OutputOption = OutputFormat.TABLE,
    properties: PropertyOption = None,
) -> None:
    """Send a table's records to a topic, each once.

    A replay that was stopped or killed goes on where it was; one that has ended sends nothing under the same name.
    """
    registry = registry_at(state_dir)
    from penstock.cli.pipeline_run import replay_job, run_job
    from pyspark_penstock.pipelines.replay import Replay

    chosen = name or f"replay-{to_topic}"[:100]
    asked = Replay(
        name=chosen,
        bootstrap=bootstrap,
        table=table,
        to_topic=to_topic,
        checkpoint=checkpoint or registry.checkpoint_of(chosen),
        format=table_format(format_),
        table_name=table_name,
        catalog=catalog,
        wanted=wanted(start, end, topic or ()),
        rate=rate_of(rate),
        keeps_times=not new_times,
        keeps_partitions=keep_partitions,
        kafka=assignments(properties or (), option="-X"),
    )
    run_job(replay_job(asked, master, assignments(conf or (), option="--conf")), registry, output)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, in TOML.")],
    check: Annotated[bool, typer.Option("--check", help="Look at the file, and start nothing.")] = False,
    once: OnceOption = False,
    name: NameOption = None,
    checkpoint: CheckpointOption = None,
    state_dir: StateOption = None,
    master: Annotated[str | None, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = None,
    conf: ConfOption = None,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", envvar="PENSTOCK_BOOTSTRAP", metavar="HOST:PORT,...", help="The brokers."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run a pipeline that is declared in a file: topics, SQL or Python, windows, topics and tables."""
    need_spark()
    from dataclasses import replace

    from penstock.cli.pipeline_run import Job, require_topics, run_job
    from pyspark_penstock.pipelines.spec import SpecError, read_spec
    from pyspark_penstock.pipelines.spec_run import check_spec, read_options, start_pipeline

    try:
        spec = read_spec(file)
        where = bootstrap or spec.bootstrap or BOOTSTRAP
        check_spec(spec, where)
    except SpecError as error:
        raise Failure(str(error), "docs/pipelines.md has every key") from None
    spec = replace(spec, name=name or spec.name, once=once or spec.once)
    if check:
        facts = {"name": spec.name, "sources": len(spec.sources), "steps": len(spec.steps), "sinks": len(spec.sinks)}
        show_done(output, f"{spec.name}: {counted(len(spec.sinks), 'sink')}, nothing wrong in {file}", facts)
        return
    registry = registry_at(state_dir)
    place = checkpoint or registry.checkpoint_of(spec.name)

    def check_topics() -> None:
        for each in spec.sources:
            require_topics(read_options(spec, each, where))

    job = Job(
        name=spec.name,
        kind="run",
        what=f"{file} ({', '.join(each.name for each in spec.sinks)})",
        checkpoint=place,
        master=master or spec.master or MASTER,
        conf={**spec.conf, **assignments(conf or (), option="--conf")},
        check=check_topics,
        start=lambda spark: start_pipeline(spark, spec, bootstrap=where, checkpoint=place),
    )
    run_job(job, registry, output)


# Looking at them


@app.command("list")
def list_(state_dir: StateOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the pipelines of this machine, those that run and those that ran."""
    columns = ("name", "kind", "status", "batches", "rows", "rows_per_second", "lag", "pid", "what")
    rows: list[tuple[object, ...]] = []
    for each in registry_at(state_dir).every():
        batches = sum(query.batches for query in each.queries)
        moved = sum(query.rows for query in each.queries)
        rate = round(sum(query.rows_per_second for query in each.queries)) if each.status == "running" else 0
        rows.append((each.name, each.kind, each.status, batches, moved, rate, total_lag(each), each.pid, each.what))
    show_rows(output, columns, rows)


@app.command()
def status(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")],
    state_dir: StateOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show a pipeline and each of its queries: batches, rows a second, lag, late rows."""
    from dataclasses import asdict

    registry = registry_at(state_dir)
    found = registry.find(name)
    if found is None:
        raise Failure(f"there is no pipeline {name}", "`penstock pipeline list` shows those there are")
    state = registry.judged(found)
    if output is OutputFormat.JSON:
        show_json(asdict(state))
        return
    print(f"{state.name}  {state.kind}  {state.status}  process {state.pid}")
    print(f"  {state.what}")
    print(f"  checkpoint {state.checkpoint}")
    if state.error:
        print(f"  {state.error}")
    columns = ("query", "batch", "batches", "rows", "rows_per_second", "lag", "late_rows", "batch_ms", "at")
    rows = [
        (
            each.query,
            each.batch,
            each.batches,
            each.rows,
            round(each.rows_per_second),
            each.lag,
            each.late_rows,
            each.batch_ms,
            each.at,
        )
        for each in state.queries
    ]
    show_table(columns, rows)


@app.command()
def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")],
    now: Annotated[bool, typer.Option("--now", help="Kill it: it goes on from its checkpoint all the same.")] = False,
    state_dir: StateOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Stop a pipeline; the same command that started it lets it go on."""
    from pyspark_penstock.pipelines.registry import PipelineError

    try:
        state = registry_at(state_dir).stop(name, now=now)
    except PipelineError as error:
        raise Failure(str(error)) from None
    show_done(output, f"{name} {state.status}", {"name": name, "status": state.status})


def total_lag(state: PipelineState) -> int | None:
    known = [each.lag for each in state.queries if each.lag is not None]
    return sum(known) if known else None


# What options say


def need_spark() -> None:
    """Say what to install before anything else is said."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise Failure(f"pipelines need Spark: {', '.join(missing)} is not installed", 'pip install "penstock[spark]"')


def registry_at(state_dir: Path | None) -> Registry:
    need_spark()
    from pyspark_penstock.pipelines.registry import Registry, default_state_dir

    return Registry(state_dir or default_state_dir())


def text_or_file(text: str, option: str) -> str:
    """`@FILE` is what the file holds."""
    if not text.startswith(FILE_MARK):
        return text
    try:
        return Path(text[1:]).read_text()
    except OSError as error:
        raise Failure(f"{option}: cannot read {text[1:]}: {error.strerror}") from None


def rate_of(text: str) -> float:
    if not text:
        return 0.0
    found = RATE.fullmatch(text)
    if found is None or float(found[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is no rate such as 500/s", param_hint="--rate")
    return float(found[1])


def table_format(chosen: LakeFormat) -> TableFormat:
    from pyspark_penstock.lake import TableFormat

    return TableFormat(chosen.value)


def wanted(start: str, end: str, topics: Sequence[str]) -> Wanted:
    """The records between two positions, which are offsets or times."""
    from pyspark_penstock.pipelines.replay_plan import Wanted

    parser = OffsetsParser(SystemClock().now_ms())
    low = bound(parser.position(start, option="--from"), "--from")
    high = bound(parser.position(end, option="--to"), "--to")
    return Wanted(
        topics=tuple(topics),
        time_us_min=low[0],
        time_us_end=high[0],
        offset_min=low[1],
        offset_end=high[1],
    )


def bound(position: Position, option: str) -> tuple[int | None, int | None]:
    """The time in microseconds, or the offset, that a position says."""
    match position:
        case Beginning() | End():
            return None, None
        case At(offset=offset):
            return None, offset
        case AtTime(timestamp_ms=timestamp_ms):
            return timestamp_ms * 1000, None
        case BeforeEnd():
            raise typer.BadParameter("before the end has no meaning in a table: an offset or a time", param_hint=option)
