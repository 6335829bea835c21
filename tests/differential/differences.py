"""The differences that are meant: what the comparison lets pass, and what docs/differences.md says.

The page is written from here (`python tools/record_differential.py --page`) and compared by a test, so a difference
cannot be allowed without its reason standing in the documentation.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .compare import FieldDifference

PAGE = Path(__file__).parent.parent.parent / "docs" / "differences.md"
ANYTHING = "*"

INTRODUCTION = """# Where penstock differs from Apache Kafka

One script of requests is sent to Apache Kafka and to penstock, and the answers are compared field by field
(`tests/differential`). Whatever differs and does not stand here is a bug.

This page is written from `tests/differential/differences.py` by `python tools/record_differential.py --page`.

Some values differ between any two brokers and are compared by what they stand for: topic ids, the cluster id, producer
ids, session ids, addresses, times given by the broker, paths and sizes of disks, the text of documentation. Lists that
Kafka answers in the order of a hash table are compared as sets.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Fields of answers; a star in `scenario` or `field` stands for any text.

    `kafka` and `penstock` are the two values as JSON, or a star for any.
    """

    scenario: str
    field: str
    kafka: Any = ANYTHING
    penstock: Any = ANYTHING

    def covers(self, scenario: str, found: FieldDifference) -> bool:
        return (
            _fits(self.scenario, scenario)
            and _fits(self.field, found.path)
            and _is(self.kafka, found.kafka)
            and _is(self.penstock, found.penstock)
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One decision: what is different, why, and every place where it shows."""

    title: str
    reason: str
    places: tuple[Place, ...]

    def covers(self, scenario: str, found: FieldDifference) -> bool:
        return any(place.covers(scenario, found) for place in self.places)


def _fits(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), text, re.DOTALL) is not None


def _is(wanted: Any, value: Any) -> bool:
    return wanted == ANYTHING or (wanted == value and type(wanted) is type(value))


def unmeant(scenario: str, found: Iterable[FieldDifference]) -> list[FieldDifference]:
    """The differences that nobody declared."""
    return [item for item in found if not any(difference.covers(scenario, item) for difference in DIFFERENCES)]


def page() -> str:
    """The text of docs/differences.md."""
    parts = [INTRODUCTION]
    for difference in DIFFERENCES:
        lines = [
            f"## {difference.title}",
            "",
            difference.reason,
            "",
            "| where | field | Kafka | penstock |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {_cell(place.scenario)} | {_cell(place.field)} | {_cell(place.kafka)} | {_cell(place.penstock)} |"
            for place in difference.places
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "any" if text == ANYTHING else "`" + text.replace("|", "\\|") + "`"


DIFFERENCES: tuple[Difference, ...] = ()
