"""The checks of histories detect each kind of fault."""

from __future__ import annotations

import pytest

from cluster.histories import (
    Acknowledged,
    check_in_order,
    check_no_duplicates,
    check_nothing_is_lost,
    check_readers_saw_the_log,
)

LOG = {0: 0, 1: 1, 2: 2}


def acknowledged(**offsets: int) -> Acknowledged:
    return Acknowledged("t", offsets={int(name[1:]): at for name, at in offsets.items()})


def test_a_good_history_passes() -> None:
    check_nothing_is_lost(acknowledged(n0=0, n1=1, n2=2), LOG)
    check_no_duplicates(LOG)
    check_in_order(LOG)
    check_readers_saw_the_log({0: 0, 1: 1}, LOG)
    check_readers_saw_the_log({}, {})


@pytest.mark.parametrize("log", [{0: 0, 1: 1}, {0: 0, 1: 2, 2: 1}, {}])
def test_an_acknowledged_message_at_another_offset_is_detected(log: dict[int, int]) -> None:
    with pytest.raises(AssertionError, match="acknowledged are missing"):
        check_nothing_is_lost(acknowledged(n0=0, n1=1, n2=2), log)


def test_a_duplicate_message_is_detected() -> None:
    with pytest.raises(AssertionError, match="duplicate messages"):
        check_no_duplicates({0: 0, 1: 1, 2: 1})


def test_messages_out_of_order_are_detected() -> None:
    with pytest.raises(AssertionError, match="out of order"):
        check_in_order({0: 0, 1: 2, 2: 1})


def test_a_message_that_disappeared_after_it_was_read_is_detected() -> None:
    with pytest.raises(AssertionError, match="differ from what was read"):
        check_readers_saw_the_log({3: 3}, LOG)


def test_a_message_that_a_reader_skipped_is_detected() -> None:
    with pytest.raises(AssertionError, match="1 offsets were never read"):
        check_readers_saw_the_log({0: 0, 2: 2}, LOG)
