"""What every test may use: optional programs are asked for by name, and a broker is one fixture away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tools.spark_jars import is_complete, jars_folder

from penstock.testing.broker_process import PenstockProcess

# No property is about time, and on a machine that is busy with others any example may take seconds.
settings.register_profile(
    "patient",
    settings.default,
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("patient")

ROOT = Path(__file__).parent.parent
KAFKA_JARS = ROOT / ".cache" / "kafka-4.3.1" / "libs"

HOW_TO_GET = {
    "kcat": "install kcat (on Debian: apt-get install kcat)",
    "kafka-jars": "run `make kafka` (needs Maven)",
    "gcc": "install a C compiler",
    "spark-kafka-jars": "run `make spark-jars` (needs Maven)",
}


def have(program: str) -> bool:
    if program == "kafka-jars":
        return KAFKA_JARS.is_dir() and any(KAFKA_JARS.glob("kafka-clients-*.jar"))
    if program == "spark-kafka-jars":
        return is_complete(jars_folder(ROOT))
    return shutil.which(program) is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a missing program, by its name; where PENSTOCK_NO_SKIP is set, let it fail instead."""
    for item in items:
        for marker in item.iter_markers("needs"):
            for program in marker.args:
                if have(program):
                    continue
                reason = f"needs {program}: {HOW_TO_GET.get(program, 'not found')}"
                if os.environ.get("PENSTOCK_NO_SKIP"):
                    raise pytest.UsageError(f"{item.nodeid} {reason}, and PENSTOCK_NO_SKIP is set")
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockProcess]:
    """One broker for all tests of a module, which keep apart by their topics; no record is too old for it.

    With the default retention, records with times of years ago would go whenever the broker next looks for such.
    """
    with PenstockProcess(settings={"log.retention.ms": "-1"}) as process:
        yield process
