"""How long the tests of `make soak` run, how often they kill, and from which seed they draw."""

from __future__ import annotations

import os
import random

from penstock.testing.processes import Deadline

MINUTES_VARIABLE = "PENSTOCK_SOAK_MINUTES"
SEED_VARIABLE = "PENSTOCK_SOAK_SEED"
KILLS_VARIABLE = "PENSTOCK_TEST_KILLS"
PARTS = 2
"""Tests that share the time: bad days of a real cluster, and seeds of the simulator."""


def soak_time() -> Deadline:
    """The end of one part."""
    return Deadline(float(os.environ.get(MINUTES_VARIABLE, "30")) * 60 / PARTS)


def kills(few: int) -> int:
    """How often a test kills its broker: as often as `make soak` says, or a few times in every run of the suite."""
    return int(os.environ.get(KILLS_VARIABLE, "0")) or few


def soak_seed() -> int:
    """Another one each time, unless the environment names it."""
    return int(os.environ.get(SEED_VARIABLE, "0")) or random.SystemRandom().randrange(1, 1_000_000_000)
