"""The identity of a micro-batch: the offsets that Spark wrote to the query's checkpoint before it ran the batch.

A batch's number does not identify it. A checkpoint that was lost, copied or restored from a backup gives the same
number to other rows. Spark plans a batch once, writes the plan to ``<checkpoint>/offsets/<number>``, and replays the
batch from that file; so two batches are the same if this file is the same. See `BatchOffsets.compare`.
"""

from __future__ import annotations

import enum
import hashlib
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_penstock.spark_internals import query_of_foreach_batch, read_by_java

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

DIGEST_CHARACTERS = 20
"""Hexadecimal digits of a SHA-256 that are kept: 80 bits, enough against accidental collisions."""
TEXT_CHARACTERS_MAX = 300
METADATA_LINES = 2
"""The version, and the batch's time and settings; the offsets of each source follow."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LOCAL_ADDRESS = re.compile(r"file:(//[^/]*)?")
"""The prefix of a path in an address. The path is not decoded, as in Hadoop: `%20` and `#` are parts of names."""


class Sameness(enum.Enum):
    """Whether two batches of one number are the same, as far as their offsets tell."""

    SAME_PLAN = "same plan"
    """One batch, planned once: a replay, even if the query produced other rows this time."""
    SAME_OFFSETS = "same offsets"
    """Planned twice, from the same offsets to the same offsets: one batch if its rows are the same too.

    The offset of some sources (files) is a position in a list in the checkpoint, so equal offsets of two checkpoints
    may mean different input.
    """
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffsets:
    """Where a batch begins and ends in its sources, as digests, and as text for error messages."""

    plan: str
    """Digest of Spark's entry for the batch, which includes the time of its planning."""
    start: str
    """Digest of the offsets at which the previous batch ended; empty for the first batch."""
    end: str
    """Digest of the offsets at which this batch ends."""
    text: str
    """The end offsets as Spark wrote them, shortened."""

    def compare(self, other: BatchOffsets) -> Sameness:
        """Whether a batch of the same number is this one."""
        if self.plan == other.plan:
            return Sameness.SAME_PLAN
        return Sameness.SAME_OFFSETS if (self.start, self.end) == (other.start, other.end) else Sameness.OTHER


def offsets_of_batch(checkpoint: str, batch: int) -> BatchOffsets | None:
    """Read a batch's offsets from its query's checkpoint; None where the checkpoint cannot be read from Python."""
    return _offsets(batch, lambda number: _read(checkpoint, f"offsets/{number}"))


def offsets_in_foreach_batch(table: DataFrame, batch: int) -> BatchOffsets | None:
    """Read the offsets of the batch that ``foreachBatch`` was called with; None on Spark Connect or outside of it."""
    found = query_of_foreach_batch(table.sparkSession)
    if found is None:
        return None
    return _offsets(batch, lambda number: read_by_java(table.sparkSession, f"{found.checkpoint}/offsets/{number}"))


def _offsets(batch: int, read: Callable[[int], str | None]) -> BatchOffsets | None:
    entry = read(batch)
    # An unreachable object store takes seconds to fail, so it is tried once.
    before = read(batch - 1) if batch > 0 and entry is not None else ""
    if entry is None or before is None:
        return None
    ends = _source_offsets(entry)
    return BatchOffsets(
        plan=_digest(entry),
        start=_digest(_source_offsets(before)) if before else "",
        end=_digest(ends),
        text=ends if len(ends) <= TEXT_CHARACTERS_MAX else ends[:TEXT_CHARACTERS_MAX] + "...",
    )


def _source_offsets(entry: str) -> str:
    return "; ".join(entry.split("\n")[METADATA_LINES:])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


def _read(checkpoint: str, name: str) -> str | None:
    """Read a file of a checkpoint: a local path, or an address that Arrow's file systems know (s3, gs, hdfs)."""
    scheme = _SCHEME.match(checkpoint)
    if scheme is not None and scheme.group(1) != "file":
        return _read_remote(f"{checkpoint.rstrip('/')}/{name}")
    folder = checkpoint if scheme is None else _LOCAL_ADDRESS.sub("", checkpoint)
    try:
        return (Path(folder) / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _read_remote(address: str) -> str | None:
    # pyarrow has no types; a module imported by name is Any.
    arrow_fs: Any = import_module("pyarrow.fs")
    try:
        files, path = arrow_fs.FileSystem.from_uri(address.replace("s3a://", "s3://"))
        with files.open_input_stream(path) as stream:
            return bytes(stream.read()).decode()
    except Exception:
        # Any exception of a third-party file system: only Spark may have its credentials.
        return None
