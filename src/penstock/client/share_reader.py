"""Reading topics as a member of a share group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError, failure, failure_of
from penstock.client.library import kafka
from penstock.model.clock import SystemClock

POLL_SECONDS = 0.5
IDLE_SECONDS_MAX = 5.0
"""Without `follow` a member ends when it has got nothing for so long."""


class Acknowledge(StrEnum):
    """What becomes of the records that a member has shown."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


class ShareReader:
    """A member of a share group. Use it as a context manager: what it has not acknowledged is released at the end."""

    def __init__(
        self, connection: Connection, topics: Sequence[str], group: str, *, follow: bool, records_max: int | None = None
    ) -> None:
        """`records_max` bounds what the member holds at a time; the broker may hand out a whole batch all the same."""
        connection.check()
        library = kafka()
        if not hasattr(library, "ShareConsumer"):
            raise ClientError(
                f"confluent-kafka {library.version()} has no share consumer",
                hint="pip install 'confluent-kafka>=2.16'",
            )
        own: dict[str, Any] = {
            "group_id": group,
            "share_acknowledgement_mode": "explicit",
            "fetch_wait_max_ms": 100,
        }
        if records_max is not None:
            own["max_poll_records"] = records_max
        try:
            self._consumer = library.ShareConsumer(connection.settings(**own))
            self._consumer.subscribe(list(topics))
        except Exception as error:
            raise failure_of(error, "cannot use these consumer settings") from error
        self._doing = f"cannot read {', '.join(topics)} as share group {group}"
        self._follow = follow

    def batches(self) -> Iterator[list[Any]]:
        """The library's messages in lists, empty ones included; all of one are acknowledged before the next."""
        clock = SystemClock()
        heard_s = clock.monotonic()
        while self._follow or clock.monotonic() - heard_s < IDLE_SECONDS_MAX:
            try:
                found = list(self._consumer.poll(POLL_SECONDS))
            except kafka().KafkaException as error:
                raise failure_of(error, self._doing) from error
            for message in found:
                if message.error() is not None:
                    raise failure(message.error(), self._doing)
            if found:
                heard_s = clock.monotonic()
            yield found

    def acknowledge(self, messages: Sequence[Any], kind: Acknowledge) -> None:
        """Say what becomes of records, and wait until the broker has taken it."""
        if not messages:
            return
        chosen = getattr(kafka().AcknowledgeType, kind.name)
        try:
            for message in messages:
                self._consumer.acknowledge(message, chosen)
            refused: dict[Any, Any] | None = self._consumer.commit_sync(REQUEST_SECONDS_MAX)
        except kafka().KafkaException as error:
            raise failure_of(error, self._doing) from error
        for place, refusal in (refused or {}).items():
            if refusal is not None:
                raise failure_of(refusal, f"cannot acknowledge records of {place.topic}-{place.partition}")

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
