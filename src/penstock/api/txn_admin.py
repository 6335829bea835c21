"""WriteTxnMarkers (27), DescribeTransactions (65) and ListTransactions (66), every version: for brokers and operators.

An operator who writes a marker ends a transaction in one partition that nobody else would end.
"""

from __future__ import annotations

from asyncio import Future
from functools import partial
from typing import Any

from penstock.api.group_asking import Gathering, when_committed
from penstock.api.registry import Api, RequestContext
from penstock.core.group.consumer_patterns import compiled
from penstock.core.txn.state import STATE_BY_LABEL, TxnState
from penstock.model.errors import BrokerError, wire_error
from penstock.model.ids import TopicPartition
from penstock.runtime.txn_coordinator import TxnCoordinator
from penstock.runtime.txn_coordinators import TxnCoordinators
from penstock.runtime.txn_journal import by_topic
from penstock.runtime.txn_markers import MarkerLog
from penstock.wire.api import describe_transactions as describe_api
from penstock.wire.api import list_transactions as list_api
from penstock.wire.api import write_txn_markers as markers_api


class TxnAdmin:
    """Shows transactions, and ends what hangs."""

    def __init__(self, *, coordinators: TxnCoordinators, markers: MarkerLog) -> None:
        self._coordinators = coordinators
        self._markers = markers

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=27, versions=range(1, 3), handle=self.write_markers),
            Api(key=65, versions=range(1), handle=self.describe),
            Api(key=66, versions=range(3), handle=self.list_),
        )

    # Markers

    def write_markers(self, context: RequestContext, request: markers_api.Request) -> Any:
        answers: list[markers_api.WritableTxnMarkerResult] = []
        waits: list[tuple[markers_api.WritableTxnMarkerPartitionResult, Future[None]]] = []
        for marker in request.markers:
            topics: list[markers_api.WritableTxnMarkerTopicResult] = []
            for topic in marker.topics:
                results: list[markers_api.WritableTxnMarkerPartitionResult] = []
                for index in topic.partition_indexes:
                    result = markers_api.WritableTxnMarkerPartitionResult(partition_index=index)
                    results.append(result)
                    wait = self._write(marker, TopicPartition(topic.name, index), result)
                    if wait is not None:
                        waits.append((result, wait))
                topics.append(markers_api.WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            answers.append(markers_api.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        gathering = Gathering(len(waits), lambda: markers_api.Response(markers=answers))

        def settled(result: markers_api.WritableTxnMarkerPartitionResult, done: Future[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                result.error_code, _ = wire_error(error)
            gathering.arrived()

        for result, wait in waits:
            wait.add_done_callback(partial(settled, result))
        return gathering.outcome()

    def _write(
        self,
        marker: markers_api.WritableTxnMarker,
        tp: TopicPartition,
        result: markers_api.WritableTxnMarkerPartitionResult,
    ) -> Future[None] | None:
        try:
            return self._markers.write(
                tp,
                producer_id=marker.producer_id,
                epoch=marker.producer_epoch,
                commit=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        except BrokerError as error:
            result.error_code = error.code
            return None

    # Showing

    def describe(self, context: RequestContext, request: describe_api.Request) -> Any:
        asked: list[TxnCoordinator] = []
        states = [self._described(name, asked) for name in request.transactional_ids]

        def failed(error: BrokerError) -> describe_api.Response:
            return describe_api.Response(
                transaction_states=[
                    describe_api.TransactionState(error_code=error.code, transactional_id=name)
                    for name in request.transactional_ids
                ]
            )

        return when_committed(asked, describe_api.Response(transaction_states=states), failed)

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

    def list_(self, context: RequestContext, request: list_api.Request) -> Any:
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
            found = [
                transaction
                for coordinator in asked
                for transaction in coordinator.shard().listed(
                    context.now_ms,
                    states=states,
                    producer_ids=request.producer_id_filters,
                    duration_ms=request.duration_filter,
                    matches=matches,
                )
            ]
        except BrokerError as error:
            return failed(error)
        answer = list_api.Response(
            unknown_state_filters=unknown,
            transaction_states=[
                list_api.TransactionState(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.label,
                )
                for transaction in found
            ],
        )
        return when_committed(asked, answer, failed)
