"""Plans changes of dynamic settings: of topics, of brokers, of groups."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from penstock.config.broker import ALIASES, BROKER_KEYS, BrokerConfig, readable
from penstock.config.foreign import guards, unused
from penstock.config.group_settings import GROUP_KEYS, check_group_configs
from penstock.config.key import Key, Kind, Mode, nearest, text_of
from penstock.config.log import TOPIC_KEYS, check_topic_configs
from penstock.controller.brokers import partition_writes
from penstock.controller.draining import check_draining
from penstock.controller.plan import Plan, PlanStep, storable
from penstock.controller.queue_settings import check_queue_settings
from penstock.controller.scheduling import check_change
from penstock.controller.views import check_alterable
from penstock.metadata.image import MetadataImage
from penstock.metadata.operations import Create, Delete, Operation, Set
from penstock.metadata.records import (
    ALL_BROKERS,
    NO_CONFIGS,
    broker_config_path,
    group_config_path,
    pack,
    pack_topic,
    topic_path,
)
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from penstock.model.topic import check_topic_name

CLIENT_METRICS_NAMES = frozenset({"metrics", "interval.ms", "match"})
NODE_ID = re.compile(r"[+-]?\d+")
NODE_ID_DIGITS_MAX = 64
"""Longest name that is parsed as a broker id: Python refuses numbers with thousands of digits."""


CHUNKS_AT_ONCE_MAX = 32
"""Nodes of partitions written together with a topic's settings: a quarter of a transaction."""


class ResourceType(IntEnum):
    """Resources with settings, by their number in the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Step(IntEnum):
    """The operation on one setting, by its number in the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingStep:
    """One change of one setting."""

    name: str
    step: int
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """Changes of one resource's settings; `replace_all` removes all settings that are not set here."""

    resource_type: int
    name: str
    steps: tuple[SettingStep, ...]
    replace_all: bool = False


def plan_config_changes(
    image: MetadataImage,
    changes: Sequence[ConfigChange],
    *,
    config: BrokerConfig,
    counts: Mapping[tuple[int, str], int] | None = None,
) -> Plan[Mapping[str, str]]:
    """Plan every valid change, in one transaction; the outcome of each is the resource's settings after it.

    `counts` is how often the whole request names each resource, where `changes` is only a part of it.
    """
    if counts is None:
        counts = Counter((change.resource_type, change.name) for change in changes)
    steps: list[PlanStep] = []
    outcomes: list[Mapping[str, str] | BrokerError] = []
    for change in changes:
        try:
            if counts[change.resource_type, change.name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            check_steps(change)
            operation, settings = plan_one(image, change, config)
            own_steps = [] if operation is None else setting_steps(image, change, operation, settings)
        except BrokerError as error:
            outcomes.append(error)
            continue
        steps += own_steps
        outcomes.append(settings)
    return Plan(steps=tuple(steps), outcomes=tuple(outcomes))


def setting_steps(
    image: MetadataImage, change: ConfigChange, operation: Operation, settings: Mapping[str, str]
) -> list[PlanStep]:
    """Write a setting; the minimum ISR and the active partitions of a topic together with the partition states that
    they are in force by.

    Those of a topic too large for one transaction follow; until then the former minimum is in force there.
    """
    topic = image.topics.get(change.name) if change.resource_type == ResourceType.TOPIC else None
    writes = [] if topic is None else partition_writes(image, topic, settings)
    if len(writes) <= CHUNKS_AT_ONCE_MAX:
        return [(operation, *writes)]
    return [(operation,), *((write,) for write in writes)]


def check_steps(change: ConfigChange) -> None:
    """Reject steps that are invalid for every resource type."""
    names = [step.name for step in change.steps]
    if len(set(names)) != len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    nulls = [step.name for step in change.steps if step.value is None and step.step != Step.DELETE]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")


def plan_one(
    image: MetadataImage, change: ConfigChange, config: BrokerConfig
) -> tuple[Operation | None, Mapping[str, str]]:
    match change.resource_type:
        case ResourceType.TOPIC:
            return plan_topic(image, change, config)
        case ResourceType.BROKER:
            return plan_broker(image, change, config)
        case ResourceType.GROUP:
            return plan_group(image, change, config)
        case ResourceType.CLIENT_METRICS:
            return None, refuse_metrics(change)
        case _:
            raise InvalidRequest(f"Unknown resource type {change.resource_type}")


def plan_topic(
    image: MetadataImage, change: ConfigChange, config: BrokerConfig
) -> tuple[Operation | None, Mapping[str, str]]:
    if not change.name:
        raise InvalidRequest("Default topic resources are not allowed.")
    topic = image.topics.get(change.name)
    before = NO_CONFIGS if topic is None else topic.configs
    after = changed(before, change, TOPIC_KEYS)
    check_topic_name(change.name)
    check_alterable(image, change.name, before, after)
    check_topic_configs(after, config)
    if topic is None:
        raise UnknownTopicOrPartition(f"The topic '{change.name}' does not exist.")
    if after == topic.configs:
        return None, after
    check_draining(topic, after, config, image.level)
    check_change(topic, after)
    check_queue_settings(after, topic.configs, image.level)
    data = storable(pack_topic(replace(topic, configs=after)))
    return Set(topic_path(topic.name), data, topic.version), after


def plan_broker(
    image: MetadataImage, change: ConfigChange, config: BrokerConfig
) -> tuple[Operation | None, Mapping[str, str]]:
    broker = broker_of(image, change.name, config)
    before = readable(image.broker_settings(broker))
    after = changed(before, change, BROKER_KEYS)
    try:
        check_broker_settings(after, per_broker=bool(change.name))
        overlay(image, config, broker, after)
    except InvalidConfig as error:
        # Kafka responds with INVALID_REQUEST to an invalid broker setting.
        raise InvalidRequest(str(error)) from None
    return written(broker_config_path(broker), before, after, exists=broker in image.broker_configs), after


def plan_group(
    image: MetadataImage, change: ConfigChange, config: BrokerConfig
) -> tuple[Operation | None, Mapping[str, str]]:
    if not change.name:
        raise InvalidRequest("Default group resources are not allowed.")
    before = image.group_configs.get(change.name, NO_CONFIGS)
    after = changed(before, change, GROUP_KEYS)
    check_group_configs(after, config)
    return written(group_config_path(change.name), before, after, exists=change.name in image.group_configs), after


def refuse_metrics(change: ConfigChange) -> Mapping[str, str]:
    """Reject metrics subscriptions: the broker does not collect metrics from clients."""
    for step in change.steps:
        if step.name not in CLIENT_METRICS_NAMES:
            raise InvalidRequest(f"Unknown client metrics configuration: {step.name}")
    raise InvalidRequest("This broker takes no metrics from clients")


def written(path: str, before: Mapping[str, str], after: Mapping[str, str], *, exists: bool) -> Operation | None:
    """The operation that changes a node of settings; a node without settings is deleted."""
    if after == before:
        return None
    if not after:
        return Delete(path)
    data = storable(pack(after))
    return Set(path, data) if exists else Create(path, data)


def node_id(name: str) -> int | None:
    """The broker id in a resource's name, parsed like a Java int, without spaces or underscores; None if it is none."""
    if len(name) > NODE_ID_DIGITS_MAX or not NODE_ID.fullmatch(name):
        return None
    found = int(name)
    return found if -(2**31) <= found < 2**31 else None


def broker_of(image: MetadataImage, name: str, config: BrokerConfig) -> str:
    """The broker that a resource's name means; an empty name means all brokers.

    Clients send the settings of a broker to itself, and it forwards them to the controller.
    """
    if not name:
        return ALL_BROKERS
    named = node_id(name)
    if named is None:
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if named != config.broker_id and named not in image.brokers and named not in image.admissions:
        raise InvalidRequest(f"Unexpected broker id, expected {config.broker_id}, but received {name}")
    return str(named)


def check_broker_settings(settings: Mapping[str, str], *, per_broker: bool) -> None:
    """Reject unknown settings, read-only ones, and per-broker ones for all brokers at once."""
    known = set(BROKER_KEYS) | set(ALIASES)
    unknown = [name for name in settings if name not in known and not unused(name) and not guards(name)]
    if unknown:
        raise InvalidConfig(f"Unknown broker config name: {unknown[0]}{nearest(unknown[0], BROKER_KEYS)}")
    fixed = [name for name in settings if name not in BROKER_KEYS or BROKER_KEYS[name].mode is Mode.READ_ONLY]
    if fixed:
        raise InvalidConfig(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    for name, text in settings.items():
        BROKER_KEYS[name].read(text)
    single = [name for name in settings if BROKER_KEYS[name].mode is Mode.PER_BROKER]
    if single and not per_broker:
        raise InvalidConfig(
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(single)}]"
        )


def overlay(image: MetadataImage, config: BrokerConfig, broker: str, after: Mapping[str, str]) -> BrokerConfig:
    """The resulting config of a broker; raises for values that contradict each other.

    The file of another broker is not known here: this broker's stands in for it.
    """
    everyones = broker == ALL_BROKERS
    cluster = after if everyones else readable(image.broker_settings(ALL_BROKERS))
    single = readable(image.broker_settings(str(config.broker_id))) if everyones else after
    return config.with_dynamic(cluster=cluster, broker=single)


def changed(before: Mapping[str, str], change: ConfigChange, keys: Mapping[str, Key]) -> dict[str, str]:
    """The settings after all steps."""
    after = {} if change.replace_all else dict(before)
    for step in change.steps:
        value = "" if step.value is None else step.value
        match step.step:
            case Step.SET:
                after[step.name] = value
            case Step.DELETE:
                after.pop(step.name, None)
            case Step.APPEND | Step.SUBTRACT:
                after[step.name] = edited_list(after.get(step.name), step, value, keys.get(step.name))
            case _:
                raise InvalidRequest(f"Unknown operations type {step.step}")
    return after


def edited_list(text: str | None, step: SettingStep, value: str, declared: Key | None) -> str:
    """A list with items appended or subtracted; an unset list starts from its default."""
    if declared is None or declared.kind is not Kind.LIST:
        raise InvalidConfig(f"Can't {Step(step.step).name} to key {step.name} because its type is not LIST.")
    current = text if text is not None else text_of(declared.default) or ""
    items = [item.strip() for item in current.split(",") if item.strip()]
    wanted = [item.strip() for item in value.split(",")]
    if step.step == Step.APPEND:
        return ",".join(dict.fromkeys([*items, *wanted]))
    return ",".join(item for item in items if item not in wanted)
