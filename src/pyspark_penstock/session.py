"""Spark on this machine, whether or not it has a Java, with settings that suit small programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_penstock.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"

CHECKPOINTS_BY_RENAME = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""A third less time per micro-batch than Spark's default, on file systems that rename atomically."""

CONNECT_TIMEOUT = "2m"
"""Spark gives Python 15 seconds to fetch a result from its Java, which a busy machine may not keep."""


def spark_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What Spark's own programs need in their environment on this machine; what is set already stays."""
    known = os.environ if environment is None else environment
    wanted = {
        "JAVA_HOME": str(find_java_home(known)),
        "PYSPARK_PYTHON": known.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": known.get("PYSPARK_DRIVER_PYTHON", sys.executable),
        "SPARK_LOCAL_IP": known.get("SPARK_LOCAL_IP", LOOPBACK),
    }
    return {name: value for name, value in wanted.items() if known.get(name) != value}


def local_session(app: str, *, cores: int | str = 2, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session that runs in this process's own Java; the one that is running already, where there is one.

    ``conf`` comes last and may say anything else, the master included.
    """
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    settings = {
        "spark.master": f"local[{cores}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.shuffle.partitions": str(cores if isinstance(cores, int) else 2),
        "spark.sql.session.timeZone": "UTC",
        "spark.python.authenticate.socketTimeout": CONNECT_TIMEOUT,
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS_BY_RENAME,
        **(conf or {}),
    }
    builder = SparkSession.builder.appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
