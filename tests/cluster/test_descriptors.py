"""More connections than a broker has file descriptors: its logs are served, and it recovers when they close."""

from __future__ import annotations

import resource
import signal
import socket
from pathlib import Path

import pytest

from cluster.own_process import PATIENCE_S, start
from protocol.batches import batch
from protocol.raw import NONE, Wire
from protocol.topics import create_topic

pytestmark = pytest.mark.penstock_only
LIMIT = 300
PARTITIONS = 20


def test_a_flood_of_connections_leaves_the_logs_their_descriptors(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

    with (tmp_path / "log").open("wb") as stderr:
        broker = start(tmp_path, stderr, limit)
    create_topic(broker.bootstrap, "flooded", partitions=PARTITIONS)
    with Wire(broker.bootstrap) as wire:
        flood = [socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S) for _ in range(2 * LIMIT)]
        # Connections beyond the limit are closed: the last one is refused once it reads the end of the stream.
        assert flood[-1].recv(1) == b""
        for partition in range(PARTITIONS):
            assert wire.produce("flooded", batch(values=[b"1"]), partition=partition).error_code == NONE
        for sock in flood:
            sock.close()

    create_topic(broker.bootstrap, "after-the-flood")
    with Wire(broker.bootstrap) as wire:
        assert wire.produce("after-the-flood", batch(values=[b"1"])).error_code == NONE
    broker.process.send_signal(signal.SIGTERM)
    assert broker.process.wait(PATIENCE_S) == 0
    log = (tmp_path / "log").read_text()
    assert "connections_full" in log
    assert "offline" not in log
