"""Which broker the tests are about: penstock, unless the environment names another.

A test that fails against Apache Kafka is a wrong test, so the whole suite can be pointed at it:

    PENSTOCK_TEST_AGAINST=apache-kafka pytest tests/protocol        starts Apache Kafka from its jars instead
    PENSTOCK_TEST_BOOTSTRAP=host:port pytest tests/protocol         uses a broker that is running already

With the second, tests that need a broker of their own are skipped. Tests marked `penstock_only` are about what is
ours alone (messages, exit statuses, settings that Kafka lacks) and are skipped with both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.broker_process import PenstockProcess

AGAINST_VARIABLE = "PENSTOCK_TEST_AGAINST"
BOOTSTRAP_VARIABLE = "PENSTOCK_TEST_BOOTSTRAP"
APACHE_KAFKA = "apache-kafka"
APACHE_HEAP = "384m"


class Broker(Protocol):
    """What a test may do with a broker of its own."""

    data: Path

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def log(self) -> Path: ...
    def start(self) -> None: ...
    def stop(self) -> object: ...
    def kill(self) -> None: ...
    def restart(self) -> None: ...
    def close(self) -> None: ...


class RunningBroker:
    """A broker that was started outside the tests: tests only send requests to it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


def external_bootstrap() -> str | None:
    return os.environ.get(BOOTSTRAP_VARIABLE)


def against_apache_kafka() -> bool:
    against = os.environ.get(AGAINST_VARIABLE)
    if against not in (None, "", "penstock", APACHE_KAFKA):
        raise pytest.UsageError(f"{AGAINST_VARIABLE}={against}: penstock or {APACHE_KAFKA}")
    return against == APACHE_KAFKA


def about_penstock() -> bool:
    """Whether the broker under test is ours."""
    return external_bootstrap() is None and not against_apache_kafka()


def new_broker(settings: Mapping[str, str]) -> Broker:
    """A broker of the kind under test, not started yet."""
    if against_apache_kafka():
        # Kafka's background work begins half a minute after the start by default.
        return ApacheKafka(heap=APACHE_HEAP, properties={"log.initial.task.delay.ms": "100", **settings})
    return PenstockProcess(settings=settings)


StartBroker = Callable[..., Broker]


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """One Apache Kafka for all tests that run against it with default settings: it takes seconds to start."""
    with ApacheKafka(heap=APACHE_HEAP) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker | RunningBroker]:
    """A broker shared by the tests of a module, which keep apart by their topics.

    Its settings are the defaults, or what the module names as BROKER_SETTINGS.
    """
    bootstrap = external_bootstrap()
    settings: Mapping[str, str] = getattr(request.module, "BROKER_SETTINGS", {})
    if bootstrap is not None:
        yield RunningBroker(bootstrap)
    elif settings:
        process = new_broker(settings)
        try:
            process.start()
            yield process
        finally:
            process.close()
    elif against_apache_kafka():
        yield request.getfixturevalue("apache_kafka")
    else:
        with PenstockProcess() as process:
            yield process


@pytest.fixture
def start_broker() -> Iterator[StartBroker]:
    """Start brokers with settings of their own; all are stopped and their data removed at the end of the test."""
    if external_bootstrap() is not None:
        pytest.skip("needs a broker of its own")
    with ExitStack() as brokers:

        def start(settings: Mapping[str, str] | None = None) -> Broker:
            process = new_broker(settings or {})
            brokers.callback(process.close)
            process.start()
            return process

        yield start


def configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "penstock_only: about what is ours alone, skipped against other brokers")


def skip_what_is_ours_alone(items: list[pytest.Item]) -> None:
    if about_penstock():
        return
    for item in items:
        if item.get_closest_marker("penstock_only") is not None:
            item.add_marker(pytest.mark.skip(reason="about penstock alone"))
