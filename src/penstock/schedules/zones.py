"""Time zones from the `tzdata` package: every broker of a cluster has the same, whatever its machine has."""

from datetime import UTC, tzinfo
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

ZONES_MAX = 1_000
"""Zones kept in memory; there are about 600."""
ZONE_UTC = "UTC"


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """The names of all zones."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="ascii").split())


@lru_cache(maxsize=ZONES_MAX)
def zone(name: str) -> tzinfo | None:
    """A zone by its name in the tz database; None where there is none."""
    if name == ZONE_UTC:
        return UTC
    if name not in zone_names():
        return None
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
