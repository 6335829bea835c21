"""Throttles of replication: bytes per second of the replicas that a topic names, while they are not in sync.

Kafka's settings: the rate is the broker's (`leader.replication.throttled.rate`, `follower.replication.throttled.rate`),
the replicas are the topic's (`leader.replication.throttled.replicas` and the follower's), as partition:broker or '*'.
"""

from collections.abc import Callable, Sequence

BURST_S = 1.0
"""Bytes of so long may go out at once."""
RATE_MIN = 1


def is_named(replicas: Sequence[str], partition: int, broker_id: int) -> bool:
    """Whether a list of throttled replicas has this one."""
    return replicas == ("*",) or f"{partition}:{broker_id}" in replicas


class ReplicationThrottle:
    """One direction of one broker."""

    __slots__ = ("_monotonic", "_paid_s", "_rate")

    def __init__(self, rate: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._paid_s = 0.0
        """When all bytes so far would have been copied at the rate."""

    def copied(self, count: int) -> int:
        """Note bytes; how many milliseconds to wait before the next ones."""
        now_s = self._monotonic()
        self._paid_s = max(self._paid_s, now_s - BURST_S) + count / max(self._rate(), RATE_MIN)
        return max(int((self._paid_s - now_s) * 1000), 0)

    @property
    def exceeded(self) -> bool:
        return self._paid_s > self._monotonic()
