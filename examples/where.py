"""Where the examples find a broker: their argument, else $PENSTOCK_BOOTSTRAP, else localhost:9092.

A client library retries an unreachable broker for minutes. An example checks first, and fails with one line.

    python examples/where.py [HOST:PORT]
"""

from __future__ import annotations

import os
import socket
import sys

DEFAULT = "localhost:9092"
CONNECT_SECONDS_MAX = 5.0


def bootstrap_servers(given: str | None = None) -> str:
    """The addresses, of which at least one accepts connections; exits if none does."""
    servers = given or os.environ.get("PENSTOCK_BOOTSTRAP") or DEFAULT
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS_MAX).close()
        except (OSError, ValueError):
            continue
        return servers
    raise SystemExit(f"no broker answers at {servers}: start one with `penstock up`, or set PENSTOCK_BOOTSTRAP")


if __name__ == "__main__":
    print(bootstrap_servers(sys.argv[1] if len(sys.argv) > 1 else None))
