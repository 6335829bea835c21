"""How a process's file descriptors are divided: logs come first, and connections get the rest.

A broker that runs out of them can open no segment, so a flood of connections must never use the last one.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

OTHER_MAX = 128
"""Descriptors for everything but open log files and clients: the metadata store, the HTTP pages, files that a thread
reads once, syncs, compacts or moves, and segments that have left the pool while a response is sent from them."""

LIMIT_MAX = 1 << 20
"""Assumed where the system sets no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorBudget:
    """The limit of a process, and how it is divided."""

    limit: int
    log_files_max: int
    connections_max: int


def divide(limit: int, *, log_files_wanted: int) -> DescriptorBudget:
    """Give the logs what their setting asks for, but at most half of what is available."""
    free = max(limit - OTHER_MAX, 2)
    log_files = max(1, min(log_files_wanted, free // 2))
    return DescriptorBudget(limit=limit, log_files_max=log_files, connections_max=free - log_files)


def raise_limit() -> int:
    """Raise the soft limit to the hard limit; returns that limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return LIMIT_MAX if hard == resource.RLIM_INFINITY else hard
