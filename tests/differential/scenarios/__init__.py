"""Every scenario, by family; a new family is a new file and one line here."""

from __future__ import annotations

from differential.script import Scenario

from . import (
    api_versions,
    cluster,
    configs,
    configs_change,
    coordinators,
    features_absent,
    fetch,
    fetch_sessions,
    framing,
    groups_admin,
    groups_consumer,
    groups_join,
    groups_offsets,
    groups_static,
    groups_sync,
    idempotence,
    metadata,
    offsets,
    partitions,
    produce,
    topics,
)

FAMILIES: dict[str, tuple[Scenario, ...]] = {
    "api_versions": api_versions.SCENARIOS,
    "framing": framing.SCENARIOS,
    "metadata": metadata.SCENARIOS,
    "produce": produce.SCENARIOS,
    "idempotence": idempotence.SCENARIOS,
    "fetch": fetch.SCENARIOS,
    "fetch_sessions": fetch_sessions.SCENARIOS,
    "offsets": offsets.SCENARIOS,
    "topics": topics.SCENARIOS,
    "partitions": partitions.SCENARIOS,
    "configs": configs.SCENARIOS,
    "configs_change": configs_change.SCENARIOS,
    "coordinators": coordinators.SCENARIOS,
    "groups_join": groups_join.SCENARIOS,
    "groups_sync": groups_sync.SCENARIOS,
    "groups_static": groups_static.SCENARIOS,
    "groups_offsets": groups_offsets.SCENARIOS,
    "groups_admin": groups_admin.SCENARIOS,
    "groups_consumer": groups_consumer.SCENARIOS,
    "cluster": cluster.SCENARIOS,
    "features_absent": features_absent.SCENARIOS,
}
