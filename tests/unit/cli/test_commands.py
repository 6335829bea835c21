import json
import socket
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from penstock import __version__
from penstock.cli import main, serve
from penstock.cli.advice import ADVICE, LOCAL, every, find
from penstock.cli.main import COMMANDS, app
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.testing.processes import free_port

RUNNER = CliRunner()


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The whole command, as the shell runs it: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.run()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_the_summary_of_each_command(name: str) -> None:
    command = COMMANDS[name].load(name)

    assert command.help.splitlines()[0] == COMMANDS[name].summary


def test_the_list_of_commands_imports_none_of_them() -> None:
    import subprocess

    program = "import sys; from penstock.cli.main import app; print(*sorted(sys.modules))"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert "penstock.cli.main" in loaded
    for slow in ("confluent_kafka", "rich", "structlog", "prometheus_client", "penstock.cli.topic", "asyncio"):
        assert slow not in loaded


def test_an_unknown_command_is_a_usage_error() -> None:
    assert RUNNER.invoke(app, ["topci"]).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain"],
        ["topic", "create"],
        ["topic", "create", "t", "-p", "0"],
        ["consume", "t", "-o", "sometime"],
        ["consume", "t", "-o", "json"],
        ["consume", "t", "-f", "%v", "--output", "json"],
        ["consume", "t", "-g", "g", "-o", "end"],
        ["consume", "t", "-g", "g", "-p", "0"],
        ["consume", "t", "-g", ""],
        ["consume"],
        ["produce", "t", "--tombstone"],
        ["produce", "t", "-v", "a", "--tombstone", "-k", "k"],
        ["produce", "t", "-v", "a", "-H", "=x"],
        ["produce", "t", "-K", ""],
        ["produce", "t", "-v", "a", "--timestamp", "yesterday"],
        ["config", "describe", "broker", "one"],
        ["topic", "alter", "t"],
        ["topic", "alter", "t", "novalue"],
        ["topic", "truncate", "t", "--before", "then"],
        ["topic", "delete", "\udcff"],
        ["group", "delete", "\udcff"],
        ["consume", "\udcff"],
        ["produce", "\udcff", "-v", "a"],
        ["produce", "t", "-v", "a", "-H", "\udcff=1"],
        ["produce", "t", "-v", "a", "-X", "\udcff=1"],
        ["group", "seek", "g", "--to", "1:2"],
        ["txn", "list", "--longer-than", "inf"],
        ["txn", "hanging", "--older-than", "nan"],
        ["explain", "", "-o", "json"],
        ["up", "--data", "a,b"],
        ["up", "--data", ""],
        ["broker", "--data", "a,b"],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_with_two_before_any_request(arguments: list[str]) -> None:
    assert RUNNER.invoke(app, arguments).exit_code == 2


def test_a_refused_connection_says_where_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"

        code, out, err = run(monkeypatch, capsys, "topic", "list", "--bootstrap", address)

    assert (code, out) == (1, "")
    assert err.splitlines()[0] == f"error: cannot connect to {address}: connection refused"
    assert "penstock up" in err.splitlines()[1]


def test_an_address_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(monkeypatch, capsys, "topic", "list", "--bootstrap", "host:port")

    assert code == 1
    assert "'host:port' is not HOST:PORT" in err


@pytest.mark.parametrize(
    "spelling", ["6", "NOT_LEADER_OR_FOLLOWER", "NotLeaderOrFollowerException", "not_leader_or_follower"]
)
def test_an_error_is_explained_however_it_is_spelled(spelling: str) -> None:
    shown = RUNNER.invoke(app, ["explain", spelling, "-o", "json"])

    explained = json.loads(shown.stdout)
    assert (explained["code"], explained["name"], explained["retriable"]) == (6, "NOT_LEADER_OR_FOLLOWER", True)
    assert explained["advice"]


def test_an_unknown_error_gets_the_nearest_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(monkeypatch, capsys, "explain", "NOT_LEADER_FOR_FOLLOWERS")

    assert code == 1
    assert "NOT_LEADER_OR_FOLLOWER" in err


def test_every_error_has_a_meaning_and_the_advice_belongs_to_errors_that_exist() -> None:
    assert all(each.meaning and find(each.name) == each and find(str(each.code)) == each for each in every())
    assert set(ADVICE) <= set(ERRORS_BY_CODE)
    assert not set(LOCAL) & set(ERRORS_BY_CODE)
    assert len(ADVICE) >= 40


def test_the_version_names_what_runs() -> None:
    shown = json.loads(RUNNER.invoke(app, ["version", "-o", "json"]).stdout)

    assert shown["python"] == ".".join(str(part) for part in sys.version_info[:3])
    assert isinstance(shown["compiled"], list)
    assert shown["librdkafka"]


def test_a_broker_gets_the_same_flags() -> None:
    arguments = serve.broker_arguments("0.0.0.0:9092", "d", Path("c.toml"), ["num.partitions=3", "log.dirs=a=b"], True)

    assert arguments == [
        *("--listen", "0.0.0.0:9092", "--data", "d", "--config", "c.toml"),
        *("--set", "num.partitions=3", "--set", "log.dirs=a=b", "--insecure-listen"),
    ]


def test_up_makes_the_data_directory_and_becomes_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(serve.os, "execve", lambda program, arguments, environment: started.append(arguments))
    listen = f"127.0.0.1:{free_port()}"
    data = tmp_path / "deep" / "data"

    serve.up(listen=listen, data=str(data), config=None, set_=None, insecure_listen=False)

    assert data.is_dir()
    assert started == [[sys.executable, "-m", "penstock.broker", "--listen", listen, "--data", str(data)]]


def test_up_says_that_the_port_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        with pytest.raises(serve.Failure, match="address already in use") as failed:
            serve.up(listen=f"127.0.0.1:{taken.getsockname()[1]}", data=str(tmp_path))

    assert "--listen" in failed.value.hint


def test_up_says_that_the_data_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(serve.Failure, match="cannot create the data directory"):
        serve.up(data=str(tmp_path / "file" / "data"))


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match=r"'num\.partitions' is not KEY=VALUE"):
        serve.broker_arguments(None, None, None, ["num.partitions"], False)


def test_the_version_is_an_option_too() -> None:
    shown = RUNNER.invoke(app, ["--version"])

    assert (shown.exit_code, shown.stdout) == (0, f"penstock {__version__}\n")


@pytest.mark.parametrize(
    ("words", "offered"),
    [("penstock cons", "consume"), ("penstock topic desc", "describe"), ("penstock consume t --out", "--output")],
)
def test_a_shell_completes_commands_and_options(words: str, offered: str) -> None:
    environment = {
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }

    shown = RUNNER.invoke(app, [], env=environment, prog_name="penstock")

    assert shown.stdout.splitlines() == [offered]


def test_a_range_where_a_position_is_wanted_is_called_one() -> None:
    shown = RUNNER.invoke(app, ["group", "seek", "g", "--to", "1:2"], env={"COLUMNS": "400"})

    assert "'1:2' is not one position, but a range" in shown.stderr
    assert "reads from A up to B" not in shown.stderr


def test_hints_name_nothing_that_only_a_checkout_has() -> None:
    texts = [*ADVICE.values(), *(advice for *_, advice in LOCAL.values())]

    assert not [text for text in texts if "docs/" in text]


def test_every_error_can_be_listed() -> None:
    shown = json.loads(RUNNER.invoke(app, ["explain", "--all", "-o", "json"]).stdout)

    assert [each["code"] for each in shown] == [each.code for each in every()]


@pytest.mark.parametrize(
    ("text", "meant"), [("NOT_LEADR", "NOT_LEADER_OR_FOLLOWER"), ("unknown-topic-or", "UNKNOWN_TOPIC_OR_PARTITION")]
)
def test_the_beginning_of_a_name_is_enough_for_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, meant: str
) -> None:
    assert f"did you mean {meant}" in run(monkeypatch, capsys, "explain", text)[2]
