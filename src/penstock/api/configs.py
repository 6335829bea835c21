"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44) and ListConfigResources (74), every version.

Topics, brokers and groups have settings, and loggers have levels (`penstock.api.logger_levels`). The broker does not
collect metrics from clients, so a subscription is described as empty and cannot be created.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from penstock.api.in_turns import in_turns
from penstock.api.logger_levels import LoggerLevels
from penstock.api.registry import Api, RequestContext
from penstock.config.describe import (
    Entry,
    describe_broker,
    describe_dynamic_defaults,
    describe_ghosts,
    describe_group,
    describe_topic,
)
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, Step, node_id
from penstock.controller.controller import Controller
from penstock.metadata.live_config import LiveConfig
from penstock.metadata.records import ALL_BROKERS, NO_CONFIGS
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest, UnknownTopicOrPartition, UnsupportedVersion
from penstock.model.topic import check_topic_name
from penstock.observe.log import Levels
from penstock.wire.api import alter_configs as replaced
from penstock.wire.api import describe_configs as gen
from penstock.wire.api import incremental_alter_configs as stepped
from penstock.wire.api import list_config_resources as listed
from penstock.wire.slices import each

DESCRIBED_AT_ONCE_MAX = 4
"""Resources of one request that are described in one turn of the loop."""

DESCRIBED_KEPT_MAX = 16
"""Results kept in case that the same request repeats a resource."""

TYPES_LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


class Configs:
    """Describes settings with their sources, and passes changes to the controller."""

    def __init__(self, *, controller: Controller, config: LiveConfig, levels: Levels) -> None:
        self._controller = controller
        self._loggers = LoggerLevels(levels, lambda: config.current.broker_id)
        self._image = controller.image
        self._config = config

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(key=32, versions=range(1, 5), handle=self.describe_configs),
            Api(key=33, versions=range(3), handle=self.alter_configs, forwarded=True, is_local=has_loggers),
            Api(key=44, versions=range(2), handle=self.incremental_alter_configs, forwarded=True, is_local=has_loggers),
            Api(key=74, versions=range(2), handle=self.list_config_resources),
        )

    def describe_configs(self, context: RequestContext, request: gen.Request) -> gen.Response:
        """Describe the resources; a repeated one is in the response as often, as in Kafka, but computed once."""
        described_already: dict[tuple[int, str, tuple[str, ...]], gen.DescribeConfigsResult] = {}

        def describe(resource: gen.DescribeConfigsResource) -> gen.DescribeConfigsResult:
            key = (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ()))
            result = described_already.get(key)
            if result is None:
                if len(described_already) >= DESCRIBED_KEPT_MAX:
                    described_already.clear()
                result = described_already[key] = self._describe(resource, request)
            return result

        return gen.Response(results=each(request.resources, describe, at_once_max=DESCRIBED_AT_ONCE_MAX))

    def _describe(self, resource: gen.DescribeConfigsResource, request: gen.Request) -> gen.DescribeConfigsResult:
        result = gen.DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        # An empty list of keys requests all of them, as null does.
        names = resource.configuration_keys or None
        try:
            if resource.resource_type == ResourceType.BROKER_LOGGER:
                self._check_own_loggers(resource.resource_name)
                result.configs = self._loggers.described(names)
                return result
            entries = self._entries(resource.resource_type, resource.resource_name, names)
        except BrokerError as error:
            result.error_code = error.code
            # Kafka's message for a missing topic is empty here.
            result.error_message = "" if isinstance(error, UnknownTopicOrPartition) else error.wire_message
            return result
        result.configs = [
            described(entry, synonyms=request.include_synonyms, documentation=request.include_documentation)
            for entry in entries
        ]
        return result

    def _entries(self, resource_type: int, name: str, names: list[str] | None) -> list[Entry]:
        match resource_type:
            case ResourceType.TOPIC:
                check_topic_name(name)
                topic = self._image.shown(name)
                if topic is None:
                    raise UnknownTopicOrPartition()
                ghosts = [state.index for state in topic.partitions if state.is_ghost]
                settings = describe_topic(topic.configs, self._config.current, names)
                return [*settings, *describe_ghosts(ghosts, names)]
            case ResourceType.BROKER:
                if not name:
                    return describe_dynamic_defaults(self._config.current, names)
                self._check_this_broker(name, f"{self._config.current.broker_id} or empty string,")
                return describe_broker(self._config.current, names)
            case ResourceType.CLIENT_METRICS:
                if not name:
                    raise InvalidRequest("Client metrics subscription name must not be empty")
                return []
            case ResourceType.GROUP:
                if not name:
                    raise InvalidRequest("Group name must not be empty")
                return describe_group(self._image.group_configs.get(name, NO_CONFIGS), self._config.current, names)
            case _:
                raise InvalidRequest()

    def _check_own_loggers(self, name: str) -> None:
        if not name:
            raise InvalidRequest("Broker id must not be empty")
        self._check_this_broker(name, str(self._config.current.broker_id))

    def _check_this_broker(self, name: str, expected: str) -> None:
        broker_id = node_id(name)
        if broker_id is None:
            raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
        if broker_id != self._config.current.broker_id:
            raise InvalidRequest(f"Unexpected broker id, expected {expected} but received {name}")

    @in_turns
    async def alter_configs(self, context: RequestContext, request: replaced.Request) -> replaced.Response:
        changes = [
            ConfigChange(
                resource_type=resource.resource_type,
                name=resource.resource_name,
                steps=tuple(SettingStep(name=c.name, step=Step.SET, value=c.value) for c in resource.configs),
                replace_all=True,
            )
            for resource in request.resources
        ]
        outcomes = await self._change(changes, validate_only=request.validate_only)
        return replaced.Response(
            responses=[
                replaced.AlterConfigsResourceResponse(
                    error_code=code,
                    error_message=message,
                    resource_type=change.resource_type,
                    resource_name=change.name,
                )
                for change, (code, message) in zip(changes, outcomes, strict=True)
            ]
        )

    @in_turns
    async def incremental_alter_configs(self, context: RequestContext, request: stepped.Request) -> stepped.Response:
        changes = [
            ConfigChange(
                resource_type=resource.resource_type,
                name=resource.resource_name,
                steps=tuple(SettingStep(name=c.name, step=c.config_operation, value=c.value) for c in resource.configs),
            )
            for resource in request.resources
        ]
        outcomes = await self._change(changes, validate_only=request.validate_only)
        return stepped.Response(
            responses=[
                stepped.AlterConfigsResourceResponse(
                    error_code=code,
                    error_message=message,
                    resource_type=change.resource_type,
                    resource_name=change.name,
                )
                for change, (code, message) in zip(changes, outcomes, strict=True)
            ]
        )

    async def _change(self, changes: Sequence[ConfigChange], *, validate_only: bool) -> list[tuple[int, str | None]]:
        of_loggers = {change.name: self._change_levels(change, validate_only) for change in logger_changes(changes)}
        others = [change for change in changes if not is_of(change, of_loggers)]
        try:
            outcomes = iter(await self._controller.change_configs(others, validate_only=validate_only))
        except BrokerError as error:
            outcomes = iter([error] * len(others))
        results = [of_loggers[change.name] if is_of(change, of_loggers) else next(outcomes) for change in changes]
        return [
            (outcome.code, outcome.wire_message) if isinstance(outcome, BrokerError) else (0, None)
            for outcome in results
        ]

    def _change_levels(self, change: ConfigChange, validate_only: bool) -> BrokerError | None:
        try:
            self._loggers.change(change, validate_only=validate_only)
        except BrokerError as error:
            return error
        return None

    def list_config_resources(self, context: RequestContext, request: listed.Request) -> listed.Response:
        wanted: Sequence[int] = request.resource_types or TYPES_LISTED
        if context.api_version == 0:
            wanted = (ResourceType.CLIENT_METRICS,)
        named: list[tuple[str, int]] = []
        for resource_type in dict.fromkeys(wanted):
            if resource_type not in TYPES_LISTED:
                return listed.Response(error_code=UnsupportedVersion.code)
            named += [(name, resource_type) for name in self._named(resource_type)]
        return listed.Response(
            config_resources=each(named, lambda one: listed.ConfigResource(resource_name=one[0], resource_type=one[1]))
        )

    def _named(self, resource_type: int) -> list[str]:
        match resource_type:
            case ResourceType.TOPIC:
                return [*self._image.topics, *self._image.views]
            case ResourceType.BROKER:
                default = [""] if ALL_BROKERS in self._image.broker_configs else []
                return default + [str(broker.broker_id) for broker in self._image.live_brokers()]
            case ResourceType.BROKER_LOGGER:
                return [str(broker.broker_id) for broker in self._image.live_brokers()]
            case ResourceType.GROUP:
                return list(self._image.group_configs)
            case _:
                return []


def logger_changes(changes: Sequence[ConfigChange]) -> list[ConfigChange]:
    """Changes of logger levels, which this broker applies itself. The controller refuses a repeated resource."""
    times = Counter(change.name for change in changes if change.resource_type == ResourceType.BROKER_LOGGER)
    return [
        change
        for change in changes
        if change.resource_type == ResourceType.BROKER_LOGGER and times[change.name] == 1 and not change.replace_all
    ]


def is_of(change: ConfigChange, of_loggers: Container[str]) -> bool:
    return change.resource_type == ResourceType.BROKER_LOGGER and change.name in of_loggers


def described(entry: Entry, *, synonyms: bool, documentation: bool) -> gen.DescribeConfigsResourceResult:
    return gen.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            gen.DescribeConfigsSynonym(name=origin.name, value=origin.value, source=origin.source)
            for origin in entry.origins
        ]
        if synonyms
        else [],
        config_type=entry.kind,
        documentation=entry.doc if documentation else None,
    )


def has_loggers(request: replaced.Request | stepped.Request) -> bool:
    """Whether a request sets levels of loggers, which are those of the broker that it was sent to."""
    return any(resource.resource_type == ResourceType.BROKER_LOGGER for resource in request.resources)
