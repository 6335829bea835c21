"""Fixtures of the fault tests with real broker processes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from cluster.small_disks import make_disk
from protocol.under_test import configure, skip_what_is_ours_alone, start_broker

__all__ = ["make_disk", "randomness", "start_broker"]

SEED_VARIABLE = "PENSTOCK_TEST_SEED"
FOLDER = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    configure(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_what_is_ours_alone(items)
    # A client whose broker is killed forgets sockets, which its threads hold beyond the end of the test.
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture
def randomness() -> random.Random:
    """Randomness for the times of kills. A failure prints the seed; PENSTOCK_TEST_SEED=<seed> repeats it."""
    seed = int(os.environ.get(SEED_VARIABLE, 0)) or random.SystemRandom().getrandbits(32)
    print(f"{SEED_VARIABLE}={seed}")
    return random.Random(seed)
