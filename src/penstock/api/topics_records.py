"""DeleteRecords (21), v0 to v2, and DescribeProducers (61), v0."""

from __future__ import annotations

from functools import partial

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.model.deferred import Deferred, Eventual, after
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidTopic, PolicyViolation, RequestTimedOut
from penstock.model.ids import Offset
from penstock.model.producers import ProducerSnapshot
from penstock.model.timers import Timers
from penstock.model.topic import check_topic_name
from penstock.model.turns import Turns
from penstock.partition.replica import Replica
from penstock.partition.replicas import Replicas
from penstock.wire.api import delete_records as gone
from penstock.wire.api import describe_producers as gen
from penstock.wire.slices import each

UNKNOWN_OFFSET = -1
DESCRIBED_AT_ONCE_MAX = 16
"""Topics, and partitions of a topic, whose producers are described in one turn of the loop."""

Wait = tuple[gone.DeleteRecordsPartitionResult, Replica, Deferred[None]]
"""The result of a partition, its replica, and the waiter for the other replicas."""

COMPACT_ONLY = frozenset({"compact"})


class TopicsRecords:
    """Serves the partitions of which this broker has a replica."""

    def __init__(self, *, replicas: Replicas, timers: Timers, turns: Turns) -> None:
        self._replicas = replicas
        self._timers = timers
        self._turns = turns

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=21, versions=range(3), handle=self.delete_records),
            Api(key=61, versions=range(1), handle=self.describe_producers),
        )

    @in_turns
    async def delete_records(self, context: RequestContext, request: gone.Request) -> Eventual[gone.Response]:
        """Delete records up to an offset; of several offsets for one partition the last counts, as in Kafka.

        Responds when every live replica has deleted them, or at the deadline.
        """
        wanted: dict[str, dict[int, int]] = {}
        for topic in request.topics:
            offsets = wanted.setdefault(topic.name, {})
            offsets.update((item.partition_index, item.offset) for item in topic.partitions)
        results: list[gone.DeleteRecordsTopicResult] = []
        waits: list[Wait] = []
        for name, offsets in wanted.items():
            partitions: list[gone.DeleteRecordsPartitionResult] = []
            results.append(gone.DeleteRecordsTopicResult(name=name, partitions=partitions))
            for index, offset in offsets.items():
                partitions.append(self._delete(name, index, offset, waits))
                if self._turns.spent():
                    await self._turns.pause()
        response = gone.Response(topics=results)
        return self._wait(response, waits, request.timeout_ms) if waits else response

    def _wait(self, response: gone.Response, waits: list[Wait], timeout_ms: int) -> Eventual[gone.Response]:
        """Respond when the other replicas have deleted the records too; the deadline fails those that have not."""

        def done(result: gone.DeleteRecordsPartitionResult, replica: Replica, _: None) -> None:
            result.low_watermark = replica.low_watermark()

        def failed(result: gone.DeleteRecordsPartitionResult, error: BrokerError) -> None:
            result.low_watermark, result.error_code = UNKNOWN_OFFSET, error.code

        def expired(error: RequestTimedOut) -> list[None]:
            for result, _, wait in waits:
                if wait.abandoned:
                    result.error_code = error.code
            return []

        deleted = Deferred.all(
            [
                wait.then(partial(done, result, replica)).catch(BrokerError, partial(failed, result))
                for result, replica, wait in waits
            ]
        )
        if isinstance(deleted, Deferred):
            deleted = deleted.timeout(self._timers, max(timeout_ms, 0), RequestTimedOut).catch(RequestTimedOut, expired)
        return after(deleted, lambda _: response)

    def _delete(self, topic: str, index: int, offset: int, waits: list[Wait]) -> gone.DeleteRecordsPartitionResult:
        try:
            replica = self._replicas.get(topic, index)
            if replica.config.cleanup_policy == COMPACT_ONLY:
                # Deleting the oldest records of a compacted log would lose the last value of some keys.
                raise PolicyViolation()
            start = replica.delete_records(Offset(offset))
            result = gone.DeleteRecordsPartitionResult(partition_index=index, low_watermark=replica.low_watermark())
            wait = replica.deleted_everywhere(start)
        except BrokerError as error:
            return gone.DeleteRecordsPartitionResult(
                partition_index=index, low_watermark=UNKNOWN_OFFSET, error_code=error.code
            )
        if wait is not None:
            waits.append((result, replica, wait))
        return result

    def describe_producers(self, context: RequestContext, request: gen.Request) -> gen.Response:
        def described(topic: gen.TopicRequest) -> gen.TopicResponse:
            return gen.TopicResponse(
                name=topic.name,
                partitions=each(
                    topic.partition_indexes,
                    lambda index: self._producers(topic.name, index),
                    at_once_max=DESCRIBED_AT_ONCE_MAX,
                ),
            )

        return gen.Response(topics=each(request.topics, described, at_once_max=DESCRIBED_AT_ONCE_MAX))

    def _producers(self, topic: str, index: int) -> gen.PartitionResponse:
        try:
            check_topic_name(topic)
            replica = self._replicas.get(topic, index)
        except InvalidTopic as error:
            return gen.PartitionResponse(partition_index=index, error_code=error.code, error_message=error.wire_message)
        except BrokerError as error:
            # Kafka has a message for a missing topic, but none for a missing partition of an existing one.
            message = str(error) or None if self._replicas.topic(topic) else error.meaning()
            return gen.PartitionResponse(partition_index=index, error_code=error.code, error_message=message)
        return gen.PartitionResponse(
            partition_index=index,
            active_producers=each(replica.producers.of_clients(), producer_state),
        )


def producer_state(known: ProducerSnapshot) -> gen.ProducerState:
    return gen.ProducerState(
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        last_sequence=known.last_sequence,
        last_timestamp=known.timestamp,
        coordinator_epoch=known.coordinator_epoch,
        current_txn_start_offset=known.txn_first_offset,
    )
