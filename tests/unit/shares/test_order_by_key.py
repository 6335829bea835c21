"""share.order=key: who gets the records of a key, in which order, and what a new leader knows of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

import pytest
from tests.unit.partition.rig import NOW_MS, topic
from tests.unit.shares.share_leader_rig import GROUP, Leader, runs

from penstock.shares.keys import hashes_in
from penstock.shares.share_partition import ACCEPT, REJECT, RELEASE
from penstock.wire import compression
from penstock.wire.records import Record, build_batch, filter_batch

ORDERED = {"share.order": "key"}


def keys(*texts: bytes | None, codec: int = compression.NONE) -> bytearray:
    return build_batch([Record(at, NOW_MS, key, b"v") for at, key in enumerate(texts)], compression=codec)


def leader(*batches: Sequence[bytes | None], codec: int = compression.NONE, **settings: str) -> Leader:
    made = Leader(topic(), settings={**ORDERED, **{key.replace("_", "."): value for key, value in settings.items()}})
    for each in batches:
        made.rig.append(made.rig.replica(), keys(*each, codec=codec))
    return made


def offsets(acquired: list[tuple[int, int, int]]) -> list[int]:
    return [at for first, last, _ in acquired for at in range(first, last + 1)]


@pytest.mark.parametrize("codec", [compression.NONE, compression.LZ4])
def test_a_key_has_one_hash_and_no_key_has_none(codec: int) -> None:
    batch = keys(b"a", b"b", None, b"a", b"", codec=codec)

    hashes = hashes_in(batch)

    assert hashes[0] == hashes[3] != hashes[1]
    assert hashes[2] == 0
    assert hashes[4] not in (0, hashes[0])
    kept = hashes_in(filter_batch(batch, [True, False, True, True, True]))
    assert list(kept) == [hashes[0], 0, 0, hashes[3], hashes[4]]


@runs
async def test_no_two_members_have_records_of_one_key() -> None:
    made = leader([b"a", b"b", b"a", None], [b"c", b"a", None])

    assert offsets(made.fetch("one", records_max=1)) == [0]
    assert offsets(made.fetch("two")) == [1, 3, 4, 6]
    assert offsets(made.fetch("one")) == [2, 5]


@runs
async def test_a_released_record_comes_again_to_the_same_member_before_later_ones_of_its_key() -> None:
    made = leader([b"a", b"b", b"a", b"a"])
    assert offsets(made.fetch("one", records_max=1)) == [0]
    assert offsets(made.fetch("one", records_max=1)) == [1]
    assert offsets(made.fetch("one", records_max=1)) == [2]

    made.say(RELEASE, 0, member="one")

    assert offsets(made.fetch("two")) == []
    assert offsets(made.fetch("one")) == [0, 3]
    made.say(ACCEPT, 0, member="one")
    made.say(ACCEPT, 2, 3, member="one")
    assert made.coordinator.start == 1


class Waiting:
    """A fetch that waits and counts how often it is woken."""

    def __init__(self, made: Leader, member: str) -> None:
        self.member = member
        self.woken = 0
        made.share().wait(self)

    def wake(self, _: object) -> None:
        self.woken += 1


@runs
async def test_only_members_that_may_get_something_are_woken() -> None:
    made = leader([b"a", b"a"])
    assert offsets(made.fetch("one", records_max=1)) == [0]
    one, two = Waiting(made, "one"), Waiting(made, "two")

    made.share().wake()
    assert (one.woken, two.woken) == (1, 0), "the next one is of the key that the first member holds"
    made.say(ACCEPT, 0, member="one")

    assert two.woken == 1
    assert offsets(made.fetch("two")) == [1]
    one.woken = two.woken = 0
    made.rig.append(made.rig.replica(), keys(b"a"))
    await made.pass_ms(1)
    assert (one.woken, two.woken) == (1, 1), "nobody knows the key of a new record"


@runs
async def test_in_strict_order_the_next_of_a_key_waits_for_the_end_of_the_one_before() -> None:
    made = leader([b"a", b"a", b"b", b"a"], share_order_in_flight="1")

    assert offsets(made.fetch("one")) == [0, 2]
    assert made.fetch("one") == made.fetch("two") == []
    made.say(RELEASE, 0, member="one")
    assert made.fetch("two") == [(0, 0, 2)]
    made.say(REJECT, 0, member="two")
    assert offsets(made.fetch("one")) == [1]


@runs
async def test_a_backoff_of_one_key_holds_back_that_key_alone() -> None:
    made = leader([b"a", b"b", b"a", b"b"], share_retry_backoff_ms="1000", share_order_in_flight="1")
    assert offsets(made.fetch()) == [0, 1]
    made.say(RELEASE, 0)
    made.say(ACCEPT, 1)

    assert offsets(made.fetch()) == [3]
    await made.pass_ms(1_020)
    assert made.fetch() == [(0, 0, 2)]


@runs
async def test_a_new_leader_knows_the_keys_of_what_is_unfinished() -> None:
    made = leader([b"a", b"b", b"a", b"c"], codec=compression.ZSTD, share_order_in_flight="1")
    assert offsets(made.fetch("one")) == [0, 1, 3]
    for each in (0, 1, 3):
        made.say(RELEASE, each, member="one")
    made.begin()

    assert made.share().share is None, "it reads them first"
    await made.settle()
    assert offsets(made.fetch("two", records_max=1)) == [0]

    assert offsets(made.fetch("one")) == [1, 3]


@runs
async def test_what_is_blocked_at_the_front_does_not_hide_what_is_behind() -> None:
    made = leader(*([[b"a"]] * 50), [b"b"], share_order_in_flight="1")
    assert offsets(made.fetch("one")) == [0, 50]
    made.rig.append(made.rig.replica(), keys(b"c"))

    assert offsets(made.fetch("two")) == [51]


@runs
async def test_a_group_that_gets_another_order_begins_again_with_it() -> None:
    made = leader([b"a", b"a"])
    assert offsets(made.fetch("one", records_max=1)) == [0]
    assert made.fetch("two") == []

    made.overrides[GROUP] = {"share.auto.offset.reset": "earliest"}

    assert made.fetch("two") == []
    assert offsets(made.fetch("two")) == [0, 1]


@runs
async def test_a_new_leader_knows_the_key_of_a_record_that_waits_before_those_it_reads() -> None:
    made = leader([b"a"], [b"a", b"b"], share_retry_backoff_ms="1000")
    assert offsets(made.fetch("one", records_max=1)) == [0]
    made.say(RELEASE, 0, member="one")
    made.begin()
    made.share()
    await made.settle()

    assert offsets(made.fetch("two")) == [2]
    await made.pass_ms(1_020)
    assert offsets(made.fetch("two")) == [0, 1]


@runs
async def test_a_member_gets_no_more_of_what_was_released_than_was_read_for_it() -> None:
    made = leader([b"a", b"b"], [b"c", b"d"], [b"e", b"f"])
    assert offsets(made.fetch("one")) == [0, 1, 2, 3, 4, 5]
    made.say(RELEASE, 0, 5, member="one")

    # Each read gives one batch: the rest of the log is in another segment, or beyond the bytes asked for.
    assert offsets(made.fetch("two", bytes_max=1)) == [0, 1]
    assert offsets(made.fetch("one", bytes_max=1)) == [2, 3]
    assert offsets(made.fetch("two")) == [4, 5]


@pytest.mark.parametrize("codec", [compression.NONE, compression.LZ4])
def test_offsets_without_a_record_are_finished_and_not_handed_out(codec: int) -> None:
    def batch(*records: tuple[bytes | None, bytes]) -> memoryview:
        headers = [(("penstock-msg-id", ident),) for _, ident in records]
        made = [Record(at, NOW_MS, key, b"v", headers[at]) for at, (key, _) in enumerate(records)]
        return memoryview(build_batch(made, compression=codec))

    async def story() -> None:
        made = Leader(topic(configs={"dedupe.window.records": "100"}), settings=ORDERED)
        sent = [(b"c", b"1"), (b"c", b"2")], [(b"a", b"3"), (b"a", b"1"), (None, b"4"), (b"a", b"5"), (b"b", b"2")]
        for each in sent:
            appended = made.rig.replica().append(batch(*each), NOW_MS)
            if isinstance(appended, Coroutine):
                await appended
        assert offsets(made.fetch("one", records_max=3)) == [0, 1, 2]

        # Only what has no key is not the first member's, whatever is missing between its records.
        assert offsets(made.fetch("two")) == [4]
        made.say(ACCEPT, 4, member="two")
        assert offsets(made.fetch("one")) == [5]
        for at in (0, 1, 2, 5):
            made.say(ACCEPT, at, member="one")
        assert made.coordinator.start == 7

    asyncio.run(story())
