"""The time to live of records: what share groups skip, when, and who still sees it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.partition.rig import NOW_MS, topic, values
from tests.unit.shares.share_leader_rig import Leader, runs, written

from penstock.shares.persister import ARCHIVED
from penstock.shares.share_partition import ACCEPT, RELEASE
from penstock.shares.time_to_live import expired_in
from penstock.wire import compression
from penstock.wire.records import Record, build_batch

LIVES = {"ttl.enable": "true"}
TTL = "penstock-ttl-ms"


def aging(lives: Sequence[int | None], *, codec: int = compression.NONE, timestamp_type: int = 0) -> bytearray:
    """A batch of records that live so many milliseconds; None for ever."""
    records = [
        Record(at, NOW_MS + at, None, b"%d" % at, [] if ms is None else [(TTL, b"%d" % ms)])
        for at, ms in enumerate(lives)
    ]
    return build_batch(records, compression=codec, timestamp_type=timestamp_type)


@pytest.mark.parametrize("codec", [compression.NONE, compression.ZSTD])
def test_records_expire_by_their_timestamp_and_header(codec: int) -> None:
    batch = bytes(aging([5, 4, None, 10, 0, 7], codec=codec))

    assert expired_in(batch, NOW_MS + 4) == [(4, 4)]
    assert expired_in(batch, NOW_MS + 5) == [(0, 1), (4, 4)]
    assert expired_in(batch, NOW_MS + 99) == [(0, 1), (3, 5)]
    late = bytes(aging([5, 5], codec=codec, timestamp_type=1))
    assert expired_in(late, NOW_MS + 5) == []
    assert expired_in(late, NOW_MS + 6) == [(0, 1)]


@pytest.mark.parametrize("text", [b"", b"-1", b"soon", b"1.5", b"9" * 20, "١".encode()])
def test_a_header_that_is_no_number_means_no_end(text: bytes) -> None:
    assert expired_in(bytes(build_batch([Record(0, NOW_MS, None, b"", [(TTL, text)])])), 2**62) == []


@runs
async def test_a_share_group_skips_what_has_expired_and_others_see_it() -> None:
    made = Leader(topic(configs=LIVES), settings={})
    made.rig.append(made.rig.replica(), aging([None, 5, 5, None]))
    made.rig.append(made.rig.replica(), aging([5, 5]))
    made.rig.clock.ms += 50

    assert made.fetch() == [(0, 0, 1), (3, 3, 1)]
    await made.settle()
    assert (1, ARCHIVED) in written(made.coordinator)
    made.say(ACCEPT, 0)
    made.say(ACCEPT, 3)
    assert made.fetch() == []

    assert made.coordinator.start == 6
    assert values(made.rig.replica()) == [b"0", b"1", b"2", b"3", b"0", b"1"]


@runs
async def test_what_was_released_may_expire_and_what_is_held_does_not() -> None:
    made = Leader(topic(configs=LIVES), settings={})
    made.rig.append(made.rig.replica(), aging([10, 10]))
    assert made.fetch() == [(0, 1, 1)]
    made.rig.clock.ms += 50

    made.say(RELEASE, 0)
    assert made.fetch() == []
    made.say(ACCEPT, 1)

    assert made.coordinator.start == 2


@runs
async def test_a_next_leader_whose_clock_is_behind_does_not_revive_a_record() -> None:
    made = Leader(topic(configs=LIVES), settings={})
    made.rig.append(made.rig.replica(), aging([None, 10, None]))
    made.rig.clock.ms += 50
    assert made.fetch() == [(0, 0, 1), (2, 2, 1)]
    made.rig.clock.ms -= 50

    made.begin()

    assert made.fetch() == [(0, 0, 1), (2, 2, 1)]


@runs
async def test_without_the_setting_nothing_expires() -> None:
    made = Leader(topic(), settings={})
    made.rig.append(made.rig.replica(), aging([0, 0]))
    made.rig.clock.ms += 50

    assert made.fetch() == [(0, 1, 1)]
