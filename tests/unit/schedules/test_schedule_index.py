"""The index of schedules against a dictionary and a sorted list."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.ids import Offset
from penstock.schedules import index as index_module
from penstock.schedules.index import Digest, OffsetTable, Pending, PendingIndex, digest_of

KEYS = st.integers(0, 30)
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "pop"]), KEYS, st.integers(0, 50)), min_size=20, max_size=120
)


@given(STEPS)
@settings(max_examples=30)
def test_the_index_has_the_last_record_of_each_key_in_order_of_due_times(steps: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Many runs, of which most entries are dead.
        patch.setattr(index_module, "RUN_ENTRIES", 8)
        found = PendingIndex()
        last: dict[int, int] = {}
        waiting: set[tuple[int, int]] = set()
        for offset, (step, key, due) in enumerate(steps):
            digest = digest_of(b"%d" % key)
            if step == "put":
                assert found.put(digest, offset) == last.get(key, -1)
                waiting -= {each for each in waiting if each[1] == last.get(key)}
                last[key] = offset
                found.add(Pending(due, Offset(offset), digest.first, key))
                waiting.add((due, offset))
            elif step == "remove":
                gone = last.pop(key, -1)
                assert found.remove(digest, offset) == gone
                waiting -= {each for each in waiting if each[1] == gone}
            elif waiting:
                while not found.is_last(entry := found.pop()):
                    pass
                assert (entry.due_ms, entry.offset) == min(waiting)
                waiting.remove(min(waiting))
        assert found.size == len(last)
        rest: list[tuple[int, int]] = []
        while found.next_due() is not None:
            entry = found.pop()
            if found.is_last(entry):
                rest.append((entry.due_ms, entry.offset))
        assert rest == sorted(waiting)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 3)), max_size=200))
def test_the_table_finds_what_others_pushed_away(steps: list[tuple[bool, int, int]]) -> None:
    table, known = OffsetTable(), dict[Digest, int]()
    for offset, (puts, slot, second) in enumerate(steps):
        # Many digests for few slots.
        digest = Digest(slot << 8, second)
        if puts:
            assert table.put(digest, offset) == known.get(digest, -1)
            known[digest] = offset
        else:
            assert table.remove(digest) == known.pop(digest, -1)
        assert all(table.get(each) == at for each, at in known.items())
        assert len(table) == len(known)


def test_a_run_of_dead_entries_is_dissolved() -> None:
    found = PendingIndex()
    digest = digest_of(b"moved again and again")
    for offset in range(6 * index_module.RUN_ENTRIES):
        found.put(digest, offset)
        found.add(Pending(2**40 + offset, Offset(offset), digest.first, 0))
    assert sum(map(len, found._runs.values())) <= 3 * index_module.RUN_ENTRIES
