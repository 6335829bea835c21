"""The brokers of a cluster, and the requests that each of them supports."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.client.calls import AdminCalls
from penstock.client.connection import CLIENT_ID, REQUEST_SECONDS_MAX, Connection
from penstock.client.failures import ClientError
from penstock.client.wire_calls import WireCalls, refuse, speaks_plaintext
from penstock.wire.api import api_versions
from penstock.wire.api.table import TABLE

API_VERSIONS_VERSION = 3
SOFTWARE_VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerVersions:
    """The versions of each request that a broker supports, and the level of each feature."""

    apis: dict[str, tuple[int, int]]
    features: dict[str, int]
    supported: dict[str, tuple[int, int]]
    """The lowest and the highest level of each feature that the broker supports, as far as it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerInfo:
    """One broker; `versions` is None if they could not be requested, for the reason in `why`."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    versions: BrokerVersions | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """A cluster as its brokers describe it; there is no controller while one is being elected."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerInfo, ...]


def describe_cluster(connection: Connection, seconds_max: float = REQUEST_SECONDS_MAX) -> ClusterInfo:
    """The cluster and its brokers. An unreachable broker is listed too."""
    calls = AdminCalls(connection, seconds_max)
    found = calls.whole("cannot describe the cluster", calls.client.describe_cluster)
    controller = found.controller
    return ClusterInfo(
        cluster_id=found.cluster_id,
        controller=None if controller is None or controller.id < 0 else controller.id,
        brokers=tuple(
            _asked(connection, BrokerInfo(broker_id=node.id, host=node.host, port=node.port, rack=node.rack))
            for node in sorted(found.nodes, key=lambda node: int(node.id))
        ),
    )


def _asked(connection: Connection, broker: BrokerInfo) -> BrokerInfo:
    """The broker with its versions, which librdkafka does not expose: they are requested over a separate connection."""
    if not speaks_plaintext(connection):
        return replace(broker, why="versions are shown only without encryption and SASL")
    request = api_versions.Request(client_software_name=CLIENT_ID, client_software_version=SOFTWARE_VERSION)
    doing = f"cannot ask broker {broker.broker_id} for its versions"
    try:
        with WireCalls(connection) as calls:
            response = calls.ask(doing, (broker.host, broker.port), api_versions, API_VERSIONS_VERSION, request)
            refuse(doing, response.error_code)
    except ClientError as error:
        return replace(broker, why=str(error))
    versions = BrokerVersions(
        apis={
            TABLE[each.api_key].name if each.api_key in TABLE else str(each.api_key): (
                each.min_version,
                each.max_version,
            )
            for each in response.api_keys
        },
        features={each.name: each.max_version_level for each in response.finalized_features},
        supported={each.name: (each.min_version, each.max_version) for each in response.supported_features},
    )
    return replace(broker, versions=versions)
