"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26) and TxnOffsetCommit (28), every version.

Up to version 3 of AddPartitionsToTxn, a client adds the partitions of its own transaction; from version 4 on, a broker
adds those of many. Clients with transaction version 2 do not send it: Produce and TxnOffsetCommit add the partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from penstock.api.coordinator_requests import submit
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.api.txn_verification import OFFSETS_ADD_FROM, TxnVerification
from penstock.controller.internal_topics import InternalTopics
from penstock.controller.producer_ids import ProducerIds
from penstock.coordinator.step import Result
from penstock.groups.commands import CommitEntry, CommitOffsets, CommitReply, CommitTxnOffsets
from penstock.groups.service import GroupCoordinatorService
from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidTopic,
    NotCoordinator,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from penstock.model.ids import CoordinatorEpoch, ProducerEpoch, ProducerId, TopicPartition
from penstock.model.topic import GROUP_OFFSETS_TOPIC
from penstock.model.turns import Turns
from penstock.partition.producers import NO_SEQUENCE
from penstock.partition.verification import NOT_REQUIRED, TxnProof
from penstock.transactions.commands import (
    AddPartitions,
    EndTransaction,
    PartitionsVerified,
    TransactionEnded,
    VerifyPartitions,
)
from penstock.transactions.old_clients import FENCED_FROM, error_for_version
from penstock.transactions.service import TxnCoordinatorService
from penstock.transactions.state import BUMPING_VERSION, FIRST_VERSION
from penstock.wire import add_partitions_to_txn as broker_api
from penstock.wire.api import add_offsets_to_txn as offsets_api
from penstock.wire.api import add_partitions_to_txn as add_api
from penstock.wire.api import end_txn as end_api
from penstock.wire.api import txn_offset_commit as commit_api
from penstock.wire.slices import each

BATCHED_FROM = 4
"""The first version of AddPartitionsToTxn that brokers send."""
END_BUMPS_FROM = 5
"""The first version of EndTxn that bumps the producer epoch."""
LOADING_FROM = 2
"""The first version of TxnOffsetCommit whose clients know CoordinatorLoadInProgress."""
RESULTS_AT_ONCE_MAX = 16
"""Transactions, topics of one, and partitions of a topic whose results are made in one turn of the loop."""


CodeOf = Callable[[TopicPartition], int]
"""The error code of each partition of a transaction."""


class Transactions:
    """Passes the requests of transactional producers to the coordinators."""

    def __init__(
        self,
        *,
        coordinators: TxnCoordinatorService,
        groups: GroupCoordinatorService,
        verification: TxnVerification,
        image: MetadataImage,
        internal: InternalTopics,
        producer_ids: ProducerIds,
        turns: Turns,
    ) -> None:
        self._coordinators = coordinators
        self._groups = groups
        self._verification = verification
        self._image = image
        self._internal = internal
        self._producer_ids = producer_ids
        self._turns = turns

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=24, versions=range(6), handle=self.add_partitions, decode=broker_api.decode_request),
            Api(key=25, versions=range(5), handle=self.add_offsets),
            Api(key=26, versions=range(6), handle=self.end),
            Api(key=28, versions=range(6), handle=self.commit_offsets),
        )

    # Adding partitions

    @in_turns
    async def add_partitions(self, context: RequestContext, request: add_api.Request) -> Eventual[add_api.Response]:
        if context.api_version >= BATCHED_FROM:
            return await self._add_batched(request)
        topics = request.v3_and_below_topics
        partitions, missing = await self._named(topics)

        def response(reply: Result) -> add_api.Response:
            code = (
                error_for_version(reply, context.api_version, FENCED_FROM).code if isinstance(reply, BrokerError) else 0
            )
            result = topic_results(topics, lambda tp: self._fault_of(tp) if tp in missing else code)
            return add_api.Response(results_by_topic_v3_and_below=result)

        if missing:
            return response(OperationNotAttempted())
        command = AddPartitions(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=ProducerId(request.v3_and_below_producer_id),
            epoch=ProducerEpoch(request.v3_and_below_producer_epoch),
            partitions=partitions,
            transaction_version=FIRST_VERSION,
        )
        return submit(self._coordinators, command.transactional_id, command, response)

    async def _named(
        self, topics: Iterable[add_api.AddPartitionsToTxnTopic]
    ) -> tuple[tuple[TopicPartition, ...], set[TopicPartition]]:
        """The distinct partitions of a request, and those of them that do not exist."""
        partitions: dict[TopicPartition, None] = {}
        missing: set[TopicPartition] = set()
        for topic in topics:
            for index in topic.partitions:
                tp = TopicPartition(topic.name, index)
                partitions[tp] = None
                if not self._exists(tp):
                    missing.add(tp)
                if self._turns.spent():
                    await self._turns.pause()
        return tuple(partitions), missing

    async def _add_batched(self, request: add_api.Request) -> Eventual[add_api.Response]:
        """Add the partitions of many transactions. Results arrive in any order; the response has the request's."""
        transactions = request.transactions

        def respond(codes: list[CodeOf]) -> add_api.Response:
            def result(at: int) -> add_api.AddPartitionsToTxnResult:
                return add_api.AddPartitionsToTxnResult(
                    transactional_id=transactions[at].transactional_id,
                    topic_results=topic_results(transactions[at].topics, codes[at]),
                )

            every = range(len(transactions))
            return add_api.Response(results_by_transaction=each(every, result, at_once_max=RESULTS_AT_ONCE_MAX))

        assert isinstance(request, broker_api.Request), "a request of brokers"
        added = [
            await self._add_one(transaction, CoordinatorEpoch(epoch))
            for transaction, epoch in zip(transactions, request.coordinator_epochs, strict=True)
        ]
        return after(Deferred.all(added), respond)

    async def _add_one(
        self, transaction: add_api.AddPartitionsToTxnTransaction, epoch_min: CoordinatorEpoch
    ) -> Eventual[CodeOf]:
        """Add or verify the partitions of one transaction. A coordinator before `epoch_min` is not the one asked."""
        partitions, unknown = await self._named(transaction.topics)

        def codes(result: Result) -> CodeOf:
            others = result.code if isinstance(result, BrokerError) else 0
            missing = frozenset(result.missing if isinstance(result, PartitionsVerified) else ())

            def code(tp: TopicPartition) -> int:
                if tp in unknown:
                    return self._fault_of(tp)
                return TransactionAbortable.code if tp in missing else others

            return code

        if unknown:
            return codes(OperationNotAttempted())
        producer: dict[str, Any] = {
            "transactional_id": transaction.transactional_id,
            "producer_id": transaction.producer_id,
            "epoch": transaction.producer_epoch,
            "partitions": partitions,
        }
        try:
            coordinator = self._coordinators.of(transaction.transactional_id)
            if coordinator.epoch < epoch_min:
                raise NotCoordinator()
            if transaction.verify_only:
                # As `LocalVerifier` does, without waiting for earlier commands: verifications must not be held up.
                return codes(PartitionsVerified(missing=coordinator.shard().missing(VerifyPartitions(**producer))))
        except BrokerError as error:
            return codes(error)
        command = AddPartitions(**producer, transaction_version=BUMPING_VERSION)
        return submit(self._coordinators, transaction.transactional_id, command, codes)

    def _fault_of(self, tp: TopicPartition) -> int:
        """Why nothing can be written to a partition: it does not exist, or is a view's."""
        return InvalidTopic.code if tp.topic in self._image.views else UnknownTopicOrPartition.code

    def _exists(self, tp: TopicPartition) -> bool:
        topic = self._image.topics.get(tp.topic)
        return topic is not None and 0 <= tp.partition < len(topic.partitions)

    def add_offsets(self, context: RequestContext, request: offsets_api.Request) -> Eventual[offsets_api.Response]:
        if not self._internal.has_offsets():
            return self._make_and_add_offsets(context, request)
        return self._add_offsets(context, request)

    @in_turns
    async def _make_and_add_offsets(
        self, context: RequestContext, request: offsets_api.Request
    ) -> Eventual[offsets_api.Response]:
        # Where the topic cannot be created, the response is CoordinatorNotAvailable.
        with suppress(BrokerError):
            await self._internal.ensure_offsets()
        return self._add_offsets(context, request)

    def _add_offsets(self, context: RequestContext, request: offsets_api.Request) -> Eventual[offsets_api.Response]:
        def response(reply: Result) -> offsets_api.Response:
            code = (
                error_for_version(reply, context.api_version, FENCED_FROM).code if isinstance(reply, BrokerError) else 0
            )
            return offsets_api.Response(error_code=code)

        try:
            place = TopicPartition(GROUP_OFFSETS_TOPIC, self._groups.partition_of(request.group_id))
        except BrokerError as error:
            return response(error)
        command = AddPartitions(
            transactional_id=request.transactional_id,
            producer_id=ProducerId(request.producer_id),
            epoch=ProducerEpoch(request.producer_epoch),
            partitions=(place,),
            transaction_version=FIRST_VERSION,
        )
        return submit(self._coordinators, request.transactional_id, command, response)

    # Ending

    def end(self, context: RequestContext, request: end_api.Request) -> Eventual[end_api.Response]:
        if not self._producer_ids.stocked:
            return self._stock_and_end(context, request)
        return self._end(context, request)

    @in_turns
    async def _stock_and_end(self, context: RequestContext, request: end_api.Request) -> Eventual[end_api.Response]:
        # Only a producer whose epochs are used up needs a new id; any other ends its transaction without one.
        with suppress(BrokerError):
            await self._producer_ids.stock()
        return self._end(context, request)

    def _end(self, context: RequestContext, request: end_api.Request) -> Eventual[end_api.Response]:
        bumps = context.api_version >= END_BUMPS_FROM

        def response(reply: Result) -> end_api.Response:
            if isinstance(reply, BrokerError):
                return end_api.Response(error_code=error_for_version(reply, context.api_version, FENCED_FROM).code)
            assert isinstance(reply, TransactionEnded), f"a response to the end of a transaction: {reply!r}"
            return end_api.Response(producer_id=reply.producer_id, producer_epoch=reply.epoch)

        command = EndTransaction(
            transactional_id=request.transactional_id,
            producer_id=ProducerId(request.producer_id),
            epoch=ProducerEpoch(request.producer_epoch),
            commit=request.committed,
            transaction_version=BUMPING_VERSION if bumps else FIRST_VERSION,
        )
        return submit(self._coordinators, request.transactional_id, command, response)

    # Offsets

    @in_turns
    async def commit_offsets(
        self, context: RequestContext, request: commit_api.Request
    ) -> Eventual[commit_api.Response]:
        known, refused, entries = await self._committable(request)

        def response(reply: Result) -> commit_api.Response:
            others = committer_error(reply, context.api_version).code if isinstance(reply, BrokerError) else 0
            codes: dict[tuple[str, int], int] = {}
            if not isinstance(reply, BrokerError):
                assert isinstance(reply, CommitReply), f"a response to a commit: {reply!r}"
                failures = reply.failures.items()
                codes = {(entries[at].topic, entries[at].partition): failure.code for at, failure in failures}

            def code(name: str, index: int) -> int:
                if name in refused:
                    return TopicAuthorizationFailed.code
                if (name, index) not in known:
                    return UnknownTopicOrPartition.code
                return codes.get((name, index), others)

            return commit_response(request, code)

        if not entries:
            return response(UnknownTopicOrPartition())
        command = CommitTxnOffsets(
            producer_id=ProducerId(request.producer_id),
            producer_epoch=ProducerEpoch(request.producer_epoch),
            commit=CommitOffsets(
                group=request.group_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                generation=request.generation_id,
                entries=tuple(entries),
                version=context.api_version,
            ),
        )
        return self._commit_verified(context, request, command, response)

    async def _committable(
        self, request: commit_api.Request
    ) -> tuple[set[tuple[str, int]], set[str], list[CommitEntry]]:
        """The partitions of a commit that exist, the topics that only another group may commit to, the offsets."""
        known: set[tuple[str, int]] = set()
        refused: set[str] = set()
        entries: list[CommitEntry] = []
        for requested in request.topics:
            name, topic = requested.name, self._image.shown(requested.name)
            if topic is not None and not self._groups.may_commit(topic, request.group_id):
                refused.add(name)
                continue
            count = 0 if topic is None else len(topic.partitions)
            for partition in requested.partitions:
                index = partition.partition_index
                if topic is not None and 0 <= index < count:
                    known.add((name, index))
                    if index >= topic.shown_count:
                        # As in OffsetCommit: partitions of a finalized topic have no offsets.
                        continue
                    entries.append(
                        CommitEntry(
                            name,
                            index,
                            partition.committed_offset,
                            partition.committed_leader_epoch,
                            partition.committed_metadata or "",
                            topic.topic_id,
                        )
                    )
                if self._turns.spent():
                    await self._turns.pause()
            if self._turns.spent():
                await self._turns.pause()
        return known, refused, entries

    def _commit_verified(
        self,
        context: RequestContext,
        request: commit_api.Request,
        command: CommitTxnOffsets,
        response: Callable[[Result], commit_api.Response],
    ) -> Eventual[commit_api.Response]:
        """Commit if the group's partition is part of the transaction, or can be added to it."""
        version = context.api_version
        producer_id, epoch = command.producer_id, command.producer_epoch
        try:
            group = self._groups.of(request.group_id)
            group.check()
            group.check_commit(len(command.commit.entries))
        except BrokerError as error:
            return response(error)

        def commit(proof: TxnProof) -> Eventual[commit_api.Response]:
            try:
                # In the turn in which the commit is submitted: markers are written after the commits before them.
                self._groups.of(request.group_id).check_txn(producer_id, epoch, proof)
            except BrokerError as error:
                return response(error)
            return submit(self._groups, request.group_id, command, response)

        if not self._verification.required(adds=version >= OFFSETS_ADD_FROM):
            return commit(NOT_REQUIRED)
        guard = group.replica.producers.guards.begin(producer_id, epoch, NO_SEQUENCE, context.now_ms)
        proof = self._verification.of_offsets(request.transactional_id, version, group.replica, guard, epoch)
        if isinstance(proof, Deferred):
            return context.connection.hold(proof).then(commit, shielded=context.connection.report)
        return commit(proof)


def topic_results(
    topics: list[add_api.AddPartitionsToTxnTopic], code: CodeOf
) -> list[add_api.AddPartitionsToTxnTopicResult]:
    """Results in the shape of the request, with its repetitions."""

    def result(topic: add_api.AddPartitionsToTxnTopic) -> add_api.AddPartitionsToTxnTopicResult:
        return add_api.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=each(
                topic.partitions,
                lambda index: add_api.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code(TopicPartition(topic.name, index))
                ),
                at_once_max=RESULTS_AT_ONCE_MAX,
            ),
        )

    return each(topics, result, at_once_max=RESULTS_AT_ONCE_MAX)


def commit_response(request: commit_api.Request, code: Callable[[str, int], int]) -> commit_api.Response:
    """The response to a commit, in the order of the request; `code` gives the error code of each partition."""

    def result(topic: commit_api.TxnOffsetCommitRequestTopic) -> commit_api.TxnOffsetCommitResponseTopic:
        return commit_api.TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=each(
                topic.partitions,
                lambda partition: commit_api.TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code(topic.name, partition.partition_index)
                ),
                at_once_max=RESULTS_AT_ONCE_MAX,
            ),
        )

    return commit_api.Response(topics=each(request.topics, result, at_once_max=RESULTS_AT_ONCE_MAX))


def committer_error(error: BrokerError, version: int) -> BrokerError:
    if isinstance(error, CoordinatorLoadInProgress) and version < LOADING_FROM:
        return CoordinatorNotAvailable()
    return error
