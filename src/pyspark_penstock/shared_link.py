"""Links to brokers that outlive a task: Spark reuses its Python workers, and a worker reuses its connections.

    with shared_link(settings) as link:
        ...

gives a `BrokerLink` that no other caller in this process uses meanwhile. Like a new link it has no leaders and topics,
but it may have coordinators and connections: a small task spends most of its time on connecting and ApiVersions. A
block that ends normally leaves the link for the next one with equal settings; one that ends with an exception closes
it. A connection with pending responses is closed.

A forked process does not use its parent's links and creates its own.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache

from penstock.model.clock import Clock, SystemClock
from pyspark_penstock.link import BrokerLink, LinkSettings

LINKS_IDLE_MAX = 4
"""The most idle links of a process; above it the one that is idle for longest is closed."""
IDLE_SECONDS_MAX = 60.0
"""A link that was idle for longer is closed and not used: less than the idle timeouts of brokers and firewalls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Idle:
    link: BrokerLink
    since: float


class LinkPool:
    """The idle links of one process, the oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._process = os.getpid()
        self._idle: list[_Idle] = []

    @contextmanager
    def link(self, settings: LinkSettings) -> Generator[BrokerLink]:
        link = self._take(settings)
        try:
            yield link
        except BaseException:
            link.close()
            raise
        self._keep(link)

    def close(self) -> None:
        for each in self._idle:
            each.link.close()
        self._idle.clear()

    def _take(self, settings: LinkSettings) -> BrokerLink:
        if self._process != os.getpid():
            # A fork: these descriptors are copies, and closing them leaves the parent's connections open.
            self.close()
            self._process = os.getpid()
        self._expire()
        for each in reversed(self._idle):
            if each.link.settings == settings:
                self._idle.remove(each)
                each.link.renew()
                return each.link
        return BrokerLink(settings, self._clock)

    def _keep(self, link: BrokerLink) -> None:
        self._idle.append(_Idle(link=link, since=self._clock.monotonic()))
        for each in self._idle[:-LINKS_IDLE_MAX]:
            each.link.close()
        del self._idle[:-LINKS_IDLE_MAX]

    def _expire(self) -> None:
        oldest = self._clock.monotonic() - IDLE_SECONDS_MAX
        for each in self._idle:
            if each.since < oldest:
                each.link.close()
        self._idle = [each for each in self._idle if each.since >= oldest]


@cache
def _pool() -> LinkPool:
    return LinkPool(SystemClock())


def shared_link(settings: LinkSettings) -> AbstractContextManager[BrokerLink]:
    """A link of this process for one task; see the module's documentation."""
    return _pool().link(settings)
