"""ElectLeaders (43), AlterPartitionReassignments (45) and ListPartitionReassignments (46), every version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.controller.leaders import Election
from penstock.controller.reassignments import Reassignment
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    ElectionNotNeeded,
    InvalidRequest,
    NoReassignmentInProgress,
)
from penstock.model.ids import BrokerId, TopicPartition
from penstock.model.topic import NO_LEADER, PartitionState
from penstock.model.turns import Turns
from penstock.wire.api import alter_partition_reassignments as altered
from penstock.wire.api import elect_leaders as elected
from penstock.wire.api import list_partition_reassignments as listed
from penstock.wire.slices import each

TYPED_FROM = 1


class TopicsReplicas:
    """Elections and reassignments."""

    def __init__(self, *, controller: Controller, turns: Turns) -> None:
        self._controller = controller
        self._image = controller.image
        self._turns = turns

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=43, versions=range(3), handle=self.elect_leaders, forwarded=True),
            Api(key=45, versions=range(2), handle=self.alter_partition_reassignments, forwarded=True),
            Api(key=46, versions=range(1), handle=self.list_partition_reassignments, forwarded=True),
        )

    @in_turns
    async def elect_leaders(self, context: RequestContext, request: elected.Request) -> elected.Response:
        kind = request.election_type if context.api_version >= TYPED_FROM else Election.PREFERRED
        if kind not in tuple(Election):
            return self._refused(request, InvalidRequest(f"Unknown election type {kind}"))
        election = Election(kind)
        if request.topic_partitions is None:
            wanted: list[TopicPartition] = []
            await self._turns.run(self._needing(election, wanted))
        else:
            wanted = [
                TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions
            ]
        try:
            outcomes = await self._controller.elect_leaders(election, wanted)
        except BrokerError as error:
            return self._refused(request, error)
        errors = {
            tp: None if isinstance(each, PartitionState) else each for tp, each in zip(wanted, outcomes, strict=True)
        }
        if request.topic_partitions is None:
            errors = {tp: error for tp, error in errors.items() if not isinstance(error, ElectionNotNeeded)}
        return elected.Response(replica_election_results=election_results(errors))

    def _needing(self, election: Election, wanted: list[TopicPartition]) -> Iterator[None]:
        """Collect the partitions that an election of all of them is about. The caller may pause between two steps."""
        for topic in list(self._image.topics.values()):
            for state in topic.partitions:
                is_led = not state.is_ghost and state.leader == state.replicas[0]
                if not is_led and not state.is_ghost and (election is Election.PREFERRED or state.leader == NO_LEADER):
                    wanted.append(TopicPartition(topic.name, state.index))
                yield

    def _refused(self, request: elected.Request, error: BrokerError) -> elected.Response:
        topics = request.topic_partitions or []
        errors = {TopicPartition(topic.topic, index): error for topic in topics for index in topic.partitions}
        return elected.Response(error_code=error.code, replica_election_results=election_results(errors))

    @in_turns
    async def alter_partition_reassignments(
        self, context: RequestContext, request: altered.Request
    ) -> altered.Response:
        wanted = [
            Reassignment(
                tp=TopicPartition(topic.name, partition.partition_index),
                replicas=None if partition.replicas is None else tuple(map(BrokerId, partition.replicas)),
            )
            for topic in request.topics
            for partition in topic.partitions
        ]
        response = altered.Response(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None if request.topics else "",
        )
        try:
            outcomes = iter(
                await self._controller.reassign(wanted, allow_factor_change=request.allow_replication_factor_change)
            )
        except BrokerError as error:
            response.error_code, response.error_message = error.code, error.wire_message
            return response
        # In the order of the request, as the outcomes are.
        response.responses = [
            altered.ReassignableTopicResponse(
                name=topic.name,
                partitions=[reassigned(partition.partition_index, next(outcomes)) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
        return response

    @in_turns
    async def list_partition_reassignments(self, context: RequestContext, request: listed.Request) -> listed.Response:
        found: dict[str, list[listed.OngoingPartitionReassignment]] = {}
        await self._turns.run(self._ongoing(request, found))
        topics = [
            listed.OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in found.items()
        ]
        return listed.Response(error_message=None, topics=topics)

    def _ongoing(
        self, request: listed.Request, found: dict[str, list[listed.OngoingPartitionReassignment]]
    ) -> Iterator[None]:
        """Collect the reassignments in progress. The caller may pause between two steps."""
        for name, indexes in self._listed(request):
            topic = self._image.topics.get(name)
            if topic is None:
                continue
            for index in range(len(topic.partitions)) if indexes is None else indexes:
                if 0 <= index < len(topic.partitions) and topic.partitions[index].is_reassigning:
                    found.setdefault(name, []).append(ongoing(topic.partitions[index]))
                yield

    def _listed(self, request: listed.Request) -> Iterator[tuple[str, Sequence[int] | None]]:
        if request.topics is None:
            for name in list(self._image.topics):
                yield name, None
        else:
            for topic in request.topics:
                yield topic.name, topic.partition_indexes


def reassigned(index: int, outcome: PartitionState | BrokerError) -> altered.ReassignablePartitionResponse:
    if isinstance(outcome, PartitionState):
        return altered.ReassignablePartitionResponse(partition_index=index, error_message=None)
    message = None if isinstance(outcome, NoReassignmentInProgress) else outcome.wire_message
    return altered.ReassignablePartitionResponse(partition_index=index, error_code=outcome.code, error_message=message)


def ongoing(state: PartitionState) -> listed.OngoingPartitionReassignment:
    return listed.OngoingPartitionReassignment(
        partition_index=state.index,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
    )


def election_results(errors: Mapping[TopicPartition, BrokerError | None]) -> list[elected.ReplicaElectionResult]:
    """The results by topic, made as they are written."""
    topics: dict[str, list[tuple[int, BrokerError | None]]] = {}
    for tp, error in errors.items():
        topics.setdefault(tp.topic, []).append((tp.partition, error))
    return [
        elected.ReplicaElectionResult(topic=name, partition_result=each(partitions, election_result))
        for name, partitions in topics.items()
    ]


def election_result(outcome: tuple[int, BrokerError | None]) -> elected.PartitionResult:
    index, error = outcome
    if error is None:
        return elected.PartitionResult(partition_id=index, error_message=None)
    return elected.PartitionResult(partition_id=index, error_code=error.code, error_message=error.wire_message)
