"""ApiVersions (18), v0 to v4: what this broker can be asked. The first request of every modern client.

Names of client software (v3+) are checked as Kafka checks them. Features tell clients which protocols of groups and of
transactions they may use.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.api.registry import Api, RequestContext
from penstock.model.generated_errors import InvalidRequest, UnsupportedVersion
from penstock.wire.api import api_versions as gen

FEATURES = {"group.version": 1, "transaction.version": 2}
"""Each feature's level: the consumer protocol, and transactions that raise their producer's epoch each."""

FEATURE_MIN = 0
LEVEL_ZERO_FROM = 4
FEATURES_EPOCH = 1
"""Clients believe the features of the greatest epoch; these never change."""

SOFTWARE_FROM = 3
SOFTWARE_CHARS_MAX = 64
"""Kept of the name and of the version of client software, which become labels of a metric."""

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """Tells the rows of the registry, which is complete only after this handler is part of it."""

    def __init__(self, advertised: Callable[[], list[tuple[int, int, int]]]) -> None:
        self._advertised = advertised

    def apis(self) -> tuple[Api, ...]:
        return (Api(key=18, versions=range(5), handle=self.handle),)

    def handle(self, context: RequestContext, request: gen.Request) -> gen.Response:
        if context.api_version >= SOFTWARE_FROM and not (
            SOFTWARE_NAME.fullmatch(request.client_software_name)
            and SOFTWARE_NAME.fullmatch(request.client_software_version)
        ):
            return gen.Response(error_code=InvalidRequest.code)
        if context.api_version >= SOFTWARE_FROM:
            context.connection.software = (
                request.client_software_name[:SOFTWARE_CHARS_MAX],
                request.client_software_version[:SOFTWARE_CHARS_MAX],
            )
        # Older clients take a feature that may be at level 0 for a broken one, so it is not shown to them.
        shown = FEATURES if context.api_version >= LEVEL_ZERO_FROM else {}
        return gen.Response(
            api_keys=self._rows(),
            supported_features=[
                gen.SupportedFeatureKey(name=name, min_version=FEATURE_MIN, max_version=level)
                for name, level in shown.items()
            ],
            finalized_features_epoch=FEATURES_EPOCH,
            finalized_features=[
                gen.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in FEATURES.items()
            ],
        )

    def unsupported(self) -> gen.Response:
        """The response to an unknown version, in the oldest encoding: which versions of this request are known."""
        return gen.Response(
            error_code=UnsupportedVersion.code,
            api_keys=[row for row in self._rows() if row.api_key == gen.API_KEY],
        )

    def _rows(self) -> list[gen.ApiVersion]:
        return [gen.ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in self._advertised()]
