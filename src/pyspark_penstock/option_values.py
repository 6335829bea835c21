"""Single option values: flags, numbers and durations, refused as Spark's Kafka connector refuses them.

The names of given options are in lower case; ``name`` is spelt as in the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark_penstock.errors import WrongOption

UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
Parsed = TypeVar("Parsed")


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise WrongOption(f"Option '{name}': For input string: \"{text}\"")
    return text.lower() == "true"


def positive(given: Mapping[str, str], name: str) -> int | None:
    value = parsed(given, name, int)
    if value is not None and value <= 0:
        raise WrongOption(f"{name} must be positive")
    return value


def parsed(given: Mapping[str, str], name: str, parse: Callable[[str], Parsed]) -> Parsed | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        return parse(text.strip())
    except ValueError:
        raise WrongOption(f"Option '{name}': For input string: \"{text}\"") from None


def duration_ms(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise WrongOption(f"Option '{name}': {text!r} is not a time such as 500ms, 30s, 15m, 2h or 1d")
    return int(int(found[1]) * UNITS_MS[found[2] or "ms"])
