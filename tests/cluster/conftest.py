"""Fixtures of the fault tests with real broker processes."""

from __future__ import annotations

import os
import random

import pytest

from cluster.small_disks import make_disk
from protocol.under_test import configure, skip_what_is_ours_alone, start_broker

__all__ = ["make_disk", "randomness", "start_broker"]

SEED_VARIABLE = "PENSTOCK_TEST_SEED"


def pytest_configure(config: pytest.Config) -> None:
    configure(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_what_is_ours_alone(items)


@pytest.fixture
def randomness() -> random.Random:
    """Randomness for the times of kills. A failure prints the seed; PENSTOCK_TEST_SEED=<seed> repeats it."""
    seed = int(os.environ.get(SEED_VARIABLE, 0)) or random.SystemRandom().getrandbits(32)
    print(f"{SEED_VARIABLE}={seed}")
    return random.Random(seed)
