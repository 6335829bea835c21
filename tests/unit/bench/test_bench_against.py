import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench import commits
from bench.against_report import pairs, render_against
from bench.client_program import ROOT
from bench.commits import CommitUnusable, Installation, check_pair, export, inspect, resolve, stale_modules
from bench.run import (
    AGAINST_ROUNDS,
    NOT_COMPARED,
    against_path,
    contenders_of,
    measure,
    parse,
    part_names,
    sizes_of,
)
from bench.samples import BASELINE, PENSTOCK, Results, Sample
from bench.sides import THIS_PENSTOCK
from bench.works import FULL
from other_penstock import other_penstock

from penstock.testing.processes import ProcessFailed

CPU = "cpu_us_per_request"
FETCH = "penstock.wire.fetch"


def results(work: str, metric: str, baseline: Sequence[float], this: Sequence[float]) -> Results:
    found = Results(machine={"processor": "two cores"}, began="today", command="again", parts=[], complete=False)
    for side, values in ((BASELINE, baseline), (PENSTOCK, this)):
        found.add(Sample(work=work, side=side, round=i, values={metric: value}) for i, value in enumerate(values))
    return found


def mark(baseline: Sequence[float], this: Sequence[float], metric: str = CPU) -> str:
    (pair,) = pairs(results("requests-8x8", metric, baseline, this))
    return pair.mark


def test_processor_time_is_marked_only_where_medians_and_minima_agree() -> None:
    assert mark([10, 10, 10], [10.6, 10.6, 10.6]) == "more"
    assert mark([10, 10, 10], [9.4, 9.4, 9.4]) == "less"
    assert mark([10, 10, 10], [10.4, 10.4, 10.4]) == ""
    # Noise in two rounds of three, and a lowest figure that is the same.
    assert mark([10, 10, 10], [10, 14, 15]) == ""
    # The lowest differs, but by chance: the medians do not.
    assert mark([10, 10, 10], [8, 10, 10]) == ""
    # Both are off, on different sides.
    assert mark([10, 10, 10], [9, 11, 12]) == ""


def test_throughput_is_shown_and_not_marked() -> None:
    assert mark([100], [50], "messages_per_second") == ""


def test_few_rounds_are_called_a_try() -> None:
    found = results("requests-8x8", CPU, [10], [11])
    assert "**A try**" in render_against(found, "abc123", {}, is_try=True)
    assert "**A try**" not in render_against(found, "abc123", {})


def test_a_figure_of_one_side_has_no_ratio_and_no_mark() -> None:
    (pair,) = pairs(results("requests-8x8", CPU, [], [10]))
    assert (pair.ratio, pair.mark) == (None, "")


def test_the_report_shows_both_commits_and_rows_outside_the_tolerance() -> None:
    found = results("requests-8x8", CPU, [10, 20, 12], [11, 13, 15])
    found.failures.append("Spark's read failed")
    text = render_against(found, "abc123", {"ceilings": "no broker"}, ["uvloop 1 against 2"])
    title = "one-record requests, 8 connections x 8 in flight: broker CPU per request"
    assert "| work | unit | abc123 | this | ratio | of the lowest | outside of 5% |" in text
    assert f"| {title} | us | 12.0 (10.0..20.0) | 13.0 (11.0..15.0) | 1.08x | 1.10x | **more** |" in text
    assert f"1 outside of 5%: {title} (more, 1.08x)." in text
    for line in ("- uvloop 1 against 2", "- Spark's read failed", "- ceilings: no broker"):
        assert line in text
    assert "Apache Kafka" not in text


def test_every_work_that_costs_a_broker_time_has_a_cpu_row() -> None:
    for work in (
        "produce-100",
        "consume-1k",
        "requests-1x1",
        "latency-1000",
        "group-commits",
        "txn-bulk",
        "spark-sink",
    ):
        found = results(work, CPU, [10], [10])
        found.add([Sample(work=work, side=PENSTOCK, round=0, values={"cpu_seconds_per_gb": 1.0})])
        assert [pair.row.metric for pair in pairs(found)] == [CPU, "cpu_seconds_per_gb"]


def test_without_requests_the_cost_is_given_per_message_or_in_all() -> None:
    found = results("produce-100", "cpu_us_per_message", [1], [1])
    assert [pair.row.metric for pair in pairs(found)] == ["cpu_us_per_message"]
    assert [pair.row.unit for pair in pairs(results("group-load", "cpu_seconds", [1], [1]))] == ["CPU s"]


def test_the_penstock_that_a_python_imports_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = other_penstock(tmp_path / "other")
    # What this process was started with must not reach the sides.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/nowhere", str(ROOT / "src")]))
    baseline, this = inspect(python, tmp_path / "other"), inspect(Path(sys.executable), ROOT)
    assert baseline.folder == tmp_path / "other"
    assert this.folder == ROOT
    assert FETCH in this.compiled | this.interpreted
    assert bool(this.cython) == bool(this.compiled)


def installation(folder: Path, *, compiled: int = 2, interpreted: int = 0, uvloop: str = "1") -> Installation:
    return Installation(
        folder=folder,
        python="3.11.7",
        compiled=frozenset(f"compiled{number}" for number in range(compiled)),
        interpreted=frozenset(f"interpreted{number}" for number in range(interpreted)),
        versions={"uvloop": uvloop, "penstock": f"in {folder}", "setuptools": f"in {folder}"},
    )


def test_sides_that_import_the_same_penstock_are_refused(tmp_path: Path) -> None:
    that, this = tmp_path / "that", tmp_path / "this"
    assert check_pair(installation(that), installation(this), that, this) == []
    with pytest.raises(CommitUnusable, match=f"the Python of {that} imports penstock from {this}"):
        check_pair(installation(this), installation(this), that, this)
    with pytest.raises(CommitUnusable, match=f"both sides import penstock from {this}"):
        check_pair(installation(this), installation(this), this, this)


def test_a_compiled_side_is_not_compared_with_one_that_is_not(tmp_path: Path) -> None:
    that, this = tmp_path / "that", tmp_path / "this"
    pure = {"compiled": 0, "interpreted": 2}
    with pytest.raises(CommitUnusable, match="one side is compiled and the other is not"):
        check_pair(installation(that, **pure), installation(this), that, this)
    with pytest.raises(CommitUnusable, match="one side is compiled and the other is not"):
        check_pair(installation(that), installation(this, **pure), that, this)
    with pytest.raises(CommitUnusable, match="partly compiled"):
        check_pair(installation(that, compiled=1, interpreted=1), installation(this), that, this)
    assert check_pair(installation(that, **pure), installation(this, **pure), that, this) == []


def test_packages_of_different_versions_are_listed(tmp_path: Path) -> None:
    that, this = tmp_path / "that", tmp_path / "this"
    notes = check_pair(installation(that, uvloop="1"), installation(this, uvloop="2"), that, this)
    assert notes == ["uvloop 1 against 2"]


def test_a_module_that_changed_after_it_was_compiled_is_stale(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(f'COMPILED = ("{FETCH}",)\n')
    folder = tmp_path / "src" / "penstock" / "wire"
    folder.mkdir(parents=True)
    source, built = folder / "fetch.py", folder / "fetch.cpython-311-x86_64-linux-gnu.so"
    source.touch()
    assert stale_modules(tmp_path) == []
    built.touch()
    os.utime(source, (1_000, 1_000))
    assert stale_modules(tmp_path) == []
    os.utime(source, (built.stat().st_mtime + 1,) * 2)
    assert stale_modules(tmp_path) == [FETCH]


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.invalid")
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


def test_a_commit_is_exported_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    monkeypatch.setattr(commits, "FOLDERS", tmp_path / "commits")
    git(root, "init")
    for text in ("first", "second"):
        (root / "file").write_text(text)
        git(root, "add", "file")
        git(root, "commit", "-m", f"Write {text}")
    (root / "file").write_text("not committed")

    checkout = resolve("HEAD~1", root)
    export(checkout, root)
    export(checkout, root)

    assert (checkout.folder / "file").read_text() == "first"
    assert checkout.subject == "Write first"
    assert [path.name for path in (tmp_path / "commits").iterdir()] == [checkout.short]
    assert checkout.python.is_relative_to(checkout.folder)
    assert checkout.contender.python == checkout.python != THIS_PENSTOCK.python
    with pytest.raises(CommitUnusable, match="--against nothing: git knows no such commit"):
        resolve("nothing", root)


def test_against_a_commit_both_penstocks_run_and_apache_kafka_does_not() -> None:
    options = parse(["--against", "HEAD"])
    checkout = resolve("HEAD")
    assert [side.name for side in contenders_of(options, checkout)] == [BASELINE, PENSTOCK]
    assert against_path(checkout) == ROOT / ".cache" / "bench" / f"against-{checkout.short}.md"


@pytest.mark.parametrize("other", [["--skip-kafka"], ["--skip-penstock"], ["--render", "x.json"], ["--rounds", "0"]])
def test_options_without_meaning_beside_against_are_refused(other: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--against", "HEAD", *other])


def test_the_number_of_rounds_is_even_against_a_commit_unless_it_is_given() -> None:
    assert sizes_of(parse(["--against", "HEAD"])).rounds == AGAINST_ROUNDS
    assert AGAINST_ROUNDS % 2 == 0
    chosen = sizes_of(parse(["--against", "HEAD", "--quick", "--rounds", "4"]))
    assert (chosen.rounds, chosen.stream_rounds, chosen.spark_latency_rounds) == (4, 4, 4)
    assert sizes_of(parse([])) == FULL


def test_a_part_that_fails_against_a_commit_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def stages(*_: object) -> object:
        def failing() -> object:
            yield Sample(work="a", side=BASELINE, round=0, values={})
            raise ProcessFailed("no such option\nand its traceback")

        yield failing()
        yield iter([Sample(work="b", side=BASELINE, round=0, values={})])

    monkeypatch.setattr("bench.run.stages", stages)
    found = results("w", "m", [], [])
    measure(parse(["--against", "HEAD"]), [], found)
    assert [sample.work for sample in found.samples] == ["a", "b"]
    assert found.failures == ["no such option"]
    with pytest.raises(ProcessFailed):
        measure(parse([]), [], found)


def test_parts_that_are_not_compared_are_parts() -> None:
    assert set(part_names()) > NOT_COMPARED.keys()
