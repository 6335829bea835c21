"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)

from protocol.clients import abilities as can
from protocol.clients.abilities import SECONDS_MAX, Place, Record
from protocol.group_members import EVERY_PROTOCOL, Member


def refused(error: KafkaError) -> can.RefusedError:
    is_fenced = error.code() == KafkaError._FENCED and error.fatal()
    return (can.FencedError if is_fenced else can.RefusedError)(error.code(), error.str())


@contextmanager
def refusals() -> Iterator[None]:
    try:
        yield
    except KafkaException as exception:
        raise refused(exception.args[0]) from exception


def to_record(message: Message) -> Record:
    kind, timestamp_ms = message.timestamp()
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=timestamp_ms if kind == TIMESTAMP_CREATE_TIME else None,
        partition=message.partition(),
        offset=message.offset(),
    )


class Reader:
    def __init__(self, consumer: Consumer, place: Place) -> None:
        self._consumer = consumer
        self._place = place

    def read(self, count: int) -> list[Record]:
        records: list[Record] = []
        while True:
            message = self._consumer.poll(SECONDS_MAX)
            assert message is not None, f"nothing came after {len(records)} records"
            error = message.error()
            if error is None:
                records.append(to_record(message))
            elif error.code() != KafkaError._PARTITION_EOF:
                raise refused(error)
            elif len(records) >= count:
                return records

    def seek(self, offset: int) -> None:
        self._consumer.seek(TopicPartition(*self._place, offset))

    def seek_to_beginning(self) -> None:
        self.seek(OFFSET_BEGINNING)

    def seek_to_end(self) -> None:
        self.seek(OFFSET_END)

    def bounds(self) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*self._place), SECONDS_MAX)
        return low, high

    def find(self, timestamp_ms: int) -> tuple[int, int | None] | None:
        [found] = self._consumer.offsets_for_times([TopicPartition(*self._place, timestamp_ms)], SECONDS_MAX)
        return None if found.offset == OFFSET_END else (found.offset, None)


class Transactions:
    def __init__(self, producer: Producer, bootstrap: str) -> None:
        self._producer = producer
        self._bootstrap = bootstrap

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(SECONDS_MAX) == 0

    def send_offset(self, group: str, place: Place, offset: int) -> None:
        offsets = [TopicPartition(*place, offset)]
        with closing(Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})) as consumer, refusals():
            self._producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS_MAX)

    def commit(self) -> None:
        with refusals():
            self._producer.commit_transaction(SECONDS_MAX)

    def abort(self) -> None:
        with refusals():
            self._producer.abort_transaction(SECONDS_MAX)


OUTCOMES: dict[can.Outcome, AcknowledgeType] = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}


class Confluent(can.TunesDelivery, can.Transacts, can.ReadsInGroup, can.JoinsGroupsInThreads, can.SharesQueues):
    codecs = ("none", *can.CODECS)
    shows_offsets = True
    group_protocols = ("range", "cooperative", "consumer")

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self._bootstrap = bootstrap
        self._settings = {"bootstrap.servers": bootstrap, **settings}

    def produce(
        self, topic: str, records: Sequence[Record], delivery: can.Delivery = can.BY_DEFAULT
    ) -> list[int | None]:
        chosen = {
            "compression.type": delivery.codec,
            "linger.ms": delivery.linger_ms,
            "acks": delivery.acks,
            "enable.idempotence": delivery.idempotent,
            "batch.size": delivery.batch_bytes,
        }
        offsets: list[int | None] = []
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            errors.extend([] if error is None else [error])
            # Without acknowledgements there is no offset to show.
            offsets.append(message.offset() if delivery.acks != "0" else None)

        producer = Producer({**self._settings, **{key: value for key, value in chosen.items() if value is not None}})
        for record in records:
            time = {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            message = {"key": record.key, "value": record.value, "headers": list(record.headers), **time}
            producer.produce(topic, partition=record.partition, on_delivery=on_delivery, **message)
        assert producer.flush(SECONDS_MAX) == 0
        if errors:
            raise refused(errors[0])
        return offsets

    @contextmanager
    def reader(
        self, topic: str, *, partition: int = 0, start: int = 0, isolation: can.Isolation = "read_uncommitted"
    ) -> Iterator[Reader]:
        settings = {
            **self._settings,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,  # the end of a partition is reported after a fetch that found nothing
        }
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(topic, partition, start)])
            yield Reader(consumer, (topic, partition))

    def read_in_group(self, group: str, topic: str, count: int, protocol: can.GroupProtocol) -> list[bytes]:
        with self._of_group(group, **EVERY_PROTOCOL[protocol]) as consumer:
            consumer.subscribe([topic])
            messages = consumer.consume(count, SECONDS_MAX)
            consumer.commit(asynchronous=False)
        assert not [message.error() for message in messages if message.error() is not None]
        return [message.value() for message in messages]

    def member(self, group: str, topic: str, protocol: can.GroupProtocol, *, name: str, owners: can.Owners) -> Member:
        broker = SimpleNamespace(bootstrap=self._bootstrap)
        return Member(broker, group, [topic], name=name, ownership=owners, **EVERY_PROTOCOL[protocol])

    @contextmanager
    def _of_group(self, group: str, **settings: Any) -> Iterator[Consumer]:
        given = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        with closing(Consumer({**self._settings, **given, **settings})) as consumer:
            yield consumer

    def read_shared(self, group: str, topic: str, count: int, outcome: can.Outcome) -> dict[bytes, int]:
        settings = {**self._settings, "group.id": group, "share.acknowledgement.mode": "explicit"}
        counts: dict[bytes, int] = {}
        with ShareConsumer(settings) as consumer:
            consumer.subscribe([topic])
            while len(counts) < count:
                messages = consumer.poll(SECONDS_MAX)
                assert messages, f"nothing came after {len(counts)} records"
                for message in messages:
                    if message.error() is not None:
                        raise refused(message.error())
                    is_wanted = len(counts) < count
                    consumer.acknowledge(message, OUTCOMES[outcome] if is_wanted else AcknowledgeType.RELEASE)
                    if is_wanted:
                        counts[message.value()] = message.delivery_count()
                failed = [error for error in consumer.commit_sync(SECONDS_MAX).values() if error is not None]
                assert not failed, failed
        return counts

    def commit_offset(self, group: str, place: Place, offset: int, note: str) -> None:
        with self._of_group(group) as consumer:
            consumer.commit(offsets=[TopicPartition(*place, offset, metadata=note)], asynchronous=False)

    def committed(self, group: str, place: Place) -> tuple[int, str | None] | None:
        with self._of_group(group) as consumer:
            [found] = consumer.committed([TopicPartition(*place)], timeout=SECONDS_MAX)
        return None if found.offset < 0 else (found.offset, found.metadata)

    @contextmanager
    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> Iterator[Transactions]:
        settings = {
            **self._settings,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,  # a message may not take longer than its transaction
            "linger.ms": 0,
            "log_level": 0,
        }
        producer = Producer(settings)
        producer.init_transactions(SECONDS_MAX)
        yield Transactions(producer, self._bootstrap)
