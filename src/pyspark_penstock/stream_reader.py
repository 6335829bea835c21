"""A topic as a stream: micro-batches from where the last one ended, within their limits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.model.clock import Clock
from penstock.model.generated_errors import UnknownTopicOrPartition
from penstock.wire.primitives import ZERO_UUID
from pyspark_penstock.batch_reader import RangePartition, check_schema, read_range
from pyspark_penstock.cluster import Cluster
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.fetching import data_loss
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.offset_options import AtOffsets, Back, Everywhere, OfGroup
from pyspark_penstock.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    Place,
    divided,
    from_json,
    limited,
    named,
    to_json,
    weighted,
)
from pyspark_penstock.options import Admission, ReadOptions
from pyspark_penstock.spark_internals import (
    HAS_ADMISSION_CONTROL,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

LOOKUPS_MAX = 3
"""How often the end of a partition is looked up if it is before the offset already read, or if there is none."""
LOOKUP_SECONDS = 1.0


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    parsed = ReadOptions.of(options, streaming=True)
    check_schema(parsed, schema)
    if HAS_ADMISSION_CONTROL:
        return StreamReader(parsed)
    refuse_without_admission_control(parsed)
    return StreamReaderToLatest(parsed)


def refuse_without_admission_control(options: ReadOptions) -> None:
    """Refuse options that need the start of a batch, or the trigger, which older versions do not pass."""
    old = f"PySpark {pyspark.__version__} does not let a Python source limit a batch"
    if options.admission != Admission():
        raise WrongOption(
            f"{old}: maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay and maxBytesPerTrigger need "
            "PySpark 4.2 or newer"
        )
    start = options.start.otherwise if isinstance(options.start, OfGroup) else options.start
    if isinstance(start, Back):
        raise WrongOption(
            f"{old}: a start that counts back from the end needs PySpark 4.2 or newer, as a first batch that is "
            "repeated would begin later. Use startingTimestamp or startingOffsets with offsets"
        )


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one streaming query. Its state is in one process of the driver, its checkpoint is Spark's."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._link: BrokerLink | None = None
        self._available_now = False
        self._target: Offsets | None = None
        self._latest: Offsets = {}
        self._initial: Offsets | None = None
        self._planned = False
        self._triggered_at: float | None = None
        self._committed: Offsets = {}
        self._planned_end: Offsets = {}
        self._topic_ids: dict[str, bytes] = {}

    def __reduce__(self) -> tuple[type[StreamReader], tuple[ReadOptions]]:
        # Executors get the options; connections and the state of the query stay in the driver.
        return StreamReader, (self._options,)

    def __repr__(self) -> str:
        return "StreamReader()"

    # Called in the driver

    def initialOffset(self) -> dict[str, Any]:
        self._connected().require_contact()
        found = self._cluster().resolve(self._options.start, starting=True, now_ms=self._clock().now_ms())
        self._initial = found
        return to_json(found)

    def end_at_latest(self) -> dict[str, Any]:
        """The end of the next batch, for versions of Spark that do not pass its start.

        At a restart Spark first plans its last batch again, so the next batch starts where the last planned one ended.
        """
        if not self._planned:
            self._connected().require_contact()
        self._commit(self._planned_end)
        return to_json(self._available(self._planned_end))

    def start_not_beyond_end(self) -> dict[str, Any]:
        """Where the first batch starts, for versions of Spark that ask for its end first."""
        found = self._cluster().resolve(self._options.start, starting=True, now_ms=self._clock().now_ms())
        self._initial = {place: min(offset, self._latest.get(place, offset)) for place, offset in found.items()}
        return to_json(self._initial)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = from_json(start)
        # Spark plans the next batch once the last one is done, so all records before its start have been processed.
        self._commit(begun)
        if self._is_first(begun):
            return start
        end = self._available(begun)
        if not isinstance(limit, ReadAllAvailable):
            end = self._admitted(begun, end)
        return to_json(end)

    def getDefaultReadLimit(self) -> ReadLimit:
        admission = self._options.admission
        if admission.offsets_max is not None:
            return ReadMaxRows(admission.offsets_max)
        if admission.bytes_max is not None:
            return ReadMaxBytes(admission.bytes_max)
        if admission.offsets_min is not None:
            return ReadMinRows(admission.offsets_min)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_json(self._latest) if self._latest else None

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._planned = True
        begun, until = from_json(start), from_json(end)
        self._planned_end = until
        # The start of a repeated first batch is looked up again, and may be beyond its end.
        if begun != self._initial:
            for place in _moved_back(begun, until):
                self._report_moved_back(place, begun[place], until[place])
        deleted = begun.keys() - until.keys()
        if deleted:
            data_loss(self._options.fetch, f"Partitions {named(deleted)} have been deleted.")
        added = until.keys() - begun.keys()
        begun |= self._added(added) if added else {}
        ranges = [
            OffsetRange(
                topic=topic,
                partition=partition,
                start=begun[topic, partition],
                end=last,
                topic_id=self._topic_id(topic),
                leader=self._cluster().leader(topic, partition),
                leader_epoch=self._cluster().leader_epoch(topic, partition),
            )
            for (topic, partition), last in sorted(until.items())
            if (topic, partition) in begun and begun[topic, partition] < last
        ]
        chosen = divided(
            ranges,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )
        return [RangePartition(each) for each in chosen]

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(from_json(end))

    def stop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    # Called in executors

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition), f"{type(partition).__name__} was not planned here"
        return read_range(self._options, partition.wanted)

    # The first batch

    def _is_first(self, begun: Offsets) -> bool:
        """Whether the query's first batch is empty, so that its checkpoint holds the start.

        Spark looks a start up again when it repeats the first batch. A start such as the latest offset has moved by
        then, and the records between would be in no batch.
        """
        first = self._initial == begun and not self._planned and self._moves()
        self._initial = None
        return first

    def _moves(self) -> bool:
        match self._options.start:
            case Everywhere(offset=offset):
                return offset != EARLIEST
            case AtOffsets(offsets=offsets):
                return LATEST in offsets.values()
            case _:
                return True

    # Available offsets

    def _available(self, begun: Offsets) -> Offsets:
        if self._target is not None:
            return self._target
        self._latest = self._looked_up(begun)
        if self._available_now:
            self._target = self._latest
        return self._latest

    def _looked_up(self, begun: Offsets) -> Offsets:
        latest = self._ends()
        for _ in range(LOOKUPS_MAX - 1):
            if not _moved_back(begun, latest) and begun.keys() <= latest.keys():
                break
            # A broker that has just restarted, or was cut off, may not know the end or a new partition yet.
            self._connected().forget()
            time.sleep(LOOKUP_SECONDS)
            latest = self._ends()
        for place in _moved_back(begun, latest):
            self._report_moved_back(place, begun[place], latest[place])
        deleted = begun.keys() - latest.keys()
        if deleted:
            data_loss(self._options.fetch, f"Partitions {named(deleted)} have been deleted.")
        self._notice_new_topics({topic for topic, _ in begun})
        return latest

    def _report_moved_back(self, place: Place, begun: int, end: int) -> None:
        data_loss(
            self._options.fetch,
            f"Partition {place[0]}-{place[1]} offset was changed from {begun} to {end}. This could either be a user "
            "error that the start offset is set too high and this is the first batch, or the kafka topic-partition is "
            "broken, and some data may have been missed.",
        )

    def _ends(self) -> Offsets:
        cluster = self._cluster()
        try:
            return cluster.latest(cluster.places())
        except UnknownTopicOrPartition:
            # Deleted between the two requests.
            return cluster.latest(cluster.places())

    def _notice_new_topics(self, read: set[str]) -> None:
        """Report re-created topics as lost data: their offsets are not those of the checkpoint."""
        for topic in read:
            current = self._cluster().topic_id(topic)
            known = self._topic_ids.setdefault(topic, current)
            if current not in (known, ZERO_UUID):
                data_loss(self._options.fetch, f"Topic {topic} has been deleted and created again.")
                self._topic_ids[topic] = current

    def _topic_id(self, topic: str) -> bytes:
        found = self._cluster().topic_id(topic)
        if found == ZERO_UUID:
            self._cluster().places()
            found = self._cluster().topic_id(topic)
        return found

    def _added(self, places: set[Place]) -> Offsets:
        """The first offsets of partitions that the query has not read before."""
        earliest = self._cluster().earliest(places)
        for (topic, partition), offset in sorted(earliest.items()):
            if offset > 0:
                data_loss(
                    self._options.fetch, f"Added partition {topic}-{partition} starts from {offset} instead of 0."
                )
        return earliest

    # Limits

    def _admitted(self, begun: Offsets, end: Offsets) -> Offsets:
        admission = self._options.admission
        if (admission.offsets_max, admission.offsets_min, admission.bytes_max) == (None, None, None):
            return end
        added = end.keys() - begun.keys()
        known = {**begun, **(self._cluster().earliest(added) if added else {})}
        now = self._clock().monotonic()
        if admission.offsets_min is not None and not self._available_now:
            waited_ms = None if self._triggered_at is None else (now - self._triggered_at) * 1000
            pending = sum(last - known[place] for place, last in end.items())
            if waited_ms is not None and waited_ms < admission.delay_ms_max and pending < admission.offsets_min:
                return begun
            self._triggered_at = now
        if admission.offsets_max is not None:
            end = limited(admission.offsets_max, known, end)
        if admission.bytes_max is not None:
            end = weighted(admission.bytes_max, known, end, self._cluster().record_bytes(end))
        return end

    # Groups

    def _commit(self, offsets: Offsets) -> None:
        group = self._options.commit_group
        if group is not None and offsets and offsets != self._committed:
            self._cluster().commit(group, offsets)
            self._committed = offsets

    # Connections

    def _connected(self) -> BrokerLink:
        if self._link is None:
            self._link = BrokerLink(self._options.link)
        return self._link

    def _clock(self) -> Clock:
        return self._connected().clock

    def _cluster(self) -> Cluster:
        options = self._options
        return Cluster(self._connected(), options.subscription, read_committed=options.fetch.read_committed)


class StreamReaderToLatest(DataSourceStreamReader):
    """The source of a streaming query in PySpark 4.0 and 4.1: every batch ends at the latest offsets.

    They ask for the end of the first batch before its start. A query with Trigger.AvailableNow asks for the end once,
    and reads up to it.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._reader = StreamReader(options)

    def __repr__(self) -> str:
        return "StreamReaderToLatest()"

    def initialOffset(self) -> dict[str, Any]:
        return self._reader.start_not_beyond_end()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._reader.end_at_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()


def _moved_back(begun: Offsets, latest: Offsets) -> list[Place]:
    """The partitions that end before the offset already read."""
    return sorted(place for place, offset in begun.items() if latest.get(place, offset) < offset)
