"""No value fails a query: for any bytes in a topic, a row is a value or a reason."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as some

from pyspark_penstock.column_options import ValueFormat
from pyspark_penstock.spark_internals import arrow_type
from pyspark_penstock.untyped import pyarrow
from pyspark_penstock.values import value_parser
from pyspark_penstock.values.gather import leaf
from pyspark_penstock.values.json_exact import exact_reader
from pyspark_penstock.values.json_fast import fast_decoder
from pyspark_penstock.values.json_scan import JsonScan, can_scan
from pyspark_penstock.values.misfit import REASON_CHARS_MAX
from pyspark_penstock.values.parsers import JsonParser
from pyspark_penstock.values.schema_text import json_struct

LEAVES = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(6,2)",
    "decimal(38,0)",
    "decimal(38,38)",
    "string",
    "char(2)",
    "varchar(3)",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
NAMES = ("a", "b", "c", "d e", "ü")
ATOMS = (
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-0.0",
    "1",
    "1.0",
    "1.10",
    "1e2",
    "127",
    "-129",
    "32768",
    "2147483648",
    "1700000000",
    "1700000000000",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "12345678901234567890.123456789",
    "9" * 38,
    "9" * 400,
    "1" * 5_000,
    "3.4028235e38",
    "1e39",
    "1e308",
    "1e400",
    "-1e400",
    "1e-400",
    "1e999999",
    "1e99999999999999999999",
    "0.005",
    "0." + "3" * 50,
    "NaN",
    "-Infinity",
    "01",
    "1.",
    '""',
    '"x"',
    '"NaN"',
    '"-Infinity"',
    '"sNaN"',
    '"12.345"',
    '" 1"',
    '"1_0"',
    '"1e999999999"',
    '"aGk="',
    '"aGk"',
    '"aGl="',
    '"AA\\u003d\\u003d"',
    r'"\ud800"',
    r'"\udc00\ud800"',
    r'"\ud83d\ude00"',
    r'"\\ud800"',
    r'"\u0000"',
    '"abcdef"',
    '"ab     "',
    '"2026-11-16"',
    '"2026-11-16 10:00:00"',
    '"2026-11-16T10:00:00Z"',
    '"2026-11-16T10:00:00.123456789+01:30"',
    '"2026-11-16T10Z"',
    '"2026-1-6"',
    '"2026"',
    '"20261116"',
    '"2026-02-29"',
    '"2024-02-29"',
    '"0000-01-01"',
    '"0001-01-01T00:00:00+23:59"',
    '"9999-12-31T23:59:59.999999Z"',
    '"9999-12-31T23:59:59-23:59"',
    '"2026-W47-1"',
    "[]",
    "{}",
    "[" * 2_000,
    "[" * 500 + "]" * 500,
)


def types(depth: int = 2) -> some.SearchStrategy[str]:
    leaves = some.sampled_from(LEAVES)
    if not depth:
        return leaves
    inner = types(depth - 1)
    return some.one_of(
        leaves,
        inner.map(lambda kind: f"array<{kind}>"),
        inner.map(lambda kind: f"map<string, {kind}>"),
        schemas(depth - 1).map(lambda fields: f"struct<{fields}>"),
    )


def schemas(depth: int = 2) -> some.SearchStrategy[str]:
    fields = some.lists(some.tuples(some.sampled_from(NAMES), types(depth), some.booleans()), min_size=1, max_size=4)
    return fields.map(
        lambda found: ", ".join(
            f"`{name}` {kind}{' NOT NULL' if required else ''}"
            for name, (kind, required) in {name: (kind, required) for name, kind, required in found}.items()
        )
    )


def texts(depth: int = 3) -> some.SearchStrategy[str]:
    """JSON, most of it well formed."""
    numbers = some.one_of(
        some.integers().map(str), some.floats().map(repr), some.decimals(allow_nan=False, allow_infinity=False).map(str)
    )
    strings = some.text(max_size=8).map(json.dumps)
    moments = some.datetimes().map(lambda at: json.dumps(at.isoformat()))
    atoms = some.one_of(some.sampled_from(ATOMS), numbers, strings, moments)
    if not depth:
        return atoms
    inner = texts(depth - 1)
    return some.one_of(
        atoms, some.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"), objects(depth - 1)
    )


def objects(depth: int = 3) -> some.SearchStrategy[str]:
    names = some.one_of(
        some.sampled_from([json.dumps(name) for name in NAMES]), some.sampled_from([r'"\u0061"', '"z"'])
    )
    entries = some.lists(some.tuples(names, texts(depth)), max_size=5)
    return entries.map(lambda found: "{" + " , ".join(f"{name}:{value}" for name, value in found) + "}")


@some.composite
def damaged(draw: some.DrawFn) -> bytes:
    raw = draw(objects()).encode("utf-8", "surrogatepass")
    at = draw(some.integers(0, len(raw)))
    return raw[:at] + draw(some.binary(max_size=2)) + raw[at + draw(some.integers(0, 2)) :]


values = some.one_of(objects().map(lambda text: text.encode()), damaged(), some.binary(max_size=40))


def check(wanted: ValueFormat, raws: list[bytes | None]) -> None:
    parsed, reasons = value_parser(wanted).parse(pyarrow.array(raws, pyarrow.binary()))
    parsed.validate(full=True)
    assert len(parsed) == len(reasons) == len(raws)
    for raw, row, reason in zip(raws, parsed.to_pylist(), reasons.to_pylist(), strict=True):
        assert (row is None) == (raw is None or reason is not None)
        assert raw is not None or reason is None
        assert reason is None or len(reason) <= 2 * REASON_CHARS_MAX


@given(schemas(), some.lists(some.none() | values, max_size=6))
@settings(max_examples=200, deadline=None)
def test_no_json_fails_a_query(schema: str, raws: list[bytes | None]) -> None:
    check(ValueFormat(name="json", schema=schema), raws)


@given(some.sampled_from(LEAVES), some.sampled_from(ATOMS) | texts(1), some.booleans())
@settings(max_examples=400, deadline=None)
def test_the_fast_and_the_exact_way_of_one_leaf_agree(kind: str, text: str, in_array: bool) -> None:
    agree(f"a {kind}" if not in_array else f"a array<{kind}>", f'{{"a": {text}}}'.encode("utf-8", "surrogatepass"))


@given(schemas(), values)
@settings(max_examples=200, deadline=None)
@example("a double", b'{"a": -0}')
@example("a binary", b'{"a": "aGl="}')
@example("a map<string, int>", b'{"a": {"k": 1, "k": 2}}')
@example("a int", b'{"a": 1, "a": 2}')
@example("a int", b'{"b": "\xff", "a": 2}')
@example("a timestamp", b'{"a": "0000-06-01T00:00:00Z"}')
@example("a decimal(6,2)", b'{"a": 1e3}')
def test_the_fast_reader_has_the_results_of_the_exact_reader(schema: str, raw: bytes) -> None:
    agree(schema, raw)


def agree(text: str, raw: bytes) -> None:
    schema = json_struct(text)
    parser = JsonParser(ValueFormat(name="json", schema=text))
    arrow = parser.parse(pyarrow.array([raw], pyarrow.binary()))[0].type
    fast = fast_decoder(schema.checked, arrow)
    assert fast is not None
    try:
        raw.decode()
        found = fast.build([fast.decode(raw)])
    except Exception:
        return
    exact: Any = leaf(arrow)([exact_reader(schema.checked)(raw)])
    assert found.equals(exact), f"{found} is not {exact}"


SCANNED = tuple(kind for kind in LEAVES if can_scan(json_struct(f"a {kind}").checked))


@given(
    some.sampled_from(SCANNED),
    some.lists(some.sampled_from(ATOMS) | texts(1), max_size=4),
    some.sampled_from(["{}", "array<{}>", "struct<a: {}>", "array<struct<a: {}, b: int>>", "{} NOT NULL"]),
)
@settings(max_examples=400, deadline=None)
def test_a_scanned_leaf_means_the_same_as_in_the_exact_way(kind: str, found: list[str], shape: str) -> None:
    shapes = {"array": "[{}]", "struct": '{{"a": {}}}', "array<struct": '[{{"a": {}}}, null, {{"b": 1}}]'}
    wrapped = [shapes.get(shape.rpartition("<")[0], "{}").format(text) for text in found]
    scanned_as_exact(
        f"a {shape.format(kind)}", [f'{{"a": {text}}}'.encode("utf-8", "surrogatepass") for text in wrapped]
    )


@given(schemas().filter(lambda text: can_scan(json_struct(text).checked)), some.lists(some.none() | values, max_size=6))
@settings(max_examples=300, deadline=None)
@example("a array<string>, b int", [b'{"a": ["x", "y"], "b": "1"}', b'{"a": ["z"], "b": 2}', None, b"{}"])
@example("a struct<b: array<int>>", [b'{"a": {"b": [1, 2]}, "a": {"b": [3]}}', b'{"a": {"b": [4]}}'])
@example("a string", [b'{"a": "\\u00e9\\n\\ud83d\\ude00"}', b'{"a": "\\ud83d"}', b'{"a": "x"} ', b'{"a": "x"'])
@example("a double", [b'{"a": -0}', b'{"a": -0.0}', b'{"a": 5e-324}', b'{"a": 0.1e-22}', b'{"a": 9007199254740993}'])
@example("a bigint", [b'{"a": 9223372036854775807}', b'{"a": -9223372036854775808}', b'{"a": 9223372036854775808}'])
@example("a decimal(6,2)", [b'{"a": 9999.995}', b'{"a": -0.005}', b'{"a": "1.5"}', b'{"a": "01.5"}', b'{"a": 1e0}'])
def test_the_scanner_has_the_results_of_the_exact_reader(schema: str, raws: list[bytes | None]) -> None:
    scanned_as_exact(schema, raws)


def scanned_as_exact(text: str, raws: list[bytes | None]) -> None:
    """The scanner accepts only values with the exact reader's result; nulls are neither accepted nor rejected."""
    raws = [raw for raw in raws if raw is None or is_text(raw)]
    schema = json_struct(text)
    arrow = arrow_type(schema.spark_type)
    built, taken, refused = JsonScan(schema.checked, arrow).parse(pyarrow.array(raws, pyarrow.binary()))
    built.validate(full=True)
    read = exact_reader(schema.checked)
    exact: Any = leaf(arrow)([read(raws[row]) for row in taken])
    assert repr(built.to_pylist()) == repr(exact.to_pylist())
    assert sorted([*taken, *refused]) == [row for row, raw in enumerate(raws) if raw is not None]


def is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


# Avro

PRIMITIVES: list[Any] = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "bytes",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    {"type": "int", "logicalType": "time-millis"},
]


@some.composite
def avro_types(draw: some.DrawFn, path: str = "r", depth: int = 2) -> Any:
    choice = draw(some.sampled_from(["primitive", "primitive", "enum", "fixed", "decimal", "array", "map", "record"]))
    match choice if depth else "primitive":
        case "enum":
            kind: Any = {"type": "enum", "name": f"{path}_e", "symbols": ["X", "Y"]}
        case "fixed":
            kind = {"type": "fixed", "name": f"{path}_f", "size": 3}
        case "decimal":
            fixed = {"type": "fixed", "name": f"{path}_d", "size": 20, "logicalType": "decimal"}
            kind = {**fixed, "precision": 38, "scale": 3}
        case "array":
            kind = {"type": "array", "items": draw(avro_types(f"{path}_i", depth - 1))}
        case "map":
            kind = {"type": "map", "values": draw(avro_types(f"{path}_v", depth - 1))}
        case "record":
            kind = draw(avro_records(path, depth - 1))
        case _:
            kind = draw(some.sampled_from(PRIMITIVES))
    return ["null", kind] if draw(some.booleans()) else kind


@some.composite
def avro_records(draw: some.DrawFn, path: str = "r", depth: int = 2) -> Any:
    count = draw(some.integers(1, 3))
    fields = [{"name": f"f{index}", "type": draw(avro_types(f"{path}_{index}", depth))} for index in range(count)]
    return {"type": "record", "name": path, "fields": fields}


LONGS = some.one_of(
    some.integers(-3, 8), some.sampled_from([1 << 31, 1 << 40, -(1 << 63), (1 << 63) - 1, 10**9, 253_402_300_800_000])
)


def zigzag(number: int) -> bytes:
    number = number * 2 if number >= 0 else -number * 2 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


avro_bytes = some.one_of(
    some.binary(max_size=30),
    some.lists(some.one_of(LONGS.map(zigzag), some.binary(max_size=8)), max_size=12).map(b"".join),
)


@given(avro_records(), some.lists(some.none() | avro_bytes, max_size=6))
@settings(max_examples=300, deadline=None)
@example({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}, [zigzag(1 << 40), zigzag(1)])
def test_no_avro_fails_a_query(schema: Any, raws: list[bytes | None]) -> None:
    check(ValueFormat(name="avro", schema=json.dumps(schema)), raws)


@given(some.lists(some.none() | some.binary(max_size=10), max_size=6))
def test_no_string_fails_a_query(raws: list[bytes | None]) -> None:
    check(ValueFormat(name="string"), raws)
