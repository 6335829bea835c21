"""The addresses of the brokers, and a check that one is reachable: librdkafka would retry silently for minutes."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.client.failures import ClientError, Unreachable

BOOTSTRAP_DEFAULT = "localhost:9092"
PORT_DEFAULT = 9092
CONNECT_SECONDS_MAX = 2.0
REQUEST_SECONDS_MAX = 10.0
CLIENT_ID = "penstock-cli"

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach a cluster: the bootstrap list, and any other properties of librdkafka."""

    bootstrap: str = BOOTSTRAP_DEFAULT
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def settings(self, **more: Any) -> dict[str, Any]:
        """Properties for librdkafka. Underscores in names become dots; the user's own properties override the rest."""
        own = {name.replace("_", "."): value for name, value in more.items()}
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": CLIENT_ID,
            # Errors are reported once, by the command; librdkafka would log them every second.
            "log_level": 0,
            "socket.connection.setup.timeout.ms": int(CONNECT_SECONDS_MAX * 1000),
            **own,
            **self.properties,
        }

    def check(self, seconds_max: float = CONNECT_SECONDS_MAX) -> None:
        """Return if any of the addresses accepts a connection; raise `Unreachable` at once if each refuses."""
        refused: list[str] = []
        for host, port in parse_addresses(self.bootstrap):
            try:
                socket.create_connection((host, port), timeout=seconds_max).close()
            except OSError as error:
                refused.append(f"{host}:{port}: {_reason(error)}")
            else:
                return
        raise Unreachable(
            f"cannot connect to {'; '.join(refused)}",
            hint="is it running? `penstock up` starts a broker here; --bootstrap or PENSTOCK_BOOTSTRAP names another",
        )


def parse_addresses(bootstrap: str) -> tuple[Address, ...]:
    """`host:port,host,[v6]:port` as pairs; the default port is Kafka's."""
    addresses = tuple(parse_address(part.strip()) for part in bootstrap.split(",") if part.strip())
    if not addresses:
        raise ClientError("the bootstrap list is empty", hint="give --bootstrap HOST:PORT")
    return addresses


def parse_address(text: str) -> Address:
    bare = text.rpartition("://")[2]
    host, colon, port = bare.rpartition(":")
    if not colon or (bare.startswith("[") and bare.endswith("]")):
        host, port = bare, str(PORT_DEFAULT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ClientError(f"{text!r} is not HOST:PORT", hint=f"such as {BOOTSTRAP_DEFAULT}")
    return host, int(port)


def _reason(error: OSError) -> str:
    match error:
        case TimeoutError():
            return "timed out"
        case ConnectionRefusedError():
            return "connection refused"
        case socket.gaierror():
            return "unknown host"
        case _:
            return (error.strerror or str(error)).lower()
