"""Bodies of requests that many scenarios send, with names and ids, of which each version uses its own."""

from __future__ import annotations

from typing import Any

from .batches import batch
from .script import Body, Run, Topic

PRODUCE_TIMEOUT_MS = 10_000
ANY_BYTES = 1 << 26


def produce_body(topic: Topic, records: bytes | None, *, partition: int = 0, acks: int = -1) -> Body:
    return produce_many([(topic, partition, records)], acks=acks)


def produce_many(parts: list[tuple[Topic, int, bytes | None]], *, acks: int = -1) -> Body:
    """Parts of one topic must be adjacent, as every client sends them."""
    topics: dict[str, dict[str, Any]] = {}
    for topic, partition, records in parts:
        entry = topics.setdefault(
            topic.name + topic.topic_id, {"name": topic.name, "topic_id": topic.topic_id, "partition_data": []}
        )
        entry["partition_data"].append({"index": partition, "records": records})
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": PRODUCE_TIMEOUT_MS,
        "topic_data": list(topics.values()),
    }


def fetch_body(*topics: dict[str, Any], **fields: Any) -> Body:
    """A consumer's fetch, by default without a session and without waiting."""
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": ANY_BYTES,
        "session_id": 0,
        "session_epoch": -1,
        "topics": list(topics),
    } | fields


def fetch_topic(topic: Topic, *partitions: dict[str, Any]) -> dict[str, Any]:
    return {"topic": topic.name, "topic_id": topic.topic_id, "partitions": list(partitions)}


def fetch_partition(offset: int, *, partition: int = 0, **fields: Any) -> dict[str, Any]:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": ANY_BYTES} | fields


def list_offsets_body(topic: Topic, *partitions: tuple[int, int], epoch: int = -1, isolation: int = 0) -> Body:
    """Partitions as (index, timestamp)."""
    return {
        "replica_id": -1,
        "isolation_level": isolation,
        "timeout": 10_000,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": epoch}
                    for index, timestamp in partitions
                ],
            }
        ],
    }


def fill(run: Run, topic: Topic, *batches: bytes, partition: int = 0) -> None:
    """Append whole batches, each by its own request, and check that they are accepted."""
    for records in batches:
        response = run.do("produce", 9, produce_body(topic, records, partition=partition))
        part = response["responses"][0]["partition_responses"][0]
        assert part["error_code"] == "none", part


def fill_numbered(run: Run, topic: Topic, count: int, *, partition: int = 0, **fields: Any) -> None:
    """`count` batches of three records each: offsets 0-2, 3-5, ..."""
    for index in range(count):
        values = [f"v{index * 3 + place}".encode() for place in range(3)]
        fill(run, topic, batch(*values, **fields), partition=partition)


def delete_before(run: Run, topic: Topic, offset: int) -> None:
    """Delete the records of partition 0 below an offset."""
    deleted = {"name": topic.name, "partitions": [{"partition_index": 0, "offset": offset}]}
    response = run.do("delete_records", 1, {"topics": [deleted], "timeout": 10_000})
    assert response["topics"][0]["partitions"][0]["error_code"] == "none", response


def missing(run: Run, token: str = "missing") -> Topic:
    """A topic that does not exist, by name and by id."""
    topic = Topic(name=run.name(token), topic_id="00000000-0000-4000-8000-0000000000ff")
    run.tokens.add_topic_id(topic.topic_id, f"<id of {token}>")
    return topic
