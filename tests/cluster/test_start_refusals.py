"""A broker that cannot start prints why and what to do, and exits with a matching status."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.small_disks import MakeDisk
from penstock.testing.broker_process import PenstockProcess
from penstock.testing.processes import LOOPBACK, free_port
from protocol.batches import batch
from protocol.raw import NONE, Wire, is_served
from protocol.topics import create_topic

pytestmark = pytest.mark.penstock_only
TIMEOUT = 120.0
FAILED, USAGE = 1, 2


def refused(*arguments: str, status: int) -> str:
    """Start a broker that must exit by itself; returns its output."""
    command = [sys.executable, "-m", "penstock.broker", *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == status, done.stdout
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]

        message = refused("--listen", f"{LOOPBACK}:{port}", "--data", str(tmp_path / "data"), status=FAILED)

    assert str(port) in message
    assert "in use" in message


def test_a_folder_that_another_broker_uses_is_refused(tmp_path: Path) -> None:
    with PenstockProcess(data=tmp_path / "data") as first:
        create_topic(first.bootstrap, "t")

        message = refused("--listen", f"{LOOPBACK}:{free_port()}", "--data", str(first.data), status=FAILED)

        assert str(first.data) in message
        with Wire(first.bootstrap) as wire:
            assert wire.produce("t", batch(values=[b"x"])).error_code == NONE


def test_a_lock_file_of_a_killed_broker_does_not_prevent_a_start(tmp_path: Path) -> None:
    with PenstockProcess(data=tmp_path / "data") as broker:
        broker.kill()
        broker.start()
        assert is_served(broker.bootstrap)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_open_listener_on_all_interfaces_is_refused_with_the_alternatives(tmp_path: Path, host: str) -> None:
    listen = f"{host}:{free_port()}"

    message = refused("--listen", listen, "--data", str(tmp_path / "data"), status=USAGE)

    assert host.strip("[]") in message
    assert "--insecure-listen" in message
    assert "127.0.0.1" in message
    assert not (tmp_path / "data").exists()


def test_an_open_listener_can_be_allowed_explicitly(tmp_path: Path) -> None:
    port = free_port()
    settings = {"advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}"}
    arguments = ("--listen", f"0.0.0.0:{port}", "--insecure-listen")
    with PenstockProcess(data=tmp_path / "data", port=port, settings=settings, arguments=arguments) as broker:
        create_topic(broker.bootstrap, "t")
        assert is_served(broker.bootstrap)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("log.retention.mss=1", ["log.retention.mss", "log.retention.ms"]),
        ("num.partitions=many", ["num.partitions", "many"]),
        ("num.partitions=0", ["num.partitions", "0"]),
        ("log.cleanup.policy=burn", ["log.cleanup.policy", "burn", "compact"]),
        ("num.partitions", ["num.partitions", "KEY=VALUE"]),
    ],
)
def test_a_bad_setting_is_named_with_its_value_and_what_is_allowed(
    tmp_path: Path, setting: str, words: list[str]
) -> None:
    listen = f"{LOOPBACK}:{free_port()}"

    message = refused("--listen", listen, "--data", str(tmp_path / "data"), "--set", setting, status=USAGE)

    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("broker.toml", "[broker\n", ["broker.toml"]),
        ("broker.toml", '"num.partitons" = 3\n', ["broker.toml", "num.partitons", "num.partitions"]),
        ("server.properties", "num.partitions=lots\n", ["server.properties", "num.partitions", "lots"]),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, text: str, words: list[str]) -> None:
    path = tmp_path / name
    path.write_text(text)
    listen = f"{LOOPBACK}:{free_port()}"

    message = refused("--config", str(path), "--listen", listen, "--data", str(tmp_path / "data"), status=USAGE)

    assert all(word in message for word in words), message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "absent.toml")

    assert path in refused("--config", path, "--data", str(tmp_path / "data"), status=USAGE)


def test_kafkas_own_properties_file_starts_a_broker(tmp_path: Path) -> None:
    port = free_port()
    path = tmp_path / "server.properties"
    path.write_text(
        "# as Apache Kafka ships it, in part\n"
        "process.roles=broker,controller\n"
        "node.id=7\n"
        f"listeners=PLAINTEXT://{LOOPBACK}:{port}\n"
        "num.partitions=4\n"
        "log.retention.hours=168\n"
        "log.segment.bytes=1073741824\n"
    )
    arguments = ("--config", str(path))
    with (
        PenstockProcess(data=tmp_path / "data", port=port, arguments=arguments) as broker,
        Wire(broker.bootstrap) as wire,
    ):
        assert wire.versions()


def test_data_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("not a folder")

    message = refused("--listen", f"{LOOPBACK}:{free_port()}", "--data", str(path), status=FAILED)

    assert str(path) in message
    assert path.read_text() == "not a folder"


def test_data_on_a_read_only_disk_is_refused(make_disk: MakeDisk) -> None:
    disk = make_disk("disk")
    disk.read_only()

    message = refused("--listen", f"{LOOPBACK}:{free_port()}", "--data", str(disk.folder / "data"), status=FAILED)

    assert str(disk.folder) in message
    assert "ead-only" in message


def test_assertions_cannot_be_switched_off(tmp_path: Path) -> None:
    command = [sys.executable, "-O", "-m", "penstock.broker", "--data", str(tmp_path / "data")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)

    assert done.returncode == USAGE
    assert "-O" in done.stderr
