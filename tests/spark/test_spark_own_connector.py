"""Spark's own Kafka connector against a penstock broker: batch, stream and sink; and a move from it to ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.broker_process import PenstockProcess
from spark.spark_processes import SHORT_LIVED_JAVA

HERE = Path(__file__).parent
SECONDS_MAX = 400


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.needs("spark-kafka-jars")
def test_sparks_own_kafka_connector_works_and_a_query_moves_from_it(broker: PenstockProcess, tmp_path: Path) -> None:
    """In a process of its own: jars belong to a session from its start."""
    program = [sys.executable, str(HERE / "own_connector.py"), broker.bootstrap, str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    environment |= SHORT_LIVED_JAVA
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert done.stdout.split("\n")[-2] == "all is well"
