"""The settings that hold for one group with the consumer protocol: its own, or else the broker's."""

from collections.abc import Callable, Mapping

from penstock.config.broker import BrokerConfig
from penstock.groups.consumer.migration import MigrationPolicy


def no_overrides(group: str) -> Mapping[str, str]:
    """No group has settings of its own."""
    return {}


class ConsumerGroupSettings:
    """Read anew at each use: both the broker's and the group's may change while the broker runs."""

    __slots__ = ("_group", "_overrides", "broker")

    def __init__(self, group: str, broker: BrokerConfig, overrides: Callable[[str], Mapping[str, str]]) -> None:
        self._group = group
        self._overrides = overrides
        self.broker = broker

    def _own(self, name: str, default: int) -> int:
        return int(self._overrides(self._group).get(name, default))

    @property
    def session_timeout_ms(self) -> int:
        return self._own("consumer.session.timeout.ms", self.broker.group_consumer_session_timeout_ms)

    @property
    def heartbeat_interval_ms(self) -> int:
        return self._own("consumer.heartbeat.interval.ms", self.broker.group_consumer_heartbeat_interval_ms)

    @property
    def assignment_interval_ms(self) -> int:
        return self._own("consumer.assignment.interval.ms", self.broker.group_consumer_assignment_interval_ms)

    @property
    def migration_policy(self) -> MigrationPolicy:
        return MigrationPolicy.named(self.broker.group_consumer_migration_policy)
