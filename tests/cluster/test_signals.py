"""How a broker process ends: by which signals, and with which readers of its log."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from cluster.own_process import PATIENCE_S, start


def events(log: Path) -> list[str]:
    return [line.split('"event": "')[1].split('"')[0] for line in log.read_text().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_these_signals_stop_a_broker_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        broker = start(tmp_path, stderr).process
        broker.send_signal(number)

        assert broker.wait(PATIENCE_S) == 0
    assert events(log)[-2:] == ["stopping", "stopped"]


def test_a_broker_under_nohup_survives_its_terminal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        broker = start(tmp_path, stderr, lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)).process
        broker.send_signal(signal.SIGHUP)
        broker.send_signal(signal.SIGTERM)

        assert broker.wait(PATIENCE_S) == 0
    assert events(log)[-2:] == ["stopping", "stopped"]


def test_an_unread_log_blocks_neither_the_broker_nor_its_shutdown(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    room = fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ)
    os.write(write_end, bytes(room))
    broker = start(tmp_path, write_end).process
    broker.send_signal(signal.SIGTERM)

    assert broker.wait(PATIENCE_S) == 0
    os.close(read_end)
    os.close(write_end)


def test_a_log_whose_reader_exited_blocks_neither_the_broker_nor_its_shutdown(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    broker = start(tmp_path, write_end).process
    os.close(write_end)
    broker.send_signal(signal.SIGTERM)

    assert broker.wait(PATIENCE_S) == 0
