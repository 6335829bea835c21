"""A writer's options, and refusals before anything is written."""

import pytest

from penstock.wire.compression import LZ4, ZSTD
from pyspark_penstock.write_options import WriteOptions

BARE = {"kafka.bootstrap.servers": "localhost:9092"}


def test_producer_properties_are_passed_on() -> None:
    made = WriteOptions.of(
        BARE
        | {
            "topic": "orders",
            "timestamp.column": "Ordered_at",
            "kafka.compression.type": "ZSTD",
            "kafka.compression.zstd.level": "9",
            "kafka.batch.size": "1000",
            "kafka.transaction.timeout.ms": "1234",
            "kafka.client.id": "me",
            "kafka.acks": "all",
            "kafka.linger.ms": "5",
        }
    )

    assert (made.topic, made.codec, made.level, made.batch_bytes) == ("orders", ZSTD, 9, 1000)
    assert (made.transaction_timeout_ms, made.link.client_id, made.timestamp_column) == (1234, "me", "Ordered_at")


def test_a_level_of_another_codec_is_ignored() -> None:
    made = WriteOptions.of(BARE | {"kafka.compression.type": "lz4", "kafka.compression.zstd.level": "9"})

    assert (made.codec, made.level) == (LZ4, None)


def test_formats_of_keys_and_values_are_taken() -> None:
    made = WriteOptions.of(BARE | {"value.format": "JSON", "key.format": "avro", "key.schema": "{}"})

    assert {part: (each.name, each.schema) for part, each in made.formats.items()} == {
        "key": ("avro", "{}"),
        "value": ("json", ""),
    }


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("value.format", "xml", "'value.format' is one of binary, string, json, avro"),
        ("value.schema", "a int", "needs 'value.format' avro"),
        ("kafka.compresion.type", "lz4", "compresion.type.*misspelt"),
        ("topics", "a", "'topics' is not a writer option"),
        ("kafka.compression.type", "rar", "must be one of none, gzip"),
        ("kafka.acks", "1", "must be 'all'"),
        ("kafka.enable.idempotence", "false", "must be 'true'"),
        ("kafka.key.serializer", "x", "not supported as keys are serialized with ByteArraySerializer"),
        ("kafka.value.serializer", "x", "not supported as value are serialized with ByteArraySerializer"),
        ("kafka.transactional.id", "x", "sinkId"),
        ("kafka.batch.size", "many", "'kafka.batch.size' must be a number"),
        ("kafka.transaction.timeout.ms", "0", "'kafka.transaction.timeout.ms' must be a number from 1"),
        ("sinkid", "a b", "letters, digits"),
        ("batchid", "3", "needs the option 'sinkId'"),
        ("delivery", "at-most-once", "must be one of exactly-once, at-least-once"),
        ("ledgermissing", "perhaps", "must be one of fail, begin"),
    ],
)
def test_wrong_options_are_refused(name: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        WriteOptions.of(BARE | {name: value})


def test_a_cluster_has_to_be_named() -> None:
    with pytest.raises(ValueError, match=r"kafka\.bootstrap\.servers"):
        WriteOptions.of({"topic": "orders"})


def test_names_of_secrets_are_known_and_their_values_never_shown() -> None:
    secret = {"kafka.sasl.jaas.config": 'password="hunter2"', "kafka.ssl.key.password": "hunter2"}

    made = WriteOptions.of(BARE | secret)

    assert "hunter2" not in repr(made)
    with pytest.raises(ValueError) as refused:
        WriteOptions.of(BARE | secret | {"kafka.nonsense": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_properties_without_a_meaning_are_let_pass() -> None:
    assert WriteOptions.of(BARE | {"kafka.linger.ms": "5", "kafka.buffer.memory": "1"}) == WriteOptions.of(BARE)
