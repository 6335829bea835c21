"""``python -m bench.run``: penstock beside Apache Kafka, the report into bench/RESULTS.md.

A run of a part (--only, --skip-kafka) or with small sizes (--quick) is a try: its report goes to .cache/bench/. Runs
of all parts, some at a time, make a whole report with --render. With --against it is penstock beside the penstock of
another commit instead, and the report is .cache/bench/against-HASH.md.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import KafkaException

from bench.against_report import ROUNDS_MIN, render_against
from bench.catch_up import PART as CATCH_UP_PART
from bench.catch_up import measure_catch_up
from bench.ceilings import PARTS as CEILING_PARTS
from bench.ceilings import measure_ceilings
from bench.client_program import ROOT, LoadFailed, build
from bench.cluster import PARTS as CLUSTER_PARTS
from bench.cluster import measure_cluster
from bench.commits import Checkout, CommitUnusable, check_pair, inspect, prepare, resolve, stale_modules
from bench.comparison import run_scenario
from bench.group_wire import Refused
from bench.groups import ASSIGNORS_PART, measure_groups
from bench.groups import PARTS as GROUP_PARTS
from bench.java_tools import run_java
from bench.lifecycle import empty_starts, many_partitions, memory_after_run, restarts
from bench.machine import describe
from bench.moves import PART as MOVE_PART
from bench.moves import measure_moves
from bench.page_cache import HOLES
from bench.queues import PARTS as QUEUE_PARTS
from bench.queues import measure_queues
from bench.report import render
from bench.samples import KAFKA, Results, Sample
from bench.several import PART as SEVERAL_PART
from bench.several import measure_several
from bench.sides import APACHE_KAFKA, THIS_PENSTOCK, Contender, started_sides
from bench.spark_sink import PARTS as SPARK_SINK_PARTS
from bench.spark_sink import measure_spark_sink
from bench.spark_source import PARTS as SPARK_SOURCE_PARTS
from bench.spark_source import measure_spark_source
from bench.spark_tasks import PARTS as SPARK_TASKS_PARTS
from bench.spark_tasks import measure_spark_tasks
from bench.spark_values import PARTS as SPARK_VALUES_PARTS
from bench.spark_values import measure_spark_values
from bench.transactions import PARTS as TRANSACTION_PARTS
from bench.transactions import measure_transactions
from bench.works import FULL, QUICK, Sizes, scenarios
from penstock.testing.apache_kafka import KafkaMissing, find_java, find_libs
from penstock.testing.processes import ProcessFailed

CACHE = ROOT / ".cache" / "bench"
LIFECYCLE_PARTS = ("start", "partitions-1000", "partitions-10000")
JAVA_PART = "java"
JAVA_ROUNDS = 2
SPARK_PARTS = (*SPARK_SOURCE_PARTS, *SPARK_VALUES_PARTS, *SPARK_SINK_PARTS, *SPARK_TASKS_PARTS)
AGAINST_ROUNDS = 6
"""Rounds of a comparison of two commits; an even number, so that each side begins as often as the other."""
NOT_COMPARED = {
    **dict.fromkeys(CEILING_PARTS, "the load program without a broker"),
    **dict.fromkeys(
        (*CLUSTER_PARTS, CATCH_UP_PART, MOVE_PART), "three brokers on ZooKeeper, which older commits do not have"
    ),
    SEVERAL_PART: "one process against two of this commit",
    ASSIGNORS_PART: "functions in the benchmark's own process, which is this commit's (group-stall is compared)",
}
FAILURES = (LoadFailed, ProcessFailed, Refused, KafkaException)


def part_names() -> tuple[str, ...]:
    return (
        *(scenario.name for scenario in scenarios(FULL)),
        JAVA_PART,
        *CEILING_PARTS,
        *GROUP_PARTS,
        *TRANSACTION_PARTS,
        *QUEUE_PARTS,
        *SPARK_PARTS,
        *LIFECYCLE_PARTS,
        *CLUSTER_PARTS,
        CATCH_UP_PART,
        MOVE_PART,
        SEVERAL_PART,
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--only", metavar="PART[,PART...]", help=f"of {', '.join(part_names())}")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does everything function?")
    parser.add_argument("--skip-kafka", action="store_true", help="penstock alone (no Java, no jars)")
    parser.add_argument("--skip-penstock", action="store_true", help="Apache Kafka alone")
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="alternate with the penstock of that commit (any revision that git knows) instead of Apache Kafka",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"counted rounds of a work; {AGAINST_ROUNDS} with --against, else {FULL.rounds} or {FULL.stream_rounds}",
    )
    parser.add_argument("--data", type=Path, default=CACHE / "data", help="where the brokers keep their data")
    parser.add_argument("--output", type=Path, help="where the report goes")
    parser.add_argument(
        "--render",
        type=Path,
        metavar="JSON",
        nargs="+",
        help="only make the report, from the raw figures of earlier runs",
    )
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds: at least 1")
    if options.against and (options.render or options.skip_kafka or options.skip_penstock):
        parser.error(
            "--against runs both penstocks and no Apache Kafka: --render and --skip-... have no meaning with it"
        )
    options.parts = set(options.only.split(",")) if options.only else set(part_names())
    unknown = options.parts - set(part_names())
    if unknown:
        parser.error(f"--only {', '.join(sorted(unknown))}: the parts are {', '.join(part_names())}")
    return options


def sizes_of(options: argparse.Namespace) -> Sizes:
    """The sizes and rounds of a run."""
    sizes = QUICK if options.quick else FULL
    rounds: int | None = options.rounds
    if rounds is None and options.against and not options.quick:
        rounds = AGAINST_ROUNDS
    if rounds is not None:
        sizes = dataclasses.replace(sizes, rounds=rounds, stream_rounds=rounds)
    if options.against:
        sizes = dataclasses.replace(sizes, spark_latency_rounds=sizes.rounds)
    return sizes


def measure(options: argparse.Namespace, contenders: Sequence[Contender], results: Results) -> None:
    """Measure all chosen parts; ``results`` has the samples even when a later part fails."""
    parts = options.parts - NOT_COMPARED.keys() if options.against else options.parts
    for stage in stages(parts, contenders, sizes_of(options), options.data):
        try:
            results.add(stage)
        except FAILURES as problem:
            if not options.against:
                raise
            # An older commit may lack a feature that a work measures; the other works go on.
            results.failures.append(str(problem).partition("\n")[0])
            say(f"bench: {problem}")


def stages(parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path) -> Iterator[Iterator[Sample]]:
    """Works with brokers of their own, in the order they run; a stage without a chosen part yields nothing."""
    if "start" in parts:
        yield empty_starts(contenders, sizes.rounds, data, say)
    yield _compare(parts, contenders, sizes, data)
    yield measure_ceilings(parts, sizes, data, say)
    yield measure_groups(parts, contenders, sizes, data, say)
    yield measure_transactions(parts, contenders, sizes, data, say)
    yield measure_queues(parts, contenders, sizes, data, say)
    yield measure_spark_source(parts, contenders, sizes, data, say)
    yield measure_spark_values(parts, contenders, sizes, data, say)
    yield measure_spark_sink(parts, contenders, sizes, data, say)
    yield measure_spark_tasks(parts, contenders, sizes, data, say)
    if "partitions-1000" in parts:
        yield restarts(contenders, sizes.partitions_restart, sizes.rounds, data, say)
    if "partitions-10000" in parts:
        for contender in contenders:
            if contender.name != KAFKA:
                yield many_partitions(contender, sizes.partitions_many, data, say)
    yield measure_cluster(parts, contenders, sizes, data, say)
    yield measure_catch_up(parts, contenders, sizes, data, say)
    yield measure_moves(parts, contenders, sizes, data, say)
    yield measure_several(parts, contenders, sizes, data, say)


def _compare(parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path) -> Iterator[Sample]:
    chosen = [scenario for scenario in scenarios(sizes) if scenario.name in parts]
    if not chosen and JAVA_PART not in parts:
        return
    with started_sides(contenders, data) as sides:
        for scenario in chosen:
            yield from run_scenario(scenario, sides, say)
        if JAVA_PART in parts and java_is_here():
            yield from run_java(sides, sizes.java_messages_1kb, min(JAVA_ROUNDS, sizes.rounds), say)
        yield from memory_after_run(sides, say)


def java_is_here() -> bool:
    try:
        find_java()
        find_libs()
    except KafkaMissing as missing:
        say(f"no Java leg: {missing}")
        return False
    return True


def check_kafka() -> None:
    """Fail before anything runs, not after ten minutes."""
    find_java()
    find_libs()


def prepare_baseline(options: argparse.Namespace) -> tuple[Checkout, dict[str, str], list[str]]:
    """The other commit, installed; what the two sides are, and how they differ besides penstock itself."""
    checkout = resolve(options.against)
    stale = stale_modules(ROOT)
    if stale:
        raise CommitUnusable(f"changed since they were compiled: {', '.join(stale)}; run `make install`")
    prepare(checkout, spark=bool(options.parts & set(SPARK_PARTS)), say=say)
    baseline = inspect(checkout.python, checkout.folder)
    this = inspect(Path(sys.executable), ROOT)
    notes = check_pair(baseline, this, checkout.folder, ROOT)
    for note in notes:
        say(f"bench: the sides differ: {note}")
    sides = {"against": f"{checkout.short} ({checkout.subject}), {baseline.kind}", "this": this.kind}
    return checkout, sides, notes


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.render:
        return _finish(options, Results.joined([Results.load(path) for path in options.render], part_names()))
    checkout: Checkout | None = None
    machine: dict[str, str] = {}
    notes: list[str] = []
    try:
        if options.against:
            checkout, machine, notes = prepare_baseline(options)
        elif not options.skip_kafka:
            check_kafka()
        build()
    except (KafkaMissing, LoadFailed, CommitUnusable) as problem:
        say(f"bench: {problem}")
        return 2
    options.data.mkdir(parents=True, exist_ok=True)
    full = not (options.quick or options.skip_kafka or options.skip_penstock or options.against or options.rounds)
    results = Results(
        machine=describe(options.data) if checkout is None else {**without_kafka(describe(options.data)), **machine},
        began=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        command=" ".join([".venv/bin/python -m bench.run", *arguments]) if arguments else "make bench",
        parts=sorted(options.parts) if full else [],
        complete=full and options.parts == set(part_names()),
    )
    load_before = os.getloadavg()[0]
    finished = run(options, contenders_of(options, checkout), results)
    if checkout is None:
        _finish(options, results)
    else:
        load = f"{load_before:.1f} before the run, {os.getloadavg()[0]:.1f} after it"
        results.machine = {**results.machine, "load average": load}
        is_try = not finished or options.quick or sizes_of(options).rounds < ROUNDS_MIN
        _finish_against(options, results, checkout, notes, is_try=is_try)
    return 0 if finished and not results.failures else 1


def without_kafka(machine: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in machine.items() if name != "Apache Kafka"}


def contenders_of(options: argparse.Namespace, checkout: Checkout | None) -> list[Contender]:
    if checkout is not None:
        return [checkout.contender, THIS_PENSTOCK]
    skipped = ((APACHE_KAFKA, options.skip_kafka), (THIS_PENSTOCK, options.skip_penstock))
    return [contender for contender, skip in skipped if not skip]


def run(options: argparse.Namespace, contenders: Sequence[Contender], results: Results) -> bool:
    """Measure, and save the raw figures even after a failure; whether it finished."""
    began = time.perf_counter()
    kind = "against" if options.against else "results"
    raw = CACHE / f"{kind}-{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}.json"
    finished = False
    # An interrupted run keeps its figures.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(options, contenders, results)
        finished = True
    except (*FAILURES, OSError, KeyboardInterrupt) as problem:
        results.parts, results.complete = [], False
        results.failures.append(str(problem).partition("\n")[0] or type(problem).__name__)
        say(f"bench: {problem}")
    results.seconds = time.perf_counter() - began
    results.save(raw)
    say(f"raw figures: {raw}")
    (options.data / HOLES).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        # Each broker removed its own folder; anything else in there is not ours.
        options.data.rmdir()
    return finished


def _finish(options: argparse.Namespace, results: Results) -> int:
    default = ROOT / "bench" / "RESULTS.md" if results.complete else CACHE / "RESULTS.md"
    output: Path = options.output or default
    output.write_text(render(results), encoding="utf-8")
    print(output)
    return 0


def _finish_against(
    options: argparse.Namespace, results: Results, checkout: Checkout, notes: Sequence[str], *, is_try: bool
) -> None:
    not_compared = {part: reason for part, reason in NOT_COMPARED.items() if part in options.parts}
    if JAVA_PART in options.parts and not java_is_here():
        not_compared[JAVA_PART] = "Java or the jars of Kafka's tools are missing (make kafka)"
    text = render_against(results, checkout.short, not_compared, notes, is_try=is_try)
    output: Path = options.output or against_path(checkout)
    output.write_text(text, encoding="utf-8")
    print(text)
    print(output)


def against_path(checkout: Checkout) -> Path:
    """Never bench/RESULTS.md, which is about Apache Kafka."""
    return CACHE / f"against-{checkout.short}.md"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
