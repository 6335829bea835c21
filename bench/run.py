"""``python -m bench.run``: penstock beside Apache Kafka, the report into bench/RESULTS.md.

A run of a part (--only, --skip-kafka) or with small sizes (--quick) is a try: its report goes to .cache/bench/. Runs
of all parts, some at a time, make a whole report with --render.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException

from bench.ceilings import PARTS as CEILING_PARTS
from bench.ceilings import measure_ceilings
from bench.client_program import ROOT, LoadFailed, build
from bench.comparison import run_scenario
from bench.group_wire import Refused
from bench.groups import PARTS as GROUP_PARTS
from bench.groups import measure_groups
from bench.java_tools import run_java
from bench.lifecycle import empty_starts, many_partitions, memory_after_run, restarts
from bench.machine import describe
from bench.page_cache import HOLES
from bench.report import render
from bench.samples import KAFKA, Results
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


def part_names() -> tuple[str, ...]:
    return (
        *(scenario.name for scenario in scenarios(FULL)),
        JAVA_PART,
        *CEILING_PARTS,
        *GROUP_PARTS,
        *TRANSACTION_PARTS,
        *SPARK_SOURCE_PARTS,
        *SPARK_VALUES_PARTS,
        *SPARK_SINK_PARTS,
        *SPARK_TASKS_PARTS,
        *LIFECYCLE_PARTS,
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--only", metavar="PART[,PART...]", help=f"of {', '.join(part_names())}")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does everything function?")
    parser.add_argument("--skip-kafka", action="store_true", help="penstock alone (no Java, no jars)")
    parser.add_argument("--skip-penstock", action="store_true", help="Apache Kafka alone")
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
    options.parts = set(options.only.split(",")) if options.only else set(part_names())
    unknown = options.parts - set(part_names())
    if unknown:
        parser.error(f"--only {', '.join(sorted(unknown))}: the parts are {', '.join(part_names())}")
    return options


def measure(options: argparse.Namespace, results: Results) -> None:
    """All chosen parts; what is found is in ``results`` even when a later part fails."""
    sizes = QUICK if options.quick else FULL
    skipped = ((APACHE_KAFKA, options.skip_kafka), (THIS_PENSTOCK, options.skip_penstock))
    contenders = [contender for contender, skip in skipped if not skip]
    data: Path = options.data
    if "start" in options.parts:
        results.add(empty_starts(contenders, sizes.rounds, data, say))
    _compare(options.parts, contenders, sizes, data, results)
    results.add(measure_ceilings(options.parts, sizes, data, say))
    results.add(measure_groups(options.parts, contenders, sizes, data, say))
    results.add(measure_transactions(options.parts, contenders, sizes, data, say))
    results.add(measure_spark_source(options.parts, contenders, sizes, data, say))
    results.add(measure_spark_values(options.parts, contenders, sizes, data, say))
    results.add(measure_spark_sink(options.parts, contenders, sizes, data, say))
    results.add(measure_spark_tasks(options.parts, contenders, sizes, data, say))
    if "partitions-1000" in options.parts:
        results.add(restarts(contenders, sizes.partitions_restart, sizes.rounds, data, say))
    if "partitions-10000" in options.parts:
        for contender in contenders:
            if contender.name != KAFKA:
                results.add(many_partitions(contender, sizes.partitions_many, data, say))


def _compare(parts: set[str], contenders: Sequence[Contender], sizes: Sizes, data: Path, results: Results) -> None:
    chosen = [scenario for scenario in scenarios(sizes) if scenario.name in parts]
    if not chosen and JAVA_PART not in parts:
        return
    with started_sides(contenders, data) as sides:
        for scenario in chosen:
            results.add(run_scenario(scenario, sides, say))
        if JAVA_PART in parts and java_is_here():
            results.add(run_java(sides, sizes.java_messages_1kb, min(JAVA_ROUNDS, sizes.rounds), say))
        results.add(memory_after_run(sides, say))


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


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.render:
        return _finish(options, Results.joined([Results.load(path) for path in options.render], part_names()))
    try:
        if not options.skip_kafka:
            check_kafka()
        build()
    except (KafkaMissing, LoadFailed) as problem:
        say(f"bench: {problem}")
        return 2
    began = time.perf_counter()
    options.data.mkdir(parents=True, exist_ok=True)
    full = not (options.quick or options.skip_kafka or options.skip_penstock)
    results = Results(
        machine=describe(options.data),
        began=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        command=" ".join([".venv/bin/python -m bench.run", *arguments]) if arguments else "make bench",
        parts=sorted(options.parts) if full else [],
        complete=full and options.parts == set(part_names()),
    )
    raw = CACHE / f"results-{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}.json"
    failure: BaseException | None = None
    # Whoever ends a run keeps what it has found.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(options, results)
    except (LoadFailed, ProcessFailed, Refused, KafkaException, OSError, KeyboardInterrupt) as problem:
        failure = problem
        results.parts, results.complete = [], False
        say(f"bench: {problem}")
    results.seconds = time.perf_counter() - began
    results.save(raw)
    say(f"raw figures: {raw}")
    (options.data / HOLES).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        # Each broker removed its own folder; anything else in there is not ours.
        options.data.rmdir()
    _finish(options, results)
    return 1 if failure else 0


def _finish(options: argparse.Namespace, results: Results) -> int:
    default = ROOT / "bench" / "RESULTS.md" if results.complete else CACHE / "RESULTS.md"
    output: Path = options.output or default
    output.write_text(render(results), encoding="utf-8")
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
