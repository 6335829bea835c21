"""`penstock pipeline`: its options, and its errors when something is missing."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli import pipeline
from penstock.cli.failure import Failure
from penstock.cli.main import COMMANDS
from penstock.cli.options import value_or_file
from penstock.cli.pipeline import rate_of, wanted
from penstock.cli.pipeline_options import LakeFormat, TableOptions
from penstock.cli.pipeline_run import archive_name
from penstock.testing.processes import free_port
from pyspark_penstock.pipelines.registry import PipelineState, QueryProgress, Registry, process_started
from pyspark_penstock.pipelines.spec import SpecError, read_spec

GOOD = """
[pipeline]
name = "p"
[sources.a]
topic = "t"
format = "string"
[sinks.b]
from = "a"
console = true
"""


def run_command(*arguments: str) -> Any:
    return CliRunner().invoke(pipeline.app, list(arguments))


@pytest.mark.parametrize(
    "command",
    ["archive t --to d", "replay d --to-topic t", "run f", "list", "status n", "stop n", "expire d --older-than 1d"],
)
def test_without_spark_it_says_what_to_install(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else real(name))
    result = run_command(*command.split())
    assert isinstance(result.exception, Failure)
    assert "pyspark is not installed" in str(result.exception)
    assert result.exception.hint == 'pip install "penstock[spark]"'


def test_the_demo_without_spark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    app = typer.Typer()
    app.command()(COMMANDS["demo"].load("demo").callback)
    result = CliRunner().invoke(app, [])
    assert 'pip install "penstock[spark]"' in getattr(result.exception, "hint", "")


def test_the_demo_of_a_cluster_says_what_to_install_and_refuses_two_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    app = typer.Typer()
    app.command()(COMMANDS["demo"].load("demo").callback)
    result = CliRunner().invoke(app, ["--brokers", "2"])
    assert result.exit_code == 2
    assert "2 is not 1 and not 3 or more" in result.output
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "kazoo" else real(name))
    result = CliRunner().invoke(app, ["--brokers", "3"])
    assert "kazoo" in str(result.exception)
    assert 'pip install "penstock[cluster,spark]"' in getattr(result.exception, "hint", "")


def test_positions_are_offsets_or_times() -> None:
    assert wanted("5", "@1700000000000", ["t"]).offset_min == 5
    assert wanted("5", "@1700000000000", ["t"]).time_us_end == 1_700_000_000_000_000
    assert wanted("beginning", "end", ()) == wanted("earliest", "latest", ())
    with pytest.raises(typer.BadParameter, match="has no meaning in a table"):
        wanted("-10", "end", ())


@pytest.mark.parametrize(("text", "expected"), [("", 0.0), ("500", 500.0), ("2.5/s", 2.5)])
def test_a_rate_is_records_a_second(text: str, expected: float) -> None:
    assert rate_of(text) == expected


@pytest.mark.parametrize("text", ["fast", "0", "-5", "5/m"])
def test_an_invalid_rate_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a rate such as 500/s"):
        rate_of(text)


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text("id BIGINT")
    assert value_or_file(f"@{tmp_path}/schema", option="--value-schema") == "id BIGINT"
    assert value_or_file("id INT", option="--value-schema") == "id INT"
    with pytest.raises(Failure, match="cannot read"):
        value_or_file(f"@{tmp_path}/missing", option="--value-schema")


def test_a_file_is_checked_without_spark_and_without_a_broker(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(GOOD)
    result = run_command("run", str(path), "--check", "-o", "json")
    assert json.loads(result.stdout) == {"name": "p", "sources": 1, "steps": 0, "sinks": 1}
    path.write_text(GOOD.replace("console", "consol"))
    result = run_command("run", str(path), "--check")
    assert str(result.exception) == "sinks.b.consol: is not known: did you mean 'console'?"


def test_an_unreachable_broker_is_reported_before_spark_starts(tmp_path: Path) -> None:
    where = f"127.0.0.1:{free_port()}"
    result = run_command("archive", "t", "--to", str(tmp_path / "d"), "-b", where, "--state-dir", str(tmp_path / "s"))
    assert "connection refused" in str(result.exception)
    (state,) = Registry(tmp_path / "s").every()
    assert state.name.startswith("archive-t-")
    assert state.status == "failed"


def test_an_archive_into_another_table_has_another_name_and_checkpoint(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "s")
    names = [archive_name(registry, ["t"], str(tmp_path / to), TableOptions()) for to in ("a", "b", "a", "./x/../a")]
    assert names[0] == names[2] == names[3] != names[1]
    assert archive_name(registry, ["t"], str(tmp_path / "a"), TableOptions(format_=LakeFormat.DELTA)) not in names


def test_an_archive_from_before_keeps_its_name_and_so_its_checkpoint(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    words = "t -> parquet lake/a"
    registry.save(PipelineState(name="archive-t", kind="archive", what=words, pid=1, pid_started=1, started_ms=1))
    assert archive_name(registry, ["t"], "lake/a", TableOptions()) == "archive-t"
    assert archive_name(registry, ["t"], "lake/b", TableOptions()) != "archive-t"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--partition-by", "offset"], "an archive is partitioned by topic, day, hour"),
        (["--partition-by", "topic,value.a"], "values have fields only if"),
        (["--expire", "7d"], "has no older versions to expire"),
        (["--expire", "1m", "--format", "delta"], "at least 1h"),
    ],
)
def test_options_that_an_archive_does_not_support_are_bad_usage(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    result = run_command("archive", "t", "--to", str(tmp_path / "d"), "--state-dir", str(tmp_path / "s"), *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())


def test_pipelines_are_listed_and_shown(tmp_path: Path) -> None:
    progress = QueryProgress(query="q", batch=3, batches=4, rows=50, rows_per_second=9.6, lag=7, late_rows=1)
    began = process_started(os.getpid()) or 0
    state = PipelineState(
        name="p",
        kind="run",
        what="a -> b",
        pid=os.getpid(),
        pid_started=began,
        started_ms=1,
        status="running",
        queries=(progress,),
    )
    Registry(tmp_path).save(state)
    (row,) = json.loads(run_command("list", "--state-dir", str(tmp_path), "-o", "json").stdout)
    assert row == {
        "name": "p",
        "kind": "run",
        "status": "running",
        "batches": 4,
        "rows": 50,
        "rows_per_second": 10,
        "lag": 7,
        "pid": os.getpid(),
        "what": "a -> b",
    }
    shown = run_command("status", "p", "--state-dir", str(tmp_path)).stdout
    assert "p  run  running" in shown
    assert "late_rows" in shown
    missing = run_command("status", "other", "--state-dir", str(tmp_path))
    assert str(missing.exception) == "there is no pipeline other"


def test_the_example_is_a_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(run_command("example").stdout)

    assert json.loads(run_command("run", str(path), "--check", "-o", "json").stdout)["sinks"] == 2


@pytest.mark.parametrize("text", [f"a = {'[' * 5_000}", f"a = {'9' * 5_000}", "a = ["], ids=lambda text: text[:8])
def test_toml_that_is_none_is_refused_with_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text)

    with pytest.raises(SpecError, match=r"p\.toml: "):
        read_spec(path)


@pytest.mark.parametrize(
    "arguments",
    [["status", "../x"], ["stop", "a b"], ["archive", "t", "--to", "d", "--name", "/x"]],
    ids=" ".join,
)
def test_a_name_that_cannot_stand_in_a_path_is_bad_usage(arguments: list[str]) -> None:
    assert run_command(*arguments).exit_code == 2
