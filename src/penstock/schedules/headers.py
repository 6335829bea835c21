"""Reads a record of a schedule topic: when its message is due, how often, and what is delivered.

The key is the schedule's id; a record without a value cancels it. Headers say when it is due, and exactly one of the
first three has to be there:

- `penstock-deliver-at`: a time, in epoch milliseconds or ISO 8601;
- `penstock-delay-ms`: milliseconds after the record's timestamp;
- `penstock-cron`: a cron expression, in the time zone of `penstock-tz`;
- `penstock-key`: the key of the delivered message, instead of the schedule's id;
- `penstock-misfire`: what happens to times that were missed;
- `penstock-paused`: `true` keeps the schedule and delivers nothing.

All other headers are the message's.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from penstock.schedules import cron
from penstock.schedules.zones import ZONE_UTC, zone
from penstock.wire.records import Header

DELIVER_AT = "penstock-deliver-at"
DELAY = "penstock-delay-ms"
CRON = "penstock-cron"
ZONE = "penstock-tz"
KEY = "penstock-key"
MISFIRE = "penstock-misfire"
PAUSED = "penstock-paused"
AFTER = "penstock-after-ms"
"""Written by the broker: a cron schedule counts from here."""
FIRED_BY = "penstock-fire"
"""Written by the broker: the offset of the fire after which it replaced or removed the schedule."""
DUE = "penstock-due-ms"
"""Of a delivered message: the time that it was due at."""

OWN = frozenset({DELIVER_AT, DELAY, CRON, ZONE, KEY, MISFIRE, PAUSED, AFTER, FIRED_BY})
"""Headers that are not delivered."""

TIME_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""
TEXT_BYTES_MAX = 256
RECURRENCES_KNOWN_MAX = 1_000
"""Expressions with their zones whose last due time is kept in memory."""


class Misfire(Enum):
    """What happens to due times that passed while nothing could be delivered."""

    ONCE = "once"
    """One delivery for all of them."""
    SKIP = "skip"
    ALL = "all"


class Recurrence(NamedTuple):
    """When a schedule is due again."""

    expression: str
    zone: str

    def next_after(self, after_ms: int) -> int | None:
        known = last_gap(self)
        begin_ms, end_ms = known.gap
        if begin_ms <= after_ms < end_ms:
            return end_ms
        found = zone(self.zone)
        assert found is not None, f"no zone {self.zone}"
        due_ms = cron.next_after(self.expression, found, after_ms)
        if due_ms is None or due_ms > TIME_MAX:
            return None
        known.gap = after_ms, due_ms
        return due_ms


class LastGap:
    """The time before the due time that a recurrence was last asked for: the answer is the same from anywhere in it.

    Thousands of schedules may have the same expression, and go on at the same moment.
    """

    __slots__ = ("gap",)

    def __init__(self) -> None:
        self.gap: tuple[int, int] = (0, 0)


@lru_cache(maxsize=RECURRENCES_KNOWN_MAX)
def last_gap(_: Recurrence) -> LastGap:
    return LastGap()


class Schedule(NamedTuple):
    """When a record's message is due, and what of it is delivered."""

    due_ms: int | None
    """None: never, while it is paused."""
    key: bytes | None
    recurrence: Recurrence | None = None
    misfire: Misfire | None = None
    """None: as the topic says."""


class BadSchedule(ValueError):
    """A record that is no schedule; the message is for its producer."""


def read(key: bytes, headers: Sequence[Header], timestamp_ms: int) -> Schedule:
    """The schedule of a record with a value; raises `BadSchedule`."""
    if len(headers) == 1 and headers[0][0] == DELIVER_AT:
        return Schedule(at_time(DELIVER_AT, headers[0][1], None), key)
    found: dict[str, bytes | None] = {}
    for name, value in headers:
        if name in OWN:
            if name in found:
                raise BadSchedule(f"the header {name} occurs twice")
            found[name] = value
    kinds = [name for name in (DELIVER_AT, DELAY, CRON) if name in found]
    if len(kinds) != 1:
        raise BadSchedule(
            f"a schedule has one of the headers {DELIVER_AT}, {DELAY} and {CRON}, this record has "
            f"{' and '.join(kinds) or 'none'}; a record without a value cancels one"
        )
    zone_name = text_of(ZONE, found[ZONE]) if ZONE in found else None
    if zone_name is not None and zone(zone_name) is None:
        raise BadSchedule(f"{ZONE}: {zone_name!r} is no time zone of the tz database, such as Europe/Berlin")
    delivered = found.get(KEY, key)
    misfire = misfire_of(found[MISFIRE]) if MISFIRE in found else None
    paused = PAUSED in found and flag_of(PAUSED, found[PAUSED])
    recurrence: Recurrence | None = None
    due_ms: int | None
    if DELIVER_AT in found:
        due_ms = at_time(DELIVER_AT, found[DELIVER_AT], zone_name)
    elif DELAY in found:
        if timestamp_ms < 0:
            raise BadSchedule(f"{DELAY} counts from the record's timestamp, and the record has none")
        due_ms = in_range(DELAY, timestamp_ms + whole(DELAY, found[DELAY]))
    else:
        expression = text_of(CRON, found[CRON])
        try:
            cron.check(expression)
        except cron.BadCron as error:
            raise BadSchedule(f"{CRON}: {error}") from None
        recurrence = Recurrence(expression, zone_name or ZONE_UTC)
        after_ms = whole(AFTER, found[AFTER]) if AFTER in found else timestamp_ms
        if after_ms < 0:
            raise BadSchedule(f"{CRON} counts from the record's timestamp, and the record has none")
        in_range(CRON, after_ms)
        due_ms = None if paused else recurrence.next_after(after_ms)
        if due_ms is None and not paused:
            raise BadSchedule(f"{CRON}: {expression!r} has no time in the next 50 years")
    return Schedule(None if paused else due_ms, delivered, recurrence, misfire)


def at_time(name: str, value: bytes | None, zone_name: str | None) -> int:
    """A time in epoch milliseconds or ISO 8601; without an offset it is of the record's zone."""
    if value is not None and value.isdigit() and len(value) <= 15:
        return in_range(name, int(value))
    text = text_of(name, value)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadSchedule(f"{name}: {text!r} is neither epoch milliseconds nor a time in ISO 8601") from None
    if found.tzinfo is None:
        known = None if zone_name is None else zone(zone_name)
        if known is None:
            raise BadSchedule(f"{name}: {text!r} has no offset, such as Z or +02:00, and the record has no {ZONE}")
        found = found.replace(tzinfo=known)
    try:
        return in_range(name, (found - cron.EPOCH) // timedelta(milliseconds=1))
    except OverflowError:
        raise BadSchedule(f"{name}: {text!r} is out of range") from None


def in_range(name: str, due_ms: int) -> int:
    if not 0 <= due_ms <= TIME_MAX:
        raise BadSchedule(f"{name}: a message is due between 1970 and 9999")
    return due_ms


def whole(name: str, value: bytes | None) -> int:
    if value is None or not value.isdigit() or len(value) > 15:
        raise BadSchedule(f"{name}: {shown(value)} is no number of milliseconds")
    return int(value)


def flag_of(name: str, value: bytes | None) -> bool:
    text = text_of(name, value)
    if text not in ("true", "false"):
        raise BadSchedule(f"{name}: {text!r} is neither true nor false")
    return text == "true"


def misfire_of(value: bytes | None) -> Misfire:
    text = text_of(MISFIRE, value)
    try:
        return Misfire(text)
    except ValueError:
        raise BadSchedule(f"{MISFIRE}: {text!r} is none of {', '.join(each.value for each in Misfire)}") from None


def text_of(name: str, value: bytes | None) -> str:
    if value is None or len(value) > TEXT_BYTES_MAX:
        raise BadSchedule(f"{name}: {shown(value)}")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadSchedule(f"{name}: {shown(value)} is not UTF-8") from None


def shown(value: bytes | None) -> str:
    return "no value" if value is None else f"{len(value)} bytes" if len(value) > TEXT_BYTES_MAX else repr(value)


def delivered_headers(headers: Sequence[Header], due_ms: int) -> list[Header]:
    """The headers of a message that is delivered: its own, and when it was due."""
    return [*(each for each in headers if each[0] not in OWN and each[0] != DUE), (DUE, b"%d" % due_ms)]


def recurring_headers(headers: Sequence[Header], *, after_ms: int, fire: int) -> list[Header]:
    """The headers of the record that replaces a recurring schedule after a fire."""
    kept = [each for each in headers if each[0] not in (AFTER, FIRED_BY)]
    return [*kept, (AFTER, b"%d" % after_ms), (FIRED_BY, b"%d" % fire)]
