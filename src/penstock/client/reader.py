"""Reading spans of partitions, without a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from penstock.client.connection import Connection
from penstock.client.failures import failure, failure_of
from penstock.client.groups import Place
from penstock.client.library import kafka
from penstock.client.positions import Span

BATCH_RECORDS_MAX = 1_000
POLL_SECONDS = 0.2
GROUP_UNUSED = "penstock-cli"


class Reader:
    """Reads the spans and stops at the end of the last one. Use it as a context manager.

    It is assigned its partitions and commits nothing; librdkafka requires a group id nevertheless.
    """

    def __init__(self, connection: Connection, spans: Mapping[str, Sequence[Span]], **settings: Any) -> None:
        """`spans` are the spans of each topic."""
        connection.check()
        defaults: dict[str, Any] = {
            "group_id": GROUP_UNUSED,
            "enable_auto_commit": False,
            "enable_auto_offset_store": False,
            "enable_partition_eof": True,
            "auto_offset_reset": "error",
            "fetch_wait_max_ms": 100,
        }
        try:
            self._consumer = kafka().Consumer(connection.settings(**{**defaults, **settings}))
        except Exception as error:
            raise failure_of(error, "cannot use these consumer settings") from error
        self._topics = ", ".join(spans)
        wanted = [(topic, span) for topic, each in spans.items() for span in each if not span.empty]
        self._stops = {(topic, span.partition): span.stop for topic, span in wanted}
        if wanted:
            self._consumer.assign([kafka().TopicPartition(topic, span.partition, span.start) for topic, span in wanted])

    @property
    def done(self) -> bool:
        """Whether every span is read to its stop."""
        return not self._stops

    def batches(self) -> Iterator[list[Any]]:
        """The library's messages in lists, empty ones included, so that the caller can look at the clock."""
        end_of_partition = kafka().KafkaError._PARTITION_EOF
        while self._stops:
            wanted: list[Any] = []
            for message in poll_batch(self._consumer):
                error, place = message.error(), (message.topic(), message.partition())
                if error is None:
                    if self._take(place, message.offset()):
                        wanted.append(message)
                elif error.code() == end_of_partition:
                    self._reached_end(place, message.offset())
                else:
                    raise failure(error, f"cannot read {self._topics}")
            yield wanted

    def close(self) -> None:
        self._consumer.close()

    def _take(self, place: Place, offset: int) -> bool:
        """Whether the record is inside its span; ends the span at its last one."""
        if place not in self._stops:
            return False
        stop = self._stops[place]
        if stop is None:
            return True
        if offset >= stop - 1:
            self._finish(place)
        return offset < stop

    def _reached_end(self, place: Place, offset: int) -> None:
        """At the end of the log: a bounded span ends here even if its last offsets hold no record (compaction)."""
        stop = self._stops.get(place)
        if stop is not None and offset >= stop:
            self._finish(place)

    def _finish(self, place: Place) -> None:
        del self._stops[place]
        self._consumer.pause([kafka().TopicPartition(*place)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def poll_batch(consumer: Any) -> list[Any]:
    """Wait for one record, then take all that are available: a call for many would wait for all of them."""
    first = consumer.poll(POLL_SECONDS)
    if first is None:
        return []
    return [first, *consumer.consume(BATCH_RECORDS_MAX - 1, 0)]
