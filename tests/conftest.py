"""What every test may use: optional programs are asked for by name, and a broker is one fixture away."""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

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

TESTS = Path(__file__).parent
WITH_CLIENTS = (TESTS / "cluster", TESTS / "protocol", TESTS / "spark")


INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""Signals that a run in the background, or below nohup, ignores, and with it every server that it starts."""


def pytest_configure() -> None:
    """Refuse two modules of one name, of which a run of the folder of either does not notice the other."""
    for number in INHERITED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    if doubled := sorted(name for name, count in names.items() if count > 1):
        raise pytest.UsageError(f"more than one module of tests has the name {', '.join(doubled)}")


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Collect the sockets that clients forget after the module that used them: a warning must not meet other tests.

    Not before the last test has ended wholly: what it has logged holds the frames of its clients.
    """
    result = yield
    is_last = nextitem is None or nextitem.path != item.path
    if is_last and any(item.path.is_relative_to(folder) for folder in WITH_CLIENTS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return result


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
