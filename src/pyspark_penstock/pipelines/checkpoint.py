"""What a query's checkpoint says, before Spark is asked."""

from __future__ import annotations

import json
from typing import Any, cast

from pyspark_penstock.pipelines.store import Store


class WrongCheckpoint(Exception):
    """A checkpoint that is not the one of what is started."""


def last_offsets(checkpoint: Store) -> list[dict[str, Any]] | None:
    """The offsets of the last batch that was begun, one of each source; None for a checkpoint without any."""
    numbers = [
        int(name)
        for entry in checkpoint.list("offsets")
        if (name := entry.path.rpartition("/")[2]).isdigit() and entry.path.count("/") == 1
    ]
    if not numbers:
        return None
    raw = checkpoint.read(f"offsets/{max(numbers)}")
    assert raw is not None, "an offset log that was listed"
    found: list[dict[str, Any]] = []
    # A version, the batch's own metadata, and a line for each source.
    for line in raw.decode().splitlines()[2:]:
        offsets: Any = json.loads(line) if line.startswith("{") else None
        if isinstance(offsets, dict):
            found.append(cast("dict[str, Any]", offsets))
    return found


def check_topics(checkpoint: Store, topics: set[str]) -> bool:
    """Whether a query has run on this checkpoint before; WrongCheckpoint where it read other topics."""
    found = last_offsets(checkpoint)
    if found is None:
        return False
    read = {topic for offsets in found for topic in offsets}
    if read and not read & topics:
        raise WrongCheckpoint(
            f"the checkpoint {checkpoint.root} is of a query that reads {', '.join(sorted(read))}, not "
            f"{', '.join(sorted(topics))}: choose another one, or leave it out"
        )
    return True
