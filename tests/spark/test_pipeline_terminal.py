"""A declared pipeline in one terminal, inspected and stopped from another, and continued."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.pipelines.spec import read_spec
from pyspark_penstock.pipelines.spec_run import start_pipeline
from spark.late_workers import run_queries
from spark.pipeline_processes import SECONDS_MAX, command, environment, has_reported, run_command, wait_until
from spark.topic_contents import make_topic, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = """
[pipeline]
name = "doubles"
trigger = "100ms"

[sources.numbers]
topic = "{source}"
schema = "n BIGINT"

[steps.doubled]
sql = "SELECT n * 2 AS n FROM numbers"

[sinks.out]
from = "doubled"
topic = "{target}"
"""


def send(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, json.dumps({"n": number}).encode())
    assert producer.flush(SECONDS_MAX) == 0


def test_a_pipeline_is_seen_and_stopped_from_another_terminal_and_goes_on(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    source, target = make_topic(broker.bootstrap, 1), make_topic(broker.bootstrap, 1)
    file, state = tmp_path / "doubles.toml", tmp_path / "state"
    file.write_text(SPEC.format(source=source, target=target))
    send(broker.bootstrap, source, 0, 100)
    variables = environment(state, broker.bootstrap)
    run = [*command("pipeline", "run", str(file), "--master", "local[2]"), "-o", "json"]
    exported = {**os.environ, **variables}
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=exported) as process:

        def has_reported_or_ended() -> bool:
            return process.poll() is not None or has_reported(state, "doubles", process.pid)

        try:
            wait_until(has_reported_or_ended, "batch of a pipeline")
            (seen,) = run_command(["pipeline", "list"], variables, tmp_path)
            again = subprocess.run(run, capture_output=True, text=True, check=False, timeout=SECONDS_MAX, env=exported)
            stopped = run_command(["pipeline", "stop", "doubles"], variables, tmp_path)
            output, _ = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
    assert (seen["name"], seen["kind"], seen["status"], seen["rows"]) == ("doubles", "run", "running", 100)
    assert "runs already, as process" in again.stderr
    assert stopped == {"name": "doubles", "status": "stopped"}
    assert process.returncode == 0
    assert json.loads(output)["status"] == "stopped"
    send(broker.bootstrap, source, 100, 10)
    # It goes on in this process's Spark, which has started already.
    spec = replace(read_spec(file), once=True)
    place = str(state / "checkpoints" / "doubles")
    run_queries(lambda: start_pipeline(spark, spec, bootstrap=broker.bootstrap, checkpoint=place))
    assert [json.loads(each)["n"] for each in values(broker.bootstrap, target)] == [2 * n for n in range(110)]


LATE_PYTHON = """#!/bin/sh
# The Python of Spark's workers, whose first streaming source never connects.
case "$*" in *python_streaming_source_runner*) [ -e "{mark}" ] || {{ : > "{mark}"; exec sleep 60; }} ;; esac
exec "{python}" "$@"
"""


@pytest.mark.slow
def test_a_pipeline_starts_again_where_a_python_worker_of_spark_is_late(
    broker: PenstockProcess, tmp_path: Path
) -> None:
    source, target = make_topic(broker.bootstrap, 1), make_topic(broker.bootstrap, 1)
    file, late, mark = tmp_path / "doubles.toml", tmp_path / "python", tmp_path / "was-late"
    file.write_text(SPEC.format(source=source, target=target).replace('trigger = "100ms"', 'trigger = "once"'))
    late.write_text(LATE_PYTHON.format(mark=mark, python=sys.executable))
    late.chmod(0o755)
    send(broker.bootstrap, source, 0, 10)

    shown = run_command(
        ["pipeline", "run", str(file), "--master", "local[2]"],
        {**environment(tmp_path / "state", broker.bootstrap), "PYSPARK_DRIVER_PYTHON": str(late)},
        tmp_path,
    )

    assert mark.exists()
    assert (shown["status"], shown["error"]) == ("finished", "")
    assert [json.loads(each)["n"] for each in values(broker.bootstrap, target)] == [2 * n for n in range(10)]
