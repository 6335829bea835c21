"""Asks the coordinator of a transactional id to verify or to add partitions of its transaction.

The coordinator may be on this broker, which responds at once to a verification, or on another one. Brokers ask each
other with AddPartitionsToTxn; what one turn of the loop asks of the same broker goes into one request.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from penstock.coordinator.step import Result
from penstock.metadata.image import MetadataImage
from penstock.model.deferred import Deferred, Eventual
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    CoordinatorNotAvailable,
    NotCoordinator,
    OperationNotAttempted,
    TransactionAbortable,
    UnknownServerError,
)
from penstock.model.ids import NO_COORDINATOR_EPOCH, BrokerId, CoordinatorEpoch, TopicPartition
from penstock.model.topic import NO_LEADER, TRANSACTION_STATE_TOPIC, PartitionState
from penstock.replication.peers import Peers, Purpose
from penstock.transactions.commands import AddPartitions, VerifyPartitions
from penstock.transactions.record_formats import by_topic
from penstock.transactions.service import TxnCoordinatorService
from penstock.wire import add_partitions_to_txn as add_api
from penstock.wire.api import add_partitions_to_txn as gen

Question = AddPartitions | VerifyPartitions

TRANSACTIONS_PER_REQUEST_MAX = 1_000
"""Transactions in one request to another broker."""

NO_EPOCH = -1


class Verified(NamedTuple):
    """The coordinator's response: which of the partitions are not part of the transaction, and why."""

    errors: Mapping[TopicPartition, BrokerError]
    coordinator_epoch: CoordinatorEpoch = NO_COORDINATOR_EPOCH
    """Leader epoch of the coordinator's partition; a partition that has a marker of a later one ignores the rest."""


class TxnVerifier(Protocol):
    """Asks the coordinator of a transactional id, wherever it is. Failures are errors in the response."""

    def ask(self, question: Question) -> Eventual[Verified]: ...


class LocalVerifier:
    """Asks a coordinator on this broker."""

    __slots__ = ("_coordinators",)

    def __init__(self, coordinators: TxnCoordinatorService) -> None:
        self._coordinators = coordinators

    def ask(self, question: Question) -> Eventual[Verified]:
        try:
            coordinator = self._coordinators.of(question.transactional_id)
            epoch = coordinator.epoch
            if isinstance(question, VerifyPartitions):
                # Without waiting for earlier commands to be committed: what the shard knows is what ends transactions.
                missing = coordinator.shard().missing(question)
                return Verified({tp: TransactionAbortable() for tp in missing}, epoch)
            result = coordinator.submit(question)
        except BrokerError as error:
            return refused(question, error)

        def added(result: Result) -> Verified:
            return refused(question, result) if isinstance(result, BrokerError) else Verified({}, epoch)

        if isinstance(result, Deferred):
            return result.mapped(added)  # pyright: ignore[reportUnknownMemberType]
        return added(result)


class RemoteVerifier:
    """Asks coordinators on other brokers."""

    def __init__(
        self, *, peers: Peers, call_soon: Callable[[Callable[[], object]], object], timeout_ms: Callable[[], int]
    ) -> None:
        """`call_soon` calls a function at the end of this turn of the loop."""
        self._peers = peers
        self._call_soon = call_soon
        self._timeout_ms = timeout_ms
        self._unsent: dict[tuple[BrokerId, Purpose], QuestionBatch] = {}

    def ask(self, coordinator: PartitionState, question: Question) -> Deferred[Verified]:
        """Ask the leader of the coordinator's partition.

        An addition waits until the coordinator's partition has committed it; no verification waits with it.
        """
        purpose = Purpose.VERIFICATIONS if isinstance(question, VerifyPartitions) else Purpose.TRANSACTIONS
        to = (coordinator.leader, purpose)
        batch = self._unsent.get(to)
        if batch is not None and not batch.has_room(question):
            self._send(to, batch)
            batch = None
        if batch is None:
            made = batch = self._unsent[to] = QuestionBatch()
            self._call_soon(lambda: self._send(to, made))
        return batch.add(question, CoordinatorEpoch(coordinator.leader_epoch))

    def _send(self, to: tuple[BrokerId, Purpose], batch: "QuestionBatch") -> None:
        if self._unsent.get(to) is not batch:
            return
        del self._unsent[to]
        sent = self._peers.send(*to, add_api, batch.request(), timeout_ms=float(self._timeout_ms()))
        sent.deliver_to(batch.responded, lambda _: batch.failed(CoordinatorNotAvailable()))


class QuestionBatch:
    """The questions of one AddPartitionsToTxn request; each transactional id may be in it once."""

    def __init__(self) -> None:
        self._questions: dict[str, tuple[Question, CoordinatorEpoch, Deferred[Verified]]] = {}

    def has_room(self, question: Question) -> bool:
        asked = self._questions
        return len(asked) < TRANSACTIONS_PER_REQUEST_MAX and question.transactional_id not in asked

    def add(self, question: Question, coordinator_epoch: CoordinatorEpoch) -> Deferred[Verified]:
        result: Deferred[Verified] = Deferred()
        self._questions[question.transactional_id] = (question, coordinator_epoch, result)
        return result

    def request(self) -> add_api.Request:
        """The request; a coordinator of an earlier epoch than the one asked refuses it."""
        return add_api.Request(
            transactions=[
                gen.AddPartitionsToTxnTransaction(
                    transactional_id=question.transactional_id,
                    producer_id=question.producer_id,
                    producer_epoch=question.epoch,
                    verify_only=isinstance(question, VerifyPartitions),
                    topics=[
                        gen.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
                        for topic, partitions in by_topic(question.partitions)
                    ],
                )
                for question, _, _ in self._questions.values()
            ],
            coordinator_epochs=[epoch for _, epoch, _ in self._questions.values()],
        )

    def responded(self, response: gen.Response) -> None:
        if response.error_code:
            self.failed(error_of(response.error_code))
            return
        codes = {
            (each.transactional_id, TopicPartition(topic.name, result.partition_index)): result.partition_error_code
            for each in response.results_by_transaction
            for topic in each.topic_results
            for result in topic.results_by_partition
        }
        for name, (question, coordinator_epoch, result) in self._questions.items():
            errors: dict[TopicPartition, BrokerError] = {}
            for tp in question.partitions:
                # A partition that the response leaves out is not confirmed.
                code = codes.get((name, tp), UnknownServerError.code)
                if code:
                    errors[tp] = error_of(code)
            result.resolve(Verified(errors, coordinator_epoch))

    def failed(self, error: BrokerError) -> None:
        for question, _, result in self._questions.values():
            result.resolve(refused(question, error))


class RoutedVerifier:
    """Asks the leader of the partition of `__transaction_state` that a transactional id belongs to."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        image: MetadataImage,
        coordinators: TxnCoordinatorService,
        remote: RemoteVerifier | None,
    ) -> None:
        """`remote` is None for a broker that is the only one of its cluster."""
        self._broker_id = broker_id
        self._image = image
        self._coordinators = coordinators
        self._local = LocalVerifier(coordinators)
        self._remote = remote

    def ask(self, question: Question) -> Eventual[Verified]:
        remote = self._remote
        if remote is None:
            return self._local.ask(question)
        try:
            coordinator = self._coordinator(question.transactional_id)
        except NotCoordinator as error:
            return refused(question, error)
        return self._local.ask(question) if coordinator is None else remote.ask(coordinator, question)

    def _coordinator(self, transactional_id: str) -> PartitionState | None:
        """The coordinator's partition if another broker leads it."""
        partition = self._coordinators.partition_of(transactional_id)
        state = self._image.topics[TRANSACTION_STATE_TOPIC].partitions[partition]
        return None if state.leader in (self._broker_id, NO_LEADER) else state


def refused(question: Question, error: BrokerError) -> Verified:
    return Verified(dict.fromkeys(question.partitions, error))


def error_of(code: int) -> BrokerError:
    if code == OperationNotAttempted.code:
        # The coordinator does not know another partition of the request yet: ask again.
        return CoordinatorNotAvailable()
    return ERRORS_BY_CODE.get(code, UnknownServerError)()
