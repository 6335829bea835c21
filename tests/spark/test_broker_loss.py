"""Streams, tables and pipelines on three brokers that are killed, paused and stopped, and whose leaders move.

A query goes on by itself: a failure other than a late Python worker of Spark's fails the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import ElectionType, KafkaException, Producer
from confluent_kafka.admin import ClusterMetadata

from cluster.replicated import WAIT_S, admin, cluster_on, create, leader_of, until
from penstock.testing.cluster import PenstockCluster
from penstock.testing.processes import Deadline
from penstock.testing.zookeeper import ZooKeeper
from pyspark_penstock.link import COORDINATOR_OF_GROUP, COORDINATOR_OF_TRANSACTIONS, BrokerLink, LinkSettings
from pyspark_penstock.pipelines.running import WORKER_STARTS_MAX, is_late_worker, stop_all
from pyspark_penstock.pipelines.spec import read_spec
from pyspark_penstock.pipelines.spec_run import start_pipeline
from pyspark_penstock.sink import SinkBatch, commit_batch, write_task
from pyspark_penstock.write_options import WriteOptions
from spark.counted_stream import check_once
from spark.topic_contents import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
TRANSACTIONS = "__transaction_state"
GROUPS = "__consumer_offsets"
FAULTS = int(os.environ.get("PENSTOCK_TEST_SPARK_KILLS", "0"))
"""Further faults for the stream, chosen at random; they take about ten seconds each."""
SEED = int(os.environ.get("PENSTOCK_TEST_SPARK_SEED", "0")) or random.SystemRandom().getrandbits(32)
SECONDS_MAX = 400.0
POLL_SECONDS = 0.05
REQUEST_MS = 4_000
"""A paused broker is left after this time."""
RECORDS = 6_000
TASKS = 8
ROW_BYTES = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with ZooKeeper() as zookeeper, cluster_on(zookeeper, folder, default_replication_factor="3") as made:
        with BrokerLink(LinkSettings(bootstrap=made.bootstrap)) as link:
            # Their topics are created when they are first used, which needs all three brokers.
            for kind in (COORDINATOR_OF_GROUP, COORDINATOR_OF_TRANSACTIONS):
                link.retrying("the coordinators", partial(link.coordinator, "first", kind))
        yield made


def options(cluster: PenstockCluster, **further: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "kafka.request.timeout.ms": str(REQUEST_MS),
        "kafka.socket.connection.setup.timeout.ms": "2000",
        **further,
    }


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = Deadline(SECONDS_MAX)
    while not is_so():
        assert not deadline.passed, f"not within {SECONDS_MAX:g} s: {what}"
        time.sleep(POLL_SECONDS)


# Faults


def restored(cluster: PenstockCluster) -> None:
    """Wait until every replica is in sync, then return leadership to the preferred ones."""

    def is_whole(found: ClusterMetadata) -> bool:
        # The topic of sink states may have one replica.
        partitions = [each for topic in found.topics.values() for each in topic.partitions.values()]
        return len(found.brokers) == 3 and all(
            each.leader > 0 and len(each.isrs) == len(each.replicas) for each in partitions
        )

    until(cluster, is_whole)
    move_to_preferred(cluster)


def move_to_preferred(cluster: PenstockCluster) -> None:
    """Move every leader to the first of its replicas."""
    client = admin(cluster)  # the request ends with its client
    with contextlib.suppress(KafkaException):
        # An error says that all of them lead already.
        client.elect_leaders(ElectionType.PREFERRED).result(WAIT_S)


def wait_for_another_leader(cluster: PenstockCluster, topic: str, partition: int, before: int) -> None:
    until(cluster, lambda found: found.topics[topic].partitions[partition].leader not in (-1, before))


@contextlib.contextmanager
def killed(cluster: PenstockCluster, topic: str, partition: int = 0) -> Iterator[None]:
    """The leader of a partition ends with SIGKILL, and starts again at the end."""
    leader = leader_of(cluster, topic, partition)
    cluster.broker(leader).kill()
    try:
        yield
        wait_for_another_leader(cluster, topic, partition, leader)
    finally:
        cluster.broker(leader).start()
    restored(cluster)


@contextlib.contextmanager
def paused(cluster: PenstockCluster, topic: str, partition: int = 0) -> Iterator[None]:
    """The leader of a partition is paused for longer than its session, and goes on at the end."""
    leader = leader_of(cluster, topic, partition)
    cluster.broker(leader).pause()
    try:
        wait_for_another_leader(cluster, topic, partition, leader)
        yield
    finally:
        cluster.broker(leader).resume()
    restored(cluster)


@contextlib.contextmanager
def stopped(cluster: PenstockCluster, topic: str, partition: int = 0) -> Iterator[None]:
    """The leader of a partition is stopped cleanly, and starts again at the end."""
    leader = leader_of(cluster, topic, partition)
    cluster.broker(leader).stop()
    try:
        yield
    finally:
        cluster.broker(leader).start()
    restored(cluster)


FAULT_KINDS = (killed, paused, stopped)


# A stream


class Feeder:
    """Sends numbered records to a topic until it is stopped."""

    def __init__(self, cluster: PenstockCluster, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
                "request.timeout.ms": 3_000,
                "socket.timeout.ms": 4_000,
                "log_level": 0,
            }
        )
        self.sent = 0
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            for _ in range(5):
                number = b"%d" % self.sent
                self._producer.produce(self._topic, number, key=number, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(0)
        self._producer.flush(120)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


class Copy:
    """A streaming query that copies a topic to another, and goes on whatever happens to brokers."""

    def __init__(self, spark: SparkSession, cluster: PenstockCluster, source: str, target: str, place: Path) -> None:
        self._frame = (
            spark.readStream.format("penstock")
            .options(**options(cluster, subscribe=source, startingOffsets="earliest", commitGroup="copy"))
            .load()
        )
        self._options = options(cluster, topic=target, checkpointLocation=str(place))
        self._starts_left = WORKER_STARTS_MAX
        self.query = self._start()

    def _start(self) -> Any:
        self._starts_left -= 1
        writer = self._frame.select("key", "value").writeStream.format("penstock").options(**self._options)
        return writer.trigger(processingTime="100 milliseconds").start()

    def check(self) -> None:
        """Raise the query's failure; start it again where a Python worker was late."""
        failure = self.query.exception()
        if failure is not None:
            assert is_late_worker(failure), failure
            assert self._starts_left, failure
            self.query = self._start()

    def batch(self) -> int:
        self.check()
        last = self.query.lastProgress
        return -1 if last is None else last["batchId"]

    def wait_for_more(self, batches: int = 2) -> None:
        wanted = self.batch() + batches
        wait_until(lambda: self.batch() >= wanted, f"batch {wanted}")

    def finish(self) -> None:
        """Process what there is, and stop."""
        while True:
            try:
                self.query.processAllAvailable()
                break
            except Exception:
                self.check()
        self.query.stop()


@pytest.mark.slow
@pytest.mark.timeout(900 + 60 * FAULTS)
def test_a_stream_from_topic_to_topic_loses_and_doubles_nothing_while_brokers_come_and_go(
    spark: SparkSession, cluster: PenstockCluster, tmp_path: Path
) -> None:
    create(cluster, "source", partitions=PARTITIONS)
    create(cluster, "target", partitions=PARTITIONS)
    with Feeder(cluster, "source") as feeder:
        copy = Copy(spark, cluster, "source", "target", tmp_path / "checkpoint")
        copy.wait_for_more()
        with killed(cluster, "source"):
            copy.wait_for_more()
        with paused(cluster, TRANSACTIONS):
            copy.wait_for_more()
        with killed(cluster, GROUPS):
            copy.wait_for_more()
        copy.wait_for_more()
        print(f"seed {SEED}", flush=True)
        chance = random.Random(SEED)
        for number in range(FAULTS):
            fault, topic = chance.choice(FAULT_KINDS), chance.choice(("source", "target", TRANSACTIONS, GROUPS))
            partition = chance.randrange(PARTITIONS)
            with fault(cluster, topic, partition):
                time.sleep(chance.random() * 3)
            copy.wait_for_more(1)
            print(f"{number}: {fault.__name__} {topic}-{partition}, batch {copy.batch()}", flush=True)
    copy.finish()

    assert feeder.failed == []
    check_once(map(str, range(feeder.sent)), values(cluster.bootstrap, "target"))


# Tables


class Gate:
    """Holds Spark's tasks in the middle of their rows until it is opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def wait_for_task(self) -> None:
        """Wait until a task is in the middle of its rows, or the gate is open."""
        wait_until(lambda: any(self._folder.iterdir()), "a task in the middle of its rows")

    def open(self) -> None:
        (self._folder / "open").touch()

    def held(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """The function of the tasks, which is sent to other processes."""
        folder, seconds_max = self._folder, SECONDS_MAX

        def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import os
            import time

            for batch in batches:
                half = batch.num_rows // 2
                yield batch.slice(0, half)
                (folder / f"task-{os.getpid()}").touch()
                end = time.monotonic() + seconds_max
                while not (folder / "open").exists() and time.monotonic() < end:
                    time.sleep(0.02)
                yield batch.slice(half)

        return pass_on


@contextlib.contextmanager
def broker_lost_in_the_middle(cluster: PenstockCluster, topic: str, gate: Gate) -> Iterator[None]:
    """Kill the leader of a partition while the tasks of the query in the block are held; they go on without it."""
    with contextlib.ExitStack() as undo, ThreadPoolExecutor(1) as threads:

        def lose() -> None:
            gate.wait_for_task()
            undo.enter_context(killed(cluster, topic))
            gate.open()

        # In a thread of its own: Spark finds a Python source only in the thread of the session.
        losing = threads.submit(lose)
        try:
            yield
        finally:
            gate.open()
            losing.result(SECONDS_MAX)


@pytest.mark.slow
def test_a_table_is_read_whole_where_a_leader_is_lost_before_and_while_it_is_read(
    spark: SparkSession, cluster: PenstockCluster, tmp_path: Path
) -> None:
    create(cluster, "read", partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce("read", b"%d" % number, key=b"%d" % number)
    assert producer.flush(WAIT_S) == 0
    chosen = options(cluster, subscribe="read", maxRecordsPerPartition=str(RECORDS // TASKS))
    table = spark.read.format("penstock").options(**chosen).load()

    gate = Gate(tmp_path / "gate")
    held = table.select("value").mapInArrow(gate.held(), "value binary")
    with broker_lost_in_the_middle(cluster, "read", gate):
        found = held.collect()
    # The plan begins with a leader that is dead, and that the others do not miss yet.
    with killed(cluster, "read", 1):
        planned_without = table.count()

    check_once(map(str, range(RECORDS)), (row.value.decode() for row in found))
    assert planned_without == RECORDS


@pytest.mark.slow
def test_a_table_is_written_once_where_a_leader_is_lost_while_it_is_written(
    spark: SparkSession, cluster: PenstockCluster, tmp_path: Path
) -> None:
    create(cluster, "written", partitions=PARTITIONS)
    gate = Gate(tmp_path / "gate")
    numbers = spark.range(0, RECORDS, numPartitions=TASKS)
    wide = numbers.selectExpr(f"cast(lpad(cast(id as string), {ROW_BYTES}, ' ') as binary) as value")
    held = wide.mapInArrow(gate.held(), "value binary")
    # Small batches, so that a part of the rows is sent before the loss.
    chosen = options(cluster, topic="written", **{"kafka.batch.size": "4096"})

    with broker_lost_in_the_middle(cluster, "written", gate):
        held.write.format("penstock").options(**chosen).mode("append").save()

    check_once(map(str, range(RECORDS)), (each.strip() for each in values(cluster.bootstrap, "written")))


def test_the_first_write_of_a_cluster_can_come_while_a_broker_is_lost(cluster: PenstockCluster) -> None:
    """The topic of sink states is created then, with fewer brokers live than it should have replicas."""
    create(cluster, "first", partitions=PARTITIONS)
    ledger = "first-states"
    chosen = WriteOptions.of(options(cluster, topic="first", ledgerTopic=ledger))
    sink = SinkBatch(sink="first", batch=0, run="run", query="query")
    rows = [pa.record_batch({"value": [str(number) for number in range(part, RECORDS, 2)]}) for part in range(2)]

    with killed(cluster, "first"), BrokerLink(chosen.link) as link:
        done = [write_task(link, chosen, sink, task, 0, [each]) for task, each in enumerate(rows)]
        commit_batch(link, chosen, 0, done)

    assert ledger in admin(cluster).list_topics(timeout=WAIT_S).topics
    check_once(map(str, range(RECORDS)), values(cluster.bootstrap, "first"))


# Pipelines

SPEC = """
[pipeline]
name = "doubles"
trigger = "100ms"

[sources.numbers]
topic = "numbers"
schema = "n BIGINT"

[steps.doubled]
sql = "SELECT n * 2 AS n FROM numbers"

[sinks.out]
from = "doubled"
topic = "doubled"

[sinks.table]
from = "doubled"
table = "{table}"
"""


def send_numbers(cluster: PenstockCluster, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(first, first + count):
        producer.produce("numbers", json.dumps({"n": number}).encode(), key=b"%d" % number)
    assert producer.flush(WAIT_S) == 0


@pytest.mark.slow
def test_a_pipeline_to_a_topic_and_a_table_goes_on_after_the_loss_of_a_broker(
    spark: SparkSession, cluster: PenstockCluster, tmp_path: Path
) -> None:
    for topic in ("numbers", "doubled"):
        create(cluster, topic, partitions=PARTITIONS)
    file, table = tmp_path / "doubles.toml", tmp_path / "table"
    file.write_text(SPEC.format(table=table))
    spec, checkpoint = read_spec(file), str(tmp_path / "checkpoint")

    queries: list[Any] = []

    def check_processed(count: int) -> None:
        """Wait until the queries have processed all, and start them again where a Python worker was late."""
        nonlocal queries
        for starts_left in reversed(range(WORKER_STARTS_MAX)):
            try:
                for query in queries:
                    query.processAllAvailable()
                break
            except Exception as error:
                stop_all(queries)
                if not (starts_left and is_late_worker(error)):
                    raise
                queries = start_pipeline(spark, spec, bootstrap=cluster.bootstrap, checkpoint=checkpoint)
        check_once(
            (str(2 * n) for n in range(count)),
            (str(json.loads(each)["n"]) for each in values(cluster.bootstrap, "doubled")),
        )
        rows = [row.n for row in spark.read.parquet(str(table)).select("n").collect()]
        assert sorted(rows) == [2 * n for n in range(count)]

    send_numbers(cluster, 0, 300)
    queries = start_pipeline(spark, spec, bootstrap=cluster.bootstrap, checkpoint=checkpoint)
    try:
        check_processed(300)
        with killed(cluster, "numbers"):
            send_numbers(cluster, 300, 300)
            check_processed(600)
    finally:
        stop_all(queries)
