"""The times of cron expressions, in a time zone.

cronsim parses them and follows Debian's cron where clocks change: with a fixed minute and hour, a local time that does
not exist is the first one after the gap, and one that occurs twice is the first of the two. With `*` in the minute or
hour, times are counted as they pass: each of two equal ones occurs, and none that does not exist.
"""

from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError

FIELDS = 5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
TEXT_MAX = 256
"""Characters of an expression."""
SAME_TIME_MAX = 200
"""Occurrences looked at to find one after a time that a clock passes twice: an hour has sixty minutes."""


class BadCron(ValueError):
    """An expression that cannot be read, or that no date matches."""


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


def next_after(expression: str, zone: tzinfo, after_ms: int) -> int | None:
    """The first time of an expression after a time, both in epoch milliseconds; None if there is none in 50 years."""
    try:
        start = EPOCH + timedelta(milliseconds=after_ms)
        times = CronSim(expression, start.astimezone(zone))
        for _ in range(SAME_TIME_MAX):
            # Local times that occur twice are compared by the first of the two, which may have passed.
            found = (next(times).astimezone(UTC) - EPOCH) // MILLISECOND
            if found > after_ms:
                return found
    except (StopIteration, OverflowError):
        pass
    return None
