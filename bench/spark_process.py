"""Spark sessions as child processes: one for each Python, so that each penstock has its own data source."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.spark_jars import is_complete, jars, jars_folder

from bench.client_program import ROOT
from bench.comparison import costed, moved
from bench.samples import BASELINE, KAFKA, PENSTOCK
from bench.sides import OWN_PACKAGES, Contender, Side
from penstock.testing.processes import ProcessFailed, process_tree, usage

PROGRAM = Path(__file__).resolve().parent / "spark_session.py"
FORMATS = {KAFKA: "kafka", PENSTOCK: "penstock", BASELINE: "penstock"}
RESPONSE_SECONDS_MAX = 900
STOP_SECONDS_MAX = 60
LOG_TAIL_BYTES = 4_000
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
WORKER_PROGRAM = b"pyspark.daemon"


class SparkProcess:
    """One session with the PySpark and the data source of one Python."""

    def __init__(self, python: Path, conf: dict[str, str]) -> None:
        self._log = tempfile.TemporaryFile(prefix="penstock-bench-spark-")  # noqa: SIM115
        self._process = subprocess.Popen(
            session_command(python, conf),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **session_environment(python)},
            start_new_session=True,
        )
        try:
            self.source = Path(self._response()["source"])
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, query: str, **arguments: Any) -> dict[str, float]:
        """The figures of a query of bench/spark_session.py."""
        assert self._process.stdin is not None, "its input is a pipe"
        self._process.stdin.write(json.dumps({"query": query, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        response = self._response()
        if "error" in response:
            raise ProcessFailed(f"Spark's {query} failed: {response['error']}")
        return dict(response["figures"])

    def _response(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "its output is a pipe"
        readable, _, _ = select.select([self._process.stdout], [], [], RESPONSE_SECONDS_MAX)
        if not readable:
            raise ProcessFailed(f"Spark did not respond within {RESPONSE_SECONDS_MAX} s\n{self._tail()}")
        line = self._process.stdout.readline()
        if not line:
            raise ProcessFailed(f"the Spark session of {self._process.args!r} has ended\n{self._tail()}")
        response: dict[str, Any] = json.loads(line)
        return response

    def _tail(self) -> str:
        # The child writes at the position of the same open file, so the position must not change.
        written = os.fstat(self._log.fileno()).st_size
        begin = max(0, written - LOG_TAIL_BYTES)
        return os.pread(self._log.fileno(), LOG_TAIL_BYTES, begin).decode(errors="replace")

    def worker_peak_bytes(self) -> float:
        """The most memory that any of the session's Python workers has held."""
        return max((_worker_peak(pid) for pid in process_tree(self.pid)), default=0.0)

    def close(self) -> None:
        """End the session with its input; kill what is left of its process group."""
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS_MAX)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def session_command(python: Path, conf: dict[str, str]) -> tuple[str, ...]:
    return (str(python), str(PROGRAM), json.dumps(conf))


def session_environment(python: Path) -> dict[str, str]:
    """Environment variables that name the Python with which Spark runs data sources."""
    return {**OWN_PACKAGES, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}


@contextlib.contextmanager
def sessions(contenders: Sequence[Contender]) -> Iterator[dict[str, SparkProcess]]:
    """A session for each Python, by the name of the side. Spark's own connector runs in the session of this one."""
    folder = jars_folder(ROOT)
    conf = {"spark.log.level": "ERROR", UNIX_SOCKETS: "true"}
    if any(contender.name == KAFKA for contender in contenders):
        if not is_complete(folder):
            raise ProcessFailed(f"no jars of Spark's Kafka connector in {folder}: run `make spark-jars`")
        conf["spark.jars"] = ",".join(map(str, jars(folder)))
    with contextlib.ExitStack() as running:
        by_python: dict[Path, SparkProcess] = {}
        by_name: dict[str, SparkProcess] = {}
        for contender in contenders:
            python = contender.python or Path(sys.executable)
            if python not in by_python:
                by_python[python] = SparkProcess(python, conf)
                running.callback(by_python[python].close)
            by_name[contender.name] = by_python[python]
        sources = [session.source for session in by_python.values()]
        if len(set(sources)) < len(sources):
            raise ProcessFailed(f"two Spark sessions import one pyspark_penstock, {sources[0]}")
        yield by_name


def spark_costed(side: Side, spark: SparkProcess, query: str, size: float, **arguments: Any) -> dict[str, float]:
    """The figures of a query that moves records of ``size`` bytes, and what it cost the broker and Spark."""

    def work() -> dict[str, float]:
        figures = spark.run(query, **arguments)
        if "seconds" not in figures:
            return {**figures, "bytes": figures["messages"] * size}
        return moved(figures["messages"], figures.get("bytes", figures["messages"] * size), figures["seconds"])

    before = usage(spark.pid).cpu_seconds
    values = costed(side, work)
    spark_cpu_seconds = usage(spark.pid).cpu_seconds - before
    return {
        **values,
        "spark_cpu_seconds": spark_cpu_seconds,
        "spark_cpu_us_per_message": spark_cpu_seconds * 1e6 / values["messages"],
    }


def _worker_peak(pid: int) -> float:
    """Peak resident bytes of a worker that Spark has forked, 0 for any other process."""
    process = Path(f"/proc/{pid}")
    try:
        if WORKER_PROGRAM not in (process / "cmdline").read_bytes():
            return 0.0
        fields = dict(each.split(":", 1) for each in (process / "status").read_text().splitlines() if ":" in each)
    except (OSError, ValueError):
        return 0.0
    return float(fields.get("VmHWM", "0 kB").split()[0]) * 1024
