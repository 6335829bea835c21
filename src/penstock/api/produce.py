"""Produce (0), v3 to v13: append one batch to each of some partitions.

v0 to v2 are advertised, because librdkafka takes their absence for a broker without compression, and refused, as their
message format is no longer stored. Each partition succeeds or fails by itself. With acks=0 there is no response, so a
failure closes the connection. From version 12 on, the partitions of a transactional request are added to its
transaction first.

Every byte of records counts toward the client's quota, stored or refused, before the request is handled.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from functools import partial

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.api.txn_verification import PRODUCE_ADDS_FROM, TxnVerification
from penstock.model.batch import HEADER_BYTES, TRANSACTIONAL_FLAG
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError, wire_error
from penstock.model.generated_errors import (
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTopic,
    RequestTimedOut,
    UnknownTopicId,
)
from penstock.model.ids import ProducerEpoch, ProducerId, TopicPartition
from penstock.model.timers import Timers
from penstock.model.topic import INTERNAL_TOPICS
from penstock.model.turns import Turns
from penstock.net.reply import Buffer, CloseConnection
from penstock.observe.counters import TopicTraffic
from penstock.partition.replica import Replica, VerifyTxn
from penstock.partition.replicas import Replicas
from penstock.partition.results import Appended
from penstock.quotas.client_quotas import ClientQuotas
from penstock.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    TopicRecords,
    decode_produce,
    encode_produce_response,
)
from penstock.wire.records import parse_batch_header

Wait = tuple[ProducedPartition, Deferred[None]]
"""The result of a written batch, and the waiter for its acknowledgement."""

PARTITIONS_AT_ONCE_MAX = 100
"""Partitions that a request appends to in one turn of the loop; a larger request takes several turns."""

ADMIN_CLIENT = "__admin_client"
"""Client id that Kafka allows to write to internal topics."""

Unfinished = tuple[ProducedPartition, Replica, int, Awaitable[Appended]]
"""A result to fill in, its partition, the batch's bytes, and its validation off the loop."""


class ProduceResponse:
    """The response: results by topic, in the order of the request."""

    __slots__ = ("throttle_time_ms", "topics")

    def __init__(self, topics: list[ProducedTopic]) -> None:
        self.topics = topics
        self.throttle_time_ms = 0


def encode(response: ProduceResponse, version: int) -> bytes | list[Buffer]:
    return encode_produce_response(response.topics, version, response.throttle_time_ms)


class Produce:
    """The write path."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        timers: Timers,
        quotas: ClientQuotas,
        traffic: TopicTraffic,
        verification: TxnVerification,
        turns: Turns,
    ) -> None:
        self._turns = turns
        self._replicas = replicas
        self._timers = timers
        self._quotas = quotas
        self._traffic = traffic
        self._rows = traffic.rows
        self._verification = verification

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(
                key=0,
                versions=range(3, 14),
                handle=self.handle,
                decode=decode_produce,
                encode=encode,
                borrows_frame=True,
                advertised_min=0,
            ),
        )

    def handle(
        self, context: RequestContext, request: ProduceRequest, verify_txn: VerifyTxn | None = None
    ) -> Eventual[ProduceResponse | None]:
        """Append each partition's batch. A transactional request comes here twice: `_verified` gives `verify_txn`."""
        if verify_txn is None:
            if self._quotas.enabled:
                self._charge(context, request)
            if request.transactional_id is not None:
                return self._verified(context, request, request.transactional_id)
        if not -1 <= request.acks <= 1:
            return self._all_failed(request, InvalidRequiredAcks())
        if (len(request.topics) != 1 or len(request.topics[0][2]) > PARTITIONS_AT_ONCE_MAX) and is_large(request):
            return self._append_in_turns(context, owned(request), verify_txn)
        topics: list[ProducedTopic] = []
        unfinished: list[Unfinished] = []
        waits: list[Wait] = []
        for name, topic_id, partitions in request.topics:
            if len(partitions) > 1:
                # Of several batches for one partition the last counts, as in Kafka.
                partitions = list(dict(partitions).items())
            produced: list[ProducedPartition] = []
            if partitions:
                topics.append((name, topic_id, produced))
            self._append(context, request.acks, (name, topic_id, partitions), verify_txn, produced, unfinished, waits)
        if unfinished:
            return self._finish(context, request, topics, unfinished, waits)
        return self._reply(request, topics, waits)

    @in_turns
    async def _append_in_turns(
        self, context: RequestContext, request: ProduceRequest, verify_txn: VerifyTxn | None
    ) -> Eventual[ProduceResponse | None]:
        """Append to many partitions, over several turns of the loop."""
        topics: list[ProducedTopic] = []
        unfinished: list[Unfinished] = []
        waits: list[Wait] = []
        for name, topic_id, partitions in request.topics:
            distinct = list(dict(partitions).items())
            produced: list[ProducedPartition] = []
            if partitions:
                topics.append((name, topic_id, produced))
            for partition in distinct:
                part = (name, topic_id, [partition])
                self._append(context, request.acks, part, verify_txn, produced, unfinished, waits)
                if self._turns.spent():
                    await self._turns.pause()
        return self._finish(context, request, topics, unfinished, waits)

    def _append(
        self,
        context: RequestContext,
        acks: int,
        topic: TopicRecords,
        verify_txn: VerifyTxn | None,
        produced: list[ProducedPartition],
        unfinished: list[Unfinished],
        waits: list[Wait],
    ) -> None:
        """Append the batches of one topic, and fill in the result of each."""
        name, topic_id, partitions = topic
        now_ms, version = context.now_ms, context.api_version
        for index, records in partitions:
            result = ProducedPartition(index)
            produced.append(result)
            try:
                replica = self._replica(context, name, topic_id, index)
                size = 0 if records is None else len(records)
                appended = replica.append(records, now_ms, acks_all=acks == -1, version=version, verify_txn=verify_txn)
                if not isinstance(appended, Appended):
                    unfinished.append((result, replica, size, appended))
                    continue
                wait = self._succeeded(result, replica, size, appended, acks)
                if wait is not None:
                    waits.append((result, wait))
            except BrokerError as error:
                self._refused(result, error, self._replicas.name_of(topic_id if name is None else name))

    def _charge(self, context: RequestContext, request: ProduceRequest) -> None:
        size = sum(len(records) for _, _, parts in request.topics for _, records in parts if records is not None)
        wait_ms = self._quotas.produce.record(context.user, context.client_id or "", size, context.now_ms)
        context.throttle(wait_ms)

    def _verified(
        self, context: RequestContext, request: ProduceRequest, transactional_id: str
    ) -> Eventual[ProduceResponse | None]:
        """Handle a transactional request again, with its verification, once its partitions are in the transaction."""
        if not transactional_id:
            return self._reply(request, self._all_failed(request, InvalidRequest()).topics, [])
        version = context.api_version
        producer, partitions = self._to_add(context, request) if version >= PRODUCE_ADDS_FROM else (None, ())
        if producer is None:
            return self.handle(context, request, self._verification.of_produce(transactional_id, version))

        def write(refusal: BrokerError | None) -> Eventual[ProduceResponse | None]:
            return self.handle(context, request, self._verification.of_produce(transactional_id, version, refusal))

        added = self._verification.add(transactional_id, *producer, partitions)
        if isinstance(added, Deferred):
            owned(request)
            return context.connection.hold(added).then(write, shielded=context.connection.report)
        return write(added)

    def _to_add(
        self, context: RequestContext, request: ProduceRequest
    ) -> tuple[tuple[ProducerId, ProducerEpoch] | None, tuple[TopicPartition, ...]]:
        """Producer id and epoch of a request, and its partitions that have no records of the transaction yet."""
        producer: tuple[ProducerId, ProducerEpoch] | None = None
        found: list[TopicPartition] = []
        for name, topic_id, partitions in request.topics:
            for index, records in partitions:
                if records is None or len(records) < HEADER_BYTES:
                    continue
                header = parse_batch_header(records)
                with suppress(BrokerError):
                    replica = self._replica(context, name, topic_id, index)
                    id_, epoch = header.producer_id, header.producer_epoch
                    if header.attributes & TRANSACTIONAL_FLAG and not replica.producers.is_open(id_, epoch):
                        producer = producer or (id_, epoch)
                        found.append(replica.tp)
        return producer, tuple(found)

    def _replica(self, context: RequestContext, name: str | None, topic_id: bytes | None, index: int) -> Replica:
        if name is None:
            assert topic_id is not None
            name = self._replicas.topic_name(topic_id)
            if name is None:
                raise UnknownTopicId
        if name in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT:
            raise InvalidTopic(f"Cannot append to internal topic {name}")
        return self._replicas.get(name, index)

    def _succeeded(
        self, result: ProducedPartition, replica: Replica, size: int, appended: Appended, acks: int
    ) -> Deferred[None] | None:
        """Count a batch of `size` bytes and fill in its offset; returns the waiter for its acknowledgement, if any."""
        topic = replica.tp.topic
        row = self._rows.get(topic) or self._traffic.row(topic)
        row.bytes_in += size
        row.records_in += appended.end - appended.base_offset
        result.base_offset = appended.base_offset
        result.log_append_time_ms = appended.log_append_time_ms
        result.log_start_offset = appended.log_start
        if acks == 0:
            return None
        return replica.committed(appended.end) if acks == -1 else replica.durable(appended.end)

    def _refused(self, result: ProducedPartition, error: BrokerError, topic: str | None) -> None:
        """Fill in the error of a refused batch, and count it where the topic exists."""
        self._failed(result, error)
        if topic is not None and self._replicas.topic(topic) is not None:
            self._traffic.row(topic).produce_refused += 1

    def _failed(self, result: ProducedPartition, error: BaseException) -> None:
        """Fill in an error, with the log start if the log itself refused the batch: producers may need it."""
        result.error_code, _ = wire_error(error)
        result.error_message = str(error) or None
        result.base_offset = result.log_append_time_ms = result.log_start_offset = -1
        if isinstance(error, BrokerError):
            result.log_start_offset = error.log_start
            result.record_errors = error.record_errors or ()

    def _all_failed(self, request: ProduceRequest, error: BrokerError) -> ProduceResponse:
        topics: list[ProducedTopic] = []
        for name, topic_id, partitions in request.topics:
            produced = [ProducedPartition(index) for index, _ in partitions]
            for result in produced:
                self._failed(result, error)
            topics.append((name, topic_id, produced))
        return ProduceResponse(topics)

    @in_turns
    async def _finish(
        self,
        context: RequestContext,
        request: ProduceRequest,
        topics: list[ProducedTopic],
        unfinished: list[Unfinished],
        waits: list[Wait],
    ) -> Eventual[ProduceResponse | None]:
        """Append batches that are validated off the loop, in order, before the next request is read."""
        for result, replica, size, work in unfinished:
            try:
                wait = self._succeeded(result, replica, size, await work, request.acks)
                if wait is not None:
                    waits.append((result, wait))
            except BrokerError as error:
                self._refused(result, error, replica.tp.topic)
        return self._reply(request, topics, waits)

    def _reply(
        self,
        request: ProduceRequest,
        topics: list[ProducedTopic],
        waits: list[Wait],
    ) -> Eventual[ProduceResponse | None]:
        if request.acks == 0:
            for _, _, results in topics:
                for result in results:
                    if result.error_code:
                        raise CloseConnection(f"a produce without acknowledgement failed: {result.error_message}")
            return None
        response = ProduceResponse(topics)
        if not waits:
            return response
        return self._wait(response, waits, request.timeout_ms)

    def _wait(self, response: ProduceResponse, waits: list[Wait], timeout_ms: int) -> Eventual[ProduceResponse | None]:
        """Respond when every batch has the requested acknowledgement, or at the deadline with the errors of the others.

        The deadline abandons the waiters: a disk or a follower may hang for longer than clients retry.
        """

        def expired(error: RequestTimedOut) -> list[None]:
            for result, wait in waits:
                if wait.abandoned:
                    self._failed(result, error)
            return []

        safe = Deferred.all([wait.catch(Exception, partial(self._failed, result)) for result, wait in waits])
        if isinstance(safe, Deferred):
            safe = safe.timeout(self._timers, max(timeout_ms, 0), RequestTimedOut).catch(RequestTimedOut, expired)
        return after(safe, lambda _: response)


def is_large(request: ProduceRequest) -> bool:
    return len(request.topics) + sum(len(parts) for _, _, parts in request.topics) > PARTITIONS_AT_ONCE_MAX


def owned(request: ProduceRequest) -> ProduceRequest:
    """The request with copies of its batches, which outlive the connection's buffer."""
    request.topics = [
        (name, topic_id, [(index, None if raw is None else memoryview(bytearray(raw))) for index, raw in parts])
        for name, topic_id, parts in request.topics
    ]
    return request
