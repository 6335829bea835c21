"""One SparkSession for all tests that use it, in one test worker; tests with programs of their own go beside them.

The kill matrix is collected only in its long form: the other tests of kills are its short one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
TEST_SECONDS_MAX = 600
"""A machine that does more than these tests may need minutes for what takes it seconds alone."""


collect_ignore = [] if "PENSTOCK_TEST_SPARK_KILLS" in os.environ else ["test_sink_kill_matrix.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    shared = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("spark" if item.path in shared else "spark-programs"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, and four attempts for every task, as on a cluster."""
    folder = tmp_path_factory.mktemp("spark")
    session = local_session(
        "penstock-tests",
        cores="2,4",
        conf={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "ERROR",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[PenstockProcess]:
    """One broker; each test has its own topics, and retention is unlimited."""
    with PenstockProcess(settings={"log.retention.ms": "-1"}) as process:
        yield process
