"""What kcat's command line alone shows; what it shares with other clients is in the stories."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.clients.kcat import kcat, read_to_end

pytestmark = pytest.mark.needs("kcat")


def test_reading_starts_at_an_offset_and_counts_back_from_the_end(broker: Any, topic: str) -> None:
    kcat(broker.bootstrap, "-P", "-t", topic, "-p", "0", stdin=b"".join(b"%d\n" % number for number in range(10)))

    assert read_to_end(broker.bootstrap, topic, "-o", "7") == b"7\n8\n9\n"
    assert read_to_end(broker.bootstrap, topic, "-o", "-2") == b"8\n9\n"
    assert read_to_end(broker.bootstrap, topic, "-o", "3", "-c", "2") == b"3\n4\n"


def test_times_are_asked_for_and_read_from(broker: Any, topic: str) -> None:
    kcat(broker.bootstrap, "-P", "-t", topic, "-p", "0", stdin=b"early\n")
    first = json.loads(read_to_end(broker.bootstrap, topic, "-J"))["ts"]
    for _ in range(100):
        kcat(broker.bootstrap, "-P", "-t", topic, "-p", "0", stdin=b"late\n")
        last = json.loads(read_to_end(broker.bootstrap, topic, "-J", "-o", "-1"))["ts"]
        if last > first:
            break

    assert kcat(broker.bootstrap, "-Q", "-t", f"{topic}:0:{first}").strip() == f"{topic} [0] offset 0".encode()
    found = read_to_end(broker.bootstrap, topic, "-o", f"s@{first + 1}").splitlines()
    assert found
    assert set(found) == {b"late"}


def test_brokers_topics_and_partitions_are_listed(broker: Any, make_topic: Any) -> None:
    topic = make_topic(partitions=2)

    listed = json.loads(kcat(broker.bootstrap, "-L", "-J", "-t", topic))

    assert [node["name"] for node in listed["brokers"]] == [broker.bootstrap]
    assert listed["controllerid"] == listed["brokers"][0]["id"]
    [found] = listed["topics"]
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1]
    assert f"broker {listed['brokers'][0]['id']} at {broker.bootstrap}" in kcat(broker.bootstrap, "-L").decode()


def test_a_file_is_one_message(broker: Any, topic: str, tmp_path: Any) -> None:
    path = tmp_path / "blob"
    path.write_bytes(bytes(range(256)) * 100)

    kcat(broker.bootstrap, "-P", "-t", topic, "-p", "0", "-k", "blob", str(path))

    assert read_to_end(broker.bootstrap, topic, "-c", "1", "-D", "") == bytes(range(256)) * 100
