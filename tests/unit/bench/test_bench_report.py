from pathlib import Path

import pytest
from bench import ceilings
from bench.catch_up import PART as CATCH_UP_PART
from bench.catch_up import watch_growth
from bench.client_program import LoadFailed
from bench.cluster import KILL_PART, LOAD_PARTS, STOP_PART, loads_of
from bench.comparison import together
from bench.java_tools import parse_consumer, parse_producer
from bench.moves import PART as MOVE_PART
from bench.moves import THROTTLED_WORK
from bench.plain_copy import copy_seconds
from bench.queues import PARTS as QUEUE_PARTS
from bench.report import render
from bench.run import parse, part_names
from bench.samples import CEILING, KAFKA, PENSTOCK, SIDES, Results, Sample
from bench.several import PART as SEVERAL_PART
from bench.several import PROCESSES
from bench.spark_sink import PARTS as SPARK_SINK_PARTS
from bench.spark_source import PARTS as SPARK_SOURCE_PARTS
from bench.spark_tasks import PARTS as SPARK_TASKS_PARTS
from bench.spark_values import PARTS as SPARK_VALUES_PARTS
from bench.targets import CEILING_ROWS, ROWS, Row, find
from bench.transactions import PARTS as TRANSACTION_PARTS
from bench.transactions import chosen_works
from bench.works import FULL, QUICK, produce, scenarios

from penstock.groups.assignors import ASSIGNORS

RATE = Row(work="w", title="work", metric="m", unit="msg/s", ratio_min=1.5)
CPU = Row(work="w", title="work", metric="m", unit="CPU s/GB", ratio_max=0.25)
MEMORY = Row(work="w", title="work", metric="m", unit="MB", absolute_max=60)
COPY = Row(work="w", title="work", metric="m", unit="of the copy", absolute_min=0.7)


def results(kafka: list[float], penstock: list[float], *, complete: bool = True) -> Results:
    found = Results(
        machine={"processor": "two cores"}, began="today", command="make bench", parts=[], complete=complete
    )
    for side, values in ((KAFKA, kafka), (PENSTOCK, penstock)):
        found.add(Sample(work="w", side=side, round=i, values={"m": value}) for i, value in enumerate(values))
    return found


def test_a_ratio_is_made_of_medians() -> None:
    finding = find(RATE, results([100, 1, 900], [150, 9999, 0]))
    assert finding.ratio == 1.5
    assert finding.reached is True


@pytest.mark.parametrize(
    ("row", "kafka", "penstock", "reached"),
    [
        (RATE, 100, 149, False),
        (CPU, 100, 25, True),
        (CPU, 100, 26, False),
        (MEMORY, 500, 60, True),
        (MEMORY, 500, 61, False),
        (COPY, 0.1, 0.7, True),
        (COPY, 0.1, 0.69, False),
    ],
)
def test_a_target_is_reached_at_its_bound_and_missed_beyond(
    row: Row, kafka: float, penstock: float, reached: bool
) -> None:
    assert find(row, results([kafka], [penstock])).reached is reached


def test_without_apache_kafka_only_absolute_targets_are_judged() -> None:
    assert find(RATE, results([], [150])).reached is None
    assert find(MEMORY, results([], [50])).reached is True


def test_a_figure_compared_with_our_own_does_not_look_at_apache_kafka() -> None:
    row = Row(work="idempotent", title="t", metric="m", unit="msg/s", ratio_min=0.9, against_work="w")
    found = results([1000], [100])
    found.add([Sample(work="idempotent", side=PENSTOCK, round=0, values={"m": 90})])
    finding = find(row, found)
    assert finding.ratio == 0.9
    assert finding.reached is True


def test_results_survive_being_saved_and_loaded(tmp_path: Path) -> None:
    found = results([1, 2], [3])
    found.save(tmp_path / "deep" / "results.json")
    assert Results.load(tmp_path / "deep" / "results.json") == found


def test_the_report_names_every_missed_target_and_both_figures() -> None:
    found = results([], [])
    for side, value in ((KAFKA, 2_000_000.0), (PENSTOCK, 2_500_000.0)):
        found.add([Sample(work="produce-100", side=side, round=0, values={"messages_per_second": value})])
    text = render(found)
    assert "0 of 1 targets reached. Missed: produce 100 B." in text
    assert "| produce 100 B | k msg/s | 2,000.0 | 2,500.0 | 1.25x | >= 1.5x | **no** |" in text
    assert "two cores" in text
    assert "    make bench\n" in text
    assert "A try" not in text


def test_clients_that_ran_at_once_are_judged_by_the_slowest() -> None:
    figures = together(
        [
            {"messages": 10, "bytes": 1e6, "seconds": 1.0, "messages_per_second": 10},
            {"messages": 10, "bytes": 1e6, "seconds": 4.0, "messages_per_second": 2.5},
        ]
    )
    assert figures == {
        "messages": 20,
        "bytes": 2e6,
        "seconds": 4.0,
        "messages_per_second": 5.0,
        "mb_per_second": 0.5,
    }


def test_producers_at_once_share_the_messages_of_one() -> None:
    alone, two = produce("w", 1000, 100), produce("w", 1000, 100, clients=2)
    assert [step.arguments[:2] for step in (alone, two)] == [("--messages", "1000"), ("--messages", "500")]
    assert [step.clients for step in (alone, two)] == [1, 2]


def test_a_partial_run_says_that_it_proves_nothing() -> None:
    assert "**A try**" in render(results([], [], complete=False))


def test_the_ceilings_of_the_load_program_follow_the_table() -> None:
    found = results([], [])
    for number, rate in enumerate((4_000_000.0, 4_400_000.0, 4_200_000.0)):
        values = {"messages_per_second": rate}
        found.add([Sample(work="ceiling-produce-100", side=CEILING, round=number, values=values)])
    ways = {"ms_p50": 0.04, "ms_p99": 0.09, "ms_p999": 2.7}
    found.add([Sample(work="ceiling-relay-1000", side=CEILING, round=0, values=ways)])
    before, title, after = render(found).partition("## What the load program can do\n")
    assert "| work | unit | Apache Kafka | penstock |" in before
    assert title
    section = after.partition("\n## ")[0]
    assert section.endswith(
        "\n| work | unit | figure |\n"
        "|---|---|---:|\n"
        "| produce 100 B into librdkafka's mock broker | k msg/s | 4,200.0 (4,000.0..4,400.0) |\n"
        "| one hop in and one out, without librdkafka, at 1,000 msg/s: p50 | ms | 0.04 |\n"
        "| one hop in and one out, without librdkafka, at 1,000 msg/s: p99 | ms | 0.09 |\n"
        "| one hop in and one out, without librdkafka, at 1,000 msg/s: p99.9 | ms | 2.70 |\n"
    )


def test_a_ceiling_that_was_not_measured_has_no_row() -> None:
    found = results([], [])
    found.add([Sample(work="ceiling-relay-1000", side=CEILING, round=0, values={"ms_p50": 0.04})])
    text = render(found)
    assert "| one hop in and one out, without librdkafka, at 1,000 msg/s: p50 | ms | 0.04 |" in text
    assert "mock broker |" not in text
    assert "only passes on" not in text.partition("## What the load program can do")[2].partition("| work |")[2]
    assert ": p99 | ms |" not in text


def test_without_ceilings_the_report_has_no_section_of_them() -> None:
    assert "## What the load program can do" not in render(results([1], [2]))


def test_a_ceiling_is_no_side_of_the_comparison() -> None:
    assert CEILING not in SIDES


def test_runs_without_the_ceilings_join_to_a_report_that_is_not_complete() -> None:
    older = results([1], [2], complete=False)
    older.parts = [part for part in part_names() if part not in ceilings.PARTS]
    newer = results([], [], complete=False)
    newer.parts = list(ceilings.PARTS)
    assert Results.joined([older], part_names()).complete is False
    assert "**A try**" in render(Results.joined([older], part_names()))
    assert Results.joined([older, newer], part_names()).complete is True


def test_the_last_measurement_of_a_work_counts() -> None:
    whole, again = results([1, 2, 3], [4, 5, 6]), results([10], [20], complete=False)
    whole.parts, again.parts = list(part_names()), ["100b"]
    for run, megabytes in ((whole, 60.0), (again, 50.0)):
        run.add([Sample(work="memory-after", side=PENSTOCK, round=0, values={"resident_mb": megabytes})])

    joined = Results.joined([whole, again], part_names())

    assert joined.complete
    assert [sample.values["m"] for sample in joined.samples if sample.work == "w"] == [10, 20]
    assert [sample.values for sample in joined.samples if sample.work == "memory-after"] == [{"resident_mb": 60.0}]


def test_ceilings_take_the_arguments_of_the_works_they_bound() -> None:
    compared = {step.work: step for scenario in scenarios(FULL) for step in scenario.steps}
    bounded = {"ceiling-relay-1000": "latency-1000"}
    for step, _ in ceilings.steps(FULL):
        assert step.arguments == compared[bounded.get(step.work, step.work.removeprefix("ceiling-"))].arguments


def test_ceilings_are_measured_only_when_they_are_chosen(tmp_path: Path) -> None:
    assert list(ceilings.measure_ceilings({"100b"}, QUICK, tmp_path, print)) == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho no memory >&2; exit 1\n", "did not start: no memory"),
        ('#!/bin/sh\necho \'{"bootstrap":"here:1"}\'; cat; echo lost >&2; exit 3\n', "status 3: lost"),
    ],
)
def test_a_broker_in_memory_that_ends_badly_is_a_failure(
    script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "client"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setattr(ceilings, "PROGRAM", program)
    with pytest.raises(LoadFailed, match=words), ceilings.memory_broker("mock", "t") as bootstrap:
        assert bootstrap == "here:1"


def test_a_broker_in_memory_does_not_outlive_the_load_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "client"
    program.write_text("#!/bin/sh\necho '{\"bootstrap\":\"'$$'\"}'; exec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(ceilings, "PROGRAM", program)
    seen: list[Path] = []

    def load() -> None:
        with ceilings.memory_broker("mock", "t") as process_id:
            seen.append(Path(f"/proc/{process_id}"))
            assert seen[0].exists()
            raise LoadFailed("no broker")

    with pytest.raises(LoadFailed, match="no broker"):
        load()
    assert not seen[0].exists()


def test_every_row_of_the_report_belongs_to_a_work_that_runs() -> None:
    lifecycle = {"start-empty", "start-partitions", "partitions-many", "memory-after"}
    java = {"java-produce", "java-consume", "java-small", "java-small-txn"}
    groups = {
        "group-commits-piped",
        "group-commits",
        "group-assignment",
        "group-heartbeats",
        "group-load",
        "group-stall",
    }
    groups |= {f"assignor-{name}" for name in ASSIGNORS}
    transactions = {"txn-consume", "txn-ids"}
    cluster = {KILL_PART, STOP_PART, "cluster-memory-after", CATCH_UP_PART, MOVE_PART, THROTTLED_WORK}
    cluster |= {f"{SEVERAL_PART}-{count}" for count in PROCESSES}
    spark = {*SPARK_SINK_PARTS, *SPARK_SOURCE_PARTS, *SPARK_TASKS_PARTS, *SPARK_VALUES_PARTS}
    queues = {*QUEUE_PARTS, "queue-keyed"}
    for sizes in (FULL, QUICK):
        transactions |= {work.name for work in chosen_works(set(TRANSACTION_PARTS), sizes)}
        measured = {step.work for scenario in scenarios(sizes) for step in scenario.steps}
        measured |= {load.work for part in LOAD_PARTS for load in loads_of(part, sizes)}
        known = measured | lifecycle | java | groups | transactions | queues | spark | cluster
        assert {row.work for row in ROWS} == known
        assert {row.work for row in CEILING_ROWS} == {step.work for step, _ in ceilings.steps(sizes)}


def test_a_plain_copy_is_whole_and_leaves_no_file(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(5_000_000))

    assert copy_seconds(source, target) > 0
    assert not target.exists()


def test_a_log_that_is_there_already_has_caught_up_at_once(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(bytes(10))

    began, ended = watch_growth(tmp_path, 0, 10)

    assert began <= ended


def test_an_unknown_part_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--only", "100b,chaos"])
    assert "--only chaos: the parts are " + ", ".join(part_names()) in capsys.readouterr().err


def test_the_last_line_of_producer_performance_is_the_whole_run() -> None:
    output = (
        "200000 records sent, 39992.0 records/sec (38.14 MB/sec), 700.1 ms avg latency, 900.0 ms max latency.\n"
        "500000 records sent, 52138.7 records/sec (49.72 MB/sec), 560.43 ms avg latency, 912.00 ms max latency, "
        "574 ms 50th, 802 ms 95th, 880 ms 99th, 906 ms 99.9th.\n"
    )
    parsed = parse_producer(output)
    assert parsed["messages"] == 500_000
    assert parsed["messages_per_second"] == 52_138.7
    assert parsed["ms_p99"] == 880


def test_consumer_performance_is_read_without_its_rebalance() -> None:
    line = (
        "2026-01-01 10:00:00:000, 2026-01-01 10:00:05:000, 476.8, 95.4, 500000, 100000.0, 3000, 2000, 238.4, 250000.0\n"
    )
    assert parse_consumer(line)["messages_per_second"] == 250_000


@pytest.mark.parametrize("parse_tool", [parse_producer, parse_consumer])
def test_a_tool_that_printed_something_else_is_a_failure(parse_tool: object) -> None:
    assert callable(parse_tool)
    with pytest.raises(LoadFailed):
        parse_tool("Exception in thread main\n")
