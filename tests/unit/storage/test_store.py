"""All logs of a broker: locked, found again, deleted, and gone with their directory when it fails."""

import copy
import errno

import pytest
from structlog.testing import capture_logs
from tests.unit.storage.logs import ManualClock, Seeded, Settings, batch_of, put, read_all, values_of

from penstock.model.generated_errors import KafkaStorageError
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.threads import ThreadPool
from penstock.observe.log import logger
from penstock.storage.directories import StartRefused
from penstock.storage.disk import Disk, RealDisk
from penstock.storage.marks import read as read_marks
from penstock.storage.store import LogStore
from penstock.testing.mem_disk import MemDisk, PowerCut

ID = TopicId(bytes(range(16)))
A, B = TopicPartition("a", 0), TopicPartition("b-with-dash", 11)


def store_on(disk: Disk, *paths: str, broker_id: int = 1, cluster_id: str = "c", seed: int = 0) -> LogStore:
    store = LogStore(
        paths or ("/data",),
        disk=disk,
        threads=ThreadPool(1),
        clock=ManualClock(),
        randomness=Seeded(seed),
        log=logger("storage"),
    )
    store.load(Settings(), broker_id=broker_id, cluster_id=cluster_id)
    return store


def filled(disk: Disk, *paths: str) -> LogStore:
    store = store_on(disk, *paths)
    for tp in (A, B):
        log = store.create(tp, ID, Settings())
        for at in range(3):
            put(log, batch_of(b"%s %d" % (tp.topic.encode(), at)))
    return store


def test_logs_are_found_again_after_a_clean_stop_without_being_opened():
    disk = MemDisk()
    store = filled(disk)
    for log in store:
        log.high_watermark = log.log_end
    store.get(A).delete_before(1)
    store.close()

    again = store_on(disk)

    assert {log.tp for log in again} == {A, B}
    log = again.get(A)
    assert log is not None
    assert not log.opened
    assert (log.log_start, log.log_end, log.high_watermark, log.recovery_point) == (1, 3, 3, 3)
    assert (log.topic_id, log.size_bytes > 0) == (ID, True)
    assert values_of(read_all(log)) == [b"a 1", b"a 2"]
    assert put(log, batch_of(b"next")) == 3


def test_a_directory_tells_how_its_last_broker_ended():
    disk = MemDisk()
    told = []

    for leave in (LogStore.close, lambda _: disk.kill(), lambda _: disk.crash(Seeded(1)), LogStore.close):
        with capture_logs() as events:
            store = filled(disk) if not told else store_on(disk)
        told += [event["last_stop"] for event in events if event["event"] == "directory_loaded"]
        leave(store)

    assert told == ["none", "clean", "process crash", "machine crash"]


@pytest.mark.parametrize("power", [False, True])
def test_logs_are_found_again_after_an_unclean_stop(power):
    disk = MemDisk()
    store = filled(disk)
    for log in store:
        log.flush()
    store.get(A).delete_before(2)
    store.checkpoint()
    if power:
        disk.crash(Seeded(1))
    else:
        disk.kill()

    again = store_on(disk)

    log = again.get(A)
    assert (log.log_start, log.log_end, log.topic_id) == (2, 3, ID)
    assert values_of(read_all(log)) == [b"a 2"]
    assert len(read_all(again.get(B))) == 3


def test_a_new_log_that_was_flushed_survives_a_power_cut():
    for seed in range(20):
        disk = MemDisk()
        store = filled(disk)
        store.get(A).flush()
        disk.crash(Seeded(seed))

        log = store_on(disk).get(A)

        assert log is not None
        assert (log.topic_id, log.log_end, log.epochs.entries()) == (ID, 3, [(0, 0)])


def test_an_empty_log_that_begins_at_an_offset_keeps_its_topic_id_after_a_power_cut():
    for seed in range(20):
        disk = MemDisk()
        store = store_on(disk)
        store.create(A, ID, Settings(), base=5)
        store.checkpoint()
        disk.crash(Seeded(seed))

        log = store_on(disk).get(A)

        assert log is not None
        assert (log.topic_id, log.log_start, log.log_end) == (ID, 5, 5)


def test_an_empty_log_that_was_deleted_is_not_missed_after_a_power_cut():
    for seed in range(20):
        disk = MemDisk()
        store = store_on(disk)
        store.create(A, ID, Settings(), base=5)
        store.checkpoint()
        store.delete(A)
        store.sync_names()
        disk.crash(Seeded(seed))

        with capture_logs() as events:
            again = store_on(disk)

        assert again.get(A) is None
        assert "log_missing" not in {event["event"] for event in events}


@pytest.mark.parametrize("made_before", [None, "/var/lib", "/var/lib/penstock/data"])
def test_a_data_directory_that_did_not_exist_survives_a_power_cut_with_its_flushed_logs(made_before: str | None):
    for seed in range(50):
        disk = MemDisk()
        if made_before is not None:
            # By the metadata store, by the CLI, or by a broker that was killed before its first sync.
            disk.make_directory(made_before, parents=True)
        store = filled(disk, "/var/lib/penstock/data")
        store.get(A).flush()
        disk.crash(Seeded(seed))

        log = store_on(disk, "/var/lib/penstock/data").get(A)

        assert log is not None, f"seed {seed}"
        assert values_of(read_all(log)) == [b"a 0", b"a 1", b"a 2"], f"seed {seed}"


def test_a_killed_first_start_leaves_the_names_above_the_data_directory_to_the_next_one():
    """Whichever operation is the last of the first start, the second makes every name durable."""
    operations = 0
    for cut in range(1, 100):
        disk = MemDisk()
        disk.cut_power_at = cut
        try:
            store_on(disk, "/var/lib/penstock/data")
        except PowerCut:
            operations += 1
        else:
            break
        disk.kill()
        store = filled(disk, "/var/lib/penstock/data")
        store.get(A).flush()
        for seed in range(10):
            after = copy.deepcopy(disk)
            after.crash(Seeded(seed))
            log = store_on(after, "/var/lib/penstock/data").get(A)
            assert log is not None, f"cut at {cut}, seed {seed}"
            assert log.log_end == 3, f"cut at {cut}, seed {seed}"
    assert operations > 5, "the start has that many steps"


def test_a_directory_above_the_data_that_this_user_cannot_read_does_not_stop_the_start():
    disk = MemDisk()
    disk.make_directory("/var/lib/data", parents=True)
    disk.fail("sync_directory", "/var", errno.EACCES, times=2)

    assert store_on(disk, "/var/lib/data").all_directories[0].offline is None


def test_a_directory_above_the_data_that_fails_to_sync_stops_the_start():
    disk = MemDisk()
    disk.make_directory("/var/lib/data", parents=True)
    disk.fail("sync_directory", "/var", errno.EIO, times=1)

    with pytest.raises(StartRefused, match="Input/output error"):
        store_on(disk, "/var/lib/data")


@pytest.mark.parametrize("appended", [False, True])
def test_a_log_of_a_killed_broker_that_the_next_one_flushed_survives_a_power_cut(appended):
    for seed in range(20):
        disk = MemDisk()
        filled(disk)
        disk.kill()
        store = store_on(disk)
        log = store.get(A)
        if appended:
            put(log, batch_of(b"a 3"), epoch=1)
        log.flush()
        store.checkpoint()
        disk.crash(Seeded(seed))

        log = store_on(disk).get(A)

        assert log is not None
        epochs = [(0, 0), (1, 3)] if appended else [(0, 0)]
        assert (log.topic_id, log.log_end, log.epochs.entries()) == (ID, 4 if appended else 3, epochs)


def test_a_stop_is_unclean_from_the_first_moment_after_a_start():
    disk = MemDisk()
    filled(disk).close()
    store_on(disk)
    disk.crash(Seeded(3))

    again = store_on(disk)

    assert all(log.opened for log in again)
    assert {log.log_end for log in again} == {3}


def test_a_partition_nobody_wrote_to_leaves_nothing_on_the_disk():
    disk = MemDisk()
    store = store_on(disk)
    log = store.create(A, ID, Settings())

    assert not disk.exists("/data/a-0")
    assert (log.log_end, read_all(log), list(log.view().batches(0))) == (0, [], [])
    assert log.view().offset_for_time(0) is None
    log.flush()
    store.delete(A)
    store.create(A, ID, Settings())
    store.close()
    assert len(store_on(disk)) == 0


def test_two_brokers_cannot_have_one_directory(tmp_path):
    path = str(tmp_path / "data")
    first = store_on(RealDisk(), path)

    with pytest.raises(StartRefused, match="in use by another process"):
        store_on(RealDisk(), path)

    first.close()
    store_on(RealDisk(), path).close()


def test_data_of_another_broker_or_cluster_is_refused():
    disk = MemDisk()
    filled(disk).close()

    with pytest.raises(StartRefused, match=r"node.id=1, and this broker has node.id=2"):
        store_on(disk, broker_id=2)
    with pytest.raises(StartRefused, match=r"cluster.id=c, and the metadata of this broker is of cluster d"):
        store_on(disk, cluster_id="d")
    assert len(store_on(disk)) == 2


def test_a_deleted_log_is_gone_at_once_and_its_files_later():
    disk = MemDisk()
    store = filled(disk)

    store.delete(A)

    assert store.get(A) is None
    left = [name for name in disk.list_directory("/data") if name.startswith("a-0")]
    assert [name.endswith("-delete") for name in left] == [True]
    store.trash.remove(store.trash.take_due(10**9))
    assert not [name for name in disk.list_directory("/data") if name.startswith("a-0")]
    log = store.create(A, ID, Settings())
    assert put(log, batch_of(b"new")) == 0


def test_a_half_deleted_log_is_not_found_again():
    disk = MemDisk()
    store = filled(disk)
    store.delete(A)
    store.close()

    again = store_on(disk)

    assert {log.tp for log in again} == {B}
    again.trash.remove(again.trash.take_due(0))
    assert not [name for name in disk.list_directory("/data") if name.startswith("a-0")]


def test_new_logs_go_where_there_are_fewest():
    disk = MemDisk()
    store = store_on(disk, "/one", "/two")

    for at in range(6):
        put(store.create(TopicPartition("t", at), ID, Settings()), batch_of(b"x"))

    assert [len(state.sizes) for state in store.directories()] == [3, 3]
    store.close()
    assert len(store_on(disk, "/one", "/two")) == 6


def test_a_failed_directory_takes_its_logs_along_and_leaves_the_others():
    disk = MemDisk()
    store = filled(disk, "/one", "/two")
    first, second = store.get(A), store.get(B)
    assert {first.directory.path, second.directory.path} == {"/one", "/two"}
    disk.fail("sync", first.directory.path, errno.EIO, times=1)

    with pytest.raises(KafkaStorageError, match="offline"):
        first.flush()

    with pytest.raises(KafkaStorageError, match="offline"):
        put(first, batch_of(b"more"))
    with pytest.raises(KafkaStorageError, match="offline"):
        first.slice(0, 100, end=1, at_least_one=True)
    assert put(second, batch_of(b"more")) == 3
    states = {state.path: state.offline for state in store.directories()}
    assert "Input/output error" in states[first.directory.path]
    assert states[second.directory.path] is None
    assert store.create(TopicPartition("new", 0), ID, Settings()).directory is second.directory
    store.close()


def test_a_directory_that_failed_is_not_marked_clean():
    disk = MemDisk()
    store = filled(disk)
    disk.fail("sync", "a-0", errno.EIO)
    store.close()
    disk.faults.clear()

    assert not disk.exists("/data/.kafka_cleanshutdown")
    assert all(log.opened for log in store_on(disk))


def test_a_read_only_directory_is_refused_when_it_is_the_only_one():
    disk = MemDisk()
    filled(disk).close()
    disk.read_only = True

    with pytest.raises(StartRefused, match=r"/data: Read-only file system"):
        store_on(disk)


def test_a_directory_that_cannot_be_opened_leaves_the_others(tmp_path):
    disk = MemDisk()
    disk.fail("make_directory", "/bad", errno.EACCES)

    store = store_on(disk, "/bad", "/good")

    assert [state.offline is None for state in store.directories()] == [False, True]
    assert store.create(A, ID, Settings()).directory.path == "/good"


@pytest.mark.parametrize("path", [".lock", ".log"])
def test_a_start_without_descriptors_is_refused_and_succeeds_with_them(path: str):
    disk = MemDisk()
    filled(disk).close(clean=False)
    disk.fail("open", path, errno.EMFILE, times=1)

    with pytest.raises(StartRefused, match="The disk is not at fault"):
        store_on(disk)

    disk.kill()
    assert {log.tp for log in store_on(disk)} == {A, B}


def test_of_two_copies_of_a_log_the_longer_is_used_and_the_other_set_aside():
    disk = MemDisk()
    filled(disk, "/one").close()
    store = store_on(disk, "/two")
    for _ in range(5):
        put(store.create(A, ID, Settings()) if store.get(A) is None else store.get(A), batch_of(b"two"))
    store.close()

    again = store_on(disk, "/one", "/two")

    assert values_of(read_all(again.get(A))) == [b"two"] * 5
    assert [name.endswith("-stray") for name in disk.list_directory("/one") if name.startswith("a-0")] == [True]
    again.close()
    assert len(store_on(disk, "/one", "/two")) == 2


def test_two_topics_that_claim_one_partition_stop_the_start():
    disk = MemDisk()
    filled(disk, "/one").close()
    disk.make_directory("/two/a-0", parents=True)
    disk.write_file("/two/a-0/partition.metadata", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OAA\n")

    with pytest.raises(StartRefused, match="a-0 is in two directories with different topic ids"):
        store_on(disk, "/one", "/two")


def test_damaged_checkpoints_cost_a_scan_and_nothing_else():
    disk = MemDisk()
    store = filled(disk)
    store.checkpoint()
    disk.kill()
    for name in disk.list_directory("/data"):
        if name.endswith("-checkpoint"):
            disk.write_file(f"/data/{name}", b"garbage")

    assert {log.log_end for log in store_on(disk)} == {3}


def test_a_damaged_summary_costs_opening_the_logs():
    disk = MemDisk()
    filled(disk).close()
    disk.write_file("/data/log-summary-checkpoint", b"0\n1\nshort line\n")

    again = store_on(disk)

    assert {(log.log_end, log.opened) for log in again} == {(3, True)}


def test_unchanged_checkpoints_are_not_written_again():
    disk = MemDisk()
    store = filled(disk)
    store.checkpoint()
    before = disk.operations

    store.checkpoint()

    assert disk.operations == before
    put(store.get(A), batch_of(b"x"))
    store.get(A).flush()
    changed = [path for path, _ in store.begin_checkpoint().files]
    assert changed == ["/data/log-marks-checkpoint", "/data/recovery-point-offset-checkpoint"]


def test_files_are_kafkas():
    disk = MemDisk()
    store = filled(disk)
    store.get(A).producers = list
    store.get(A).roll()
    store.checkpoint()
    store.close()

    assert disk.read_file("/data/a-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert disk.read_file("/data/a-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n2\na 0 3\nb-with-dash 11 3\n"
    assert sorted(disk.list_directory("/data/a-0")) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.index",
        "00000000000000000003.log",
        "00000000000000000003.snapshot",
        "00000000000000000003.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert b"node.id=1\ncluster.id=c\ndirectory.id=" in disk.read_file("/data/meta.properties")
    assert disk.read_file("/data/.kafka_cleanshutdown") == b'{"version": 0, "brokerEpoch": -1}'


def test_the_operator_is_told_what_opening_a_log_brought_to_light(capsys):
    disk = MemDisk()
    store = filled(disk)
    for log in store:
        log.high_watermark = log.log_end
    store.checkpoint()
    disk.kill()
    disk.flip("/data/a-0/00000000000000000000.log", 65)

    store_on(disk)

    told = capsys.readouterr().out
    assert "segment_quarantined" in told
    assert "00000000000000000000.log.quarantined" in told


def test_a_log_that_is_shorter_than_its_clean_stop_left_it_is_not_served():
    disk = MemDisk()
    filled(disk).close()
    name = "/data/a-0/00000000000000000000.log"
    disk.open(name).truncate(disk.stat(name).size - 5)

    store = store_on(disk)

    with pytest.raises(KafkaStorageError, match="has 211 of 216 bytes"):
        store.get(A).open()
    assert store.get(A).log_end == 3
    assert len(read_all(store.get(B))) == 3


def test_a_directory_whose_disk_failed_is_recovered_as_after_a_machine_crash():
    disk = MemDisk()
    store = filled(disk)
    disk.fail("sync", ".log", errno.EIO, times=1)
    with pytest.raises(KafkaStorageError):
        store.get(A).flush()
    store.close()
    disk.kill()

    with capture_logs() as told:
        store_on(disk)

    assert [event["last_stop"] for event in told if event["event"] == "directory_loaded"] == ["machine crash"]


def test_a_disk_that_takes_no_checkpoint_keeps_none_from_another():
    disk = MemDisk()
    store = store_on(disk, "/one", "/two")
    for tp, directory in zip((A, B), store.all_directories, strict=True):
        put(store.create(tp, ID, Settings(), directory), batch_of(b"x"))
        store.get(tp).flush()
    disk.fail("rename", "/one/", errno.ENOSPC)

    with pytest.raises(OSError, match="No space"):
        store.checkpoint()

    assert [log.flusher.checkpointed for log in store] == [0, 0]
    assert read_marks(disk, "/two").of(B).recovery_point == 1
    disk.faults.clear()
    store.checkpoint()
    assert read_marks(disk, "/one").of(A).recovery_point == 1
    assert [log.flusher.checkpointed for log in store] == [1, 1]
