"""Logging while the reader of the stream stalls, closes it, or is slow."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator

import pytest
import structlog

from penstock.observe.log import LogFormat, configure, logger
from penstock.observe.log_queue import QUEUE_BYTES_MAX, QueuedStream

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _configuration() -> Iterator[None]:
    """Restore the previous configuration."""
    root = logging.getLogger()
    handlers, level, before = list(root.handlers), root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**before)


def test_lines_arrive_in_order_and_the_last_ones_before_the_end() -> None:
    out = io.StringIO()
    stream = QueuedStream(out)
    configure(log_format=LogFormat.JSON, stream=stream)

    for number in range(100):
        logger("test").info("counted", number=number)
    stream.drain(PATIENCE_S)

    assert [json.loads(line)["number"] for line in out.getvalue().splitlines()] == list(range(100))


def test_a_stalled_reader_does_not_block_and_gets_the_count_of_dropped_lines() -> None:
    read_end, write_end = os.pipe()
    received = bytearray()

    def read_all() -> None:
        while piece := os.read(read_end, 1 << 16):
            received.extend(piece)

    with os.fdopen(write_end, "w") as out:
        stream = QueuedStream(out)
        configure(log_format=LogFormat.JSON, stream=stream)
        filler = "x" * 4000
        logged = 2 * QUEUE_BYTES_MAX // len(filler)
        for _ in range(logged):
            logger("test").info("filler", text=filler)
        reader = threading.Thread(target=read_all)
        reader.start()
        stream.drain(PATIENCE_S)
    reader.join(PATIENCE_S)
    os.close(read_end)

    lines = [json.loads(line) for line in received.decode().splitlines()]
    dropped = sum(line["count"] for line in lines if line["event"] == "log_lines_dropped")
    assert dropped > 0
    assert sum(line["event"] == "filler" for line in lines) + dropped == logged


def test_a_closed_pipe_does_not_block() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as out:
        stream = QueuedStream(out)
        configure(log_format=LogFormat.JSON, stream=stream)

        logger("test").info("unheard")
        stream.drain(PATIENCE_S)


def test_a_stalled_reader_does_not_block_the_end_of_a_process() -> None:
    read_end, write_end = os.pipe()
    out = os.fdopen(write_end, "w")
    stream = QueuedStream(out)
    stream.write("x" * (1 << 20))

    stream.drain(timeout_s=0.0)

    os.close(read_end)  # The write that waits fails, and its thread ends.
    stream.drain(PATIENCE_S)
    out.close()
