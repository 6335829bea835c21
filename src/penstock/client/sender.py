"""Sending records, with failures collected instead of lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.client.connection import Connection
from penstock.client.failures import ClientError, failure, failure_of
from penstock.client.library import kafka
from penstock.client.records import Header

POLL_EVERY = 256
QUEUE_WAIT_SECONDS = 0.1
DELIVERY_SECONDS_MAX = 30.0
PROPAGATION_SECONDS_MAX = 5.0


@dataclass(slots=True)
class Delivered:
    """The acknowledged records of one partition."""

    count: int = 0
    first: int = -1
    last: int = -1

    def add(self, offset: int | None) -> None:
        self.count += 1
        # With acks=0 a record has no offset.
        if offset is not None and offset >= 0:
            self.first = offset if self.first < 0 else min(self.first, offset)
            self.last = max(self.last, offset)


class Sender:
    """A producer that counts acknowledged records by partition, and keeps the first failure."""

    def __init__(
        self, connection: Connection, *, watch: Callable[[float], None] | None = None, **settings: Any
    ) -> None:
        """`watch` is called with the seconds from `send` to the acknowledgement of each record."""
        connection.check()
        defaults = {
            "message_timeout_ms": int(DELIVERY_SECONDS_MAX * 1000),
            "topic_metadata_propagation_max_ms": int(PROPAGATION_SECONDS_MAX * 1000),
        }
        try:
            self._producer = kafka().Producer(connection.settings(**{**defaults, **settings}))
        except Exception as error:
            raise failure_of(error, "cannot use these producer settings") from error
        self.delivered: dict[int, Delivered] = {}
        self._watch = watch
        self.failures = 0
        self.first_failure: ClientError | None = None
        self._sent = 0

    @property
    def waiting(self) -> int:
        """Records sent and not yet acknowledged."""
        return len(self._producer)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
        headers: Sequence[Header] = (),
    ) -> None:
        """Queue one record; waits while the queue is full, and raises errors that are known at once."""
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._delivered,
                    timestamp=timestamp_ms,
                    headers=list(headers),
                )
            except BufferError:
                self._producer.poll(QUEUE_WAIT_SECONDS)
            except Exception as error:
                raise failure_of(error, f"cannot send to topic {topic}") from error
            else:
                break
        self._sent += 1
        if self._sent % POLL_EVERY == 0:
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait for every acknowledgement; raises the first failure, with the number of failures."""
        left = self._producer.flush(DELIVERY_SECONDS_MAX + PROPAGATION_SECONDS_MAX)
        if self.first_failure is not None:
            raise ClientError(
                f"{self.failures} of {self._sent} not acknowledged; the first: {self.first_failure}",
                code=self.first_failure.code,
                name=self.first_failure.name,
            )
        if left:
            raise ClientError(f"{left} of {self._sent} not acknowledged within {DELIVERY_SECONDS_MAX:g} s")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures += 1
            if self.first_failure is None:
                self.first_failure = failure(error, f"topic {message.topic()}")
            return
        self.delivered.setdefault(message.partition(), Delivered()).add(message.offset())
        if self._watch is not None:
            self._watch(message.latency())
