"""A log moves to another directory while it is written, read, compacted and shortened."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.unit.storage.logs import ManualClock, Seeded, Settings, batch_of, put, read_all

from penstock.model.ids import TOPIC_ID_ZERO, TopicPartition
from penstock.model.threads import ThreadPool
from penstock.observe.log import logger
from penstock.storage import compaction
from penstock.storage.move import abandon_move, begin_move, retire, try_switch
from penstock.storage.retention import retain
from penstock.storage.store import LogStore
from penstock.storage.throttle import Throttle
from penstock.testing.mem_disk import MemDisk

TP = TopicPartition("t", 0)
SMALL = Settings(
    segment_bytes_effective=300, cleanup_policy=frozenset({"compact", "delete"}), min_cleanable_dirty_ratio=0.0
)


def store_on(disk: MemDisk) -> LogStore:
    store = LogStore(
        ["/one", "/two"],
        disk=disk,
        threads=ThreadPool(1),
        clock=ManualClock(),
        randomness=Seeded(),
        log=logger("storage"),
    )
    store.load(Settings(), broker_id=1, cluster_id="c")
    return store


STEPS = st.lists(st.sampled_from(["append", "append", "copy", "drop", "compact", "switch"]), max_size=25)


def test_a_copy_is_throttled():
    store = store_on(MemDisk())
    one, two = store.all_directories
    log = store.create(TP, TOPIC_ID_ZERO, SMALL, one)
    for _ in range(12):
        put(log, batch_of(b"x" * 100))
    move = begin_move(log, two, "aa")
    slept = []

    move.copy(Throttle(1000, ManualClock(), slept.append))

    assert sum(size for _, size in move.copied) == log.size_bytes
    assert slept[-1] == log.size_bytes / 1000


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_move_does_not_change_the_records_of_a_log(steps):
    disk = MemDisk()
    store = store_on(disk)
    one, two = store.all_directories
    log = store.create(TP, TOPIC_ID_ZERO, SMALL, one)
    for at in range(12):
        put(log, batch_of(b"%d" % at, keys=[b"%d" % (at % 5)]))
    move = begin_move(log, two, "aa")
    for step in [*steps, "copy", "switch"]:
        if step == "append":
            put(log, batch_of(b"x" * 30, keys=[b"%d" % (log.log_end % 5)]))
        elif step == "copy" and log.directory is one:
            move.copy()
        elif step == "drop" and log.log_end > 6:
            log.delete_before(log.log_end - 6)
            retain(log, 0, committed=log.log_end, trash=store.trash)
        elif step == "compact":
            due = compaction.plan(log, 0, stable=log.log_end, keys_max=100)
            if due is not None:
                due.run(log, store.trash)
        elif step == "switch" and log.directory is one:
            expected = read_all(log)
            if move.copied and try_switch(move):
                assert log.directory is two
            assert read_all(log) == expected
    while log.directory is one:
        move.copy()
        try_switch(move)
    expected = read_all(log)
    put(log, batch_of(b"after"))
    move.settle()
    retire(move, store.trash, "bb")
    store.close()

    again = store_on(disk)
    found = again.get(TP)

    assert found.directory.path == "/two"
    assert read_all(found)[:-1] == expected
    assert not disk.exists("/one/t-0")


def test_an_empty_log_can_be_moved():
    disk = MemDisk()
    store = store_on(disk)
    one, two = store.all_directories
    log = store.create(TP, TOPIC_ID_ZERO, SMALL, one)
    move = begin_move(log, two, "aa")
    move.copy()

    assert try_switch(move)
    move.settle()
    retire(move, store.trash, "bb")

    assert put(log, batch_of(b"a")) == 0
    assert disk.exists("/two/t-0")
    assert not disk.exists("/one/t-0")


def test_a_crash_before_the_switch_leaves_the_log_where_it_was():
    disk = MemDisk()
    store = store_on(disk)
    one, two = store.all_directories
    log = store.create(TP, TOPIC_ID_ZERO, SMALL, one)
    put(log, batch_of(b"a"))
    move = begin_move(log, two, "aa")
    move.copy()
    disk.kill()

    again = store_on(disk)

    assert again.get(TP).directory.path == "/one"
    again.trash.remove(again.trash.take_due(0))
    assert not [name for name in disk.list_directory("/two") if name.startswith("t-0")]


def test_a_cancelled_move_leaves_no_files():
    disk = MemDisk()
    store = store_on(disk)
    one, two = store.all_directories
    log = store.create(TP, TOPIC_ID_ZERO, SMALL, one)
    put(log, batch_of(b"a"))
    move = begin_move(log, two, "aa")
    move.copy()

    abandon_move(move, store.trash)
    store.trash.remove(store.trash.take_due(0))

    assert not [name for name in disk.list_directory("/two") if name.startswith("t-0")]
    assert len(read_all(log)) == 1


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("stage", ["switched", "settled", "retired"])
def test_flushed_records_survive_a_power_cut_at_every_stage_of_a_move(stage, seed):
    disk = MemDisk()
    store = store_on(disk)
    one, two = store.all_directories
    log = store.create(TP, TOPIC_ID_ZERO, SMALL, one)
    for at in range(8):
        put(log, batch_of(b"%d" % at))
    log.flush()
    store.checkpoint()
    move = begin_move(log, two, "aa")
    move.copy()
    assert try_switch(move)
    if stage != "switched":
        move.settle()
    if stage == "retired":
        retire(move, store.trash, "bb")
        store.trash.remove(store.trash.take_due(0))
    disk.crash(Seeded(seed))

    found = store_on(disk).get(TP)

    assert found is not None
    assert len(read_all(found)) == 8
