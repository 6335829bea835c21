"""UpdateFeatures (57), every version: the version of the cluster is finalized.

Other features have the level of this version of penstock, whatever the cluster is made of: they concern one client and
one broker.
"""

from __future__ import annotations

from penstock.api.api_versions import FEATURES
from penstock.api.in_turns import in_turns
from penstock.api.registry import Api, RequestContext
from penstock.controller.controller import Controller
from penstock.model.cluster_versions import FEATURE, UpgradeType
from penstock.model.errors import BrokerError
from penstock.model.generated_errors import InvalidRequest, InvalidUpdateVersion
from penstock.wire.api import update_features as gen

RESULTS_UNTIL = 1
"""Later versions have one error for all features."""


class Features:
    """Administration of the cluster's version."""

    def __init__(self, *, controller: Controller) -> None:
        self._controller = controller

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=57, versions=range(3), handle=self.update, forwarded=True),)

    @in_turns
    async def update(self, context: RequestContext, request: gen.Request) -> gen.Response:
        """All of it or nothing, as in Kafka."""
        version: tuple[int, UpgradeType] | None = None
        names = [each.feature for each in request.feature_updates]
        for wanted in request.feature_updates:
            try:
                if names.count(wanted.feature) > 1:
                    raise InvalidRequest(f"The feature {wanted.feature} was requested more than once.")
                if wanted.feature == FEATURE:
                    version = wanted.max_version_level, upgrade_type_of(wanted, context.api_version)
                else:
                    self._check_fixed(wanted)
            except BrokerError as error:
                return failed(error)
        if version is not None:
            level, upgrade_type = version
            try:
                await self._controller.change_version(
                    level, upgrade_type=upgrade_type, validate_only=request.validate_only
                )
            except BrokerError as error:
                return failed(error)
        results: list[gen.UpdatableFeatureResult] = []
        if context.api_version <= RESULTS_UNTIL:
            results = [gen.UpdatableFeatureResult(feature=name, error_message=None) for name in names]
        return gen.Response(error_message=None, results=results)

    def _check_fixed(self, wanted: gen.FeatureUpdateKey) -> None:
        """Refuse to change a feature that has one level."""
        level = FEATURES.get(wanted.feature)
        if wanted.max_version_level == level:
            return
        why = (
            f"Local controller {self._controller.image.controller_id} does not support this feature."
            if level is None
            else f"It always has level {level} here."
        )
        raise InvalidUpdateVersion(
            f"Invalid update version {wanted.max_version_level} for feature {wanted.feature}. {why}"
        )


def upgrade_type_of(wanted: gen.FeatureUpdateKey, api_version: int) -> UpgradeType:
    if api_version == 0:
        return UpgradeType.SAFE_DOWNGRADE if wanted.allow_downgrade else UpgradeType.UPGRADE
    try:
        return UpgradeType(wanted.upgrade_type)
    except ValueError:
        raise InvalidRequest(f"The upgrade type {wanted.upgrade_type} is unknown.") from None


def failed(error: BrokerError) -> gen.Response:
    """One error for the whole request, with Kafka's words before its own."""
    message = error.wire_message
    if isinstance(error, InvalidUpdateVersion):
        message = f"The update failed for all features since the following feature had an error: {message}"
    return gen.Response(error_code=error.code, error_message=message)
