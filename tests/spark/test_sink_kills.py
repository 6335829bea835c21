"""Tasks, the driver's commits and the broker are killed at every step of the sink: nothing is lost or duplicated."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.counted_stream import CountedStream
from spark.cutting import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    API_NAMES,
    BROKER,
    CLIENT,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Cut,
    CuttingProxy,
)
from spark.topic_contents import make_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One batch of a new run: the run claims the sink (the first requests for its state), two tasks look for a slot and
# write, and the driver looks whether both are open, decides (the second requests for the state), commits both and notes
# that the batch is complete.
STEPS = (
    (OFFSET_FETCH, 1),
    (INIT_PRODUCER_ID, 1),
    (ADD_OFFSETS, 1),
    (TXN_OFFSET_COMMIT, 1),
    (END_TXN, 1),
    (LIST_TRANSACTIONS, 1),
    (DESCRIBE_TRANSACTIONS, 1),
    (INIT_PRODUCER_ID, 2),
    (ADD_PARTITIONS, 1),
    (PRODUCE, 1),
    (PRODUCE, 2),
    (DESCRIBE_TRANSACTIONS, 3),
    (INIT_PRODUCER_ID, 4),
    (TXN_OFFSET_COMMIT, 2),
    (END_TXN, 2),
    (END_TXN, 3),
    (END_TXN, 4),
    (OFFSET_COMMIT, 1),
    (LIST_TRANSACTIONS, 2),
)
KILLS = int(os.environ.get("PENSTOCK_TEST_SPARK_KILLS", "0"))
"""Random kills; with any, every step is tried besides, otherwise a few of them."""
ALL_CUTS = tuple(Cut(*step, after, victim) for step in STEPS for after in (False, True) for victim in (CLIENT, BROKER))
FEW_CUTS = (
    Cut(END_TXN, 1, True, CLIENT),
    Cut(PRODUCE, 1, False, CLIENT),
    Cut(PRODUCE, 2, True, CLIENT),
    Cut(END_TXN, 2, False, CLIENT),
    Cut(END_TXN, 2, True, CLIENT),
    Cut(END_TXN, 4, False, CLIENT),
    Cut(OFFSET_COMMIT, 1, False, CLIENT),
    Cut(LIST_TRANSACTIONS, 2, True, CLIENT),
    Cut(PRODUCE, 1, True, BROKER),
    Cut(END_TXN, 2, True, BROKER),
)
FEW_RANDOM = 4
FIXED_SEED = 20_260
SECONDS_PER_KILL_MAX = 120


@pytest.fixture(scope="module")
def proxy() -> Iterator[CuttingProxy]:
    with CuttingProxy() as made:
        yield made


def killed(spark: SparkSession, proxy: CuttingProxy, stream: CountedStream, cut: Cut) -> list[str]:
    """One more batch, during which the cut happens."""
    stream.add_batch()
    proxy.arm(cut)
    failures = stream.run(spark, proxy.bootstrap)
    assert proxy.fired, f"{cut} was never reached"
    return failures


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_kill_at_any_step_loses_and_duplicates_nothing(
    spark: SparkSession, proxy: CuttingProxy, tmp_path: Path
) -> None:
    stream = CountedStream(tmp_path, make_topic(proxy.bootstrap))

    for cut in ALL_CUTS if KILLS else FEW_CUTS:
        killed(spark, proxy, stream, cut)
        stream.check(proxy.bootstrap)
        print(f"{cut}: nothing lost, nothing doubled", flush=True)


@pytest.mark.slow
@pytest.mark.timeout(120 + SECONDS_PER_KILL_MAX * (KILLS or FEW_RANDOM))
@pytest.mark.parametrize("seed", [FIXED_SEED, None], ids=["fixed", "fresh"])
def test_random_kills_lose_and_duplicate_nothing(
    spark: SparkSession, proxy: CuttingProxy, tmp_path: Path, seed: int | None
) -> None:
    seed = random.randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}")
    chance = random.Random(seed)
    stream = CountedStream(tmp_path, make_topic(proxy.bootstrap))
    kills = 0

    while kills < (KILLS or FEW_RANDOM) // 2:
        cut = Cut(
            chance.choice(tuple(API_NAMES)),
            chance.randint(1, 4),
            chance.random() < 0.5,
            BROKER if chance.random() < 0.3 else CLIENT,
        )
        stream.add_batch()
        proxy.arm(cut)
        stream.run(spark, proxy.bootstrap)
        kills += proxy.fired
        proxy.arm(None)

    stream.check(proxy.bootstrap)
