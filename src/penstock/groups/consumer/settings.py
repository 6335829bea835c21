"""The settings that hold for one group with the consumer protocol, and how often its members send heartbeats."""

from collections.abc import Callable, Mapping

from penstock.config.broker import NO_SETTINGS, BrokerConfig
from penstock.config.group_settings import GroupConfig
from penstock.groups.consumer.migration import MigrationPolicy
from penstock.groups.consumer.state import ConsumerState

HURRY_MS = 10_000
HURRIED_INTERVAL_MS = 500
HURRIED_MS_PER_MEMBER = 2
"""For so long after a change of epoch members beat sooner: this often, or slower the more of them there are."""


def no_overrides(group: str) -> Mapping[str, str]:
    """No group has settings of its own."""
    return NO_SETTINGS


class ConsumerGroupSettings:
    """The current `GroupConfig` of a group. Settings are replaced and never changed, so it is made when they are."""

    __slots__ = ("_config", "_config_of", "_group", "_overrides", "broker")

    def __init__(self, group: str, broker: BrokerConfig, overrides: Callable[[str], Mapping[str, str]]) -> None:
        """`overrides` gives the settings that a group has of its own."""
        self._group = group
        self._overrides = overrides
        self.broker = broker
        own = overrides(group)
        self._config = GroupConfig.of(own, broker)
        self._config_of = (own, broker)

    @property
    def _current(self) -> GroupConfig:
        own = self._overrides(self._group)
        made_of = self._config_of
        if own is not made_of[0] or self.broker is not made_of[1]:
            self._config = GroupConfig.of(own, self.broker)
            self._config_of = (own, self.broker)
        return self._config

    @property
    def session_timeout_ms(self) -> int:
        return self._current.consumer_session_timeout_ms

    @property
    def heartbeat_interval_ms(self) -> int:
        return self._current.consumer_heartbeat_interval_ms

    @property
    def assignment_interval_ms(self) -> int:
        return self._current.consumer_assignment_interval_ms

    @property
    def migration_policy(self) -> MigrationPolicy:
        return MigrationPolicy.named(self.broker.group_consumer_migration_policy)


class HeartbeatPace:
    """The heartbeat interval: shorter than usual while the group is on its way to a new target.

    A partition changes hands in three heartbeats: its owner is told to let go, lets go, and the next one is told to
    take it. At the usual pace that takes two intervals, most of it waiting. A large group is hurried less, so that
    what it asks of the loop stays bounded.
    """

    def __init__(self, state: ConsumerState, settings: ConsumerGroupSettings) -> None:
        self._state = state
        self._settings = settings
        self._epoch: int | None = None
        self._hurried_until_ms = 0

    def interval_ms(self, epoch: int, now_ms: int) -> int:
        """The interval for a member that is told of this epoch of the group."""
        # A group that was just loaded has no change behind it, only a first heartbeat.
        if epoch != self._state.epoch.epoch or self._epoch not in (None, epoch):
            self._hurried_until_ms = now_ms + HURRY_MS
        self._epoch = epoch
        usual = self._settings.heartbeat_interval_ms
        if now_ms >= self._hurried_until_ms:
            return usual
        return min(usual, max(HURRIED_INTERVAL_MS, len(self._state.members) * HURRIED_MS_PER_MEMBER))
