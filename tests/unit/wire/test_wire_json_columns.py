"""JSON scanned into columns: accepted and rejected rows, and that a rejected row leaves nothing behind."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from either_way import both
from hypothesis import given, settings
from hypothesis import strategies as some

ROOM = 1 << 12
MODULES = [param.values[0] for param in both("json_columns")]


def column(scan: Any, kind: str, **more: Any) -> Any:
    made = scan.JsonColumn(kind, **{"is_nullable": True, **more})
    memory = {
        "valid": bytearray(ROOM),
        "integers": array("q", bytes(8 * ROOM)),
        "doubles": array("d", bytes(8 * ROOM)),
        "ends": array("i", bytes(4 * ROOM)),
        "text": bytearray(ROOM),
    }
    made.use(**memory)
    return made, memory


def scanned(scan: Any, raws: Sequence[bytes], fields: dict[str, Any]) -> tuple[Any, list[int]]:
    """Scan rows into a struct of these fields; returns the struct's column, and the outcome of each row."""
    root, _ = column(scan, "struct", fields=[(name.encode(), made[0]) for name, made in fields.items()])
    outcomes = bytearray(len(raws))
    ends = array("i", [0])
    for raw in raws:
        ends.append(ends[-1] + len(raw))
    scan.JsonScanner().scan(root, b"".join(raws) or b" ", ends, None, outcomes)
    return root, list(outcomes)


def strings(made: tuple[Any, dict[str, Any]]) -> list[str | None]:
    built, memory = made
    ends = memory["ends"]
    return [
        memory["text"][ends[row] : ends[row + 1]].decode() if memory["valid"][row] else None
        for row in range(built.count)
    ]


@pytest.mark.parametrize("scan", both("json_columns"))
def test_fields_are_found_in_any_order_and_missing_ones_are_null(scan: Any) -> None:
    text, number = column(scan, "string"), column(scan, "integer", low=-9, high=9)
    raws = [b'{"n":1,"s":"a"}', b' { "s" : "b" , "z":[1,{"n":2}] } ', b"{}", b'{"s":null,"n":-9}']

    root, outcomes = scanned(scan, raws, {"s": text, "n": number})

    assert outcomes == [scan.TAKEN] * 4
    assert root.count == 4
    assert strings(text) == ["a", "b", None, None]
    assert list(number[1]["valid"][:4]) == [1, 0, 0, 1]
    assert list(number[1]["integers"][:4]) == [1, 0, 0, -9]


@pytest.mark.parametrize("scan", both("json_columns"))
@pytest.mark.parametrize(
    "refused",
    [
        b"",
        b"null",
        b"[]",
        b'{"s":"x"}{}',
        b'{"s":"x",}',
        b'{"s":"x"',
        b'{"s" "x"}',
        b'{"s":x}',
        b'{s:"x"}',
        b'{"s":"x","s":"y"}',
        b'{"s":"x","n":10}',
        b'{"s":"x","n":1.0}',
        b'{"s":"x","n":"1"}',
        b'{"s":"x","n":01}',
        b'{"s":"x","n":--1}',
        b'{"s":"x","n":tru}',
        b'{"s":"\x01"}',
        b'{"s":"\\x"}',
        b'{"s":"\\u12"}',
        b'{"s":"\\ud800"}',
        b'{"s":"\\udc00\\ud800"}',
        b'{"\\u0073":"x"}',
        b'{"s":["x"]}',
        b'{"s":"x","z":nul}',
        b'{"s":"x","z":1.}',
        b'{"s":"x","z":-}',
        b'{"s":"x","z":1e}',
        b'{"s":"x","z":[1 2]}',
        b'{"s":"x","z":{"a"}}',
        b'{"s":"x","z":"\\ud800"}',
        b'{"s":"x","z":' + b"[" * 100 + b"]" * 100 + b"}",
    ],
)
def test_a_rejected_row_leaves_nothing_behind(scan: Any, refused: bytes) -> None:
    text, number = column(scan, "string"), column(scan, "integer", low=-9, high=9)
    raws = [b'{"s":"a","n":1}', refused, b'{"s":"b","n":2}']

    root, outcomes = scanned(scan, raws, {"s": text, "n": number})

    assert outcomes == [scan.TAKEN, scan.REFUSED, scan.TAKEN]
    assert root.count == 2
    assert strings(text) == ["a", "b"]
    assert list(number[1]["integers"][:2]) == [1, 2]


@pytest.mark.parametrize("scan", both("json_columns"))
def test_a_row_rejected_inside_a_list_removes_its_elements(scan: Any) -> None:
    element = column(scan, "string", is_nullable=False)
    tags = column(scan, "list", element=element[0])
    raws = [b'{"t":["a","b"]}', b'{"t":["c",null]}', b'{"t":[]}', b'{"t":null}', b'{"t":["d"]}']

    _, outcomes = scanned(scan, raws, {"t": tags})

    assert outcomes == [scan.TAKEN, scan.REFUSED, scan.TAKEN, scan.TAKEN, scan.TAKEN]
    assert strings(element) == ["a", "b", "d"]
    assert list(tags[1]["ends"][:5]) == [0, 2, 2, 2, 3]
    assert list(tags[1]["valid"][:4]) == [1, 1, 0, 1]


@pytest.mark.parametrize("scan", both("json_columns"))
def test_a_null_row_is_neither_accepted_nor_rejected(scan: Any) -> None:
    text = column(scan, "string")
    root, _ = column(scan, "struct", fields=[(b"s", text[0])])
    outcomes = bytearray(3)

    scan.JsonScanner().scan(root, b'{"s":"a"}{}', array("i", [0, 9, 9, 11]), bytes([0b101]), outcomes)

    assert list(outcomes) == [scan.TAKEN, 0, scan.TAKEN]
    assert strings(text) == ["a", None]


@pytest.mark.parametrize("scan", MODULES)
@given(texts=some.lists(some.text(max_size=12), max_size=8), is_ascii=some.booleans())
def test_escaped_strings_round_trip(scan: Any, texts: list[str], is_ascii: bool) -> None:
    made = column(scan, "string")
    texts = [each.encode("utf-8", "replace").decode() for each in texts]

    _, outcomes = scanned(
        scan, [json.dumps({"s": each}, ensure_ascii=is_ascii).encode() for each in texts], {"s": made}
    )

    assert outcomes == [scan.TAKEN] * len(texts)
    assert strings(made) == texts


@pytest.mark.parametrize("scan", MODULES)
@given(numbers=some.lists(some.floats(allow_nan=False, allow_infinity=False), max_size=8))
@settings(max_examples=300)
def test_doubles_are_rounded_correctly(scan: Any, numbers: list[float]) -> None:
    made = column(scan, "double", bound=1.7976931348623157e308)

    _, outcomes = scanned(scan, [json.dumps({"d": each}).encode() for each in numbers], {"d": made})

    assert outcomes == [scan.TAKEN] * len(numbers)
    assert [repr(each) for each in made[1]["doubles"][: len(numbers)]] == [repr(each) for each in numbers]
