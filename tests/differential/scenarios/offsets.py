"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from differential.batches import T0, Batch, Record, batch
from differential.requests import fill, fill_numbered, list_offsets_body, missing
from differential.script import Body, Run, Topic, scenarios

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


def timed(run: Run) -> Topic:
    """Five records at T0+0, +10, +20 and +20, +15: offsets 0 to 4, timestamps not in order."""
    topic = run.topic()
    fill(run, topic, Batch(records=(Record(), Record(timestamp_delta=10))).to_bytes())
    fill(run, topic, Batch(records=(Record(), Record()), base_timestamp=T0 + 20).to_bytes())
    fill(run, topic, batch(b"x", base_timestamp=T0 + 15))
    return topic


def earliest_and_latest(run: Run) -> None:
    topic = timed(run)
    run.ask("latest", list_offsets_body(topic, (0, LATEST)))
    run.ask("earliest", list_offsets_body(topic, (0, EARLIEST)))


def of_an_empty_partition(run: Run) -> None:
    topic = run.topic()
    for label, timestamp in SPECIALS:
        run.ask(label, list_offsets_body(topic, (0, timestamp)))
    run.ask("by time", list_offsets_body(topic, (0, T0)))


def special_timestamps(run: Run) -> None:
    """Each special timestamp exists from some version on."""
    topic = timed(run)
    for label, timestamp in SPECIALS:
        run.ask(label, list_offsets_body(topic, (0, timestamp)))
    run.ask("minus seven", list_offsets_body(topic, (0, -7)))
    run.ask("minus hundred", list_offsets_body(topic, (0, -100)))


def by_time(run: Run) -> None:
    topic = timed(run)
    for delta in (-1_000, 0, 1, 10, 11, 15, 16, 20, 21, 1_000_000):
        run.ask(f"T0 {delta:+}", list_offsets_body(topic, (0, T0 + delta)))
    run.ask("zero", list_offsets_body(topic, (0, 0)))
    run.ask("the end of time", list_offsets_body(topic, (0, 2**63 - 1)))


def by_time_in_a_compressed_batch(run: Run) -> None:
    topic = run.topic()
    records = tuple(Record(value=b"x" * 50, timestamp_delta=delta) for delta in (0, 5, 9))
    fill(run, topic, Batch(records=records, codec=3).to_bytes())
    for delta in (0, 4, 5, 9):
        run.ask(f"T0 {delta:+}", list_offsets_body(topic, (0, T0 + delta)))
    run.ask("max timestamp", list_offsets_body(topic, (0, MAX_TIMESTAMP)))


def after_deletion(run: Run) -> None:
    topic = timed(run)
    response = run.do("delete_records", 1, delete_body(topic, (0, 2)))
    assert response["topics"][0]["partitions"][0]["error_code"] == "none", response
    for label, timestamp in (*SPECIALS, ("by time", T0)):
        run.ask(label, list_offsets_body(topic, (0, timestamp)))


def read_committed(run: Run) -> None:
    topic = timed(run)
    run.ask("latest", list_offsets_body(topic, (0, LATEST), isolation=1))
    run.ask("by time", list_offsets_body(topic, (0, T0 + 15), isolation=1))
    run.ask("isolation 9", list_offsets_body(topic, (0, LATEST), isolation=9))


def leader_epochs(run: Run) -> None:
    topic = timed(run)
    for epoch in (0, 5, -1, -4):
        run.ask(f"epoch {epoch}", list_offsets_body(topic, (0, LATEST), epoch=epoch))


def partitions_and_topics_unknown(run: Run) -> None:
    topic = timed(run)
    run.ask("partition 1", list_offsets_body(topic, (0, LATEST), (1, LATEST)))
    run.ask("partition -1", list_offsets_body(topic, (-1, LATEST)))
    run.ask("topic", list_offsets_body(missing(run), (0, LATEST)))
    run.ask("nothing", {"replica_id": -1, "topics": []})
    run.ask("bad name", list_offsets_body(Topic(name="", topic_id=""), (0, LATEST)))


def the_same_partition_twice(run: Run) -> None:
    topic = timed(run)
    run.ask("response", list_offsets_body(topic, (0, EARLIEST), (0, LATEST)))
    run.ask("beside another", list_offsets_body(topic, (0, EARLIEST), (0, LATEST), (3, LATEST)))


def requested_by_a_replica(run: Run) -> None:
    topic = timed(run)
    run.ask("replica 99", list_offsets_body(topic, (0, LATEST)) | {"replica_id": 99})
    run.ask("debugging", list_offsets_body(topic, (0, LATEST)) | {"replica_id": -2})


# OffsetForLeaderEpoch


def epoch_body(topic: Topic, *epochs: int, current: int = -1, partition: int = 0, replica: int = -1) -> Body:
    return {
        "replica_id": replica,
        "topics": [
            {
                "topic": topic.name,
                "partitions": [
                    {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch} for epoch in epochs
                ],
            }
        ],
    }


def end_of_epochs(run: Run) -> None:
    topic = timed(run)
    for epoch in (0, 1, 7, -1, -5):
        run.ask(f"epoch {epoch}", epoch_body(topic, epoch))


def end_of_epochs_of_an_empty_partition(run: Run) -> None:
    topic = run.topic()
    run.ask("epoch 0", epoch_body(topic, 0))
    run.ask("epoch 1", epoch_body(topic, 1))


def end_of_epoch_with_a_current_epoch(run: Run) -> None:
    topic = timed(run)
    for current in (0, 1, -1, -2):
        run.ask(f"current {current}", epoch_body(topic, 0, current=current))


def end_of_epoch_unknown(run: Run) -> None:
    topic = timed(run)
    run.ask("partition", epoch_body(topic, 0, partition=4))
    run.ask("topic", epoch_body(missing(run), 0))
    run.ask("nothing", {"replica_id": -1, "topics": []})


def end_of_epoch_after_deletion(run: Run) -> None:
    topic = timed(run)
    run.do("delete_records", 1, delete_body(topic, (0, -1)))
    run.ask("epoch 0", epoch_body(topic, 0))


def end_of_epoch_for_a_replica(run: Run) -> None:
    topic = timed(run)
    run.ask("replica 99", epoch_body(topic, 0, replica=99))
    run.ask("debugging", epoch_body(topic, 0, replica=-2))


# DeleteRecords


def delete_body(topic: Topic, *partitions: tuple[int, int]) -> Body:
    return {
        "timeout": 10_000,
        "topics": [
            {
                "name": topic.name,
                "partitions": [{"partition_index": index, "offset": offset} for index, offset in partitions],
            }
        ],
    }


def deleted_in_steps(run: Run) -> None:
    topic = run.topic()
    fill_numbered(run, topic, 3)
    for label, offset in (
        ("zero", 0),
        ("two", 2),
        ("again two", 2),
        ("back to one", 1),
        ("all", -1),
        ("all again", -1),
    ):
        run.ask(label, delete_body(topic, (0, offset)))
        run.ask(f"{label}: earliest", list_offsets_body(topic, (0, EARLIEST)), api="list_offsets", version=5)
    run.ask("latest", list_offsets_body(topic, (0, LATEST)), api="list_offsets", version=5)


def deleted_out_of_range(run: Run) -> None:
    topic = run.topic()
    fill_numbered(run, topic, 1)
    run.ask("the end", delete_body(topic, (0, 3)))
    run.ask("above", delete_body(topic, (0, 4)))
    run.ask("minus two", delete_body(topic, (0, -2)))
    run.ask("of nothing", delete_body(run.topic("empty"), (0, -1)))


def deleted_unknown(run: Run) -> None:
    topic = run.topic()
    run.ask("partition", delete_body(topic, (0, 0), (3, 0)))
    run.ask("topic", delete_body(missing(run), (0, 0)))
    run.ask("nothing", {"timeout": 10_000, "topics": []})


def deleted_from_a_compacted_topic(run: Run) -> None:
    topic = run.topic(cleanup_policy="compact")
    fill(run, topic, Batch(records=(Record(key=b"k"), Record(key=b"l"))).to_bytes())
    run.ask("response", delete_body(topic, (0, 1)))
    both = run.topic("both", cleanup_policy="compact,delete")
    fill(run, both, Batch(records=(Record(key=b"k"), Record(key=b"l"))).to_bytes())
    run.ask("compact,delete", delete_body(both, (0, 1)))


SPECIALS = (
    ("latest", LATEST),
    ("earliest", EARLIEST),
    ("max timestamp", MAX_TIMESTAMP),
    ("earliest local", EARLIEST_LOCAL),
    ("latest tiered", LATEST_TIERED),
    ("earliest pending upload", EARLIEST_PENDING_UPLOAD),
)

SCENARIOS = (
    *scenarios(
        "offsets",
        "list_offsets",
        (
            earliest_and_latest,
            of_an_empty_partition,
            special_timestamps,
            by_time,
            by_time_in_a_compressed_batch,
            after_deletion,
            read_committed,
            leader_epochs,
            partitions_and_topics_unknown,
            the_same_partition_twice,
            requested_by_a_replica,
        ),
    ),
    *scenarios(
        "offsets",
        "offset_for_leader_epoch",
        (
            end_of_epochs,
            end_of_epochs_of_an_empty_partition,
            end_of_epoch_with_a_current_epoch,
            end_of_epoch_unknown,
            end_of_epoch_after_deletion,
            end_of_epoch_for_a_replica,
        ),
    ),
    *scenarios(
        "offsets",
        "delete_records",
        (deleted_in_steps, deleted_out_of_range, deleted_unknown, deleted_from_a_compacted_topic),
    ),
)
