"""The sink's protocol between tasks, driver and brokers, without Spark: who may write, who decides, what is left."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.model.generated_errors import InvalidProducerEpoch, ProducerFenced
from penstock.testing.apache_kafka import ApacheKafka
from penstock.wire.api import txn_offset_commit
from pyspark_penstock.finish import finish
from pyspark_penstock.ledger import Ledger, LedgerMissing, LedgerState, SinkAhead, SinkError, Superseded
from pyspark_penstock.link import BrokerLink
from pyspark_penstock.sink import Assignment, TaskDone, abort_batch, commit_batch, write_task
from pyspark_penstock.txn_calls import add_group, end_transaction, init_producer, open_transactions
from pyspark_penstock.write_options import WriteOptions
from spark.topic_contents import make_topic, values

ROWS = 50


class Sink:
    """A sink as a query would drive it, with runs, tasks and attempts by hand."""

    def __init__(self, bootstrap: str, **options: str) -> None:
        self.bootstrap = bootstrap
        self.topic = make_topic(bootstrap)
        self.query = uuid.uuid4().hex
        self.options = WriteOptions.of(
            {
                "kafka.bootstrap.servers": bootstrap,
                "topic": self.topic,
                "kafka.default.api.timeout.ms": "30000",
                **options,
            }
        )
        self.link = BrokerLink(self.options.link)

    def given(self, batch: int, run: str) -> Assignment:
        return Assignment(sink=f"sink-{self.query}", batch=batch, run=run, query=self.query)

    def rows(self, batch: int, task: int, count: int = ROWS) -> list[pa.RecordBatch]:
        return [pa.record_batch({"value": [f"{batch}/{task}/{row}" for row in range(count)]})]

    def write(self, batch: int, run: str, task: int, attempt: int = 0, count: int = ROWS) -> TaskDone:
        with BrokerLink(self.options.link) as link:
            return write_task(link, self.options, self.given(batch, run), task, attempt, self.rows(batch, task, count))

    def commit(self, batch: int, done: list[TaskDone | None]) -> None:
        commit_batch(self.link, self.options, batch, done)

    def whole(self, batch: int, run: str, tasks: int = 2) -> None:
        self.commit(batch, [self.write(batch, run, task) for task in range(tasks)])

    def decide_only(self, batch: int, done: list[TaskDone]) -> None:
        """The driver dies between the note in the ledger and the first commit."""
        ledger = Ledger(self.link, self.given(batch, "").names, self.options.ledger_topic)
        state = ledger.read()
        assert state is not None
        written = tuple(each.written for each in done if each.written is not None)
        ledger.amend(lambda _: replace(state, batch=batch, written=written, written_in=done[0].generation))

    def state(self) -> LedgerState | None:
        return Ledger(self.link, self.given(0, "").names, self.options.ledger_topic).read()

    def left_open(self) -> list[str]:
        return open_transactions(self.link, f"sink-{self.query}")

    def expect(self, *batches: tuple[int, int]) -> None:
        """Exactly the rows of these batches and tasks are in, and nothing is open."""
        assert self.left_open() == []
        expected = sorted(f"{batch}/{task}/{row}" for batch, task in batches for row in range(ROWS))
        assert sorted(values(self.bootstrap, self.topic)) == expected


@pytest.fixture(scope="module", params=["penstock", pytest.param("kafka", marks=pytest.mark.needs("kafka-jars"))])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """Our broker, and Apache Kafka: the sink asks nothing that only one of them answers."""
    if request.param == "penstock":
        yield request.getfixturevalue("broker").bootstrap
        return
    with ApacheKafka(heap="512m") as kafka:
        yield kafka.bootstrap


@pytest.fixture
def sink(bootstrap: str) -> Iterator[Sink]:
    made = Sink(bootstrap)
    yield made
    made.link.close()


def test_batches_are_in_when_they_are_committed_and_not_before(sink: Sink) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    assert len(sink.left_open()) == 2

    sink.commit(0, done)
    sink.whole(1, "a")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_replay_of_a_committed_batch_writes_nothing(sink: Sink) -> None:
    sink.whole(0, "a")

    sink.whole(0, "b")
    sink.whole(1, "b")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_driver_that_dies_before_it_decides_leaves_nothing(sink: Sink) -> None:
    sink.whole(0, "a")
    for task in range(3):
        sink.write(1, "a", task)

    sink.whole(1, "b")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_a_driver_that_dies_after_it_decided_is_made_good_by_the_next_run(sink: Sink, ended: int) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    sink.decide_only(0, done)
    for each in done[:ended]:
        assert each.written is not None
        end_transaction(sink.link, each.assignment.names.producer(each.generation, each.written), commit=True)

    # The replay may cut the rows into other tasks: what is decided is not written again whatever the cut.
    sink.whole(0, "b", tasks=3)

    sink.expect((0, 0), (0, 1))


def test_a_driver_that_dies_in_the_middle_of_its_note_holds_nobody_up(sink: Sink) -> None:
    sink.whole(0, "a")
    sink.write(1, "a", 0)
    names = sink.given(0, "").names
    producer = init_producer(sink.link, names.ledger, 60_000)
    add_group(sink.link, producer, names.group)
    request = txn_offset_commit.Request(
        transactional_id=names.ledger,
        group_id=names.group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=sink.options.ledger_topic,
                partitions=[txn_offset_commit.TxnOffsetCommitRequestPartition(committed_offset=2)],
            )
        ],
    )
    answer = sink.link.ask(sink.link.coordinator(names.group), txn_offset_commit, request, 3)
    assert answer.topics[0].partitions[0].error_code == 0

    # Nothing here is tried for longer than half a minute, and that transaction has a whole one.
    sink.whole(1, "b")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_decided_batch_is_completed_even_if_its_failure_was_ignored(sink: Sink) -> None:
    sink.decide_only(0, [sink.write(0, "a", task) for task in range(2)])

    sink.whole(1, "b")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_of_two_attempts_of_a_task_the_one_that_spark_took_is_in(sink: Sink) -> None:
    first = sink.write(0, "a", 0, attempt=0)
    second = sink.write(0, "a", 1, attempt=0)
    sink.write(0, "a", 0, attempt=1)

    sink.commit(0, [first, second])

    sink.expect((0, 0), (0, 1))


def test_a_zombie_task_that_wakes_after_its_successor_committed_writes_nothing(sink: Sink) -> None:
    given = sink.given(0, "a")
    woken = False

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal woken
        # Enough to be sent.
        yield sink.rows(0, 0, 40_000)[0]
        assert len(sink.left_open()) == 1
        # It sleeps here. Its successor writes the whole task, and the batch is committed.
        sink.commit(0, [sink.write(0, "a", 0, attempt=1), sink.write(0, "a", 1)])
        sink.whole(1, "a")
        woken = True
        for _ in range(200):
            yield sink.rows(0, 0, 20_000)[0]

    with BrokerLink(sink.options.link) as link, pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        write_task(link, sink.options, given, 0, 0, rows())

    assert woken
    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


@pytest.mark.parametrize("is_fresh", [False, True], ids=["stream", "batch write"])
@pytest.mark.parametrize("tasks", [1, 2])
def test_a_task_that_sends_its_first_row_after_its_successor_committed_leaves_nothing_open(
    sink: Sink, is_fresh: bool, tasks: int
) -> None:
    given = replace(sink.given(0, "a"), is_fresh=is_fresh)

    def attempt(task: int, number: int, rows: Iterable[pa.RecordBatch]) -> TaskDone:
        with BrokerLink(sink.options.link) as link:
            return write_task(link, sink.options, given, task, number, rows)

    def rows() -> Iterator[pa.RecordBatch]:
        yield sink.rows(0, 0)[0]
        # These are too few to be sent. Spark takes another attempt; when it closes this one, the rows just end.
        sink.commit(0, [attempt(task, 1, sink.rows(0, task)) for task in range(tasks)])

    late = attempt(0, 0, rows())

    assert late.written is None
    sink.expect(*((0, task) for task in range(tasks)))


def test_a_task_that_sends_its_first_row_after_its_batch_failed_leaves_nothing_open(sink: Sink) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield sink.rows(0, 0)[0]
        abort_batch(sink.link, sink.options, 0, [None, sink.write(0, "a", 1)])

    with BrokerLink(sink.options.link) as link:
        late = write_task(link, sink.options, sink.given(0, "a"), 0, 0, rows())

    assert late.written is None
    sink.expect()


def test_a_zombie_driver_cannot_commit_what_another_run_took_over(sink: Sink) -> None:
    zombie = [sink.write(0, "a", task) for task in range(2)]
    sink.whole(0, "b")

    with pytest.raises(SinkError):
        sink.commit(0, list(zombie))
    abort_batch(sink.link, sink.options, 0, list(zombie))

    sink.expect((0, 0), (0, 1))


def test_a_run_that_is_overtaken_while_it_writes_commits_nothing(sink: Sink) -> None:
    mine = sink.write(0, "a", 0)
    sink.write(0, "b", 0)
    mine_too = sink.write(0, "a", 1)

    with pytest.raises(Superseded, match="another run"):
        sink.commit(0, [mine, mine_too])
    abort_batch(sink.link, sink.options, 0, [mine, mine_too])
    sink.whole(0, "c")

    sink.expect((0, 0), (0, 1))


def test_a_failed_batch_is_aborted_and_can_be_written_again(sink: Sink) -> None:
    done = sink.write(0, "a", 0)

    abort_batch(sink.link, sink.options, 0, [done, None])
    assert sink.left_open() == []
    with pytest.raises(SinkError):
        sink.commit(0, [done])
    sink.whole(0, "b")

    sink.expect((0, 0), (0, 1))


def test_an_abort_ends_what_killed_tasks_have_left_too(sink: Sink) -> None:
    done = sink.write(0, "a", 0)
    sink.write(0, "a", 1)
    assert len(sink.left_open()) == 2

    abort_batch(sink.link, sink.options, 0, [done, None])

    sink.expect()


def test_an_abort_after_the_decision_leaves_the_batch_to_the_next_run(sink: Sink) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    sink.decide_only(0, done)

    abort_batch(sink.link, sink.options, 0, list(done))
    sink.whole(0, "b")

    sink.expect((0, 0), (0, 1))


def test_a_transaction_that_was_aborted_after_the_decision_is_written_again_alone(sink: Sink) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    sink.decide_only(0, done)
    # What a coordinator does to a transaction that is open for too long.
    init_producer(sink.link, done[1].assignment.names.transactional_id(done[1].generation, 1, 0), 1000)

    sink.whole(0, "b")
    sink.whole(1, "b")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_lost_transaction_is_not_replaced_by_other_rows(sink: Sink) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    sink.decide_only(0, done)
    init_producer(sink.link, done[1].assignment.names.transactional_id(done[1].generation, 1, 0), 1000)

    for count in (ROWS - 1, 0):
        with pytest.raises(SinkError, match="partly in"):
            sink.write(0, "b", 1, count=count)
    with pytest.raises(SinkError, match="partly in"):
        sink.commit(0, [sink.write(0, "b", 0)])
    sink.whole(0, "c")

    sink.expect((0, 0), (0, 1))


def test_a_transaction_that_is_gone_before_the_decision_fails_the_batch_whole(sink: Sink) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    init_producer(sink.link, done[1].assignment.names.transactional_id(done[1].generation, 1, 0), 1000)

    with pytest.raises(SinkError, match=r"kafka\.transaction\.timeout\.ms"):
        sink.commit(0, list(done))
    abort_batch(sink.link, sink.options, 0, list(done))
    assert values(sink.bootstrap, sink.topic) == []
    sink.whole(0, "b")

    sink.expect((0, 0), (0, 1))


def test_a_lost_ledger_is_an_error_and_not_a_second_copy(sink: Sink) -> None:
    sink.whole(0, "a")
    Ledger(sink.link, sink.given(0, "").names, sink.options.ledger_topic).forget()

    with pytest.raises(LedgerMissing, match="ledgerMissing"):
        sink.write(1, "b", 0)
    sink.options = replace(sink.options, ledger_missing="begin")
    sink.whole(1, "b")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_checkpoint_from_before_is_refused(sink: Sink) -> None:
    sink.whole(0, "a")
    sink.whole(1, "a")

    with pytest.raises(SinkAhead):
        sink.write(0, "b", 0)

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_tasks_without_rows_take_part_without_a_transaction(sink: Sink) -> None:
    done = [sink.write(0, "a", 0), sink.write(0, "a", 1, count=0)]
    assert done[1].written is None

    sink.commit(0, list(done))
    sink.commit(1, [sink.write(1, "a", 0, count=0)])

    state = sink.state()
    assert state is not None
    assert state.batch == 1
    sink.expect((0, 0))


def test_a_batch_write_whose_driver_died_is_completed_by_whoever_comes_next(sink: Sink) -> None:
    name = f"penstock-spark-batch-{sink.query}"
    given = Assignment(sink=name, batch=0, run="a", query=name, is_fresh=True)
    done: list[TaskDone] = []
    for task in range(2):
        with BrokerLink(sink.options.link) as link:
            done.append(write_task(link, sink.options, given, task, 0, sink.rows(0, task)))
    written = tuple(each.written for each in done if each.written is not None)
    state = LedgerState(batch=0, generation=1, run="a", query=name, written_in=1, written=written)
    ledger = Ledger(sink.link, given.names, sink.options.ledger_topic)
    ledger.amend(lambda _: state)

    assert [(each.sink, each.transactions, each.lost) for each in finish(sink.link)] == [(name, 2, 0)]

    assert finish(sink.link) == []
    assert ledger.read() is None
    sink.expect((0, 0), (0, 1))


def test_a_batch_write_that_nobody_decided_is_not_completed(sink: Sink) -> None:
    name = f"penstock-spark-batch-{sink.query}"
    given = Assignment(sink=name, batch=0, run="a", query=name, is_fresh=True)
    with BrokerLink(sink.options.link) as link:
        done = write_task(link, sink.options, given, 0, 0, sink.rows(0, 0))

    assert finish(sink.link) == []

    abort_batch(sink.link, sink.options, 0, [done])
    sink.expect()
