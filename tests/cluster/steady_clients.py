"""Clients that write and read all the time while a test does harm to a cluster: one class for each library."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from kafka.errors import KafkaError as KafkaPythonError

from penstock.testing.processes import Deadline
from protocol.clients.kafka_python import MEMBER_POLL_MS

WAIT_S = 60.0
PAUSE_S = 0.01
POLL_S = 0.05
POLL_MS = 200
REQUEST_MS = 5_000
SESSION_MS = 10_000
BATCH = 5
"""Records of one transaction."""


class Steady(ABC):
    """Works in threads of its own until the test leaves it; a failure in a thread is raised there."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in self.works()]

    @abstractmethod
    def works(self) -> list[Callable[[], None]]:
        """What runs in each thread."""

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            self.failures.append(failure)
            raise

    def wait_for(self, fact: Callable[[], bool], what: Callable[[], str]) -> None:
        deadline = Deadline(WAIT_S)
        while not fact():
            assert not self.failures, self.failures
            assert not deadline.passed, f"not within {WAIT_S} s: {what()}"
            time.sleep(POLL_S)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class SteadyGroup(Steady):
    """A producer with acks=all, and the one member of a group that commits what it has read."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.sent = 0
        self.acknowledged: list[bytes] = []
        self.read: list[bytes] = []
        self.committed = 0
        """How many of those read were there when the last commit succeeded."""
        self.commit_errors: list[str] = []
        super().__init__()

    def wait_for_more(self, count: int = 30) -> None:
        """Wait until so many further records are acknowledged, read and committed."""
        written = len(self.acknowledged) + count
        self.wait_for(lambda: len(self.acknowledged) >= written, lambda: f"{self._state()}, {written} wanted")
        self.wait_until_read()

    def wait_until_read(self) -> None:
        """Wait until all that is acknowledged by now is read, and all of that committed."""
        wanted = set(self.acknowledged)
        self.wait_for(lambda: wanted <= set(self.read[: self.committed]), self._state)

    def _state(self) -> str:
        counts = f"{len(self.acknowledged)} acknowledged, {len(self.read)} read, {self.committed} committed"
        return f"{counts}, {self.commit_errors[-3:]}"


class ConfluentGroup(SteadyGroup):
    """Any error that the library reports to the application is a failure."""

    protocol = "classic"

    def works(self) -> list[Callable[[], None]]:
        return [self._produce, self._consume]

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})
        while not self._stop.wait(PAUSE_S):
            value = b"%d" % self.sent
            self.sent += 1
            producer.produce(self.topic, value, on_delivery=self._delivered)
            producer.poll(0)
        producer.flush(WAIT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(KafkaException(error))
        else:
            self.acknowledged.append(message.value() or b"")

    def _consume(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0}
        reading = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "group.protocol": self.protocol}
        consumer = Consumer({**settings, **reading})
        consumer.subscribe([self.topic])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(1000, POLL_MS / 1000):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    self.read.append(message.value() or b"")
                count = len(self.read)
                if count == self.committed:
                    continue
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException as error:
                    if not error.args[0].retriable():
                        raise
                    self.commit_errors.append(repr(error))
                else:
                    self.committed = count
        finally:
            consumer.close()


class ConsumerProtocolGroup(ConfluentGroup):
    """A group of the protocol of KIP-848."""

    protocol = "consumer"


class KafkaPythonGroup(SteadyGroup):
    def works(self) -> list[Callable[[], None]]:
        return [self._produce, self._consume]

    def _produce(self) -> None:
        producer: Any = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", request_timeout_ms=REQUEST_MS, retry_backoff_ms=50
        )
        with contextlib.closing(producer):
            while not self._stop.wait(PAUSE_S):
                value = b"%d" % self.sent
                self.sent += 1
                producer.send(self.topic, value).add_callback(self._acknowledge, value).add_errback(
                    self.failures.append
                )
            producer.flush(WAIT_S)

    def _acknowledge(self, value: bytes, _: object) -> None:
        self.acknowledged.append(value)

    def _consume(self) -> None:
        consumer: Any = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            metadata_max_age_ms=2_000,
        )
        with contextlib.closing(consumer):
            while not self._stop.is_set():
                for batch in consumer.poll(timeout_ms=MEMBER_POLL_MS).values():
                    self.read.extend(record.value for record in batch)
                count = len(self.read)
                if count == self.committed:
                    continue
                try:
                    consumer.commit()
                except KafkaPythonError as error:
                    self.commit_errors.append(repr(error))
                else:
                    self.committed = count


class AioKafkaGroup(SteadyGroup):
    def works(self) -> list[Callable[[], None]]:
        return [lambda: asyncio.run(self._produce()), lambda: asyncio.run(self._consume())]

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, acks="all", request_timeout_ms=REQUEST_MS
        )
        await producer.start()
        try:
            while not self._stop.is_set():
                value = b"%d" % self.sent
                self.sent += 1
                await producer.send_and_wait(self.topic, value)
                self.acknowledged.append(value)
                await asyncio.sleep(PAUSE_S)
        finally:
            await producer.stop()

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            request_timeout_ms=REQUEST_MS,
            metadata_max_age_ms=2_000,
        )
        await consumer.start()
        try:
            while not self._stop.is_set():
                for batch in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    self.read.extend(record.value or b"" for record in batch)
                count = len(self.read)
                if count == self.committed:
                    continue
                try:
                    await consumer.commit()
                except AioKafkaError as error:
                    self.commit_errors.append(repr(error))
                else:
                    self.committed = count
        finally:
            await consumer.stop()


class SteadyTransactions(Steady):
    """librdkafka's transactional producer, and its consumer of committed records."""

    def __init__(self, bootstrap: str, topic: str, name: str, *, rack: str = "") -> None:
        """`rack` is that of the consumer."""
        self.bootstrap = bootstrap
        self.topic = topic
        self.name = name
        self.rack = rack
        self.sent = 0
        self.committed: list[bytes] = []
        self.aborted = 0
        self.read: list[bytes] = []
        super().__init__()

    def works(self) -> list[Callable[[], None]]:
        return [self._produce, self._consume]

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": self.name, "log_level": 0}
        producer = Producer({**settings, "socket.timeout.ms": REQUEST_MS, "transaction.timeout.ms": 60_000})
        persist(lambda: producer.init_transactions(WAIT_S))
        while not self._stop.wait(PAUSE_S):
            values = [b"%d" % number for number in range(self.sent, self.sent + BATCH)]
            self.sent += BATCH
            # Of every four, one is given up: its records must not be seen.
            wanted = self.sent // BATCH % 4 != 0
            try:
                producer.begin_transaction()
                for value in values:
                    producer.produce(self.topic, value)
                if wanted:
                    persist(lambda: producer.commit_transaction(WAIT_S))
                    self.committed.extend(values)
                    continue
                # As Kafka's, the coordinator refuses to abort a transaction that has no partition yet, since the one
                # before is still being completed; librdkafka takes that for fatal.
                producer.flush(WAIT_S)
            except KafkaException as raised:
                if not raised.args[0].txn_requires_abort():
                    raise
            persist(lambda: producer.abort_transaction(WAIT_S))
            self.aborted += 1

    def _consume(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": f"{self.name}-reader", "log_level": 0}
        reading = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "client.rack": self.rack}
        consumer = Consumer({**settings, **reading})
        consumer.subscribe([self.topic])
        try:
            # What is committed when the test ends is read as well.
            deadline: Deadline | None = None
            while not self._stop.is_set() or not set(self.committed) <= set(self.read):
                for message in consumer.consume(1000, POLL_MS / 1000):
                    error = message.error()
                    if error is None:
                        self.read.append(message.value() or b"")
                    elif error.fatal():
                        raise KafkaException(error)
                if self._stop.is_set():
                    deadline = deadline or Deadline(WAIT_S)
                    assert not deadline.passed, "committed records were not read"
        finally:
            consumer.close()

    def wait_for_more(self, count: int = 8 * BATCH) -> None:
        """Wait until so many further records are committed and read."""
        wanted = len(self.committed) + count
        self.wait_for(lambda: len(self.committed) >= wanted, lambda: f"{len(self.committed)} of {wanted} committed")
        committed = set(self.committed)
        self.wait_for(lambda: committed <= set(self.read), lambda: f"{len(self.read)} of {len(committed)} read")


def persist(call: Callable[[], None], seconds_max: float = WAIT_S) -> None:
    """Repeat a call of the transactional producer while its failure is one that may be retried."""
    deadline = Deadline(seconds_max)
    while True:
        try:
            return call()
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if not error.retriable() or deadline.passed:
                raise
