"""Groups of four client libraries that read a view while brokers are killed, and what a group may have read.

A reader notes in its journal what it was assigned, what it read and what it committed, in this order of events. It
commits only what it has noted, so `judge` can say of every record whether it had to be read, and whether it may have
been read again.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka.errors import KafkaConnectionError
from kafka.errors import KafkaError as KafkaPythonError

from protocol.clients.abilities import RefusedError
from protocol.clients.aiokafka import AioKafka
from protocol.clients.java import VerifiableConsumer, verifiable_consumer
from protocol.clients.kafka_python import MEMBER_POLL_MS, KafkaPython

POLL_S = 0.2
POLL_MS = 500
SESSION_MS = 10_000
READS_OF_A_COMMIT = 20
CHANCES_OF_A_COMMIT = 4
"""A reader commits only every so often, so that the next member of its group reads something again."""
LEAVE_S = 120.0
NOTHING_NEW = "_NO_OFFSET"
"""librdkafka's word for a commit when all that was read is committed."""


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Read:
    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Committed:
    """The broker confirmed these positions, by partition."""

    offsets: Mapping[int, int]


Event = Assigned | Read | Committed
Matches = Mapping[int, Sequence[tuple[int, bytes]]]
"""By partition, the offset and the value of each record that passes the filter, in the order of offsets."""


@dataclass(slots=True)
class Verdict:
    faults: list[str] = field(default_factory=list)
    reads: int = 0
    rereads: int = 0
    assignments: int = 0


def judge(journal: Iterable[Event], matches: Matches) -> Verdict:
    """What a group did wrong: nothing, if it read every match, in order, and again only from a committed position on.

    Between two assignments it reads a run of the matches without a gap. A run begins at or behind the last position
    that was committed, and nowhere behind the first match that was never read.
    """
    verdict = Verdict()
    offsets = {partition: [offset for offset, _ in of_partition] for partition, of_partition in matches.items()}
    never_read = dict.fromkeys(matches, 0)
    following: dict[int, int | None] = dict.fromkeys(matches)
    committed: dict[int, int] = {}
    for event in journal:
        match event:
            case Assigned():
                verdict.assignments += 1
                following.update(dict.fromkeys(event.partitions))
            case Committed():
                for partition, offset in event.offsets.items():
                    if offset < committed.get(partition, 0):
                        verdict.faults.append(f"{partition}: commits {offset} after {committed[partition]}")
                    committed[partition] = offset
            case Read(partition, offset, value):
                verdict.reads += 1
                index = bisect_left(offsets[partition], offset)
                if matches[partition][index : index + 1] != [(offset, value)]:
                    verdict.faults.append(f"{partition}: reads {offset}, which is no match: {value[:80]!r}")
                    continue
                expected = following[partition]
                if expected is not None and index != expected:
                    verdict.faults.append(f"{partition}: reads match {index} at {offset} instead of match {expected}")
                if expected is None and offset < committed.get(partition, 0):
                    verdict.faults.append(f"{partition}: goes on at {offset} after it committed {committed[partition]}")
                if index > never_read[partition]:
                    verdict.faults.append(f"{partition}: skips matches {never_read[partition]} to {index - 1}")
                verdict.rereads += index < never_read[partition]
                never_read[partition] = max(never_read[partition], index + 1)
                following[partition] = index + 1
    for partition, count in never_read.items():
        if count < len(offsets[partition]):
            verdict.faults.append(f"{partition}: ends after {count} of {len(offsets[partition])} matches")
    return verdict


class Journal:
    """What happened to one member, in order, and what of it may be called committed."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.refusals: Counter[str] = Counter()
        """Commits that failed, by error."""
        self._next: dict[int, int | None] = {}
        """The position of each partition that is owned, by what was read since its assignment."""
        self._changes = 0

    def assigned(self, partitions: Iterable[int]) -> None:
        taken = frozenset(partitions)
        self.events.append(Assigned(taken))
        self._next.update(dict.fromkeys(taken))
        self._changes += 1

    def revoked(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._next.pop(partition, None)
        self._changes += 1

    def read(self, partition: int, offset: int, value: bytes) -> None:
        self.events.append(Read(partition, offset, value))
        if partition in self._next:
            self._next[partition] = offset + 1

    def commit(self, call: Callable[[], None], refusals: tuple[type[Exception], ...]) -> None:
        """Commit all that is read. If partitions come or go meanwhile, it is not known for which of them."""
        offsets = {partition: offset for partition, offset in self._next.items() if offset is not None}
        changes = self._changes
        try:
            call()
        except refusals as error:
            if (name := name_of(error)) != NOTHING_NEW:
                self.refusals[name] += 1
        else:
            if changes == self._changes:
                self.events.append(Committed(offsets))


def name_of(error: Exception) -> str:
    return str(error.args[0].name()) if isinstance(error, KafkaException) else type(error).__name__


class GroupReader(Protocol):
    """The member of a group of one."""

    @property
    def events(self) -> Sequence[Event]: ...
    @property
    def refusals(self) -> Mapping[str, int]: ...
    def check(self) -> None:
        """Raise what has gone wrong in the member."""
        ...


class ThreadReader(ABC):
    """A reader in a thread of the test."""

    def __init__(self, bootstrap: str, group: str, view: str) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.view = view
        self.journal = Journal()
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)

    @property
    def events(self) -> Sequence[Event]:
        return self.journal.events

    @property
    def refusals(self) -> Mapping[str, int]:
        return self.journal.refusals

    def check(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"{self.group} failed") from self._failure

    @abstractmethod
    def poll_until(self, stop: threading.Event) -> None:
        """Join, and read, note and commit until the event is set; then leave."""

    def _run(self) -> None:
        try:
            self.poll_until(self._stop)
        except BaseException as failure:
            self._failure = failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(LEAVE_S)
        assert not self._thread.is_alive(), f"{self.group} does not end"
        self.check()


class ConfluentReader(ThreadReader):
    group_protocol = "classic"

    def poll_until(self, stop: threading.Event) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "group.protocol": self.group_protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "check.crcs": True,
            "socket.timeout.ms": 10_000,
            "topic.metadata.refresh.interval.ms": 2_000,
            "log_level": 0,
        }
        if self.group_protocol == "classic":
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1_000}
        journal = self.journal
        with closing(Consumer(settings)) as consumer:
            consumer.subscribe(
                [self.view],
                on_assign=lambda _, places: journal.assigned(place.partition for place in places),
                on_revoke=lambda _, places: journal.revoked(place.partition for place in places),
            )
            uncommitted, chances = 0, 0
            while not stop.is_set():
                message = consumer.poll(POLL_S)
                if message is not None:
                    error = message.error()
                    if error is None:
                        journal.read(message.partition(), message.offset(), message.value())
                        uncommitted += 1
                    elif error.fatal():
                        raise KafkaException(error)
                chances += message is None
                if chances >= CHANCES_OF_A_COMMIT or uncommitted >= READS_OF_A_COMMIT:
                    journal.commit(lambda: self._commit(consumer), (KafkaException,))
                    uncommitted, chances = 0, 0

    @staticmethod
    def _commit(consumer: Consumer) -> None:
        places: list[TopicPartition] = consumer.commit(asynchronous=False)
        for place in places:
            if place.error is not None:
                raise KafkaException(place.error)


class ConsumerProtocolReader(ConfluentReader):
    """librdkafka with the group protocol of KIP-848."""

    group_protocol = "consumer"


class PolledReader(ThreadReader):
    """kafka-python, and aiokafka, whose adapter has the same methods."""

    adapter: type[KafkaPython] = KafkaPython
    poll_ms = MEMBER_POLL_MS

    def poll_until(self, stop: threading.Event) -> None:
        adapter, journal = self.adapter(self.bootstrap), self.journal
        calls = {
            "on_partitions_assigned": lambda _, places: journal.assigned(place.partition for place in places),
            "on_partitions_revoked": lambda _, places: journal.revoked(place.partition for place in places),
        }
        settings = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 1_000, "metadata_max_age_ms": 2_000}
        reading = {"isolation_level": "read_committed", "enable_auto_commit": False}
        with adapter.consumer(group_id=self.group, **settings, **reading) as consumer:
            consumer.subscribe([self.view], listener=type("Listener", (adapter.listener_class,), calls)())
            polls = 0
            while not stop.is_set():
                polls += 1
                for records in self._poll(consumer).values():
                    for record in records:
                        journal.read(record.partition, record.offset, record.value)
                if polls % CHANCES_OF_A_COMMIT == 0 and not stop.is_set():
                    journal.commit(consumer.commit, (KafkaPythonError, RefusedError))

    def _poll(self, consumer: Any) -> Mapping[Any, Sequence[Any]]:
        """kafka-python raises in a poll that it could connect to no broker, and goes on in the next one."""
        try:
            found: Mapping[Any, Sequence[Any]] = consumer.poll(timeout_ms=self.poll_ms, max_records=None)
        except KafkaConnectionError:
            return {}
        return found


class AioKafkaReader(PolledReader):
    adapter = AioKafka
    poll_ms = POLL_MS

    def poll_until(self, stop: threading.Event) -> None:
        """aiokafka's stop raises that it cancelled a fetch of its own, if that waited for a broker that is down."""
        try:
            super().poll_until(stop)
        except asyncio.CancelledError:
            if not stop.is_set():
                raise


class JavaReader:
    """Kafka's verifiable consumer: it commits what it printed, and prints what it committed."""

    def __init__(self, consumer: VerifiableConsumer) -> None:
        self._consumer = consumer
        self._all: list[dict[str, Any]] | None = None

    @property
    def _noted(self) -> list[dict[str, Any]]:
        if self._all is not None:
            return self._all
        return self._consumer.events("partitions_assigned", "record_data", "offsets_committed")

    def keep(self) -> None:
        """Remember everything: the process has ended, and what it printed will be removed."""
        self._all = self._noted

    @property
    def events(self) -> Sequence[Event]:
        return [event for noted in self._noted if (event := to_event(noted)) is not None]

    @property
    def refusals(self) -> Mapping[str, int]:
        return Counter(str(noted.get("error")) for noted in self._noted if noted.get("success") is False)

    def check(self) -> None:
        if self._consumer.error is not None:
            raise self._consumer.error


def to_event(noted: Mapping[str, Any]) -> Event | None:
    match noted["name"]:
        case "partitions_assigned":
            return Assigned(frozenset(place["partition"] for place in noted["partitions"]))
        case "record_data":
            return Read(noted["partition"], noted["offset"], noted["value"].encode())
        case _:
            return (
                Committed({each["partition"]: each["offset"] for each in noted["offsets"]})
                if noted["success"]
                else None
            )


OpenReader = Callable[[str, str, str], AbstractContextManager[GroupReader]]
"""From the bootstrap servers, a group's name and a view."""


@contextmanager
def java_reader(bootstrap: str, group: str, view: str, *more: str) -> Iterator[JavaReader]:
    with tempfile.TemporaryDirectory() as folder:
        log, settings = Path(folder) / "log", Path(folder) / "settings"
        settings.write_text("isolation.level=read_committed\nheartbeat.interval.ms=1000\n")
        arguments = ("--command-config", str(settings), "--session-timeout", str(SESSION_MS), *more)
        with verifiable_consumer(bootstrap, group, view, *arguments, log=log) as consumer:
            reader = JavaReader(consumer)
            yield reader
        reader.keep()


@contextmanager
def java_reader_of_positions(bootstrap: str, group: str, view: str) -> Iterator[JavaReader]:
    """The library commits its position, which reaches the end of the log; the tool, where its last record ends."""
    with java_reader(bootstrap, group, view, "--enable-autocommit") as reader:
        yield reader


class Group:
    """One member after the other; what happened to all of them, in order."""

    def __init__(self, open_reader: OpenReader, bootstrap: str, name: str, view: str) -> None:
        self.name = name
        self.refusals: Counter[str] = Counter()
        self._open = lambda: open_reader(bootstrap, name, view)
        self._past: list[Event] = []
        self._stack = ExitStack()
        self._member: GroupReader | None = None

    @property
    def events(self) -> list[Event]:
        return self._past + list(self._member.events if self._member is not None else ())

    def check(self) -> None:
        assert self._member is not None, "the group has no member"
        self._member.check()

    def restart(self) -> None:
        """Let the member leave without a last commit, and another one join."""
        if self._member is not None:
            self.check()
        self._end()
        self._member = self._stack.enter_context(self._open())

    def _end(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            self._stack.close()
            self._past += member.events
            self.refusals.update(member.refusals)

    def __enter__(self) -> Self:
        self.restart()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


READERS: dict[str, OpenReader] = {
    "confluent-kafka": ConfluentReader,
    "confluent-kafka-consumer-protocol": ConsumerProtocolReader,
    "kafka-python": PolledReader,
    "aiokafka": AioKafkaReader,
    "java": java_reader,
}
