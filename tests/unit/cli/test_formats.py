import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.failure import Failure
from penstock.cli.formats import compile_format, from_json_bytes, headers_from_json, json_line, table_line, when
from penstock.cli.produce import Outgoing, from_json_line
from penstock.client.records import Record

PAYLOAD = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)


def record(**fields: object) -> Record:
    known: dict[str, object] = {
        "topic": "orders",
        "partition": 3,
        "offset": 41,
        "timestamp_ms": 1_700_000_000_123,
        "timestamp_set_by_broker": False,
        "key": b"c7",
        "value": b"hello",
        "headers": (("a", b"b"), ("n", None)),
    }
    return Record(**{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%v\\n", b"hello\n"),
        ("%s", b"hello"),
        ("%t[%p]@%o: %k=%v", b"orders[3]@41: c7=hello"),
        ("%T %K %S", b"1700000000123 2 5"),
        ("%D", b"2023-11-14 22:13:20.123"),
        ("%h", b"a=b,n=NULL"),
        ("%R", b"\x00\x00\x00\x05"),
        ("100%%\\t\\x41\\\\\\0", b"100%\tA\\\x00"),
        ("→%k", "→c7".encode()),
    ],
)
def test_a_format_prints_its_fields(text: str, printed: bytes) -> None:
    assert compile_format(text)(record()) == printed


def test_null_prints_as_nothing_and_has_length_minus_one() -> None:
    empty = record(key=None, value=None, headers=())

    assert compile_format("[%k|%v|%h|%K|%S|%R]")(empty) == b"[|||-1|-1|\xff\xff\xff\xff]"


@pytest.mark.parametrize("text", ["%q", "%", "\\q", "\\", "\\xZZ"])
def test_an_unknown_field_or_escape_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        compile_format(text)


def test_on_a_terminal_fields_cannot_steer_it_and_the_format_can() -> None:
    hostile = record(key=b"\x1b[2J", value=b"a\n\tb\r\x1b]0;t\x07\xff\xc2\x9b", headers=(("h\x1b", b"\x00"),))

    shown = compile_format("\\x1b[1m%k %v %h\\n", terminal=True)(hostile)

    assert shown == b"\x1b[1m\\x1b[2J a\n\tb\\r\\x1b]0;t\\x07\\xff\\x9b h\\x1b=\\x00\n"
    assert compile_format("%v")(hostile) == hostile.value


def test_json_of_a_hostile_record_is_the_same_record_without_control_characters() -> None:
    line = json_line(record(key="\x9b31m\u202e".encode(), value=b"\x1b[2J\x7f")).decode()

    found = json.loads(line)
    assert (found["key"], found["value"]) == ("\x9b31m\u202e", "\x1b[2J\x7f")
    assert line.removesuffix("\n").isprintable()


def test_a_json_line_has_every_part_of_the_record() -> None:
    assert json.loads(json_line(record())) == {
        "topic": "orders",
        "partition": 3,
        "offset": 41,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": "create_time",
        "key": "c7",
        "value": "hello",
        "headers": [{"name": "a", "value": "b"}, {"name": "n", "value": None}],
    }


@given(PAYLOAD, PAYLOAD, st.lists(st.tuples(st.text(max_size=5), PAYLOAD), max_size=3))
def test_every_record_survives_the_way_to_json_and_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = json_line(record(key=key, value=value, headers=tuple(headers)))

    fields = json.loads(line)

    assert line.count(b"\n") == 1
    assert from_json_bytes("key", fields) == key
    assert from_json_bytes("value", fields) == value
    assert headers_from_json(fields["headers"]) == tuple(headers)


def test_a_table_line_stays_one_line_for_any_value() -> None:
    line = table_line()(record(value=b"two\nlines\x1b[31m" + b"x" * 1_000, key=b"\xff"))

    assert line.count(b"\n") == 1
    assert b"\x1b" not in line
    assert len(line) < 400


@pytest.mark.parametrize(("timestamp_ms", "shown"), [(-1, "-"), (0, "1970-01-01 00:00:00.000"), (2**62, str(2**62))])
def test_a_timestamp_that_is_no_date_is_shown_all_the_same(timestamp_ms: int, shown: str) -> None:
    assert when(timestamp_ms) == shown


@pytest.mark.parametrize("text", ["\\x", "\\x1", "\\x+1", "\\x 1", "\\xzz"])
def test_an_escape_has_two_hexadecimal_digits(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="two hexadecimal digits"):
        compile_format(text)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"value":' * 50_000,
        b'{"value_base64":5}',
        b'{"headers":[{"name":"a","value_base64":[]}]}',
        b'{"headers":[{"name":"\\ud800"}]}',
        b'{"key":"\\ud800"}',
        b'{"timestamp":true}',
        b'{"timestamp":1' + b"0" * 30 + b"}",
        b'{"timestamp":1' + b"0" * 5_000 + b"}",
        b"\xff",
    ],
    ids=lambda line: line[:30],
)
def test_a_line_that_is_no_record_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(Failure, match="line 7 is not a record"):
        from_json_line(7, line, Outgoing(value=None))
