"""The timers of groups with the consumer protocol."""

from enum import Enum
from typing import NamedTuple


class Alarm(Enum):
    """What a group wants to be woken for."""

    SESSION = "session"
    REBALANCE = "rebalance"
    """A member has to have given back what it was asked for."""
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
