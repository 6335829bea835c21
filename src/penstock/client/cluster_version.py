"""The version of a cluster, and a request to change it."""

from __future__ import annotations

from penstock.client.failures import failure
from penstock.client.library import kafka
from penstock.client.wire_calls import WireCalls
from penstock.model.cluster_versions import FEATURE, UpgradeType
from penstock.wire.api import update_features

UPDATE_VERSION = 2


def change_version(calls: WireCalls, level: int, *, upgrade_type: UpgradeType, validate_only: bool = False) -> None:
    """Finalize a version of the cluster; raises `ClientError` with the controller's words where it refuses."""
    doing = f"cannot give the cluster version {level}"
    wanted = update_features.FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=upgrade_type.value)
    request = update_features.Request(feature_updates=[wanted], validate_only=validate_only)
    response: update_features.Response = calls.of_anyone(doing, update_features, UPDATE_VERSION, request)
    if response.error_code:
        raise failure(kafka().KafkaError(response.error_code, response.error_message), doing)
