"""A follower that lacks removed tombstones empties its log, copies its leader's again, and remembers that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.partition.rig import Rig, Seeded, batch
from tests.unit.partition.test_following import ORDERS, Pair, copy, shared, stored

from penstock.model.removals import CopyStart, Removals
from penstock.partition.removals import removals_at
from penstock.partition.replica import Replica
from penstock.storage import compaction
from penstock.storage.names import REMOVAL_MARK
from penstock.storage.trash import Trash
from penstock.testing import MemDisk
from penstock.testing.mem_disk import PowerCut
from penstock.wire.records import Record, decode_records, iter_batches

COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "200",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "0",
}
VALUE = b"v" * 60


def compact(rig: Rig, replica: Replica) -> None:
    """Run passes over a log until no tombstone is left: the first one only notes their delete horizon."""
    for _ in range(2):
        rig.clock.ms += 1
        replica.log.roll()
        replica.log.cleaned_to = 0
        due = compaction.plan(replica.log, rig.clock.ms, stable=replica.offsets.last_stable, keys_max=1000)
        if due is not None:
            due.run(replica.log, Trash(rig.disk))


def fetch(pair: Pair, follower: Replica, rig: Rig) -> None:
    """One fetch of a follower, as `Fetcher` handles its response."""
    position = follower.fetch_position()
    assert position is not None
    removals = removals_at(pair.leader.log.removal_mark.removals, position.offset)
    if follower.copies_again(removals, leader_epoch=position.leader_epoch):
        assert removals is not None
        rig.replicas.copy_again(ORDERS, pair.leader.offsets.log_start, removals)
    else:
        copy(pair.leader, follower, removals=removals)


def records_of(replica: Replica) -> list[Record]:
    data = stored(replica, replica.log.log_start)
    return [
        record
        for position, header in iter_batches(data)
        for record in decode_records(bytes(data[position : position + header.size]))
    ]


def state_of(replica: Replica) -> dict[bytes | None, bytes | None]:
    """The value of every key, for a reader of the whole log."""
    newest = {record.key: record.value for record in records_of(replica)}
    return {key: value for key, value in newest.items() if value is not None}


def behind() -> Pair:
    """A leader that has removed the tombstone of a key, and a follower that has the key and not the tombstone."""
    pair = Pair(isr=(1,), configs=COMPACTED)
    pair.append(VALUE, key=b"kept")
    pair.append(VALUE, key=b"deleted")
    copy(pair.leader, pair.follower)
    pair.one.append(pair.leader, batch(None, key=b"deleted"))
    pair.append(VALUE, key=b"later")
    compact(pair.one, pair.leader)
    pair.append(VALUE, key=b"last")
    assert pair.leader.log.removal_mark.removals == Removals(2, 1)
    assert set(state_of(pair.follower)) == {b"kept", b"deleted"}
    return pair


def test_a_follower_that_lacks_a_removed_tombstone_copies_the_log_again() -> None:
    pair = behind()

    fetch(pair, pair.follower, pair.two)
    assert (pair.follower.offsets.log_end, pair.follower.log.log_end) == (0, 0)
    assert pair.follower.log.removal_mark.copied == CopyStart(0, 1)
    fetch(pair, pair.follower, pair.two)

    assert stored(pair.follower) == stored(pair.leader)
    assert state_of(pair.follower) == state_of(pair.leader) == {b"kept": VALUE, b"later": VALUE, b"last": VALUE}
    assert pair.follower.log.removal_mark.mark == 2
    assert pair.follower.log.epochs.entries() == pair.leader.log.epochs.entries()


def test_without_the_rule_the_deleted_key_would_live_again() -> None:
    pair = behind()

    copy(pair.leader, pair.follower)

    assert set(state_of(pair.follower)) - set(state_of(pair.leader)) == {b"deleted"}


def test_a_removal_during_the_copy_begins_it_again_although_the_mark_stays() -> None:
    pair = behind()
    fetch(pair, pair.follower, pair.two)
    pair.leader.log.removal_mark.removed()

    fetch(pair, pair.follower, pair.two)

    assert pair.follower.log.log_end == 0
    assert pair.follower.log.removal_mark.copied == CopyStart(0, 2)
    fetch(pair, pair.follower, pair.two)
    assert stored(pair.follower) == stored(pair.leader)


def test_a_follower_that_has_everything_up_to_the_mark_goes_on() -> None:
    pair = behind()
    fetch(pair, pair.follower, pair.two)
    fetch(pair, pair.follower, pair.two)
    pair.append(VALUE, key=b"more")

    fetch(pair, pair.follower, pair.two)

    assert pair.follower.log.log_end == pair.leader.log.log_end
    assert len(pair.two.notes.named("log_copied_again")) == 1


def test_a_follower_stopped_during_its_copy_goes_on_where_it_was() -> None:
    pair = behind()
    fetch(pair, pair.follower, pair.two)
    whole = stored(pair.leader)
    _, second = list(iter_batches(whole))[:2]
    removals = pair.leader.log.removal_mark.removals
    copy(pair.leader, pair.follower, records=whole[: second[0]], removals=removals)
    assert 0 < pair.follower.log.log_end <= removals.mark
    disk = pair.two.stop()

    rig = again(disk)
    fetch(pair, rig.replica(), rig)

    assert rig.notes.named("log_copied_again") == []
    assert stored(rig.replica()) == stored(pair.leader)


def test_a_new_leader_makes_a_follower_begin_its_copy_again() -> None:
    pair = behind()
    fetch(pair, pair.follower, pair.two)
    before, after = shared(isr=(1,), configs=COMPACTED), shared(epoch=1, isr=(1,), version=1, configs=COMPACTED)
    pair.one.change(before, after)
    pair.two.change(before, after)

    fetch(pair, pair.follower, pair.two)

    assert pair.follower.log.removal_mark.copied == CopyStart(1, 1)
    fetch(pair, pair.follower, pair.two)
    assert stored(pair.follower) == stored(pair.leader)


def test_a_replica_that_leads_has_no_mark_beyond_its_log() -> None:
    pair = behind()
    fetch(pair, pair.follower, pair.two)
    assert pair.follower.log.removal_mark.mark == 2
    assert pair.follower.log.log_end == 0

    pair.two.change(
        shared(isr=(1,), configs=COMPACTED), shared(leader=2, epoch=1, isr=(2,), version=1, configs=COMPACTED)
    )

    assert pair.follower.is_leader
    assert pair.follower.log.removal_mark.mark == -1


def test_passes_of_a_follower_and_of_a_leader_stop_at_their_high_watermarks() -> None:
    pair = Pair(configs=COMPACTED)
    for at in range(8):
        pair.append(b"%d" % at + VALUE, key=b"k")
    copy(pair.leader, pair.follower, high_watermark=4)
    assert (pair.leader.offsets.high_watermark, pair.follower.offsets.high_watermark) == (0, 4)

    compact(pair.one, pair.leader)
    compact(pair.two, pair.follower)

    def offsets(replica: Replica) -> list[int]:
        return [header.base_offset for _, header in iter_batches(stored(replica)) if header.record_count]

    assert offsets(pair.leader) == [*range(8)]
    assert offsets(pair.follower) == [3, *range(4, 8)]


def test_the_mark_is_lowered_with_the_log_and_survives_a_deletion_of_records() -> None:
    pair = behind()
    pair.leader.delete_records(3)
    assert pair.leader.log.removal_mark.mark == 2
    assert removals_at(pair.leader.log.removal_mark.removals, pair.leader.offsets.log_start) is None
    fetch(pair, pair.follower, pair.two)
    pair.two.replicas.restart({ORDERS: 3})

    copy(pair.leader, pair.follower)

    assert state_of(pair.follower) == state_of(pair.leader)
    pair.two.replicas.truncate({ORDERS: 3})
    assert pair.follower.log.removal_mark.mark <= 2


def test_a_damaged_mark_counts_every_committed_record_as_removed() -> None:
    pair = behind()
    pair.leader.note_committed()
    disk = pair.one.stop()
    path = f"/data/orders-0/{REMOVAL_MARK}"
    disk.flip(path, len(disk.read_file(path)) // 2)

    rig = Rig(shared(isr=(1,), configs=COMPACTED), disk=disk)

    assert rig.replica().log.removal_mark.mark == rig.replica().offsets.high_watermark - 1
    assert rig.notes.named("removal_mark_damaged")


def again(disk: MemDisk) -> Rig:
    """Broker 2 after a restart, following broker 1."""
    rig = Rig(shared(isr=(1,), configs=COMPACTED), disk=disk, broker_id=2, fenced=True)
    rig.replicas.unfence()
    return rig


@pytest.mark.parametrize("power", [False, True], ids=["process killed", "power cut"])
def test_a_crash_at_any_point_of_a_second_copy_never_shows_a_deleted_key(power: bool) -> None:
    steps = 0
    while True:
        pair = behind()
        pair.follower.log.flush()
        pair.follower.note_committed()
        pair.two.store.checkpoint()
        disk = pair.two.disk
        disk.cut_power_at = disk.operations + steps
        try:
            fetch(pair, pair.follower, pair.two)
            fetch(pair, pair.follower, pair.two)
        except PowerCut:
            pass
        else:
            break
        if power:
            disk.crash(Seeded(steps))
        else:
            disk.kill()

        rig = again(disk)
        for _ in range(4):
            if rig.replica().log.log_end < pair.leader.log.log_end:
                fetch(pair, rig.replica(), rig)

        assert stored(rig.replica()) == stored(pair.leader), f"after {steps} operations"
        assert rig.replica().log.removal_mark.mark == 2
        assert rig.notes.named("log_start_distrusted") == []
        steps += 1
    assert steps > 5


@pytest.mark.parametrize("power", [False, True], ids=["process killed", "power cut"])
def test_a_crash_at_any_point_of_a_pass_never_removes_a_tombstone_without_its_mark(power: bool) -> None:
    steps = 0
    while True:
        pair = Pair(isr=(1,), configs=COMPACTED)
        pair.append(VALUE, key=b"deleted")
        pair.one.append(pair.leader, batch(None, key=b"deleted"))
        pair.append(VALUE, key=b"later")
        pair.leader.log.flush()
        pair.leader.note_committed()
        pair.one.store.checkpoint()
        disk = pair.one.disk
        disk.cut_power_at = disk.operations + steps
        try:
            compact(pair.one, pair.leader)
        except PowerCut:
            pass
        else:
            break
        if power:
            disk.crash(Seeded(steps))
        else:
            disk.kill()

        rig = Rig(shared(isr=(1,), configs=COMPACTED), disk=disk)
        replica = rig.replica()
        has_tombstone = any(record.value is None for record in records_of(replica))
        assert has_tombstone or replica.log.removal_mark.mark == 1, f"after {steps} operations"
        assert state_of(replica) == {b"later": VALUE}
        steps += 1
    assert steps > 10


def test_a_mark_of_a_topic_that_was_deleted_meanwhile_is_not_taken() -> None:
    pair = behind()
    pair.leader.note_committed()
    disk = pair.one.stop()
    state = shared(isr=(1,), configs=COMPACTED)
    data = disk.read_file(f"/data/orders-0/{REMOVAL_MARK}")
    other = Rig(replace(state, topic_id=(9).to_bytes(16, "big")))
    other.append(other.replica(), batch(VALUE))
    home = other.stop()
    home.write_file(f"/data/orders-0/{REMOVAL_MARK}", data)

    rig = Rig(replace(state, topic_id=(9).to_bytes(16, "big")), disk=home)

    assert rig.replica().log.log_end == 1
    assert rig.replica().log.removal_mark.mark == -1
