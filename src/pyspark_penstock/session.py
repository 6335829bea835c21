"""Sessions: Spark on this machine, with or without a Java installation, and registration in other sessions.

Spark looks for data sources with the Python that the *environment* of its Java names: PYSPARK_DRIVER_PYTHON, else
PYSPARK_PYTHON, else ``python3`` of the PATH. It runs their tasks with the same one. Neither the Python of the driver
program nor the setting ``spark.pyspark.python`` counts. A source that is registered by the program runs with the Python
of that program's own functions instead (PYSPARK_PYTHON or ``spark.pyspark.python``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from pyspark_penstock.errors import PenstockRuntimeError
from pyspark_penstock.java import find_java_home
from pyspark_penstock.spark_internals import SPARK_VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"

CHECKPOINTS_BY_RENAME = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""A third less time per micro-batch than Spark's default, on file systems that rename atomically."""
CHECKPOINTS_BY_RENAME_4_0 = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"

CONNECT_TIMEOUT = "2m"
"""Spark gives Python 15 seconds to fetch a result from its JVM, which may be too short on a busy machine."""
PYARROW_VERSION_MIN = 18
PANDAS_VERSION_MIN = 2
PANDAS_VERSION_END = 3
INSTALL = "pip install 'penstock[spark]'"


def checkpoints_by_rename(spark_version: tuple[int, int] = SPARK_VERSION) -> str:
    """The class of the checkpoint file manager, by its name in this version of Spark."""
    return CHECKPOINTS_BY_RENAME_4_0 if spark_version == (4, 0) else CHECKPOINTS_BY_RENAME


class MissingPackage(PenstockRuntimeError):
    """A package that Spark needs to run this data source is missing or has the wrong version."""


def spark_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables that Spark's own programs need on this machine; variables that are set stay."""
    known = os.environ if environment is None else environment
    wanted = {
        "JAVA_HOME": str(find_java_home(known)),
        "PYSPARK_PYTHON": known.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": known.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        "SPARK_LOCAL_IP": known.get("SPARK_LOCAL_IP", LOOPBACK),
    }
    return {name: value for name, value in wanted.items() if known.get(name) != value}


def local_session(app: str, *, cores: int | str = 2, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session in a JVM of this process; the running one if there is one.

    ``conf`` overrides all other settings, the master included.
    """
    from pyspark.sql import SparkSession

    check_packages()
    running = SparkSession.getActiveSession()
    if running is not None:
        # Its JVM was started with an environment that this function did not set.
        register(running)
    os.environ.update(spark_environment())
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.shuffle.partitions": str(cores if isinstance(cores, int) else 2),
        "spark.sql.session.timeZone": "UTC",
        "spark.python.authenticate.socketTimeout": CONNECT_TIMEOUT,
        "spark.sql.streaming.checkpointFileManagerClass": checkpoints_by_rename(),
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def register(spark: SparkSession) -> None:
    """Register ``format("penstock")`` in a session that does not find it, or finds it in another Python.

    The source then runs with the Python that runs this session's Python functions, here and in executors:
    PYSPARK_PYTHON, or the setting ``spark.pyspark.python`` of spark-submit. In a session on this machine alone where
    neither is set, it is the Python of this program, as in a virtual environment that is not activated.
    """
    from pyspark_penstock import DefaultSource

    context = getattr(spark, "_sc", None)
    if context is not None and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    spark.dataSource.register(DefaultSource)


def check_packages() -> None:
    """Refuse missing or unsuitable packages, which would fail later in a Python worker."""
    _require("pyarrow", PYARROW_VERSION_MIN, None, "Spark passes records to Python with it")
    _require("pandas", PANDAS_VERSION_MIN, PANDAS_VERSION_END, "PySpark uses it beside pyarrow")


def _require(package: str, least: int, end: int | None, reason: str) -> None:
    try:
        found = version(package)
    except PackageNotFoundError:
        raise MissingPackage(f"{package} is not installed ({reason}): run {INSTALL}") from None
    major = int(found.split(".", 1)[0])
    if major < least:
        raise MissingPackage(f"{package} {found} is too old, {least} is the least ({reason}): run {INSTALL}")
    if end is not None and major >= end:
        raise MissingPackage(f"{package} {found} is too new for PySpark ({reason}): run pip install '{package}<{end}'")
