"""Fetch without a session: offsets, limits, epochs."""

from __future__ import annotations

from differential.batches import batch
from differential.requests import (
    delete_before,
    fetch_body,
    fetch_partition,
    fetch_topic,
    fill,
    fill_numbered,
    missing,
    produce_body,
)
from differential.script import Run, Topic, scenarios


def numbered(run: Run, count: int = 3, token: str = "a", partitions: int = 1) -> Topic:
    topic = run.topic(token, partitions=partitions)
    fill_numbered(run, topic, count)
    return topic


def from_the_start(run: Run) -> None:
    topic = numbered(run)
    run.ask("response", fetch_body(fetch_topic(topic, fetch_partition(0))))


def from_the_middle_of_a_batch(run: Run) -> None:
    topic = numbered(run)
    run.ask("offset 4", fetch_body(fetch_topic(topic, fetch_partition(4))))
    run.ask("offset 8", fetch_body(fetch_topic(topic, fetch_partition(8))))


def from_the_end(run: Run) -> None:
    topic = numbered(run)
    run.ask("response", fetch_body(fetch_topic(topic, fetch_partition(9))))


def out_of_range(run: Run) -> None:
    topic = numbered(run)
    run.ask("above", fetch_body(fetch_topic(topic, fetch_partition(10))))
    run.ask("negative", fetch_body(fetch_topic(topic, fetch_partition(-1))))
    run.ask("far negative", fetch_body(fetch_topic(topic, fetch_partition(-2))))


def below_the_log_start(run: Run) -> None:
    topic = numbered(run)
    delete_before(run, topic, 4)
    run.ask("below", fetch_body(fetch_topic(topic, fetch_partition(3))))
    run.ask("at", fetch_body(fetch_topic(topic, fetch_partition(4))))


def empty_partition(run: Run) -> None:
    topic = run.topic()
    run.ask("at zero", fetch_body(fetch_topic(topic, fetch_partition(0))))
    run.ask("at one", fetch_body(fetch_topic(topic, fetch_partition(1))))


def partition_limit_below_a_batch(run: Run) -> None:
    """At least one batch is returned, or the reader could not make progress."""
    topic = numbered(run)
    run.ask("one byte", fetch_body(fetch_topic(topic, fetch_partition(0, partition_max_bytes=1))))
    run.ask("zero bytes", fetch_body(fetch_topic(topic, fetch_partition(0, partition_max_bytes=0))))
    run.ask("negative", fetch_body(fetch_topic(topic, fetch_partition(0, partition_max_bytes=-1))))


def partition_limit_between_batches(run: Run) -> None:
    topic = numbered(run)
    size = len(batch(b"v0", b"v1", b"v2"))
    run.ask("one and a half", fetch_body(fetch_topic(topic, fetch_partition(0, partition_max_bytes=size + size // 2))))
    run.ask("exactly two", fetch_body(fetch_topic(topic, fetch_partition(0, partition_max_bytes=2 * size))))
    run.ask(
        "one byte short of two", fetch_body(fetch_topic(topic, fetch_partition(0, partition_max_bytes=2 * size - 1)))
    )


def whole_limit_below_a_batch(run: Run) -> None:
    topic = numbered(run)
    run.ask("one byte", fetch_body(fetch_topic(topic, fetch_partition(0)), max_bytes=1))
    run.ask("zero bytes", fetch_body(fetch_topic(topic, fetch_partition(0)), max_bytes=0))


def whole_limit_over_partitions(run: Run) -> None:
    """The first partition with data uses the limit; the others wait for their turn."""
    topic = run.topic(partitions=3)
    for index in range(3):
        fill_numbered(run, topic, 2, partition=index)
    size = len(batch(b"v0", b"v1", b"v2"))
    parts = [fetch_partition(0, partition=index) for index in range(3)]
    run.ask("one byte", fetch_body(fetch_topic(topic, *parts), max_bytes=1))
    run.ask("three batches", fetch_body(fetch_topic(topic, *parts), max_bytes=3 * size))
    run.ask("three and a half", fetch_body(fetch_topic(topic, *parts), max_bytes=3 * size + 10))


def waiting(run: Run) -> None:
    topic = numbered(run)
    run.ask("nothing to read", fetch_body(fetch_topic(topic, fetch_partition(9)), max_wait=100, min_bytes=1))
    run.ask("less than wanted", fetch_body(fetch_topic(topic, fetch_partition(0)), max_wait=100, min_bytes=1 << 20))
    run.ask(
        "an error does not wait", fetch_body(fetch_topic(topic, fetch_partition(99)), max_wait=600_000, min_bytes=1)
    )
    run.ask("negative wait", fetch_body(fetch_topic(topic, fetch_partition(9)), max_wait=-1, min_bytes=1))


def several_topics(run: Run) -> None:
    a, b = numbered(run, 1, "a", partitions=2), numbered(run, 2, "b")
    run.ask(
        "response",
        fetch_body(
            fetch_topic(a, fetch_partition(0), fetch_partition(0, partition=1), fetch_partition(0, partition=5)),
            fetch_topic(b, fetch_partition(3)),
        ),
    )


def no_partitions(run: Run) -> None:
    run.ask("no topics", fetch_body())
    run.ask("no partitions", fetch_body(fetch_topic(run.topic())))


def the_same_partition_twice(run: Run) -> None:
    topic = numbered(run)
    run.ask("response", fetch_body(fetch_topic(topic, fetch_partition(0), fetch_partition(6))))


def topic_unknown(run: Run) -> None:
    good = numbered(run, 1)
    run.ask("alone", fetch_body(fetch_topic(missing(run), fetch_partition(0))))
    run.ask(
        "beside a good one",
        fetch_body(fetch_topic(missing(run), fetch_partition(0)), fetch_topic(good, fetch_partition(0))),
    )


def topic_by_null_id(run: Run) -> None:
    null_id = Topic(name="", topic_id="00000000-0000-0000-0000-000000000000")
    run.ask("response", fetch_body(fetch_topic(null_id, fetch_partition(0))))


def topic_deleted_and_created_again(run: Run) -> None:
    old = numbered(run)
    run.do("delete_topics", 5, {"topic_names": [old.name], "timeout": 10_000})
    run.await_gone(old.name)
    run.tokens.add_topic_id(old.topic_id, "<id of the old>")
    new = run.topic()
    run.tokens.add_topic_id(new.topic_id, "<id of the new>")
    run.ask("old", fetch_body(fetch_topic(old, fetch_partition(0))))
    run.ask("new", fetch_body(fetch_topic(new, fetch_partition(0))))


def partition_unknown(run: Run) -> None:
    topic = numbered(run)
    run.ask("above", fetch_body(fetch_topic(topic, fetch_partition(0, partition=1))))
    run.ask("negative", fetch_body(fetch_topic(topic, fetch_partition(0, partition=-1))))


def leader_epochs(run: Run) -> None:
    topic = numbered(run)
    for label, epoch in (("right", 0), ("future", 7), ("not known", -1), ("negative", -3)):
        run.ask(label, fetch_body(fetch_topic(topic, fetch_partition(0, current_leader_epoch=epoch))))


def last_fetched_epochs(run: Run) -> None:
    topic = numbered(run)
    for label, epoch in (("right", 0), ("future", 7)):
        run.ask(label, fetch_body(fetch_topic(topic, fetch_partition(3, last_fetched_epoch=epoch))))


def read_committed(run: Run) -> None:
    topic = numbered(run)
    run.ask("from the start", fetch_body(fetch_topic(topic, fetch_partition(0)), isolation_level=1))
    run.ask("from the end", fetch_body(fetch_topic(topic, fetch_partition(9)), isolation_level=1))


def unknown_isolation(run: Run) -> None:
    run.ask("response", fetch_body(fetch_topic(numbered(run), fetch_partition(0)), isolation_level=7))


def unknown_replica(run: Run) -> None:
    """A fetch that claims to come from a broker that is no replica."""
    topic = numbered(run)
    body = fetch_body(fetch_topic(topic, fetch_partition(0)))
    run.ask("broker 99", body | {"replica_id": 99, "replica_state": {"replica_id": 99, "replica_epoch": -1}})


def debugging_replica(run: Run) -> None:
    topic = numbered(run)
    body = fetch_body(fetch_topic(topic, fetch_partition(0)))
    run.ask("replica -2", body | {"replica_id": -2, "replica_state": {"replica_id": -2, "replica_epoch": -1}})


def rack_of_a_consumer(run: Run) -> None:
    run.ask("response", fetch_body(fetch_topic(numbered(run), fetch_partition(0)), rack_id="somewhere"))


def cluster_of_another(run: Run) -> None:
    run.ask("response", fetch_body(fetch_topic(numbered(run), fetch_partition(0)), cluster_id="another"))


def record_arrives_while_waiting(run: Run) -> None:
    """The record ends the long poll, not the timeout."""
    topic = numbered(run)
    fill(run, topic, batch(b"late"))
    run.ask("at once", fetch_body(fetch_topic(topic, fetch_partition(9)), max_wait=600_000, min_bytes=1))


def compressed_batches_are_returned_as_sent(run: Run) -> None:
    topic = run.topic()
    for codec in (1, 2, 3, 4):
        run.do("produce", 9, produce_body(topic, batch(b"aaaa", b"bbbb", codec=codec)))
    run.ask("response", fetch_body(fetch_topic(topic, fetch_partition(0))))


SCENARIOS = scenarios(
    "fetch",
    "fetch",
    (
        from_the_start,
        from_the_middle_of_a_batch,
        from_the_end,
        out_of_range,
        below_the_log_start,
        empty_partition,
        partition_limit_below_a_batch,
        partition_limit_between_batches,
        whole_limit_below_a_batch,
        whole_limit_over_partitions,
        waiting,
        several_topics,
        no_partitions,
        the_same_partition_twice,
        topic_unknown,
        topic_by_null_id,
        topic_deleted_and_created_again,
        partition_unknown,
        leader_epochs,
        last_fetched_epochs,
        read_committed,
        unknown_isolation,
        unknown_replica,
        debugging_replica,
        rack_of_a_consumer,
        cluster_of_another,
        record_arrives_while_waiting,
        compressed_batches_are_returned_as_sent,
    ),
)
