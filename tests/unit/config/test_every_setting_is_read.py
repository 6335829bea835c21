"""Every declared setting is read by the code: an unread one would have no effect."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import penstock
from penstock.config.broker import BROKER_KEYS
from penstock.config.group_settings import BOUNDS, GROUP_KEYS
from penstock.config.key import Key
from penstock.config.log import TOPIC_KEYS

SOURCE = Path(penstock.__file__).parent
NOT_READERS = ("wire", "testing")
"""Packages whose attributes of the same names are fields of messages, or settings of another broker."""

LATER = {
    "security": ("security.inter.broker.protocol",),
}
"""Settings of features that are not implemented yet."""

DESCRIBED = (
    "broker.heartbeat.interval.ms",
    "local.retention.*",
    "log.local.retention.*",
    "log.preallocate",
    "num.replica.fetchers",
    "preallocate",
    "queued.max.requests",
    "remote.log.*",
    "replica.socket.receive.buffer.bytes",
    "replication.quota.*",
    "streams.*",
)
"""Settings without effect that Kafka's DescribeConfigs has, which is compared with ours."""


@cache
def names_read() -> frozenset[str]:
    """Every attribute that the broker's code reads, and every string: a group's settings are looked up by name."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        package = path.relative_to(SOURCE).parts[0]
        if package in NOT_READERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and package != "config":
                found.add(node.value)
    return frozenset(found)


def is_excused(name: str) -> bool:
    patterns = [*DESCRIBED, *(pattern for patterns in LATER.values() for pattern in patterns)]
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_read(declared: Key) -> bool:
    return declared.attribute in names_read() or (declared.name in GROUP_KEYS and declared.name in names_read())


def read_through_others() -> set[str]:
    """The broker's keys that give a topic or a group its default, or bound what a group may set."""
    resolved = [*TOPIC_KEYS.values(), *GROUP_KEYS.values()]
    defaults = {synonym.name for key in resolved if is_read(key) or is_excused(key.name) for synonym in key.synonyms}
    return defaults | {bound for _, low, high in BOUNDS for bound in (low, high) if bound is not None}


def unread(keys: dict[str, Key]) -> list[str]:
    others = read_through_others()
    return [name for name, key in keys.items() if not is_read(key) and name not in others and not is_excused(name)]


def test_every_setting_of_a_broker_is_read() -> None:
    assert unread(BROKER_KEYS) == []


def test_every_setting_of_a_topic_is_read() -> None:
    assert unread(TOPIC_KEYS) == []


def test_every_setting_of_a_group_is_read() -> None:
    assert unread(GROUP_KEYS) == []


def test_settings_without_effect_say_so() -> None:
    keys = {**BROKER_KEYS, **TOPIC_KEYS, **GROUP_KEYS}
    described = [key for name, key in keys.items() if any(fnmatchcase(name, pattern) for pattern in DESCRIBED)]
    silent = [key.name for key in described if not re.search(r"[Ww]ithout effect|Accepted for", key.doc)]

    assert silent == []


def test_the_exceptions_list_only_unread_settings() -> None:
    keys = {**BROKER_KEYS, **TOPIC_KEYS, **GROUP_KEYS}
    patterns = [*DESCRIBED, *(pattern for patterns in LATER.values() for pattern in patterns)]
    unused = [
        pattern for pattern in patterns if all(is_read(key) for name, key in keys.items() if fnmatchcase(name, pattern))
    ]

    assert unused == []
