"""Runs random transactions, sends and polls on a live broker, and records them as a history.

Half of the workers read all partitions on their own; the others share a group and commit its offsets in their
transactions. A worker that is fenced, or does not know the outcome of a transaction, goes on as a new process with a
new producer of the same transactional id, as a restarted program would.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.client.library import kafka
from penstock.model.clock import SystemClock
from penstock.testing.histories.history import (
    CommittedOffset,
    Event,
    LastStable,
    Moved,
    Operation,
    Outcome,
    PartitionEnd,
    Poll,
    Send,
    to_line,
)

QUIET: dict[str, Any] = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 50, "log_level": 0}
"""Settings of all clients: reconnect to a killed broker at once, without logging it."""
CALL_SECONDS_MAX = 5.0
OUTCOME_SECONDS_MAX = 30.0
"""How long a worker retries the end of its transaction before its outcome is unknown."""
HUNG_SECONDS = 3 * CALL_SECONDS_MAX
"""A call that has not returned after this time hangs."""
REST_SECONDS_MAX = 60.0
OPS_MAX = 4
POLL_MESSAGES_MAX = 20
POLL_SECONDS = 0.05
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settings of a workload; its topic must exist with so many partitions."""

    bootstrap: str
    topic: str
    partitions: int = 3
    workers: int = 4
    abort_probability: float = 0.15
    transaction_timeout_ms: int = 10_000
    group_protocol: str = "classic"
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings of every client, in addition to its own."""

    @property
    def group(self) -> str:
        return f"{self.topic}-readers"

    def keys(self) -> list[str]:
        return [f"{self.topic}/{index}" for index in range(self.partitions)]


class Recorder:
    """Writes a history, one line per event, from many threads; assigns process numbers and values."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._processes = 0
        self._values = 0
        self.counts: defaultdict[str, int] = defaultdict(int)

    def write(self, event: Event) -> None:
        with self._lock:
            self._file.write(to_line(event) + "\n")
            self.counts[event.outcome.value if isinstance(event, Operation) else "beside"] += 1

    def process(self) -> int:
        with self._lock:
            self._processes += 1
            return self._processes

    def value(self) -> int:
        with self._lock:
            self._values += 1
            return self._values

    def close(self) -> None:
        self._file.close()


class OutcomeUnknown(Exception):
    """The worker cannot determine the outcome of its transaction."""


class Worker:
    """A client that reads and writes until it is stopped."""

    def __init__(self, plan: Plan, recorder: Recorder, number: int, randomness: random.Random) -> None:
        self._plan = plan
        self._recorder = recorder
        self._number = number
        self._randomness = randomness
        self._clock = SystemClock()
        self._grouped = number % 2 == 1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"worker-{number}")
        self._offsets: dict[int, int] = {}
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._live()
        except BaseException as error:
            self.failure = error

    def _live(self) -> None:
        """One process: from opening its clients until it is stopped, or must start again."""
        plan = self._plan
        process = self._recorder.process()
        shared = {"bootstrap.servers": plan.bootstrap, **QUIET, **plan.settings}
        writer = {
            "transactional.id": f"{plan.topic}-{self._number}",
            "transaction.timeout.ms": plan.transaction_timeout_ms,
            "linger.ms": 1,
            "retry.backoff.ms": 10,
            "on_delivery": self._delivered,
        }
        producer = kafka().Producer({**shared, **writer})
        reader = {
            "group.id": plan.group if self._grouped else "unused",
            "group.protocol": plan.group_protocol if self._grouped else "classic",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
        consumer = kafka().Consumer({**shared, **reader})
        self._open_reader(consumer, process)
        try:
            if not self._retried(lambda: producer.init_transactions(CALL_SECONDS_MAX)):
                return
            while not self._stopping.is_set():
                self._operation(producer, consumer, process)
        except OutcomeUnknown:
            return
        except kafka().KafkaException as error:
            if not error.args[0].fatal():
                raise
        finally:
            # A close that hangs stays in its thread; the next process has another consumer.
            self._comes_back(consumer.close)

    def _open_reader(self, consumer: Any, process: int) -> None:
        topic = self._plan.topic
        if not self._grouped:
            parts = range(self._plan.partitions)
            consumer.assign([kafka().TopicPartition(topic, index, kafka().OFFSET_BEGINNING) for index in parts])
            return

        def moved(_consumer: Any, parts: list[Any]) -> None:
            self._recorder.write(Moved(process=process, keys=tuple(f"{topic}/{part.partition}" for part in parts)))

        consumer.subscribe([topic], on_assign=moved, on_revoke=moved, on_lost=moved)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self._offsets[int(message.value())] = message.offset()

    def _operation(self, producer: Any, consumer: Any, process: int) -> None:
        if not self._grouped and self._randomness.random() < 0.25:
            if seen := self._poll(consumer).seen:
                self._recorder.write(Operation(process=process, outcome=Outcome.OK, ops=(Poll(seen=seen),)))
            return
        self._offsets.clear()
        ops: list[Send | Poll] = []
        outcome = Outcome.UNKNOWN
        try:
            outcome = self._transaction(producer, consumer, ops)
        finally:
            # The offsets are known only after the end, since sends are acknowledged before it.
            placed = tuple(
                Send(key=op.key, value=op.value, offset=self._offsets.get(op.value)) if isinstance(op, Send) else op
                for op in ops
            )
            if ops:
                self._recorder.write(Operation(process=process, outcome=outcome, ops=placed))
        if self._grouped and outcome is Outcome.FAIL:
            self._rewind(consumer, ops, process)

    def _transaction(self, producer: Any, consumer: Any, ops: list[Send | Poll]) -> Outcome:
        try:
            producer.begin_transaction()
        except kafka().KafkaException as error:
            # The end of the previous transaction got no response.
            raise OutcomeUnknown from error
        try:
            for _ in range(self._randomness.randrange(1, OPS_MAX + 1)):
                if self._randomness.random() < 0.4:
                    ops.append(self._poll(consumer))
                else:
                    index = self._randomness.randrange(self._plan.partitions)
                    send = Send(key=f"{self._plan.topic}/{index}", value=self._recorder.value())
                    ops.append(send)
                    producer.produce(self._plan.topic, str(send.value), partition=index)
            if self._grouped:
                self._send_offsets(producer, consumer, ops)
            if self._randomness.random() < self._plan.abort_probability:
                return self._abort(producer)
        except kafka().KafkaException as error:
            if error.args[0].fatal():
                # A transaction that was never ended can only be aborted.
                self._note_failed(ops)
                raise
            return self._abort(producer)
        return self._commit(producer)

    def _note_failed(self, ops: list[Send | Poll]) -> None:
        process = self._recorder.process()
        self._recorder.write(Operation(process=process, outcome=Outcome.FAIL, ops=tuple(ops)))
        ops.clear()

    def _commit(self, producer: Any) -> Outcome:
        deadline = self._clock.monotonic() + OUTCOME_SECONDS_MAX
        while self._clock.monotonic() < deadline:
            try:
                producer.commit_transaction(CALL_SECONDS_MAX)
            except kafka().KafkaException as error:
                if error.args[0].txn_requires_abort():
                    return self._abort(producer)
                if not error.args[0].retriable():
                    raise OutcomeUnknown from error
            else:
                return Outcome.OK
        raise OutcomeUnknown

    def _abort(self, producer: Any) -> Outcome:
        """Fails whether or not the abort succeeds: no commit was sent, or it was refused."""
        if not self._retried(lambda: producer.abort_transaction(CALL_SECONDS_MAX)):
            self._stopping.wait(0.1)
        return Outcome.FAIL

    def _retried(self, call: Callable[[], None]) -> bool:
        """Whether a call succeeded in the end."""
        deadline = self._clock.monotonic() + OUTCOME_SECONDS_MAX
        while self._clock.monotonic() < deadline:
            try:
                call()
            except kafka().KafkaException as error:
                if not error.args[0].retriable():
                    return False
            else:
                return True
        return False

    def _poll(self, consumer: Any) -> Poll:
        seen: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for message in consumer.consume(POLL_MESSAGES_MAX, POLL_SECONDS):
            if message.error() is None:
                key = f"{message.topic()}/{message.partition()}"
                seen[key].append((message.offset(), int(message.value())))
        return Poll(seen={key: tuple(pairs) for key, pairs in seen.items()})

    def _send_offsets(self, producer: Any, consumer: Any, ops: list[Send | Poll]) -> None:
        following = {key: pairs[-1][0] + 1 for op in ops if isinstance(op, Poll) for key, pairs in op.seen.items()}
        owned = {f"{part.topic}/{part.partition}" for part in consumer.assignment()}
        parts = [
            kafka().TopicPartition(self._plan.topic, int(key.rpartition("/")[2]), offset)
            for key, offset in following.items()
            if key in owned
        ]
        if parts:
            metadata = consumer.consumer_group_metadata()
            if not self._comes_back(lambda: producer.send_offsets_to_transaction(parts, metadata, CALL_SECONDS_MAX)):
                # No commit has been sent yet.
                self._note_failed(ops)
                raise OutcomeUnknown

    def _comes_back(self, call: Callable[[], None]) -> bool:
        """Make a call that may hang in spite of its timeout; whether it returned.

        librdkafka can lose a request to the group's coordinator when its connection breaks at the wrong moment, or an
        internal event of a closing consumer, and then waits without a bound.
        """
        failures: list[BaseException] = []

        def make() -> None:
            try:
                call()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=make, name=f"{self._thread.name}-call", daemon=True)
        thread.start()
        thread.join(HUNG_SECONDS)
        if thread.is_alive():
            return False
        if failures:
            raise failures[0]
        return True

    def _rewind(self, consumer: Any, ops: list[Send | Poll], process: int) -> None:
        """Seek back to what the aborted transaction has read, in partitions that are still assigned."""
        first: dict[str, int] = {}
        for op in ops:
            if isinstance(op, Poll):
                for key, pairs in op.seen.items():
                    first.setdefault(key, pairs[0][0])
        for key, offset in first.items():
            self._recorder.write(Moved(process=process, keys=(key,)))
            try:
                consumer.seek(kafka().TopicPartition(self._plan.topic, int(key.rpartition("/")[2]), offset))
            except kafka().KafkaException:
                continue


class Workload:
    """The workers, an observer of the bounds, and a complete read at the end."""

    def __init__(self, plan: Plan, path: Path, randomness: random.Random) -> None:
        self._plan = plan
        self._clock = SystemClock()
        self.recorder = Recorder(path)
        seeds = [randomness.getrandbits(64) for _ in range(plan.workers)]
        self._workers = [Worker(plan, self.recorder, number, random.Random(seed)) for number, seed in enumerate(seeds)]
        self._stopping = threading.Event()
        self._looker = threading.Thread(target=self._look, name="looker")

    def start(self) -> None:
        for worker in self._workers:
            worker.start()
        self._looker.start()

    def finish(self) -> None:
        """Stop the workers, wait until no transaction is open, and read everything to complete the history."""
        try:
            for worker in self._workers:
                worker.stop()
            self._stopping.set()
            self._looker.join()
            for worker in self._workers:
                worker.join()
            self._rest()
            self._read_everything()
        finally:
            self.recorder.close()

    def _consumer(self, **settings: Any) -> Any:
        return kafka().Consumer(
            {
                "bootstrap.servers": self._plan.bootstrap,
                "group.id": self._plan.group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **QUIET,
                **self._plan.settings,
                **settings,
            }
        )

    def _look(self) -> None:
        consumer = self._consumer()
        parts = [kafka().TopicPartition(self._plan.topic, index) for index in range(self._plan.partitions)]
        try:
            while not self._stopping.wait(LOOK_SECONDS):
                try:
                    for part in parts:
                        _, stable = consumer.get_watermark_offsets(part, timeout=CALL_SECONDS_MAX)
                        self.recorder.write(LastStable(key=f"{part.topic}/{part.partition}", offset=stable))
                    for part in consumer.committed(parts, timeout=CALL_SECONDS_MAX):
                        if part.error is None and part.offset >= 0:
                            key = f"{part.topic}/{part.partition}"
                            self.recorder.write(CommittedOffset(group=self._plan.group, key=key, offset=part.offset))
                except kafka().KafkaException:
                    continue
        finally:
            consumer.close()

    def _rest(self) -> None:
        """Wait until every transaction has ended, and record the bounds: a hanging transaction leaves them
        different."""
        committed, uncommitted = self._consumer(), self._consumer(**{"isolation.level": "read_uncommitted"})
        deadline = self._clock.monotonic() + REST_SECONDS_MAX
        try:
            for index, key in enumerate(self._plan.keys()):
                part = kafka().TopicPartition(self._plan.topic, index)
                while True:
                    _, stable = committed.get_watermark_offsets(part, timeout=REST_SECONDS_MAX)
                    _, end = uncommitted.get_watermark_offsets(part, timeout=REST_SECONDS_MAX)
                    if stable == end or self._clock.monotonic() > deadline:
                        break
                    time.sleep(LOOK_SECONDS)
                self.recorder.write(PartitionEnd(key=key, end=end, last_stable=stable))
        finally:
            committed.close()
            uncommitted.close()

    def _read_everything(self) -> None:
        consumer = self._consumer(**{"enable.partition.eof": True, "group.id": "unused"})
        process = self.recorder.process()
        parts = range(self._plan.partitions)
        seen: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        ended: set[int] = set()
        deadline = self._clock.monotonic() + REST_SECONDS_MAX
        try:
            beginning = kafka().OFFSET_BEGINNING
            consumer.assign([kafka().TopicPartition(self._plan.topic, index, beginning) for index in parts])
            while len(ended) < self._plan.partitions:
                assert self._clock.monotonic() < deadline, f"read only {sorted(ended)} to the end"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error() is None:
                    seen[f"{message.topic()}/{message.partition()}"].append((message.offset(), int(message.value())))
                elif message.error().code() == kafka().KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        finally:
            consumer.close()
        poll = Poll(seen={key: tuple(pairs) for key, pairs in seen.items()})
        self.recorder.write(Operation(process=process, outcome=Outcome.OK, ops=(poll,)))
