"""kcat, the command line of librdkafka; Debian's is built on a release several years older than confluent-kafka's."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

TIMEOUT = 60.0
pytestmark = pytest.mark.needs("kcat")


def kcat(broker: Any, *arguments: str, stdin: bytes = b"") -> bytes:
    command = ["kcat", "-b", broker.bootstrap, "-m", "50", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def consume(broker: Any, topic: str, *arguments: str) -> bytes:
    """Read partition 0 to its end."""
    fast = ("-X", "fetch.wait.max.ms=50")
    return kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", *fast, *arguments)


def test_lines_come_back_in_order(broker: Any, topic: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(500))

    kcat(broker, "-P", "-t", topic, "-p", "0", stdin=lines)

    assert consume(broker, topic) == lines


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back_whole(broker: Any, topic: str, codec: str) -> None:
    lines = b"".join(b"line %d\n" % number * 3 for number in range(300))

    kcat(broker, "-P", "-t", topic, "-p", "0", "-z", codec, stdin=lines)

    assert consume(broker, topic, "-X", "check.crcs=true") == lines


def test_keys_headers_and_timestamps_are_in_its_json(broker: Any, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K", ":", "-H", "trace=one", "-H", "kind=test", stdin=b"key:value\n")

    message = json.loads(consume(broker, topic, "-J"))

    assert (message["key"], message["payload"], message["offset"]) == ("key", "value", 0)
    assert message["headers"] == ["trace", "one", "kind", "test"]
    assert message["tstype"] == "create"
    assert message["ts"] > 1_600_000_000_000


def test_reading_starts_at_an_offset_and_counts_back_from_the_end(broker: Any, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin=b"".join(b"%d\n" % number for number in range(10)))

    assert consume(broker, topic, "-o", "7") == b"7\n8\n9\n"
    assert consume(broker, topic, "-o", "-2") == b"8\n9\n"
    assert consume(broker, topic, "-o", "3", "-c", "2") == b"3\n4\n"


def test_times_are_asked_for_and_read_from(broker: Any, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin=b"early\n")
    first = json.loads(consume(broker, topic, "-J"))["ts"]
    for _ in range(100):
        kcat(broker, "-P", "-t", topic, "-p", "0", stdin=b"late\n")
        last = json.loads(consume(broker, topic, "-J", "-o", "-1"))["ts"]
        if last > first:
            break

    assert kcat(broker, "-Q", "-t", f"{topic}:0:{first}").strip() == f"{topic} [0] offset 0".encode()
    found = consume(broker, topic, "-o", f"s@{first + 1}").splitlines()
    assert found
    assert set(found) == {b"late"}


def test_brokers_topics_and_partitions_are_listed(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=2)

    listed = json.loads(kcat(broker, "-L", "-J", "-t", topic))

    assert [node["name"] for node in listed["brokers"]] == [broker.bootstrap]
    assert listed["controllerid"] == listed["brokers"][0]["id"]
    [found] = listed["topics"]
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1]
    assert f"broker {listed['brokers'][0]['id']} at {broker.bootstrap}" in kcat(broker, "-L").decode()


def test_its_idempotent_producer_delivers_in_order(broker: Any, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(2000))

    kcat(
        broker,
        "-P",
        "-t",
        topic,
        "-p",
        "0",
        "-X",
        "enable.idempotence=true",
        "-X",
        "batch.num.messages=50",
        stdin=lines,
    )

    assert consume(broker, topic) == lines


def test_a_file_is_one_message_and_a_tombstone_is_a_null(broker: Any, topic: str, tmp_path: Any) -> None:
    path = tmp_path / "blob"
    path.write_bytes(bytes(range(256)) * 100)

    kcat(broker, "-P", "-t", topic, "-p", "0", "-k", "blob", str(path))
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K", ":", "-Z", stdin=b"gone:\n")

    assert consume(broker, topic, "-c", "1", "-D", "") == bytes(range(256)) * 100
    tombstone = json.loads(consume(broker, topic, "-J", "-o", "1"))
    assert (tombstone["key"], tombstone["payload"]) == ("gone", None)
