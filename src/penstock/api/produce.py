"""Produce (0), v3 to v13: append one batch to each of some partitions.

v0 to v2 are advertised, because librdkafka takes their absence for a broker without compression, and refused, as their
message format is no longer stored. Each partition succeeds or fails by itself. With acks=0 there is no response, so a
failure closes the connection. From version 12 on, the partitions of a transactional request are added to its
transaction first.

Every byte of records counts toward the client's quota, stored or refused, before the request is handled.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from penstock.api.in_turns import in_turns
from penstock.api.leader_hints import LeaderHints, NodeEndpoint
from penstock.api.registry import Api, RequestContext
from penstock.api.txn_verification import (
    ALL_OPEN,
    NONE_REQUIRED,
    PRODUCE_ADDS_FROM,
    FirstBatch,
    TxnProofs,
    TxnVerification,
)
from penstock.model.batch import ATTRIBUTES_AT, HEADER_BYTES, PRODUCER, TRANSACTIONAL_FLAG
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError, wire_error
from penstock.model.generated_errors import (
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTopic,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicId,
)
from penstock.model.timers import Timer, Timers
from penstock.model.topic import INTERNAL_TOPICS
from penstock.model.turns import Turns
from penstock.net.reply import Buffer, CloseConnection
from penstock.observe.counters import TopicTraffic
from penstock.partition.redirect import Drain
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.partition.results import Appended
from penstock.quotas.client_quotas import ClientQuotas
from penstock.replication.redirects import Redirects
from penstock.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    TopicRecords,
    decode_produce,
    encode_produce_response,
)

Wait = tuple[ProducedPartition, Deferred[None]]
"""The result of a written batch, and the waiter for its acknowledgement."""

PARTITIONS_AT_ONCE_MAX = 100
"""Partitions that a request appends to in one turn of the loop; a larger request takes several turns."""

ASK_AGAIN_MS = 20
ASK_AGAIN_MAX = 5
"""Pause and number of further questions to a coordinator that still completes the transaction before, as in Kafka
(add.partitions.to.txn.retry.backoff.ms, .max.ms). A client that is refused pauses for longer: franz-go for seconds."""

LEADERS_FROM = 10
"""The first version whose response may name the leader of a partition that this broker does not lead."""

ADMIN_CLIENT = "__admin_client"
"""Client id that Kafka allows to write to internal topics."""

Unfinished = tuple[ProducedPartition, Replica, int, Awaitable[Appended]]
"""A result to fill in, its partition, the batch's bytes, and its validation off the loop."""


class ProduceResponse:
    """The response: results by topic, in the order of the request."""

    __slots__ = ("node_endpoints", "throttle_time_ms", "topics")

    def __init__(self, topics: list[ProducedTopic]) -> None:
        self.topics = topics
        self.throttle_time_ms = 0
        self.node_endpoints: tuple[NodeEndpoint, ...] = ()
        """Where the leaders listen that the results name."""


def encode(response: ProduceResponse, version: int) -> bytes | list[Buffer]:
    return encode_produce_response(response.topics, version, response.throttle_time_ms, response.node_endpoints)


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
        hints: LeaderHints,
        redirects: Redirects | None = None,
    ) -> None:
        """`redirects` is for partitions that are drained into others."""
        self._hints = hints
        self._redirects = redirects
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
        self, context: RequestContext, request: ProduceRequest, proofs: TxnProofs | None = None
    ) -> Eventual[ProduceResponse | None]:
        """Append each partition's batch. A transactional request comes here twice: `_verified` gives `proofs`."""
        if proofs is None:
            if self._quotas.enabled:
                self._charge(context, request)
            if request.transactional_id is not None:
                return self._verified(context, request, request.transactional_id)
        if not -1 <= request.acks <= 1:
            return self._all_failed(request, InvalidRequiredAcks())
        if (len(request.topics) != 1 or len(request.topics[0][2]) > PARTITIONS_AT_ONCE_MAX) and is_large(request):
            return self._append_in_turns(context, owned(request), proofs)
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
            self._append(context, request.acks, (name, topic_id, partitions), proofs, produced, unfinished, waits)
        if unfinished:
            return self._finish(context, request, topics, unfinished, waits)
        return self._reply(context, request, topics, waits)

    @in_turns
    async def _append_in_turns(
        self, context: RequestContext, request: ProduceRequest, proofs: TxnProofs | None
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
                self._append(context, request.acks, part, proofs, produced, unfinished, waits)
                if self._turns.spent():
                    await self._turns.pause()
        return self._finish(context, request, topics, unfinished, waits)

    def _append(
        self,
        context: RequestContext,
        acks: int,
        topic: TopicRecords,
        proofs: TxnProofs | None,
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
                proof = None if proofs is None else proofs.of(replica.tp)
                if isinstance(replica.detour, Drain):
                    assert self._redirects is not None, f"{replica.tp} is drained by a broker that cannot"
                    handed = self._redirects.hand_over(
                        replica, records, now_ms, acks=acks, version=version, proof=proof
                    )
                    if isinstance(handed, Deferred):
                        redirected = handed.then(partial(self._redirected, result, replica.tp.topic, size))
                        if acks == 0:
                            redirected.deliver_to(ignore, ignore)
                        else:
                            waits.append((result, redirected))
                        continue
                    replica, appended = handed
                else:
                    appended = replica.append(records, now_ms, acks_all=acks == -1, version=version, proof=proof)
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
            return self._reply(context, request, self._all_failed(request, InvalidRequest()).topics, [])
        version = context.api_version
        if not self._verification.required(adds=version >= PRODUCE_ADDS_FROM):
            return self.handle(context, request, NONE_REQUIRED)
        proofs = self._proofs(context, request, transactional_id, ASK_AGAIN_MAX if version >= PRODUCE_ADDS_FROM else 0)
        if isinstance(proofs, Deferred):
            owned(request)
            write = partial(self.handle, context, request)
            return context.connection.hold(proofs).then(write, shielded=context.connection.report)
        return self.handle(context, request, proofs)

    def _proofs(
        self, context: RequestContext, request: ProduceRequest, transactional_id: str, again: int
    ) -> Eventual[TxnProofs]:
        """Verify the first batches of a request, and so many times `again` where it is too early."""
        first_batches = self._first_batches(context, request)
        if not first_batches:
            return ALL_OPEN
        found = self._verification.of_produce(transactional_id, context.api_version, first_batches)
        return after(found, partial(self._proven, context, request, transactional_id, again)) if again else found

    def _proven(
        self, context: RequestContext, request: ProduceRequest, transactional_id: str, again: int, proofs: TxnProofs
    ) -> Eventual[TxnProofs]:
        """The proofs, or others after a pause, with new guards: the marker that it is for drops the present ones."""
        if not proofs.are_early:
            return proofs
        pause: Deferred[None] = Deferred()
        pause.on_abandon = self._timers.after_ms(ASK_AGAIN_MS, partial(pause.resolve, None)).cancel
        return pause.then(lambda _: self._proofs(context, request, transactional_id, again - 1))

    def _first_batches(self, context: RequestContext, request: ProduceRequest) -> list[FirstBatch]:
        """The batches whose transaction is not open in their partition, each with a guard for its verification."""
        found: list[FirstBatch] = []
        for name, topic_id, partitions in request.topics:
            if len(partitions) > 1:
                partitions = list(dict(partitions).items())
            for index, records in partitions:
                if records is None or len(records) < HEADER_BYTES:
                    continue
                attributes, producer_id, epoch, sequence = PRODUCER.unpack_from(records, ATTRIBUTES_AT)
                if not attributes & TRANSACTIONAL_FLAG:
                    continue
                try:
                    replica = self._replica(context, name, topic_id, index)
                except BrokerError:
                    # The append fails in the same way.
                    continue
                producers, detour = replica.producers, replica.detour
                is_open = producers.is_open if not isinstance(detour, Drain) else partial(detour.is_verified, producers)
                if not is_open(producer_id, epoch):
                    guard = producers.guards.begin(producer_id, epoch, sequence, context.now_ms)
                    found.append((replica, guard, epoch))
        return found

    def _replica(self, context: RequestContext, name: str | None, topic_id: bytes | None, index: int) -> Replica:
        if name is None:
            assert topic_id is not None
            name = self._replicas.topic_name(topic_id)
            if name is None and (view := self._replicas.views.get(topic_id)) is not None:
                name = view.name
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

    def _redirected(self, result: ProducedPartition, topic: str, size: int, appended: Appended) -> None:
        """Count a batch that another broker has appended for a drained partition, and fill in its offset there."""
        row = self._rows.get(topic) or self._traffic.row(topic)
        row.bytes_in += size
        row.records_in += appended.end - appended.base_offset
        result.base_offset = appended.base_offset
        result.log_append_time_ms = appended.log_append_time_ms
        result.log_start_offset = appended.log_start

    def _refused(self, result: ProducedPartition, error: BrokerError, topic: str | None) -> None:
        """Fill in the error of a refused batch, and count it where the topic exists."""
        self.failed(result, error)
        if topic is not None and self._replicas.topic(topic) is not None:
            self._traffic.row(topic).produce_refused += 1

    def failed(self, result: ProducedPartition, error: BaseException) -> None:
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
                self.failed(result, error)
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
        return self._reply(context, request, topics, waits)

    def _reply(
        self,
        context: RequestContext,
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
            return self.hinted(context, response)
        if len(waits) == 1:
            return self._wait_for_one(context, response, waits[0], request.timeout_ms)
        return self._wait(context, response, waits, request.timeout_ms)

    def hinted(self, context: RequestContext, response: ProduceResponse) -> ProduceResponse:
        """Add the leaders of partitions that this broker does not lead, and where they listen."""
        for _, _, results in response.topics:
            for result in results:
                if result.error_code:
                    return self._with_leaders(context, response)
        return response

    def _with_leaders(self, context: RequestContext, response: ProduceResponse) -> ProduceResponse:
        misdirected = False
        for name, topic_id, results in response.topics:
            for result in results:
                if result.error_code == NotLeaderOrFollower.code and context.api_version >= LEADERS_FROM:
                    misdirected = True
                    topic = self._replicas.name_of(topic_id if name is None else name)
                    result.current_leader = self._hints.leader(topic, result.index)
        if misdirected:
            leaders = (result.current_leader for _, _, results in response.topics for result in results)
            response.node_endpoints = self._hints.endpoints(leaders, context.connection.listener)
        return response

    def _wait(
        self, context: RequestContext, response: ProduceResponse, waits: list[Wait], timeout_ms: int
    ) -> Eventual[ProduceResponse | None]:
        """Respond when every batch has the requested acknowledgement, or at the deadline with the errors of the others.

        The deadline abandons the waiters: a disk or a follower may hang for longer than clients retry.
        """

        def expired(_: RequestTimedOut) -> list[None]:
            for result, wait in waits:
                if wait.abandoned:
                    self.failed(result, self.overdue())
            return []

        safe = Deferred.all([wait.catch(Exception, partial(self.failed, result)) for result, wait in waits])
        if isinstance(safe, Deferred):
            safe = safe.timeout(self._timers, max(timeout_ms, 0), RequestTimedOut).catch(RequestTimedOut, expired)
        return after(safe, lambda _: self.hinted(context, response))

    def overdue(self) -> BrokerError:
        """The error of a batch that was not acknowledged in time.

        While this broker cannot know whether it still leads, it is the one after which clients look for the leader.
        """
        return NotLeaderOrFollower() if self._replicas.cluster.may_be_deposed() else RequestTimedOut()

    def _wait_for_one(
        self, context: RequestContext, response: ProduceResponse, waited: Wait, timeout_ms: int
    ) -> Deferred[ProduceResponse | None]:
        """`_wait` for one batch, without what joins several: every request with acks=all comes here."""
        result, wait = waited
        one = _OneWait(self, context, response, result, wait)
        one.timer = self._timers.after_ms(max(timeout_ms, 0), one.expired)
        wait.deliver_to(one.finish, one.failed)
        return one.responded


class _OneWait:
    """A request whose only batch waits for its acknowledgement."""

    __slots__ = ("_context", "_produce", "_response", "_result", "_wait", "responded", "timer")

    timer: Timer

    def __init__(
        self,
        produce: Produce,
        context: RequestContext,
        response: ProduceResponse,
        result: ProducedPartition,
        wait: Deferred[None],
    ) -> None:
        self._produce = produce
        self._context = context
        self._response = response
        self._result = result
        self._wait = wait
        self.responded: Deferred[ProduceResponse | None] = Deferred(self.abandoned)

    def expired(self) -> None:
        self._wait.abandon()
        self.failed(self._produce.overdue())

    def failed(self, error: Exception) -> None:
        self._produce.failed(self._result, error)
        self.finish(None)

    def finish(self, _: None) -> None:
        self.timer.cancel()
        self.responded.resolve(self._produce.hinted(self._context, self._response))

    def abandoned(self) -> None:
        self.timer.cancel()
        self._wait.abandon()


def ignore(_: object) -> None:
    """Nothing waits for a batch without acknowledgement."""


def is_large(request: ProduceRequest) -> bool:
    return len(request.topics) + sum(len(parts) for _, _, parts in request.topics) > PARTITIONS_AT_ONCE_MAX


def owned(request: ProduceRequest) -> ProduceRequest:
    """The request with copies of its batches, which outlive the connection's buffer."""
    request.topics = [
        (name, topic_id, [(index, None if raw is None else memoryview(bytearray(raw))) for index, raw in parts])
        for name, topic_id, parts in request.topics
    ]
    return request
