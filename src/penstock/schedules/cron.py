"""The times of cron expressions, in a time zone.

cronsim parses them and follows Debian's cron where clocks change: with a fixed minute and hour, a local time that does
not exist is the first one after the gap, and one that occurs twice is the first of the two. With `*` in the minute or
hour, times are counted as they pass: each of two equal ones occurs, and none that does not exist.
"""

from bisect import bisect_left
from calendar import monthrange
from datetime import MAXYEAR, UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from cronsim import CronSim, CronSimError

FIELDS = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
TEXT_MAX = 256
"""Characters of an expression."""
SAME_TIME_MAX = 200
"""Occurrences looked at to find one after a time that a clock passes twice: an hour has sixty minutes."""
YEARS_MAX = 50
DAYS_KNOWN_MAX = 1_000
"""Combinations of the fields for days that are kept in memory, with the days that they mean."""
EXPRESSIONS_KNOWN_MAX = 1_000
"""Expressions that were read before and are sound."""
DAY = timedelta(days=1)
CLEAR_OF = 2 * DAY
"""No clock was ever changed by as much: a search for the times of a day begins so long before it."""
NEAR = 62 * DAY
"""cronsim looks at the days between two that are no further apart."""
NOON = time(12)


class BadCron(ValueError):
    """An expression that cannot be read, or that no date matches."""


@lru_cache(maxsize=EXPRESSIONS_KNOWN_MAX)
def check(expression: str) -> None:
    """Raise `BadCron` for an expression that cannot be read."""
    if len(expression) > TEXT_MAX:
        raise BadCron(f"a cron expression has at most {TEXT_MAX} characters")
    if len(expression.split()) != FIELDS:
        raise BadCron("a cron expression has five fields: minute, hour, day of month, month, day of week")
    try:
        CronSim(expression, EPOCH)
    except (CronSimError, ValueError, IndexError) as error:
        raise BadCron(f"{expression!r}: {error}") from None


class Days:
    """The days of an expression, whatever its hours and minutes are.

    cronsim looks at one day after the other, which takes a tenth of a second for days that are decades away. Months of
    one length that begin with the same weekday have the same days, so each of those 28 is looked at once.
    """

    __slots__ = ("_cron", "_of_month")

    def __init__(self, fields: str) -> None:
        """`fields` are day of month, month and day of week."""
        self._cron = CronSim(f"0 0 {fields}", EPOCH)
        self._of_month: dict[tuple[int, int], list[int]] = {}

    def first_from(self, start: date) -> date | None:
        """The first of them from a day on; None if there is none in 50 years."""
        year, month, day = start.year, start.month, start.day
        while year <= min(start.year + YEARS_MAX, MAXYEAR):
            if month in self._cron.months:
                found = self._days_of(year, month)
                at = bisect_left(found, day)
                if at < len(found):
                    return date(year, month, found[at])
            day = 1
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return None

    def _days_of(self, year: int, month: int) -> list[int]:
        kind = _, length = monthrange(year, month)
        found = self._of_month.get(kind)
        if found is None:
            match = self._cron.match_day
            found = self._of_month[kind] = [day for day in range(1, length + 1) if match(date(year, month, day))]
        return found


days_of = lru_cache(maxsize=DAYS_KNOWN_MAX)(Days)


def next_after(expression: str, zone: tzinfo, after_ms: int) -> int | None:
    """The first time of an expression after a time, both in epoch milliseconds; None if there is none in 50 years."""
    minute, hour, *fields = expression.split()
    days = days_of(" ".join(fields))
    try:
        start = (EPOCH + timedelta(milliseconds=after_ms)).astimezone(zone)
        day = days.first_from(start.date())
        last_year = start.year + YEARS_MAX
        while day is not None and day.year <= last_year:
            if day > start.date() + CLEAR_OF:
                start = datetime.combine(day - CLEAR_OF, NOON, zone)
            following = days.first_from(day + DAY)
            if following is not None and following <= day + NEAR:
                return first_of(expression, start, after_ms)
            # cronsim has only this day to look at, of which the times may have passed.
            found = first_of(f"{minute} {hour} {day.day} {day.month} *", start, after_ms)
            if found is not None and found < (datetime.combine(day, NOON, zone) + CLEAR_OF - EPOCH) // MILLISECOND:
                return found
            day = following
    except (OverflowError, ValueError):
        # The year 9999 ends.
        pass
    return None


def first_of(expression: str, start: datetime, after_ms: int) -> int | None:
    """The first time that cronsim finds from a start on, and after a time."""
    times = CronSim(expression, start)
    for _ in range(SAME_TIME_MAX):
        # Local times that occur twice are compared by the first of the two, which may have passed.
        following = next(times, None)
        if following is None:
            break
        found = (following.astimezone(UTC) - EPOCH) // MILLISECOND
        if found > after_ms:
            return found
    return None
