"""The kill matrix of the sink without Spark: tasks and drivers die at a random request, on streams and batch writes.

    PENSTOCK_TEST_SPARK_KILLS=200 pytest -s tests/spark/test_sink_deaths.py

kills so many of them in each test and prints how many of each kind; without the variable it kills a few. Spark's own
processes are killed in test_sink_kills.py, test_sink_driver_killed.py, test_sink_batch_kills.py and
test_sink_executor_lost.py, the first of which obeys the same variable.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.testing.broker_process import PenstockProcess
from pyspark_penstock.batch_identity import BatchOffsets
from pyspark_penstock.finish import finish
from pyspark_penstock.link import BrokerLink, LinkSettings
from pyspark_penstock.sink import SinkBatch, TaskDone, abort_batch, commit_batch, write_task
from pyspark_penstock.sink_state import (
    BatchAction,
    OtherBatch,
    OutcomeUnknown,
    Resolution,
    SinkAhead,
    SinkError,
    SinkNames,
)
from pyspark_penstock.sink_store import SinkStore
from pyspark_penstock.txn_calls import abort_open, described, open_transactions
from pyspark_penstock.write_options import WriteOptions
from spark.topic_contents import make_topic, values

KILLS = int(os.environ.get("PENSTOCK_TEST_SPARK_KILLS", "30"))
REQUEST_MAX = 14
"""Requests of a task or a driver, more or less: the one at which it dies is below."""
TASK_TRIES_MAX = 4
EXPIRATION_MS = 3_000


class Died(BaseException):
    """A process was killed."""


class DyingLink(BrokerLink):
    """The link of a process that is killed at its n-th request, before it is sent or before its response is seen."""

    def __init__(self, settings: LinkSettings, number: int, *, after: bool) -> None:
        super().__init__(settings)
        self._number = number
        self._after = after
        self._sent = 0

    def send(self, *arguments: Any) -> int:
        self._sent += 1
        if self._sent >= self._number and not self._after:
            raise Died
        return super().send(*arguments)

    def receive(self, *arguments: Any) -> Any:
        response = super().receive(*arguments)
        if self._sent >= self._number:
            raise Died
        return response


@pytest.fixture(autouse=True)
def _no_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process does not abort its transaction."""
    monkeypatch.setattr("pyspark_penstock.sink._abort_after_failure", lambda options, producer: None)


@dataclass
class Checkpoint:
    """The end of each batch in the source, when it was planned, and the number of completed ones."""

    plans: list[tuple[int, int]] = field(default_factory=list)
    done: int = 0

    def copy(self) -> Checkpoint:
        return Checkpoint(list(self.plans), self.done)


class Query:
    """A streaming query that numbers its rows, on a broker, with deaths."""

    def __init__(self, bootstrap: str, chance: random.Random, *, knows_offsets: bool) -> None:
        self.bootstrap, self.chance, self.knows_offsets = bootstrap, chance, knows_offsets
        self.topic = make_topic(bootstrap)
        self.id = uuid.uuid4().hex
        self.options = WriteOptions.of(
            {"kafka.bootstrap.servers": bootstrap, "topic": self.topic, "kafka.default.api.timeout.ms": "30000"}
        )
        self.checkpoint = Checkpoint()
        self.backup = Checkpoint()
        self.source_end = 0
        self.planned = 0
        self.run = ""
        self.deaths: Counter[str] = Counter()

    def link(self, kind: str, kills: bool) -> BrokerLink:
        if not kills:
            return BrokerLink(self.options.link)
        self.deaths[kind] += 1
        return DyingLink(self.options.link, self.chance.randint(1, REQUEST_MAX), after=self.chance.random() < 0.5)

    def survives(self, kind: str, work: Callable[[BrokerLink], TaskDone | None]) -> TaskDone | bool | None:
        """Do some work in a process that may be killed; False if it was."""
        dies = self.chance.random() < 0.4
        with self.link(kind, dies) as link:
            try:
                done = work(link)
            except Died:
                return False
        self.deaths[kind] -= dies
        return done

    def batch(self) -> bool:
        """Run one batch, from its plan to the query's commit log; whether the run survived it."""
        number = self.checkpoint.done
        if len(self.checkpoint.plans) == number:
            self.planned += 1
            self.checkpoint.plans.append((self.source_end, self.planned))
        start = self.checkpoint.plans[number - 1][0] if number else 0
        end, planned = self.checkpoint.plans[number]
        offsets = BatchOffsets(plan=f"{planned}", start=f"{start}", end=f"{end}", text=f"{end}")
        given = SinkBatch(sink=f"sink-{self.id}", batch=number, run=self.run, query=self.id, query_run=self.run)
        tasks = cut(list(range(start, end)), self.chance)
        done = [self.task(given, task, rows) for task, rows in enumerate(tasks)]
        if any(each is None for each in done):
            # Spark gives up after four tries, and asks the driver to abort.
            self.survives("driver at abort", lambda link: abort_batch(link, self.options, number, done))
            return False

        def commit(link: BrokerLink) -> None:
            commit_batch(link, self.options, number, done, offsets if self.knows_offsets else None)

        if self.survives("driver at commit", commit) is False:
            return False
        if self.chance.random() < 0.1:
            self.deaths["driver before its own note"] += 1
            return False
        self.checkpoint.done = number + 1
        return True

    def task(self, given: SinkBatch, task: int, rows: list[str]) -> TaskDone | None:
        first: TaskDone | None = None
        for attempt in range(TASK_TRIES_MAX):
            done = self.survives("task", lambda link, attempt=attempt: self.write(link, given, task, attempt, rows))
            if isinstance(done, TaskDone):
                first = done
                break
        if first is not None and self.chance.random() < 0.2:
            # The stage runs again, from attempt 0 on; Spark takes either.
            again = self.survives("task of a stage that ran again", lambda link: self.write(link, given, task, 0, rows))
            if isinstance(again, TaskDone) and self.chance.random() < 0.5:
                return again
        return first

    def write(self, link: BrokerLink, given: SinkBatch, task: int, attempt: int, rows: list[str]) -> TaskDone:
        return write_task(link, self.options, given, task, attempt, [pa.record_batch({"value": rows})] if rows else [])

    def start(self) -> None:
        self.run = uuid.uuid4().hex

    def is_as_written(self, checkpoint: Checkpoint) -> bool:
        """Whether the last batch in the sink belongs to this checkpoint, and is not older."""
        with BrokerLink(self.options.link) as link:
            state = SinkStore(link, SinkNames(sink=f"sink-{self.id}"), self.options.ledger_topic).read()
        decided = None if state is None else state.decided
        if decided is None:
            return True
        assert decided.offsets is not None
        ends = [0, *(end for end, _ in checkpoint.plans)]
        number = decided.batch
        if number + 1 >= len(ends) or checkpoint.done < number:
            return False
        return (f"{ends[number]}", f"{ends[number + 1]}") == (decided.offsets.start, decided.offsets.end)

    def finish_up(self) -> None:
        """No more deaths: the query runs to the end of its source."""
        self.chance = Calm()
        while self.checkpoint.done < len(self.checkpoint.plans) or self.checkpoint.plans[-1][0] < self.source_end:
            self.start()
            self.batch()

    def check(self) -> None:
        with BrokerLink(self.options.link) as link:
            assert open_transactions(link, f"sink-{self.id}") == []
        found = Counter(map(int, values(self.bootstrap, self.topic)))
        assert [row for row in range(self.source_end) if not found[row]] == [], "lost"
        assert [row for row, count in found.items() if count > 1] == [], "doubled"


class Calm(random.Random):
    """A randomness that kills nothing."""

    def random(self) -> float:
        return 0.99


def cut(rows: list[int], chance: random.Random) -> list[list[str]]:
    """The rows of a batch in two or three tasks, some of which may be empty."""
    places = sorted(chance.randint(0, len(rows)) for _ in range(chance.randint(1, 2)))
    return [[str(row) for row in rows[a:b]] for a, b in zip([0, *places], [*places, len(rows)], strict=True)]


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.parametrize("knows_offsets", [True, False], ids=["offsets known", "offsets unknown"])
def test_a_stream_whose_tasks_and_drivers_die_loses_and_duplicates_nothing(
    broker: PenstockProcess, knows_offsets: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    query = Query(broker.bootstrap, random.Random(seed), knows_offsets=knows_offsets)

    query.start()
    while query.deaths.total() < KILLS:
        query.source_end += query.chance.randint(1, 20)
        try:
            lives = query.batch()
        except (OtherBatch, SinkAhead, OutcomeUnknown) as refusal:
            pytest.fail(f"refused without a reason: {refusal}")
        except SinkError:
            # A zombie of the run before took the sink back, or the batch was found broken before its decision.
            lives = False
        if not lives:
            query.start()
    query.finish_up()

    print(dict(query.deaths))
    query.check()


@pytest.mark.timeout(300 + 10 * KILLS)
def test_a_restored_or_copied_checkpoint_is_refused_or_skipped_and_drops_nothing(broker: PenstockProcess) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    query = Query(broker.bootstrap, random.Random(seed), knows_offsets=True)
    outcomes: Counter[str] = Counter()
    lineages = [query.checkpoint]

    while outcomes.total() < max(KILLS // 3, 8):
        query.start()
        query.source_end += query.chance.randint(1, 20)
        is_restored = query.chance.random() < 0.4
        if is_restored:
            query.checkpoint = query.backup.copy()
            lineages.append(query.checkpoint)
        try:
            lives = query.batch()
        except (OtherBatch, SinkAhead) as refusal:
            outcomes[f"refused: {type(refusal).__name__}"] += 1
            # The user finds the checkpoint that has written what is there; it is not the one that was refused.
            right = [each for each in lineages if query.is_as_written(each)]
            if query.checkpoint in right:
                pytest.fail(f"refused without a reason: {refusal}")
            query.checkpoint = right[0]
            continue
        except SinkError:
            lives = False
        if lives and is_restored:
            outcomes["gone on"] += 1
        if lives and query.chance.random() < 0.5:
            query.backup = query.checkpoint.copy()
    if not query.is_as_written(query.checkpoint):
        query.checkpoint = next(each for each in lineages if query.is_as_written(each))
    query.finish_up()

    print(dict(outcomes), dict(query.deaths))
    query.check()


@pytest.mark.timeout(300 + 10 * KILLS)
def test_batch_writes_whose_tasks_and_drivers_die_are_in_whole_or_not_at_all(broker: PenstockProcess) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    query = Query(broker.bootstrap, random.Random(seed), knows_offsets=False)
    prefix = f"{query.id}-"
    tables: list[list[int]] = []

    while query.deaths.total() < KILLS:
        run = uuid.uuid4().hex
        given = SinkBatch(sink=f"{prefix}{run}", batch=0, run=run, query=f"{prefix}{run}", is_fresh=True)
        rows = list(range(query.source_end, query.source_end + query.chance.randint(2, 20)))
        query.source_end = rows[-1] + 1
        tables.append(rows)
        done = [query.task(given, task, part) for task, part in enumerate(cut(rows, query.chance))]
        written = [each for each in done if each is not None]
        if len(written) == len(done):
            query.survives("driver at commit", lambda link, done=done: commit_batch(link, query.options, 0, done))
        else:
            query.survives("driver at abort", lambda link, done=done: abort_batch(link, query.options, 0, done))
    with BrokerLink(query.options.link) as link:
        assert not any(each.lost for each in finish(link, prefix))
        # What no driver decided would time out; nothing here waits for that.
        abort_open(link, open_transactions(link, prefix), 60_000)

    print(dict(query.deaths))
    found = Counter(map(int, values(query.bootstrap, query.topic)))
    assert max(found.values(), default=1) == 1
    for rows in tables:
        assert sum(found[row] for row in rows) in (0, len(rows)), f"half of a table: {rows}"


@pytest.fixture
def forgetful() -> Iterator[PenstockProcess]:
    """A broker that forgets transactional ids within seconds."""
    settings = {
        "transactional.id.expiration.ms": str(EXPIRATION_MS),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with PenstockProcess(settings=settings) as process:
        yield process


@pytest.mark.slow
def test_a_driver_that_dies_at_its_commit_until_its_ids_have_expired_duplicates_nothing(
    forgetful: PenstockProcess,
) -> None:
    chance = random.Random(7)
    queries = [Query(forgetful.bootstrap, chance, knows_offsets=True) for _ in range(REQUEST_MAX - 2)]
    outcomes: Counter[str] = Counter()
    for number, query in enumerate(queries, 3):
        # The driver dies at each of its requests in turn, before its decision, after it, and when all is complete.
        query.chance = OneDeath(number)
        query.source_end = 10
        query.start()
        query.batch()
    wait_until_forgotten(queries)

    for query in queries:
        query.chance = Calm()
        query.start()
        try:
            query.batch()
            outcomes["gone on"] += 1
        except OutcomeUnknown:
            # The user looks.
            is_in = len(values(query.bootstrap, query.topic)) == query.source_end
            outcomes[f"asked, and it was {'' if is_in else 'not '}in"] += 1
            action = BatchAction.SKIP if is_in else BatchAction.WRITE
            query.options = replace(query.options, resolution=Resolution(batch=0, action=action))
        query.finish_up()
        query.check()

    print(dict(outcomes))
    assert outcomes["gone on"]
    assert outcomes.total() > outcomes["gone on"], "no death between decision and completion"


class OneDeath(random.Random):
    """Tasks live; the driver dies at one request of its commit."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._number = number
        self._asked = 0

    def randint(self, least: int, most: int) -> int:
        return self._number if most == REQUEST_MAX else least

    def random(self) -> float:
        self._asked += 1
        # Tasks ask twice each: whether they die, and whether the stage runs again. Then it is the driver's turn.
        return 0.0 if self._asked == 5 else 0.99


def wait_until_forgotten(queries: list[Query]) -> None:
    deadline = time.monotonic() + 60
    with BrokerLink(queries[0].options.link) as link:
        names = [f"sink-{query.id}-g1-{task}-0" for query in queries for task in range(2)]
        while any(not each.is_open for each in described(link, names).values()):
            assert time.monotonic() < deadline, "the broker does not forget"
            time.sleep(0.2)
