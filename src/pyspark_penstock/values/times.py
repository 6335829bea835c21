"""Parses dates and times in JSON: text in the forms that Spark casts to dates and timestamps.

Results are numbers as Arrow holds them: days and microseconds since 1970. The years are 1 to 9999, which Spark
documents for its dates and timestamps, and which Python can represent.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark_penstock.untyped import compute, pyarrow
from pyspark_penstock.values.misfit import Misfit

_DATE = r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_CLOCK = r"(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,18}))?)?)?"
_ZONE = r"(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)"
_MOMENT = re.compile(rf"{_DATE}(?:[T ]{_CLOCK} ?{_ZONE}?)?)?)?", re.ASCII)
_DAY = re.compile(rf"{_DATE}(?:[T ].*)?)?)?", re.ASCII)
_DAYS_BEFORE_MONTH = (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)
_DAYS_TO_1970 = 719_528
"""From the first day of the year 0."""
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
DAYS_MIN, DAYS_MAX = -719_162, 2_932_896
MOMENT_US_MIN, MOMENT_US_MAX = DAYS_MIN * DAY_US, (DAYS_MAX + 1) * DAY_US - 1


def moment_us(text: str, path: str) -> int:
    """Microseconds since 1970 in UTC; a time without a zone is UTC."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise Misfit(f"{path} does not parse as a timestamp")
    return _in_range(_local_us(found, path, "a timestamp") - _zone_us(found["zone"], path), path)


def local_moment_us(text: str, path: str) -> int:
    """Microseconds since 1970 in local time, without a zone."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise Misfit(f"{path} does not parse as a timestamp_ntz")
    if found["zone"]:
        raise Misfit(f"{path} names a time zone, which a timestamp_ntz does not have")
    return _in_range(_local_us(found, path, "a timestamp_ntz"), path)


def epoch_us(seconds: int, path: str) -> int:
    """Seconds since 1970 as microseconds, as for Spark. Milliseconds are refused: as seconds they are beyond the year
    9999."""
    if not MOMENT_US_MIN <= seconds * SECOND_US <= MOMENT_US_MAX:
        raise Misfit(f"{path} is not within the years 1 to 9999: a number is seconds since 1970")
    return seconds * SECOND_US


def day_number(text: str, path: str) -> int:
    """Days since 1970; a time that follows is ignored, as Spark does."""
    found = _DAY.fullmatch(text)
    if found is None:
        raise Misfit(f"{path} does not parse as a date")
    days = _days(found, path, "a date")
    if days < DAYS_MIN:
        raise Misfit(f"{path} is not within the years 1 to 9999")
    return days


def check_range(array: Any, low: int, high: int) -> Any:
    """The array of integers, dates or timestamps; Misfit unless all values are within the bounds."""
    integers = array.cast(pyarrow.int64()) if array.type.bit_width == 64 else array.cast(pyarrow.int32())
    least, most = compute.min_max(integers).values()
    if least.is_valid and (least.as_py() < low or most.as_py() > high):
        raise Misfit("a date or timestamp is not within the years 1 to 9999")
    return array


def _in_range(moment: int, path: str) -> int:
    if not MOMENT_US_MIN <= moment <= MOMENT_US_MAX:
        raise Misfit(f"{path} is not within the years 1 to 9999")
    return moment


def _local_us(found: re.Match[str], path: str, kind: str) -> int:
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise Misfit(f"{path} does not parse as {kind}")
    micros = int((found["fraction"] or "0")[:6].ljust(6, "0"))
    return _days(found, path, kind) * DAY_US + ((hour * 60 + minute) * 60 + second) * SECOND_US + micros


def _days(found: re.Match[str], path: str, kind: str) -> int:
    year, month, day = int(found["year"]), int(found["month"] or 1), int(found["day"] or 1)
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12:
        raise Misfit(f"{path} does not parse as {kind}")
    length = _DAYS_BEFORE_MONTH[month + 1] - _DAYS_BEFORE_MONTH[month] + (month == 2 and is_leap)
    if not 1 <= day <= length:
        raise Misfit(f"{path} does not parse as {kind}")
    leap_days = (year + 3) // 4 - (year + 99) // 100 + (year + 399) // 400
    before = _DAYS_BEFORE_MONTH[month] + (month > 2 and is_leap)
    return year * 365 + leap_days + before + day - 1 - _DAYS_TO_1970


def _zone_us(zone: str | None, path: str) -> int:
    if not zone or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
    if hours > 23 or minutes > 59:
        raise Misfit(f"{path} does not parse as a timestamp: its time zone is invalid")
    return (-1 if zone[0] == "-" else 1) * (hours * 60 + minutes) * 60 * SECOND_US
