"""The requests of the share coordinator on the wire: what brokers ask of each other, and the commands in them.

All five have one shape: a group, topics, partitions, and in the response a result for each partition.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.coordinator.step import Result
from penstock.model.error_codes import ERRORS_BY_CODE
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import UnknownServerError
from penstock.model.ids import LeaderEpoch, Offset, TopicId
from penstock.shares.persister import (
    ACKNOWLEDGED,
    ARCHIVED,
    UNKNOWN_COUNT,
    SharePartitionState,
    SharePartitionSummary,
    StateBatch,
)
from penstock.shares.state.commands import (
    DONE,
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateCommand,
    WriteState,
)
from penstock.wire import share_states
from penstock.wire.api import delete_share_group_state as delete_api
from penstock.wire.api import initialize_share_group_state as initialize_api
from penstock.wire.api import read_share_group_state as read_api
from penstock.wire.api import read_share_group_state_summary as summary_api
from penstock.wire.api import write_share_group_state as write_api
from penstock.wire.channel import Codec
from penstock.wire.share_records import ShareKey

Place = tuple[TopicId, int]
"""A topic's id and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One kind of request: how its commands and results are written and read."""

    codec: Codec
    request: Callable[..., Any]
    topic: Callable[..., Any]
    response: Callable[..., Any]
    topic_result: Callable[..., Any]
    partition_of: Callable[[Any], Any]
    """The part of a request that has a command."""
    command_of: Callable[[ShareKey, Any], StateCommand]
    result_of: Callable[[int, Result], Any]
    """The part of a response that has the result for a partition."""
    read_result: Callable[[Any], Result]

    def request_of(self, group: str, commands: Iterable[StateCommand]) -> Any:
        """The request with these commands, all of one group."""
        topics: dict[bytes, list[Any]] = {}
        for command in commands:
            assert command.key.group == group, f"a command of {command.key.group} among those of {group}"
            topics.setdefault(command.key.topic_id, []).append(self.partition_of(command))
        return self.request(
            group_id=group,
            topics=[self.topic(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
        )

    def commands_of(self, request: Any) -> list[StateCommand]:
        """The commands of a request, in order."""
        return [
            self.command_of(ShareKey(request.group_id, topic.topic_id, part.partition), part)
            for topic in request.topics
            for part in topic.partitions
        ]

    def response_of(self, request: Any, results: Sequence[Result]) -> Any:
        """The response with these results, in the order of the request."""
        left = iter(results)
        return self.response(
            results=[
                self.topic_result(
                    topic_id=topic.topic_id,
                    partitions=[self.result_of(part.partition, next(left)) for part in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def results_of(self, response: Any) -> Mapping[Place, Result]:
        """The results in a response."""
        return {
            (TopicId(topic.topic_id), result.partition): error_of(result) or self.read_result(result)
            for topic in response.results
            for result in topic.partitions
        }


def error_of(result: Any) -> BrokerError | None:
    """The error of a partition; None if it has none."""
    if not result.error_code:
        return None
    return ERRORS_BY_CODE.get(result.error_code, UnknownServerError)(result.error_message or "")


def failure(kind: Callable[..., Any], partition: int, error: BrokerError) -> Any:
    """The result of a partition that failed; the message is Kafka's where it has none of its own."""
    return kind(partition=partition, error_code=error.code, error_message=error.wire_message)


def done(kind: Callable[..., Any]) -> Callable[[int, Result], Any]:
    """The results of a request that only says whether it was carried out."""

    def result_of(partition: int, result: Result) -> Any:
        if isinstance(result, BrokerError):
            return failure(kind, partition, result)
        return kind(partition=partition)

    return result_of


def completed(batches: Iterable[StateBatch]) -> int:
    """How many records are final: a ReadShareGroupState response does not say."""
    return sum(each.last - each.first + 1 for each in batches if each.state in (ACKNOWLEDGED, ARCHIVED))


# Reading


def read_partition(command: ReadState) -> read_api.PartitionData:
    return read_api.PartitionData(partition=command.key.partition, leader_epoch=command.leader_epoch)


def read_command(key: ShareKey, part: read_api.PartitionData) -> ReadState:
    return ReadState(key=key, leader_epoch=part.leader_epoch)


def state_result(partition: int, result: Result) -> read_api.PartitionResult:
    if isinstance(result, BrokerError):
        failed: read_api.PartitionResult = failure(read_api.PartitionResult, partition, result)
        return failed
    assert isinstance(result, SharePartitionState), f"the state of a share partition: {result}"
    return read_api.PartitionResult(
        partition=partition,
        state_epoch=result.state_epoch,
        start_offset=result.start_offset,
        state_batches=[
            share_states.ReadBatch(
                first_offset=each.first,
                last_offset=each.last,
                delivery_state=each.state,
                delivery_count=each.deliveries,
                not_before_ms=each.not_before_ms,
            )
            for each in result.batches
        ],
    )


def read_state(result: read_api.PartitionResult) -> SharePartitionState:
    batches: list[StateBatch] = []
    for each in result.state_batches:
        assert isinstance(each, share_states.ReadBatch), f"a batch of a broker: {each}"
        batches.append(
            StateBatch(
                each.first_offset, each.last_offset, each.delivery_state, each.delivery_count, each.not_before_ms
            )
        )
    return SharePartitionState(
        state_epoch=result.state_epoch,
        start_offset=Offset(result.start_offset),
        delivery_complete_count=UNKNOWN_COUNT if result.start_offset < 0 else completed(batches),
        batches=tuple(batches),
    )


READ = Exchange(
    codec=share_states.READ_STATES,
    request=read_api.Request,
    topic=read_api.ReadStateData,
    response=read_api.Response,
    topic_result=read_api.ReadStateResult,
    partition_of=read_partition,
    command_of=read_command,
    result_of=state_result,
    read_result=read_state,
)


# Writing


def write_partition(command: WriteState) -> write_api.PartitionData:
    return write_api.PartitionData(
        partition=command.key.partition,
        state_epoch=command.state_epoch,
        leader_epoch=command.leader_epoch,
        start_offset=command.start_offset,
        delivery_complete_count=command.delivery_complete_count,
        state_batches=[
            share_states.WriteBatch(
                first_offset=each.first,
                last_offset=each.last,
                delivery_state=each.state,
                delivery_count=each.deliveries,
                not_before_ms=each.not_before_ms,
            )
            for each in command.batches
        ],
    )


def write_command(key: ShareKey, part: write_api.PartitionData) -> WriteState:
    batches: list[StateBatch] = []
    for each in part.state_batches:
        assert isinstance(each, share_states.WriteBatch), f"a batch of a broker: {each}"
        batches.append(
            StateBatch(
                each.first_offset, each.last_offset, each.delivery_state, each.delivery_count, each.not_before_ms
            )
        )
    return WriteState(
        key=key,
        state_epoch=part.state_epoch,
        leader_epoch=part.leader_epoch,
        start_offset=part.start_offset,
        delivery_complete_count=part.delivery_complete_count,
        batches=tuple(batches),
    )


WRITE = Exchange(
    codec=share_states.WRITE_STATES,
    request=write_api.Request,
    topic=write_api.WriteStateData,
    response=write_api.Response,
    topic_result=write_api.WriteStateResult,
    partition_of=write_partition,
    command_of=write_command,
    result_of=done(write_api.PartitionResult),
    read_result=lambda _: DONE,
)


# Beginning and ending


def initialize_partition(command: InitializeState) -> initialize_api.PartitionData:
    return initialize_api.PartitionData(
        partition=command.key.partition, state_epoch=command.state_epoch, start_offset=command.start_offset
    )


def initialize_command(key: ShareKey, part: initialize_api.PartitionData) -> InitializeState:
    return InitializeState(key=key, state_epoch=part.state_epoch, start_offset=part.start_offset)


INITIALIZE = Exchange(
    codec=initialize_api,
    request=initialize_api.Request,
    topic=initialize_api.InitializeStateData,
    response=initialize_api.Response,
    topic_result=initialize_api.InitializeStateResult,
    partition_of=initialize_partition,
    command_of=initialize_command,
    result_of=done(initialize_api.PartitionResult),
    read_result=lambda _: DONE,
)


def delete_partition(command: DeleteState) -> delete_api.PartitionData:
    return delete_api.PartitionData(partition=command.key.partition)


def delete_command(key: ShareKey, part: delete_api.PartitionData) -> DeleteState:
    return DeleteState(key=key)


DELETE = Exchange(
    codec=delete_api,
    request=delete_api.Request,
    topic=delete_api.DeleteStateData,
    response=delete_api.Response,
    topic_result=delete_api.DeleteStateResult,
    partition_of=delete_partition,
    command_of=delete_command,
    result_of=done(delete_api.PartitionResult),
    read_result=lambda _: DONE,
)


# Summaries


def summary_partition(command: ReadSummary) -> summary_api.PartitionData:
    return summary_api.PartitionData(partition=command.key.partition, leader_epoch=command.leader_epoch)


def summary_command(key: ShareKey, part: summary_api.PartitionData) -> ReadSummary:
    return ReadSummary(key=key, leader_epoch=part.leader_epoch)


def summary_result(partition: int, result: Result) -> summary_api.PartitionResult:
    if isinstance(result, BrokerError):
        failed: summary_api.PartitionResult = failure(summary_api.PartitionResult, partition, result)
        return failed
    assert isinstance(result, SharePartitionSummary), f"the summary of a share partition: {result}"
    return summary_api.PartitionResult(
        partition=partition,
        state_epoch=result.state_epoch,
        leader_epoch=result.leader_epoch,
        start_offset=result.start_offset,
        delivery_complete_count=result.delivery_complete_count,
    )


def read_summary(result: summary_api.PartitionResult) -> SharePartitionSummary:
    return SharePartitionSummary(
        state_epoch=result.state_epoch,
        leader_epoch=LeaderEpoch(result.leader_epoch),
        start_offset=Offset(result.start_offset),
        delivery_complete_count=result.delivery_complete_count,
    )


SUMMARY = Exchange(
    codec=summary_api,
    request=summary_api.Request,
    topic=summary_api.ReadStateSummaryData,
    response=summary_api.Response,
    topic_result=summary_api.ReadStateSummaryResult,
    partition_of=summary_partition,
    command_of=summary_command,
    result_of=summary_result,
    read_result=read_summary,
)

EXCHANGES: Mapping[type[StateCommand], Exchange] = {
    ReadState: READ,
    WriteState: WRITE,
    InitializeState: INITIALIZE,
    DeleteState: DELETE,
    ReadSummary: SUMMARY,
}
