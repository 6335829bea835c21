"""How a broker's process ends: by which signals, and with whatever reads its log."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from penstock.testing.processes import free_port, port_answers

PATIENCE_S = 120.0
LISTENING_S = 0.05


def start(
    folder: Path, stderr: int | IO[bytes], prepare: Callable[[], object] | None = None
) -> subprocess.Popen[bytes]:
    """A broker that is about to listen; `prepare` runs in its process first."""
    port = free_port()
    command = [sys.executable, "-m", "penstock.broker", "--set", "metrics.listener="]
    where = ["--listen", f"127.0.0.1:{port}", "--data", str(folder / "data")]
    broker = subprocess.Popen([*command, *where], stderr=stderr, preexec_fn=prepare)
    end_s = time.monotonic() + PATIENCE_S
    while not port_answers(port):
        assert broker.poll() is None, "the broker did not start"
        assert time.monotonic() < end_s, "the broker does not listen"
        time.sleep(LISTENING_S)
    return broker


def events(log: Path) -> list[str]:
    return [line.split('"event": "')[1].split('"')[0] for line in log.read_text().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_these_signals_stop_a_broker_clean(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        broker = start(tmp_path, stderr)
        broker.send_signal(number)

        assert broker.wait(PATIENCE_S) == 0
    assert events(log)[-2:] == ["stopping", "stopped"]


def test_a_broker_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        broker = start(tmp_path, stderr, lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        broker.send_signal(signal.SIGHUP)
        broker.send_signal(signal.SIGTERM)

        assert broker.wait(PATIENCE_S) == 0
    assert events(log)[-2:] == ["stopping", "stopped"]


def test_a_log_that_is_not_read_stops_neither_the_broker_nor_its_end(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    room = fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ)
    os.write(write_end, bytes(room))
    broker = start(tmp_path, write_end)
    broker.send_signal(signal.SIGTERM)

    assert broker.wait(PATIENCE_S) == 0
    os.close(read_end)
    os.close(write_end)


def test_a_log_whose_reader_left_stops_neither_the_broker_nor_its_end(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    broker = start(tmp_path, write_end)
    os.close(write_end)
    broker.send_signal(signal.SIGTERM)

    assert broker.wait(PATIENCE_S) == 0
