"""Faults at critical moments of transactions: no aborted record is read, none is lost, and no client waits for ever."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.group_wire import GroupWire
from bench.transactions import await_coordinator
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from cluster.small_disks import vanish
from cluster.test_disk_trouble import code_until_refused, folders_by_partition, running
from penstock.coordinator.runtime import partition_of
from penstock.wire.api import end_txn, init_producer_id
from penstock.wire.records import Record, build_batch
from protocol.batches import now_ms
from protocol.raw import KAFKA_STORAGE_ERROR, Wire, produce_request
from protocol.topics import create_topic, fresh_name, wait_until

QUIET = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50, "log_level": 0}
SECONDS_MAX = 60.0
MANY = 250
"""Partitions of one transaction: more than the broker sends markers to in one turn of its loop."""
MARKER_KILLS = 4
MARKERS_SECONDS = 0.02
STATE, STATE_PARTITIONS = "__transaction_state", 50
PRODUCER_FENCED = 90


def transactional(bootstrap: str, name: str, **settings: Any) -> Producer:
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, **QUIET, **settings})
    made.init_transactions(SECONDS_MAX)
    return made


def reader(bootstrap: str, level: str) -> Consumer:
    settings = {"group.id": "unused", "isolation.level": level, "enable.partition.eof": True, **QUIET}
    return Consumer({"bootstrap.servers": bootstrap, **settings})


def end_of(bootstrap: str, topic: str, partition: int, level: str) -> int:
    consumer = reader(bootstrap, level)
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)[1])
    finally:
        consumer.close()


def wait_until_nothing_is_open(bootstrap: str, topic: str, partitions: range) -> None:
    committed, written = reader(bootstrap, "read_committed"), reader(bootstrap, "read_uncommitted")

    def settled(partition: int) -> bool:
        place = TopicPartition(topic, partition)
        ends = [one.get_watermark_offsets(place, timeout=SECONDS_MAX)[1] for one in (committed, written)]
        return ends[0] == ends[1]

    try:
        for partition in partitions:
            wait_until(lambda: settled(partition), what=f"the end of {topic} {partition}", seconds_max=SECONDS_MAX)  # noqa: B023
    finally:
        committed.close()
        written.close()


def committed_values(bootstrap: str, topic: str, partitions: range) -> dict[int, list[str]]:
    """The committed records of each partition, up to its end."""
    consumer = reader(bootstrap, "read_committed")
    found: dict[int, list[str]] = {partition: [] for partition in partitions}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        while len(ended) < len(found):
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"silence after {ended}"
            error = message.error()
            if error is None:
                found[message.partition()].append(message.value().decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    finally:
        consumer.close()
    return found


def check_atomic(values: dict[int, list[str]], outcomes: dict[str, bool]) -> None:
    """Each value was sent to every partition: it is in all of them, or in none if its commit was not acknowledged."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for partition, there in values.items():
        for value in there:
            places[value].append(partition)
    for value, committed in outcomes.items():
        if committed:
            assert sorted(places[value]) == list(values), f"{value} was committed, and is in {places[value]}"
        else:
            assert sorted(places[value]) in ([], list(values)), f"{value} is torn: {places[value]}"
    assert set(places) <= set(outcomes)


@pytest.mark.penstock_only
def test_a_broker_killed_while_it_writes_the_markers_of_a_commit_writes_the_rest_later(
    start_broker: Any, randomness: random.Random
) -> None:
    broker, topic = start_broker(), fresh_name("many")
    create_topic(broker.bootstrap, topic, partitions=MANY)
    for number in range(MARKER_KILLS):
        writer = transactional(broker.bootstrap, fresh_name("t"))
        writer.begin_transaction()
        for partition in range(MANY):
            writer.produce(topic, f"{number} {partition}", partition=partition)
        writer.flush(SECONDS_MAX)

        writer.commit_transaction(SECONDS_MAX)
        # The commit is acknowledged before the first marker is written; the last follows some milliseconds later.
        time.sleep(randomness.random() * MARKERS_SECONDS)
        broker.kill()
        broker.start()

    wait_until_nothing_is_open(broker.bootstrap, topic, range(MANY))
    read = committed_values(broker.bootstrap, topic, range(MANY))
    assert read == {partition: [f"{number} {partition}" for number in range(MARKER_KILLS)] for partition in range(MANY)}


class Rival:
    """A program that commits values to two partitions, and starts again whenever another of its name fences it."""

    def __init__(self, bootstrap: str, topic: str, name: str, values: list[str]) -> None:
        self._bootstrap, self._topic, self._name, self._values = bootstrap, topic, name, values
        self.outcomes: dict[str, bool] = {}

    def run(self) -> None:
        values = iter(self._values)
        left: str | None = next(values)
        while left is not None:
            try:
                writer = transactional(self._bootstrap, self._name)
                while left is not None:
                    self.outcomes[left] = False
                    write_to_both(writer, self._topic, left)
                    writer.commit_transaction(SECONDS_MAX)
                    self.outcomes[left] = True
                    left = next(values, None)
            except KafkaException:
                left = next(values, None)


def write_to_both(writer: Producer, topic: str, value: str) -> None:
    writer.begin_transaction()
    for partition in range(2):
        writer.produce(topic, value, partition=partition)
    writer.flush(SECONDS_MAX)


def test_concurrent_producers_of_one_transactional_id_keep_transactions_atomic(start_broker: Any) -> None:
    broker, topic, name = start_broker(), fresh_name("rivals"), fresh_name("t")
    create_topic(broker.bootstrap, topic, partitions=2)
    rivals = [Rival(broker.bootstrap, topic, name, [f"{side}{number}" for number in range(30)]) for side in "ab"]

    threads = [threading.Thread(target=rival.run) for rival in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The last producer aborts the open transactions of the others, and succeeds even if they have all fenced each
    # other.
    last = Rival(broker.bootstrap, topic, name, ["last"])
    last.run()

    wait_until_nothing_is_open(broker.bootstrap, topic, range(2))
    outcomes = rivals[0].outcomes | rivals[1].outcomes | last.outcomes
    assert outcomes["last"]
    check_atomic(committed_values(broker.bootstrap, topic, range(2)), outcomes)


class RawProducer:
    """A producer of transaction version 2 whose requests a test can repeat at any time."""

    def __init__(self, bootstrap: str, name: str, topic: str) -> None:
        asyncio.run(await_coordinator(bootstrap))
        self._bootstrap, self._name, self._topic = bootstrap, name, topic
        opened = self._ask(
            init_producer_id,
            4,
            init_producer_id.Request(
                transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            ),
        )
        assert opened.error_code == 0
        self.producer_id, self.epoch = opened.producer_id, opened.producer_epoch

    def _ask(self, api: Any, version: int, request: Any) -> Any:
        async def ask() -> Any:
            wire = await GroupWire.open(self._bootstrap)
            response = await wire.call(api, version, request)
            await wire.close()
            return response

        return asyncio.run(ask())

    def write(self, value: bytes) -> int:
        batch = build_batch(
            [Record(0, now_ms(), None, value, ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        request = produce_request(self._topic, bytes(batch), version=12)
        request.transactional_id = self._name
        with Wire(self._bootstrap) as wire:
            [[response]] = [response.partition_responses for response in wire.ask(request).responses]
        return int(response.error_code)

    def end(self, epoch: int, *, commit: bool) -> Any:
        request = end_txn.Request(
            transactional_id=self._name, producer_id=self.producer_id, producer_epoch=epoch, committed=commit
        )
        return self._ask(end_txn, 5, request)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_an_end_txn_delayed_past_the_start_of_the_next_transaction_does_not_end_it(
    start_broker: Any, commit: bool
) -> None:
    broker, topic = start_broker(), fresh_name("late")
    create_topic(broker.bootstrap, topic)
    raw = RawProducer(broker.bootstrap, fresh_name("t"), topic)
    first_epoch = raw.epoch
    assert raw.write(b"first") == 0
    raw.epoch = raw.end(first_epoch, commit=True).producer_epoch
    assert raw.write(b"second") == 0

    late = raw.end(first_epoch, commit=commit)

    assert late.error_code == PRODUCER_FENCED
    # The first record and its marker; the second transaction is still open.
    assert end_of(broker.bootstrap, topic, 0, "read_committed") == 2
    assert raw.end(raw.epoch, commit=True).error_code == 0
    wait_until_nothing_is_open(broker.bootstrap, topic, range(1))
    assert committed_values(broker.bootstrap, topic, range(1)) == {0: ["first", "second"]}


TIMEOUT_MS = 1_000
RACERS = 12
AROUND_MS = 60.0


def race(broker: Any, topic: str, number: int, around_ms: float, outcomes: dict[str, bool]) -> None:
    """Commit at about the moment at which the transaction times out."""
    settings = {"transaction.timeout.ms": TIMEOUT_MS, "message.timeout.ms": TIMEOUT_MS}
    writer = transactional(broker.bootstrap, fresh_name("racer"), **settings)
    value = str(number)
    outcomes[value] = False
    began = time.monotonic()
    try:
        write_to_both(writer, topic, value)
        time.sleep(max(0.0, began + (TIMEOUT_MS + around_ms) / 1_000 - time.monotonic()))
        writer.commit_transaction(SECONDS_MAX)
    except KafkaException:
        return
    outcomes[value] = True


def test_a_timeout_that_races_a_commit_aborts_or_commits(start_broker: Any, randomness: random.Random) -> None:
    broker = start_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "10"})
    topic = fresh_name("race")
    create_topic(broker.bootstrap, topic, partitions=2)
    outcomes: dict[str, bool] = {}
    racers = [
        threading.Thread(target=race, args=(broker, topic, number, randomness.uniform(-AROUND_MS, AROUND_MS), outcomes))
        for number in range(RACERS)
    ]

    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    wait_until_nothing_is_open(broker.bootstrap, topic, range(2))
    values = committed_values(broker.bootstrap, topic, range(2))
    check_atomic(values, outcomes)
    # A commit that was reported as failed was in fact aborted.
    assert set(values[0]) == {value for value, committed in outcomes.items() if committed}


def is_placed(placed: dict[tuple[str, int], str]) -> bool:
    wanted = {("t", index) for index in range(6)} | {(STATE, index) for index in range(STATE_PARTITIONS)}
    return wanted <= set(placed)


def names_kept_in(folder: Path, placed: dict[tuple[str, int], str]) -> Iterator[str]:
    while True:
        name = fresh_name("t")
        if placed[STATE, partition_of(name, STATE_PARTITIONS)].startswith(str(folder)):
            yield name


@pytest.mark.penstock_only
def test_a_lost_folder_delays_only_its_own_partitions(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    with running(good, bad, log_segment_bytes="1048576") as broker:
        create_topic(broker.bootstrap, "t", partitions=6)
        transactional(broker.bootstrap, "makes-the-topic-of-transactions")
        with Wire(broker.bootstrap) as wire:
            wait_until(lambda: is_placed(folders_by_partition(wire)), what="every partition in its folder")
            placed = folders_by_partition(wire)
        on_bad = [partition for partition in range(6) if placed["t", partition].startswith(str(bad))]
        on_good = [partition for partition in range(6) if partition not in on_bad]
        assert on_bad
        assert on_good
        names = names_kept_in(good, placed)
        committer, aborter = (transactional(broker.bootstrap, next(names)) for _ in range(2))
        for writer, value in ((committer, "committed"), (aborter, "aborted")):
            writer.begin_transaction()
            for partition in range(6):
                writer.produce("t", value, partition=partition)
            assert writer.flush(SECONDS_MAX) == 0

        vanish(bad)
        with Wire(broker.bootstrap) as wire:
            assert {code_until_refused(wire, partition) for partition in on_bad} == {KAFKA_STORAGE_ERROR}
        committer.commit_transaction(SECONDS_MAX)
        aborter.abort_transaction(SECONDS_MAX)

        for partition in on_good:
            wait_until_nothing_is_open(broker.bootstrap, "t", range(partition, partition + 1))
            assert committed_values(broker.bootstrap, "t", range(partition, partition + 1)) == {
                partition: ["committed"]
            }
