"""CreateTopics (19), DeleteTopics (20) and CreatePartitions (37), every version.

A response goes out when the change is on the disk and this broker serves the topic, so the timeout is not used.
"""

from __future__ import annotations

from collections import Counter

from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.config.describe import describe_topic
from penstock.controller.controller import Controller
from penstock.controller.topics import Growth, NewTopic
from penstock.metadata.live_config import LiveConfig
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest, UnknownTopicId, UnknownTopicOrPartition
from penstock.model.ids import TOPIC_ID_ZERO, BrokerId, TopicId
from penstock.model.topic import TopicState
from penstock.model.turns import Turns
from penstock.wire.api import create_partitions as grown
from penstock.wire.api import create_topics as made
from penstock.wire.api import delete_topics as gone
from penstock.wire.slices import each

CONFIGS_SENT_FROM = 5
IDS_FROM = 6


class Topics:
    """Passes changes of topics to the controller, and responds with their outcomes."""

    def __init__(self, *, controller: Controller, config: LiveConfig, turns: Turns) -> None:
        self._turns = turns
        self._controller = controller
        self._config = config

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=19, versions=range(2, 8), handle=self.create_topics, forwarded=True),
            Api(key=20, versions=range(1, 7), handle=self.delete_topics, forwarded=True),
            Api(key=37, versions=range(4), handle=self.create_partitions, forwarded=True),
        )

    @in_turns
    async def create_topics(self, context: RequestContext, request: made.Request) -> made.Response:
        times = Counter(topic.name for topic in request.topics)
        wanted = [topic for topic in request.topics if times[topic.name] == 1]
        try:
            outcomes = await self._controller.create_topics(
                [new_topic(topic) for topic in wanted],
                validate_only=request.validate_only,
                wait_ms=request.timeout_ms,
            )
        except BrokerError as error:
            outcomes = (error,) * len(wanted)
        results: list[made.CreatableTopicResult] = []
        for topic, outcome in zip(wanted, outcomes, strict=True):
            results.append(self._created(topic.name, outcome, context.api_version))
            if self._turns.spent():
                await self._turns.pause()
        results += [
            refused_topic(name, InvalidRequest("Duplicate topic name.")) for name, count in times.items() if count > 1
        ]
        return made.Response(topics=results)

    def _created(self, name: str, outcome: TopicState | BrokerError, version: int) -> made.CreatableTopicResult:
        if isinstance(outcome, BrokerError):
            return refused_topic(name, outcome)
        configs: list[made.CreatableTopicConfigs] = []
        if version >= CONFIGS_SENT_FROM:
            configs = [
                made.CreatableTopicConfigs(
                    name=entry.name,
                    # The value as the client sent it, which DescribeConfigs does not show.
                    value=outcome.configs.get(entry.name, entry.value),
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in describe_topic(outcome.configs, self._config.current)
            ]
        return made.CreatableTopicResult(
            name=name,
            topic_id=outcome.topic_id,
            error_message=None,
            num_partitions=len(outcome.partitions),
            replication_factor=len(outcome.partitions[0].replicas),
            configs=configs,
        )

    @in_turns
    async def delete_topics(self, context: RequestContext, request: gone.Request) -> gone.Response:
        if context.api_version < IDS_FROM:
            asked = [gone.DeleteTopicState(name=name) for name in request.topic_names]
        else:
            asked = request.topics
        results: list[gone.DeletableTopicResult] = []
        wanted = self._deletable(asked, results)
        if results:
            # A refusal needs a current image, as a deletion does.
            try:
                await self._controller.confirm()
            except BrokerError as error:
                return gone.Response(
                    responses=[
                        gone.DeletableTopicResult(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            error_code=error.code,
                            error_message=error.wire_message,
                        )
                        for topic in asked
                    ]
                )
            results = []
            wanted = self._deletable(asked, results)
        try:
            outcomes = await self._controller.delete_topics([key for key, _ in wanted], wait_ms=request.timeout_ms)
        except BrokerError as error:
            outcomes = (error,) * len(wanted)
        for (_, result), outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                # The topic was deleted meanwhile: the result keeps the client's name or id only.
                result.error_code, result.error_message = outcome.code, outcome.wire_message
            else:
                result.name, result.topic_id = outcome.name, outcome.topic_id
            results.append(result)
        return gone.Response(responses=results)

    def _deletable(
        self, asked: list[gone.DeleteTopicState], results: list[gone.DeletableTopicResult]
    ) -> list[tuple[str | TopicId, gone.DeletableTopicResult]]:
        """The topics to delete, each once; invalid ones are added to `results` with their error."""
        times = Counter((topic.name, topic.topic_id) for topic in asked)
        image = self._controller.image
        wanted: list[tuple[str | TopicId, gone.DeletableTopicResult]] = []
        named = {
            topic.topic_id
            for name, topic_id in times
            if name is not None and not any(topic_id) and (topic := image.shown(name)) is not None
        }
        for name, topic_id in times:
            if name is None and topic_id in named:
                # The request also has the topic's name: Kafka has one error for both.
                continue
            result = gone.DeletableTopicResult(name=name, topic_id=topic_id)
            key: str | TopicId = TopicId(topic_id) if name is None else name
            try:
                check_named_once(name, topic_id, times[name, topic_id])
                topic = image.shown(name) if name is not None else image.shown_by_id(TopicId(topic_id))
                if topic is None:
                    raise UnknownTopicId() if name is None else UnknownTopicOrPartition()
                if name is not None and (None, topic.topic_id) in times:
                    result.topic_id = topic.topic_id
                    raise InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            except BrokerError as error:
                result.error_code, result.error_message = error.code, error.wire_message
                results.append(result)
                continue
            wanted.append((key, result))
        return wanted

    @in_turns
    async def create_partitions(self, context: RequestContext, request: grown.Request) -> grown.Response:
        times = Counter([topic.name for topic in request.topics])
        wanted = [topic for topic in request.topics if times[topic.name] == 1]
        growths: list[Growth] = []
        for topic in wanted:
            growths.append(growth(topic))
            if self._turns.spent():
                await self._turns.pause()
        try:
            outcomes = await self._controller.grow_topics(
                growths, validate_only=request.validate_only, wait_ms=request.timeout_ms
            )
        except BrokerError as error:
            outcomes = (error,) * len(wanted)
        repeated = InvalidRequest("Duplicate topic name.")
        results: list[tuple[str, TopicState | BrokerError]] = [(name, repeated) for name in times if times[name] > 1]
        results += [(topic.name, outcome) for topic, outcome in zip(wanted, outcomes, strict=True)]
        return grown.Response(results=each(results, lambda one: grown_result(*one)))


def new_topic(topic: made.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((item.partition_index, tuple(map(BrokerId, item.broker_ids))) for item in topic.assignments),
        configs=tuple((config.name, config.value) for config in topic.configs),
    )


def growth(topic: grown.CreatePartitionsTopic) -> Growth:
    assignments = (
        None
        if topic.assignments is None
        else tuple(tuple(map(BrokerId, item.broker_ids)) for item in topic.assignments)
    )
    return Growth(name=topic.name, count=topic.count, assignments=assignments)


def refused_topic(name: str, error: BrokerError) -> made.CreatableTopicResult:
    return made.CreatableTopicResult(name=name, error_code=error.code, error_message=error.wire_message)


def grown_result(name: str, outcome: TopicState | BrokerError) -> grown.CreatePartitionsTopicResult:
    if not isinstance(outcome, BrokerError):
        return grown.CreatePartitionsTopicResult(name=name)
    # Kafka's message for a missing topic is null here.
    message = str(outcome) or None
    return grown.CreatePartitionsTopicResult(name=name, error_code=outcome.code, error_message=message)


def check_named_once(name: str | None, topic_id: bytes, times: int) -> None:
    if name is not None and topic_id != TOPIC_ID_ZERO:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if name is None and topic_id == TOPIC_ID_ZERO:
        raise InvalidRequest("Neither topic name nor id were specified.")
    if times > 1:
        raise InvalidRequest("Duplicate topic name." if name is not None else "Duplicate topic id.")
