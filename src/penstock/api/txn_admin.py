"""WriteTxnMarkers (27), DescribeTransactions (65) and ListTransactions (66), every version: for brokers and operators.

An operator who writes a marker ends a transaction in one partition that nobody else would end.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

from penstock.api.group_asking import when_committed
from penstock.api.registry import Api, RequestContext
from penstock.core.group.consumer_patterns import compiled
from penstock.core.txn.state import STATE_BY_LABEL, TxnState
from penstock.model.errors import BrokerError, wire_error
from penstock.model.generated_errors import RequestTimedOut
from penstock.model.ids import TopicPartition
from penstock.model.turns import Turns
from penstock.net.reply import Pending
from penstock.runtime.timers import Timer, Timers
from penstock.runtime.txn_coordinator import TxnCoordinator
from penstock.runtime.txn_coordinators import TxnCoordinators
from penstock.runtime.txn_journal import by_topic
from penstock.runtime.txn_markers import MARKERS_PER_TURN_MAX, MarkerLog
from penstock.wire.api import describe_transactions as describe_api
from penstock.wire.api import list_transactions as list_api
from penstock.wire.api import write_txn_markers as markers_api
from penstock.wire.slices import each

MarkerResult = markers_api.WritableTxnMarkerPartitionResult


class MarkerWriting:
    """A request for markers on its way: so many are written in a turn of the loop, and the answer tells of all."""

    __slots__ = ("_answers", "_log", "_pending", "_timeout_ms", "_timer", "_timers", "_to_write", "_waiting")

    def __init__(self, log: MarkerLog, request: markers_api.Request, *, timers: Timers, timeout_ms: int) -> None:
        """`timeout_ms` is how long the request waits for its markers to be committed."""
        self._log = log
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._timer: Timer | None = None
        self._to_write: deque[tuple[markers_api.WritableTxnMarker, TopicPartition, MarkerResult]] = deque()
        self._answers: list[markers_api.WritableTxnMarkerResult] = []
        self._waiting: dict[Future[None], TopicPartition] = {}
        """Markers that are written and not committed."""
        self._pending: Pending | None = None
        for marker in request.markers:
            topics: list[markers_api.WritableTxnMarkerTopicResult] = []
            for topic in marker.topics:
                results = [MarkerResult(partition_index=index) for index in topic.partition_indexes]
                places = [TopicPartition(topic.name, index) for index in topic.partition_indexes]
                self._to_write.extend(zip(repeat(marker), places, results, strict=False))
                topics.append(markers_api.WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            self._answers.append(markers_api.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))

    def begin(self) -> markers_api.Response | Pending:
        """Write the first; the answer, or what it will be in. All are written, also for a client that disconnects."""
        self._write_some()
        if self._is_done:
            return self._response()
        self._pending = Pending()
        self._timer = self._timers.after_ms(self._timeout_ms, self._expire)
        return self._pending

    def _expire(self) -> None:
        """Say of the markers that are not committed that they timed out, as Kafka does; they stand nevertheless."""
        for wait, tp in self._waiting.items():
            self._log.stop_waiting(tp, wait, RequestTimedOut())
        if self._to_write:
            self._timer = self._timers.after_ms(self._timeout_ms, self._expire)

    @property
    def _is_done(self) -> bool:
        return not self._to_write and not self._waiting

    def _response(self) -> markers_api.Response:
        return markers_api.Response(markers=self._answers)

    def _write_some(self) -> None:
        for _ in range(min(MARKERS_PER_TURN_MAX, len(self._to_write))):
            self._write(*self._to_write.popleft())
        if self._to_write:
            get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        assert self._pending is not None, "what is left of a request waits"
        self._pending.attempt(self._write_more)

    def _write_more(self) -> None:
        self._write_some()
        self._finish()

    def _write(self, marker: markers_api.WritableTxnMarker, tp: TopicPartition, result: MarkerResult) -> None:
        try:
            wait = self._log.write(
                tp,
                producer_id=marker.producer_id,
                epoch=marker.producer_epoch,
                commit=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        except BrokerError as error:
            result.error_code = error.code
            return
        if wait is not None:
            self._waiting[wait] = tp
            wait.add_done_callback(partial(self._settled, result))

    def _settled(self, result: MarkerResult, done: Future[None]) -> None:
        """A marker that is written counts when it is committed."""
        self._waiting.pop(done, None)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            result.error_code, _ = wire_error(error)
        self._finish()

    def _finish(self) -> None:
        if self._is_done and self._pending is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._pending.resolve(self._response())


class TxnAdmin:
    """Shows transactions, and ends what hangs."""

    def __init__(
        self,
        *,
        coordinators: TxnCoordinators,
        markers: MarkerLog,
        turns: Turns,
        timers: Timers,
        timeout_ms: Callable[[], int],
    ) -> None:
        """`timeout_ms` is how long a request for markers waits for them to be committed."""
        self._turns = turns
        self._coordinators = coordinators
        self._markers = markers
        self._timers = timers
        self._timeout_ms = timeout_ms

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=27, versions=range(1, 3), handle=self.write_markers),
            Api(key=65, versions=range(1), handle=self.describe),
            Api(key=66, versions=range(3), handle=self.list_),
        )

    # Markers

    def write_markers(self, context: RequestContext, request: markers_api.Request) -> Any:
        return MarkerWriting(self._markers, request, timers=self._timers, timeout_ms=self._timeout_ms()).begin()

    # Showing

    async def describe(self, context: RequestContext, request: describe_api.Request) -> Any:
        asked: list[TxnCoordinator] = []
        states: dict[str, describe_api.TransactionState] = {}
        for name in dict.fromkeys(request.transactional_ids):
            states[name] = self._described(name, asked)
            if self._turns.spent():
                await self._turns.pause()

        def failed(error: BrokerError) -> describe_api.Response:
            return describe_api.Response(
                transaction_states=each(
                    request.transactional_ids,
                    lambda name: describe_api.TransactionState(error_code=error.code, transactional_id=name),
                )
            )

        told = each(request.transactional_ids, states.__getitem__)
        return when_committed(asked, describe_api.Response(transaction_states=told), failed)

    def _described(self, name: str, asked: list[TxnCoordinator]) -> describe_api.TransactionState:
        try:
            coordinator = self._coordinators.of(name)
            found = coordinator.shard().describe(name)
        except BrokerError as error:
            return describe_api.TransactionState(error_code=error.code, transactional_id=name)
        asked.append(coordinator)
        return describe_api.TransactionState(
            transactional_id=name,
            transaction_state=found.state.label,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.started_ms,
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
            topics=[
                describe_api.TopicData(topic=topic, partitions=list(partitions))
                for topic, partitions in by_topic(found.partitions)
            ],
        )

    async def list_(self, context: RequestContext, request: list_api.Request) -> Any:
        unknown = [name for name in request.state_filters if name not in STATE_BY_LABEL]
        states: list[TxnState] | None = None
        if request.state_filters:
            states = [STATE_BY_LABEL[name] for name in request.state_filters if name in STATE_BY_LABEL]

        def failed(error: BrokerError) -> list_api.Response:
            return list_api.Response(error_code=error.code)

        try:
            matches = None
            if request.transactional_id_pattern:
                matches = compiled(request.transactional_id_pattern).fullmatch
            asked = list(self._coordinators.serving())
            told: list[list_api.TransactionState] = []
            for coordinator in asked:
                found = coordinator.shard().listed(
                    context.now_ms,
                    states=states,
                    producer_ids=request.producer_id_filters,
                    duration_ms=request.duration_filter,
                    matches=matches,
                )
                told += [
                    list_api.TransactionState(
                        transactional_id=transaction.transactional_id,
                        producer_id=transaction.producer_id,
                        transaction_state=transaction.state.label,
                    )
                    for transaction in found
                ]
                if self._turns.spent():
                    await self._turns.pause()
        except BrokerError as error:
            return failed(error)
        answer = list_api.Response(unknown_state_filters=unknown, transaction_states=told)
        return when_committed(asked, answer, failed)
