"""Java's patterns for topics in Python; tests/spark compares them with Java."""

from __future__ import annotations

import re

import pytest
from tests.unit.pyspark_penstock.java_patterns import NAMES, REFUSED, TRANSLATED

from pyspark_penstock.errors import WrongOption
from pyspark_penstock.java_regex import translated


def matches(pattern: str) -> list[str]:
    compiled = re.compile(translated(pattern))
    return [name for name in NAMES if compiled.fullmatch(name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"\p{Alpha}+", ["orders", "Orders", "ORDERS", "ordersX", "axb", "abc", "xyz", "bcd", "df", "def", "de", "A"]),
        (r"[a-z&&[^aeiou]]+", ["xyz", "bcd", "df", "zz"]),
        (r"(?i)[^a-n]rders", ["orders", "Orders", "ORDERS", "prders"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"(?<stem>[a-z]+)-\k<stem>", ["a-a", "ab-ab"]),
        (r"orders*+s", []),
        (r"\s+", []),
    ],
)
def test_a_java_pattern_matches_the_same_names_as_in_java(pattern: str, names: list[str]) -> None:
    found = matches(pattern)
    assert [name for name in found if name in names] == names
    assert set(names) <= set(found)
    assert pattern == r"\p{Alpha}+" or found == names


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_pattern_that_cannot_be_translated_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(WrongOption, match="Option 'subscribePattern'"):
        translated(pattern)


@pytest.mark.parametrize("pattern", TRANSLATED)
def test_a_pattern_that_can_be_translated_is(pattern: str) -> None:
    assert re.compile(translated(pattern))
