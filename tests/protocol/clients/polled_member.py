"""A member of a group whose library is polled by a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol, Self

from protocol.clients.abilities import SECONDS_MAX, Owners, Place


class Polled(Protocol):
    """A consumer that has subscribed."""

    def poll(self) -> list[bytes]: ...
    def commit(self) -> bool:
        """Commit what was polled. False if something is left to commit: in the middle of a rebalance it is refused."""
        ...


class PolledMember:
    """Reads, remembers, and commits what it has read, until it is stopped.

    It leaves when all it has read is committed, or belongs to another member. Its consumer is opened in its thread, by
    a function that gets this member to tell it of rebalances.
    """

    def __init__(
        self, open_consumer: Callable[[PolledMember], AbstractContextManager[Polled]], *, name: str, owners: Owners
    ) -> None:
        self.name = name
        self.owned: set[Place] = set()
        self.assignments: list[list[Place]] = []
        self.values: list[bytes] = []
        self.error: BaseException | None = None
        self._owners = owners
        self._open_consumer = open_consumer
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def on_assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        places = [(topic, partition) for topic, partition in partitions]
        self._owners.take(self, places)
        self.assignments.append(places)
        self.owned |= set(places)

    def on_revoked(self, partitions: Iterable[tuple[str, int]]) -> None:
        places = [(topic, partition) for topic, partition in partitions]
        self._owners.give(self, places)
        self.owned -= set(places)

    def _run(self) -> None:
        is_behind = False
        try:
            with self._open_consumer(self) as consumer:
                while is_behind or not self._stopping.is_set():
                    values = consumer.poll()
                    self.values.extend(values)
                    if values or is_behind:
                        is_behind = not consumer.commit()
                # It reads nothing any more, and not every library says that closing revokes.
                self.on_revoked(self.owned)
        except BaseException as error:
            self.error = error

    def leave(self) -> None:
        self._stopping.set()

    def stop(self) -> None:
        """Leave the group and end; what went wrong in the thread is raised here."""
        self.leave()
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
