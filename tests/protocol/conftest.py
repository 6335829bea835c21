"""Fixtures of the tests that talk to a broker over its port."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from protocol.raw import Wire
from protocol.topics import create_topic, fresh_name
from protocol.under_test import apache_kafka, broker, configure, skip_what_is_ours_alone, start_broker

__all__ = ["apache_kafka", "broker", "make_topic", "start_broker", "topic", "wire"]

MakeTopic = Callable[..., str]


def pytest_configure(config: pytest.Config) -> None:
    configure(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_what_is_ours_alone(items)


@pytest.fixture
def make_topic(request: pytest.FixtureRequest, broker: object) -> MakeTopic:
    """Create topics on the module's broker, named after the test."""

    def make(*, partitions: int = 1, **configs: str) -> str:
        name = fresh_name(request.node.name)
        create_topic(broker.bootstrap, name, partitions=partitions, configs=dotted(configs))  # type: ignore[attr-defined]
        return name

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """An empty topic with one partition and default settings: records of years ago do not stay in it."""
    return make_topic()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group id that says which test it is of."""
    return fresh_name(request.node.name)


@pytest.fixture
def client(request: pytest.FixtureRequest, broker: object) -> Any:
    """The adapter that runs a story, on the module's broker."""
    return request.param.on(broker.bootstrap)  # type: ignore[attr-defined]


@pytest.fixture
def wire(broker: object) -> Iterator[Wire]:
    """A raw connection to the module's broker."""
    with Wire(broker.bootstrap) as connection:  # type: ignore[attr-defined]
        yield connection


def dotted(configs: Mapping[str, str]) -> dict[str, str]:
    """`max_message_bytes="1"` as Kafka writes it."""
    return {re.sub("_", ".", name): value for name, value in configs.items()}
