"""ApiVersions (18), v0 to v4: the APIs and versions of this broker. The first request of every modern client.

Names of client software (v3+) are checked as in Kafka. Features show clients which group protocol and which transaction
version they may use, and operators the version of the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.api.registry import Api, RequestContext
from penstock.metadata.records import Features
from penstock.model.cluster_versions import FEATURE as CLUSTER_VERSION
from penstock.model.cluster_versions import SHARE_GROUPS, SUPPORTED, VersionRange
from penstock.model.generated_errors import InvalidRequest, UnsupportedVersion
from penstock.replication.peers import SOFTWARE_NAME as BROKER_SOFTWARE
from penstock.wire.api import api_versions as gen

SHARE_VERSION = "share.version"
FEATURES = {"group.version": 1, SHARE_VERSION: 1, "transaction.version": 2}
"""Level of each feature: the consumer group protocol, share groups, and transactions that bump the producer epoch."""

FEATURE_MIN = 0
LEVEL_ZERO_FROM = 4
SOFTWARE_FROM = 3
SOFTWARE_CHARS_MAX = 64
"""Characters kept of a client's software name and version, which become labels of a metric."""

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """Lists the rows of the registry, which is complete only after this handler is part of it."""

    def __init__(
        self,
        advertised: Callable[[bool], list[tuple[int, int, int]]],
        *,
        finalized: Callable[[], Features] = Features,
        versions: VersionRange = SUPPORTED,
    ) -> None:
        """`advertised` gives the rows for clients, or with True those for brokers.

        `finalized` gives the version of the cluster, and `versions` are those that this broker supports.
        """
        self._advertised = advertised
        self._finalized = finalized
        self._versions = versions

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
        # Older clients reject a feature with a minimum level of 0, so it is not sent to them.
        shown = FEATURES if context.api_version >= LEVEL_ZERO_FROM else {}
        supported = [(name, FEATURE_MIN, level) for name, level in shown.items()]
        supported.append((CLUSTER_VERSION, self._versions.lowest, self._versions.highest))
        finalized = self._finalized()
        return gen.Response(
            api_keys=self._rows(is_broker=context.connection.software[0] == BROKER_SOFTWARE),
            supported_features=[
                gen.SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
                for name, lowest, highest in supported
            ],
            finalized_features_epoch=finalized.epoch,
            finalized_features=[
                gen.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in {**features_at(finalized.level), CLUSTER_VERSION: finalized.level}.items()
            ],
        )

    def unsupported(self) -> gen.Response:
        """The response to an unknown version: the known versions of ApiVersions. It is encoded as version 0."""
        return gen.Response(
            error_code=UnsupportedVersion.code,
            api_keys=[row for row in self._rows() if row.api_key == gen.API_KEY],
        )

    def _rows(self, *, is_broker: bool = False) -> list[gen.ApiVersion]:
        return [
            gen.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in self._advertised(is_broker)
        ]


def features_at(level: int) -> dict[str, int]:
    """The features in force in a cluster of this version."""
    return {name: value for name, value in FEATURES.items() if level >= SHARE_GROUPS or name != SHARE_VERSION}
