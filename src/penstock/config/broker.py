"""All settings of a broker, as one object."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from penstock.config.group import GroupKeys
from penstock.config.key import Key, Kind, key, keys_of
from penstock.config.log import TopicConfig, topic_defaults
from penstock.config.log_defaults import LogDefaults
from penstock.config.network import (
    REQUEST_MEMORY_BYTES,
    Endpoint,
    NetworkKeys,
    read_address,
    read_endpoint,
    read_overrides,
)
from penstock.config.replica import ReplicaKeys
from penstock.config.txn import TransactionKeys
from penstock.config.zookeeper import ZooKeeperKeys
from penstock.model.generated_errors import InvalidConfig

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
ALIASES = {"node.id": "broker.id", "zookeeper.session.timeout.ms": "broker.session.timeout.ms"}
PROTECTION_NONE = "PLAINTEXT"


def no_settings() -> Mapping[str, str]:
    return NO_SETTINGS


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class BrokerConfig(NetworkKeys, LogDefaults, ReplicaKeys, GroupKeys, TransactionKeys, ZooKeeperKeys):
    """The settings in force on one broker.

    `given` holds the texts it was started with, `given_cluster` and `given_broker` those set while running, for all
    brokers and for this one: a later one of the three wins. They are kept so that DescribeConfigs can name the source
    of each value.
    """

    broker_id: int = key("broker.id", 1, Kind.INT, minimum=0, doc="This broker's id in its cluster; also node.id.")
    broker_rack: str | None = key(
        "broker.rack", None, Kind.STRING, doc="Rack of this broker: replicas are spread over racks."
    )
    cluster_id: str | None = key(
        "cluster.id",
        None,
        Kind.STRING,
        doc="The cluster to create or to join; generated at the first start if unset.",
    )
    num_partitions: int = key(
        "num.partitions", 1, Kind.INT, minimum=1, doc="Partitions of a topic that is created without a number of them."
    )
    auto_create_topics_enable: bool = key(
        "auto.create.topics.enable",
        True,
        Kind.BOOLEAN,
        doc="Whether a Metadata request for an unknown topic creates it.",
    )
    delete_topic_enable: bool = key("delete.topic.enable", True, Kind.BOOLEAN, doc="Whether topics can be deleted.")
    background_threads: int = key(
        "background.threads",
        2,
        Kind.INT,
        minimum=1,
        doc="Threads for disk work that must not block the event loop; a broker has at least 4.",
    )
    log_level: str = key(
        "log.level",
        "info",
        Kind.STRING,
        choices=("debug", "info", "warning", "error"),
        doc="The lowest level that is logged. Kafka's ConfigCommand changes it at run time (broker-loggers), for all "
        "parts or for one.",
    )
    log_format: str = key(
        "log.format",
        "auto",
        Kind.STRING,
        choices=("auto", "text", "json"),
        doc="Format of log lines: text for people, JSON for programs; auto is text on a terminal, else JSON.",
    )
    decompression_max_bytes: int = key(
        "decompression.max.bytes",
        256 * 1024 * 1024,
        Kind.LONG,
        minimum=1024 * 1024,
        doc="Bytes of decompressed records that the threads of all requests together may hold, to validate large "
        "compressed batches and to find offsets by timestamp. Work that needs more waits.",
    )

    given: Mapping[str, str] = field(default_factory=no_settings)
    given_cluster: Mapping[str, str] = field(default_factory=no_settings)
    given_broker: Mapping[str, str] = field(default_factory=no_settings)
    warnings: tuple[str, ...] = ()
    started: "BrokerConfig | None" = None
    """The static config, if this one has dynamic settings over it."""
    topic_defaults: TopicConfig = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "topic_defaults", topic_defaults(self))

    @classmethod
    def from_settings(
        cls,
        given: Mapping[str, str],
        *,
        given_cluster: Mapping[str, str] = NO_SETTINGS,
        given_broker: Mapping[str, str] = NO_SETTINGS,
        warnings: tuple[str, ...] = (),
    ) -> "BrokerConfig":
        """Build a config from texts. An unknown name is a `KeyError`: the loader has rejected or dropped those."""
        started = cls(given=dict(given), warnings=warnings, **read_settings(given))
        if not given_cluster and not given_broker:
            started.check()
            return started
        return started.with_dynamic(cluster=given_cluster, broker=given_broker)

    def with_dynamic(self, *, cluster: Mapping[str, str], broker: Mapping[str, str]) -> "BrokerConfig":
        """The static config with these dynamic settings over it, which replace all earlier ones."""
        started = self.started or self
        changed = replace(
            started,
            given_cluster=dict(cluster),
            given_broker=dict(broker),
            started=started,
            **(read_settings(cluster) | read_settings(broker)),
        )
        changed.check()
        return changed

    def check(self) -> None:
        """Raise `InvalidConfig` for settings that contradict each other."""
        low, high = self.log_cleaner_min_compaction_lag_ms, self.log_cleaner_max_compaction_lag_ms
        if low > high:
            raise InvalidConfig(
                f"log.cleaner.min.compaction.lag.ms ({low}) is greater than log.cleaner.max.compaction.lag.ms ({high})"
            )
        read_overrides("max.connections.per.ip.overrides", self.max_connections_per_ip_overrides)
        if self.metrics_listener:
            read_address("metrics.listener", self.metrics_listener)
        self.check_zookeeper()
        if self.started is None and self.cordoned_log_dirs:
            raise InvalidConfig(
                "cordoned.log.dirs cannot be set in a broker's own settings, which the controller does not see: use "
                "`penstock cluster drain`, or Kafka's ConfigCommand"
            )
        protections = self._protections()
        for endpoint in self.endpoints:
            protection = protections.get(endpoint.name)
            if protection is None:
                raise InvalidConfig(
                    f"Invalid value {endpoint} for configuration listeners: "
                    f"listener.security.protocol.map does not say how {endpoint.name} is protected"
                )
            if protection != PROTECTION_NONE:
                raise InvalidConfig(
                    f"Invalid value {endpoint} for configuration listeners: {protection} is not supported yet; "
                    f"use {PROTECTION_NONE} on a loopback address"
                )

    def _protections(self) -> dict[str, str]:
        pairs = (pair.strip().partition(":") for pair in self.listener_security_protocol_map.split(","))
        return {name.strip().upper(): protection.strip().upper() for name, _, protection in pairs if name}

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Endpoints to listen on, without the controller listeners of a KRaft server.properties."""
        without = {name.upper() for name in self.controller_listener_names}
        found = tuple(read_endpoint("listeners", text) for text in self.listeners)
        return tuple(endpoint for endpoint in found if endpoint.name not in without)

    @property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """Endpoints that clients get in Metadata; empty if they are those of `listeners`."""
        without = {name.upper() for name in self.controller_listener_names}
        found = tuple(read_endpoint("advertised.listeners", text) for text in self.advertised_listeners or ())
        return tuple(endpoint for endpoint in found if endpoint.name not in without)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the metrics and health pages; None when they are off."""
        return read_address("metrics.listener", self.metrics_listener) if self.metrics_listener else None

    @property
    def request_memory_bytes(self) -> int:
        """Memory for large requests while they are received."""
        wanted = self.queued_max_request_bytes
        return max(REQUEST_MEMORY_BYTES if wanted < 0 else wanted, self.socket_request_max_bytes)

    @property
    def connections_of_address_max(self) -> dict[str, int]:
        """Connection limits of single addresses."""
        return read_overrides("max.connections.per.ip.overrides", self.max_connections_per_ip_overrides)

    @property
    def data_directories(self) -> tuple[str, ...]:
        """Every directory that holds data, each once, in the order given."""
        return tuple(dict.fromkeys(self.log_dirs or self.log_dir))


BROKER_KEYS: dict[str, Key] = keys_of(BrokerConfig)


def read_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Texts as attributes and values."""
    values: dict[str, Any] = {}
    for name, text in settings.items():
        declared = BROKER_KEYS[ALIASES.get(name, name)]
        values[declared.attribute] = declared.read(text)
    return values


def readable(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that this version knows: one stored by a later version must not keep the broker from starting."""
    known: dict[str, str] = {}
    for name, text in settings.items():
        try:
            if name in BROKER_KEYS:
                BROKER_KEYS[name].read(text)
                known[name] = text
        except InvalidConfig:
            continue
    return known
