"""Fetch (1), v4 to v18: read batches from partitions, waiting for them if need be.

A response has at least one batch if there is one, however large, so that a small limit never blocks a reader. Records
are sent as slices of files; a thread first reads a slice that is not in memory, and the response waits for that.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, cast

from penstock.api.in_turns import in_turns
from penstock.api.leader_hints import LeaderHints, NodeEndpoint
from penstock.api.registry import Api, RequestContext
from penstock.model.deferred import Deferred, Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerEpoch
from penstock.model.turns import Turns
from penstock.net.reply import Buffer, CloseConnection
from penstock.observe.counters import TopicTraffic
from penstock.partition.fetch import Fetches, FetchJob, FetchLimits, PartitionResult
from penstock.partition.fetch_session import NO_SESSION, CachedPartition
from penstock.partition.results import Fetched
from penstock.partition.view_reader import ViewReader
from penstock.quotas.client_quotas import ClientQuotas
from penstock.storage.slices import FileSlice
from penstock.wire.fetch import (
    PARTITIONS_PER_SLICE,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    decode_fetch,
    encode_fetch_head,
    encode_fetch_response,
    fetch_response_slices,
)

READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
TOPIC_IDS_FROM = 13
LEADERS_FROM = 16
COPY_BYTES_MAX = 16 * 1024
"""Up to this size records are copied into the response: one system call less than sending them from the file."""


class FetchResponse:
    """The response: partitions by topic, without those that have nothing new."""

    __slots__ = ("encoded", "error_code", "node_endpoints", "session_id", "throttle_time_ms", "topics")

    def __init__(self, topics: list[FetchedTopic], session_id: int = NO_SESSION, error_code: int = 0) -> None:
        self.topics = topics
        self.session_id = session_id
        self.error_code = error_code
        self.throttle_time_ms = 0
        self.node_endpoints: tuple[NodeEndpoint, ...] = ()
        """Where the leaders listen that the partitions name."""
        self.encoded: list[Buffer] | None = None
        """The encoded topics of a long response."""


def encode(response: FetchResponse, version: int) -> list[Buffer]:
    if response.encoded is not None:
        head = encode_fetch_head(
            len(response.topics), version, response.throttle_time_ms, response.error_code, response.session_id
        )
        return [head, *response.encoded]
    parts, _ = encode_fetch_response(
        response.topics,
        version,
        response.throttle_time_ms,
        response.error_code,
        response.session_id,
        response.node_endpoints,
    )
    return parts  # type: ignore[return-value]  # each is bytes, or what a replica gave as records


class Fetch:
    """Handles Fetch: quotas, cold reads and the response. `partition.fetch` reads the partitions and waits."""

    def __init__(
        self,
        *,
        fetches: Fetches,
        threads: Executor,
        loop: AbstractEventLoop,
        bytes_max: Callable[[], int],
        quotas: ClientQuotas,
        traffic: TopicTraffic,
        turns: Turns,
        hints: LeaderHints,
        views: ViewReader,
    ) -> None:
        self._hints = hints
        self._views = views
        self._turns = turns
        self._working: set[Task[None]] = set()
        """Large requests whose wait has ended."""
        self._fetches = fetches
        self._threads = threads
        self._loop = loop
        self._bytes_max = bytes_max
        self._quotas = quotas
        self._traffic = traffic

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=1, versions=range(4, 19), handle=self.handle, decode=decode_fetch, encode=encode),)

    def handle(self, context: RequestContext, request: FetchRequest) -> Eventual[FetchResponse]:
        if request.isolation_level not in ISOLATION_LEVELS:
            return refused(request, context.api_version, UnknownServerError())
        try:
            job = self._begin(context, request)
        except BrokerError as error:
            return FetchResponse([], error_code=error.code)
        if job.is_large:
            return self._handle_large(context, request, job)
        is_enough = job.read()
        if job.has_views:
            return self._handle_views(context, request, job)
        if is_enough or request.max_wait_ms <= 0:
            return self._finish(context, job)
        waited: Deferred[None] = Deferred(job.cancel)
        job.wait(request.max_wait_ms, lambda: waited.resolve(None))
        return waited.then(lambda _: self._finish(context, job))

    def _begin(self, context: RequestContext, request: FetchRequest) -> FetchJob:
        asked = [
            CachedPartition(
                name if topic_id is None else topic_id,
                item.index,
                item.fetch_offset,
                item.bytes_max,
                item.current_leader_epoch,
                item.log_start_offset,
                item.last_fetched_epoch,
                item.held_end,
                item.high_watermark,
            )
            for name, topic_id, items in request.topics
            for item in items
        ]
        forgotten = [
            (name if topic_id is None else topic_id, index)
            for name, topic_id, indexes in request.forgotten
            for index in indexes
        ]
        bytes_max = min(request.bytes_max, self._bytes_max())
        if self._quotas.enabled and request.replica_id < 0:
            allowed = self._quotas.fetch.value_max(context.user, context.client_id or "")
            bytes_max = bytes_max if allowed is None else min(bytes_max, int(allowed))
        return self._fetches.begin(
            FetchLimits(
                bytes_min=min(request.bytes_min, bytes_max),
                bytes_max=bytes_max,
                read_committed=request.isolation_level == READ_COMMITTED,
                replica_id=request.replica_id,
                replica_epoch=BrokerEpoch(request.replica_epoch),
                rack=request.rack_id,
                listener=context.connection.listener,
            ),
            session_id=request.session_id,
            epoch=request.session_epoch,
            by_topic_id=context.api_version >= TOPIC_IDS_FROM,
            asked=asked,
            forgotten=forgotten,
            now_ms=context.now_ms,
            privileged=request.replica_id >= 0,
        )

    @in_turns
    async def _handle_large(
        self, context: RequestContext, request: FetchRequest, job: FetchJob
    ) -> Eventual[FetchResponse]:
        """Serve a request for many partitions, over several turns of the loop."""
        connection = context.connection
        is_enough = await job.read_in_turns(self._turns, lambda: connection.closed)
        if job.has_views:
            return self._handle_views(context, request, job)
        if is_enough or request.max_wait_ms <= 0:
            return await self._finish_large(context, job)
        response: Deferred[FetchResponse] = Deferred(job.cancel)

        async def finish() -> None:
            try:
                if job.is_large:
                    await job.read_in_turns(self._turns, lambda: connection.closed)
                made = await self._finish_large(context, job)
            except Exception as error:
                response.fail(error)
            else:
                response.resolve(made)

        def completed() -> None:
            task = self._loop.create_task(finish())
            self._working.add(task)
            task.add_done_callback(self._working.discard)

        job.wait(request.max_wait_ms, completed)
        return response

    def _handle_views(self, context: RequestContext, request: FetchRequest, job: FetchJob) -> Deferred[FetchResponse]:
        """Serve a request for views among its partitions, which has been read once."""
        connection = context.connection
        response: Deferred[FetchResponse] = Deferred(lambda: task.cancel())

        async def serve() -> None:
            try:
                await self._views.read(job, max(request.max_wait_ms, 0), lambda: connection.closed)
                made = await self._finish_large(context, job)
            except Exception as error:
                response.fail(error)
            else:
                response.resolve(made)

        task = self._loop.create_task(serve())
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return response

    async def _finish_large(self, context: RequestContext, job: FetchJob) -> FetchResponse:
        if context.connection.closed:
            raise CloseConnection("the client of a large Fetch is gone")
        turns = self._turns
        cold: list[FileSlice] = []
        for _, outcome in job.results:
            note_cold(outcome, cold)
            if turns.spent():
                await turns.pause()
        if cold:
            try:
                await self._loop.run_in_executor(self._threads, warm_all, cold)
            except Exception as failure:
                fail_cold(job, failure)
        session_id, results, error = self._session_results(context, job)
        topics: list[FetchedTopic] = []
        for first in range(0, len(results), PARTITIONS_PER_SLICE):
            some = results[first : first + PARTITIONS_PER_SLICE]
            found = by_topic(some)
            self._complete(context, job, some, found)
            join(topics, found)
            if turns.spent():
                await turns.pause()
        response = FetchResponse(topics, session_id=session_id, error_code=error)
        response.node_endpoints = self._endpoints(context, job, topics)
        parts: list[Any] = []
        await turns.run(fetch_response_slices(topics, context.api_version, parts, response.node_endpoints))
        response.encoded = parts
        return response

    def _finish(self, context: RequestContext, job: FetchJob) -> Eventual[FetchResponse]:
        """Respond at once, or when a thread has read the slices that are not in memory."""
        cold: list[FileSlice] = []
        for _, outcome in job.results:
            note_cold(outcome, cold)
        if not cold:
            return self._respond(context, job)

        def go_on(failure: BaseException | None) -> FetchResponse:
            if failure is not None:
                fail_cold(job, failure)
            return self._respond(context, job)

        warmed: Deferred[BaseException | None] = Deferred()
        self._loop.run_in_executor(self._threads, warm_all, cold).add_done_callback(
            lambda work: warmed.resolve(work.exception())
        )
        return warmed.then(go_on)

    def _respond(self, context: RequestContext, job: FetchJob) -> FetchResponse:
        session_id, results, error = self._session_results(context, job)
        topics = by_topic(results)
        named = self._complete(context, job, results, topics)
        response = FetchResponse(topics, session_id=session_id, error_code=error)
        if named:
            response.node_endpoints = self._endpoints(context, job, topics)
        return response

    def _session_results(self, context: RequestContext, job: FetchJob) -> tuple[int, list[PartitionResult], int]:
        """The id of the session, the results to send, and the error that replaces all of them."""
        if self._quotas.enabled and not job.of_follower and self._is_throttled(context, job.bytes_read):
            # The response is empty and does not count; the client fetches again after its throttle time.
            return job.session_id, [], 0
        try:
            session_id, results = job.response(context.now_ms)
        except BrokerError as error:
            return NO_SESSION, [], error.code
        return session_id, results, 0

    def _complete(
        self, context: RequestContext, job: FetchJob, results: list[PartitionResult], topics: list[FetchedTopic]
    ) -> bool:
        """Count the bytes sent to consumers, and add the leaders of partitions that are on other brokers.

        True when a partition names its leader.
        """
        misdirected = False
        for partition, outcome in results:
            if isinstance(outcome, BrokerError):
                misdirected = misdirected or isinstance(outcome, NotLeaderOrFollower | FencedLeaderEpoch)
            elif len(outcome.records) and not job.of_follower:
                name = self._fetches.replicas.name_of(partition.topic)
                if name is not None:
                    self._traffic.row(name).bytes_out += len(outcome.records)
        if not misdirected or context.api_version < LEADERS_FROM:
            return False
        self._name_leaders(results, topics)
        return True

    def _name_leaders(self, results: list[PartitionResult], topics: list[FetchedTopic]) -> None:
        """Add the current leader to the error of a wrong broker, which saves the client a Metadata request."""
        found_all = (found for _, _, partitions in topics for found in partitions)
        for (partition, outcome), found in zip(results, found_all, strict=True):
            if isinstance(outcome, NotLeaderOrFollower | FencedLeaderEpoch):
                name = self._fetches.replicas.name_of(partition.topic)
                found.current_leader = self._hints.leader(name, partition.partition)

    def _endpoints(
        self, context: RequestContext, job: FetchJob, topics: list[FetchedTopic]
    ) -> tuple[NodeEndpoint, ...]:
        """Where the named leaders are; a follower knows it from the metadata, and Kafka does not tell it either."""
        if job.of_follower:
            return ()
        leaders = (found.current_leader for _, _, partitions in topics for found in partitions)
        return self._hints.endpoints(leaders, context.connection.listener)

    def _is_throttled(self, context: RequestContext, bytes_read: int) -> bool:
        fetch = self._quotas.fetch
        client_id = context.client_id or ""
        wait_ms = fetch.record(context.user, client_id, bytes_read, context.now_ms)
        if wait_ms:
            fetch.unrecord(context.user, client_id, bytes_read, context.now_ms)
            context.throttle(wait_ms)
        return wait_ms > 0


def note_cold(outcome: Fetched | BrokerError, cold: list[FileSlice]) -> None:
    """Copy small slices that are in memory; collect slices that are not."""
    if isinstance(outcome, Fetched):
        records = outcome.records
        if isinstance(records, FileSlice):
            if not records.resident():
                cold.append(records)
            elif len(records) <= COPY_BYTES_MAX:
                outcome.records = records.contents()


def warm_all(cold: list[FileSlice]) -> None:
    for records in cold:
        records.warm()


def fail_cold(job: FetchJob, failure: BaseException) -> None:
    """Fail the partitions whose records could not be read from the disk, and no others."""
    error = failure if isinstance(failure, BrokerError) else KafkaStorageError(str(failure))
    job.results = [
        (partition, error)
        if isinstance(outcome, Fetched) and isinstance(outcome.records, FileSlice) and not outcome.records.resident()
        else (partition, outcome)
        for partition, outcome in job.results
    ]


def refused(request: FetchRequest, version: int, error: BrokerError) -> FetchResponse:
    """Fail a request as a whole; older versions have the error in every partition too."""
    topics: list[FetchedTopic] = []
    if version < TOPIC_IDS_FROM:
        topics = [
            (name, None, [FetchedPartition(item.index, error_code=error.code, aborted=()) for item in items])
            for name, _, items in request.topics
        ]
    return FetchResponse(topics, error_code=error.code)


def by_topic(results: list[PartitionResult]) -> list[FetchedTopic]:
    """Partitions grouped by topic; a topic appears once for each run of its partitions, as in Kafka."""
    topics: list[FetchedTopic] = []
    current: object = None
    found: list[FetchedPartition] = []
    for partition, outcome in results:
        if partition.topic != current:
            current = partition.topic
            found = []
            topics.append((None, current, found) if isinstance(current, bytes) else (str(current), None, found))
        found.append(on_wire(partition, outcome))
    return topics


def join(topics: list[FetchedTopic], more: list[FetchedTopic]) -> None:
    """Append topics; the first is merged into the last one if they are the same topic."""
    if topics and more and topics[-1][:2] == more[0][:2]:
        cast("list[FetchedPartition]", topics[-1][2]).extend(more[0][2])
        more = more[1:]
    topics += more


def on_wire(partition: CachedPartition, outcome: Fetched | BrokerError) -> FetchedPartition:
    if isinstance(outcome, BrokerError):
        # Kafka's list is empty for an unknown partition, and null for one whose read failed.
        aborted_of_none = () if isinstance(outcome, UnknownTopicOrPartition | UnknownTopicId) else None
        return FetchedPartition(partition.partition, error_code=outcome.code, aborted=aborted_of_none)
    aborted = outcome.aborted
    return FetchedPartition(
        partition.partition,
        high_watermark=outcome.high_watermark,
        last_stable_offset=outcome.last_stable,
        log_start_offset=outcome.log_start,
        records=outcome.records,
        aborted=None if aborted is None else [(entry.producer_id, entry.first_offset) for entry in aborted],
        diverging_epoch=outcome.diverging,
        removals=outcome.removals,
        preferred_read_replica=outcome.preferred_replica,
    )
