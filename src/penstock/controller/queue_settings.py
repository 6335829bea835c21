"""Settings of queues, which every broker of a cluster has to know before a topic may have them."""

from collections.abc import Mapping

from penstock.config.key import text_of
from penstock.config.log import CONSUME_GROUP, TOPIC_KEYS
from penstock.model.cluster_versions import SHARE_GROUPS
from penstock.model.generated_errors import InvalidConfig

QUEUE_SETTINGS = (CONSUME_GROUP, "dedupe.window.records", "ttl.enable")


def check_queue_settings(configs: Mapping[str, str], before: Mapping[str, str], level: int) -> None:
    """Refuse a new setting that brokers of the cluster's version, `level`, would ignore where they lead."""
    if level >= SHARE_GROUPS:
        return
    for name in QUEUE_SETTINGS:
        unset = text_of(TOPIC_KEYS[name].default) or ""
        if configs.get(name, unset) not in (before.get(name, unset), unset):
            raise InvalidConfig(
                f"{name} needs version {SHARE_GROUPS} of the cluster, which has {level}: see 'penstock cluster upgrade'"
            )
