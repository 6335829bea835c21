"""An executor is killed whose shuffle files a writing stage needs: its second run does not disturb the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.broker_process import PenstockProcess
from spark.executor_loss_program import ROWS_PER_TASK, TASKS, twins
from spark.spark_processes import DRIVER_SECONDS_MAX, driver
from spark.topic_contents import make_topic, values


@pytest.mark.slow
def test_a_stage_that_runs_again_beside_its_first_run_writes_every_row_once(
    broker: PenstockProcess, tmp_path: Path
) -> None:
    topics = [make_topic(broker.bootstrap) for _ in range(2)]

    child = driver(tmp_path, broker.bootstrap, *topics, str(tmp_path), program="executor_loss_program.py")
    try:
        assert child.wait(DRIVER_SECONDS_MAX) == 0, child.tail()
    finally:
        child.kill()

    for topic, mode in zip(topics, ("batch", "stream"), strict=True):
        assert twins(tmp_path / mode), "no task ran twice under one attempt number"
        found = sorted(value.split("-x")[0] for value in values(broker.bootstrap, topic))
        assert found == sorted(f"{task}-{row}" for task in range(TASKS) for row in range(ROWS_PER_TASK)), mode
