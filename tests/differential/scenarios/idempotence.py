"""Produce by a producer with an id: sequences, epochs, duplicates."""

from __future__ import annotations

from typing import Any

from differential.batches import Batch, Record, batch
from differential.requests import produce_body, produce_many
from differential.script import Run, Topic, scenarios

from .produce import look

SEQUENCE_MAX = 2**31 - 1


def producer(run: Run) -> int:
    """A new producer id; Kafka needs a moment for the first one."""

    def given() -> dict[str, Any] | None:
        fields = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        response = run.do("init_producer_id", 4, fields)
        return response if response["error_code"] == "none" else None

    found: int = run.until("a producer id", given)["producer_id"]
    run.tokens.producer_id(found)
    return found


def send(
    run: Run, label: str, topic: Topic, pid: int, sequence: int, count: int = 1, epoch: int = 0, **more: Any
) -> None:
    values = [f"{label} {index}".encode() for index in range(count)]
    records = batch(*values, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **more)
    run.ask(label, produce_body(topic, records))


def in_sequence(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "first", topic, pid, 0, count=3)
    send(run, "second", topic, pid, 3, count=2)
    look(run, topic)


def duplicate_of_the_last(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "first", topic, pid, 0, count=3)
    send(run, "other", topic, pid, 3)
    send(run, "again", topic, pid, 3)
    look(run, topic)


def duplicate_of_each_of_five(run: Run) -> None:
    """Five batches back are remembered with their offsets; the sixth is not."""
    topic, pid = run.topic(), producer(run)
    for index in range(7):
        send(run, f"batch {index}", topic, pid, index * 2, count=2)
    for index in range(7):
        send(run, f"again {index}", topic, pid, index * 2, count=2)
    look(run, topic)


def duplicate_by_sequence_but_of_another_count(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "two", topic, pid, 0, count=2)
    send(run, "three from the same", topic, pid, 0, count=3)
    send(run, "one inside", topic, pid, 1, count=1)


def gap(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "first", topic, pid, 0)
    send(run, "gap", topic, pid, 5)
    send(run, "next", topic, pid, 1)
    look(run, topic)


def first_batch_not_at_zero(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "seven", topic, pid, 7)
    send(run, "eight", topic, pid, 8)


def producer_unknown_to_the_broker(run: Run) -> None:
    topic = run.topic()
    run.tokens.producer_id(77_777_777)
    send(run, "first", topic, 77_777_777, 0)
    run.tokens.producer_id(88_888_888)
    send(run, "not at zero", topic, 88_888_888, 4)


def epoch_raised(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "epoch 0", topic, pid, 0)
    send(run, "epoch 2 not at zero", topic, pid, 1, epoch=2)
    send(run, "epoch 2", topic, pid, 0, epoch=2)
    send(run, "epoch 2 next", topic, pid, 1, epoch=2)
    send(run, "epoch 1", topic, pid, 2, epoch=1)
    send(run, "epoch 0 again", topic, pid, 0)
    look(run, topic)


def sequence_wraps(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "up to the last", topic, pid, SEQUENCE_MAX - 1, count=2)
    send(run, "from zero", topic, pid, 0)
    send(run, "one", topic, pid, 1)
    look(run, topic)


def sequence_wraps_inside_a_batch(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "over the last", topic, pid, SEQUENCE_MAX - 1, count=4)
    send(run, "next", topic, pid, 2)
    send(run, "duplicate", topic, pid, SEQUENCE_MAX - 1, count=4)


def two_batches_in_one_partition(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    both = b"".join(batch(b"x", producer_id=pid, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1))
    run.ask("response", produce_body(topic, both))


def each_partition_counts_by_itself(run: Run) -> None:
    topic, pid = run.topic(partitions=2), producer(run)
    parts = [(topic, index, batch(b"x", producer_id=pid, producer_epoch=0, base_sequence=0)) for index in range(2)]
    run.ask("both at zero", produce_many(parts))
    run.ask("both again", produce_many(parts))


def contradicting_fields(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "no sequence", topic, pid, -1)
    send(run, "no epoch", topic, pid, 0, epoch=-1)
    send(run, "sequence minus five", topic, pid, -5)
    send(run, "epoch minus five", topic, pid, 0, epoch=-5)
    send(run, "sequence without producer", topic, -1, 0)
    look(run, topic)


def first_epoch_negative(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    send(run, "minus five", topic, pid, 0, epoch=-5)
    look(run, topic)


def acks_one(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    records = batch(b"x", producer_id=pid, producer_epoch=0, base_sequence=0)
    run.ask("first", produce_body(topic, records, acks=1))
    run.ask("again", produce_body(topic, records, acks=1))


def compressed_duplicate(run: Run) -> None:
    topic, pid = run.topic(), producer(run)
    records = Batch(
        records=(Record(key=b"a"), Record(key=b"b")), codec=3, producer_id=pid, producer_epoch=0, base_sequence=0
    ).to_bytes()
    run.ask("first", produce_body(topic, records))
    run.ask("again", produce_body(topic, records))


SCENARIOS = scenarios(
    "idempotence",
    "produce",
    (
        in_sequence,
        duplicate_of_the_last,
        duplicate_of_each_of_five,
        duplicate_by_sequence_but_of_another_count,
        gap,
        first_batch_not_at_zero,
        producer_unknown_to_the_broker,
        epoch_raised,
        sequence_wraps,
        sequence_wraps_inside_a_batch,
        two_batches_in_one_partition,
        each_partition_counts_by_itself,
        contradicting_fields,
        first_epoch_negative,
        acks_one,
        compressed_duplicate,
    ),
)
