"""Which dead letters have gone back: an offset, and ranges after it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.dead_letters import NOTE_BYTES_MAX, Redriven, ranges_of


@given(
    st.lists(st.integers(0, 30), unique=True, min_size=1).map(sorted),
    st.lists(st.tuples(st.sets(st.integers(0, 30)), st.integers(0, 31)), max_size=4),
)
def test_a_letter_is_dealt_with_once_over_all_runs(letters: list[int], runs: list[tuple[set[int], int]]) -> None:
    """Each run deals with the letters it picks up to where it is interrupted; the last one with all."""
    position, note, dealt = letters[0], "", list[int]()
    for picked, stop in [*runs, (set(letters), 31)]:
        known, run = Redriven(position, note), Redriven(position, note)
        for offset in letters:
            if position <= offset < stop:
                if run.has(offset):
                    run.done(offset)
                elif offset in picked:
                    dealt.append(offset)
                    run.done(offset)
                else:
                    run.leave(offset)
            assert not known.has(offset) or Redriven(run.position, run.note).has(offset), "nothing is forgotten"
        position, note = run.position, run.note

    assert sorted(dealt) == letters
    assert (position, note) == (letters[-1] + 1, "")


def test_a_note_that_grows_without_bound_is_noticed() -> None:
    run = Redriven(0)
    offset = 0
    while not run.is_full:
        run.leave(offset)
        run.done(offset + 1)
        offset += 2
    assert NOTE_BYTES_MAX <= len(run.note) < NOTE_BYTES_MAX + 50
    assert run.position == 0


def test_the_text_of_another_program_is_no_note() -> None:
    assert ranges_of("3-5,9-9") == [(3, 5), (9, 9)]
    assert [ranges_of(text) for text in ("", "member 7", "5-3", "-1-4", "1-2,x")] == [[]] * 5
