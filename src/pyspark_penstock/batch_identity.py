"""What a micro-batch reads: the offsets that Spark noted in the query's checkpoint before it ran the batch.

A batch's number does not identify it. A checkpoint that was lost, copied or restored from a backup gives the same
number to other rows. Spark plans a batch once, writes the plan to ``<checkpoint>/offsets/<number>``, and replays the
batch from that file; so whether two batches are the same is answered by the file. See `BatchOffsets.compare`.
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
"""Of a SHA-256 in hexadecimal: 80 bits, enough where only accidents are to be told apart."""
TEXT_CHARACTERS_MAX = 300
METADATA_LINES = 2
"""The version, and the batch's time and settings; the offsets of each source follow."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LOCAL_ADDRESS = re.compile(r"file:(//[^/]*)?")
"""What comes before the path. The path is taken as it stands, as Hadoop does: `%20` and `#` are parts of names."""


class Sameness(enum.Enum):
    """What the offsets of two batches of one number say about them."""

    SAME_PLAN = "same plan"
    """One batch, planned once: a replay, whatever rows the query made of it this time."""
    SAME_OFFSETS = "same offsets"
    """Planned twice, from the same offsets to the same offsets: one batch if its rows are the same too.

    The offset of some sources (files) is a position in a list that is part of the checkpoint, so that equal offsets of
    two checkpoints may mean different input.
    """
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffsets:
    """Where a batch begins and ends in its sources, as digests, and in words for an error message."""

    plan: str
    """Digest of Spark's entry for the batch, with the time at which it was planned."""
    start: str
    """Digest of the offsets at which the batch before ended; empty for the first batch."""
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
    # An object store that cannot be reached takes seconds to say so: it is asked once.
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
    # Arrow comes without types; a module that is imported by name is untyped and says so.
    arrow_fs: Any = import_module("pyarrow.fs")
    try:
        files, path = arrow_fs.FileSystem.from_uri(address.replace("s3a://", "s3://"))
        with files.open_input_stream(path) as stream:
            return bytes(stream.read()).decode()
    except Exception:
        # Whatever a file system of another make raises: its credentials may be Spark's alone.
        return None
