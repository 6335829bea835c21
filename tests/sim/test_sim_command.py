"""`penstock sim`: lines for programs, tables for people, exit codes for both."""

import json

from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.sim import events_of

RUNNER = CliRunner()


def test_one_line_of_json_for_each_seed_in_order() -> None:
    done = RUNNER.invoke(app, ["sim", "run", "--seeds", "2", "--first-seed", "3", "-j", "1", "-o", "json"])

    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert [line["seed"] for line in lines] == [3, 4]
    assert {line["verdict"] for line in lines} == {"ok"}
    assert all(len(line["trace_hash"]) == 32 and line["operations"] and line["faults"] for line in lines)


def test_an_anomaly_is_exit_code_1_and_names_the_replay() -> None:
    done = RUNNER.invoke(app, ["sim", "run", "--seeds", "1", "--ablate", "last-stable-offset"])

    assert done.exit_code == 1
    assert "aborted read" in done.output
    assert "penstock sim replay 1 --ablate last-stable-offset" in done.stderr


def test_a_table_says_how_often_something_rare_was_seen() -> None:
    options = ["sim", "run", "--seeds", "2", "--brokers", "3", "--seconds", "3", "-j", "1"]
    lines = [json.loads(line) for line in RUNNER.invoke(app, [*options, "-o", "json"]).output.splitlines()]
    elections = sum(line["events"]["elections"] for line in lines)

    assert elections > 0
    assert f"elections {elections}, " in RUNNER.invoke(app, options).stderr


def test_a_replay_shows_faults_logs_and_operations() -> None:
    done = RUNNER.invoke(app, ["sim", "replay", "1"])

    assert done.exit_code == 0
    for shown in (
        "fault: power cut",
        "broker-1 power cut",
        "broker-1 info ready",
        "idempotent produce ok",
        '"seed": 1',
    ):
        assert shown in done.output
    assert " append /data/" not in done.output


def test_a_replay_of_an_anomaly_is_exit_code_1_and_shows_it() -> None:
    done = RUNNER.invoke(app, ["sim", "replay", "1", "--ablate", "recovery-point"])

    assert done.exit_code == 1
    assert "FINDING: " in done.output


def test_messages_and_disk_writes_are_left_out_unless_asked_for() -> None:
    lines = ["1.0 connection 3 to server: 5 bytes", "1.1 broker-1 append /data/x (3 bytes)", "1.2 fault: crash"]

    assert list(events_of(lines)) == ["1.2 fault: crash"]


def test_a_rule_that_does_not_exist_is_named_with_those_that_do() -> None:
    done = RUNNER.invoke(app, ["sim", "run", "--ablate", "gravity"])

    assert done.exit_code == 1
    assert "no rule gravity" in str(done.exception)


def test_schedules_and_tides_are_simulated_on_clusters_only() -> None:
    for extra in ("--schedules", "--tides"):
        done = RUNNER.invoke(app, ["sim", "run", "--seeds", "1", extra, "--brokers", "2"])

        assert done.exit_code != 0
        assert f"{extra} needs 3 brokers" in str(done.output) + str(done.exception)


def test_a_replay_with_schedules_is_the_one_that_a_run_names() -> None:
    options = ["--brokers", "3", "--schedules", "--seconds", "5"]
    run = RUNNER.invoke(app, ["sim", "run", "--seeds", "1", "-o", "json", *options])
    replay = RUNNER.invoke(app, ["sim", "replay", "1", *options])

    assert json.loads(replay.output.splitlines()[-1]) == json.loads(run.output.splitlines()[-1])
