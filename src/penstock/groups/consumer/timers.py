"""The timers of groups with the consumer protocol."""

from enum import Enum
from typing import NamedTuple


class Alarm(Enum):
    """The reason for which a group sets a timer."""

    SESSION = "session"
    REBALANCE = "rebalance"
    """The time for a member to revoke its partitions is over."""
    JOIN = "join"
    SYNC = "sync"
    ASSIGN = "assign"
    PATTERNS = "patterns"


MEMBER_ALARMS = (Alarm.SESSION, Alarm.REBALANCE, Alarm.JOIN, Alarm.SYNC)


class ConsumerTimer(NamedTuple):
    """A timer of a group, or of one of its members."""

    group: str
    alarm: Alarm
    member_id: str = ""
