"""ElectLeaders (43), AlterPartitionReassignments (45) and ListPartitionReassignments (46), every version.

Every partition has one replica, on this broker, which leads it: an election is never needed, and a reassignment can
only name that replica.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.controller.topics import check_replicas
from penstock.model.deferred import Eventual
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from penstock.model.ids import BrokerId
from penstock.model.topic import PartitionState
from penstock.model.turns import Turns
from penstock.wire.api import alter_partition_reassignments as altered
from penstock.wire.api import elect_leaders as elected
from penstock.wire.api import list_partition_reassignments as listed
from penstock.wire.slices import each

PREFERRED = 0
UNCLEAN = 1
TYPED_FROM = 1
TOPICS_AT_ONCE_MAX = 16
"""Topics whose results are made in one turn of the loop."""


class TopicsReplicas:
    """Elections and reassignments in a cluster of one broker."""

    def __init__(self, *, controller: Controller, turns: Turns) -> None:
        self._image = controller.image
        self._turns = turns

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=43, versions=range(3), handle=self.elect_leaders),
            Api(key=45, versions=range(2), handle=self.alter_partition_reassignments),
            Api(key=46, versions=range(1), handle=self.list_partition_reassignments),
        )

    def elect_leaders(self, context: RequestContext, request: elected.Request) -> Eventual[elected.Response]:
        election = request.election_type if context.api_version >= TYPED_FROM else PREFERRED
        if request.topic_partitions is None:
            return self._elect_all(context, election)
        wrong: BrokerError | None = None
        if election not in (PREFERRED, UNCLEAN):
            wrong = InvalidRequest(f"Unknown election type {election}")

        def result(topic: elected.TopicPartitions) -> elected.ReplicaElectionResult:
            return elected.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=each(
                    topic.partitions,
                    lambda partition: election_result(
                        partition, wrong or self._elect(topic.topic, partition, election)
                    ),
                ),
            )

        return elected.Response(
            error_code=wrong.code if wrong else 0,
            replica_election_results=each(request.topic_partitions, result, at_once_max=TOPICS_AT_ONCE_MAX),
        )

    @in_turns
    async def _elect_all(self, context: RequestContext, election: int) -> elected.Response:
        """Elect leaders of all partitions; the response lists only those where that fails."""
        results: list[elected.ReplicaElectionResult] = []
        await self._turns.run(self._elections(election, results))
        return elected.Response(replica_election_results=results)

    def _elections(self, election: int, results: list[elected.ReplicaElectionResult]) -> Iterator[None]:
        """Elect partition by partition, and add the failures to the results. The caller may pause between two steps."""
        for topic in list(self._image.topics.values()):
            failures: list[elected.PartitionResult] = []
            for state in topic.partitions:
                error = self._election(state, election)
                if not isinstance(error, ElectionNotNeeded):
                    failures.append(election_result(state.index, error))
                yield
            if failures:
                results.append(elected.ReplicaElectionResult(topic=topic.name, partition_result=failures))

    def _elect(self, name: str, index: int, election: int) -> BrokerError:
        try:
            state = self._partition(
                name, index, no_topic=f"No such topic as {name}", no_partition=f"No such partition as {name}-{index}"
            )
        except UnknownTopicOrPartition as error:
            return error
        return self._election(state, election)

    def _election(self, state: PartitionState, election: int) -> BrokerError:
        led = state.leader in self._image.brokers
        if led and (election == UNCLEAN or state.leader == state.replicas[0]):
            return ElectionNotNeeded()
        return EligibleLeadersNotAvailable() if election == UNCLEAN else PreferredLeaderNotAvailable()

    def _partition(self, name: str, index: int, *, no_topic: str, no_partition: str) -> PartitionState:
        topic = self._image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(no_topic)
        if not 0 <= index < len(topic.partitions):
            raise UnknownTopicOrPartition(no_partition)
        return topic.partitions[index]

    def alter_partition_reassignments(self, context: RequestContext, request: altered.Request) -> altered.Response:
        def result(topic: altered.ReassignableTopic) -> altered.ReassignableTopicResponse:
            return altered.ReassignableTopicResponse(
                name=topic.name,
                partitions=each(topic.partitions, lambda partition: self._reassign(topic.name, partition)),
            )

        responses = each(request.topics, result, at_once_max=TOPICS_AT_ONCE_MAX)
        return altered.Response(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None if request.topics else "",
            responses=responses,
        )

    def _reassign(self, name: str, wanted: altered.ReassignablePartition) -> altered.ReassignablePartitionResponse:
        index = wanted.partition_index
        try:
            state = self._partition(
                name,
                index,
                no_topic=f"Unable to find a topic named {name}.",
                no_partition=f"Unable to find partition {name}:{index}.",
            )
            if wanted.replicas is None:
                raise NoReassignmentInProgress()
            check_replicas(self._image, list(map(BrokerId, wanted.replicas)), None)
            assert tuple(wanted.replicas) == state.replicas, "one broker, each replica once"
        except BrokerError as error:
            message = None if isinstance(error, NoReassignmentInProgress) else error.wire_message
            return altered.ReassignablePartitionResponse(
                partition_index=index, error_code=error.code, error_message=message
            )
        return altered.ReassignablePartitionResponse(partition_index=index, error_message=None)

    def list_partition_reassignments(self, context: RequestContext, request: listed.Request) -> listed.Response:
        return listed.Response(error_message=None)


def election_result(index: int, error: BrokerError) -> elected.PartitionResult:
    return elected.PartitionResult(partition_id=index, error_code=error.code, error_message=error.wire_message)
