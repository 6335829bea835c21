"""A topic as a table: its records between a start and an end that are looked up when the query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_penstock.cluster import Cluster
from pyspark_penstock.columns import ColumnReader, read_schema
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.fetching import Fetched, RangeFetcher, data_loss
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.offset_options import AtOffsets
from pyspark_penstock.offsets import OffsetRange, Offsets, divided
from pyspark_penstock.options import ReadOptions
from pyspark_penstock.pushdown import Bounds, FilterPush
from pyspark_penstock.shared_link import shared_link
from pyspark_penstock.spark_internals import exempt_imports_from_collection, offer_filter_pushdown


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """The range that one task reads."""

    wanted: OffsetRange


def read_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[Any]:
    """The Arrow record batches of a range, in the order of its offsets. Runs in an executor."""
    with shared_link(options.link) as link:
        if wanted.leader is not None:
            link.assume_leader(wanted.topic, wanted.partition, wanted.leader, wanted.leader_epoch)
        reader = ColumnReader(options, wanted)
        fetches: Iterable[Fetched] = RangeFetcher(link, wanted, options.fetch)
        if options.filter is not None:
            # Imported only by queries that have a filter.
            from pyspark_penstock.filtering import FilteredFetches

            fetches = FilteredFetches(fetches, options.filter, wanted, check_crcs=options.fetch.check_crcs)
        for fetched in fetches:
            yield from reader.batches(fetched)
    exempt_imports_from_collection()


def check_schema(options: ReadOptions, schema: StructType) -> None:
    """Refuse a user's own schema: options choose the columns."""
    expected = read_schema(options)
    if schema.fieldNames() != expected.fieldNames():
        raise WrongOption("Kafka source has a fixed schema and cannot be set with a custom one")


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    parsed = ReadOptions.of(options, streaming=False)
    check_schema(parsed, schema)
    return BatchReader(parsed)


class BatchReader(DataSourceReader):
    """One batch query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self.bounds = Bounds()
        """Bounds on partitions, offsets and times from the filters of the query."""
        if options.filter_pushdown:
            # Spark reuses a plan made with a frame's filters for the frame's next query, which may have none.
            offer_filter_pushdown(self, FilterPush(self))

    def __repr__(self) -> str:
        return "BatchReader()"

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with BrokerLink(options.link) as link:
            link.require_contact()
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
                        leader=cluster.leader(topic, partition),
                        leader_epoch=cluster.leader_epoch(topic, partition),
                    )
                    for (topic, partition), until in sorted(end.items())
                    if (topic, partition) in start
                ],
                cluster,
            )
        chosen = divided(ranges, partitions_min=options.partitions_min, records_max=options.records_per_partition_max)
        return [RangePartition(each) for each in chosen]

    def _check(self, cluster: Cluster, start: Offsets, end: Offsets) -> None:
        """Report a start before the log start, or an end beyond the log end, as lost data; refuse an end before the
        start."""
        self._check_ends(cluster, start, end)
        earliest = cluster.earliest(start)
        for (topic, partition), first in sorted(start.items()):
            last = end.get((topic, partition), first)
            if first > last:
                raise WrongOption(
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

    def _check_ends(self, cluster: Cluster, start: Offsets, end: Offsets) -> None:
        """Report ends beyond the end of a log as lost data; only offsets that a user wrote can be so."""
        if not isinstance(self._options.end, AtOffsets):
            return
        for place, last in sorted(cluster.latest(end).items()):
            if end[place] > last:
                data_loss(
                    self._options.fetch,
                    f"Ending offset for {place[0]}-{place[1]} was {end[place]} but its log ends at {last}.",
                )
                end[place] = max(last, start.get(place, last))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, RangePartition):
            # Spark passes None for an empty plan.
            return iter(())
        return read_range(self._options, partition.wanted)
