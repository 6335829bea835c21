"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources and client quotas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api_world import World, in_world

from penstock.config.broker import BrokerConfig
from penstock.controller.configs import ResourceType, Step
from penstock.controller.topics import NewTopic
from penstock.metadata.image import ImageDelta
from penstock.model.generated_errors import (
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from penstock.wire.api import (
    alter_client_quotas,
    alter_configs,
    describe_client_quotas,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL, LIST_RESOURCES = 32, 33, 44, 74
DESCRIBE_QUOTAS, ALTER_QUOTAS = 48, 49
TOPIC, BROKER, LOGGER, METRICS, GROUP = (int(kind) for kind in ResourceType)


def describe(kind: int, name: str, *keys: str, synonyms: bool = False, documentation: bool = False) -> Any:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    return describe_configs.Request(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )


def step(kind: int, name: str, *steps: tuple[str, int, str | None], validate_only: bool = False) -> Any:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in steps
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return incremental_alter_configs.Request(resources=[resource], validate_only=validate_only)


async def values(world: World, kind: int, name: str, *keys: str) -> dict[str, tuple[str | None, int]]:
    (result,) = (await world.ask(DESCRIBE_CONFIGS, describe(kind, name, *keys))).results
    assert result.error_code == 0
    return {config.name: (config.value, config.config_source) for config in result.configs}


async def topic(world: World, name: str = "t", **configs: str) -> None:
    settings = tuple((key.replace("_", "."), value) for key, value in configs.items())
    await world.controller.create_topics([NewTopic(name=name, configs=settings)])


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_settings_are_described_with_their_sources(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        await topic(world, retention_ms="5")
        request = describe(TOPIC, "t", "retention.ms", "segment.bytes", "nope", synonyms=True)
        (result,) = (await world.ask(DESCRIBE_CONFIGS, request, version)).results
        described = {config.name: config for config in result.configs}
        assert set(described) == {"retention.ms", "segment.bytes"}
        assert (described["retention.ms"].value, described["retention.ms"].config_source) == ("5", 1)
        assert [(s.name, s.source) for s in described["segment.bytes"].synonyms] == [
            ("log.segment.bytes", 4),
            ("log.segment.bytes", 5),
        ]
        assert described["segment.bytes"].value == "2000000"
        if version >= 3:
            assert described["segment.bytes"].config_type == 3

    in_world(tmp_path, act, BrokerConfig(log_segment_bytes=2_000_000, given={"log.segment.bytes": "2000000"}))


def test_documentation_is_sent_only_when_requested(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await topic(world)
        for documentation in (True, False):
            request = describe(TOPIC, "t", "retention.ms", documentation=documentation)
            (config,) = (await world.ask(DESCRIBE_CONFIGS, request)).results[0].configs
            assert (config.documentation is not None) is documentation
            assert config.synonyms == []

    in_world(tmp_path, act)


@pytest.mark.parametrize(
    ("kind", "name", "error", "words"),
    [
        (TOPIC, "gone", UnknownTopicOrPartition, ""),
        (TOPIC, "a/b", InvalidTopic, "'a/b' contains one or more characters"),
        (BROKER, "9", InvalidRequest, "Unexpected broker id, expected 1 or empty string, but received 9"),
        (BROKER, "me", InvalidRequest, "Broker id must be an integer, but it is: me"),
        (LOGGER, "", InvalidRequest, "Broker id must not be empty"),
        (LOGGER, "9", InvalidRequest, "Unexpected broker id, expected 1 but received 9"),
        (GROUP, "", InvalidRequest, "Group name must not be empty"),
        (METRICS, "", InvalidRequest, "Client metrics subscription name must not be empty"),
        (3, "x", InvalidRequest, "malformed by the client library"),
    ],
)
def test_resources_without_settings_are_refused_with_a_message(
    tmp_path: Path, kind: int, name: str, error: Any, words: str
) -> None:
    async def act(world: World) -> None:
        (result,) = (await world.ask(DESCRIBE_CONFIGS, describe(kind, name))).results
        assert (result.error_code, result.configs) == (error.code, [])
        assert words in result.error_message
        assert (result.resource_type, result.resource_name) == (kind, name)

    in_world(tmp_path, act)


def test_a_topics_setting_is_in_effect_when_the_response_arrives(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await topic(world)
        for version in range(2):
            wanted = str(1000 + version)
            response = await world.ask(INCREMENTAL, step(TOPIC, "t", ("max.message.bytes", Step.SET, wanted)), version)
            assert [(r.error_code, r.error_message) for r in response.responses] == [(0, None)]
            assert world.replicas.get("t", 0).config.max_message_bytes == int(wanted)
        await world.ask(INCREMENTAL, step(TOPIC, "t", ("max.message.bytes", Step.DELETE, None)))
        assert world.replicas.get("t", 0).config.max_message_bytes == 1048588

    in_world(tmp_path, act)


def test_a_brokers_setting_changes_every_topic_that_does_not_override_it(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await topic(world, "plain")
        await topic(world, "own", retention_ms="7")
        await world.ask(INCREMENTAL, step(BROKER, "", ("log.retention.ms", Step.SET, "5")))
        assert world.replicas.get("plain", 0).config.retention_ms == 5
        assert world.replicas.get("own", 0).config.retention_ms == 7
        assert await values(world, TOPIC, "plain", "retention.ms") == {"retention.ms": ("5", 3)}
        assert await values(world, BROKER, "") == {"log.retention.ms": ("5", 3)}
        await world.ask(INCREMENTAL, step(BROKER, "1", ("log.retention.ms", Step.SET, "6")))
        assert await values(world, BROKER, "1", "log.retention.ms") == {"log.retention.ms": ("6", 2)}
        assert world.replicas.get("plain", 0).config.retention_ms == 6

    in_world(tmp_path, act)


def test_settings_survive_a_restart(tmp_path: Path) -> None:
    async def change(world: World) -> None:
        await topic(world)
        await world.ask(INCREMENTAL, step(TOPIC, "t", ("cleanup.policy", Step.APPEND, "compact")))
        await world.ask(INCREMENTAL, step(GROUP, "g", ("share.isolation.level", Step.SET, "read_committed")))

    async def look(world: World) -> None:
        assert await values(world, TOPIC, "t", "cleanup.policy") == {"cleanup.policy": ("delete,compact", 1)}
        assert await values(world, GROUP, "g", "share.isolation.level") == {
            "share.isolation.level": ("read_committed", 8)
        }

    in_world(tmp_path, change)
    in_world(tmp_path, look)


@pytest.mark.parametrize("version", range(3))
def test_replacing_all_settings_removes_the_others(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        await topic(world, retention_ms="5", segment_ms="6")
        configs = [alter_configs.AlterableConfig(name="segment.ms", value="7")]
        resource = alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
        response = await world.ask(ALTER_CONFIGS, alter_configs.Request(resources=[resource]), version)
        assert [(r.error_code, r.error_message) for r in response.responses] == [(0, None)]
        assert dict(world.catalog.image.topics["t"].configs) == {"segment.ms": "7"}

    in_world(tmp_path, act)


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (step(TOPIC, "t", ("retention.ms", Step.SET, "soon")), InvalidConfig, "Invalid value soon"),
        (step(TOPIC, "t", ("nope", Step.SET, "1")), InvalidConfig, "Unknown topic config name: nope"),
        (step(TOPIC, "gone"), UnknownTopicOrPartition, "The topic 'gone' does not exist."),
        (step(GROUP, "g", ("nope", Step.SET, "1")), InvalidConfig, "Unknown group config name: nope"),
        (
            step(GROUP, "g", ("consumer.session.timeout.ms", Step.SET, "1")),
            InvalidConfig,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (step(GROUP, ""), InvalidRequest, "Default group resources are not allowed."),
        (step(METRICS, "m", ("nope", Step.SET, "1")), InvalidRequest, "Unknown client metrics configuration: nope"),
        (step(LOGGER, "1", ("root", Step.SET, "LOUD")), InvalidConfig, "Valid log levels are DEBUG, ERROR, FATAL"),
        (step(LOGGER, "1", ("nope", Step.SET, "INFO")), InvalidConfig, "Logger nope does not exist!"),
        (step(LOGGER, "2", ("root", Step.SET, "INFO")), InvalidRequest, "Unexpected node id. Expected 1"),
        (step(BROKER, "1", ("node.id", Step.SET, "3")), InvalidRequest, "dynamically: [node.id]"),
    ],
)
def test_an_invalid_change_changes_nothing(tmp_path: Path, request_: Any, error: Any, words: str) -> None:
    async def act(world: World) -> None:
        await topic(world)
        before = await world.store.tree("/")
        (result,) = (await world.ask(INCREMENTAL, request_)).responses
        assert result.error_code == error.code
        assert words in result.error_message
        assert await world.store.tree("/") == before

    in_world(tmp_path, act)


def test_validating_changes_nothing(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await topic(world)
        request = step(TOPIC, "t", ("retention.ms", Step.SET, "5"), validate_only=True)
        (result,) = (await world.ask(INCREMENTAL, request)).responses
        assert result.error_code == 0
        assert dict(world.catalog.image.topics["t"].configs) == {}

    in_world(tmp_path, act)


def test_resources_are_listed_by_type(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await topic(world)
        await world.ask(INCREMENTAL, step(GROUP, "g", ("share.isolation.level", Step.SET, "read_committed")))

        async def listed(*kinds: int) -> set[tuple[int, str]]:
            response = await world.ask(LIST_RESOURCES, list_config_resources.Request(resource_types=list(kinds)))
            assert response.error_code == 0
            return {(resource.resource_type, resource.resource_name) for resource in response.config_resources}

        assert await listed(TOPIC) == {(TOPIC, "t")}
        assert await listed(GROUP) == {(GROUP, "g")}
        assert await listed() == {(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "g")}
        oldest = await world.ask(LIST_RESOURCES, list_config_resources.Request(), 0)
        assert oldest.config_resources == []
        unknown = await world.ask(LIST_RESOURCES, list_config_resources.Request(resource_types=[99]))
        assert unknown.error_code == UnsupportedVersion.code

    in_world(tmp_path, act)


Entity = tuple[tuple[str, str | None], ...]


def quota(entity: Entity, *ops: tuple[str, float | None], validate_only: bool = False) -> alter_client_quotas.Request:
    entry = alter_client_quotas.RequestEntryData(
        entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )
    return alter_client_quotas.Request(entries=[entry], validate_only=validate_only)


def filtered(*components: tuple[str, int, str | None], strict: bool = False) -> describe_client_quotas.Request:
    return describe_client_quotas.Request(
        components=[
            describe_client_quotas.ComponentData(entity_type=kind, match_type=how, match=what)
            for kind, how, what in components
        ],
        strict=strict,
    )


CLIENT_A: Entity = (("client-id", "a"),)
CLIENT_DEFAULT: Entity = (("client-id", None),)
USER_AND_CLIENT: Entity = (("client-id", "a"), ("user", "u"))


@pytest.mark.parametrize("version", range(2))
def test_quotas_are_stored_described_and_passed_to_listeners(tmp_path: Path, version: int) -> None:
    async def act(world: World) -> None:
        deltas: list[ImageDelta] = []
        world.catalog.listen(deltas.append)
        response = await world.ask(ALTER_QUOTAS, quota(CLIENT_A, ("producer_byte_rate", 1000.0)), version)
        assert [(entry.error_code, entry.error_message) for entry in response.entries] == [(0, None)]
        assert deltas[-1].quotas == ((CLIENT_A, {"producer_byte_rate": 1000.0}),)
        described = await world.ask(DESCRIBE_QUOTAS, filtered(), version)
        (entry,) = described.entries
        assert [(part.entity_type, part.entity_name) for part in entry.entity] == list(CLIENT_A)
        assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 1000.0)]
        await world.ask(ALTER_QUOTAS, quota(CLIENT_A, ("producer_byte_rate", None)), version)
        assert deltas[-1].quotas == ((CLIENT_A, {}),)
        assert (await world.ask(DESCRIBE_QUOTAS, filtered(), version)).entries == []

    in_world(tmp_path, act)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (filtered(), {CLIENT_A, CLIENT_DEFAULT, USER_AND_CLIENT}),
        (filtered(("client-id", 0, "a")), {CLIENT_A, USER_AND_CLIENT}),
        (filtered(("client-id", 0, "a"), strict=True), {CLIENT_A}),
        (filtered(("client-id", 1, None)), {CLIENT_DEFAULT}),
        (filtered(("client-id", 2, None)), {CLIENT_A, CLIENT_DEFAULT, USER_AND_CLIENT}),
        (filtered(("user", 2, None)), {USER_AND_CLIENT}),
        (filtered(("user", 0, "nobody")), set()),
    ],
)
def test_quotas_are_found_by_a_filter(
    tmp_path: Path, wanted: describe_client_quotas.Request, expected: set[Entity]
) -> None:
    async def act(world: World) -> None:
        for entity in (CLIENT_A, CLIENT_DEFAULT, USER_AND_CLIENT):
            await world.ask(ALTER_QUOTAS, quota(entity, ("consumer_byte_rate", 5.0)))
        response = await world.ask(DESCRIBE_QUOTAS, wanted)
        found = {tuple((part.entity_type, part.entity_name) for part in entry.entity) for entry in response.entries}
        assert found == expected

    in_world(tmp_path, act)


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        (filtered(("planet", 2, None)), UnsupportedVersion, "Unsupported entity type planet"),
        (filtered(("user", 9, None)), InvalidRequest, "Unknown match type 9"),
        (filtered(("user", 2, None), ("user", 2, None)), InvalidRequest, "user cannot appear more than once"),
        (filtered(("ip", 2, None), ("user", 2, None)), InvalidRequest, "IP filter component should not be used"),
    ],
)
def test_an_invalid_filter_is_refused(tmp_path: Path, wanted: Any, error: Any, words: str) -> None:
    async def act(world: World) -> None:
        response = await world.ask(DESCRIBE_QUOTAS, wanted)
        assert (response.error_code, response.entries) == (error.code, None)
        assert words in response.error_message

    in_world(tmp_path, act)


@pytest.mark.parametrize("there", [False, True])
def test_several_changes_of_one_entity_are_made_in_their_order(tmp_path: Path, *, there: bool) -> None:
    async def act(world: World) -> None:
        if there:
            await world.ask(ALTER_QUOTAS, quota(CLIENT_A, ("producer_byte_rate", 1.0)))
        removed = quota(CLIENT_A, ("producer_byte_rate", None))
        first = quota(CLIENT_A, ("producer_byte_rate", 2.0), ("consumer_byte_rate", 3.0))
        last = quota(CLIENT_A, ("producer_byte_rate", 4.0))
        request = alter_client_quotas.Request(entries=[*removed.entries, *first.entries, *last.entries])

        response = await world.ask(ALTER_QUOTAS, request)

        assert [entry.error_code for entry in response.entries] == [0, 0, 0]
        assert world.catalog.image.quotas[CLIENT_A] == {"producer_byte_rate": 4.0, "consumer_byte_rate": 3.0}

    in_world(tmp_path, act)


@pytest.mark.parametrize("name", ["--1", "+-1", "\u00b2", " 1", "1\n", "1_0", "1e0", "9" * 6000, "0x1"])
@pytest.mark.parametrize("kind", [BROKER, LOGGER])
def test_a_name_that_is_no_broker_id_is_refused_with_a_message(tmp_path: Path, kind: int, name: str) -> None:
    async def act(world: World) -> None:
        change = ("root", Step.SET, "INFO") if kind == LOGGER else ("log.cleaner.backoff.ms", Step.SET, "2")
        changed = await world.ask(INCREMENTAL, step(kind, name, change))
        described = await world.ask(DESCRIBE_CONFIGS, describe(kind, name))

        assert [(response.error_code, response.error_message) for response in changed.responses] == [
            (InvalidRequest.code, f"Node id must be an integer, but it is: {name}")
        ]
        assert [(response.error_code, response.error_message) for response in described.results] == [
            (InvalidRequest.code, f"Broker id must be an integer, but it is: {name}")
        ]

    in_world(tmp_path, act)
