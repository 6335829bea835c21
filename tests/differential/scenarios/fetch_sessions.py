"""Fetch sessions: the broker keeps the partitions of a consumer between requests."""

from __future__ import annotations

from typing import Any

from differential.batches import batch
from differential.requests import fetch_body, fetch_partition, fetch_topic, fill, missing
from differential.script import Run, Topic, scenarios


def opened(run: Run, topic: Topic, *partitions: dict[str, Any]) -> int:
    response = run.ask("create", fetch_body(fetch_topic(topic, *partitions), session_epoch=0))
    session: int = response["session_id"]
    return session


def two_filled(run: Run) -> Topic:
    topic = run.topic(partitions=2)
    for index in range(2):
        fill(run, topic, batch(b"a", b"b"), partition=index)
    return topic


def both(offset: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    return fetch_partition(offset), fetch_partition(offset, partition=1)


def incremental(run: Run) -> None:
    topic = two_filled(run)
    session = opened(run, topic, *both())
    run.ask("nothing new requested", fetch_body(session_id=session, session_epoch=1))
    run.ask("one moves on", fetch_body(fetch_topic(topic, fetch_partition(2)), session_id=session, session_epoch=2))
    run.ask(
        "both at the end",
        fetch_body(fetch_topic(topic, fetch_partition(2, partition=1)), session_id=session, session_epoch=3),
    )
    run.ask("nothing changed", fetch_body(session_id=session, session_epoch=4))
    fill(run, topic, batch(b"c"), partition=1)
    run.ask("one has more", fetch_body(session_id=session, session_epoch=5))


def partition_added(run: Run) -> None:
    topic = two_filled(run)
    session = opened(run, topic, fetch_partition(2))
    run.ask(
        "second", fetch_body(fetch_topic(topic, fetch_partition(0, partition=1)), session_id=session, session_epoch=1)
    )


def partition_forgotten(run: Run) -> None:
    topic = two_filled(run)
    session = opened(run, topic, *both())
    forgotten = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [0]}]
    run.ask("without 0", fetch_body(session_id=session, session_epoch=1, forgotten_topics_data=forgotten))
    run.ask("still without 0", fetch_body(session_id=session, session_epoch=2))
    everything = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [0, 1]}]
    run.ask("without any", fetch_body(session_id=session, session_epoch=3, forgotten_topics_data=everything))


def session_unknown(run: Run) -> None:
    topic = two_filled(run)
    run.ask("id 12345", fetch_body(fetch_topic(topic, *both()), session_id=12_345, session_epoch=1))
    run.ask("id 12345 closing", fetch_body(fetch_topic(topic, *both()), session_id=12_345, session_epoch=-1))
    run.ask("id 12345 opening", fetch_body(fetch_topic(topic, *both()), session_id=12_345, session_epoch=0))
    run.ask("no id", fetch_body(fetch_topic(topic, *both()), session_id=0, session_epoch=1))


def epoch_wrong(run: Run) -> None:
    topic = two_filled(run)
    session = opened(run, topic, *both())
    run.ask("too far", fetch_body(session_id=session, session_epoch=5))
    run.ask("right", fetch_body(session_id=session, session_epoch=1))
    run.ask("again", fetch_body(session_id=session, session_epoch=1))
    run.ask("negative", fetch_body(session_id=session, session_epoch=-7))


def closed(run: Run) -> None:
    topic = two_filled(run)
    session = opened(run, topic, *both())
    run.ask("close", fetch_body(session_id=session, session_epoch=-1))
    run.ask("after", fetch_body(session_id=session, session_epoch=1))


def closed_with_a_last_request(run: Run) -> None:
    topic = two_filled(run)
    session = opened(run, topic, *both())
    run.ask("close", fetch_body(fetch_topic(topic, fetch_partition(0)), session_id=session, session_epoch=-1))


def created_again(run: Run) -> None:
    topic = two_filled(run)
    session = opened(run, topic, *both())
    again = run.ask("again", fetch_body(fetch_topic(topic, *both()), session_id=session, session_epoch=0))
    run.record("the id", {"changed": again["session_id"] != session})
    run.ask("old", fetch_body(session_id=session, session_epoch=1))


def created_without_partitions(run: Run) -> None:
    run.ask("create", fetch_body(session_epoch=0))


def errors_are_repeated(run: Run) -> None:
    topic = two_filled(run)
    session = opened(run, topic, fetch_partition(99), fetch_partition(2, partition=1), fetch_partition(0, partition=9))
    run.ask("again", fetch_body(session_id=session, session_epoch=1))


def topic_unknown_then_created(run: Run) -> None:
    good = two_filled(run)
    none = missing(run)
    created = run.ask(
        "create",
        fetch_body(fetch_topic(good, fetch_partition(2)), fetch_topic(none, fetch_partition(0)), session_epoch=0),
    )
    run.ask("again", fetch_body(session_id=created["session_id"], session_epoch=1))


def high_watermark_moves_without_data(run: Run) -> None:
    """A partition whose offsets moved is in the response even without records."""
    topic = two_filled(run)
    session = opened(run, topic, fetch_partition(2))
    deleted = {"topics": [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout": 10_000}
    run.do("delete_records", 1, deleted)
    run.ask("log start moved", fetch_body(session_id=session, session_epoch=1))
    run.ask("nothing moved", fetch_body(session_id=session, session_epoch=2))


def limit_changed(run: Run) -> None:
    topic = two_filled(run)
    session = opened(run, topic, *both())
    run.ask("one byte", fetch_body(session_id=session, session_epoch=1, max_bytes=1))
    run.ask("turns", fetch_body(session_id=session, session_epoch=2, max_bytes=1))


SCENARIOS = scenarios(
    "fetch_sessions",
    "fetch",
    (
        incremental,
        partition_added,
        partition_forgotten,
        session_unknown,
        epoch_wrong,
        closed,
        closed_with_a_last_request,
        created_again,
        created_without_partitions,
        errors_are_repeated,
        topic_unknown_then_created,
        high_watermark_moves_without_data,
        limit_changed,
    ),
    versions=range(7, 99),
)
