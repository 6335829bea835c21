"""The sink's protocol between tasks, driver and brokers, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.testing.apache_kafka import ApacheKafka
from penstock.wire.api import txn_offset_commit
from pyspark_penstock.batch_identity import BatchOffsets
from pyspark_penstock.finish import PartlyWritten, finish, main, warn_of
from pyspark_penstock.link import BrokerLink, LinkDown
from pyspark_penstock.sink import SinkBatch, TaskDone, abort_batch, commit_batch, write_task
from pyspark_penstock.sink_state import (
    BatchAction,
    Content,
    Decided,
    LedgerMissing,
    OtherBatch,
    OutcomeUnknown,
    Resolution,
    SinkAhead,
    SinkError,
    SinkNames,
    SinkState,
    Superseded,
)
from pyspark_penstock.sink_store import SinkStore, encode_state
from pyspark_penstock.txn_calls import (
    Commits,
    Producer,
    add_group,
    commit_all,
    end_transaction,
    init_producer,
    open_transactions,
)
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

    def given(self, batch: int, run: str) -> SinkBatch:
        return SinkBatch(sink=f"sink-{self.query}", batch=batch, run=run, query=self.query, query_run=run)

    def rows(self, batch: int, task: int, count: int = ROWS) -> list[pa.RecordBatch]:
        return [pa.record_batch({"value": [f"{batch}/{task}/{row}" for row in range(count)]})]

    def write(self, batch: int, run: str, task: int, attempt: int = 0, count: int = ROWS) -> TaskDone:
        with BrokerLink(self.options.link) as link:
            return write_task(link, self.options, self.given(batch, run), task, attempt, self.rows(batch, task, count))

    def commit(self, batch: int, done: list[TaskDone | None], offsets: BatchOffsets | None = None) -> None:
        commit_batch(self.link, self.options, batch, done, offsets)

    def whole(self, batch: int, run: str, tasks: int = 2) -> None:
        self.commit(batch, [self.write(batch, run, task) for task in range(tasks)])

    def decide_only(self, batch: int, done: list[TaskDone]) -> None:
        """The driver dies between its decision and the first commit."""
        ledger = SinkStore(self.link, self.given(batch, "").names, self.options.ledger_topic)
        state = ledger.read()
        assert state is not None
        written = tuple(each.written for each in done if each.written is not None)
        content = Content()
        for each in done:
            content = content.plus(each.content)
        decided = Decided(
            batch=batch,
            generation=done[0].generation,
            written=written,
            content=content,
            output=f"topic {self.topic}",
            run=done[0].sink_batch.query_run,
        )
        ledger.update(lambda _: replace(state, decided=decided))

    def state(self) -> SinkState | None:
        return SinkStore(self.link, self.given(0, "").names, self.options.ledger_topic).read()

    def left_open(self) -> list[str]:
        return open_transactions(self.link, f"sink-{self.query}")

    def expect(self, *batches: tuple[int, int]) -> None:
        """Exactly the rows of these batches and tasks are committed, and no transaction is open."""
        assert self.left_open() == []
        expected = sorted(f"{batch}/{task}/{row}" for batch, task in batches for row in range(ROWS))
        assert sorted(values(self.bootstrap, self.topic)) == expected


@pytest.fixture(scope="module", params=["penstock", pytest.param("kafka", marks=pytest.mark.needs("kafka-jars"))])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """Our broker, and Apache Kafka: the sink uses no request that only one of them serves."""
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
def test_the_next_run_completes_a_batch_whose_driver_died_after_the_decision(sink: Sink, ended: int) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    sink.decide_only(0, done)
    for each in done[:ended]:
        assert each.written is not None
        end_transaction(sink.link, each.sink_batch.names.producer(each.generation, each.written), commit=True)

    # The replay may distribute the rows over other tasks: a decided batch is never written again.
    rows = [row for task in range(2) for row in sink.rows(0, task)]
    with BrokerLink(sink.options.link) as link:
        sink.commit(0, [write_task(link, sink.options, sink.given(0, "b"), 0, 0, rows)])

    sink.expect((0, 0), (0, 1))


def test_a_driver_that_dies_while_it_decides_blocks_no_later_run(sink: Sink) -> None:
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
    response = sink.link.call(sink.link.coordinator(names.group), txn_offset_commit, request, 3)
    assert response.topics[0].partitions[0].error_code == 0

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

    with BrokerLink(sink.options.link) as link, pytest.raises(SinkError, match="is gone"):
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


def test_a_zombie_driver_cannot_commit_a_batch_that_another_run_took_over(sink: Sink) -> None:
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


def test_an_abort_also_ends_transactions_of_killed_tasks(sink: Sink) -> None:
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


def test_only_a_transaction_aborted_after_the_decision_is_written_again(sink: Sink) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    sink.decide_only(0, done)
    # What a coordinator does to a transaction that is open for too long.
    init_producer(sink.link, done[1].sink_batch.names.transactional_id(done[1].generation, 1, 0), 1000)

    sink.whole(0, "b")
    sink.whole(1, "b")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_lost_transaction_is_not_replaced_by_other_rows(sink: Sink) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    sink.decide_only(0, done)
    init_producer(sink.link, done[1].sink_batch.names.transactional_id(done[1].generation, 1, 0), 1000)

    for count in (ROWS - 1, 0):
        with pytest.raises(SinkError, match="partly committed"):
            sink.write(0, "b", 1, count=count)
    with pytest.raises(OtherBatch):
        sink.commit(0, [sink.write(0, "b", 0)])
    sink.whole(0, "c")

    sink.expect((0, 0), (0, 1))


def test_a_transaction_aborted_before_the_decision_fails_the_whole_batch(sink: Sink) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    init_producer(sink.link, done[1].sink_batch.names.transactional_id(done[1].generation, 1, 0), 1000)

    with pytest.raises(SinkError, match=r"kafka\.transaction\.timeout\.ms"):
        sink.commit(0, list(done))
    abort_batch(sink.link, sink.options, 0, list(done))
    assert values(sink.bootstrap, sink.topic) == []
    sink.whole(0, "b")

    sink.expect((0, 0), (0, 1))


def test_a_lost_ledger_is_an_error_and_not_a_second_copy(sink: Sink) -> None:
    sink.whole(0, "a")
    SinkStore(sink.link, sink.given(0, "").names, sink.options.ledger_topic).forget()

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


@pytest.mark.parametrize("newer", [0, 1])
def test_a_batch_of_the_same_number_and_other_rows_is_refused_and_not_dropped(sink: Sink, newer: int) -> None:
    sink.whole(0, "a")
    other = [sink.write(0, "b", task, count=ROWS + newer * task) for task in range(2 + (1 - newer))]

    with pytest.raises(OtherBatch, match=rf"in the sink {2 * ROWS} rows .* being written {sum_of(other)} rows"):
        sink.commit(0, list(other))
    abort_batch(sink.link, sink.options, 0, list(other))

    sink.expect((0, 0), (0, 1))


def sum_of(done: list[TaskDone]) -> int:
    return sum(each.content.rows for each in done)


def test_a_batch_is_the_same_however_its_rows_are_cut_into_tasks(sink: Sink) -> None:
    sink.whole(0, "a")
    rows = [row for task in range(2) for row in sink.rows(0, task)]
    with BrokerLink(sink.options.link) as link:
        replay = write_task(link, sink.options, sink.given(0, "b"), 0, 0, reversed(rows))

    sink.commit(0, [replay])

    sink.expect((0, 0), (0, 1))


def offsets(end: str, start: str = "0", planned: int = 1) -> BatchOffsets:
    return BatchOffsets(plan=f"{start}-{end}-{planned}", start=start, end=end, text=f'{{"t":{end}}}')


def test_a_replay_is_recognized_by_its_offsets_even_with_other_rows(sink: Sink) -> None:
    sink.commit(0, [sink.write(0, "a", 0)], offsets("5"))

    sink.commit(0, [sink.write(0, "b", 0, count=3)], offsets("5"))
    sink.commit(1, [sink.write(1, "b", 0)], offsets("9", start="5"))

    sink.expect((0, 0), (1, 0))


def test_a_batch_that_was_planned_again_to_other_offsets_is_refused_even_with_the_same_rows(sink: Sink) -> None:
    sink.commit(0, [sink.write(0, "a", 0)], offsets("5"))

    with pytest.raises(OtherBatch, match=r'offsets {"t":5}.*offsets {"t":6}'):
        sink.commit(0, [sink.write(0, "b", 0)], offsets("6", planned=2))

    sink.expect((0, 0))


def test_a_batch_that_was_planned_again_to_the_same_offsets_is_the_same_if_its_rows_are(sink: Sink) -> None:
    sink.commit(0, [sink.write(0, "a", 0)], offsets("5"))

    with pytest.raises(OtherBatch, match="the rows are not the same"):
        sink.commit(0, [sink.write(0, "b", 0, count=3)], offsets("5", planned=2))
    sink.commit(0, [sink.write(0, "c", 0)], offsets("5", planned=2))

    sink.expect((0, 0))


def test_a_batch_that_does_not_continue_the_last_is_refused(sink: Sink) -> None:
    sink.commit(0, [sink.write(0, "a", 0)], offsets("5"))

    with pytest.raises(OtherBatch, match="does not begin where batch 0 in the sink ended"):
        sink.commit(1, [sink.write(1, "b", 0)], offsets("9", start="6"))
    sink.options = replace(sink.options, resolution=Resolution(batch=1, action=BatchAction.WRITE))
    sink.commit(1, [sink.write(1, "c", 0)], offsets("9", start="6"))

    sink.expect((0, 0), (1, 0))


def test_two_outputs_of_one_run_cannot_share_a_sink_even_with_the_same_offsets(sink: Sink) -> None:
    sink.commit(0, [sink.write(0, "a", 0)], offsets("5"))
    given = replace(sink.given(0, "second write"), query_run="a")
    with BrokerLink(sink.options.link) as link:
        second = write_task(link, sink.options, given, 0, 0, sink.rows(7, 7))

    with pytest.raises(OtherBatch, match="two outputs cannot share a sinkId"):
        sink.commit(0, [second], offsets("5"))

    sink.options = replace(sink.options, topic="elsewhere")
    with pytest.raises(OtherBatch, match="to topic elsewhere"):
        sink.commit(0, [sink.write(0, "b", 0)], offsets("5"))
    sink.expect((0, 0))


def foreach_write(sink: Sink, batch: int, run: str, writer: str, *tasks: int) -> list[TaskDone]:
    """A write in foreachBatch: each has a run of its own, within a run of the query."""
    given = replace(sink.given(batch, writer), query_run=run)
    done: list[TaskDone] = []
    for task, rows in enumerate(tasks):
        with BrokerLink(sink.options.link) as link:
            done.append(write_task(link, sink.options, given, task, 0, sink.rows(batch, rows)))
    return done


def test_two_outputs_of_one_run_cannot_share_a_sink_when_the_query_is_started_again(sink: Sink) -> None:
    sink.commit(0, list(foreach_write(sink, 0, "a", "first output", 0)), offsets("5"))

    for run in ("a", "b", "c"):
        if run != "a":
            sink.commit(0, list(foreach_write(sink, 0, run, f"first output, {run}", 0)), offsets("5"))
        with pytest.raises(OtherBatch, match="two outputs cannot share a sinkId"):
            sink.commit(0, list(foreach_write(sink, 0, run, f"second output, {run}", 1)), offsets("5"))

    sink.expect((0, 0))


def test_a_late_attempt_of_the_last_batch_does_not_take_the_sink_from_the_next(sink: Sink) -> None:
    sink.commit(0, list(foreach_write(sink, 0, "a", "write of 0", 0, 1)))
    done = foreach_write(sink, 1, "a", "write of 1", 0, 1)

    # A speculative attempt whose Python process was slow to start.
    late = foreach_write(sink, 0, "a", "write of 0", 0)

    assert late[0].written is None
    sink.commit(1, list(done))
    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_late_attempt_of_a_batch_before_the_last_opens_nothing(sink: Sink) -> None:
    sink.whole(0, "a")
    sink.whole(1, "a")

    late = sink.write(0, "a", 0)

    assert late.is_late
    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_replay_does_not_touch_the_transactions_of_the_next_batch(sink: Sink) -> None:
    sink.commit(0, list(foreach_write(sink, 0, "a", "write of 0", 0, 1)))
    done = foreach_write(sink, 1, "b", "another driver", 0, 1)

    sink.commit(0, list(foreach_write(sink, 0, "a", "write of 0, tried again", 0, 1)))
    sink.commit(1, list(done))

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_query_that_takes_over_a_sink_commits_the_decided_batch(sink: Sink) -> None:
    sink.decide_only(0, [sink.write(0, "a", task) for task in range(2)])
    sink.options = replace(sink.options, ledger_missing="begin")
    given = replace(sink.given(0, "b"), query="another")
    with BrokerLink(sink.options.link) as link:
        done = write_task(link, sink.options, given, 0, 0, sink.rows(7, 7))
    sink.commit(0, [done])

    sink.expect((0, 0), (0, 1), (7, 7))


def test_a_batch_written_by_resolve_batch_is_not_written_again_by_its_replay(sink: Sink) -> None:
    sink.commit(0, [sink.write(0, "a", 0)], offsets("5"))
    sink.options = replace(sink.options, resolution=Resolution(batch=1, action=BatchAction.WRITE))

    for run in ("b", "c", "d"):
        sink.commit(1, [sink.write(1, run, 0)], offsets("9", start="6"))

    sink.expect((0, 0), (1, 0))


def test_a_user_may_skip_a_batch_whose_state_has_expired(sink: Sink) -> None:
    sink.whole(0, "a")
    sink.whole(1, "a")
    SinkStore(sink.link, sink.given(0, "").names, sink.options.ledger_topic).forget()

    with pytest.raises(LedgerMissing, match="resolveBatch to 1:skip"):
        sink.write(1, "b", 0)
    skip = Resolution(batch=1, action=BatchAction.SKIP)
    sink.options = replace(sink.options, ledger_missing="begin", resolution=skip)
    sink.whole(1, "c")
    sink.options = replace(sink.options, ledger_missing="fail", resolution=None)
    sink.whole(1, "d")
    sink.whole(2, "d")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1))


def test_a_user_may_have_a_batch_of_a_taken_number_written_once(sink: Sink) -> None:
    sink.whole(0, "a")
    sink.options = replace(sink.options, resolution=Resolution(batch=0, action=BatchAction.WRITE))

    for run in ("b", "c"):
        with BrokerLink(sink.options.link) as link:
            done = write_task(link, sink.options, sink.given(0, run), 0, 0, sink.rows(7, 7))
        sink.commit(0, [done])
    sink.whole(1, "c")

    sink.expect((0, 0), (0, 1), (7, 7), (1, 0), (1, 1))


def test_a_user_may_have_a_batch_of_a_taken_number_skipped(sink: Sink) -> None:
    sink.commit(0, [sink.write(0, "a", 0)], offsets("5"))
    sink.options = replace(sink.options, resolution=Resolution(batch=0, action=BatchAction.SKIP))

    sink.commit(0, [sink.write(0, "b", 0, count=3)], offsets("6", planned=2))
    sink.commit(1, [sink.write(1, "b", 0)], offsets("9", start="6"))

    sink.expect((0, 0), (1, 0))


def test_a_complete_batch_is_not_written_again_when_its_transactional_ids_have_expired(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.whole(0, "a")
    monkeypatch.setattr("pyspark_penstock.sink.commit_all", forgetful)

    sink.whole(0, "b")
    sink.whole(1, "c")

    monkeypatch.undo()
    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def forgetful(link: BrokerLink, producers: list[Producer]) -> Commits:
    """Brokers that have expired the transactional ids of batch 0 (transactional.id.expiration.ms)."""
    unknown = [each for each in producers if "-g1-" in (each.transactional_id or "")]
    known = commit_all(link, [each for each in producers if each not in unknown])
    return Commits(lost=known.lost, unknown=[*known.unknown, *unknown])


def test_a_batch_with_a_forgotten_outcome_stops_the_query_until_it_is_resolved(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    sink.decide_only(0, done)
    for each in done:
        assert each.written is not None
        end_transaction(sink.link, each.sink_batch.names.producer(each.generation, each.written), commit=True)
    monkeypatch.setattr("pyspark_penstock.sink.commit_all", forgetful)

    for batch in (0, 1):
        with pytest.raises(OutcomeUnknown, match="resolveBatch to 0:skip"):
            sink.write(batch, "b", 0)
    sink.options = replace(sink.options, resolution=Resolution(batch=0, action=BatchAction.SKIP))
    sink.whole(0, "c")
    sink.whole(1, "c")

    monkeypatch.undo()
    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))


def test_a_batch_that_lost_rows_is_not_skipped_by_the_next(sink: Sink) -> None:
    done = [sink.write(0, "a", task) for task in range(2)]
    sink.decide_only(0, done)
    init_producer(sink.link, done[1].sink_batch.names.transactional_id(done[1].generation, 1, 0), 1000)

    with pytest.raises(SinkError, match=r"batch 0 is partly committed: the transactions of tasks \[1\]"):
        sink.write(1, "b", 0)


def test_a_stage_that_runs_again_does_not_disturb_tasks_of_its_first_run(sink: Sink) -> None:
    # Spark takes the first attempt of task 0, and the second of task 1: both have attempt number 0.
    first = sink.write(0, "a", 0)
    lost = sink.write(0, "a", 1)
    sink.write(0, "a", 0)
    again = sink.write(0, "a", 1)
    assert again.written is not None
    assert lost.written is not None
    assert (lost.written.slot, again.written.slot) == (0, 1)

    sink.commit(0, [first, again])
    sink.whole(1, "a")

    sink.expect((0, 0), (0, 1), (1, 0), (1, 1))
    state = sink.state()
    assert state is not None
    assert state.decided is not None
    assert [each.slot for each in state.decided.written] == [0, 0], "the slots of a batch are free again after it"


def test_an_attempt_that_is_fenced_before_it_sent_a_row_takes_another_slot(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, begun = sink.given(0, "").names, []

    def overtaken(link: BrokerLink, name: str, timeout_ms: int) -> Producer:
        producer = init_producer(link, name, timeout_ms)
        if not begun:
            # Another attempt has seen the same slot free, and comes second.
            begun.append(init_producer(sink.link, name, timeout_ms))
        return producer

    monkeypatch.setattr("pyspark_penstock.slots.init_producer", overtaken)

    done = sink.write(0, "a", 0)
    sink.commit(0, [done])

    assert done.written is not None
    assert done.written.slot == 1
    assert names.transactional_id(1, 0, 0) == begun[0].transactional_id
    sink.expect((0, 0))


def test_the_error_of_a_second_driver_on_a_checkpoint_says_so(sink: Sink) -> None:
    mine = [sink.write(0, "a", task) for task in range(2)]
    sink.whole(0, "b")

    with pytest.raises(Superseded, match="two drivers run on one checkpoint"):
        sink.commit(0, list(mine))


def test_tasks_without_rows_take_part_without_a_transaction(sink: Sink) -> None:
    done = [sink.write(0, "a", 0), sink.write(0, "a", 1, count=0)]
    assert done[1].written is None

    sink.commit(0, list(done))
    sink.commit(1, [sink.write(1, "a", 0, count=0)])

    state = sink.state()
    assert state is not None
    assert state.batch == 1
    sink.expect((0, 0))


def test_a_batch_write_whose_driver_died_is_completed_by_the_next_write(sink: Sink) -> None:
    name = f"penstock-spark-batch-{sink.query}"
    given = SinkBatch(sink=name, batch=0, run="a", query=name, is_fresh=True)
    done: list[TaskDone] = []
    for task in range(2):
        with BrokerLink(sink.options.link) as link:
            done.append(write_task(link, sink.options, given, task, 0, sink.rows(0, task)))
    written = tuple(each.written for each in done if each.written is not None)
    state = SinkState(
        generation=1, run="a", query=name, decided=Decided(batch=0, generation=1, written=written, output="topic t")
    )
    ledger = SinkStore(sink.link, given.names, sink.options.ledger_topic)
    ledger.update(lambda _: state)

    assert [(each.sink, each.transactions, each.lost) for each in finish(sink.link)] == [(name, 2, ())]

    assert finish(sink.link) == []
    assert ledger.read() is None
    sink.expect((0, 0), (0, 1))


def test_a_batch_write_that_is_half_in_is_reported_until_it_is_forgotten(
    sink: Sink, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{sink.query}-{uuid.uuid4().hex}"
    given = SinkBatch(sink=name, batch=0, run="a", query=name, is_fresh=True)
    done: list[TaskDone] = []
    for task in range(2):
        with BrokerLink(sink.options.link) as link:
            done.append(write_task(link, sink.options, given, task, 0, sink.rows(0, task)))
    written = tuple(each.written for each in done if each.written is not None)
    decided = Decided(batch=0, generation=1, written=written, content=Content(2 * ROWS, 0), output="topic t")
    state = SinkState(generation=1, run="a", query=name, decided=decided)
    SinkStore(sink.link, given.names, sink.options.ledger_topic).update(lambda _: state)
    end_transaction(sink.link, given.names.producer(1, written[0]), commit=True)
    # As its coordinator does after transaction.timeout.ms.
    end_transaction(sink.link, given.names.producer(1, written[1]), commit=False)

    for _ in range(2):
        (broken,) = finish(sink.link, f"{sink.query}-")
        assert (broken.sink, broken.lost, broken.rows) == (name, (1,), 2 * ROWS)
        with pytest.warns(PartlyWritten, match=r"100 rows to topic t is partly committed.*tasks \[1\] of 2"):
            warn_of(broken)
        assert main([sink.bootstrap, sink.query]) == 1
    assert f"--forget {name}" in capsys.readouterr().out
    assert main([sink.bootstrap, "--forget", name]) == 0
    assert main([sink.bootstrap, "--forget", name]) == 1
    assert main([sink.bootstrap, sink.query]) == 0
    sink.expect((0, 0))


def test_a_batch_write_of_another_ledger_topic_is_found_and_forgotten_there(
    sink: Sink, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{sink.query}-{uuid.uuid4().hex}"
    sink.options = replace(sink.options, ledger_topic=f"ledger-{sink.query}")
    given = SinkBatch(sink=name, batch=0, run="a", query=name, is_fresh=True)
    with BrokerLink(sink.options.link) as link:
        done = write_task(link, sink.options, given, 0, 0, sink.rows(0, 0))
    assert done.written is not None
    decided = Decided(batch=0, generation=1, written=(done.written,), content=Content(ROWS, 0), output="topic t")
    state = SinkState(generation=1, run="a", query=name, decided=decided)
    SinkStore(sink.link, given.names, sink.options.ledger_topic).update(lambda _: state)
    end_transaction(sink.link, given.names.producer(1, done.written), commit=False)

    assert main([sink.bootstrap, sink.query]) == 0
    assert main([sink.bootstrap, sink.query, "--ledger-topic", sink.options.ledger_topic]) == 1
    advice = f"HOST:PORT --forget {name} --ledger-topic {sink.options.ledger_topic}"
    assert advice in capsys.readouterr().out
    assert main([sink.bootstrap, *advice.split()[1:]]) == 0
    assert main([sink.bootstrap, sink.query, "--ledger-topic", sink.options.ledger_topic]) == 0


def test_a_batch_write_whose_outcome_is_forgotten_is_not_called_aborted(
    sink: Sink, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{sink.query}-{uuid.uuid4().hex}"
    given = SinkBatch(sink=name, batch=0, run="a", query=name, is_fresh=True)
    with BrokerLink(sink.options.link) as link:
        done = write_task(link, sink.options, given, 0, 0, sink.rows(0, 0))
    assert done.written is not None
    decided = Decided(batch=0, generation=1, written=(done.written,), content=Content(ROWS, 0), output="topic t")
    state = SinkState(generation=1, run="a", query=name, decided=decided)
    SinkStore(sink.link, given.names, sink.options.ledger_topic).update(lambda _: state)
    end_transaction(sink.link, given.names.producer(1, done.written), commit=True)
    monkeypatch.setattr("pyspark_penstock.finish.commit_all", forgetful)

    for _ in range(2):
        (broken,) = finish(sink.link, f"{sink.query}-")
        assert (broken.lost, broken.unknown) == ((), (0,))
        with pytest.warns(PartlyWritten, match=r"tasks \[0\] of 1 .* whether their rows are committed is unknown"):
            warn_of(broken)
        assert main([sink.bootstrap, sink.query]) == 1
    assert "aborted" not in capsys.readouterr().out
    assert main([sink.bootstrap, "--forget", name]) == 0
    assert main([sink.bootstrap, sink.query]) == 0
    sink.expect((0, 0))


def test_a_driver_that_died_in_the_middle_of_its_note_does_not_hold_up_later_batch_writes(sink: Sink) -> None:
    names = SinkNames(sink=f"{sink.query}-{uuid.uuid4().hex}")
    producer = init_producer(sink.link, names.ledger, 60_000)
    add_group(sink.link, producer, names.group)
    store = SinkStore(sink.link, names, sink.options.ledger_topic)
    store._commit_pieces(producer, 1, encode_state(SinkState(generation=1, run="a", query=names.sink)))

    # Nothing here is tried for longer than half a minute, and that transaction has a whole one.
    assert finish(sink.link, f"{sink.query}-") == []

    assert store.read_if_stable() == (False, None)
    end_transaction(sink.link, producer, commit=False)


def test_finish_does_not_touch_a_sink_with_the_same_prefix(sink: Sink) -> None:
    sink.whole(0, "a")

    assert finish(sink.link, "sink-") == []

    assert sink.state() is not None


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_batch_write_whose_commit_got_no_response_does_not_suggest_a_second_copy(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, tasks: int
) -> None:
    name = f"{sink.query}-{uuid.uuid4().hex}"
    given = SinkBatch(sink=name, batch=0, run="a", query=name, is_fresh=True)
    done: list[TaskDone | None] = []
    for task in range(tasks):
        with BrokerLink(sink.options.link) as link:
            done.append(write_task(link, sink.options, given, task, 0, sink.rows(0, task)))

    def no_response(link: BrokerLink, producers: list[Producer]) -> Commits:
        commit_all(link, producers[:1])
        raise LinkDown("it closed the connection")

    monkeypatch.setattr("pyspark_penstock.sink.commit_all", no_response)
    with pytest.raises(
        SinkError, match=rf"{tasks * ROWS} rows to topic .* whether they are committed is unknown.*batchId"
    ):
        sink.commit(0, done)
    abort_batch(sink.link, sink.options, 0, done)

    assert len(finish(sink.link, f"{sink.query}-")) == tasks - 1
    sink.expect(*((0, task) for task in range(tasks)))


def test_a_lost_batch_write_of_one_transaction_is_not_reported_as_partly_committed(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{sink.query}-{uuid.uuid4().hex}"
    given = SinkBatch(sink=name, batch=0, run="a", query=name, is_fresh=True)
    with BrokerLink(sink.options.link) as link:
        done = write_task(link, sink.options, given, 0, 0, sink.rows(0, 0))

    def late(link: BrokerLink, producers: list[Producer]) -> Commits:
        # As its coordinator does after transaction.timeout.ms, here right after the driver has looked.
        end_transaction(link, producers[0], commit=False)
        return commit_all(link, producers)

    monkeypatch.setattr("pyspark_penstock.sink.commit_all", late)
    with pytest.raises(SinkError, match="nothing of it is committed, write it again"):
        sink.commit(0, [done])
    abort_batch(sink.link, sink.options, 0, [done])

    assert finish(sink.link, f"{sink.query}-") == []
    sink.expect()


def test_an_undecided_batch_write_is_not_completed(sink: Sink) -> None:
    name = f"penstock-spark-batch-{sink.query}"
    given = SinkBatch(sink=name, batch=0, run="a", query=name, is_fresh=True)
    with BrokerLink(sink.options.link) as link:
        done = write_task(link, sink.options, given, 0, 0, sink.rows(0, 0))

    assert finish(sink.link) == []

    abort_batch(sink.link, sink.options, 0, [done])
    sink.expect()


def test_a_topic_that_first_occurs_while_responses_are_pending_is_looked_up(sink: Sink) -> None:
    """The lookup may go to the broker whose responses are pending."""
    other = make_topic(sink.bootstrap)
    topics = [sink.topic] * ROWS + [other] * ROWS
    rows = [pa.record_batch({"topic": topics[:ROWS], "value": [f"0/0/{row}" for row in range(ROWS)]})]
    rows.append(pa.record_batch({"topic": topics[ROWS:], "value": [f"{row}" for row in range(ROWS)]}))
    options = WriteOptions.of({"kafka.bootstrap.servers": sink.bootstrap, "kafka.batch.size": "16"})

    with BrokerLink(options.link) as link:
        done = write_task(link, options, sink.given(0, "a"), 0, 0, rows)
    commit_batch(sink.link, options, 0, [done])

    sink.expect((0, 0))
    assert len(values(sink.bootstrap, other)) == ROWS
