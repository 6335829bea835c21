"""The examples run as they stand, against a broker with default settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.apache_kafka import find_java, find_libs
from penstock.testing.processes import free_ports

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
        ("queue_worker.py", "8 jobs done, 2 rejected"),
        ("queue_priorities.py", "delivered 10 urgent and 10 normal mails"),
    ],
)
def test_a_python_example_reads_what_it_sent(broker: Any, name: str, last_words: str) -> None:
    said = run([sys.executable, "-W", "ignore", str(EXAMPLES / name), broker.bootstrap])

    assert said.splitlines()[-1] == last_words


def test_an_example_goes_to_the_broker_that_the_environment_names(broker: Any) -> None:
    said = run([sys.executable, str(EXAMPLES / "with_confluent_kafka.py")], PENSTOCK_BOOTSTRAP=broker.bootstrap)

    assert said.splitlines()[-1] == "read 10 orders"


def test_where_says_which_broker_the_examples_use(broker: Any) -> None:
    assert run([sys.executable, str(EXAMPLES / "where.py"), broker.bootstrap]) == f"{broker.bootstrap}\n"


ARGUMENTS = {
    "at_least_once.py": ["--topic", "t", "--group", "g"],
    "at_most_once.py": ["--topic", "t", "--group", "g"],
    "read_process_write.py": ["--source", "s", "--target", "t", "--group", "g", "--name", "n"],
}
MODULES = ("clicks.py", "top_products.py")
"""Which others import, and are no programs of their own."""
PROGRAMS = sorted(path for ending in ("py", "sh") for path in EXAMPLES.rglob(f"*.{ending}") if path.name not in MODULES)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_without_a_broker_an_example_ends_with_one_line_that_says_so(program: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-W", "ignore", str(program)] if program.suffix == ".py" else [str(program)]

    done = subprocess.run(
        [*command, *ARGUMENTS.get(program.name, [])],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": f"127.0.0.1:{port}"},
    )

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"no broker answers at 127.0.0.1:{port}: start one with `penstock up`")


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


@pytest.mark.needs("kafka-jars")
def test_the_example_of_a_queue_with_kafkas_tools_delivers_released_records_again(broker: Any) -> None:
    said = run([str(EXAMPLES / "queue_with_kafka_tools.sh"), broker.bootstrap], JAVA=str(find_java()))

    assert "\ntea\ncoffee\nwater\n" in said
    assert "Delivery:2\ttea\nDelivery:2\tcoffee\nDelivery:2\twater\n" in said
    assert said.splitlines()[-1].split()[-1] == "0", "no lag"


@pytest.mark.needs("kafka-jars")
@pytest.mark.needs("javac")
def test_the_example_of_a_queue_in_java_does_its_jobs_with_their_second_attempt(broker: Any) -> None:
    worker = str(EXAMPLES / "QueueWorker.java")
    said = run([str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", f"{find_libs()}/*", worker, broker.bootstrap])

    assert said.endswith("10 jobs done\n")


def test_every_example_is_run_by_some_test() -> None:
    named = "".join(path.read_text() for path in Path(__file__).parent.parent.rglob("test_*.py"))

    assert not [path.name for path in EXAMPLES.iterdir() if path.is_file() and path.name not in named]
