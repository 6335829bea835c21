"""Source and sink in every minor version of PySpark that is supported, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.sparks import VERSIONS, spark_folder

from penstock.testing.broker_process import PenstockProcess
from spark.spark_processes import SHORT_LIVED_JAVA

HERE = Path(__file__).parent
SECONDS_MAX = 400
OF_ANOTHER_SPARK = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_HOME")


def marks_of(version: str) -> list[pytest.MarkDecorator]:
    """Every run has the oldest and the newest; what is between them, and not in .venv, belongs to the long ones."""
    marks = [pytest.mark.needs(f"pyspark-{version}")]
    return marks if version in (VERSIONS[0], VERSIONS[-1]) else [*marks, pytest.mark.soak]


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("version", [pytest.param(each, marks=marks_of(each)) for each in VERSIONS])
def test_a_supported_version_reads_and_writes_and_refuses_unsupported_options(
    broker: PenstockProcess, tmp_path: Path, version: str
) -> None:
    path = os.pathsep.join([str(spark_folder(HERE.parents[1], version)), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_SPARK}
    environment |= {**SHORT_LIVED_JAVA, "PYTHONPATH": path}
    program = [sys.executable, str(HERE / "version_program.py"), broker.bootstrap, str(tmp_path)]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert done.stdout.split("\n")[-2] == "all is well"
