"""The examples run as they stand, against a broker with default settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.apache_kafka import find_java

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT = 150.0


def run(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "last_words"),
    [
        ("with_confluent_kafka.py", "read 10 orders"),
        ("with_kafka_python.py", "read 10 orders"),
        ("with_aiokafka.py", "read 10 orders"),
        ("with_faststream.py", "read 10 bills"),
    ],
)
def test_a_python_example_reads_what_it_sent(broker: Any, name: str, last_words: str) -> None:
    said = run([sys.executable, "-W", "ignore", str(EXAMPLES / name), broker.bootstrap])

    assert said.splitlines()[-1] == last_words


@pytest.mark.needs("kcat")
def test_the_example_with_kcat_reads_what_it_sent(broker: Any) -> None:
    said = run([str(EXAMPLES / "with_kcat.sh"), broker.bootstrap])

    assert '"payload":"coffee"' in said
    assert "the last order: water at offset 2" in said
    assert "offset 0" in said.splitlines()[-1]


@pytest.mark.needs("kafka-jars")
def test_the_example_with_kafkas_tools_reads_what_it_sent(broker: Any) -> None:
    said = run([str(EXAMPLES / "with_kafka_tools.sh"), broker.bootstrap], JAVA=str(find_java()))

    assert "tea\ncoffee\nwater\n" in said
    assert said.splitlines()[-1].endswith(":0:3")


def test_every_example_is_run_by_some_test() -> None:
    named = "".join(path.read_text() for path in Path(__file__).parent.parent.rglob("test_*.py"))

    assert not [path.name for path in EXAMPLES.iterdir() if path.is_file() and path.name not in named]
