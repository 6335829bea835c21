"""Reading topics as a member of a consumer group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from penstock.client.connection import REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import failure, failure_of
from penstock.client.groups import Place
from penstock.client.library import kafka
from penstock.client.reader import poll_batch


class GroupReader:
    """A member of a group. Use it as a context manager.

    It starts at the committed offsets, or at the oldest record without one. Offsets that the caller marks as read are
    committed periodically, before a rebalance revokes their partition, and at the end.
    """

    def __init__(
        self, connection: Connection, topics: Sequence[str], group: str, *, follow: bool, **settings: Any
    ) -> None:
        """Without `follow` it ends once every partition it was assigned has been read to its end."""
        connection.check()
        defaults: dict[str, Any] = {
            "group_id": group,
            "enable_auto_commit": True,
            "enable_auto_offset_store": False,
            "enable_partition_eof": True,
            "auto_offset_reset": "earliest",
            "fetch_wait_max_ms": 100,
        }
        self._refused: Any = None
        self._topics = list(topics)
        self._group = group
        self._follow = follow
        self._unread: set[Place] = set()
        self.assigned: frozenset[Place] | None = None
        """The partitions of this member; None before the group's first rebalance."""
        try:
            wanted = connection.settings(**{**defaults, **settings})
            self._consumer = kafka().Consumer({**wanted, "on_commit": self._on_commit})
            self._consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke)
        except Exception as error:
            raise failure_of(error, "cannot use these consumer settings") from error

    @property
    def done(self) -> bool:
        return not self._follow and bool(self.assigned) and not self._unread

    def batches(self) -> Iterator[list[Any]]:
        """The library's messages in lists, empty ones included, so that the caller can look at the clock."""
        end_of_partition = kafka().KafkaError._PARTITION_EOF
        while not self.done:
            wanted: list[Any] = []
            for message in poll_batch(self._consumer):
                error = message.error()
                if error is None:
                    wanted.append(message)
                elif error.code() == end_of_partition:
                    self._unread.discard((message.topic(), message.partition()))
                else:
                    raise failure(error, f"cannot read {', '.join(self._topics)} as group {self._group}")
            yield wanted

    def mark_read(self, messages: Sequence[Any]) -> None:
        """Let the offsets after these messages be committed."""
        for message in messages:
            if self.assigned and (message.topic(), message.partition()) in self.assigned:
                self._consumer.store_offsets(message)

    def committed(self, place: Place) -> tuple[int | None, str]:
        """The committed offset of an assigned partition, None without one, and the text beside it."""
        try:
            [found] = self._consumer.committed([kafka().TopicPartition(*place)], REQUEST_SECONDS_MAX)
        except kafka().KafkaException as error:
            raise failure_of(error, f"cannot read the offsets of group {self._group}") from error
        if found.error is not None:
            raise failure(found.error, f"cannot read the offsets of group {self._group}")
        return (found.offset if found.offset >= 0 else None), found.metadata or ""

    def commit(self, offsets: Mapping[Place, tuple[int, str]]) -> None:
        """Commit these offsets, each with a text beside it, and wait for it."""
        wanted = [kafka().TopicPartition(*place, offset, note) for place, (offset, note) in offsets.items()]
        doing = f"cannot commit offsets of group {self._group}"
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except kafka().KafkaException as error:
            raise failure_of(error, doing) from error
        for each in done:
            if each.error is not None:
                raise failure(each.error, f"{doing}: {each.topic} partition {each.partition}")

    def close(self) -> None:
        """Commit, leave the group; raise if the last commit was refused."""
        self._refused = None
        self._consumer.close()
        if self._refused is not None:
            raise failure(self._refused, f"cannot commit offsets of group {self._group}")

    def _on_commit(self, error: Any, _offsets: Sequence[Any]) -> None:
        self._refused = error

    def _on_assign(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        places = frozenset((each.topic, each.partition) for each in partitions)
        self.assigned = (self.assigned or frozenset()) | places
        self._unread |= places

    def _on_revoke(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        places = frozenset((each.topic, each.partition) for each in partitions)
        self.assigned = (self.assigned or frozenset()) - places
        self._unread -= places

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
