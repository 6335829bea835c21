import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.groups import Move, NothingCommitted, Shift, plan_moves
from penstock.client.positions import At, AtTime, BeforeEnd, Beginning, Bounds, End, Position

PLACE = ("orders", 0)
HELD = Bounds(start=100, end=200, by_time={5: 150, 9: -1})


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (Beginning(), 100),
        (End(), 200),
        (At(120), 120),
        (BeforeEnd(10), 190),
        (AtTime(5), 150),
        (AtTime(9), 200),
        (Shift(count=-20), 140),
        (Shift(count=15), 175),
    ],
)
def test_a_move_goes_to_the_requested_position(target: Position | Shift, after: int) -> None:
    [move] = plan_moves({PLACE: target}, {PLACE: 160}, {PLACE: HELD})

    assert move == Move(place=PLACE, before=160, after=after, end=200)
    assert (move.change, move.lag) == (after - 160, 200 - after)


@pytest.mark.parametrize("target", [At(7), At(999), Shift(count=-1_000), Shift(count=1_000)])
def test_an_offset_out_of_range_becomes_the_nearest_and_is_reported(target: Position | Shift) -> None:
    [move] = plan_moves({PLACE: target}, {PLACE: 160}, {PLACE: HELD})

    assert move.after in (100, 200)
    assert move.asked == (target.offset if isinstance(target, At) else 160 + getattr(target, "count", 0))


def test_a_partition_without_a_commit_can_be_given_one_but_not_be_shifted() -> None:
    [move] = plan_moves({PLACE: Beginning()}, {}, {PLACE: HELD})
    assert (move.before, move.change, move.after) == (None, None, 100)

    with pytest.raises(NothingCommitted, match="orders partition 0"):
        plan_moves({PLACE: Shift(count=1)}, {}, {PLACE: HELD})


@given(st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 2_000), st.integers(-3_000, 3_000))
def test_every_shift_stays_within_the_range(start: int, length: int, committed: int, by: int) -> None:
    held = Bounds(start=start, end=start + length, by_time={})

    [move] = plan_moves({PLACE: Shift(count=by)}, {PLACE: committed}, {PLACE: held})

    assert held.start <= move.after <= held.end
    assert move.asked is None or move.asked == committed + by
