"""The plan of a replay: the files of a table, in an order that keeps the order of every partition's records."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from pyspark_penstock.lake import DataFile, LakeError, LakeTable
from pyspark_penstock.offsets import Place
from pyspark_penstock.pipelines.data_files import read_schema, with_footer
from pyspark_penstock.pipelines.store import Store
from pyspark_penstock.untyped import pyarrow

FOOTER_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The records to replay; None is no bound. Lower bounds are included, upper ones are not."""

    topics: tuple[str, ...] = ()
    time_us_min: int | None = None
    time_us_end: int | None = None
    offset_min: int | None = None
    offset_end: int | None = None

    def may_hold(self, file: DataFile) -> bool:
        """Whether a file may have such records, by its footer."""
        topic = file.values.get("topic")
        if self.topics and topic is not None and topic not in self.topics:
            return False
        return not file.spans or any(
            (self.offset_min is None or span.offset_max >= self.offset_min)
            and (self.offset_end is None or span.offset_min < self.offset_end)
            and (self.time_us_min is None or span.timestamp_us_max >= self.time_us_min)
            and (self.time_us_end is None or span.timestamp_us_min < self.time_us_end)
            for span in file.spans
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Some rows of a file, in their order."""

    file: DataFile
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Files in the order of their replay. A position is a row, counted over all of them."""

    root: str
    wanted: Wanted
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    def to_json(self) -> dict[str, Any]:
        return {"root": self.root, "wanted": asdict(self.wanted), "files": [each.to_json() for each in self.files]}

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> Plan:
        fields: dict[str, Any] = dict(found["wanted"])
        fields["topics"] = tuple(fields["topics"])
        wanted = Wanted(**fields)
        return cls(root=found["root"], wanted=wanted, files=tuple(DataFile.of_json(each) for each in found["files"]))


def make_plan(table: LakeTable, wanted: Wanted) -> Plan:
    """Plan a replay; LakeError if the table has no records with their original bytes."""
    store = table.store
    candidates = table.files()
    if not candidates:
        raise LakeError(f"there is nothing at {store.root}: is it a table, and is --format right?")
    with ThreadPoolExecutor(FOOTER_THREADS) as pool:
        known = list(pool.map(partial(with_footer, store), candidates))
    chosen = [each for each in known if each.rows and wanted.may_hold(each)]
    for each in chosen:
        check_columns(store, each)
    return Plan(root=store.root, wanted=wanted, files=tuple(ordered(chosen)))


def check_columns(store: Store, file: DataFile) -> None:
    schema = read_schema(store, file.path)
    if value_column(schema) is None:
        raise LakeError(
            f"{file.path} has no column of values as bytes: the table was archived without them, or by something else"
        )


def value_column(schema: Any) -> str | None:
    """The column that holds the original bytes of values."""
    if "value_bytes" in schema.names:
        return "value_bytes"
    if "value" not in schema.names:
        return None
    kind = schema.field("value").type
    plain = pyarrow.types.is_binary(kind) or pyarrow.types.is_string(kind) or pyarrow.types.is_large_binary(kind)
    return "value" if plain else None


def ordered(files: Sequence[DataFile]) -> Iterator[DataFile]:
    """Files of one partition by their offsets, and partitions interleaved by time.

    A partition's timestamps may go back; its files stay in the order of offsets.
    """
    groups: dict[Place | None, list[DataFile]] = {}
    for each in files:
        groups.setdefault(each.spans[0].place if len(each.spans) == 1 else None, []).append(each)
    queues: list[list[tuple[int, str, DataFile]]] = []
    for place, group in groups.items():
        group.sort(key=lambda each: (each.spans[0].offset_min if place is not None else 0, each.path))
        times = accumulate((each.spans[0].timestamp_us_min if each.spans else 0 for each in group), max)
        queues.append([(time, each.path, each) for time, each in zip(times, group, strict=True)])
    for _, _, file in heapq.merge(*queues, key=lambda entry: entry[:2]):
        yield file


def slices(files: Sequence[DataFile], first: int, end: int) -> list[list[Slice]]:
    """The rows of a range of positions, in lists that may be sent in parallel without changing an order."""
    ends = list(accumulate(each.rows for each in files))
    groups: dict[Place | None, list[Slice]] = {}
    index = bisect_right(ends, first)
    while first < end:
        file = files[index]
        begins = ends[index] - file.rows
        upto = min(end, ends[index])
        place = file.spans[0].place if len(file.spans) == 1 else None
        groups.setdefault(place, []).append(Slice(file=file, first=first - begins, end=upto - begins))
        first = upto
        index += 1
    if None in groups:
        # A file of several partitions may have records that belong before or after those of any other file.
        merged = sorted(groups.items(), key=lambda item: str(item[0]))
        return [[each for _, group in merged for each in group]]
    return list(groups.values())
