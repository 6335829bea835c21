"""aiokafka: the methods of kafka-python as coroutines, so its adapter is that of kafka-python on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata

from protocol.clients.abilities import SECONDS_MAX, FencedError, Place, RefusedError
from protocol.clients.kafka_python import KafkaPython

POLL_MS = 100
ASSIGNORS = (RoundRobinPartitionAssignor, RangePartitionAssignor)
"""Its default, and the one that it has in common with members of other libraries."""


class Blocking:
    """A consumer or a producer whose methods return when they are done. Its loop runs while one of them is called."""

    def __init__(self, client: Any, run: Callable[[Callable[[], Any]], Any]) -> None:
        self._client = client
        self._run = run

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)
        return lambda *arguments, **named: self._run(lambda: method(*arguments, **named))

    def poll(self, *, timeout_ms: int, max_records: int | None) -> Any:
        return self.getmany(timeout_ms=timeout_ms, max_records=max_records)

    def send(self, *arguments: Any, **named: Any) -> SimpleNamespace:
        sent = self._run(lambda: self._client.send(*arguments, **named))
        return SimpleNamespace(get=lambda _: self._run(lambda: sent))


@contextmanager
def blocking(make: Callable[[], Any]) -> Iterator[Blocking]:
    async def call(function: Callable[[], Any]) -> Any:
        result = function()
        return await asyncio.wait_for(result, SECONDS_MAX) if isawaitable(result) else result

    with asyncio.Runner() as runner:

        def run(function: Callable[[], Any]) -> Any:
            try:
                return runner.run(call(function))
            except KafkaError as error:
                kind = FencedError if isinstance(error, ProducerFenced) else RefusedError
                raise kind(getattr(error, "errno", -1), str(error)) from error

        client = Blocking(run(make), run)
        client.start()
        try:
            yield client
        finally:
            client.stop()


class AioKafka(KafkaPython):
    member_poll_ms = POLL_MS
    batch_setting = "max_batch_size"
    partition_class = TopicPartition
    listener_class = ConsumerRebalanceListener

    def refusals(self) -> AbstractContextManager[None]:
        return nullcontext()  # each call of a method has raised them already

    def consumer(self, **settings: Any) -> AbstractContextManager[Blocking]:
        given = {**self._settings, "auto_offset_reset": "earliest", **settings}
        return blocking(lambda: AIOKafkaConsumer(partition_assignment_strategy=ASSIGNORS, **given))

    def producer(self, **settings: Any) -> AbstractContextManager[Blocking]:
        return blocking(lambda: AIOKafkaProducer(**self._settings, **settings))

    def offsets(self, place: Place, offset: int, note: str = "") -> dict[Any, Any]:
        return {TopicPartition(*place): OffsetAndMetadata(offset, note)}

    def committed(self, group: str, place: Place) -> tuple[int, str | None] | None:
        with self.in_group(group) as consumer:
            offset = consumer.committed(TopicPartition(*place))
        return None if offset is None else (offset, None)
