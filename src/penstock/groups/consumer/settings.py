"""The settings of one group with the consumer protocol, and the heartbeat interval of its members."""

from collections.abc import Callable, Mapping

from penstock.config.broker import NO_SETTINGS, BrokerConfig
from penstock.config.group_settings import GroupConfig
from penstock.groups.consumer.migration import MigrationPolicy
from penstock.groups.consumer.state import ConsumerState

RECONCILING_MS = 10_000
RECONCILING_INTERVAL_MS = 500
RECONCILING_MS_PER_MEMBER = 2
"""For RECONCILING_MS after a change of epoch heartbeats are this frequent, or slower in a group with many members."""


def no_overrides(group: str) -> Mapping[str, str]:
    """No group has dynamic configs."""
    return NO_SETTINGS


class ConsumerGroupSettings:
    """The current `GroupConfig` of a group, rebuilt when the broker's or the group's settings are replaced."""

    __slots__ = ("_config", "_config_of", "_group", "_overrides", "broker")

    def __init__(self, group: str, broker: BrokerConfig, overrides: Callable[[str], Mapping[str, str]]) -> None:
        """`overrides` returns the dynamic configs of a group."""
        self._group = group
        self._overrides = overrides
        self.broker = broker
        own = overrides(group)
        self._config = GroupConfig.of(own, broker)
        self._config_of = (own, broker)

    @property
    def current(self) -> GroupConfig:
        """All settings of the group."""
        own = self._overrides(self._group)
        made_of = self._config_of
        if own is not made_of[0] or self.broker is not made_of[1]:
            self._config = GroupConfig.of(own, self.broker)
            self._config_of = (own, self.broker)
        return self._config

    @property
    def session_timeout_ms(self) -> int:
        return self.current.consumer_session_timeout_ms

    @property
    def heartbeat_interval_ms(self) -> int:
        return self.current.consumer_heartbeat_interval_ms

    @property
    def assignment_interval_ms(self) -> int:
        return self.current.consumer_assignment_interval_ms

    @property
    def migration_policy(self) -> MigrationPolicy:
        return MigrationPolicy.named(self.broker.group_consumer_migration_policy)


class HeartbeatPace:
    """The heartbeat interval: shorter than configured for RECONCILING_MS after a change of epoch.

    A partition changes its owner in three heartbeats: the owner is told to revoke it, acknowledges, and the next owner
    gets it. At the configured interval that takes two intervals, most of it waiting. In a large group the interval is
    less short, so that the load on the loop stays bounded.
    """

    __slots__ = ("_epoch", "_reconciling_until_ms", "_settings", "_state")

    def __init__(self, state: ConsumerState, settings: ConsumerGroupSettings) -> None:
        self._state = state
        self._settings = settings
        self._epoch: int | None = None
        self._reconciling_until_ms = 0

    def interval_ms(self, epoch: int, now_ms: int) -> int:
        """The interval for a member in this epoch of the group."""
        # The first heartbeat after a load is no change of epoch.
        if epoch != self._state.epoch.epoch or self._epoch not in (None, epoch):
            self._reconciling_until_ms = now_ms + RECONCILING_MS
        self._epoch = epoch
        configured_ms = self._settings.heartbeat_interval_ms
        if now_ms >= self._reconciling_until_ms:
            return configured_ms
        return min(configured_ms, max(RECONCILING_INTERVAL_MS, len(self._state.members) * RECONCILING_MS_PER_MEMBER))
