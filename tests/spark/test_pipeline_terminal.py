"""A declared pipeline in one terminal, seen and stopped from another, and gone on with."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.pipelines.spec import read_spec
from pyspark_penstock.pipelines.spec_run import start_pipeline
from spark.topic_contents import make_topic, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = "from penstock.cli.main import run; run()"
SECONDS_MAX = 90.0
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


def command(state: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-c", RUN, "pipeline", *arguments, "--state-dir", str(state), "-o", "json"]


def ask(state: Path, *arguments: str) -> Any:
    done = subprocess.run(command(state, *arguments), capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def send(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, json.dumps({"n": number}).encode())
    assert producer.flush(20) == 0


def test_a_pipeline_is_seen_and_stopped_from_another_terminal_and_goes_on(
    broker: PenstockProcess, spark: SparkSession, tmp_path: Path
) -> None:
    source, target = make_topic(broker.bootstrap, 1), make_topic(broker.bootstrap, 1)
    file, state = tmp_path / "doubles.toml", tmp_path / "state"
    file.write_text(SPEC.format(source=source, target=target))
    send(broker.bootstrap, source, 0, 100)
    run = command(state, "run", str(file), "-b", broker.bootstrap, "--master", "local[2]")
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + SECONDS_MAX
        while not (state / "pipelines" / "doubles.json").exists() or not ask(state, "list")[0]["rows"]:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.5)
        (seen,) = ask(state, "list")
        again = subprocess.run(run, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
        stopped = ask(state, "stop", "doubles")
        answered, _ = process.communicate(timeout=SECONDS_MAX)
    assert (seen["name"], seen["kind"], seen["status"], seen["rows"]) == ("doubles", "run", "running", 100)
    assert "runs already, as process" in again.stderr
    assert stopped == {"name": "doubles", "status": "stopped"}
    assert process.returncode == 0
    assert json.loads(answered)["status"] == "stopped"
    send(broker.bootstrap, source, 100, 10)
    # It goes on in this process's Spark, which has started already.
    spec = replace(read_spec(file), once=True)
    place = str(state / "checkpoints" / "doubles")
    (query,) = start_pipeline(spark, spec, bootstrap=broker.bootstrap, checkpoint=place)
    query.awaitTermination()
    assert [json.loads(each)["n"] for each in values(broker.bootstrap, target)] == [2 * n for n in range(110)]
