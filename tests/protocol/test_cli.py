"""The `penstock` command as its users run it: a process of its own, against one broker."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from penstock.testing.processes import Child, free_port, free_ports, port_responds
from protocol.raw import Wire
from protocol.topics import fresh_name
from protocol.under_test import Broker

COMMAND_SECONDS_MAX = 120.0
PENSTOCK = (sys.executable, "-c", "from penstock.cli.main import run; run()")


class Cli:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap}

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PENSTOCK, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )

    def out(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def json(self, *arguments: str, stdin: str = "") -> Any:
        return json.loads(self.out(*arguments, "-o", "json", stdin=stdin))

    def json_lines(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out(*arguments, "--output", "json").splitlines()]

    def error(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 1, f"{arguments} ended with {done.returncode}: {done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def cli(broker: Broker) -> Cli:
    return Cli(broker.bootstrap)


def test_a_topic_is_made_listed_described_changed_grown_and_deleted(cli: Cli) -> None:
    made = cli.json("topic", "create", "life", "-p", "3", "-c", "retention.ms=1000000")
    assert (made["created"], made["partitions"]) == (True, 3)
    assert {"topic": "life", "partitions": 3, "replicas": 1, "under_replicated": 0} in cli.json("topic", "list")

    cli.out("topic", "alter", "life", "segment.bytes=1048576", "--unset", "retention.ms")
    cli.out("topic", "grow", "life", "--to", "4")
    described = cli.json("topic", "describe", "life")
    assert described["configs"]["segment.bytes"] == "1048576"
    assert "retention.ms" not in described["configs"]
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2, 3]
    assert all((each["start"], each["end"]) == (0, 0) for each in described["partitions"])

    assert "say --yes" in cli.error("topic", "delete", "life")
    cli.out("topic", "delete", "life", "--yes")
    assert "life" not in [each["topic"] for each in cli.json("topic", "list")]


def test_refusals_say_what_where_and_what_to_do(cli: Cli) -> None:
    cli.out("topic", "create", "refused", "-p", "2")

    taken = cli.error("topic", "create", "refused")
    assert "cannot create topic refused" in taken
    assert "hint:" in taken
    assert cli.json("topic", "create", "refused", "--if-not-exists")["created"] is False
    assert "bad name" in cli.error("topic", "create", "bad name")
    assert "retention.ms" in cli.error("topic", "create", "other", "-c", "retention.ms=soon")
    assert "penstock topic list" in cli.error("topic", "describe", "missing")
    assert "partitions 0 to 1" in cli.error("consume", "refused", "-p", "9")
    assert "Unknown partition" in cli.error("produce", "refused", "-p", "9", "-v", "x")
    assert "hint:" in cli.error("topic", "grow", "refused", "--to", "1")


def test_hints_say_what_was_meant_and_where_it_can_be_done(cli: Cli, broker: Broker) -> None:
    cli.out("topic", "create", "hinted")
    (only,) = cli.json("cluster", "info")["brokers"]
    number = str(only["broker"])

    for mistyped in (
        ("topic", "create", "other", "-c", "retention.mss=1"),
        ("topic", "alter", "hinted", "retention.mss=1"),
        ("topic", "alter", "hinted", "--unset", "retention.mss"),
        ("config", "set", "topic", "hinted", "retention.mss=1"),
        ("config", "unset", "topic", "hinted", "retention.mss"),
        ("config", "describe", "topic", "hinted", "--key", "retention.mss"),
    ):
        assert "did you mean retention.ms?" in cli.error(*mistyped), mistyped
    for command in ("describe", "delete"):
        assert "did you mean hinted?" in cli.error(
            "topic", command, "hintedd", *(["-y"] if command == "delete" else [])
        )
    for change in ("set", "unset"):
        key = "broker.rack=x" if change == "set" else "broker.rack"
        assert "broker.rack is read at the start" in cli.error("config", change, "broker", number, key)
    assert "a bug" not in cli.error("config", "set", "broker", number, "max.connections=many")
    missing = cli.error("config", "describe", "broker", "1234567")
    assert "there is no broker 1234567" in missing
    assert f"the cluster has {number}" in missing


def test_records_come_back_as_they_were_sent(cli: Cli) -> None:
    cli.out("topic", "create", "records", "-p", "1")

    sent = cli.json("produce", "records", "-k", "c7", "-v", "hello", "-v", "zwei ✓", "-H", "a=b", "-H", "none")
    cli.out("produce", "records", "-K", ":", "-z", "lz4", stdin="k1:v1\nk2:v:2\n")
    cli.out("produce", "records", "--tombstone", "-k", "k1", "--timestamp", "1700000000000")

    assert sent["partitions"] == [{"partition": 0, "records": 2, "first": 0, "last": 1}]
    found = cli.json_lines("consume", "records")
    assert [(each["offset"], each["key"], each["value"]) for each in found] == [
        (0, "c7", "hello"),
        (1, "c7", "zwei ✓"),
        (2, "k1", "v1"),
        (3, "k2", "v:2"),
        (4, "k1", None),
    ]
    assert found[0]["headers"] == [{"name": "a", "value": "b"}, {"name": "none", "value": None}]
    assert found[4]["timestamp"] == 1_700_000_000_000
    assert cli.out("consume", "records", "-f", "%o:%k=%v,", "-n", "2") == "0:c7=hello,1:c7=zwei ✓,"


def test_a_topic_is_copied_through_a_pipe_bytes_and_all(cli: Cli, tmp_path: Path) -> None:
    binary = tmp_path / "value.bin"
    binary.write_bytes(bytes(range(256)))
    cli.out("topic", "create", "origin", "-p", "1")
    cli.out("topic", "create", "copy", "-p", "1")
    cli.out("produce", "origin", "-k", "k", "--file", str(binary), "--whole")

    lines = cli.out("consume", "origin", "--output", "json")
    cli.out("produce", "copy", "--json", stdin=lines)

    first, second = cli.json_lines("consume", "origin")[0], cli.json_lines("consume", "copy")[0]
    assert first["value_base64"] == second["value_base64"]
    assert (first["key"], first["timestamp"]) == (second["key"], second["timestamp"])


def test_consume_reads_the_given_range(cli: Cli) -> None:
    cli.out("topic", "create", "ranges", "-p", "1", "-c", "retention.ms=-1")
    for number in range(3):
        timestamp_ms = str(1_000 * (number + 1))
        cli.out("produce", "ranges", "-v", f"{number}a", "-v", f"{number}b", "--timestamp", timestamp_ms)

    def values(offsets: str, *more: str) -> list[str]:
        return cli.out("consume", "ranges", "-o", offsets, *more).split()

    assert values("beginning") == ["0a", "0b", "1a", "1b", "2a", "2b"]
    assert values("end") == []
    assert values("2:4") == ["1a", "1b"]
    assert values("-1") == ["2b"]
    assert values(":-4") == ["0a", "0b"]
    assert values("@2000") == ["1a", "1b", "2a", "2b"]
    assert values("@1500:@3000") == ["1a", "1b"]
    assert values("@-1h:end") == []
    assert values("4", "-n", "1") == ["2a"]


def test_following_shows_what_is_sent_later(cli: Cli) -> None:
    cli.out("topic", "create", "news", "-p", "1")
    cli.out("produce", "news", "-v", "old")
    reader = subprocess.Popen(
        [*PENSTOCK, "consume", "news", "-o", "-1", "-F", "-n", "2"],
        stdout=subprocess.PIPE,
        env=cli.environment,
        text=True,
    )
    with reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "old\n"
        cli.out("produce", "news", "-v", "new")
        assert reader.stdout.readline() == "new\n"
        assert reader.wait(COMMAND_SECONDS_MAX) == 0


def test_truncating_removes_the_records_before_a_position(cli: Cli) -> None:
    cli.out("topic", "create", "cut", "-p", "1")
    cli.out("produce", "cut", *(part for number in range(5) for part in ("-v", str(number))))

    assert "delete 3 records" in cli.error("topic", "truncate", "cut", "--before", "3")
    done = cli.json("topic", "truncate", "cut", "--before", "3", "--yes")

    assert done == [{"partition": 0, "start_before": 0, "start": 3, "deleted": 3}]
    assert cli.out("consume", "cut").split() == ["3", "4"]


def test_settings_are_shown_with_their_source_set_and_unset(cli: Cli) -> None:
    cli.out("topic", "create", "settings")

    cli.out("config", "set", "topic", "settings", "segment.ms=777777", "cleanup.policy=compact")
    changed = {
        each["key"]: (each["value"], each["source"]) for each in cli.json("config", "describe", "topic", "settings")
    }
    cli.out("config", "unset", "topic", "settings", "segment.ms")
    after = cli.json("config", "describe", "topic", "settings", "--key", "segment.ms")
    everything = cli.json("config", "describe", "topic", "settings", "--all")

    assert changed["segment.ms"] == ("777777", "DYNAMIC_TOPIC_CONFIG")
    assert changed["cleanup.policy"] == ("compact", "DYNAMIC_TOPIC_CONFIG")
    assert after[0]["source"] != "DYNAMIC_TOPIC_CONFIG"
    assert len(everything) > 20
    assert "segment.mss" in cli.error("config", "set", "topic", "settings", "segment.mss=1")


def test_the_settings_of_a_group_are_set_and_unset(cli: Cli) -> None:
    cli.out("config", "set", "group", "workers", "share.auto.offset.reset=earliest")
    [changed] = cli.json("config", "describe", "group", "workers")
    cli.out("config", "unset", "group", "workers", "share.auto.offset.reset")
    [after] = cli.json("config", "describe", "group", "workers", "--key", "share.auto.offset.reset")

    assert (changed["key"], changed["value"], changed["source"]) == (
        "share.auto.offset.reset",
        "earliest",
        "GROUP_CONFIG",
    )
    assert after["value"] == "latest"


def test_the_settings_of_the_broker_are_shown(cli: Cli, broker: Broker) -> None:
    cli.out("topic", "create", "whose", "-p", "1")
    (only,) = cli.json("topic", "describe", "whose")["partitions"][0]["isr"]

    shown = {each["key"]: each["value"] for each in cli.json("config", "describe", "broker", str(only), "--all")}

    assert int(shown["num.partitions"]) >= 1
    assert broker.bootstrap.rpartition(":")[2] in shown["listeners"]


def test_benchmarks_measure_and_count(cli: Cli) -> None:
    sent = cli.json("bench", "produce", "load", "-n", "2000", "-s", "50", "--idempotent", "-z", "lz4")
    read = cli.json("bench", "consume", "load")
    both = cli.json("bench", "latency", "steady", "-r", "200", "-t", "1", "--warmup", "1")

    assert (sent["records"], sent["bytes"]) == (2_000, 100_000)
    assert (read["records"], read["bytes"]) == (2_000, 100_000)
    assert both["records"] == 200
    assert set(both["latency_ms"]) == {"p50", "p90", "p99", "p99_9", "max"}


def test_the_segments_of_the_broker_are_dumped_and_verified(cli: Cli, broker: Broker) -> None:
    if not hasattr(broker, "data"):
        pytest.skip("the files of this broker are not here")
    cli.out("topic", "create", "disk", "-p", "1")
    cli.out("produce", "disk", "-v", "on disk")
    directory = next(broker.data.rglob("disk-0"))

    verdict = cli.json("log", "verify", str(directory))
    rows = cli.json_lines("log", "dump", str(directory), "--records")

    assert verdict["bad"] == []
    assert verdict["good"][0]["records"] == 1
    assert [row["value"] for row in rows if "value" in row] == ["on disk"]


@pytest.mark.penstock_only
def test_up_serves_until_it_is_stopped(tmp_path: Path) -> None:
    port, metrics_port = free_ports(2)
    command = (
        *PENSTOCK,
        *("up", "--listen", f"127.0.0.1:{port}", "--data", str(tmp_path / "data")),
        *("--set", f"metrics.listener=127.0.0.1:{metrics_port}"),
    )
    cli = Cli(f"127.0.0.1:{port}")
    with Child(command, log=tmp_path / "log") as up:
        up.wait_until(lambda: port_responds(port), what="open port", seconds_max=COMMAND_SECONDS_MAX)
        cli.out("produce", "first", "-v", "hello")
        assert cli.out("consume", "first") == "hello\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/readyz", timeout=COMMAND_SECONDS_MAX) as response:
            assert json.load(response) == {"status": "ready"}
        with Wire(f"127.0.0.1:{port}") as client:
            client.ask(ApiVersionsRequest(version=3, client_software_name="probe", client_software_version="1.0"))
            with urllib.request.urlopen(
                f"http://127.0.0.1:{metrics_port}/metrics", timeout=COMMAND_SECONDS_MAX
            ) as response:
                metrics = response.read().decode()
        assert up.stop() == 0

    assert 'kafka_topic_partition_current_offset{partition="0",topic="first"} 1.0' in metrics
    assert 'penstock_requests_total{api="Produce"' in metrics
    assert 'penstock_connections_by_client{software="probe",version="1.0"} 1.0' in metrics


def test_a_broker_that_is_not_there_is_not_waited_for_and_said_once() -> None:
    said = Cli(f"127.0.0.1:{free_port()}").error("consume", "anything")

    assert said.count("connection refused") == 1
    assert len(said.splitlines()) == 2


@pytest.mark.penstock_only
def test_a_bind_to_every_interface_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    done = Cli("unused").run("broker", "--listen", f"0.0.0.0:{free_port()}", "--data", str(tmp_path))

    assert done.returncode != 0
    assert "--insecure-listen" in done.stderr


def test_several_topics_are_read_at_once(cli: Cli) -> None:
    for topic in ("left", "right"):
        cli.out("topic", "create", topic, "-p", "2")
        cli.out("produce", topic, "-v", f"{topic} 1", "-v", f"{topic} 2")

    shown = cli.out("consume", "left", "right", "left", "-f", "%t %v\n")

    assert sorted(shown.splitlines()) == [
        f"{topic} {topic} {number}" for topic in ("left", "right") for number in (1, 2)
    ]
    assert cli.out("consume", "left", "right", "--output", "table").startswith("topic ")


def test_a_group_reads_each_record_once_over_several_runs(cli: Cli) -> None:
    group = fresh_name("readers")
    cli.out("topic", "create", "shared", "-p", "1")
    cli.out("produce", "shared", "-v", "a", "-v", "b", "-v", "c")

    assert cli.out("consume", "shared", "-g", group, "-n", "2").split() == ["a", "b"]
    assert cli.json("group", "describe", group)["lag"] == 1
    assert cli.out("consume", "shared", "-g", group).split() == ["c"]
    assert cli.out("consume", "shared", "-g", group) == ""
    assert cli.json("group", "describe", group)["lag"] == 0
    assert "penstock topic list" in cli.error("consume", "unheard-of", "-g", group)


def test_the_cluster_names_its_brokers_its_controller_and_what_they_understand(cli: Cli, broker: Broker) -> None:
    found = cli.json("cluster", "info")

    (only,) = found["brokers"]
    assert f"{only['host']}:{only['port']}" == broker.bootstrap
    assert found["controller"] == only["broker"]
    assert found["cluster_id"]
    assert only["apis"]["Fetch"]["max"] >= 16
    assert only["features"]["transaction.version"] == 2
    table = cli.out("cluster", "info")
    assert f"cluster {found['cluster_id']}  1 broker  controller {only['broker']}" in table


@pytest.mark.penstock_only
def test_data_files_are_accessible_only_to_the_brokers_user(tmp_path: Path) -> None:
    port, metrics_port = free_ports(2)
    data = tmp_path / "data"
    listen = ("--listen", f"127.0.0.1:{port}", "--set", f"metrics.listener=127.0.0.1:{metrics_port}")
    own = Cli(f"127.0.0.1:{port}")
    with Child((*PENSTOCK, "up", *listen, "--data", str(data)), log=tmp_path / "log") as up:
        up.wait_until(lambda: port_responds(port), what="open port", seconds_max=COMMAND_SECONDS_MAX)
        own.out("produce", "kept", "-v", "hello")
        own.out("consume", "kept", "-g", "readers")
        assert up.stop() == 0

    found = [data, *data.rglob("*")]
    assert {"metadata.sqlite", "meta.properties", "kept-0"} <= {path.name for path in found}
    assert [path for path in found if path.stat().st_mode & 0o077] == []


@pytest.mark.penstock_only
def test_a_second_broker_takes_a_free_port_for_its_metrics_and_says_so(tmp_path: Path) -> None:
    port, second_port, metrics_port = free_ports(3)

    def up(number: int, at: int) -> Child:
        listen = ("--listen", f"127.0.0.1:{at}", "--set", f"metrics.listener=127.0.0.1:{metrics_port}")
        return Child((*PENSTOCK, "up", *listen, "--data", str(tmp_path / str(number))), log=tmp_path / f"log{number}")

    def moved() -> list[str]:
        logs = [tmp_path / f"log{number}" for number in (1, 2)]
        return [line for log in logs for line in log.read_text().splitlines() if "metrics_port_taken" in line]

    with up(1, port) as first, up(2, second_port) as second:
        for child, at in ((first, port), (second, second_port)):
            child.wait_until(lambda at=at: port_responds(at), what="open port", seconds_max=COMMAND_SECONDS_MAX)
        second.wait_until(moved, what="another port for metrics", seconds_max=COMMAND_SECONDS_MAX)

    (taken,) = map(json.loads, moved())
    assert (taken["wanted"], taken["key"]) == (metrics_port, "metrics.listener")
    assert taken["port"] not in (0, metrics_port)
