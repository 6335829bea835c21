"""How often the members of a group are told to send heartbeats."""

from penstock.groups.consumer.settings import ConsumerGroupSettings
from penstock.groups.consumer.state import ConsumerState

HURRY_MS = 10_000
HURRIED_INTERVAL_MS = 500
HURRIED_MS_PER_MEMBER = 2
"""For so long after a change of epoch members beat sooner: this often, or slower the more of them there are."""


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
