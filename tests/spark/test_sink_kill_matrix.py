"""Kills every process around the exactly-once sink, in streaming queries and batch writes.

Collected only where the number of kills is given:

    PENSTOCK_TEST_SPARK_KILLS=200 PENSTOCK_TEST_SPARK_SEED=7 .venv/bin/pytest -s tests/spark/test_sink_kill_matrix.py

No record is lost or duplicated for a consumer that reads committed records; a query whose user has restored or copied
its checkpoint may be refused with a reason instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from penstock.wire.api import list_transactions
from pyspark_penstock.finish import main as finish
from pyspark_penstock.link import BrokerLink, LinkSettings
from spark.batch_driver_program import BEGUN, ENDED, is_named, noted
from spark.batch_tables import Tables, write_table
from spark.counted_stream import CountedStream, check_once
from spark.cutting import (
    ADD_PARTITIONS,
    API_NAMES,
    BROKER,
    CLIENT,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Cut,
    CuttingProxy,
)
from spark.driver_program import SECRET
from spark.executors_program import EVENTS, OUTCOMES, REDUCERS
from spark.moved_checkpoints import MovedQuery, is_refusal, with_each_batch, with_sink
from spark.pipeline_processes import wait_until
from spark.spark_processes import DRIVER_SECONDS_MAX, driver, kill_driver
from spark.topic_contents import make_topic, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing.processes import Child

SHARES = {
    "worker stream": 25,
    "worker batch": 20,
    "broker stream": 12,
    "broker batch": 9,
    "executor stream": 5,
    "executor batch": 5,
    "driver stream": 4,
    "driver batch": 4,
    "restored stream": 4,
    "restored batch": 3,
    "copied stream": 3,
    "copied batch": 2,
    "expired stream": 2,
    "expired batch": 2,
}
"""Of a hundred kills."""
KILLS = int(os.environ.get("PENSTOCK_TEST_SPARK_KILLS", "0"))
FEW = {"worker stream": 3, "worker batch": 3, "restored stream": 2}
SEED = int(os.environ.get("PENSTOCK_TEST_SPARK_SEED") or random.randrange(1 << 32))
CHECK_EVERY = 10
CUTS_MAX = 6 if KILLS else 2
SECONDS_PER_KILL_MAX = 120
ROUNDS_PER_KILL_MAX = 6
"""A cut at a request that a batch does not make is none; so is a driver that has ended before its moment."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + SECONDS_PER_KILL_MAX * KILLS)]


def wanted(kind: str) -> int:
    return -(-KILLS * SHARES[kind] // 100) if KILLS else FEW.get(kind, 1)


class Matrix:
    """How often each kind of kill has happened, and how often the query was refused for it."""

    def __init__(self) -> None:
        self.kills: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()

    def chance(self, kind: str) -> random.Random:
        """The same seed gives every kind the same choices, independent of the others."""
        print(f"\n{kind}: {wanted(kind)} kills, PENSTOCK_TEST_SPARK_SEED={SEED}", flush=True)
        return random.Random(f"{SEED} {kind}")

    def until_done(self, kind: str) -> Iterator[int]:
        """Rounds, until there were enough kills of this kind."""
        for number in range(wanted(kind) * ROUNDS_PER_KILL_MAX):
            if self.kills[kind] >= wanted(kind):
                return
            yield number
        assert self.kills[kind] >= wanted(kind), f"only {self.kills[kind]} kills: the rest came too late"

    def __str__(self) -> str:
        rows = [f"{kind:16} {self.kills[kind]:5} kills {self.refusals[kind]:5} refused" for kind in SHARES]
        return "\n".join([*rows, f"{'all':16} {self.kills.total():5} kills"])


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return Matrix()


@pytest.fixture(scope="module")
def proxy() -> Iterator[CuttingProxy]:
    with CuttingProxy() as made:
        yield made


@contextlib.contextmanager
def history_on_failure(history: list[str]) -> Iterator[None]:
    """Add the history to a failure."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError("\n".join([f"seed {SEED}: {error}", "this is what happened:", *history])) from None


def note(history: list[str], what: str) -> None:
    print(what, flush=True)
    history.append(what)


def random_cuts(chance: random.Random, victim: str) -> list[Cut]:
    """Random kills one after the other, if enough requests are sent."""
    return [
        Cut(chance.choice(tuple(API_NAMES)), chance.randint(1, 4), chance.random() < 0.5, victim)
        for _ in range(chance.randint(1, CUTS_MAX))
    ]


VICTIMS = (("worker", CLIENT), ("broker", BROKER))


@pytest.mark.parametrize(("name", "victim"), VICTIMS, ids=[name for name, _ in VICTIMS])
def test_a_stream_whose_workers_or_broker_are_killed(
    spark: SparkSession, proxy: CuttingProxy, matrix: Matrix, tmp_path: Path, name: str, victim: str
) -> None:
    kind = f"{name} stream"
    chance = matrix.chance(kind)
    stream = CountedStream(tmp_path, make_topic(proxy.bootstrap))
    history: list[str] = []

    with history_on_failure(history):
        for number in matrix.until_done(kind):
            cuts = random_cuts(chance, victim)
            for _ in cuts:
                stream.add_batch()
            proxy.arm(*cuts)
            failures = stream.run(spark, proxy.bootstrap)
            matrix.kills[kind] += proxy.kills
            note(history, f"{proxy.kills} of {' '.join(map(str, cuts))}, {len(failures)} failures")
            proxy.arm()
            if number % CHECK_EVERY == 0:
                stream.check(proxy.bootstrap)
        stream.check(proxy.bootstrap)


@pytest.mark.parametrize(("name", "victim"), VICTIMS, ids=[name for name, _ in VICTIMS])
def test_batch_writes_whose_workers_or_broker_are_killed(
    spark: SparkSession, proxy: CuttingProxy, matrix: Matrix, name: str, victim: str
) -> None:
    kind = f"{name} batch"
    chance = matrix.chance(kind)
    tables = Tables(topic=make_topic(proxy.bootstrap))
    history: list[str] = []

    with history_on_failure(history):
        for number in matrix.until_done(kind):
            cuts = random_cuts(chance, victim)
            proxy.arm(*cuts)
            if number % 2:
                failures = tables.write_named(spark, proxy.bootstrap)
            else:
                failures = [each for each in [tables.write(spark, proxy.bootstrap)] if each]
            matrix.kills[kind] += proxy.kills
            what = f"{proxy.kills} of {' '.join(map(str, cuts))}, {len(failures)} failures"
            note(history, f"table {tables.tables - 1} {'named' if number % 2 else 'plain'}: {what}")
            proxy.arm()
            if number % CHECK_EVERY == 0:
                # The next write completes what was decided and not committed.
                assert tables.write(spark, proxy.bootstrap) == ""
                tables.check(proxy.bootstrap)
        assert tables.write(spark, proxy.bootstrap) == ""
        tables.check(proxy.bootstrap)


# Executors


def test_writes_behind_a_shuffle_whose_executors_are_killed(
    matrix: Matrix, proxy: CuttingProxy, tmp_path: Path
) -> None:
    matrix.chance("executor stream")
    stream_topic, batch_topic = (make_topic(proxy.bootstrap) for _ in range(2))
    kills = [wanted("executor stream"), wanted("executor batch")]
    child = driver(
        tmp_path,
        *(str(tmp_path), stream_topic, batch_topic, proxy.bootstrap, *map(str, kills), str(SEED)),
        program="executors_program.py",
    )
    try:
        status = child.wait(DRIVER_SECONDS_MAX + SECONDS_PER_KILL_MAX * sum(kills))
    finally:
        child.kill()
    outcomes = [json.loads(line) for line in (tmp_path / OUTCOMES).read_text().splitlines()]
    for each in outcomes:
        matrix.kills[f"executor {each['kind']}"] += each["killed"]
    assert status == 0, child.tail()

    with history_on_failure([json.dumps(each) for each in outcomes]):
        assert matrix.kills["executor stream"] >= kills[0]
        assert matrix.kills["executor batch"] >= kills[1]
        assert [each for each in outcomes if each["failure"] not in ("", "late worker")] == []
        lines = [line for file in sorted((tmp_path / "input").iterdir()) for line in file.read_text().split()]
        check_once(lines, values(proxy.bootstrap, stream_topic))
        batches = [each for each in outcomes if each["kind"] == "batch"]
        tables = Tables(topic=batch_topic, whole={each["number"] for each in batches if not each["failure"]})
        tables.unsure = {each["number"]: each["failure"] for each in batches if each["failure"]}
        tables.check(proxy.bootstrap)
    assert stages_tried_again(tmp_path / EVENTS) > 0, "no executor took with it what a later task needed"


def stages_tried_again(events: Path) -> int:
    """Writing stages that Spark ran again because files of a shuffle were lost."""
    found = 0
    for file in events.rglob("events_*"):
        for event in map(json.loads, file.read_text().splitlines()):
            if event["Event"] == "SparkListenerStageSubmitted":
                stage = event["Stage Info"]
                found += stage["Stage Attempt ID"] > 0 and stage["Number of Tasks"] <= REDUCERS
    return found


# Checkpoints


SINKS = (("stream", with_sink), ("batch", with_each_batch))


@pytest.mark.parametrize(("name", "sink"), SINKS, ids=[name for name, _ in SINKS])
@pytest.mark.parametrize("action", ["restored", "copied"])
def test_a_query_whose_checkpoint_is_restored_or_copied(
    spark: SparkSession, proxy: CuttingProxy, matrix: Matrix, tmp_path: Path, action: str, name: str, sink: Callable
) -> None:
    kind = f"{action} {name}"
    chance = matrix.chance(kind)
    query = MovedQuery(spark=spark, bootstrap=proxy.bootstrap, folder=tmp_path, chance=chance, sink=sink)

    for _ in matrix.until_done(kind):
        matrix.refusals[kind] += query.restore_older() if action == "restored" else query.use_twice()
        matrix.kills[kind] += 1


# Transactional ids that expire


EXPIRING = {
    "transactional.id.expiration.ms": "4000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
SHORT_TIMEOUT_MS, LONG_TIMEOUT_MS = "3000", "900000"


@pytest.fixture(scope="module")
def forgetful() -> Iterator[CuttingProxy]:
    """A broker that expires unused transactional ids within seconds."""
    with CuttingProxy(EXPIRING) as made:
        yield made


def wait_for_expiry(bootstrap: str, options: dict[str, str]) -> None:
    """Wait until all ids have expired; those with an open transaction do not expire."""
    busy = {"Ongoing"} if options["kafka.transaction.timeout.ms"] == LONG_TIMEOUT_MS else set[str]()

    def is_expired() -> bool:
        with BrokerLink(LinkSettings(bootstrap=bootstrap)) as link:
            states = link.call_any(list_transactions, list_transactions.Request()).transaction_states
        return all(each.transaction_state in busy for each in states)

    wait_until(is_expired, "the end of idle transactional ids")


def late_cut(chance: random.Random) -> Cut:
    return Cut(END_TXN, chance.randint(1, 4), chance.random() < 0.7, CLIENT)


def test_a_stream_that_goes_on_when_its_transactional_ids_have_expired(
    spark: SparkSession, forgetful: CuttingProxy, matrix: Matrix, tmp_path: Path
) -> None:
    kind = "expired stream"
    chance = matrix.chance(kind)
    history: list[str] = []
    stream: CountedStream | None = None

    with history_on_failure(history):
        for number in matrix.until_done(kind):
            if stream is None:
                stream = CountedStream(tmp_path / str(number), make_topic(forgetful.bootstrap))
                stream.add_batch()
                stream.run(spark, forgetful.bootstrap)
            timeout = {"kafka.transaction.timeout.ms": chance.choice((SHORT_TIMEOUT_MS, LONG_TIMEOUT_MS))}
            stream.add_batch()
            if chance.random() < 0.5:
                cut = forget_commit(stream, spark, forgetful.bootstrap, timeout)
            else:
                late = late_cut(chance)
                cut = str(late)
                forgetful.arm(late)
                with contextlib.suppress(StreamingQueryException):
                    stream.start(spark, forgetful.bootstrap, **timeout).awaitTermination()
                forgetful.arm()
            wait_for_expiry(forgetful.bootstrap, timeout)
            matrix.kills[kind] += 1
            refusal = ""
            try:
                stream.run(spark, forgetful.bootstrap, **timeout)
            except AssertionError as error:
                refusal = str(error)
            note(history, f"{cut}, {timeout}: {refusal or 'went on'}")
            if refusal:
                assert is_refusal(refusal)
                matrix.refusals[kind] += 1
                stream = None
            else:
                stream.check(forgetful.bootstrap)


def forget_commit(stream: CountedStream, spark: SparkSession, bootstrap: str, options: dict[str, str]) -> str:
    """The driver dies after the sink's commit and before Spark's own."""
    stream.run(spark, bootstrap, **options)
    last = max(int(path.name) for path in (stream.checkpoint / "commits").iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (stream.checkpoint / "commits" / name).unlink(missing_ok=True)
    return f"commit of batch {last} forgotten"


def unfinished_writes(bootstrap: str) -> str:
    """Complete batch writes without a name by hand, and forget those that cannot be; returns the output."""
    output = StringIO()
    with contextlib.redirect_stdout(output):
        status = finish([bootstrap])
        for name in re.findall(r"--forget (\S+)", output.getvalue()):
            assert finish([bootstrap, "--forget", name]) == 0
    return output.getvalue() if status else ""


def test_batch_writes_that_go_on_when_their_transactional_ids_have_expired(
    spark: SparkSession, forgetful: CuttingProxy, matrix: Matrix
) -> None:
    kind = "expired batch"
    chance = matrix.chance(kind)
    tables = Tables(topic=make_topic(forgetful.bootstrap))
    history: list[str] = []

    with history_on_failure(history):
        for _ in matrix.until_done(kind):
            timeout = {"kafka.transaction.timeout.ms": chance.choice((SHORT_TIMEOUT_MS, LONG_TIMEOUT_MS))}
            cut = late_cut(chance)
            table, name = tables.begin_named() if chance.random() < 0.5 else (tables.begin(), {})
            forgetful.arm(cut)
            tables.try_again(spark, forgetful.bootstrap, table, **name, **timeout)
            forgetful.arm()
            wait_for_expiry(forgetful.bootstrap, timeout)
            matrix.kills[kind] += 1
            if name:
                refusal = tables.try_again(spark, forgetful.bootstrap, table, **name, **timeout)
            else:
                refusal = unfinished_writes(forgetful.bootstrap)
            note(history, f"{cut} {name or 'plain'} {timeout}: {refusal or 'whole'}")
            if refusal:
                assert is_refusal(refusal) or "is partly committed" in refusal or "are committed is unknown" in refusal
                matrix.refusals[kind] += 1
                tables = Tables(topic=make_topic(forgetful.bootstrap))
            else:
                tables.check(forgetful.bootstrap)


# Drivers


STEPS = (
    *((END_TXN, number) for number in (1, 2, 3, 4)),
    *((TXN_OFFSET_COMMIT, number) for number in (1, 2)),
    (PRODUCE, 1),
    (ADD_PARTITIONS, 3),
    (INIT_PRODUCER_ID, 2),
)
"""Around the decision and between the commits, and where tasks begin."""
MOMENT_REQUESTS_MAX = 100
"""About what two batches need; a number of seconds would be another moment on each machine."""


BETWEEN_COMMITS = Cut(END_TXN, 3, True, CLIENT)


def killed_driver(
    start: Callable[[], Child], proxy: CuttingProxy, chance: random.Random, number: int
) -> tuple[bool, str]:
    """A driver that is killed at a step or at a random moment; whether it was, and where. The first kill is not
    random."""
    by_step = number == 0 or chance.random() < 0.5
    step = Cut(*chance.choice(STEPS), chance.random() < 0.5, CLIENT) if number else BETWEEN_COMMITS
    moment = chance.randint(1, MOMENT_REQUESTS_MAX)
    proxy.arm(*([step] if by_step else []))
    child = start()
    proxy.kill_client = lambda _: kill_driver(child)
    try:
        if not by_step:
            wait_until(lambda: proxy.requests >= moment or not child.alive, "requests", DRIVER_SECONDS_MAX)
            if child.alive:
                kill_driver(child)
        status = child.wait(DRIVER_SECONDS_MAX)
        assert status in (0, -9), child.tail()
    finally:
        child.kill()
        proxy.arm()
    return status == -9, f"{step if by_step else f'after {moment} requests'}: status {status}"


def test_a_stream_whose_driver_is_killed(matrix: Matrix, tmp_path: Path) -> None:
    kind = "driver stream"
    chance = matrix.chance(kind)
    history: list[str] = []

    with CuttingProxy() as proxy, history_on_failure(history):
        stream = CountedStream(tmp_path, make_topic(proxy.bootstrap))

        def start() -> Child:
            return driver(tmp_path, str(tmp_path), stream.topic, proxy.bootstrap)

        for number in matrix.until_done(kind):
            for _ in range(chance.randint(1, 3)):
                stream.add_batch()
            is_killed, where = killed_driver(start, proxy, chance, number)
            matrix.kills[kind] += is_killed
            note(history, where)
        last = start()
        assert last.wait(DRIVER_SECONDS_MAX) == 0, last.tail()
        last.kill()
        stream.check(proxy.bootstrap)
    assert any(path.name.startswith("events_") for path in tmp_path.rglob("*")), "no event log"
    assert [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == []


def test_batch_writes_whose_driver_is_killed(spark: SparkSession, matrix: Matrix, tmp_path: Path) -> None:
    kind = "driver batch"
    chance = matrix.chance(kind)
    history: list[str] = []

    with (
        CuttingProxy({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}) as proxy,
        history_on_failure(history),
    ):
        topic, side = (make_topic(proxy.bootstrap) for _ in range(2))
        last = 0
        for number in matrix.until_done(kind):
            last += chance.randint(1, 4)
            arguments = (str(tmp_path), topic, proxy.bootstrap, str(last))
            start = partial(driver, tmp_path, *arguments, program="batch_driver_program.py")
            is_killed, where = killed_driver(start, proxy, chance, number)
            matrix.kills[kind] += is_killed
            note(history, f"{last} tables, {where}")
            # The next batch write completes what was decided.
            write_table(spark, proxy.bootstrap, side, last)
        begun, ended = noted(tmp_path, BEGUN), noted(tmp_path, ENDED)
        for table in sorted(begun - ended):
            if is_named(table):
                write_table(spark, proxy.bootstrap, topic, table, sinkId=f"tables-{topic}", batchId=str(table // 2))
                ended.add(table)
        tables = Tables(topic=topic, whole=ended, unsure=dict.fromkeys(begun - ended, "killed"), tables=last)
        tables.check(proxy.bootstrap)


def test_every_kind_of_kill_has_happened(matrix: Matrix) -> None:
    print(f"\n{matrix}\nseed {SEED}", flush=True)

    assert [kind for kind in SHARES if not matrix.kills[kind]] == []
