"""The readers as Spark's processes use them, against a real broker and without a JVM: planning and reading.

Most failures are tested here, where a test takes a second; test_source_spark.py has those that need Spark itself.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.batch_reader import BatchReader, RangePartition, batch_reader
from pyspark_penstock.cluster import MissingTopic
from pyspark_penstock.columns import read_schema
from pyspark_penstock.errors import WrongOption
from pyspark_penstock.fetching import DataLoss, ReadTimeout
from pyspark_penstock.options import ReadOptions
from pyspark_penstock.stream_reader import (
    StreamReader,
    StreamReaderToLatest,
    refuse_without_admission_control,
    stream_reader,
)

ADMIN_SECONDS_MAX = 90.0
ALL = ReadAllAvailable()
FEW_A_BATCH = {"batch.num.messages": 5}
Rows = list[tuple[int, int, bytes | None]]


class Topics:
    """Topics of one broker, created and filled for a test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def make(self, *, partitions: int = 1, name: str = "", **config: str) -> str:
        name = name or f"t-{uuid.uuid4().hex[:8]}"
        [made] = self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
        made.result(ADMIN_SECONDS_MAX)
        return name

    def delete(self, name: str) -> None:
        [gone] = self.admin.delete_topics([name]).values()
        gone.result(ADMIN_SECONDS_MAX)

    def widen(self, name: str, partitions: int) -> None:
        [made] = self.admin.create_partitions([NewPartitions(name, partitions)]).values()
        made.result(ADMIN_SECONDS_MAX)

    def truncate(self, name: str, offset: int, partition: int = 0) -> None:
        [done] = self.admin.delete_records([TopicPartition(name, partition, offset)]).values()
        done.result(ADMIN_SECONDS_MAX)

    def fill(
        self, name: str, *values: bytes, partition: int = 0, timestamp: int | None = None, **settings: Any
    ) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, **settings})
        for value in values:
            more = {} if timestamp is None else {"timestamp": timestamp}
            producer.produce(name, value, partition=partition, **more)
        assert producer.flush(ADMIN_SECONDS_MAX) == 0

    def committed(self, group: str, name: str, partition: int = 0) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        try:
            [found] = consumer.committed([TopicPartition(name, partition)], ADMIN_SECONDS_MAX)
            return int(found.offset)
        finally:
            consumer.close()

    def batch(self, topic: str, **options: str) -> BatchReader:
        given = self._options(topic, options)
        return batch_reader(given, read_schema(ReadOptions.of(given)))

    def stream(self, topic: str, **options: str) -> StreamReader:
        given = self._options(topic, {"startingOffsets": "earliest", **options})
        made = stream_reader(given, read_schema(ReadOptions.of(given)))
        assert isinstance(made, StreamReader)
        return made

    def to_latest(self, topic: str, **options: str) -> StreamReaderToLatest:
        return StreamReaderToLatest(self.read_options(topic, **options))

    def read_options(self, topic: str, **options: str) -> ReadOptions:
        return ReadOptions.of(self._options(topic, options), streaming=True)

    def _options(self, topic: str, options: Mapping[str, str]) -> dict[str, str]:
        chosen = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": topic}
        waiting_reader = {"kafka.default.api.timeout.ms": "90000", "kafkaConsumer.pollTimeoutMs": "90000"}
        return {"kafka.bootstrap.servers": self.bootstrap, **waiting_reader, **chosen, **options}


@pytest.fixture(scope="module")
def topics(broker: PenstockProcess) -> Topics:
    return Topics(broker.bootstrap)


def tasks(reader: BatchReader | StreamReader | StreamReaderToLatest, partitions: Any) -> Rows:
    """The rows of a plan's tasks, each with an unpickled reader."""
    found: Rows = []
    for partition in partitions:
        travelled = pickle.loads(pickle.dumps(reader))
        for batch in travelled.read(pickle.loads(pickle.dumps(partition))):
            found += [(row["partition"], row["offset"], row["value"]) for row in batch.to_pylist()]
    return found


def read(reader: BatchReader) -> Rows:
    return tasks(reader, reader.partitions())


def values(rows: Rows) -> list[bytes | None]:
    return [value for _, _, value in rows]


@pytest.fixture
def running(topics: Topics) -> Iterator[list[StreamReader]]:
    readers: list[StreamReader] = []
    yield readers
    for reader in readers:
        reader.stop()


# Where a batch begins and ends


def test_a_batch_reads_every_partition_to_its_end(topics: Topics) -> None:
    name = topics.make(partitions=2)
    topics.fill(name, b"a", b"b")
    topics.fill(name, b"c", partition=1)
    assert read(topics.batch(name)) == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]


def test_starts_and_ends_are_offsets_times_or_relative(topics: Topics) -> None:
    name = topics.make()
    for index in range(5):
        topics.fill(name, b"%d" % index, timestamp=1_000 * (index + 1))
    offsets = {"startingOffsets": f'{{"{name}": {{"0": 1}}}}', "endingOffsets": f'{{"{name}": {{"0": 3}}}}'}
    assert values(read(topics.batch(name, **offsets))) == [b"1", b"2"]
    assert values(read(topics.batch(name, startingTimestamp="2500", endingTimestamp="4000"))) == [b"2"]
    times = {"startingOffsetsByTimestamp": f'{{"{name}": {{"0": 4001}}}}'}
    assert values(read(topics.batch(name, **times))) == [b"4"]
    assert values(read(topics.batch(name, startingOffsets="-2"))) == [b"3", b"4"]
    assert values(read(topics.batch(name, startingOffsets="-100"))) == [b"0", b"1", b"2", b"3", b"4"]
    assert values(read(topics.batch(name, startingOffsets="-1h"))) == []
    topics.fill(name, b"now")
    assert values(read(topics.batch(name, startingOffsets="-1h"))) == [b"now"]


def test_a_time_that_nothing_has_is_an_error_unless_the_end_will_do(topics: Topics) -> None:
    name = topics.make()
    topics.fill(name, b"old", timestamp=1_000)
    late = {"startingTimestamp": "99999999999999"}
    with pytest.raises(ValueError, match=f"No offset matched from request of topic-partition {name}-0 and timestamp"):
        topics.batch(name, **late).partitions()
    assert read(topics.batch(name, startingOffsetsByTimestampStrategy="latest", **late)) == []


def test_offsets_must_name_every_partition(topics: Topics) -> None:
    name = topics.make(partitions=2)
    with pytest.raises(ValueError, match=r"don't match what are assigned[\s\S]*Specified: .* Assigned: "):
        topics.batch(name, startingOffsets=f'{{"{name}": {{"0": 0}}}}').partitions()


def test_topics_are_chosen_by_name_by_pattern_or_partition_by_partition(topics: Topics) -> None:
    stem = f"p-{uuid.uuid4().hex[:6]}"
    for suffix in ("one", "two"):
        topics.make(name=f"{stem}-{suffix}", partitions=2)
        topics.fill(f"{stem}-{suffix}", suffix.encode(), partition=1)
    topics.make(name=f"{stem}-three-not")
    both = topics.batch("", subscribePattern=f"{stem}-(one|two)")
    assert sorted(values(read(both)), key=str) == [b"one", b"two"]
    assert values(read(topics.batch(f"{stem}-two,{stem}-one"))) == [b"one", b"two"]
    assert values(read(topics.batch("", assign=f'{{"{stem}-one": [1]}}'))) == [b"one"]
    assert values(read(topics.batch("", assign=f'{{"{stem}-one": [0]}}'))) == []


def test_a_topic_that_does_not_exist_is_an_error_that_names_it(topics: Topics) -> None:
    with pytest.raises(MissingTopic, match="Topic nowhere does not exist"):
        topics.batch("nowhere").partitions()
    name = topics.make()
    with pytest.raises(MissingTopic, match=f"Partitions \\[{name}-7\\] do not exist"):
        topics.batch("", assign=f'{{"{name}": [0, 7]}}').partitions()


def test_a_group_says_where_to_start(topics: Topics) -> None:
    name = topics.make()
    topics.fill(name, b"a", b"b", b"c")
    consumer = Consumer({"bootstrap.servers": topics.bootstrap, "group.id": f"g-{name}", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(name, 0, 2)], asynchronous=False)
    consumer.close()
    assert values(read(topics.batch(name, startingGroup=f"g-{name}"))) == [b"c"]
    assert values(read(topics.batch(name, startingGroup="nobody"))) == [b"a", b"b", b"c"]


def test_many_tasks_read_one_partition_once(topics: Topics) -> None:
    name = topics.make()
    topics.fill(name, *[b"%d" % index for index in range(100)])
    reader = topics.batch(name, minPartitions="7")
    assert len(reader.partitions()) == 7
    assert values(read(reader)) == [b"%d" % index for index in range(100)]
    assert len(topics.batch(name, maxRecordsPerPartition="30").partitions()) == 4


def test_a_large_topic_takes_many_fetch_responses(topics: Topics) -> None:
    name = topics.make()
    made = [b"%06d" % index * 100 for index in range(500)]
    for codec in ("none", "lz4", "zstd", "snappy", "gzip"):
        topics.fill(name, *made[:100], **{"compression.type": codec, "linger.ms": 20})
    found = read(topics.batch(name, **{"kafka.max.partition.fetch.bytes": "5000"}))
    assert values(found) == made[:100] * 5


def test_a_read_committed_query_skips_uncommitted_records(topics: Topics) -> None:
    name = topics.make()
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": f"x-{name}", "log_level": 0})
    producer.init_transactions(ADMIN_SECONDS_MAX)
    for value, commit in ((b"in", True), (b"out", False), (b"again", True)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush()
        if commit:
            producer.commit_transaction(ADMIN_SECONDS_MAX)
        else:
            producer.abort_transaction(ADMIN_SECONDS_MAX)
    committed = {"kafka.isolation.level": "read_committed"}
    assert values(read(topics.batch(name, **committed))) == [b"in", b"again"]
    assert values(read(topics.batch(name))) == [b"in", b"out", b"again"]
    producer.begin_transaction()
    producer.produce(name, b"open")
    producer.flush()
    assert values(read(topics.batch(name, **committed))) == [b"in", b"again"]
    assert values(read(topics.batch(name)))[-1] == b"open"
    producer.abort_transaction(ADMIN_SECONDS_MAX)


# How a stream goes on


def test_a_stream_goes_on_where_the_last_batch_ended(topics: Topics, running: list[StreamReader]) -> None:
    name = topics.make()
    reader = topics.stream(name)
    running.append(reader)
    topics.fill(name, b"a", b"b")
    begun = reader.initialOffset()
    assert begun == {name: {"0": 0}}
    end = reader.latestOffset(begun, ALL)
    assert values(tasks(reader, reader.partitions(begun, end))) == [b"a", b"b"]
    topics.fill(name, b"c")
    later = reader.latestOffset(end, ALL)
    assert values(tasks(reader, reader.partitions(end, later))) == [b"c"]
    assert reader.latestOffset(later, ALL) == later
    assert reader.reportLatestOffset() == later


def test_the_first_batch_of_a_start_that_moves_is_empty(topics: Topics, running: list[StreamReader]) -> None:
    """So the checkpoint holds where the query began, and a repeated first batch loses nothing."""
    name = topics.make()
    topics.fill(name, b"before")
    reader = topics.stream(name, startingOffsets="latest")
    running.append(reader)
    begun = reader.initialOffset()
    topics.fill(name, b"between")
    assert reader.latestOffset(begun, ALL) == begun
    assert list(reader.partitions(begun, begun)) == []
    repeated = topics.stream(name, startingOffsets="latest")
    running.append(repeated)
    assert list(repeated.partitions(repeated.initialOffset(), begun)) == []
    end = repeated.latestOffset(begun, ALL)
    assert values(tasks(repeated, repeated.partitions(begun, end))) == [b"between"]


def test_a_trigger_reads_no_more_than_its_limit(topics: Topics, running: list[StreamReader]) -> None:
    name = topics.make()
    topics.fill(name, *[b"x" * 100] * 100)
    rows = topics.stream(name, maxOffsetsPerTrigger="10")
    size = topics.stream(name, maxBytesPerTrigger="2000")
    running += [rows, size]
    begun = rows.initialOffset()
    assert rows.getDefaultReadLimit() == ReadMaxRows(10)
    assert rows.latestOffset(begun, rows.getDefaultReadLimit()) == {name: {"0": 10}}
    assert rows.latestOffset(begun, ALL) == {name: {"0": 100}}
    taken = size.latestOffset(begun, size.getDefaultReadLimit())[name]["0"]
    assert 5 <= taken <= 25


def test_a_trigger_waits_for_enough_but_not_for_ever(topics: Topics, running: list[StreamReader]) -> None:
    name = topics.make()
    reader = topics.stream(name, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    waiting_reader = topics.stream(name, minOffsetsPerTrigger="10", maxTriggerDelay="0ms")
    running += [reader, waiting_reader]
    limit = reader.getDefaultReadLimit()
    begun = reader.initialOffset()
    topics.fill(name, b"first")
    after = reader.latestOffset(begun, limit)
    assert after == {name: {"0": 1}}
    topics.fill(name, b"one more")
    assert reader.latestOffset(after, limit) == after
    waiting_reader.latestOffset(begun, limit)
    assert waiting_reader.latestOffset(after, limit) == {name: {"0": 2}}
    topics.fill(name, *[b"many"] * 10)
    assert reader.latestOffset(after, limit) == {name: {"0": 12}}


def test_available_now_ends_where_it_looked_first(topics: Topics, running: list[StreamReader]) -> None:
    name = topics.make()
    topics.fill(name, b"a")
    reader = topics.stream(name)
    running.append(reader)
    reader.prepareForTriggerAvailableNow()
    begun = reader.initialOffset()
    end = reader.latestOffset(begun, ALL)
    topics.fill(name, b"late")
    assert reader.latestOffset(end, ALL) == end == {name: {"0": 1}}


def test_processed_offsets_are_committed_to_a_group(topics: Topics, running: list[StreamReader]) -> None:
    name = topics.make()
    reader = topics.stream(name, commitGroup=f"g-{name}")
    running.append(reader)
    topics.fill(name, b"a", b"b")
    begun = reader.initialOffset()
    end = reader.latestOffset(begun, ALL)
    assert topics.committed(f"g-{name}", name) == 0
    reader.commit(end)
    assert topics.committed(f"g-{name}", name) == 2


# Bad days


def test_partitions_that_are_added_are_read_from_their_beginning(topics: Topics, running: list[StreamReader]) -> None:
    name = topics.make()
    reader = topics.stream(name)
    running.append(reader)
    begun = reader.initialOffset()
    topics.widen(name, 2)
    topics.fill(name, b"new", partition=1)
    end = reader.latestOffset(begun, ALL)
    assert tasks(reader, reader.partitions(begun, end)) == [(1, 0, b"new")]


def test_a_start_that_the_log_has_passed_is_an_error_or_is_skipped(topics: Topics, running: list[StreamReader]) -> None:
    name = topics.make()
    topics.fill(name, *[b"%d" % index for index in range(10)])
    strict, loose = topics.stream(name), topics.stream(name, failOnDataLoss="false")
    running += [strict, loose]
    begun = strict.initialOffset()
    end = strict.latestOffset(begun, ALL)
    topics.truncate(name, 6)
    with pytest.raises(DataLoss, match=r"\[KAFKA_DATA_LOSS\][\s\S]*offset \[0, 6\).*begins at 6"):
        tasks(strict, strict.partitions(begun, end))
    assert values(tasks(loose, loose.partitions(begun, end))) == [b"6", b"7", b"8", b"9"]
    start = {"startingOffsets": f'{{"{name}": {{"0": 2}}}}'}
    with pytest.raises(DataLoss, match=f"Starting offset for {name}-0 was 2 but it begins at 6"):
        topics.batch(name, **start).partitions()
    assert values(read(topics.batch(name, failOnDataLoss="false", **start))) == [b"6", b"7", b"8", b"9"]


def test_a_topic_that_is_deleted_is_an_error_or_leaves_the_query(topics: Topics, running: list[StreamReader]) -> None:
    name, other = topics.make(), topics.make()
    topics.fill(name, b"a")
    topics.fill(other, b"b")
    strict = topics.stream(f"{name},{other}")
    loose = topics.stream(f"{name},{other}", failOnDataLoss="false")
    running += [strict, loose]
    begun = strict.initialOffset()
    loose.latestOffset(begun, ALL)
    topics.delete(name)
    with pytest.raises(DataLoss, match=f"Partitions \\[{name}-0\\] have been deleted"):
        strict.latestOffset(begun, ALL)
    end = loose.latestOffset(begun, ALL)
    assert end == {other: {"0": 1}}
    assert values(tasks(loose, loose.partitions(begun, end))) == [b"b"]


def test_a_topic_that_is_deleted_while_a_task_reads_it_is_an_error_or_its_end(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_penstock.fetching.GONE_SECONDS", 0.2)
    for loss_fails in (True, False):
        name = topics.make()
        topics.fill(name, *[b"x" * 1000] * 100, **FEW_A_BATCH)
        small = {"kafka.max.partition.fetch.bytes": "2000", "failOnDataLoss": str(loss_fails).lower()}
        reader = topics.batch(name, **small)
        [partition] = reader.partitions()
        batches = reader.read(partition)
        next(batches)
        topics.delete(name)
        if loss_fails:
            with pytest.raises(DataLoss, match=f"{name}-0 has been deleted"):
                list(batches)
        else:
            assert sum(batch.num_rows for batch in batches) < 100


def test_a_topic_that_is_created_again_is_not_mistaken_for_the_old_one(
    topics: Topics, running: list[StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_penstock.fetching.GONE_SECONDS", 0.2)
    name = topics.make()
    topics.fill(name, b"old")
    stream, batch = topics.stream(name), topics.batch(name)
    running.append(stream)
    end = stream.latestOffset(stream.initialOffset(), ALL)
    planned = batch.partitions()
    topics.delete(name)
    topics.make(name=name)
    topics.fill(name, b"new", b"newer")
    with pytest.raises(DataLoss, match=f"Topic {name} has been deleted and created again"):
        stream.latestOffset(end, ALL)
    with pytest.raises(DataLoss, match=f"{name}-0 was created again"):
        tasks(batch, planned)


def test_a_log_that_ends_before_the_offset_read_is_an_error(
    topics: Topics, running: list[StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_penstock.stream_reader.LOOKUP_SECONDS", 0.01)
    name = topics.make()
    topics.fill(name, b"a")
    strict, loose = topics.stream(name), topics.stream(name, failOnDataLoss="false")
    running += [strict, loose]
    with pytest.raises(DataLoss, match=f"Partition {name}-0 offset was changed from 50 to 1"):
        strict.latestOffset({name: {"0": 50}}, ALL)
    end = loose.latestOffset({name: {"0": 50}}, ALL)
    assert list(loose.partitions({name: {"0": 50}}, end)) == []


def test_the_checkpoint_of_another_topic_is_an_error(topics: Topics, running: list[StreamReader]) -> None:
    name, other = topics.make(), topics.make()
    topics.fill(name, b"a")
    reader = topics.stream(name)
    running.append(reader)
    with pytest.raises(DataLoss, match=f"Partitions \\[{other}-0\\] have been deleted"):
        reader.latestOffset({other: {"0": 5}}, ALL)
    with pytest.raises(ValueError, match=r"Expected e\.g\."):
        reader.latestOffset({"index": 5}, ALL)


def test_an_ending_offset_beyond_the_end_is_lost_data_at_once(topics: Topics) -> None:
    name = topics.make()
    topics.fill(name, b"a", b"b")
    beyond = {"endingOffsets": f'{{"{name}": {{"0": 9}}}}'}
    with pytest.raises(DataLoss, match=rf"Ending offset for {name}-0 was 9 but its log ends at 2"):
        topics.batch(name, **beyond).partitions()
    assert values(read(topics.batch(name, failOnDataLoss="false", **beyond))) == [b"a", b"b"]
    both = {"startingOffsets": f'{{"{name}": {{"0": 5}}}}', "failOnDataLoss": "false", **beyond}
    assert read(topics.batch(name, **both)) == []
    with pytest.raises(WrongOption, match="resolved start offset 5 is greater than the resolved end offset 2"):
        topics.batch(name, startingOffsets=f'{{"{name}": {{"0": 5}}}}').partitions()


def test_a_range_that_ends_with_the_marker_of_a_transaction_is_read_to_its_end(topics: Topics) -> None:
    name = topics.make()
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(name, b"a")
    producer.commit_transaction()
    ends = {"endingOffsets": f'{{"{name}": {{"0": 2}}}}', "kafka.isolation.level": "read_committed"}
    assert values(read(topics.batch(name, **ends))) == [b"a"]


def test_records_that_never_arrive_are_an_error_and_not_an_end(topics: Topics) -> None:
    """The range was planned on a longer log than the task finds."""
    name = topics.make()
    topics.fill(name, b"a", b"b")
    reader = topics.batch(name, **{"kafkaConsumer.pollTimeoutMs": "1000"})
    [planned] = reader.partitions()
    longer = RangePartition(replace(planned.wanted, end=9))
    with pytest.raises(ReadTimeout, match=rf"Could not read records in offset \[2, 9\) for topic partition {name}-0"):
        tasks(reader, [longer])


# PySpark 4.0 and 4.1, which ask for the end of a batch before its start


def test_without_admission_control_the_first_batch_starts_no_later_than_it_ends(topics: Topics) -> None:
    name = topics.make()
    topics.fill(name, b"a")
    reader = topics.to_latest(name, startingOffsets="latest")
    end = reader.latestOffset()
    topics.fill(name, b"b")
    start = reader.initialOffset()
    assert start == end == {name: {"0": 1}}
    assert list(reader.partitions(start, end)) == []
    assert tasks(reader, reader.partitions(end, reader.latestOffset())) == [(0, 1, b"b")]
    reader.stop()


def test_without_admission_control_a_first_batch_that_is_repeated_loses_nothing(topics: Topics) -> None:
    name = topics.make()
    topics.fill(name, b"a")
    end = {name: {"0": 1}}
    topics.fill(name, b"b")
    restarted = topics.to_latest(name, startingOffsets="latest")
    start = restarted.initialOffset()
    assert start == {name: {"0": 2}}
    assert list(restarted.partitions(start, end)) == []
    assert tasks(restarted, restarted.partitions(end, restarted.latestOffset())) == [(0, 1, b"b")]
    restarted.stop()


def test_without_admission_control_a_log_that_went_back_is_lost_data(topics: Topics) -> None:
    name = topics.make()
    topics.fill(name, b"a")
    restarted = topics.to_latest(name)
    with pytest.raises(DataLoss, match=rf"{name}-0 offset was changed from 5 to 1"):
        restarted.partitions({name: {"0": 5}}, {name: {"0": 1}})
    restarted.stop()


@pytest.mark.parametrize(
    "options",
    [
        {"maxOffsetsPerTrigger": "5"},
        {"maxBytesPerTrigger": "5"},
        {"minOffsetsPerTrigger": "5"},
        {"startingOffsets": "-10m"},
        {"startingOffsets": "-100", "startingGroup": "g"},
    ],
)
def test_without_admission_control_options_that_need_it_are_refused(topics: Topics, options: dict[str, str]) -> None:
    with pytest.raises(WrongOption, match=r"needs? PySpark 4\.2 or newer"):
        refuse_without_admission_control(topics.read_options("any", **options))


def test_a_stream_and_a_task_live_through_a_restart_of_the_broker() -> None:
    with PenstockProcess() as broker:
        topics = Topics(broker.bootstrap)
        name = topics.make()
        made = [b"%04d" % index * 250 for index in range(200)]
        topics.fill(name, *made, **FEW_A_BATCH)
        stream = topics.stream(name)
        begun = stream.initialOffset()
        batch = topics.batch(name, **{"kafka.max.partition.fetch.bytes": "2000"})
        [partition] = batch.partitions()
        batches = batch.read(partition)
        first = next(batches)
        broker.kill()
        broker.start()
        rest = [row["value"] for each in batches for row in each.to_pylist()]
        assert [row["value"] for row in first.to_pylist()] + rest == made
        end = stream.latestOffset(begun, ALL)
        assert values(tasks(stream, stream.partitions(begun, end))) == made
        stream.stop()


def test_unreachable_brokers_are_named(topics: Topics) -> None:
    gone = batch_reader(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.default.api.timeout.ms": "300"},
        read_schema(ReadOptions.of({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})),
    )
    with pytest.raises(Exception, match=r"no broker answers at kafka.bootstrap.servers=127\.0\.0\.1:1: .*refused"):
        gone.partitions()
