"""WriteTxnMarkers (27), DescribeTransactions (65) and ListTransactions (66), every version: for brokers and operators.

An operator writes a marker to end a hanging transaction in one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from penstock.api.coordinator_requests import when_committed
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.groups.consumer.patterns import compiled
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError, wire_error
from penstock.model.generated_errors import RequestTimedOut
from penstock.model.ids import CoordinatorEpoch, ProducerEpoch, ProducerId, TopicPartition
from penstock.model.timers import Timers
from penstock.model.turns import Turns
from penstock.transactions.context import TxnCoordinatorContext
from penstock.transactions.markers import Marker, MarkerLog
from penstock.transactions.record_formats import by_topic
from penstock.transactions.service import TxnCoordinatorService
from penstock.transactions.state import STATE_BY_LABEL, Transaction, TxnState
from penstock.wire.api import describe_transactions as describe_api
from penstock.wire.api import list_transactions as list_api
from penstock.wire.api import write_txn_markers as markers_api
from penstock.wire.slices import each

RESULTS_AT_ONCE_MAX = 16
"""Markers, topics of a marker, and partitions of a topic whose results are made in one turn of the loop."""

Place = tuple[int, int, int]
"""Position of a partition in a request: indexes of the marker, of its topic, and of the topic's partition."""


class MarkerWriting:
    """A WriteTxnMarkers request: writes the markers over several turns of the loop, and makes the response."""

    __slots__ = ("_codes", "_log", "_request", "_timeout_ms", "_timers", "_waits")

    def __init__(self, log: MarkerLog, request: markers_api.Request, *, timers: Timers, timeout_ms: int) -> None:
        """`timeout_ms` is how long written markers may take to be committed."""
        self._log = log
        self._request = request
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._codes: dict[Place, int] = {}
        """The error codes of the markers that failed."""
        self._waits: list[tuple[Place, Deferred[None]]] = []
        """Waiters for markers that are written but not committed yet."""

    async def run(self, turns: Turns) -> Eventual[markers_api.Response]:
        """Write every marker, also for a client that disconnects."""
        await turns.run(self._steps())
        waits = self._waits
        committed = Deferred.all([wait.catch(Exception, partial(self._failed, place)) for place, wait in waits])
        if isinstance(committed, Deferred):
            timed = committed.timeout(self._timers, self._timeout_ms, RequestTimedOut)
            committed = timed.catch(RequestTimedOut, self._expired)
        return after(committed, lambda _: self._response())

    def _expired(self, error: RequestTimedOut) -> list[None]:
        """Fail the markers that are not committed; they stay in the log. Kafka responds with the timeout as well."""
        for place, wait in self._waits:
            if wait.abandoned:
                self._failed(place, error)
        return []

    def _steps(self) -> Iterator[None]:
        """Write one marker per step."""
        for at, marker in enumerate(self._request.markers):
            for topic_at, topic in enumerate(marker.topics):
                for index_at, index in enumerate(topic.partition_indexes):
                    self._write(marker, TopicPartition(topic.name, index), (at, topic_at, index_at))
                    yield
                yield
            yield

    def _write(self, marker: markers_api.WritableTxnMarker, tp: TopicPartition, place: Place) -> None:
        try:
            wait = self._log.write(
                tp,
                Marker(
                    ProducerId(marker.producer_id),
                    ProducerEpoch(marker.producer_epoch),
                    marker.transaction_result,
                    CoordinatorEpoch(marker.coordinator_epoch),
                    marker.transaction_version,
                ),
            )
        except BrokerError as error:
            self._codes[place] = error.code
            return
        if wait is not None:
            self._waits.append((place, wait))

    def _failed(self, place: Place, error: Exception) -> None:
        self._codes[place], _ = wire_error(error)

    def _response(self) -> markers_api.Response:
        markers, codes = self._request.markers, self._codes

        def of_marker(at: int) -> markers_api.WritableTxnMarkerResult:
            topics = markers[at].topics

            def of_topic(topic_at: int) -> markers_api.WritableTxnMarkerTopicResult:
                indexes = topics[topic_at].partition_indexes
                return markers_api.WritableTxnMarkerTopicResult(
                    name=topics[topic_at].name,
                    partitions=each(
                        range(len(indexes)),
                        lambda index_at: markers_api.WritableTxnMarkerPartitionResult(
                            partition_index=indexes[index_at], error_code=codes.get((at, topic_at, index_at), 0)
                        ),
                        at_once_max=RESULTS_AT_ONCE_MAX,
                    ),
                )

            return markers_api.WritableTxnMarkerResult(
                producer_id=markers[at].producer_id,
                topics=each(range(len(topics)), of_topic, at_once_max=RESULTS_AT_ONCE_MAX),
            )

        return markers_api.Response(markers=each(range(len(markers)), of_marker, at_once_max=RESULTS_AT_ONCE_MAX))


class TxnAdmin:
    """Describes and lists transactions, and writes markers."""

    def __init__(
        self,
        *,
        coordinators: TxnCoordinatorService,
        markers: MarkerLog,
        turns: Turns,
        timers: Timers,
        timeout_ms: Callable[[], int],
    ) -> None:
        """`timeout_ms` is how long WriteTxnMarkers waits for its markers to be committed."""
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

    @in_turns
    async def write_markers(
        self, context: RequestContext, request: markers_api.Request
    ) -> Eventual[markers_api.Response]:
        writing = MarkerWriting(self._markers, request, timers=self._timers, timeout_ms=self._timeout_ms())
        return await writing.run(self._turns)

    # Describing

    @in_turns
    async def describe(self, context: RequestContext, request: describe_api.Request) -> Eventual[describe_api.Response]:
        coordinators: list[TxnCoordinatorContext] = []
        states: dict[str, describe_api.TransactionState] = {}
        for name in dict.fromkeys(request.transactional_ids):
            states[name] = self._described(name, coordinators)
            if self._turns.spent():
                await self._turns.pause()

        def failed(error: BrokerError) -> describe_api.Response:
            return describe_api.Response(
                transaction_states=each(
                    request.transactional_ids,
                    lambda name: describe_api.TransactionState(error_code=error.code, transactional_id=name),
                )
            )

        results = each(request.transactional_ids, states.__getitem__)
        return when_committed(coordinators, describe_api.Response(transaction_states=results), failed)

    def _described(self, name: str, coordinators: list[TxnCoordinatorContext]) -> describe_api.TransactionState:
        try:
            coordinator = self._coordinators.of(name)
            found = coordinator.shard().describe(name)
        except BrokerError as error:
            return describe_api.TransactionState(error_code=error.code, transactional_id=name)
        coordinators.append(coordinator)
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

    @in_turns
    async def list_(self, context: RequestContext, request: list_api.Request) -> Eventual[list_api.Response]:
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
            coordinators = list(self._coordinators.serving())
            found: list[Transaction] = []
            for coordinator in coordinators:
                found += coordinator.shard().listed(
                    context.now_ms,
                    states=states,
                    producer_ids=request.producer_id_filters,
                    duration_ms=request.duration_filter,
                    matches=matches,
                )
                if self._turns.spent():
                    await self._turns.pause()
        except BrokerError as error:
            return failed(error)
        response = list_api.Response(unknown_state_filters=unknown, transaction_states=each(found, listed))
        return when_committed(coordinators, response, failed)


def listed(transaction: Transaction) -> list_api.TransactionState:
    return list_api.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.label,
    )
