"""Declared pipelines: valid files, and the errors of invalid ones."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from pyspark_penstock.pipelines.spec import SpecError, duration_ms, parse_spec, read_spec
from pyspark_penstock.pipelines.spec_run import check_spec, read_options

GOOD: dict[str, Any] = {
    "pipeline": {"name": "orders", "trigger": "5 seconds", "kafka": {"client": {"id": "me"}}},
    "sources": {
        "orders": {
            "topic": "orders",
            "schema": "id BIGINT, at TIMESTAMP",
            "event_time": "at",
            "watermark": "2 minutes",
            "dead_letters": "dead",
        }
    },
    "steps": {"big": {"sql": "SELECT * FROM orders WHERE id > 5"}},
    "sinks": {
        "out": {"from": "big", "topic": "big-orders", "key": "id"},
        "kept": {"from": "orders", "table": "kept", "format": "delta", "partition_by": ["id"], "compact": True},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The valid file with one key set; None removes it."""
    found: Any = copy.deepcopy(GOOD)
    *tables, key = path.split(".")
    inner = found
    for each in tables:
        inner = inner.setdefault(each, {})
    if value is None:
        del inner[key]
    else:
        inner[key] = value
    return found


def refusal(found: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as refused:
        check_spec(parse_spec(found, folder=Path("/nowhere")), "localhost:9092")
    return str(refused.value)


def test_a_valid_file_is_parsed() -> None:
    spec = parse_spec(GOOD, folder=Path("/here"))
    assert (spec.name, spec.interval_ms, spec.once) == ("orders", 5_000, False)
    assert spec.kafka == {"client.id": "me"}
    assert spec.sources[0].watermark == "120000 milliseconds"
    assert spec.sinks[1].table == "/here/kept"
    check_spec(spec, "localhost:9092")
    options = read_options(spec, spec.sources[0], "localhost:9092")
    assert options["subscribe"] == "orders"
    assert options["kafka.client.id"] == "me"
    assert options["kafka.isolation.level"] == "read_committed"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("pipelin", {}, "pipelin: is not known: did you mean 'pipeline'?"),
        ("sources.orders.topc", "x", "sources.orders.topc: is not known: did you mean 'topic'?"),
        ("sources.orders.zzz", 1, "sources.orders.zzz: is not known: there are topics, topic,"),
        ("sinks.out.from", "bigg", "sinks.out.from: there is no view 'bigg' before it: did you mean 'big'?"),
        ("sinks.out.mode", "apend", "is not one of append, update, complete: did you mean 'append'?"),
        ("sinks.out.mode", 3, "sinks.out.mode: is a text, not a number"),
        ("sinks.kept.compact", "yes", "sinks.kept.compact: is true or false, not a text"),
        ("sinks.kept.mode", "update", "sinks.kept.mode: a table takes append alone"),
        ("sinks.out.partition_by", ["a"], "sinks.out.partition_by: is for a table, and this sink is a topic"),
        ("sinks.kept.partition_by", ["hour(a b)"], "sinks.kept.partition_by: partition by 'hour(a b)': is neither"),
        ("sinks.kept.partition_by", ["a", "A"], "sinks.kept.partition_by: names a column twice"),
        (
            "sinks.more",
            {"from": "big", "table": "t", "expire": "7d"},
            "sinks.more.expire: a folder of Parquet files has",
        ),
        ("sinks.kept.expire", "5m", "sinks.kept.expire: old versions are kept for at least 1h"),
        ("sinks.out.expire", "7d", "sinks.out.expire: is for a table, and this sink is a topic"),
        ("sinks.out.console", True, "sinks.out: give topic, table or console, and one of them"),
        ("sinks.out.from", None, "sinks.out.from: is missing"),
        ("sinks", {}, "sinks: a pipeline writes to at least one"),
        ("sources.orders.schema", None, "sources.orders.schema: values of format json need a schema"),
        ("sources.orders.schema", "id BIGNT", "sources.orders: Option 'value.schema'"),
        ("sources.orders.watermark", "soon", "sources.orders.watermark: 'soon' is not a time such as"),
        ("sources.orders.event_time", None, "sources.orders.event_time: a watermark needs the column"),
        ("sources.orders.pattern", "o.*", "sources.orders: give topic, topics or pattern, and one of them"),
        ("sources.orders.read_as", "table", "a table is read whole"),
        ("sources.orders.options", {"maxOffsetsPerTrigger": "0"}, "sources.orders: maxOffsetsPerTrigger must be"),
        ("sources.big", {"topic": "x", "format": "string"}, "steps.big: there is a view of this name: sources.big"),
        ("steps.big.python", "m:f", "steps.big: give sql or python, and one of them"),
        ("steps.more", {"python": "m", "inputs": ["big"]}, "steps.more.python: 'm' is not MODULE:FUNCTION"),
        ("steps.more", {"python": "m:f"}, "steps.more.inputs: which views does the function take?"),
        ("steps.more", {"python": "no_such_m:f", "inputs": ["big"]}, "there is no module 'no_such_m'"),
        ("steps.more", {"python": "json:nothing", "inputs": ["big"]}, "the module json has no function 'nothing'"),
        ("steps.a-b", {"sql": "SELECT 1"}, "'a-b' is not a name that SQL can use"),
        ("pipeline.name", "a b", "pipeline.name: 'a b' is not a name"),
        ("pipeline", 3, "pipeline: is a table of keys, not a number"),
    ],
)
def test_an_error_names_its_key(path: str, value: Any, words: str) -> None:
    assert words in refusal(changed(path, value))


def test_text_that_is_no_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("[pipeline]\nname = \n")
    with pytest.raises(SpecError, match="line 2"):
        read_spec(path)
    with pytest.raises(SpecError, match="there is no such file"):
        read_spec(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("2 minutes", 120_000),
        ("1.5h", 5_400_000),
        ("1 day", 86_400_000),
        ("3m", 180_000),
    ],
)
def test_times_are_read_as_people_write_them(text: str, expected: int) -> None:
    assert duration_ms(text, "x") == expected
