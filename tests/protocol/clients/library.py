"""All adapters, and which of them have the abilities that a story asks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from protocol.clients.aiokafka import AioKafka
from protocol.clients.confluent import Confluent
from protocol.clients.java import JavaTools
from protocol.clients.kafka_python import FORGETS_SOCKETS, KafkaPython
from protocol.clients.kcat import Kcat


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """An adapter to make for the broker under test, and what every test with it is marked with."""

    name: str
    adapter: type[Any]
    settings: dict[str, Any] = field(default_factory=dict)
    marks: Sequence[pytest.MarkDecorator] = ()

    def on(self, bootstrap: str) -> Any:
        return self.adapter(bootstrap, **self.settings)


CONFLUENT = Kind(name="confluent", adapter=Confluent)
KCAT = Kind(name="kcat", adapter=Kcat, marks=[pytest.mark.needs("kcat")])
JAVA = Kind(name="java", adapter=JavaTools, marks=[pytest.mark.needs("kafka-jars")])
KAFKA_PYTHON = Kind(name="kafka_python", adapter=KafkaPython, marks=FORGETS_SOCKETS)
AIOKAFKA = Kind(name="aiokafka", adapter=AioKafka)
CLIENTS = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA, KCAT, JAVA)

OLD_LIBRDKAFKA = {"api.version.request": "false", "broker.version.fallback": "0.11.0.0"}
OLDER_CLIENTS = (
    *(
        Kind(
            name=f"kafka_python-{version}",
            adapter=KafkaPython,
            settings={"api_version": version},
            marks=FORGETS_SOCKETS,
        )
        for version in ((2, 1), (2, 3), (2, 6), (3, 0), (3, 9))
    ),
    Kind(name="confluent", adapter=Confluent, settings=OLD_LIBRDKAFKA),
    Kind(name="kcat", adapter=Kcat, settings=OLD_LIBRDKAFKA, marks=KCAT.marks),
)
"""Clients that speak as they did years ago: older versions of every request, without asking what is served."""


def with_every_client(*abilities: type[Any], each: str | None = None, among: Sequence[Kind] = CLIENTS) -> Any:
    """Tell the story once with each client that has these abilities, and with each of the values that it names."""
    cases = list(_cases(abilities, each, among))
    assert cases, f"no client has {abilities}"
    return pytest.mark.parametrize("client" if each is None else ("client", each), cases, indirect=["client"])


def _cases(abilities: Sequence[type[Any]], each: str | None, among: Sequence[Kind]) -> Iterator[Any]:
    for kind in among:
        # A protocol that adds nothing but a promise is distinguished from others by its name alone.
        if not all(ability in kind.adapter.__mro__ for ability in abilities):
            continue
        if each is None:
            yield pytest.param(kind, id=kind.name, marks=kind.marks)
            continue
        for value in getattr(kind.adapter, f"{each}s"):
            yield pytest.param(kind, value, id=f"{kind.name}-{value}", marks=kind.marks)
