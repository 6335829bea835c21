"""Refuses settings that a topic of schedules cannot have."""

from collections.abc import Mapping

from penstock.config.log import SCHEDULE_TARGET
from penstock.metadata.image import MetadataImage
from penstock.model.cluster_versions import SCHEDULES
from penstock.model.generated_errors import InvalidConfig, InvalidPartitions
from penstock.model.topic import TopicState

CLEANUP_POLICY = "cleanup.policy"


def with_policy(configs: dict[str, str]) -> dict[str, str]:
    """The settings of a new topic: one of schedules is compacted unless they say otherwise, which is refused."""
    if configs.get(SCHEDULE_TARGET) and CLEANUP_POLICY not in configs:
        return {**configs, CLEANUP_POLICY: "compact"}
    return configs


def check_new(image: MetadataImage, name: str, configs: Mapping[str, str]) -> None:
    """Refuse a new topic of schedules whose target is not there, or cannot be one."""
    wanted = configs.get(SCHEDULE_TARGET)
    if not wanted:
        return
    if image.level < SCHEDULES:
        raise InvalidConfig(
            f"{SCHEDULE_TARGET} needs version {SCHEDULES} of the cluster, which has {image.level}: see 'penstock "
            "cluster upgrade'"
        )
    target = image.topics.get(wanted)
    if wanted == name or target is None:
        raise InvalidConfig(f"{SCHEDULE_TARGET}={wanted}: there is no such topic, and it has to exist before")
    if target.internal or target.configs.get(SCHEDULE_TARGET):
        raise InvalidConfig(f"{SCHEDULE_TARGET}={wanted}: messages cannot be delivered to a topic of that kind")


def check_change(topic: TopicState, configs: Mapping[str, str]) -> None:
    """Refuse to make a topic one of schedules, or to change its target: its records would mean something else."""
    if configs.get(SCHEDULE_TARGET, "") != topic.configs.get(SCHEDULE_TARGET, ""):
        raise InvalidConfig(f"{SCHEDULE_TARGET} is set when a topic is created, and never changed")


def check_growth(topic: TopicState) -> None:
    """Refuse more partitions: a schedule that is changed after that would be in two of them, and delivered twice."""
    if topic.configs.get(SCHEDULE_TARGET):
        raise InvalidPartitions(f"Topic {topic.name} holds schedules, and keeps its number of partitions.")
