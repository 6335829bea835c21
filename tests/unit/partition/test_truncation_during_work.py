"""A log may be truncated while it is compacted, moved or flushed: none of that work survives what it was about."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from tests.unit.partition.rig import NOW_MS, Rig, batch
from tests.unit.partition.test_following import ORDERS, Pair, copy, shared, stored
from tests.unit.partition.test_replicated_recovery import RECORD, SEGMENTED

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicPartition
from penstock.storage.compaction import Compaction, plan
from penstock.storage.move import begin_move, try_switch
from penstock.storage.names import SWAP

COMPACTED = SEGMENTED | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"}


def compacting(pair: Pair) -> Compaction:
    """A pass over the follower's log, with one group rewritten and not yet swapped in."""
    work = plan(pair.follower.log, NOW_MS, stable=pair.follower.offsets.last_stable, keys_max=100)
    assert work is not None
    work.build_map()
    work.clean(next(iter(work.groups())))
    return work


def compacted_pair() -> Pair:
    pair = Pair(configs=COMPACTED)
    for _ in range(12):
        pair.append(RECORD)
    copy(pair.leader, pair.follower, high_watermark=9)
    return pair


def swaps(rig: Rig) -> list[str]:
    return [name for name in rig.disk.list_directory("/data/orders-0") if name.endswith(SWAP)]


def test_a_follower_is_compacted_up_to_its_own_high_watermark() -> None:
    pair = compacted_pair()

    work = plan(pair.follower.log, NOW_MS, stable=pair.follower.offsets.last_stable, keys_max=100)

    assert work is not None
    assert work.end <= pair.follower.offsets.high_watermark == 9


def test_a_compaction_goes_on_where_only_later_records_are_truncated() -> None:
    pair = compacted_pair()
    work = compacting(pair)

    pair.two.replicas.truncate({ORDERS: 10})

    assert pair.follower.log.cleaning is work


def test_a_truncation_of_what_is_compacted_ends_the_compaction() -> None:
    pair = compacted_pair()
    work = compacting(pair)
    assert swaps(pair.two) != []

    pair.two.replicas.truncate({ORDERS: 2})

    assert pair.follower.log.cleaning is None
    assert swaps(pair.two) == [], "the next start would swap it in"
    work.abandon(pair.follower.log)
    copy(pair.leader, pair.follower)
    assert stored(pair.follower) == stored(pair.leader)


def test_a_disk_that_fails_in_the_second_truncation_takes_the_first_log_offline_too() -> None:
    pair = Pair()
    [state] = shared().partitions
    grown = replace(shared(), partitions=(state, replace(state, index=1)))
    pair.one.change(shared(), grown)
    pair.two.change(shared(), grown)
    for index in (0, 1):
        leader, follower = (rig.replica(partition=index) for rig in (pair.one, pair.two))
        for _ in range(4):
            pair.one.append(leader, batch(RECORD))
        copy(leader, follower)
    first, second = (pair.two.replica(partition=index) for index in (0, 1))
    pair.two.disk.fail("sync", "/data/orders-1/", errno.EIO)

    with pytest.raises(KafkaStorageError):
        pair.two.replicas.truncate({ORDERS: 0, TopicPartition("orders", 1): 2})

    assert first.log.log_end == 0
    assert first.is_offline
    assert second.is_offline


def test_a_log_restarts_while_it_is_compacted() -> None:
    pair = compacted_pair()
    compacting(pair)

    pair.two.replicas.restart({ORDERS: 20})

    assert pair.follower.log.cleaning is None
    assert pair.follower.offsets.log_start == 20


def test_a_move_copies_a_log_again_that_was_truncated_and_has_the_same_size() -> None:
    rig = Rig(broker_id=2, fenced=True, paths=("/data", "/more"))
    rig.change(None, shared())
    rig.replicas.unfence()
    pair = Pair()
    pair.append(b"a")
    pair.append(b"old")
    follower = rig.replica()
    copy(pair.leader, follower)
    rig.replicas.truncate({ORDERS: 1})
    copy(pair.leader, follower)
    target = next(each for each in rig.store.all_directories if each is not follower.log.directory)
    move = begin_move(follower.log, target, "unique")
    assert move is not None
    move.copy()

    rig.replicas.truncate({ORDERS: 1})
    other = Rig(shared())
    other.append(other.replica(), batch(b"a"))
    other.append(other.replica(), batch(b"new"))
    copy(other.replica(), follower)
    while not try_switch(move):
        move.copy()

    assert follower.log.directory is target
    assert stored(follower) == stored(other.replica())


def test_a_slice_that_is_being_sent_never_has_what_is_appended_after_a_truncation() -> None:
    pair = Pair()
    pair.append(b"a")
    pair.append(b"old")
    copy(pair.leader, pair.follower)
    log = pair.follower.log
    sending = log.slice(0, 1 << 20, end=2, at_least_one=True)
    assert sending is not None
    before = sending.contents()

    pair.two.replicas.truncate({ORDERS: 1})
    other = Rig(shared())
    other.append(other.replica(), batch(b"a"))
    other.append(other.replica(), batch(b"new"))
    copy(other.replica(), pair.follower)

    assert stored(pair.follower) == stored(other.replica())
    assert before.startswith(sending.contents())
    assert len(sending.contents()) < len(before), "it ends where the log was cut"
