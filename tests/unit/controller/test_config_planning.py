"""Plans of changes of settings and quotas."""

from __future__ import annotations

import pytest

from penstock.config.broker import BrokerConfig
from penstock.controller.configs import ConfigChange, ResourceType, SettingStep, Step, plan_config_changes
from penstock.controller.quotas import QuotaChange, plan_quota_changes
from penstock.metadata.image import MetadataImage
from penstock.metadata.nodes import Change
from penstock.metadata.operations import Create, Delete, Set
from penstock.metadata.records import (
    ALL_BROKERS,
    BrokerState,
    broker_config_path,
    broker_path,
    chunk_path,
    pack,
    pack_broker,
    pack_partitions,
    pack_topic,
    quota_entity,
    quota_path,
    unpack_topic,
)
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidConfig, InvalidRequest, InvalidTopic, UnknownTopicOrPartition
from penstock.model.ids import BrokerId, TopicId
from penstock.model.topic import PartitionState, TopicState

CONFIG = BrokerConfig(broker_id=1)


def image(**configs: str) -> MetadataImage:
    made = MetadataImage()
    partition = PartitionState(index=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    topic = TopicState(name="t", topic_id=TopicId(b"t" * 16), configs=settings, partitions=(partition,))
    made.apply(
        [
            Change(path=chunk_path(topic.topic_id, 0), data=pack_partitions(topic.partitions)),
            Change(path="/topics/t", data=pack_topic(topic), version=4),
        ]
    )
    return made


def steps(*wanted: tuple[str, int, str | None], name: str = "t", kind: int = ResourceType.TOPIC) -> ConfigChange:
    return ConfigChange(
        resource_type=kind,
        name=name,
        steps=tuple(SettingStep(name=key, step=step, value=value) for key, step, value in wanted),
    )


def outcome(seen: MetadataImage, change: ConfigChange) -> dict[str, str]:
    (settled,) = plan_config_changes(seen, [change], config=CONFIG).outcomes
    assert not isinstance(settled, BrokerError), settled
    return dict(settled)


def refused(change: ConfigChange, seen: MetadataImage | None = None) -> BrokerError:
    planned = plan_config_changes(seen or image(), [change], config=CONFIG)
    (settled,) = planned.outcomes
    assert isinstance(settled, BrokerError)
    assert planned.operations == ()
    return settled


def test_a_setting_is_set_and_removed() -> None:
    assert outcome(image(retention_ms="1"), steps(("segment.ms", Step.SET, "9"))) == {
        "retention.ms": "1",
        "segment.ms": "9",
    }
    assert outcome(image(retention_ms="1"), steps(("retention.ms", Step.DELETE, None))) == {}


def test_replacing_all_settings_removes_unnamed_ones() -> None:
    change = ConfigChange(
        resource_type=ResourceType.TOPIC,
        name="t",
        steps=(SettingStep(name="segment.ms", step=Step.SET, value="9"),),
        replace_all=True,
    )
    assert outcome(image(retention_ms="1"), change) == {"segment.ms": "9"}


def test_a_change_is_written_with_the_version_it_was_planned_from() -> None:
    (operation,) = plan_config_changes(image(), [steps(("retention.ms", Step.SET, "5"))], config=CONFIG).operations
    assert isinstance(operation, Set)
    assert operation.version == 4
    assert unpack_topic(operation.data).configs == {"retention.ms": "5"}


def test_a_change_without_effect_writes_nothing() -> None:
    planned = plan_config_changes(image(retention_ms="1"), [steps(("retention.ms", Step.SET, "1"))], config=CONFIG)
    assert planned.operations == ()


@pytest.mark.parametrize(
    ("before", "step", "value", "after"),
    [
        (None, Step.APPEND, "compact", "delete,compact"),
        ("compact", Step.APPEND, "compact", "compact"),
        ("delete,compact", Step.SUBTRACT, "delete", "compact"),
        ("compact", Step.SUBTRACT, "delete", "compact"),
    ],
)
def test_a_list_is_edited_from_its_current_value(before: str | None, step: int, value: str, after: str) -> None:
    seen = image(cleanup_policy=before) if before else image()
    assert outcome(seen, steps(("cleanup.policy", step, value))) == {"cleanup.policy": after}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (steps(("nope", Step.SET, "1")), InvalidConfig, "Unknown topic config name: nope"),
        (steps(("retention.ms", Step.SET, "soon")), InvalidConfig, "Invalid value soon for configuration retention.ms"),
        (steps(("retention.ms", Step.SET, None)), InvalidRequest, "Null value not supported for : retention.ms"),
        (steps(("retention.ms", Step.APPEND, "1")), InvalidConfig, "Can't APPEND to key retention.ms"),
        (steps(("retention.ms", 9, "1")), InvalidRequest, "Unknown operations type 9"),
        (steps(("a", Step.SET, "1"), ("a", Step.SET, "2")), InvalidRequest, "duplicate config keys"),
        (steps(name="gone"), UnknownTopicOrPartition, "The topic 'gone' does not exist."),
        (steps(name=""), InvalidRequest, "Default topic resources are not allowed."),
        (steps(name="a/b"), InvalidTopic, "'a/b' contains"),
        (steps(kind=77), InvalidRequest, "Unknown resource type 77"),
        (steps(name="2", kind=ResourceType.BROKER), InvalidRequest, "expected 1, but received 2"),
        (steps(name="me", kind=ResourceType.BROKER), InvalidRequest, "must be an integer, but it is: me"),
        (
            steps(("num.partitions", Step.SET, "3"), name="1", kind=ResourceType.BROKER),
            InvalidRequest,
            r"Cannot update these configs dynamically: \[num.partitions\]",
        ),
        (
            steps(("log.retention.msec", Step.SET, "3"), name="1", kind=ResourceType.BROKER),
            InvalidRequest,
            "Unknown broker config name: log.retention.msec; did you mean log.retention.ms",
        ),
        (
            steps(("message.max.bytes", Step.SET, "many"), name="", kind=ResourceType.BROKER),
            InvalidRequest,
            "Invalid value many for configuration message.max.bytes: Not a number of type INT",
        ),
    ],
)
def test_an_invalid_change_is_refused_with_the_reason(
    change: ConfigChange, error: type[BrokerError], words: str
) -> None:
    with pytest.raises(error, match=words):
        raise refused(change)


def test_a_repeated_resource_is_refused_both_times() -> None:
    planned = plan_config_changes(image(), [steps(), steps()], config=CONFIG)
    assert [str(settled) for settled in planned.outcomes] == ["Each resource must appear at most once."] * 2


def test_a_valid_change_is_made_beside_an_invalid_one() -> None:
    planned = plan_config_changes(image(), [steps(("retention.ms", Step.SET, "5")), steps(name="gone")], config=CONFIG)
    assert len(planned.operations) == 1
    assert isinstance(planned.outcomes[1], UnknownTopicOrPartition)


def test_a_node_of_broker_settings_exists_only_while_it_has_settings() -> None:
    set_one = steps(("log.retention.ms", Step.SET, "5"), name="", kind=ResourceType.BROKER)
    (operation,) = plan_config_changes(image(), [set_one], config=CONFIG).operations
    assert operation == Create("/configs/brokers/<default>", pack({"log.retention.ms": "5"}))
    seen = image()
    seen.apply([Change(path=operation.path, data=pack({"log.retention.ms": "5"}))])
    drop_it = steps(("log.retention.ms", Step.DELETE, None), name="", kind=ResourceType.BROKER)
    assert plan_config_changes(seen, [drop_it], config=CONFIG).operations == (Delete("/configs/brokers/<default>"),)


def test_the_controller_changes_settings_of_every_broker_that_is_known() -> None:
    seen = image()
    rate = ("leader.replication.throttled.rate", Step.SET, "1000")
    wanted = steps(rate, name="2", kind=ResourceType.BROKER)
    assert isinstance(refused(wanted, seen), InvalidRequest)

    other = BrokerState(broker_id=BrokerId(2), endpoints=(), rack=None)
    seen.apply([Change(path=broker_path(BrokerId(2)), data=pack_broker(other))])
    [step] = plan_config_changes(seen, [wanted], config=CONFIG).steps
    assert [operation.path for operation in step] == [broker_config_path("2")]


def test_settings_of_one_broker_must_not_contradict_those_of_all() -> None:
    seen = image()
    seen.apply([Change(path="/configs/brokers/<default>", data=pack({"log.cleaner.max.compaction.lag.ms": "5"}))])
    change = steps(("log.cleaner.min.compaction.lag.ms", Step.SET, "9"), name="1", kind=ResourceType.BROKER)
    assert "is greater than" in str(refused(change, seen))


CLIENT = (("client-id", "c"),)


def quota(*limits: tuple[str, float | None], entity: tuple[tuple[str, str | None], ...] = CLIENT) -> QuotaChange:
    return QuotaChange(entity=entity, limits=limits)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (quota(("no_such_rate", 1.0)), "Invalid configuration key no_such_rate"),
        (quota(("producer_byte_rate", 0.0)), "Quota producer_byte_rate must be greater than 0"),
        (quota(("producer_byte_rate", 1.5)), "producer_byte_rate cannot be a fractional value."),
        (quota(("producer_byte_rate", 1e19)), "Proposed value for producer_byte_rate is too large for a LONG."),
        (quota(("request_percentage", float("inf"))), "Quota request_percentage must be greater than 0"),
        (quota(("producer_byte_rate", float("nan"))), "must be greater than 0"),
        (quota(entity=()), "Invalid empty client quota entity"),
        (quota(entity=(("planet", "c"),)), "Unhandled client quota entity type: planet"),
        (quota(entity=(("client-id", ""),)), "Empty client-id not supported"),
        (quota(entity=(("ip", "::1"), ("user", "u"))), "cannot be combined"),
        (quota(("producer_byte_rate", 1.0), entity=(("ip", "::1"),)), "Invalid configuration key producer_byte_rate"),
    ],
)
def test_an_invalid_quota_is_refused_with_the_reason(change: QuotaChange, words: str) -> None:
    (settled,) = plan_quota_changes(image(), [change]).outcomes
    with pytest.raises(InvalidRequest, match=words):
        raise settled  # type: ignore[misc]


def test_quotas_are_set_changed_and_removed() -> None:
    seen = image()
    first = plan_quota_changes(seen, [quota(("producer_byte_rate", 10.0), ("request_percentage", 12.5))])
    (made,) = first.operations
    assert isinstance(made, Create)
    seen.apply([Change(path=made.path, data=made.data)])
    assert seen.quotas == {CLIENT: {"producer_byte_rate": 10.0, "request_percentage": 12.5}}
    (changed,) = plan_quota_changes(seen, [quota(("producer_byte_rate", None))]).operations
    assert isinstance(changed, Set)
    seen.apply([Change(path=changed.path, data=changed.data)])
    assert seen.quotas == {CLIENT: {"request_percentage": 12.5}}
    (gone,) = plan_quota_changes(seen, [quota(("request_percentage", None))]).operations
    assert gone == Delete(made.path)


@pytest.mark.parametrize(
    "entity",
    [
        (("client-id", "a/b&c=d%2F*"), ("user", "ü n")),
        (("client-id", None), ("user", "*")),
        (("user", None),),
        (("client-id", "%"),),
        (("ip", "::1"),),
    ],
)
def test_an_entity_can_be_parsed_from_its_path(entity: tuple[tuple[str, str | None], ...]) -> None:
    path = quota_path(entity)
    assert path.count("/") == 2
    assert quota_entity(path) == entity


@pytest.mark.parametrize("broker", ["", "1"])
def test_a_stored_setting_that_this_version_does_not_know_does_not_block_changes(broker: str) -> None:
    seen = image()
    stored = pack({"log.cleaner.threads": "2"})
    seen.apply([Change(path=broker_config_path(ALL_BROKERS), data=stored, version=1)])

    changed = outcome(seen, steps(("log.cleaner.backoff.ms", Step.SET, "5"), name=broker, kind=ResourceType.BROKER))

    assert changed == {"log.cleaner.backoff.ms": "5"}
