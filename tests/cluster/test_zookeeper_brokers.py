"""Real brokers whose metadata is in a real ZooKeeper that goes away, comes back, or is not there."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import POLL_SECONDS, Child, Deadline, free_port, free_ports_in_a_row
from penstock.testing.zookeeper import ZooKeeper, mode_of

pytestmark = pytest.mark.xdist_group("zookeeper")
WAIT_S = 60.0
PROGRAM = "from penstock.cli.main import run; run()"


@pytest.fixture
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as servers:
        yield servers


def create_topic(broker: PenstockProcess, name: str) -> None:
    """Create a topic, as soon as the broker has found its metadata store again."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    deadline = Deadline(WAIT_S)
    while True:
        try:
            admin.create_topics([NewTopic(name, 2, 1)], operation_timeout=30)[name].result(WAIT_S)
        except KafkaException as error:
            away = (KafkaError.KAFKA_STORAGE_ERROR, KafkaError.NOT_CONTROLLER, KafkaError.REQUEST_TIMED_OUT)
            if deadline.passed or error.args[0].code() not in away:
                raise
            time.sleep(POLL_SECONDS)
        else:
            return


def produce(broker: PenstockProcess, topic: str) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "message.timeout.ms": 30_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None]


def test_a_broker_goes_on_while_zookeeper_is_away_and_finds_it_again(zookeeper: ZooKeeper) -> None:
    settings = {"zookeeper.connect": f"{zookeeper.connect}/away", "broker.session.timeout.ms": "2000"}
    with PenstockProcess(settings=settings) as broker:
        create_topic(broker, "before")
        zookeeper.servers[0].kill()
        produce(broker, "before")
        zookeeper.servers[0].start()
        create_topic(broker, "after")
        produce(broker, "after")


def test_a_killed_broker_registers_again_when_its_former_session_ends(zookeeper: ZooKeeper) -> None:
    settings = {"zookeeper.connect": f"{zookeeper.connect}/again", "broker.session.timeout.ms": "2000"}
    with PenstockProcess(settings=settings) as broker:
        create_topic(broker, "kept")
        broker.kill()
        broker.start()
        produce(broker, "kept")
        create_topic(broker, "new")


def test_a_broker_without_its_zookeeper_does_not_start_and_says_why(tmp_path: Path) -> None:
    port = free_port()
    flags = ["--zookeeper", f"127.0.0.1:{port}/x", "--set", "zookeeper.connection.timeout.ms=500"]
    where = ["--data", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}"]
    command = [sys.executable, "-m", "penstock.broker", *where, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 1
    assert f"ZooKeeper at 127.0.0.1:{port} cannot be reached" in done.stderr
    assert "refused" in done.stderr


def members(port: int) -> dict[int, int]:
    """Ids and ports of the brokers that the one on a port knows; none while it does not serve."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    try:
        return {broker.id: broker.port for broker in admin.list_topics(timeout=2).brokers.values()}
    except KafkaException:
        return {}


@pytest.mark.parametrize("processes", [1, 2])
def test_brokers_of_the_command_line_stop_cleanly_by_a_signal_to_the_process_that_was_started(
    zookeeper: ZooKeeper, tmp_path: Path, processes: int
) -> None:
    port = free_ports_in_a_row(processes)
    where = ("--zookeeper", f"{zookeeper.connect}/command-{processes}", "--node-id", "5")
    what = ("--listen", f"127.0.0.1:{port}", "--data", str(tmp_path / "data"), "--processes", str(processes))
    command = [sys.executable, "-c", PROGRAM, "broker", *where, *what, "--set", "metrics.listener="]
    wanted = {5 + number: port + number for number in range(processes)}
    with Child(command, log=tmp_path / "log") as child:
        child.wait_until(lambda: members(port) == wanted, what="all brokers", seconds_max=WAIT_S)
        child.send_signal(signal.SIGTERM)
        assert child.wait(WAIT_S) == 0, child.tail()
        assert members(port) == {}


def test_a_zookeeper_of_the_command_line_ends_by_a_signal_to_the_process_that_was_started(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", PROGRAM, "dev", "zookeeper", "--port", str(port), "--data", str(tmp_path / "zk")]
    with Child(command, log=tmp_path / "log") as child:
        child.wait_until(lambda: mode_of(port) == "standalone", what="service", seconds_max=WAIT_S)
        child.send_signal(signal.SIGTERM)
        child.wait(WAIT_S)
        deadline = Deadline(WAIT_S)
        while mode_of(port):
            assert not deadline.passed, "ZooKeeper still serves"
