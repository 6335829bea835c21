"""The broker's settings of listeners, connections and quotas."""

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from penstock.config.key import INT_MAX, Kind, Mode, key
from penstock.model.generated_errors import InvalidConfig

PORT_MAX = 65535
NO_EFFECT = "Accepted for compatibility, without effect: each connection has its own bounds."

REQUEST_MEMORY_BYTES = 256 << 20
"""The value of queued.max.request.bytes if it is -1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint to listen on, or to advertise to clients."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def is_loopback(address: str) -> bool:
    """Whether an IP address is a loopback address. A host name is not one: resolve it first."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return (mapped or parsed).is_loopback


def read_endpoint(key_name: str, text: str) -> Endpoint:
    """An endpoint from NAME://HOST:PORT; an empty host is every interface."""
    name, scheme, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not scheme or not name or not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise InvalidConfig(
            f"Invalid value {text} for configuration {key_name}: an endpoint is NAME://HOST:PORT, "
            f"such as PLAINTEXT://localhost:9092"
        )
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Endpoint(name=name.upper(), host=host, port=int(port))


def read_address(key_name: str, text: str) -> tuple[str, int]:
    """Host and port from HOST:PORT; an empty host is every interface, and needs its colon."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX or (":" in host and not bracketed):
        raise InvalidConfig(
            f"Invalid value {text} for configuration {key_name}: an address is HOST:PORT, such as 127.0.0.1:9308"
        )
    return host[1:-1] if bracketed else host, int(port)


def check_endpoints(key_name: str, items: tuple[str, ...]) -> None:
    names: set[str] = set()
    for item in items:
        name = read_endpoint(key_name, item).name
        if name in names:
            raise InvalidConfig(f"Invalid value {','.join(items)} for configuration {key_name}: {name} appears twice")
        names.add(name)


def read_overrides(key_name: str, text: str) -> dict[str, int]:
    """Bounds by address, from address:count,address:count."""
    bounds: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        address, colon, count = item.rpartition(":")
        if not colon or not address or not count.isascii() or not count.isdigit():
            raise InvalidConfig(f"Invalid value {text} for configuration {key_name}: {item} is not ADDRESS:COUNT")
        bounds[address] = int(count)
    return bounds


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class NetworkKeys:
    """Settings of listeners, connections and quotas."""

    __slots__ = ()

    listeners: tuple[str, ...] = key(
        "listeners",
        ("PLAINTEXT://localhost:9092",),
        Kind.LIST,
        check=check_endpoints,
        doc="Where to listen, as NAME://HOST:PORT. No host is every interface.",
    )
    advertised_listeners: tuple[str, ...] | None = key(
        "advertised.listeners",
        None,
        Kind.LIST,
        check=check_endpoints,
        doc="Endpoints that clients connect to, if they differ from listeners.",
    )
    listener_security_protocol_map: str = key(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        Kind.STRING,
        doc="The security protocol of each listener.",
    )
    inter_broker_listener_name: str | None = key(
        "inter.broker.listener.name", None, Kind.STRING, doc="The listener that brokers use among themselves."
    )
    security_inter_broker_protocol: str = key(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        Kind.STRING,
        choices=("PLAINTEXT",),
        doc="Security protocol of the listener that brokers use among themselves.",
    )
    controller_listener_names: tuple[str, ...] = key(
        "controller.listener.names",
        (),
        Kind.LIST,
        doc="Listeners of a KRaft controller, which penstock does not have: listeners of these names are ignored.",
    )
    insecure_listen: bool = key(
        "insecure.listen",
        False,
        Kind.BOOLEAN,
        doc="Allow an unprotected listener that other machines can reach.",
    )
    socket_send_buffer_bytes: int = key(
        "socket.send.buffer.bytes",
        320 * 1024,
        Kind.INT,
        doc="SO_SNDBUF of a connection; -1 is the system's default. It bounds the bytes in flight to a client, so "
        "remote clients need more.",
    )
    socket_receive_buffer_bytes: int = key(
        "socket.receive.buffer.bytes",
        -1,
        Kind.INT,
        doc="SO_RCVBUF of a connection; -1 is the system's default.",
    )
    socket_request_max_bytes: int = key(
        "socket.request.max.bytes", 100 * 1024 * 1024, Kind.INT, minimum=1, doc="The largest request that is read."
    )
    socket_listen_backlog_size: int = key(
        "socket.listen.backlog.size",
        1024,
        Kind.INT,
        minimum=1,
        doc="Connections that the system queues before accept; beyond it a client's first packet is dropped and "
        "retransmitted after a second.",
    )
    connections_max_idle_ms: int = key(
        "connections.max.idle.ms",
        600_000,
        Kind.LONG,
        doc="A connection without a request for this long is closed; negative never.",
    )
    connections_frame_timeout_ms: int = key(
        "connections.frame.timeout.ms",
        30_000,
        Kind.LONG,
        minimum=1,
        doc="How long a request may take to arrive from its first byte to its last.",
    )
    max_connections: int = key(
        "max.connections",
        INT_MAX,
        Kind.INT,
        minimum=0,
        mode=Mode.CLUSTER_WIDE,
        doc="Connections open at once; also bounded by the file descriptors that the logs leave.",
    )
    max_connections_per_ip: int = key(
        "max.connections.per.ip",
        INT_MAX,
        Kind.INT,
        minimum=0,
        mode=Mode.CLUSTER_WIDE,
        doc="Connections open at once from one address.",
    )
    max_connections_per_ip_overrides: str = key(
        "max.connections.per.ip.overrides",
        "",
        Kind.STRING,
        mode=Mode.CLUSTER_WIDE,
        doc="Limits of single addresses, as address:count,...",
    )
    max_connection_creation_rate: int = key(
        "max.connection.creation.rate",
        INT_MAX,
        Kind.INT,
        minimum=0,
        mode=Mode.CLUSTER_WIDE,
        doc="Connections accepted per second.",
    )
    queued_max_requests: int = key(
        "queued.max.requests", 500, Kind.INT, minimum=1, doc=f"Requests waiting at once. {NO_EFFECT}"
    )
    queued_max_request_bytes: int = key(
        "queued.max.request.bytes",
        -1,
        Kind.LONG,
        doc="Memory for requests above 64 KiB while they are received, of all connections together; further requests "
        "wait in their sockets. -1 is 256 MiB, or the largest request if that is more.",
    )
    request_timeout_ms: int = key(
        "request.timeout.ms",
        30_000,
        Kind.INT,
        doc="How long a request to a transaction coordinator, or one that writes transaction markers, waits for its "
        "records to be committed.",
    )
    max_request_partition_size_limit: int = key(
        "max.request.partition.size.limit",
        2000,
        Kind.INT,
        minimum=1,
        doc="Partitions described in one DescribeTopicPartitions response.",
    )
    view_cpu_percent_max: float = key(
        "view.cpu.percent.max",
        100.0,
        Kind.DOUBLE,
        minimum=1,
        maximum=1_000,
        mode=Mode.CLUSTER_WIDE,
        doc="Percent of a core that this broker spends on the readers of one view; they wait beyond it.",
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes", 55 * 1024 * 1024, Kind.INT, minimum=1024, doc="Bytes in one Fetch response."
    )
    max_incremental_fetch_session_cache_slots: int = key(
        "max.incremental.fetch.session.cache.slots", 1000, Kind.INT, minimum=0, doc="Fetch sessions kept at once."
    )
    quota_window_num: int = key(
        "quota.window.num", 11, Kind.INT, minimum=1, doc="Samples that a client quota averages over."
    )
    quota_window_size_seconds: int = key(
        "quota.window.size.seconds", 1, Kind.INT, minimum=1, doc="Length of one sample of a client quota."
    )
    metrics_listener: str = key(
        "metrics.listener",
        "127.0.0.1:9308",
        Kind.STRING,
        doc="HOST:PORT of /metrics, /healthz and /readyz; empty for none. If the port is in use, a free one is "
        "taken and logged.",
    )
    metrics_partitions_enable: bool = key(
        "metrics.partitions.enable",
        True,
        Kind.BOOLEAN,
        mode=Mode.CLUSTER_WIDE,
        doc="Whether /metrics has series for each partition, and for each partition of each group. Without them topics "
        "and groups have their sums: with 10,000 partitions a scrape is then some kilobytes instead of 6 MB.",
    )
