"""Spark's own programs as processes: a master, workers, a Connect server, a driver; ended by their own ids."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark

from penstock.testing.processes import LOOPBACK, Child, free_ports, port_responds, process_tree
from pyspark_penstock.session import spark_environment

TESTS = Path(__file__).parent.parent
SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS_MAX = 180.0
DRIVER_SECONDS_MAX = 400.0
SHORT_LIVED_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""A Java that lives for seconds need not learn to be fast; a third of its start is spared."""


def environment(folder: Path) -> dict[str, str]:
    return {
        **spark_environment(),
        **SHORT_LIVED_JAVA,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_DIRS": str(folder),
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
    }


def driver(folder: Path, *arguments: str, program: str = "driver_program.py") -> Child:
    """A driver program of these tests."""
    command = [sys.executable, str(TESTS / "spark" / program), *arguments]
    return Child(command, log=folder / "driver.log", environment=environment(folder), folder=folder)


def kill_driver(child: Child) -> None:
    """SIGKILL to the driver and its Java. Python workers live on for as long as they do on a dead machine's network."""
    for pid in process_tree(child.pid):
        with contextlib.suppress(OSError):
            if pid == child.pid or b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0", 1)[0]:
                os.kill(pid, signal.SIGKILL)


def executor_of(pid: int) -> int:
    """The executor's Java under which a Python worker runs."""
    while pid > 1:
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    raise AssertionError("no executor")


def processes_of(folder: Path) -> list[int]:
    """All processes that run in the environment of this folder, in any process group."""
    setting = f"SPARK_LOCAL_DIRS={folder}".encode()
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if setting in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


@contextlib.contextmanager
def standalone_cluster(
    folder: Path, hosts: Sequence[str] = (LOOPBACK, LOOPBACK), surroundings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A master and a worker on each host, from the files that pip installed; the master's address.

    ``surroundings`` is their environment where it is not to name the Python of these tests.
    """
    around = environment(folder) if surroundings is None else surroundings
    port, web = free_ports(2)
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    with contextlib.ExitStack() as started:

        def start(name: str, *arguments: str) -> Child:
            log = folder / f"{name}.log"
            child = Child([spark_class, *arguments], log=log, environment=around, folder=folder)
            started.callback(child.kill)
            return child

        master = start(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", LOOPBACK, "--port", str(port), "--webui-port", str(web)),
        )
        master.wait_until(lambda: port_responds(port), what="master", seconds_max=START_SECONDS_MAX)
        address = f"spark://{LOOPBACK}:{port}"
        for number, host in enumerate(hosts):
            start(
                f"worker-{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(folder / f"work-{number}"), address),
            )
        yield address


@contextlib.contextmanager
def connect_server(folder: Path, master: str) -> Iterator[str]:
    """A Spark Connect server that logs all it can; the address for clients."""
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "INFO",
    }
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", master),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        "spark-internal",
    ]
    child = Child(command, log=folder / "connect.log", environment=environment(folder), folder=folder)
    try:
        child.wait_until(lambda: port_responds(port), what="Connect server", seconds_max=START_SECONDS_MAX)
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        child.kill()
