"""`--processes N`: brokers that are killed, stopped and paused under their supervisor, and data they do not fit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import numbers
from cluster.several import PATIENCE_S, Several
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import LOOPBACK, free_ports_in_a_row
from protocol.batches import batch
from protocol.raw import NONE, Wire
from protocol.topics import create_topic, wait_until

pytestmark = pytest.mark.penstock_only
FAILED, USAGE = 1, 2
CLEAN = ".kafka_cleanshutdown"


def is_running(pid: int) -> bool:
    """Whether a process that is no child of this one runs; an orphan's entry may stay until it is reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def refused(*arguments: str, status: int = FAILED) -> str:
    """Start brokers that must not start; their output."""
    command = [sys.executable, "-m", "penstock.broker", "--set", "metrics.listener=", *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == status, done.stdout
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout


def test_brokers_have_ids_ports_and_directories_from_the_first_on(tmp_path: Path) -> None:
    metrics = free_ports_in_a_row(3)
    with Several(3, tmp_path / "data", settings={"metrics.listener": f"{LOOPBACK}:{metrics}"}) as brokers:
        brokers.wait_for_members({1, 2, 3})
        assert brokers.members() == {1: brokers.port, 2: brokers.port + 1, 3: brokers.port + 2}
        assert "node.id=1" in (brokers.data / "meta.properties").read_text()
        assert "node.id=3" in (brokers.data / "brokers" / "3" / "meta.properties").read_text()
        assert brokers.events("all_ready")[0]["brokers"] == [1, 2, 3]
        found = {event["broker"]: event["port"] for event in brokers.events("metrics_listening")}
        assert found == {1: metrics, 2: metrics + 1, 3: metrics + 2}
        assert {event.get("broker") for event in brokers.events("starting")} == {None, 1, 2, 3}


def test_a_killed_broker_is_started_again(tmp_path: Path) -> None:
    with Several(2, tmp_path / "data") as brokers:
        first, second = brokers.pids[1], brokers.pids[2]
        os.kill(second, signal.SIGKILL)

        wait_until(lambda: len(brokers.events("all_ready")) == 2, what="second start", seconds_max=PATIENCE_S)
        assert brokers.pids[1] == first
        assert brokers.pids[2] != second
        assert [event["reason"] for event in brokers.events("broker_ended")] == ["killed by SIGKILL"]
        brokers.wait_for_members({1, 2})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_these_signals_stop_all_brokers_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with Several(2, tmp_path / "data") as brokers:
        os.kill(brokers.pid, number)

        assert brokers.wait(PATIENCE_S) == 0
        assert not any(is_running(pid) for pid in brokers.pids.values())
        assert [event.get("broker", 0) for event in brokers.events("stopped")][-1] == 0
        assert len(brokers.events("stopped")) == 3
        assert (brokers.data / CLEAN).exists()
        assert (brokers.data / "brokers" / "2" / CLEAN).exists()


def test_brokers_stop_cleanly_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with Several(2, tmp_path / "data") as brokers:
        pids = brokers.pids
        os.kill(brokers.pid, signal.SIGKILL)

        wait_until(lambda: not any(map(is_running, pids.values())), what="end of the brokers", seconds_max=PATIENCE_S)
        assert (brokers.data / CLEAN).exists()
        assert (brokers.data / "brokers" / "2" / CLEAN).exists()
        brokers.kill()
        brokers.start()
        brokers.wait_for_members({1, 2})


def test_a_paused_broker_loses_its_session_and_registers_again(tmp_path: Path) -> None:
    with Several(2, tmp_path / "data", settings={"broker.session.timeout.ms": "1000"}) as brokers:
        brokers.wait_for_members({1, 2})
        os.kill(brokers.pids[2], signal.SIGSTOP)
        try:
            brokers.wait_for_members({1})
            assert len(brokers.events("session_expired")) == 1
        finally:
            os.kill(brokers.pids[2], signal.SIGCONT)
        brokers.wait_for_members({1, 2})
        assert len(brokers.events("broker_started")) == 2


def test_a_replicated_topic_survives_a_killed_and_a_paused_broker(tmp_path: Path) -> None:
    with Several(2, tmp_path / "data", settings={"broker.session.timeout.ms": "2000"}) as brokers:
        brokers.wait_for_members({1, 2})
        numbers.create(brokers.bootstraps, "t", 2)
        producer = numbers.producer_of(brokers.bootstraps)
        numbers.write(producer, "t", range(400))
        os.kill(brokers.pids[1], signal.SIGKILL)
        numbers.write(producer, "t", range(400, 800))
        brokers.wait_for_isr("t", {1, 2})

        os.kill(brokers.pids[2], signal.SIGSTOP)
        try:
            numbers.write(producer, "t", range(800, 1_200))
        finally:
            os.kill(brokers.pids[2], signal.SIGCONT)
        brokers.wait_for_isr("t", {1, 2})
        assert numbers.read(brokers.bootstraps, "t", 1_200) == list(range(1_200))
        assert numbers.committed(brokers.bootstraps, "t") == 300
        brokers.wait_for_isr("__consumer_offsets", {1, 2})


def test_the_command_line_prints_the_broker_before_each_line_and_stops_all_of_them(tmp_path: Path) -> None:
    listen = f"{LOOPBACK}:{free_ports_in_a_row(2)}"
    command = [sys.executable, "-c", "from penstock.cli.main import run; run()", "up", "--processes", "2"]
    options = ["--listen", listen, "--data", str(tmp_path / "data"), "--log-format", "text", "-s", "metrics.listener="]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if "all_ready" in line:
                process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert "starting 2 brokers" in lines[0]
    assert {line.partition("|")[0].strip() for line in lines[1:]} == {"supervisor", "broker 1", "broker 2"}


def test_data_of_one_broker_is_served_by_several(tmp_path: Path) -> None:
    with PenstockProcess(data=tmp_path / "data", settings={"metrics.listener": ""}) as alone:
        create_topic(alone.bootstrap, "t")
        with Wire(alone.bootstrap) as wire:
            assert wire.produce("t", batch(values=[b"x"])).error_code == NONE

    with Several(2, tmp_path / "data") as brokers:
        brokers.wait_for_members({1, 2})
        with Wire(brokers.bootstrap) as wire:
            wait_until(lambda: wire.listed("t").error_code == NONE, what="leader of t")
            assert wire.listed("t").offset == 1


def test_fewer_brokers_than_there_is_data_of_are_refused(tmp_path: Path) -> None:
    with Several(3, tmp_path / "data") as brokers:
        brokers.wait_for_members({1, 2, 3})
    listen = ("--listen", f"{LOOPBACK}:{free_ports_in_a_row(4)}", "--data", str(tmp_path / "data"))

    for few in ((), ("--processes", "2")):
        message = refused(*listen, *few)
        assert "brokers 1, 2 and 3" in message
        assert "--processes 3" in message

    with Several(4, tmp_path / "data") as brokers:
        brokers.wait_for_members({1, 2, 3, 4})


def test_other_ids_than_those_of_the_data_are_refused(tmp_path: Path) -> None:
    with PenstockProcess(data=tmp_path / "data", settings={"metrics.listener": ""}):
        pass
    listen = ("--listen", f"{LOOPBACK}:{free_ports_in_a_row(2)}", "--data", str(tmp_path / "data"))

    message = refused(*listen, "--processes", "2", "--set", "node.id=5")

    assert "node.id=1" in message
    assert "node.id=5" in message
    assert not (tmp_path / "data" / "brokers").exists()


def test_logs_without_their_metadata_are_refused(tmp_path: Path) -> None:
    with Several(2, tmp_path / "data") as brokers:
        brokers.wait_for_members({1, 2})
    (tmp_path / "data" / "metadata.sqlite").unlink()
    listen = ("--listen", f"{LOOPBACK}:{free_ports_in_a_row(2)}", "--data", str(tmp_path / "data"))

    message = refused(*listen, "--processes", "2")

    assert "metadata" in message
    assert "missing" in message
    assert not (tmp_path / "data" / "metadata.sqlite").exists()


def test_a_port_of_any_of_them_in_use_is_named_before_one_starts(tmp_path: Path) -> None:
    first = free_ports_in_a_row(3)
    with socket.socket() as taken:
        taken.bind((LOOPBACK, first + 2))
        taken.listen()

        message = refused("--listen", f"{LOOPBACK}:{first}", "--data", str(tmp_path / "data"), "--processes", "3")

    assert f":{first + 2}" in message
    assert "in use" in message
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("number", ["0", "-1", "many", "1000"])
def test_a_number_of_processes_is_a_small_positive_one(tmp_path: Path, number: str) -> None:
    assert number in refused("--data", str(tmp_path / "data"), f"--processes={number}", status=USAGE)


def test_a_broker_that_cannot_start_leaves_the_others_serving(tmp_path: Path) -> None:
    with Several(2, tmp_path / "data") as brokers:
        brokers.wait_for_members({1, 2})
        brokers.stop()
        meta = brokers.data / "brokers" / "2" / "meta.properties"
        right = meta.read_text()
        meta.write_text(right.replace("cluster.id=", "cluster.id=x"))
        PenstockProcess.start(brokers)
        wait_until(lambda: len(brokers.events("broker_ended")) >= 2, what="two restarts", seconds_max=PATIENCE_S)
        assert {event["broker_id"] for event in brokers.events("broker_ended")} == {2}
        assert [event["restart_s"] for event in brokers.events("broker_ended")][:2] == [0.5, 1.0]
        assert set(brokers.members()) == {1}

        meta.write_text(right)
        brokers.wait_for_members({1, 2})


def test_where_no_broker_can_start_the_supervisor_ends_too(tmp_path: Path) -> None:
    listen = f"{LOOPBACK}:{free_ports_in_a_row(2)}"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".lock").mkdir()
    (tmp_path / "data" / "brokers").write_text("no directory")

    message = refused("--listen", listen, "--data", str(tmp_path / "data"), "--processes", "2")

    assert "no broker can start" in message
