"""Two other codecs say the same bytes: kio for every API and version, kafka-python for those it has.

Random messages are made as kio's, turned into ours field by field, and compared in both directions.
"""

import importlib
import pkgutil
import uuid
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from kafka.protocol.api_message import ApiMessage
from kio.serial import entity_reader
from kio_messages import as_ours, kio_bytes, our_module, random_entities, versions_and_sides

from penstock.wire.api.table import TABLE
from penstock.wire.primitives import Message

API_VERSIONS = 18
APIS = [pytest.param(key, id=entry.name) for key, entry in sorted(TABLE.items())]


@pytest.mark.parametrize("key", APIS)
def test_random_messages_of_every_version_are_the_bytes_of_kio_and_read_back_equal(key: int) -> None:
    module = our_module(key)
    for version, side in versions_and_sides(key):
        encode, decode = getattr(module, f"encode_{side}"), getattr(module, f"decode_{side}")
        for entity in random_entities(key, version, side):
            expected = kio_bytes(entity)
            ours = as_ours(module, side, entity)

            encoded = encode(ours, version)
            decoded = decode(b"before" + expected, 6, version)

            assert encoded == expected, (version, side)
            assert decoded == ours, (version, side)
            assert encode(decoded, version) == expected, (version, side)
            assert entity_reader(type(entity))(encoded, 0) == (entity, len(encoded)), (version, side)


def kafka_python_classes() -> dict[tuple[int, str], Any]:
    """kafka-python's message classes by API key and side."""
    found: dict[tuple[int, str], Any] = {}
    packages = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata, kafka.protocol.producer)
    modules: list[Any] = [kafka.protocol.sasl]
    for package in packages:
        modules += [
            importlib.import_module(f"{package.__name__}.{entry.name}")
            for entry in pkgutil.iter_modules(package.__path__)
        ]
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, ApiMessage) and value is not ApiMessage:
                found[value.API_KEY, value.type] = value
    return found


KAFKA_PYTHON = kafka_python_classes()


APIS_OF_KAFKA_PYTHON = [
    pytest.param(key, id=TABLE[key].name) for key in sorted({key for key, _ in KAFKA_PYTHON}) if key in TABLE
]


def assert_same_fields(ours: Any, theirs: Any, version: int) -> None:
    for field in theirs._struct._fields:
        # kafka-python makes sets of this bit field, and renames it.
        if field.for_version_q(version) and not field.name.endswith("authorized_operations"):
            assert_same_value(getattr(ours, field.name), getattr(theirs, field.name), version, field.name)


def assert_same_value(mine: Any, other: Any, version: int, name: str) -> None:
    """Equal, where kafka-python has None for the zero uuid and for a tagged struct that is not sent."""
    if isinstance(mine, Message):
        if other is None:
            assert mine == type(mine)(), name
        else:
            assert_same_fields(mine, other, version)
    elif isinstance(mine, list):
        assert len(mine) == len(other), name
        for left, right in zip(mine, other, strict=True):
            assert_same_value(left, right, version, name)
    elif isinstance(other, uuid.UUID):
        assert mine == other.bytes, name
    elif isinstance(mine, bytes) and other is None:
        assert mine == bytes(16), name
    elif isinstance(other, memoryview):
        assert mine == bytes(other), name
    else:
        assert mine == other, name


@pytest.mark.parametrize("key", APIS_OF_KAFKA_PYTHON)
def test_random_messages_are_the_bytes_of_kafka_python_where_it_has_them(key: int) -> None:
    module = our_module(key)
    for version, side in versions_and_sides(key):
        cls = KAFKA_PYTHON.get((key, side))
        if cls is None or version > cls.max_version:
            continue
        for entity in random_entities(key, version, side):
            ours: Any = as_ours(module, side, entity)
            if key == API_VERSIONS and side == "response" and ours.error_code:
                continue  # kafka-python reads an ApiVersions error as version 0, as it must.
            encoded = getattr(module, f"encode_{side}")(ours, version)

            theirs = cls.decode(encoded, version=version)
            # What kafka-python decodes lacks the slot that its own encode looks at.
            theirs._header = None

            assert_same_fields(ours, theirs, version)
            assert bytes(theirs.encode(version=version)) == encoded, (version, side)


def test_kafka_python_is_an_oracle_for_most_client_apis() -> None:
    assert len(APIS_OF_KAFKA_PYTHON) >= 40
