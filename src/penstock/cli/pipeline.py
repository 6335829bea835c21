"""`penstock pipeline`: topics to lake tables and back, and pipelines declared in a file, as named Spark queries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failure import Failure, failure_in_lines
from penstock.cli.offsets import OffsetsParser
from penstock.cli.options import BOOTSTRAP, OutputFormat, OutputOption, value_or_file
from penstock.cli.output import Number, counted, note, say, show_done, show_json, show_rows, show_table
from penstock.cli.pipeline_options import (
    MASTER,
    AgeOption,
    BatchOption,
    CheckOption,
    CompactOption,
    DeadLettersOption,
    DropBytesOption,
    DryRunOption,
    EveryOption,
    ExpireOption,
    FileArgument,
    ForceOption,
    FromPositionOption,
    GroupOption,
    KeepPartitionsOption,
    NewTimesOption,
    OfTopicOption,
    OnceOption,
    PartitionByOption,
    RateOption,
    RunOptions,
    StartOption,
    StateOption,
    TableArgument,
    TableOptions,
    ToOption,
    TopicsArgument,
    ToPositionOption,
    ToTopicOption,
    ValueFormat,
    ValueFormatOption,
    ValueSchemaOption,
    takes,
)
from penstock.client.positions import At, AtTime, BeforeEnd, Beginning, End, Position
from penstock.model.clock import SystemClock

if TYPE_CHECKING:
    from pyspark_penstock.pipelines.registry import PipelineState, Registry
    from pyspark_penstock.pipelines.replay_plan import Wanted

app = typer.Typer(
    help="Archive topics in tables, replay them, and run declared pipelines, with Spark.",
    no_args_is_help=True,
    add_completion=False,
)

LIST_COLUMNS = (
    "name",
    "kind",
    "status",
    Number("batches"),
    Number("rows"),
    Number("rows_per_second"),
    Number("lag"),
    Number("pid"),
    "what",
)
STATUS_COLUMNS = (
    "query",
    Number("batch"),
    Number("batches"),
    Number("rows"),
    Number("rows_per_second"),
    Number("lag"),
    Number("late_rows"),
    Number("batch_ms"),
    "at",
)
EXAMPLE_HINT = "`penstock pipeline example` prints a whole one to compare with"
EXAMPLE = """\
# Orders, counted for every ten seconds, to a topic; the orders themselves to a table.
# Run it with: penstock pipeline run FILE

[pipeline]
name = "orders"                      # what `penstock pipeline status` calls it
trigger = "1s"                       # how often a batch is made

[sources.orders]                     # a view of this name for the steps
topic = "orders"
schema = "id BIGINT, customer STRING, amount DOUBLE, ordered_at TIMESTAMP"
event_time = "ordered_at"
watermark = "5 seconds"              # how late an order may come

[steps.totals]
sql = \"\"\"
SELECT date_format(window.start, 'HH:mm:ss') AS start, count(*) AS orders, sum(amount) AS amount
FROM orders GROUP BY window(ordered_at, '10 seconds')
\"\"\"

[sinks.totals]
from = "totals"
topic = "orders-per-window"
key = "start"
mode = "update"

[sinks.table]
from = "orders"
table = "lake/orders"                # beside this file
partition_by = ["customer"]
"""
RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?")


DEEP_STACKS = "-Xss4m"
"""Spark looks for Python's errors in long texts with expressions that need deep stacks, when a batch is cut short."""


@app.command()
@takes(table=TableOptions, how=RunOptions)
def archive(
    topics: TopicsArgument,
    to: ToOption,
    table: TableOptions,
    how: RunOptions,
    value_format: ValueFormatOption = ValueFormat.BINARY,
    value_schema: ValueSchemaOption = "",
    drop_bytes: DropBytesOption = False,
    dead_letters: DeadLettersOption = "",
    start: StartOption = "earliest",
    once: OnceOption = False,
    every: EveryOption = 10.0,
    batch: BatchOption = 5_000_000,
    partition_by: PartitionByOption = "topic,day",
    compact: CompactOption = False,
    expire: ExpireOption = "",
    group: GroupOption = "",
) -> None:
    """Keep topics in a table, every record once.

    A stopped or killed archive goes on from its checkpoint or, without one, from the end of its table.
    """
    registry = registry_at(how.state_dir)
    from penstock.cli.pipeline_run import archive_job, archive_name, run_job
    from pyspark_penstock.errors import WrongOption
    from pyspark_penstock.pipelines.archive import Archive
    from pyspark_penstock.pipelines.partitioning import archive_columns

    name = checked_name(how.name or archive_name(registry, topics, to, table))
    columns = tuple(each.strip() for each in partition_by.split(",") if each.strip())
    try:
        archive_columns(columns, typed=value_format is not ValueFormat.BINARY)
    except WrongOption as error:
        raise typer.BadParameter(str(error), param_hint="--partition-by") from None
    settings = Archive(
        name=name,
        bootstrap=how.bootstrap or BOOTSTRAP,
        topics=tuple(topics),
        to=to,
        format=table.kind,
        checkpoint=how.checkpoint or registry.checkpoint_of(name),
        table_name=table.table_name,
        catalog=table.catalog,
        value_format=value_format.value,
        value_schema=value_or_file(value_schema, option="--value-schema"),
        keeps_bytes=not drop_bytes,
        dead_letters_topic=dead_letters,
        start=start,
        once=once,
        interval_seconds=every,
        records_per_batch_max=batch,
        partition_by=columns,
        compacts=compact,
        expire_after_ms=age_ms(expire, "--expire", table) if expire else 0,
        group=group,
        kafka=how.kafka,
    )
    run_job(archive_job(settings, registry, how.master or MASTER, how.spark_settings), registry, how.output)


@app.command()
@takes(options=TableOptions, how=RunOptions)
def replay(
    table: TableArgument,
    to_topic: ToTopicOption,
    options: TableOptions,
    how: RunOptions,
    start: FromPositionOption = "beginning",
    end: ToPositionOption = "end",
    topic: OfTopicOption = None,
    rate: RateOption = "",
    new_times: NewTimesOption = False,
    keep_partitions: KeepPartitionsOption = False,
) -> None:
    """Send a table's records to a topic, each once.

    A replay that was stopped or killed goes on where it stopped; one that has finished sends nothing under the same
    name.
    """
    registry = registry_at(how.state_dir)
    from penstock.cli.pipeline_run import replay_job, run_job
    from pyspark_penstock.pipelines.replay import Replay

    name = checked_name(how.name or f"replay-{to_topic}"[:100])
    settings = Replay(
        name=name,
        bootstrap=how.bootstrap or BOOTSTRAP,
        table=table,
        to_topic=to_topic,
        checkpoint=how.checkpoint or registry.checkpoint_of(name),
        format=options.kind,
        table_name=options.table_name,
        catalog=options.catalog,
        wanted=wanted(start, end, topic or ()),
        rate=rate_of(rate),
        keeps_times=not new_times,
        keeps_partitions=keep_partitions,
        kafka=how.kafka,
    )
    run_job(replay_job(settings, how.master or MASTER, how.spark_settings), registry, how.output)


@app.command()
@takes(how=RunOptions)
def run(file: FileArgument, how: RunOptions, check: CheckOption = False, once: OnceOption = False) -> None:
    """Run a pipeline that is declared in a file: topics, SQL or Python, windows, topics and tables."""
    need_spark()
    from dataclasses import replace

    from penstock.cli.pipeline_run import run_job, spec_job
    from pyspark_penstock.pipelines.spec import SpecError, read_spec
    from pyspark_penstock.pipelines.spec_run import check_spec

    try:
        read = read_spec(file)
        spec = replace(
            read,
            name=how.name or read.name,
            once=once or read.once,
            bootstrap=how.bootstrap or read.bootstrap or BOOTSTRAP,
            master=how.master or read.master or MASTER,
            conf={**read.conf, **how.spark_settings},
            kafka={**read.kafka, **how.kafka},
        )
        check_spec(spec, spec.bootstrap)
    except SpecError as error:
        raise failure_in_lines(error, EXAMPLE_HINT) from None
    checked_name(spec.name)
    if check:
        facts = {"name": spec.name, "sources": len(spec.sources), "steps": len(spec.steps), "sinks": len(spec.sinks)}
        show_done(how.output, f"{spec.name}: {counted(len(spec.sinks), 'sink')}, nothing wrong in {file}", facts)
        return
    registry = registry_at(how.state_dir)
    place = how.checkpoint or registry.checkpoint_of(spec.name)
    run_job(spec_job(spec, str(file), place, registry), registry, how.output)


@app.command("expire")
@takes(options=TableOptions)
def expire_(
    table: TableArgument,
    older_than: AgeOption,
    options: TableOptions,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    state_dir: StateOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete the files that only old versions of a Delta or Iceberg table need.

    Queries of those versions fail from then on; archives go on meanwhile. Files that a replay of this machine has yet
    to send are kept.
    """
    registry = registry_at(state_dir)
    age = age_ms(older_than, "--older-than", options)
    from pyspark_penstock.lake import LakeError, open_table
    from pyspark_penstock.pipelines.expiry import expire, replays_of

    try:
        opened = open_table(options.kind, table, name=options.table_name, catalog=options.catalog)
        needed_by = None if force else replays_of(registry, opened)
        found = expire(opened, age, needed_by=needed_by, dry_run=dry_run)
    except LakeError as error:
        raise failure_in_lines(error) from None
    facts = {"table": table, "versions": found.versions, "files": list(found.files), "needed_by": list(found.needed_by)}
    if found.needed_by and not dry_run:
        raise Failure(
            f"nothing was deleted: the replay {', '.join(found.needed_by)} has yet to send some of the files",
            "let it finish, delete its checkpoint, or pass --force",
        )
    if dry_run and output is not OutputFormat.JSON:
        say(*found.files)
    done = "would be deleted" if dry_run else "deleted"
    show_done(output, f"{table}: {counted(len(found.files), 'file')} {done}", facts)


@app.command()
def example() -> None:
    """Print a pipeline to start from, for `penstock pipeline run FILE`."""
    print(EXAMPLE, end="")


# Status


@app.command("list")
def list_(state_dir: StateOption = None, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the pipelines of this machine, those that run and those that ran."""
    rows: list[tuple[object, ...]] = []
    for each in registry_at(state_dir).every():
        batches = sum(query.batches for query in each.queries)
        moved = sum(query.rows for query in each.queries)
        rate = round(sum(query.rows_per_second for query in each.queries)) if each.status == "running" else 0
        rows.append((each.name, each.kind, each.status, batches, moved, rate, total_lag(each), each.pid, each.what))
    show_rows(output, LIST_COLUMNS, rows, empty="no pipeline has run on this machine")


@app.command()
def status(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")],
    state_dir: StateOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show a pipeline and each of its queries: batches, rows per second, lag, late rows."""
    from dataclasses import asdict

    registry = registry_at(state_dir)
    found = registry.find(checked_name(name))
    if found is None:
        raise Failure(f"there is no pipeline {name}", "`penstock pipeline list` shows all")
    state = registry.judged(found)
    if output is OutputFormat.JSON:
        show_json(asdict(state))
        return
    say(f"{state.name}  {state.kind}  {state.status}  process {state.pid}")
    say(f"  {state.what}")
    say(f"  checkpoint {state.checkpoint}")
    if state.error:
        say(*(f"  {line}" for line in state.error.splitlines()))
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
    if rows:
        show_table(STATUS_COLUMNS, rows)
    else:
        note("no query has started yet")


@app.command()
def stop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")],
    now: Annotated[bool, typer.Option("--now", help="Kill it; the next start goes on from its checkpoint.")] = False,
    state_dir: StateOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Stop a pipeline; the command that started it lets it go on."""
    from pyspark_penstock.pipelines.registry import PipelineError

    try:
        state = registry_at(state_dir).stop(checked_name(name), now=now)
    except PipelineError as error:
        raise Failure(str(error)) from None
    show_done(output, f"{name} {state.status}", {"name": name, "status": state.status})


def total_lag(state: PipelineState) -> int | None:
    known = [each.lag for each in state.queries if each.lag is not None]
    return sum(known) if known else None


# Options


def need_spark() -> None:
    """Fail with what to install if Spark is missing."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise Failure(f"pipelines need Spark: {', '.join(missing)} is not installed", 'pip install "penstock[spark]"')


def checked_name(name: str) -> str:
    """A name that is valid in paths; anything else is bad usage."""
    need_spark()
    from pyspark_penstock.pipelines.registry import PipelineError, check_name

    try:
        return check_name(name)
    except PipelineError as error:
        raise typer.BadParameter(str(error), param_hint="--name") from None


def registry_at(state_dir: Path | None) -> Registry:
    need_spark()
    from pyspark_penstock.pipelines.registry import Registry, default_state_dir

    return Registry(state_dir or default_state_dir())


def age_ms(text: str, option: str, table: TableOptions) -> int:
    """The maximum age of versions of a table; bad usage if it has none, or the age is too short."""
    from pyspark_penstock.lake import TableFormat
    from pyspark_penstock.pipelines.expiry import check_age
    from pyspark_penstock.pipelines.spec import SpecError, duration_ms

    if table.kind is TableFormat.PARQUET:
        raise typer.BadParameter("a folder of Parquet files has no older versions to expire", param_hint=option)
    try:
        return check_age(duration_ms(text, "age"))
    except (SpecError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def rate_of(text: str) -> float:
    if not text:
        return 0.0
    found = RATE.fullmatch(text)
    if found is None or float(found[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is not a rate such as 500/s", param_hint="--rate")
    return float(found[1])


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
    """The time in microseconds, or the offset, of a position."""
    match position:
        case Beginning() | End():
            return None, None
        case At(offset=offset):
            return None, offset
        case AtTime(timestamp_ms=timestamp_ms):
            return timestamp_ms * 1000, None
        case BeforeEnd():
            raise typer.BadParameter("before the end has no meaning in a table: an offset or a time", param_hint=option)
