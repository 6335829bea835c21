"""Parses what a table is partitioned by: columns, fields of typed values, and the day or hour of a time.

topic,day               of archives, the default
topic,hour              the hour of a record's own time, as 2026-11-17-04
topic,value.country     a field of the typed value, as the column country
hour(ordered_at)        of declared pipelines: the hour of a column, as ordered_at_hour
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_penstock.errors import WrongOption

TIME_COLUMN = "timestamp"
UNITS = ("day", "hour")
PATH = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
ITEM = re.compile(rf"(?:(day|hour)\(\s*({PATH})\s*\)|({PATH}))")
VALUE_PREFIX = "value."
MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionColumn:
    """A partition column, and the SQL that computes it; empty for an existing column."""

    name: str
    sql: str = ""


def archive_columns(items: Sequence[str], *, typed: bool) -> tuple[PartitionColumn, ...]:
    """Parse the partition columns of an archive; WrongOption for a wrong one."""
    found = tuple(_archive_column(each, typed=typed) for each in items)
    names = [each.name for each in found]
    taken = {
        "key",
        "value",
        "headers",
        "partition",
        "offset",
        "timestamp",
        "timestamptype",
        "value_bytes",
        "value_error",
    }
    for number, name in enumerate(names):
        if name.lower() in taken | {each.lower() for each in names[:number]}:
            raise WrongOption(f"partition by {items[number]}: the table has another column {name}")
    return found


def _archive_column(item: str, *, typed: bool) -> PartitionColumn:
    if item == "topic":
        return PartitionColumn(name="topic")
    if item in UNITS:
        return PartitionColumn(name=item, sql=time_sql(item, TIME_COLUMN))
    unit, path = _parsed(item)
    if not path.startswith(VALUE_PREFIX):
        raise WrongOption(
            f"partition by {item}: an archive is partitioned by topic, day, hour, value.FIELD, day(value.FIELD) or "
            "hour(value.FIELD)"
        )
    if not typed:
        raise WrongOption(f"partition by {item}: values have fields only if a value format and a schema are given")
    return _derived(unit, path, path.removeprefix(VALUE_PREFIX))


def sink_columns(items: Sequence[str]) -> tuple[PartitionColumn, ...]:
    """Parse the partition columns of a sink; WrongOption for a wrong one."""
    return tuple(_sink_column(each) for each in items)


def _sink_column(item: str) -> PartitionColumn:
    if "(" not in item and "." not in item:
        return PartitionColumn(name=item)
    unit, path = _parsed(item)
    return _derived(unit, path, path)


def _parsed(item: str) -> tuple[str, str]:
    found = ITEM.fullmatch(item)
    if found is None:
        raise WrongOption(f"partition by {item!r}: is neither a column nor day(COLUMN) nor hour(COLUMN)")
    return found[1] or "", found[2] or found[3]


def _derived(unit: str, path: str, named: str) -> PartitionColumn:
    # Readers ignore folders whose names begin with an underscore.
    name = named.replace(".", "_").lstrip("_")
    column = ".".join(f"`{part}`" for part in path.split("."))
    if unit:
        return PartitionColumn(name=f"{name}_{unit}", sql=time_sql(unit, column))
    return PartitionColumn(name=name, sql=column)


def time_sql(unit: str, column: str) -> str:
    """The day as a date, or the hour as a text such as 2026-11-17-04, in UTC, independent of the session's time
    zone."""
    days = f"date_from_unix_date(CAST({_units(column, 'day')} AS INT))"
    if unit == "day":
        return days
    hour = f"lpad(CAST(pmod({_units(column, 'hour')}, 24) AS STRING), 2, '0')"
    return f"concat(CAST({days} AS STRING), '-', {hour})"


def _units(column: str, unit: str) -> str:
    """Whole units since 1970, rounded down before it too."""
    micros, size = f"unix_micros({column})", MICROSECONDS[unit]
    return f"({micros} - pmod({micros}, {size})) DIV {size}"
