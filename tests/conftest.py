"""What every test may use: optional programs are asked for by name, and a broker is one fixture away."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from penstock.testing.broker_process import PenstockProcess
from programs import have, missing, summary_of_skips

# No property is about time, and on a machine that is busy with others any example may take seconds.
settings.register_profile(
    "patient",
    settings.default,
    deadline=None,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.too_slow],
)
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a missing program, by its name; where PENSTOCK_NO_SKIP is set, let it fail instead."""
    for item in items:
        for marker in item.iter_markers("needs"):
            for program in marker.args:
                if have(program):
                    continue
                reason = missing(program)
                if os.environ.get("PENSTOCK_NO_SKIP"):
                    raise pytest.UsageError(f"{item.nodeid} {reason}, and PENSTOCK_NO_SKIP is set")
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once at the end what was skipped, and what to install to run it."""
    # The report of a skip has the place and the reason where that of a failure has a traceback.
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    for line in summary_of_skips(reasons):
        terminalreporter.write_line(line, yellow=True)


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockProcess]:
    """One broker for all tests of a module, which keep apart by their topics; no record is too old for it.

    With the default retention, records with times of years ago would go whenever the broker next looks for such.
    """
    with PenstockProcess(settings={"log.retention.ms": "-1"}) as process:
        yield process
