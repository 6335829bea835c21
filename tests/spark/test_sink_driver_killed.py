"""A driver that is killed with its JVM, and restarted on the same checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark.counted_stream import CountedStream
from spark.cutting import CLIENT, END_TXN, Cut, CuttingProxy
from spark.driver_program import SECRET
from spark.spark_processes import DRIVER_SECONDS_MAX, driver, kill_driver
from spark.topic_contents import make_topic

# The second end is the ledger's: before it nothing is decided, after it everything is and nothing is committed yet.
FEW_CUTS = (Cut(END_TXN, 3, True, CLIENT),)
ALL_CUTS = (Cut(END_TXN, 2, False, CLIENT), Cut(END_TXN, 2, True, CLIENT), *FEW_CUTS)
CUTS = ALL_CUTS if os.environ.get("PENSTOCK_TEST_SPARK_KILLS") else FEW_CUTS


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_driver_killed_around_its_decision_loses_and_duplicates_nothing_and_logs_no_secret(tmp_path: Path) -> None:
    with CuttingProxy() as proxy:
        stream = CountedStream(tmp_path, make_topic(proxy.bootstrap))
        for cut in CUTS:
            stream.add_batch()
            proxy.arm(cut)
            child = driver(tmp_path, str(tmp_path), stream.topic, proxy.bootstrap)
            proxy.kill_client = lambda _, child=child: kill_driver(child)
            assert child.wait(DRIVER_SECONDS_MAX) == -9, child.tail()
            child.kill()
            assert proxy.fired

        last = driver(tmp_path, str(tmp_path), stream.topic, proxy.bootstrap)
        assert last.wait(DRIVER_SECONDS_MAX) == 0, last.tail()
        last.kill()

        stream.check(proxy.bootstrap)
    assert any(path.name.startswith("events_") for path in tmp_path.rglob("*")), "no event log"
    assert [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []
