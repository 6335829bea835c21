"""Subscriptions by regular expression, in RE2's syntax as Kafka's brokers have it.

RE2 matches in time that grows with the text alone, so no member can stop a broker with an expression; what is left to
bound is the size of the compiled one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import re2

from penstock.model.generated_errors import InvalidRegularExpression

RE2: Any = re2
"""The module has no types."""

PATTERN_MEMORY_BYTES_MAX = 1 << 20

FAULTS: Final = (
    ("missing ]", "missing closing ]"),
    ("missing )", "missing closing )"),
    ("unexpected )", "regexp/syntax: internal error"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("invalid named capture group", "invalid named capture"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
)
"""How RE2 and Kafka's RE2/J name the same fault; the rest they name alike."""


def compiled(pattern: str) -> Any:
    """An expression ready to match. Raises InvalidRegularExpression, in Kafka's words."""
    options = RE2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    try:
        return RE2.compile(pattern, options)
    except RE2.error as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {fault(error)}."
        ) from None


def fault(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    for words, kafkas in FAULTS:
        if text.startswith(words):
            return kafkas
    return text.partition(":")[0]


@dataclass(frozen=True, slots=True)
class PatternsResolved:
    """What a group's patterns match."""

    group: str
    topics: Mapping[str, tuple[str, ...]]
    started_ms: int
    fault: str | None = None


def resolve(group: str, patterns: Iterable[str], names: Iterable[str], started_ms: int) -> PatternsResolved:
    """Match every name with every pattern, as a whole. One that is no pattern matches nothing."""
    ordered = sorted(names)
    found: dict[str, tuple[str, ...]] = {}
    for pattern in patterns:
        try:
            matches = compiled(pattern).fullmatch
        except InvalidRegularExpression:
            found[pattern] = ()  # Read from a log that another broker wrote; ours are checked when they come.
            continue
        found[pattern] = tuple(name for name in ordered if matches(name))
    return PatternsResolved(group, found, started_ms)
