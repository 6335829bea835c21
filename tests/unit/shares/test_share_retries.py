"""Retries of records at their leader: when those that wait are delivered again, and to whom."""

from __future__ import annotations

from tests.unit.partition.rig import batch, topic
from tests.unit.shares.share_leader_rig import Leader, runs

from penstock.shares.share_partition import RELEASE

BACKOFF = {"share.retry.backoff.ms": "2000", "share.retry.backoff.max.ms": "8000"}


class Waiting:
    """A fetch that waits."""

    member = "waiter"

    def __init__(self, made: Leader) -> None:
        self.made = made
        self.acquired: list[tuple[int, int, int]] = []
        made.share().wait(self)

    def wake(self, _: object) -> None:
        self.acquired += self.made.fetch("waiter")


@runs
async def test_a_fetch_that_waits_gets_a_record_when_its_backoff_ends() -> None:
    made = Leader(topic(), settings=BACKOFF)
    made.rig.append(made.rig.replica(), batch(b"a"))
    assert made.fetch() == [(0, 0, 1)]
    waiting = Waiting(made)

    made.say(RELEASE, 0)
    await made.pass_ms(1_990)
    assert waiting.acquired == []
    await made.pass_ms(20)

    assert waiting.acquired == [(0, 0, 2)]


@runs
async def test_a_new_leader_lets_a_record_wait_for_the_rest_of_its_backoff() -> None:
    made = Leader(topic(), settings=BACKOFF)
    made.rig.append(made.rig.replica(), batch(b"a"))
    made.fetch()
    made.say(RELEASE, 0)
    await made.pass_ms(1_500)

    made.begin()

    assert made.fetch() == []
    await made.pass_ms(520)
    assert made.fetch() == [(0, 0, 2)]
