"""The broker's settings of ZooKeeper, with the names that Kafka had for them where it had some."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.config.key import Kind, key
from penstock.model.generated_errors import InvalidConfig

PORT_DEFAULT = 2181
ROOT_BYTES_MAX = 200
"""Every operation of a transaction carries the path, and a transaction is bounded."""
SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\],]+)(:(?P<port>\d{1,5}))?")


def read_connect(text: str) -> tuple[str, str]:
    """Servers and root of HOST:PORT,HOST:PORT/root: the servers with their ports, and the root without a last slash."""
    servers, slash, rest = text.partition("/")
    addresses: list[str] = []
    for server in servers.split(","):
        found = SERVER.fullmatch(server.strip())
        port = int(found["port"] or PORT_DEFAULT) if found else 0
        if found is None or not 0 < port < 65536:
            raise refused(text, f"{server.strip() or 'an empty name'} is not HOST:PORT")
        addresses.append(f"{found['host']}:{port}")
    names = rest.rstrip("/").split("/") if rest.rstrip("/") else []
    unfit = any(name in ("", ".", "..") or not name.isprintable() for name in names) or names[:1] == ["zookeeper"]
    if unfit or len(rest.encode()) > ROOT_BYTES_MAX:
        raise refused(text, f"{slash}{rest} cannot be a path for the nodes of a cluster")
    return ",".join(addresses), "".join(f"/{name}" for name in names)


def refused(text: str, why: str) -> InvalidConfig:
    return InvalidConfig(
        f"Invalid value {text} for configuration zookeeper.connect: {why}; it is HOST:PORT[,HOST:PORT...][/path]"
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ZooKeeperKeys:
    """Settings of ZooKeeper, where a cluster of several brokers keeps its metadata."""

    __slots__ = ()

    zookeeper_connect: str | None = key(
        "zookeeper.connect",
        None,
        Kind.STRING,
        doc="ZooKeeper's servers as HOST:PORT,..., and after them the path below which the cluster keeps its nodes: "
        "zk1:2181,zk2:2181,zk3:2181/penstock. Unset, a single broker keeps its metadata in its data directory.",
    )
    zookeeper_connection_timeout_ms: int = key(
        "zookeeper.connection.timeout.ms",
        18_000,
        Kind.INT,
        minimum=1,
        doc="How long a starting broker waits for ZooKeeper. The session's time is broker.session.timeout.ms.",
    )
    zookeeper_authentication: str = key(
        "zookeeper.authentication",
        "none",
        Kind.STRING,
        choices=("none", "digest", "sasl"),
        doc="How the broker says who it is: not at all (or only by its TLS certificate), by ZooKeeper's digest scheme, "
        "or by SASL with DIGEST-MD5. Digest sends the password as it is: use TLS with it.",
    )
    zookeeper_username: str = key("zookeeper.username", "", Kind.STRING, doc="User for digest and SASL.")
    zookeeper_password: str = key("zookeeper.password", "", Kind.PASSWORD, doc="Password of that user.")
    zookeeper_set_acl: bool = key(
        "zookeeper.set.acl",
        False,
        Kind.BOOLEAN,
        doc="Create nodes that only those can read and change who authenticate as this broker does; all brokers of a "
        "cluster then need the same user.",
    )
    zookeeper_ssl_client_enable: bool = key(
        "zookeeper.ssl.client.enable", False, Kind.BOOLEAN, doc="Connect to ZooKeeper with TLS."
    )
    zookeeper_ssl_truststore_location: str | None = key(
        "zookeeper.ssl.truststore.location",
        None,
        Kind.STRING,
        doc="PEM file of the certificates that ZooKeeper's are checked with; the system's if unset.",
    )
    zookeeper_ssl_truststore_type: str = key(
        "zookeeper.ssl.truststore.type", "PEM", Kind.STRING, choices=("PEM",), doc="Format of that file."
    )
    zookeeper_ssl_keystore_location: str | None = key(
        "zookeeper.ssl.keystore.location",
        None,
        Kind.STRING,
        doc="PEM file of this broker's certificate and private key, where ZooKeeper asks for one.",
    )
    zookeeper_ssl_keystore_password: str = key(
        "zookeeper.ssl.keystore.password", "", Kind.PASSWORD, doc="Password of the private key in that file."
    )
    zookeeper_ssl_keystore_type: str = key(
        "zookeeper.ssl.keystore.type", "PEM", Kind.STRING, choices=("PEM",), doc="Format of that file."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = key(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        Kind.STRING,
        choices=("HTTPS", ""),
        doc="Whether the name in a server's certificate must be the one in zookeeper.connect; empty: any name will do.",
    )

    def check_zookeeper(self) -> None:
        """Raise `InvalidConfig` for settings that contradict each other."""
        if self.zookeeper_connect:
            read_connect(self.zookeeper_connect)
        authenticates = self.zookeeper_authentication != "none"
        if authenticates and not (self.zookeeper_username and self.zookeeper_password):
            raise InvalidConfig(
                f"zookeeper.authentication={self.zookeeper_authentication} needs zookeeper.username and "
                "zookeeper.password"
            )
        if ":" in self.zookeeper_username:
            raise InvalidConfig("Invalid value for configuration zookeeper.username: it has a colon")
        tls_files = self.zookeeper_ssl_keystore_location or self.zookeeper_ssl_truststore_location
        if tls_files and not self.zookeeper_ssl_client_enable:
            raise InvalidConfig(f"{tls_files} has no effect without zookeeper.ssl.client.enable=true")
        if self.zookeeper_set_acl and not authenticates and not self.zookeeper_ssl_keystore_location:
            raise InvalidConfig(
                "zookeeper.set.acl=true needs a broker that authenticates: set zookeeper.authentication or "
                "zookeeper.ssl.keystore.location"
            )
