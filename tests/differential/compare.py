"""The fields in which two responses differ."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

ABSENT = "<absent>"
NAMING_FIELDS = ("name", "topic", "resource_name", "group_id", "member_id", "topic_id", "api_key")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """One field; in `path` the items of lists are [name] where they have one, otherwise [index]."""

    path: str
    kafka: Any
    penstock: Any

    def __str__(self) -> str:
        return f"{self.path}\n    kafka:    {_shown(self.kafka)}\n    penstock: {_shown(self.penstock)}"


def differences_between(kafka: Any, penstock: Any, path: str = "") -> list[FieldDifference]:
    if isinstance(kafka, dict) and isinstance(penstock, dict):
        out: list[FieldDifference] = []
        for name in [*kafka, *(name for name in penstock if name not in kafka)]:
            below = f"{path}.{name}" if path else name
            out += differences_between(kafka.get(name, ABSENT), penstock.get(name, ABSENT), below)
        return out
    if isinstance(kafka, list) and isinstance(penstock, list):
        ours, theirs = _keyed(penstock), _keyed(kafka)
        out = []
        for name in [*theirs, *(name for name in ours if name not in theirs)]:
            out += differences_between(theirs.get(name, ABSENT), ours.get(name, ABSENT), f"{path}[{name}]")
        return out
    if kafka == penstock and type(kafka) is type(penstock):
        return []
    return [FieldDifference(path=path, kafka=kafka, penstock=penstock)]


def _keyed(items: list[Any]) -> dict[str, Any]:
    """Items by name, so that one missing item is one difference and not a shift of all."""
    out: dict[str, Any] = {}
    for index, item in enumerate(items):
        name = str(index)
        if isinstance(item, dict):
            parts = [item[field] for field in NAMING_FIELDS if item.get(field)]
            parts += [
                item[field]
                for field in ("partition_index", "partition", "index")
                if isinstance(item.get(field), int) and not parts
            ]
            name = str(parts[0]) if parts else name
        out[name if name not in out else f"{name}#{index}"] = item
    return out


def _shown(value: Any) -> str:
    text = value if value == ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]}... ({len(text)} characters)"
