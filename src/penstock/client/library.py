"""confluent-kafka, imported when it is first needed: it is the slowest import of every command that uses it.

Its own type hints are partial, so it is Any here, and what leaves this package is typed by us.
"""

from importlib import import_module
from typing import Any


def kafka() -> Any:
    """The module `confluent_kafka`."""
    return import_module("confluent_kafka")


def kafka_admin() -> Any:
    """The module `confluent_kafka.admin`."""
    return import_module("confluent_kafka.admin")
