"""Adoption of logs: how many partitions the topic gets, and with which settings."""

import pytest

from penstock.config.broker import BrokerConfig
from penstock.controller.adoption import Adoption, AdoptionRefused, OrphanTopic, count_of, settings_of
from penstock.model.ids import TOPIC_ID_ZERO, TopicPartition
from penstock.model.topic import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.storage.set_aside import Reason, StrayLog


def adoption(name: str, *found: int, partitions: int | None = None) -> Adoption:
    """An adoption of the logs of these partitions."""
    logs = {
        index: StrayLog(
            path=f"/data/{name}-{index}",
            tp=TopicPartition(name, index),
            topic_id=TOPIC_ID_ZERO,
            reason=Reason.UNKNOWN_TOPIC,
        )
        for index in found
    }
    orphan = OrphanTopic(name=name, topic_id=TOPIC_ID_ZERO, logs=logs)
    return Adoption(orphan=orphan, name=name, partitions=partitions)


def test_a_topic_has_as_many_partitions_as_its_logs_need_or_more() -> None:
    assert count_of(adoption("orders", 0, 4)) == 5
    assert count_of(adoption("orders", 0, 4, partitions=8)) == 8
    with pytest.raises(AdoptionRefused, match="4 partitions are too few"):
        count_of(adoption("orders", 0, 4, partitions=4))


@pytest.mark.parametrize(
    ("name", "setting", "default"),
    [
        (GROUP_OFFSETS_TOPIC, "offsets.topic.num.partitions", BrokerConfig().offsets_topic_num_partitions),
        (
            TRANSACTION_STATE_TOPIC,
            "transaction.state.log.num.partitions",
            BrokerConfig().transaction_state_log_num_partitions,
        ),
    ],
)
def test_the_partition_count_of_a_coordinators_topic_is_never_guessed(name: str, setting: str, default: int) -> None:
    """The broker may have had another number than the default, and groups are found by it."""
    with pytest.raises(AdoptionRefused) as refused:
        count_of(adoption(name, 3, 9))

    assert setting in refused.value.hint
    assert f" {default} " in refused.value.hint
    assert count_of(adoption(name, 3, 9, partitions=10)) == 10
    assert settings_of(adoption(name, 3)) == {"cleanup.policy": "compact"}
