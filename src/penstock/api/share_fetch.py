"""ShareFetch (78) and ShareAcknowledge (79), v1 to v2: members of share groups get records and say what became of them.

A ShareFetch may carry acknowledgements: they are taken before it reads, and its response waits for both. A response
names the partitions that gave something or failed, those that the request acknowledged, and new ones of the session.

Deliberate differences from Kafka: a fetch of an unknown topic fails in that topic, not as a whole; a client over its
fetch quota gets what it has acquired, and is throttled after it; batches without records, as control batches, are
handed out only beside records, else finished by the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from penstock.api.in_turns import in_turns
from penstock.api.leader_hints import LeaderHints
from penstock.api.registry import Api, RequestContext
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidShareSessionEpoch,
    NotLeaderOrFollower,
    ShareSessionLimitReached,
    UnknownServerError,
    UnsupportedVersion,
)
from penstock.model.ids import TopicId
from penstock.model.timers import Timers
from penstock.model.turns import Turns
from penstock.net.connection import Connection
from penstock.net.reply import Buffer
from penstock.observe.counters import TopicTraffic
from penstock.quotas.client_quotas import ClientQuotas
from penstock.shares.fetch import PARTITIONS_AT_ONCE_MAX, Shared, ShareFetches, ShareFetchJob, ShareFetchLimits
from penstock.shares.sessions import (
    EPOCH_FINAL,
    EPOCH_INITIAL,
    SessionKey,
    SharedPartition,
    ShareSession,
    ShareSessions,
)
from penstock.shares.share_partition import GAP, REJECT, RENEW, Acknowledged
from penstock.storage.slices import FileSlice
from penstock.wire.api import share_acknowledge, share_fetch
from penstock.wire.share_fetch import encode_share_fetch_response

MEMBER_ID_LENGTH_MAX = 36
RENEW_FROM = 2
"""The first version that renews locks."""

BATCH_OPTIMIZED = 0
RECORD_LIMIT = 1
COPY_BYTES_MAX = 16 * 1024
"""Up to this size records are copied into the response: one system call less than sending them from the file."""


class AckBatch(Protocol):
    """The acknowledgements of a range of offsets, in either request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


Acks: TypeAlias = Mapping[SharedPartition, Sequence[AckBatch]]
AckResults: TypeAlias = dict[SharedPartition, BrokerError | None]
"""What became of the acknowledgements of each partition that has some."""


class ShareFetch:
    """Handles ShareFetch and ShareAcknowledge: sessions, acknowledgements, and what `shares.fetch` acquires."""

    def __init__(
        self,
        *,
        fetches: ShareFetches,
        sessions: ShareSessions,
        timers: Timers,
        turns: Turns,
        hints: LeaderHints,
        quotas: ClientQuotas,
        traffic: TopicTraffic,
        bytes_max: Callable[[], int],
        sessions_max: Callable[[], int],
        is_enabled: Callable[[], bool],
    ) -> None:
        """`is_enabled` says whether the cluster has share groups."""
        self._fetches = fetches
        self._led = fetches.led
        self._sessions = sessions
        self._timers = timers
        self._turns = turns
        self._hints = hints
        self._quotas = quotas
        self._traffic = traffic
        self._bytes_max = bytes_max
        self._sessions_max = sessions_max
        self._is_enabled = is_enabled

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=78, versions=range(1, 3), handle=self.fetch, encode=encode_fetched),
            Api(key=79, versions=range(1, 3), handle=self.acknowledge),
        )

    # ShareFetch

    def fetch(self, context: RequestContext, request: share_fetch.Request) -> Eventual[share_fetch.Response]:
        epoch = request.share_session_epoch
        try:
            key = self._key(request.group_id, request.member_id)
            if request.is_renew_ack:
                check_only_renews(request)
            if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
                raise UnknownServerError
            acks = {
                SharedPartition(TopicId(topic.topic_id), each.partition_index): each.acknowledgement_batches
                for topic in request.topics
                for each in topic.partitions
            }
            session = self._session(context, request, key, acks)
        except ShareSessionLimitReached as error:
            # A client that tried again at once would take the turns of others.
            return self._later(request.max_wait_ms, share_fetch.Response(error_code=error.code))
        except BrokerError as error:
            return share_fetch.Response(error_code=error.code)
        renews = request.is_renew_ack if context.api_version >= RENEW_FROM else None
        acks = {each: batches for each, batches in acks.items() if batches}
        reads = epoch != EPOCH_FINAL and not renews
        if len(acks) > PARTITIONS_AT_ONCE_MAX or (reads and len(session.partitions) > PARTITIONS_AT_ONCE_MAX):
            return self._fetch_large(context, request, session, acks, renews, reads)
        acked = self._acknowledge(key, acks, renews)
        fetched = self._fetch(context, request, session) if reads else None
        return self._both(context, request, session, acked, fetched)

    def _both(
        self,
        context: RequestContext,
        request: share_fetch.Request,
        session: ShareSession,
        acked: Eventual[AckResults],
        fetched: Eventual[ShareFetchJob] | None,
    ) -> Eventual[share_fetch.Response]:
        """The response when the acknowledgements are written, and the fetch has something or has waited."""

        both: list[Any] = [acked, fetched]

        def respond(results: list[Any]) -> share_fetch.Response:
            acks, job = results
            return self._fetched(context, request, session, acks, job)

        return after(Deferred.all(both), respond)

    @in_turns
    async def _fetch_large(
        self,
        context: RequestContext,
        request: share_fetch.Request,
        session: ShareSession,
        acks: Acks,
        renews: bool | None,
        reads: bool,
    ) -> Eventual[share_fetch.Response]:
        """Serve a request for many partitions, over several turns of the loop, without a least number of bytes."""
        acked = await self._acknowledge_in_turns(session.key, acks, renews)
        fetched: Eventual[ShareFetchJob] | None = None
        if reads:
            limits = self._limits(context, request)._replace(bytes_min=0)
            job = self._fetches.begin(session.key.group, session.key.member, (), limits)
            connection = context.connection
            is_over = await job.read_in_turns(session.rotated(), self._turns, lambda: connection.closed)
            is_over = is_over or connection.closed or (request.max_wait_ms <= 0 and not job.is_warming)
            if is_over:
                job.leave()
            fetched = job if is_over else self._wait(request, session, job)
        return self._both(context, request, session, acked, fetched)

    async def _acknowledge_in_turns(self, key: SessionKey, acks: Acks, renews: bool | None) -> Eventual[AckResults]:
        items = list(acks.items())
        parts: list[Eventual[AckResults]] = []
        for first in range(0, len(items), PARTITIONS_AT_ONCE_MAX):
            parts.append(self._acknowledge(key, dict(items[first : first + PARTITIONS_AT_ONCE_MAX]), renews))
            if self._turns.spent():
                await self._turns.pause()
        return after(Deferred.all(parts), lambda found: {each: error for part in found for each, error in part.items()})

    def _later(self, wait_ms: int, response: share_fetch.Response) -> Deferred[share_fetch.Response]:
        later: Deferred[share_fetch.Response] = Deferred()
        later.on_abandon = self._timers.after_ms(wait_ms, partial(later.resolve, response)).cancel
        return later

    def _session(
        self, context: RequestContext, request: share_fetch.Request, key: SessionKey, acks: Acks
    ) -> ShareSession:
        """The session of a fetch, updated and with its next epoch."""
        if request.share_session_epoch != EPOCH_INITIAL:
            session = self._sessions.resume(key, request.share_session_epoch)
            if request.share_session_epoch != EPOCH_FINAL:
                forgotten = (
                    SharedPartition(TopicId(topic.topic_id), index)
                    for topic in request.forgotten_topics_data
                    for index in topic.partitions
                )
                session.update(acks, forgotten)
            return session
        if any(acks.values()):
            raise InvalidRequest
        connection = context.connection
        session = self._sessions.open(key, connection, acks, sessions_max=self._sessions_max())
        connection.when_closed(self._connection_closed)
        return session

    def _limits(self, context: RequestContext, request: share_fetch.Request) -> ShareFetchLimits:
        bytes_max = min(request.max_bytes, self._bytes_max())
        if self._quotas.enabled:
            allowed = self._quotas.fetch.value_max(context.user, context.client_id or "")
            bytes_max = bytes_max if allowed is None else min(bytes_max, int(allowed))
        return ShareFetchLimits(
            records_max=request.max_records,
            records_exact=request.share_acquire_mode == RECORD_LIMIT,
            batch_size=request.batch_size,
            bytes_min=min(request.min_bytes, bytes_max),
            bytes_max=bytes_max,
        )

    def _fetch(
        self, context: RequestContext, request: share_fetch.Request, session: ShareSession
    ) -> Eventual[ShareFetchJob]:
        key = session.key
        job = self._fetches.begin(key.group, key.member, session.rotated(), self._limits(context, request))
        if job.is_over or job.read() or (request.max_wait_ms <= 0 and not job.is_warming):
            return job
        return self._wait(request, session, job)

    def _wait(self, request: share_fetch.Request, session: ShareSession, job: ShareFetchJob) -> Deferred[ShareFetchJob]:
        waited: Deferred[ShareFetchJob] = Deferred(job.cancel)
        session.waiting = job
        job.wait(request.max_wait_ms, partial(waited.resolve, job))
        return waited

    def _fetched(
        self,
        context: RequestContext,
        request: share_fetch.Request,
        session: ShareSession,
        acks: AckResults,
        job: ShareFetchJob | None,
    ) -> share_fetch.Response:
        """The response to a fetch whose acknowledgements are written and which has waited."""
        epoch = request.share_session_epoch
        if epoch == EPOCH_FINAL:
            self._end_session(session.key)
        elif not self._sessions.is_current(session) or not session.follows(epoch):
            return share_fetch.Response(error_code=InvalidShareSessionEpoch.code)
        response = share_fetch.Response(acquisition_lock_timeout_ms=self._lock_ms(session.key.group))
        topics: dict[TopicId, share_fetch.ShareFetchableTopicResponse] = {}
        results = {} if job is None else job.results
        named: Iterable[SharedPartition] = ()
        if job is not None and job.has_fetched and len(session.partitions) <= PARTITIONS_AT_ONCE_MAX:
            # Of a larger session, only partitions with something to say.
            named = session.partitions
        bytes_sent = 0
        for partition in dict.fromkeys((*named, *results, *acks)):
            result, acked = results.get(partition), acks.get(partition)
            has_news = isinstance(result, Shared) and bool(result.acquired)
            is_named = session.names(partition, has_news=has_news, failed=isinstance(result, BrokerError))
            if not (is_named or partition in acks or epoch == EPOCH_INITIAL):
                continue
            data = partition_data(partition, result, acked)
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = share_fetch.ShareFetchableTopicResponse(
                    topic_id=partition.topic_id
                )
                response.responses.append(topic)
            topic.partitions.append(data)
            if isinstance(result, Shared):
                bytes_sent += self._count(partition, result)
            for error in (result, acked):
                if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch):
                    self._name_leader(context, partition, data.current_leader, response.node_endpoints)
        if bytes_sent and self._quotas.enabled:
            self._throttle(context, bytes_sent)
        return response

    def _count(self, partition: SharedPartition, shared: Shared) -> int:
        size = len(shared.records)
        name = self._led.replicas.topic_name(partition.topic_id) if size else None
        if name is not None:
            self._traffic.row(name).bytes_out += size
        return size

    def _throttle(self, context: RequestContext, bytes_sent: int) -> None:
        wait_ms = self._quotas.fetch.record(context.user, context.client_id or "", bytes_sent, context.now_ms)
        if wait_ms:
            context.throttle(wait_ms)

    def _name_leader(
        self,
        context: RequestContext,
        partition: SharedPartition,
        named: share_fetch.LeaderIdAndEpoch | share_acknowledge.LeaderIdAndEpoch,
        endpoints: list[share_fetch.NodeEndpoint] | list[share_acknowledge.NodeEndpoint],
    ) -> None:
        """Add the current leader to the error of a wrong broker, and where it listens."""
        name = self._led.replicas.topic_name(partition.topic_id)
        leader = self._hints.leader(name, partition.partition)
        if leader is None:
            return
        named.leader_id, named.leader_epoch = leader
        known = {each.node_id for each in endpoints}
        for node_id, host, port, rack in self._hints.endpoints((leader,), context.connection.listener):
            if node_id not in known:
                endpoints.append(share_fetch.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack))  # type: ignore[arg-type]

    # ShareAcknowledge

    def acknowledge(
        self, context: RequestContext, request: share_acknowledge.Request
    ) -> Eventual[share_acknowledge.Response]:
        epoch = request.share_session_epoch
        try:
            key = self._key(request.group_id, request.member_id)
            if epoch == EPOCH_INITIAL:
                raise InvalidShareSessionEpoch
            self._sessions.resume(key, epoch)
        except BrokerError as error:
            return share_acknowledge.Response(error_code=error.code)
        acks = {
            SharedPartition(TopicId(topic.topic_id), each.partition_index): each.acknowledgement_batches
            for topic in request.topics
            for each in topic.partitions
        }
        if not any(acks.values()):
            # As in Kafka: partitions without acknowledgements get a response only beside others.
            acks = {}
        renews = request.is_renew_ack if context.api_version >= RENEW_FROM else None
        if len(acks) > PARTITIONS_AT_ONCE_MAX:
            return self._acknowledge_large(context, key, epoch, acks, renews)
        return after(self._acknowledge(key, acks, renews), partial(self._acknowledged, context, key, epoch))

    @in_turns
    async def _acknowledge_large(
        self, context: RequestContext, key: SessionKey, epoch: int, acks: Acks, renews: bool | None
    ) -> Eventual[share_acknowledge.Response]:
        """Serve a request for many partitions, over several turns of the loop."""
        acked = await self._acknowledge_in_turns(key, acks, renews)
        return after(acked, partial(self._acknowledged, context, key, epoch))

    def _acknowledged(
        self, context: RequestContext, key: SessionKey, epoch: int, acks: AckResults
    ) -> share_acknowledge.Response:
        if epoch == EPOCH_FINAL:
            self._end_session(key)
        response = share_acknowledge.Response(acquisition_lock_timeout_ms=self._lock_ms(key.group))
        topics: dict[TopicId, share_acknowledge.ShareAcknowledgeTopicResponse] = {}
        for partition, error in acks.items():
            data = share_acknowledge.PartitionData(partition_index=partition.partition)
            if error is not None:
                data.error_code, data.error_message = error.code, str(error) or None
            if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch):
                self._name_leader(context, partition, data.current_leader, response.node_endpoints)
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=partition.topic_id)
                topics[partition.topic_id] = topic
                response.responses.append(topic)
            topic.partitions.append(data)
        return response

    # Both

    def _key(self, group: str | None, member: str | None) -> SessionKey:
        if not self._is_enabled():
            raise UnsupportedVersion
        if group is None or not member or len(member) > MEMBER_ID_LENGTH_MAX:
            raise InvalidRequest
        return SessionKey(group, member)

    def _lock_ms(self, group: str) -> int:
        return self._led.settings.of(group).limits.lock_ms

    def _acknowledge(self, key: SessionKey, acks: Acks, renews: bool | None) -> Eventual[AckResults]:
        """Take the acknowledgements of a request; their results when they are written.

        `renews` says whether the request is one to renew locks; None where its version has none.
        """
        results: AckResults = {}
        writes: list[Deferred[None]] = []
        for partition, batches in acks.items():
            results[partition] = None
            if not batches:
                continue
            try:
                ranges = checked(batches, renews)
                write = self._led.acknowledged(key.group, partition).acknowledge(key.member, ranges)
            except BrokerError as error:
                results[partition] = error
                continue
            if write is not None:
                writes.append(write.catch(BrokerError, partial(results.__setitem__, partition)))
        return after(Deferred.all(writes), lambda _: results)

    def _connection_closed(self, connection: Connection) -> None:
        for key in self._sessions.of_connection(connection):
            self._end_session(key)

    def _end_session(self, key: SessionKey) -> None:
        """End a member's session, and release what it holds."""
        session = self._sessions.remove(key)
        if session is None:
            return
        for led in self._led.of_group(key.group):
            released = led.release(key.member)
            if released is not None:
                released.deliver_to(forget, forget)
        self._led.session_ended(key.group)


def check_only_renews(request: share_fetch.Request) -> None:
    """Raise unless a request that renews locks asks for no records."""
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise InvalidRequest


def checked(batches: Iterable[AckBatch], renews: bool | None) -> list[Acknowledged]:
    """The acknowledgements of a partition, if they are well formed."""
    ranges: list[Acknowledged] = []
    before = -1
    kind_max = REJECT if renews is None else RENEW
    for batch in batches:
        first, last, kinds = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < before:
            raise InvalidRequest
        if not kinds or (len(kinds) > 1 and len(kinds) != last + 1 - first):
            raise InvalidRequest
        if min(kinds) < GAP or max(kinds) > kind_max or (not renews and RENEW in kinds):
            raise InvalidRequest
        before = last
        ranges.append(Acknowledged(first, last, kinds))
    return ranges


def partition_data(
    partition: SharedPartition, result: Shared | BrokerError | None, acked: BrokerError | None
) -> share_fetch.PartitionData:
    data = share_fetch.PartitionData(partition_index=partition.partition, records=b"")
    if isinstance(result, BrokerError):
        data.error_code = result.code
    elif result is not None:
        data.records = sendable(result.records)  # type: ignore[assignment]  # The encoder takes slices of files.
        data.acquired_records = [
            share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=deliveries)
            for first, last, deliveries in result.acquired
        ]
    if acked is not None:
        data.acknowledge_error_code, data.acknowledge_error_message = acked.code, str(acked) or None
    return data


def sendable(records: FileSlice | bytes) -> FileSlice | bytes:
    if isinstance(records, FileSlice) and len(records) <= COPY_BYTES_MAX:
        return records.contents()
    return records


def encode_fetched(response: share_fetch.Response, version: int) -> list[Buffer]:
    return encode_share_fetch_response(response)  # type: ignore[return-value]  # Each is bytes, or a slice of a file.


def forget(_: object) -> None:
    """The result of a release that nobody waits for; a failed one leaves the records to the expiry of their locks."""
