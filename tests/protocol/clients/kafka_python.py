"""kafka-python: the strictest reader of the protocol among Python clients. Its producer is idempotent by default."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import kafka
import pytest
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from protocol.clients import abilities as can
from protocol.clients.abilities import SECONDS_MAX, Place, Record
from protocol.clients.polled_member import PolledMember
from protocol.group_members import SESSION_MS
from protocol.topics import attempts

READER_POLL_MS = 100
READER_WAIT_MS = 20
"""Of a fetch that finds nothing: what is asked next waits for it."""
MEMBER_POLL_MS = 3000
"""kafka-python forgets the response to a SyncGroup when a poll ends before it comes, and then neither sends heartbeats
nor joins again."""

FORGETS_SOCKETS = (
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
)
"""It leaves a pair of sockets to the garbage collector."""


def to_record(found: Any) -> Record:
    return Record(
        value=found.value,
        key=found.key,
        headers=tuple(found.headers),
        timestamp_ms=found.timestamp,
        partition=found.partition,
        offset=found.offset,
    )


def polled(consumer: Any, timeout_ms: int, count: int | None = None) -> list[Any]:
    batches = consumer.poll(timeout_ms=timeout_ms, max_records=count).values()
    return [record for batch in batches for record in batch]


class Reader:
    def __init__(self, consumer: Any, place: Any) -> None:
        self._consumer = consumer
        self._place = place

    def read(self, count: int) -> list[Record]:
        records: list[Record] = []
        for _ in attempts(what=f"{count} records", seconds_max=SECONDS_MAX, pause_seconds=0):
            if len(records) >= count and self._consumer.position(self._place) == self.bounds()[1]:
                break
            records.extend(map(to_record, polled(self._consumer, READER_POLL_MS)))
        return records

    def seek(self, offset: int) -> None:
        self._consumer.seek(self._place, offset)

    def seek_to_beginning(self) -> None:
        self._consumer.seek_to_beginning(self._place)

    def seek_to_end(self) -> None:
        self._consumer.seek_to_end(self._place)

    def bounds(self) -> tuple[int, int]:
        low, high = self._consumer.beginning_offsets([self._place]), self._consumer.end_offsets([self._place])
        return low[self._place], high[self._place]

    def find(self, timestamp_ms: int) -> tuple[int, int | None] | None:
        found = self._consumer.offsets_for_times({self._place: timestamp_ms})[self._place]
        return None if found is None else (found.offset, found.timestamp)


class PolledConsumer:
    def __init__(self, consumer: Any, poll_ms: int) -> None:
        self._consumer = consumer
        self._poll_ms = poll_ms

    def poll(self) -> list[bytes]:
        return [record.value for record in polled(self._consumer, self._poll_ms)]

    def commit(self) -> bool:
        try:
            self._consumer.commit()
        except (KafkaError, can.RefusedError):
            return False
        return True


class Transactions:
    def __init__(self, producer: Any, client: KafkaPython) -> None:
        self._producer = producer
        self._client = client

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition).get(SECONDS_MAX)

    def send_offset(self, group: str, place: Place, offset: int) -> None:
        with self._client.refusals():
            self._producer.send_offsets_to_transaction(self._client.offsets(place, offset), group)

    def commit(self) -> None:
        with self._client.refusals():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with self._client.refusals():
            self._producer.abort_transaction()


class KafkaPython(can.TunesDelivery, can.Transacts, can.ReadsInGroup, can.JoinsGroupsInThreads):
    codecs = can.CODECS
    shows_offsets = True
    group_protocols = ("range",)
    member_poll_ms = MEMBER_POLL_MS
    batch_setting = "batch_size"
    partition_class: Any = kafka.TopicPartition
    listener_class: Any = kafka.ConsumerRebalanceListener

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self._settings = {"bootstrap_servers": bootstrap, **settings}

    @contextmanager
    def refusals(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            is_fenced = isinstance(error, (ProducerFencedError, InvalidProducerEpochError))
            raise (can.FencedError if is_fenced else can.RefusedError)(error.errno, str(error)) from error

    def consumer(self, **settings: Any) -> AbstractContextManager[Any]:
        return kafka.KafkaConsumer(**self._settings, auto_offset_reset="earliest", **settings)

    @contextmanager
    def producer(self, **settings: Any) -> Iterator[Any]:
        with closing(kafka.KafkaProducer(**self._settings, **settings)) as producer:
            if "transactional_id" in settings:
                producer.init_transactions()
            yield producer

    def offsets(self, place: Place, offset: int, note: str = "") -> dict[Any, Any]:
        return {self.partition_class(*place): OffsetAndMetadata(offset, note, -1)}

    def produce(
        self, topic: str, records: Sequence[Record], delivery: can.Delivery = can.BY_DEFAULT
    ) -> list[int | None]:
        chosen = {
            "compression_type": delivery.codec,
            "linger_ms": delivery.linger_ms,
            "acks": int(delivery.acks) if delivery.acks in ("0", "1") else delivery.acks,
            "enable_idempotence": delivery.idempotent,
            self.batch_setting: delivery.batch_bytes,
        }
        given = {key: value for key, value in chosen.items() if value is not None}
        with self.producer(**given) as producer, self.refusals():
            sent = [
                producer.send(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            done = [future.get(SECONDS_MAX) for future in sent]
        # Without acknowledgements there is no offset to show.
        return [each.offset if delivery.acks != "0" else None for each in done]

    @contextmanager
    def reader(
        self, topic: str, *, partition: int = 0, start: int = 0, isolation: can.Isolation = "read_uncommitted"
    ) -> Iterator[Reader]:
        with self.consumer(isolation_level=isolation, fetch_max_wait_ms=READER_WAIT_MS) as consumer:
            place = self.partition_class(topic, partition)
            consumer.assign([place])
            consumer.seek(place, start)
            yield Reader(consumer, place)

    def in_group(self, group: str) -> AbstractContextManager[Any]:
        """A consumer with the name of a group, which joins it when it subscribes."""
        return self.consumer(
            group_id=group,
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            session_timeout_ms=SESSION_MS,
            metadata_max_age_ms=500,
        )

    def read_in_group(self, group: str, topic: str, count: int, protocol: can.GroupProtocol) -> list[bytes]:
        values: list[bytes] = []
        with self.in_group(group) as consumer:
            consumer.subscribe([topic])
            for _ in attempts(what=f"{count} records", seconds_max=SECONDS_MAX):
                values += [record.value for record in polled(consumer, self.member_poll_ms, count - len(values))]
                if len(values) == count:
                    break
            consumer.commit()
        return values

    def member(
        self, group: str, topic: str, protocol: can.GroupProtocol, *, name: str, owners: can.Owners
    ) -> PolledMember:
        @contextmanager
        def subscribed(member: PolledMember) -> Iterator[PolledConsumer]:
            calls = {
                "on_partitions_assigned": lambda _, partitions: member.on_assigned(partitions),
                "on_partitions_revoked": lambda _, partitions: member.on_revoked(partitions),
            }
            with self.in_group(group) as consumer:
                consumer.subscribe([topic], listener=type("Listener", (self.listener_class,), calls)())
                yield PolledConsumer(consumer, self.member_poll_ms)

        return PolledMember(subscribed, name=name, owners=owners)

    def commit_offset(self, group: str, place: Place, offset: int, note: str) -> None:
        with self.in_group(group) as consumer:
            consumer.assign([self.partition_class(*place)])
            consumer.commit(self.offsets(place, offset, note))

    def committed(self, group: str, place: Place) -> tuple[int, str | None] | None:
        with self.in_group(group) as consumer:
            found = consumer.committed(self.partition_class(*place), metadata=True)
        return None if found is None else (found.offset, found.metadata)

    @contextmanager
    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> Iterator[Transactions]:
        with self.producer(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms) as producer:
            yield Transactions(producer, self)
