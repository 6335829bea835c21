"""The options of a read, and the messages with which wrong ones are refused."""

from __future__ import annotations

import pytest

from pyspark_penstock.offset_options import AtOffsets, AtTime, Back, Everywhere, OfGroup
from pyspark_penstock.offsets import EARLIEST, LATEST
from pyspark_penstock.options import ReadOptions

MINIMAL = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
SECRET = "hunter2"


def read(*, streaming: bool | None = None, **options: str) -> ReadOptions:
    return ReadOptions.of({**MINIMAL, **options}, streaming=streaming)


def test_a_batch_reads_from_the_beginning_to_the_end_and_a_stream_from_the_end() -> None:
    assert read(streaming=False).start == Everywhere(offset=EARLIEST)
    assert read(streaming=False).end == Everywhere(offset=LATEST)
    assert read(streaming=True).start == Everywhere(offset=LATEST)


def test_names_of_options_are_taken_in_any_case() -> None:
    parsed = read(STARTINGOFFSETS="Earliest", MaxOffsetsPerTrigger="7", kafka_x="1")
    assert parsed.start == Everywhere(offset=EARLIEST)
    assert parsed.admission.offsets_max == 7


def test_topics_are_split_at_commas_and_named_once() -> None:
    parsed = ReadOptions.of({**MINIMAL, "subscribe": " a, b ,,a"})
    assert parsed.subscription.topics == ("a", "b")


def test_a_time_goes_before_times_and_times_before_offsets() -> None:
    times = '{"orders": {"0": 5}}'
    all_three = {"startingTimestamp": "9", "startingOffsetsByTimestamp": times, "startingOffsets": "latest"}
    assert read(**all_three).start == AtTime(timestamp_ms=9)
    del all_three["startingTimestamp"]
    assert read(**all_three).start == AtTime(timestamps_ms={("orders", 0): 5})
    assert read(startingOffsets='{"orders": {"0": -2}}').start == AtOffsets(offsets={("orders", 0): EARLIEST})


def test_a_start_may_be_relative_to_the_end() -> None:
    assert read(startingOffsets="-100").start == Back(records=100)
    assert read(startingOffsets="-10m").start == Back(duration_ms=600_000)
    assert read(startingOffsets="-2h").start == Back(duration_ms=7_200_000)


def test_a_start_may_be_where_a_group_is_and_elsewhere_where_it_is_not() -> None:
    start = read(startingGroup="billing", startingOffsets="earliest").start
    assert start == OfGroup(group="billing", otherwise=Everywhere(offset=EARLIEST))


def test_columns_are_those_of_the_connector_unless_others_are_chosen() -> None:
    usual = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert read().columns == usual
    assert read(includeHeaders="true").columns == (*usual, "headers")
    assert read(columns="VALUE, timestamptype").columns == ("value", "timestampType")
    assert read(**{"value.format": "string"}).columns == (*usual, "value_error")
    assert read(**{"value.format": "string", "key.format": "string"}).columns == (*usual, "key_error", "value_error")


def test_kafka_properties_that_mean_something_here_are_used_and_others_let_pass() -> None:
    properties = {
        "kafka.isolation.level": "read_committed",
        "kafka.max.partition.fetch.bytes": "12345",
        "kafka.request.timeout.ms": "99",
        "kafka.heartbeat.interval.ms": "1",
    }
    parsed = ReadOptions.of({**MINIMAL, **properties})
    assert parsed.fetch.read_committed
    assert parsed.fetch.bytes_max == 12345
    assert parsed.link.request_timeout_ms == 99


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "One of the following options must be specified for Kafka source"),
        ({"subscribe": "a", "assign": "{}"}, "Only one of the following options can be specified for Kafka source"),
        ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
        ({"assign": "orders"}, "No topicpartitions to assign as specified value for option 'assign' is 'orders'"),
        ({"assign": '{"a": 0}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"a": 0}'),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty as specified value for option 'subscribePattern'"),
        ({"subscribePattern": "("}, "Option 'subscribePattern' is not a regular expression"),
        ({"subscribePattern": r"\p{IsGreek}+"}, r"Option 'subscribePattern' has \p{IsGreek}, an unknown property"),
    ],
)
def test_a_wrong_choice_of_topics_is_refused_with_the_connectors_message(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError) as refused:
        ReadOptions.of({"kafka.bootstrap.servers": "localhost:9092", **options})
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"minPartitions": "many"}, 'For input string: "many"'),
        ({"fetchOffset.numRetries": "many"}, "Option 'fetchOffset.numRetries': For input string: \"many\""),
        ({"fetchOffset.retryIntervalMs": "-1"}, "Option 'fetchOffset.retryIntervalMs' must not be negative, not -1"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported"),
        ({"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported as keys are deserialized"),
        ({"kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported as values are"),
        ({"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            "The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(5).",
        ),
        ({"startingTimestamp": "noon"}, "Expected a single long value, got noon"),
        ({"startingOffsets": "soon"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got soon'),
        ({"startingOffsets": '{"a": {"0": "5"}}'}, "Expected e.g."),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "Offsets are 0 or more, -1 for latest or -2 for earliest"),
        ({"startingOffsetsByTimestamp": "[]"}, 'Expected e.g. {"topicA": {"0": 123456789'),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "No value found for 'GUESS'"),
        ({"includeHeaders": "yes"}, 'For input string: "yes"'),
        ({"maxTriggerDelay": "soon"}, "'soon' is not a time such as"),
        ({"columns": "value,colour"}, "Option 'columns': colour is none of key, value"),
        ({"columns": "value,Value"}, "names a column twice"),
        ({"value.format": "xml"}, "Option 'value.format' is one of binary, string, json, avro"),
        ({"value.format": "json"}, "Option 'value.format' json needs 'value.schema'"),
        ({"value.schema": "a int"}, "Option 'value.schema' needs 'value.format'"),
        ({"key.format": "xml"}, "Option 'key.format' is one of binary, string, json, avro"),
        ({"key.format": "avro"}, "Option 'key.format' avro needs 'key.schema'"),
        ({"key.schema": "a int", "value.format": "string"}, "Option 'key.schema' needs 'key.format'"),
        ({"columns": "key_bytes"}, "key_bytes is none of"),
        ({"headers.format": "list"}, "Option 'headers.format' is one of array, map"),
        ({"kafka.isolation.level": "strict"}, "read_uncommitted or read_committed"),
        ({"kafka.bootstrap.servers": "nowhere:x"}, "Option 'kafka.bootstrap.servers': 'nowhere:x' is not HOST:PORT"),
        ({"kafka.security.protocol": "SASL_SSL"}, "Option 'kafka.security.protocol' is SASL_SSL"),
    ],
)
def test_a_wrong_option_is_refused_with_a_reason(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError) as refused:
        ReadOptions.of({**MINIMAL, **options})
    assert words in str(refused.value)


def test_without_brokers_a_read_is_refused_with_the_connectors_message() -> None:
    with pytest.raises(ValueError, match=r"Option 'kafka.bootstrap.servers' must be specified for configuring Kafka"):
        ReadOptions.of({"subscribe": "orders"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"orders": {"0": -1}}'},
            "startingOffsets for orders-0 can't be latest for batch queries on Kafka",
        ),
        (
            {"endingOffsets": '{"orders": {"0": -2}}'},
            "ending offset for orders-0 can't be earliest for batch queries on Kafka",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 1}}', "endingOffsets": '{"orders": {"1": 5}}'},
            "should have the same topic-partitions",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 6}}', "endingOffsets": '{"orders": {"0": 5}}'},
            "The specified start offset 6 is greater than the end offset 5 for topic orders partition 0",
        ),
        ({"commitGroup": "billing"}, "commitGroup is for streaming queries"),
    ],
)
def test_a_batch_refuses_options_for_streams_alone(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError) as refused:
        read(streaming=False, **options)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("endingOffsets", "ending offset not valid in streaming queries"),
        ("endingOffsetsByTimestamp", "ending timestamp not valid in streaming queries"),
        ("endingTimestamp", "ending timestamp not valid in streaming queries"),
    ],
)
def test_a_stream_has_no_end(name: str, words: str) -> None:
    value = "latest" if name == "endingOffsets" else "5" if name == "endingTimestamp" else '{"orders": {"0": 5}}'
    with pytest.raises(ValueError, match=words):
        read(streaming=True, **{name: value})


def test_parsed_options_contain_and_show_no_secret() -> None:
    secrets = {"kafka.ssl.key.password": SECRET, "kafka.sasl.jaas.config": f"password={SECRET}"}
    parsed = ReadOptions.of({**MINIMAL, **secrets})
    assert SECRET not in repr(parsed)
    with pytest.raises(ValueError) as refused:
        ReadOptions.of({**MINIMAL, **secrets, "kafka.security.protocol": "SASL_SSL"})
    assert SECRET not in str(refused.value)
