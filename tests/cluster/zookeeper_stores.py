"""Metadata stores in real ZooKeeper servers, for tests."""

from __future__ import annotations

from penstock.metadata.zookeeper import ZooKeeperSource
from penstock.metadata.zookeeper_client import Ensemble
from penstock.metadata.zookeeper_requests import OPEN
from penstock.model.clock import SystemClock
from penstock.observe.log import logger

SESSION_MS = 3_000


def source(
    servers: str, root: str = "/penstock", session_ms: int = SESSION_MS, connection_timeout_s: float = 30
) -> ZooKeeperSource:
    """A store that anyone may read and write."""
    return ZooKeeperSource(
        Ensemble(servers=servers, session_timeout_ms=session_ms),
        root=root,
        permissions=OPEN,
        connection_timeout_s=connection_timeout_s,
        clock=SystemClock(),
        log=logger("zookeeper"),
    )
