"""A pipeline declared in TOML: topics in, SQL or Python between, topics, tables or the terminal out.

Everything that can be checked without Spark and brokers is checked here. An error names its key, such as
``sinks.totals.mode``, and for an unknown key or name the nearest known one.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pyspark_penstock.errors import PenstockRuntimeError, WrongOption
from pyspark_penstock.lake import TableFormat
from pyspark_penstock.pipelines.expiry import check_age
from pyspark_penstock.pipelines.partitioning import sink_columns
from pyspark_penstock.pipelines.registry import NAME

VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|milliseconds?|seconds?|minutes?|hours?|days?)")
_UNITS_MS = {"ms": 1, "mi": 60_000, "m": 60_000, "s": 1_000, "h": 3_600_000, "d": 86_400_000}
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
MODES = ("append", "update", "complete")
FORMATS = ("json", "avro", "string", "binary")
STREAM, TABLE = "stream", "table"


class SpecError(PenstockRuntimeError):
    """An error in the file; the message begins with the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """A topic as a view. A ``table`` is a compacted topic: the last value of every key at each batch."""

    name: str
    topics: tuple[str, ...]
    pattern: str = ""
    read_as: str = STREAM
    start: str = "earliest"
    format: str = "json"
    schema: str = ""
    event_time: str = ""
    watermark: str = ""
    dead_letters: str = ""
    options: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """A view of other views, by SQL or a Python function."""

    name: str
    sql: str = ""
    python: str = ""
    inputs: tuple[str, ...] = ()
    watermark: str = ""
    event_time: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """Where a view goes: a topic, a table or the terminal."""

    name: str
    source: str
    mode: str = "append"
    topic: str = ""
    key: str = ""
    value: tuple[str, ...] = ()
    table: str = ""
    format: TableFormat = TableFormat.PARQUET
    partition_by: tuple[str, ...] = ()
    compacts: bool = False
    expire_after_ms: int = 0
    console: bool = False
    options: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """The whole file."""

    name: str
    bootstrap: str = ""
    once: bool = False
    interval_ms: int = 1_000
    master: str = ""
    conf: Mapping[str, str] = field(default_factory=dict[str, str])
    kafka: Mapping[str, str] = field(default_factory=dict[str, str])
    sources: tuple[SourceSpec, ...] = ()
    steps: tuple[StepSpec, ...] = ()
    sinks: tuple[SinkSpec, ...] = ()
    folder: Path = field(default_factory=Path)
    """The folder of the file, for relative paths and modules."""


def read_spec(path: Path) -> PipelineSpec:
    """Read and check a file; SpecError if it is not TOML or not a pipeline."""
    try:
        return parse_spec(tomllib.loads(path.read_text(encoding="utf-8")), folder=path.resolve().parent)
    except FileNotFoundError:
        raise SpecError(f"{path}: there is no such file") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise SpecError(f"{path}: its tables or lists are nested too deeply") from None
    except ValueError as error:
        # Invalid TOML, invalid UTF-8, and numbers with thousands of digits.
        raise SpecError(f"{path}: {error}") from None


def parse_spec(found: Mapping[str, Any], *, folder: Path) -> PipelineSpec:
    top = Section("", found)
    head = top.section("pipeline")
    sources = tuple(_source(each) for each in top.sections("sources"))
    steps = tuple(_step(each) for each in top.sections("steps"))
    sinks = tuple(_sink(each, folder) for each in top.sections("sinks"))
    top.done()
    name = head.text("name", required=True)
    if not NAME.fullmatch(name):
        raise SpecError(f"pipeline.name: {name!r} is not a name: letters, digits, '.', '_' and '-'")
    trigger = head.text("trigger", "1s")
    spec = PipelineSpec(
        name=name,
        bootstrap=head.text("bootstrap"),
        once=trigger == "once",
        interval_ms=1_000 if trigger == "once" else duration_ms(trigger, "pipeline.trigger"),
        master=head.text("master"),
        conf=head.strings("conf"),
        kafka=head.strings("kafka"),
        sources=sources,
        steps=steps,
        sinks=sinks,
        folder=folder,
    )
    head.done()
    _check_names(spec)
    return spec


# The three kinds of parts


def _source(part: Section) -> SourceSpec:
    name = _view_name(part)
    topics = part.texts("topics")
    if topic := part.text("topic"):
        topics = (topic, *topics)
    spec = SourceSpec(
        name=name,
        topics=topics,
        pattern=part.text("pattern"),
        read_as=part.choice("read_as", (STREAM, TABLE), STREAM),
        start=part.text("from", "earliest"),
        format=part.choice("format", FORMATS, "json"),
        schema=part.text("schema"),
        event_time=part.text("event_time"),
        watermark=_delay(part),
        dead_letters=part.text("dead_letters"),
        options=part.strings("options"),
    )
    part.done()
    if bool(spec.topics) == bool(spec.pattern):
        raise SpecError(f"{part.path}: give topic, topics or pattern, and one of them")
    if spec.format in ("json", "avro") and not spec.schema:
        raise SpecError(f'{part.path}.schema: values of format {spec.format} need a schema, such as "id BIGINT"')
    if spec.format in ("string", "binary") and spec.schema:
        raise SpecError(f"{part.path}.schema: has no meaning with format {spec.format}")
    if spec.dead_letters and spec.format == "binary":
        raise SpecError(f"{part.path}.dead_letters: every value is binary, so none is dead")
    if spec.read_as == TABLE and (spec.watermark or spec.dead_letters or "from" in part.given):
        raise SpecError(f"{part.path}: a table is read whole: it has no from, watermark or dead_letters")
    _check_watermark(part.path, spec.watermark, spec.event_time)
    return spec


def _step(part: Section) -> StepSpec:
    spec = StepSpec(
        name=_view_name(part),
        sql=part.text("sql"),
        python=part.text("python"),
        inputs=part.texts("inputs"),
        event_time=part.text("event_time"),
        watermark=_delay(part),
    )
    part.done()
    if bool(spec.sql) == bool(spec.python):
        raise SpecError(f"{part.path}: give sql or python, and one of them")
    if spec.python and not FUNCTION.fullmatch(spec.python):
        raise SpecError(f"{part.path}.python: {spec.python!r} is not MODULE:FUNCTION")
    if spec.python and not spec.inputs:
        raise SpecError(f"{part.path}.inputs: which views does the function take?")
    if spec.sql and spec.inputs:
        raise SpecError(f"{part.path}.inputs: SQL names its views itself")
    _check_watermark(part.path, spec.watermark, spec.event_time)
    return spec


def _sink(part: Section, folder: Path) -> SinkSpec:
    table = part.text("table")
    spec = SinkSpec(
        name=_view_name(part),
        source=part.text("from", required=True),
        mode=part.choice("mode", MODES, "append"),
        topic=part.text("topic"),
        key=part.text("key"),
        value=part.texts("value"),
        table=table if "://" in table or not table else str(folder / table),
        format=TableFormat(part.choice("format", tuple(TableFormat), "parquet")),
        partition_by=part.texts("partition_by"),
        compacts=part.flag("compact"),
        expire_after_ms=_age_ms(part),
        console=part.flag("console"),
        options=part.strings("options"),
    )
    part.done()
    kinds = [kind for kind in ("topic", "table", "console") if getattr(spec, kind)]
    if len(kinds) != 1:
        raise SpecError(f"{part.path}: give topic, table or console, and one of them")
    only = {"key": "topic", "value": "topic", "options": "topic", "format": "table", "partition_by": "table"}
    for key, kind in {**only, "compact": "table", "expire": "table"}.items():
        if key in part.given and kind not in kinds:
            raise SpecError(f"{part.path}.{key}: is for a {kind}, and this sink is a {kinds[0]}")
    if spec.table and spec.mode != "append":
        raise SpecError(f"{part.path}.mode: a table takes append alone: rows in it do not change")
    if spec.expire_after_ms and spec.format is TableFormat.PARQUET:
        raise SpecError(f"{part.path}.expire: a folder of Parquet files has no older versions to expire")
    try:
        names = [each.name.lower() for each in sink_columns(spec.partition_by)]
    except WrongOption as error:
        raise SpecError(f"{part.path}.partition_by: {error}") from None
    if len(names) != len(set(names)):
        raise SpecError(f"{part.path}.partition_by: names a column twice")
    return spec


def _age_ms(part: Section) -> int:
    text = part.text("expire")
    if not text:
        return 0
    try:
        return check_age(duration_ms(text, f"{part.path}.expire"))
    except WrongOption as error:
        raise SpecError(f"{part.path}.expire: {error}") from None


def _view_name(part: Section) -> str:
    name = part.path.rpartition(".")[2]
    if not VIEW_NAME.fullmatch(name):
        raise SpecError(f"{part.path}: {name!r} is not a name that SQL can use: letters, digits and '_'")
    return name


def _delay(part: Section) -> str:
    """A checked delay in Spark's syntax."""
    text = part.text("watermark")
    return f"{duration_ms(text, f'{part.path}.watermark')} milliseconds" if text else ""


def _check_watermark(path: str, watermark: str, event_time: str) -> None:
    if watermark and not event_time:
        raise SpecError(f"{path}.event_time: a watermark needs the column that holds the time")
    if event_time and not watermark:
        raise SpecError(f'{path}.watermark: how late may rows be by {event_time}? Such as "2 minutes"')


def _check_names(spec: PipelineSpec) -> None:
    if not spec.sources:
        raise SpecError("sources: a pipeline reads at least one: [sources.NAME]")
    if not spec.sinks:
        raise SpecError("sinks: a pipeline writes to at least one: [sinks.NAME]")
    views: dict[str, str] = {}
    for kind, names in (("sources", [each.name for each in spec.sources]), ("steps", [s.name for s in spec.steps])):
        for name in names:
            if name.lower() in views:
                raise SpecError(f"{kind}.{name}: there is a view of this name: {views[name.lower()]}")
            views[name.lower()] = f"{kind}.{name}"
    known = [each.name for each in spec.sources]
    for step in spec.steps:
        for name in step.inputs:
            _check_known(f"steps.{step.name}.inputs", name, known)
        known.append(step.name)
    for sink in spec.sinks:
        _check_known(f"sinks.{sink.name}.from", sink.source, known)
    tables = [each.name for each in spec.sources if each.read_as == TABLE]
    for sink in spec.sinks:
        if sink.source in tables:
            raise SpecError(f"sinks.{sink.name}.from: {sink.source} is a table, and a sink takes a stream")


def _check_known(path: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise SpecError(f"{path}: there is no view {name!r} before it{nearest(name, known)}")


# Reading TOML


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest name, or all names."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f": did you mean {close[0]!r}?"
    return f": there are {', '.join(names)}" if names else ""


def duration_ms(text: str, path: str) -> int:
    found = DURATION.fullmatch(text.strip())
    if found is None:
        raise SpecError(f"{path}: {text!r} is not a time such as 500ms, 10s, 2 minutes or 1h")
    unit = found[2]
    name = "ms" if unit.startswith(("ms", "milli")) else unit[0]
    return int(float(found[1]) * _UNITS_MS[name])


class Section:
    """A table of the file, which refuses keys that were never read."""

    def __init__(self, path: str, given: object) -> None:
        if not isinstance(given, Mapping):
            raise SpecError(f"{path}: is a table of keys, not {_kind(given)}")
        self.path = path
        self.given = cast("Mapping[str, Any]", given)
        self._known: list[str] = []

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _take(self, key: str, kind: type, default: Any, *, required: bool = False) -> Any:
        self._known.append(key)
        if key not in self.given:
            if required:
                raise SpecError(f"{self._at(key)}: is missing")
            return default
        value = self.given[key]
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise SpecError(f"{self._at(key)}: is {_NAMES[kind]}, not {_kind(value)}")
        return value

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        return str(self._take(key, str, default, required=required)).strip()

    def flag(self, key: str) -> bool:
        return bool(self._take(key, bool, False))

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise SpecError(f"{self._at(key)}: {value!r} is not one of {', '.join(choices)}{_meant(value, choices)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values: list[Any] = self._take(key, list, [])
        for each in values:
            if not isinstance(each, str):
                raise SpecError(f"{self._at(key)}: is a list of texts, and {each!r} is {_kind(each)}")
        return tuple(values)

    def strings(self, key: str) -> dict[str, str]:
        """A table of texts; numbers and flags are converted. TOML reads a dotted key as a nested table."""
        found: dict[str, str] = {}
        self._flatten(self._take(key, dict, {}), self._at(key), "", found)
        return found

    def _flatten(self, values: Mapping[str, Any], path: str, prefix: str, found: dict[str, str]) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                self._flatten(cast("dict[str, Any]", value), f"{path}.{name}", f"{prefix}{name}.", found)
            elif isinstance(value, str | int | float):
                found[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)
            else:
                raise SpecError(f"{path}.{name}: is a text, not {_kind(value)}")

    def section(self, key: str) -> Section:
        return Section(self._at(key), self._take(key, dict, {}, required=True))

    def sections(self, key: str) -> list[Section]:
        found: dict[str, Any] = self._take(key, dict, {})
        return [Section(f"{self._at(key)}.{name}", value) for name, value in found.items()]

    def done(self) -> None:
        """SpecError for an unknown key."""
        for key in self.given:
            if key not in self._known:
                raise SpecError(f"{self._at(key)}: is not known{nearest(key, self._known)}")


_NAMES: dict[type, str] = {str: "a text", bool: "true or false", list: "a list", dict: "a table of keys"}


def _meant(value: str, choices: Sequence[str]) -> str:
    close = difflib.get_close_matches(value, choices, n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else ""


def _kind(value: object) -> str:
    return _NAMES.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
