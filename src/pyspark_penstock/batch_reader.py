"""A topic as a table: what is in it between a start and an end that are looked up when the query is planned."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_penstock.cluster import Cluster
from pyspark_penstock.columns import ColumnReader, read_schema
from pyspark_penstock.fetching import RangeFetcher, data_loss
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.offsets import OffsetRange, Offsets, divided
from pyspark_penstock.options import ReadOptions
from pyspark_penstock.pushdown import Bounds, FilterPush


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """What one task reads."""

    wanted: OffsetRange


def read_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[Any]:
    """The Arrow record batches of a range, in the order of its offsets. Runs in an executor."""
    _spare_collections()
    with BrokerLink(options.link) as link:
        reader = ColumnReader(options, wanted)
        for fetched in RangeFetcher(link, wanted, options.fetch):
            yield from reader.batches(fetched)


@functools.cache
def _spare_collections() -> None:
    """Keep what is imported out of the sight of the collector of cycles.

    Spark's worker collects after every task, and walking some hundred thousand objects of imported libraries takes
    longer than a task of a small micro-batch. Once for a process: what is made later is collected as ever.
    """
    gc.freeze()


def check_schema(options: ReadOptions, schema: StructType) -> None:
    """Columns are chosen by options: a schema of the user's own would be another promise."""
    expected = read_schema(options)
    if schema.fieldNames() != expected.fieldNames():
        raise ValueError("Kafka source has a fixed schema and cannot be set with a custom one")


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    parsed = ReadOptions.of(options, streaming=False)
    check_schema(parsed, schema)
    return BatchReader(parsed)


class BatchReader(DataSourceReader):
    """One batch query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self.bounds = Bounds()
        """What filters of the query say about partitions, offsets and times."""
        vars(self)["pushFilters"] = FilterPush(self)

    def __repr__(self) -> str:
        return "BatchReader()"

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with BrokerLink(options.link) as link:
            cluster = Cluster(link, options.subscription, read_committed=options.fetch.read_committed)
            now_ms = link.clock.now_ms()
            start = cluster.resolve(options.start, starting=True, now_ms=now_ms)
            end = cluster.resolve(options.end, starting=False, now_ms=now_ms)
            self._check(cluster, start, end)
            ranges = self.bounds.applied(
                [
                    OffsetRange(
                        topic=topic,
                        partition=partition,
                        start=start[topic, partition],
                        end=until,
                        topic_id=cluster.topic_id(topic),
                    )
                    for (topic, partition), until in sorted(end.items())
                    if (topic, partition) in start
                ],
                cluster,
            )
        chosen = divided(ranges, partitions_min=options.partitions_min, records_max=options.records_per_partition_max)
        return [RangePartition(each) for each in chosen]

    def _check(self, cluster: Cluster, start: Offsets, end: Offsets) -> None:
        """A start that the log has passed is lost data; an end before the start is a mistake."""
        earliest = cluster.earliest(start)
        for (topic, partition), first in sorted(start.items()):
            last = end.get((topic, partition), first)
            if first > last:
                raise ValueError(
                    f"The resolved start offset {first} is greater than the resolved end offset {last} for topic "
                    f"{topic} partition {partition}."
                )
            if first < earliest[topic, partition] and first < last:
                data_loss(
                    self._options.fetch,
                    f"Starting offset for {topic}-{partition} was {first} but it begins at "
                    f"{earliest[topic, partition]}.",
                )
                start[topic, partition] = min(earliest[topic, partition], last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, RangePartition):
            # Spark's way of saying that there is nothing to read.
            return iter(())
        return read_range(self._options, partition.wanted)
