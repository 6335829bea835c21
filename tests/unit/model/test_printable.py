import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.printable import printable, printable_json, wants_colour

ANY_TEXT = st.text(st.characters())
STEERING = {"Cc", "Cf", "Cs"}
"""Categories of control characters and bidirectional overrides."""


def steers(text: str) -> list[str]:
    return [mark for mark in text if unicodedata.category(mark) in STEERING and mark not in "\u200c\u200d"]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("größer ✓ 日本", "größer ✓ 日本"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("csi \x9b31m", "csi \\x9b31m"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("👩\u200d🚀\u3000\u00a0", "👩\u200d🚀\u3000\u00a0"),
        ("C:\\x1b", "C:\\x1b"),
    ],
)
def test_control_characters_are_escaped_and_other_text_stays(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(ANY_TEXT)
def test_no_output_contains_control_characters(text: str) -> None:
    assert not steers(printable(text))
    assert not steers(printable(text, keep="\n\t").replace("\n", "").replace("\t", ""))


@given(st.dictionaries(ANY_TEXT, ANY_TEXT), st.sampled_from([None, 2]))
def test_a_json_document_stays_the_same_document(value: dict[str, str], indent: int | None) -> None:
    shown = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))

    assert json.loads(shown) == value
    assert not steers(shown.replace("\n", ""))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_needs_a_terminal_without_no_color() -> None:
    assert wants_colour(Terminal(), {})
    assert wants_colour(Terminal(), {"NO_COLOR": ""})
    assert not wants_colour(Terminal(), {"NO_COLOR": "1"})
    assert not wants_colour(Terminal(), {"TERM": "dumb"})
    assert not wants_colour(io.StringIO(), {})
