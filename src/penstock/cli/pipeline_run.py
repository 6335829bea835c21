"""Runs a pipeline in the foreground: checks, starts, watches and stops it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from penstock.cli.failure import Failure, failure_in_lines
from penstock.cli.options import OutputFormat
from penstock.cli.output import counted, note, show_done
from penstock.cli.pipeline import DEEP_STACKS, EXAMPLE_HINT
from penstock.cli.pipeline_options import TableOptions
from penstock.client.connection import Connection
from pyspark_penstock.cluster import Cluster, MissingTopic
from pyspark_penstock.java import JavaMissing
from pyspark_penstock.lake import LakeError, TableFormat
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.options import ReadOptions
from pyspark_penstock.pipelines.archive import Archive, check_archive, finish_archive, start_archive
from pyspark_penstock.pipelines.checkpoint import WrongCheckpoint
from pyspark_penstock.pipelines.expiry import replays_of
from pyspark_penstock.pipelines.registry import NAME, PipelineError, PipelineState, Registry
from pyspark_penstock.pipelines.replay import Replay, plan_for, start_replay
from pyspark_penstock.pipelines.running import (
    PipelineFailed,
    Watch,
    end_session,
    new_state,
    run_to_end,
    stopped_by_signals,
)
from pyspark_penstock.pipelines.spec import PipelineSpec, SpecError
from pyspark_penstock.pipelines.spec_run import read_options, start_pipeline
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.session import local_session

QUIET_CONF = {"spark.log.level": "ERROR", "spark.driver.extraJavaOptions": DEEP_STACKS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The pipeline of a command."""

    name: str
    kind: str
    what: str
    checkpoint: str
    master: str
    conf: Mapping[str, str] = field(default_factory=dict[str, str])
    check: Callable[[], None]
    """Checks before Spark starts, which takes seconds."""
    start: Callable[[Any], Sequence[Any]]
    finish: Callable[[], object] | None = None
    """Called after the queries have ended by themselves."""


def archive_name(registry: Registry, topics: Sequence[str], to: str, table: TableOptions) -> str:
    """The default name of an archive: the same for the same topics and table, another for another table.

    An archive of an older version, whose name came from the topics alone, keeps its name.
    """
    plain = "archive-" + "-".join(topics)[:80]
    known = registry.find(plain) if NAME.fullmatch(plain) else None
    if known is not None and known.what == archive_description(topics, table.kind, to):
        return plain
    place = f"{table.kind.value} {Store.at(to).root} {table.table_name} {table.catalog}"
    return f"{plain}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def archive_description(topics: Sequence[str], kind: TableFormat, to: str) -> str:
    return f"{','.join(topics)} -> {kind.value} {to}"


def archive_job(settings: Archive, registry: Registry, master: str, conf: Mapping[str, str]) -> Job:
    def check() -> None:
        require_topics(settings.read_options())
        check_archive(settings, settings.open_table())

    def needed_by(files: Collection[str]) -> Sequence[str]:
        return replays_of(registry, settings.open_table())(files)

    return Job(
        name=settings.name,
        kind="archive",
        what=archive_description(settings.topics, settings.format, settings.to),
        checkpoint=settings.checkpoint,
        master=master,
        conf=conf,
        check=check,
        start=lambda spark: [start_archive(spark, settings, needed_by=needed_by)],
        finish=lambda: finish_archive(settings, needed_by=needed_by),
    )


def replay_job(settings: Replay, master: str, conf: Mapping[str, str]) -> Job:
    def check() -> None:
        require_topics({"kafka.bootstrap.servers": settings.bootstrap, "subscribe": settings.to_topic})
        plan_for(settings)

    return Job(
        name=settings.name,
        kind="replay",
        what=f"{settings.format.value} {settings.table} -> {settings.to_topic}",
        checkpoint=settings.checkpoint,
        master=master,
        conf=conf,
        check=check,
        start=lambda spark: [start_replay(spark, settings)],
    )


def spec_job(spec: PipelineSpec, file: str, checkpoint: str, registry: Registry) -> Job:
    def check() -> None:
        for each in spec.sources:
            require_topics(read_options(spec, each, spec.bootstrap))

    return Job(
        name=spec.name,
        kind="run",
        what=f"{file} ({', '.join(each.name for each in spec.sinks)})",
        checkpoint=checkpoint,
        master=spec.master,
        conf=spec.conf,
        check=check,
        start=lambda spark: start_pipeline(
            spark, spec, bootstrap=spec.bootstrap, checkpoint=checkpoint, replays=partial(replays_of, registry)
        ),
    )


def require_topics(options: Mapping[str, str]) -> None:
    """Failure if the broker is unreachable or a topic does not exist."""
    Connection(bootstrap=options["kafka.bootstrap.servers"]).check()
    parsed = ReadOptions.of(options)
    with BrokerLink(parsed.link) as link:
        Cluster(link, parsed.subscription, read_committed=True).require()


def run_job(job: Job, registry: Registry, output: OutputFormat) -> None:
    """Run until it ends or is stopped; Failure says what went wrong and what to do."""
    try:
        state = new_state(job.name, job.kind, job.what, job.checkpoint)
        registry.claim(state)
        watch = Watch(registry, state)
        try:
            job.check()
            last = _run(job, watch)
        except BaseException as error:
            if watch.state.status not in ("failed", "stopped", "finished"):
                watch.end("failed", str(error))
            raise
    except MissingTopic as error:
        raise Failure(str(error), "create it with `penstock topic create`, or look at `penstock topic list`") from None
    except PipelineFailed as error:
        raise failure_in_lines(error, f"`penstock pipeline status {job.name}` shows how far it came") from None
    except SpecError as error:
        raise failure_in_lines(error, EXAMPLE_HINT) from None
    except (LakeError, WrongCheckpoint, PipelineError, JavaMissing, ValueError) as error:
        raise failure_in_lines(error) from None
    rows = sum(each.rows for each in last.queries)
    batches = sum(each.batches for each in last.queries)
    sentence = f"{job.name} {last.status}: {counted(rows, 'row')} in {batches} batch{'es' if batches != 1 else ''}"
    show_done(output, sentence, asdict(last))


def _run(job: Job, watch: Watch) -> PipelineState:
    note(f"starting Spark for {job.name}; Ctrl-C stops it, and the same command goes on")
    conf = {**QUIET_CONF, "spark.master": job.master, **job.conf}
    with stopped_by_signals() as request:
        with request.while_spark_starts():
            spark = local_session(f"penstock-{job.name}", conf=conf)
        try:
            if request.wanted:
                return watch.end("stopped")
            queries, restart = job.start(spark), partial(job.start, spark)
            last = run_to_end(queries, watch, request, on_progress=_BatchPrinter(), restart=restart)
            if last.status == "finished" and job.finish is not None:
                job.finish()
            return last
        finally:
            end_session(spark)


class _BatchPrinter:
    """Prints one line for every batch."""

    def __init__(self) -> None:
        self._printed: dict[str, int] = {}

    def __call__(self, state: PipelineState) -> None:
        if not sys.stderr.isatty():
            return
        for each in state.queries:
            if each.batch > self._printed.get(each.query, -1):
                self._printed[each.query] = each.batch
                lag = "" if each.lag is None else f", lag {each.lag:,}"
                late = f", {counted(each.late_rows, 'late row')} dropped" if each.late_rows else ""
                note(f"{each.query}: batch {each.batch}, {each.rows:,} rows, {each.rows_per_second:,.0f}/s{lag}{late}")
