"""Leader epochs compared with a list of batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.checkpoint import CheckpointDamaged
from penstock.storage.epochs import LeaderEpochs
from penstock.testing.mem_disk import MemDisk


def epochs_of(*pairs: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in pairs:
        epochs.assign(epoch, start)
    return epochs


def test_the_end_of_an_epoch_is_where_the_next_began():
    epochs = epochs_of((1, 0), (3, 10), (4, 25))

    assert epochs.end_of(1, 40) == (1, 10)
    assert epochs.end_of(3, 40) == (3, 25)
    assert epochs.end_of(4, 40) == (4, 40)


def test_an_unknown_epoch_ends_with_the_one_before_it():
    epochs = epochs_of((1, 5), (3, 10), (4, 25))

    assert epochs.end_of(2, 40) == (1, 10)
    assert epochs.end_of(0, 40) == (0, 5)
    assert epochs.end_of(5, 40) == (-1, -1)
    assert epochs.end_of(-1, 40) == (-1, -1)
    assert LeaderEpochs().end_of(3, 0) == (-1, -1)


def test_an_epoch_that_wrote_nothing_is_replaced():
    assert epochs_of((1, 0), (2, 10), (3, 10)).entries() == [(1, 0), (3, 10)]


def test_an_older_epoch_is_ignored():
    assert epochs_of((5, 0), (4, 10), (5, 20)).entries() == [(5, 0)]


def test_deleting_the_start_keeps_the_epoch_at_the_new_start():
    epochs = epochs_of((1, 0), (2, 10), (3, 20))

    epochs.delete_before(15)

    assert epochs.entries() == [(2, 15), (3, 20)]
    assert epochs.epoch_at(14) == -1
    assert epochs.start_of(2) == 15
    assert epochs.start_of(1) is None


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 45), st.integers(0, 45))
def test_epochs_agree_with_the_batches(steps, cut, start):
    epoch = 0
    batches = []
    for offset, step in enumerate(steps):
        epoch += step
        batches.append((epoch, offset))
    epochs = epochs_of(*batches)

    epochs.truncate_to(cut)
    batches = [(epoch, offset) for epoch, offset in batches if offset < cut]
    assert epochs.latest == (batches[-1][0] if batches else -1)
    if batches and start <= batches[-1][1]:
        epochs.delete_before(start)
        batches = [(epoch, offset) for epoch, offset in batches if offset >= start]
    for epoch, offset in batches:
        assert epochs.epoch_at(offset) == epoch
        assert epochs.start_of(epoch) == min(at for other, at in batches if other == epoch)
        ends = [at for other, at in batches if other > epoch]
        assert epochs.end_of(epoch, len(steps)) == (epoch, min(ends, default=len(steps)))


def test_epochs_are_read_back_and_contradictions_refused():
    disk = MemDisk()
    disk.make_directory("/d")
    epochs = epochs_of((1, 0), (7, 2**40))

    epochs.save(disk, "/d/x", sync=True)

    assert disk.read_file("/d/x") == b"0\n2\n1 0\n7 1099511627776\n"
    assert LeaderEpochs.load(disk, "/d/x").entries() == epochs.entries()
    for damaged in (b"0\n2\n1 0\n1 5\n", b"0\n2\n1 10\n2 5\n", b"0\n1\nx y\n", b"0\n1\n1 2 3\n"):
        disk.write_file("/d/x", damaged)
        with pytest.raises(CheckpointDamaged):
            LeaderEpochs.load(disk, "/d/x")
