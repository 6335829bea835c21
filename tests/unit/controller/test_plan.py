"""Plans in transactions: steps stay whole and in order, within the bounds of the store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.controller.plan import PlanStep, storable, transactions
from penstock.metadata.operations import Create, size_of
from penstock.metadata.store import NODE_BYTES_MAX
from penstock.model.generated_errors import PolicyViolation

OPERATIONS_MAX = 5
BYTES_MAX = 1_000
STEPS = st.lists(
    st.lists(st.integers(0, 50).map(lambda size: Create("/a", b"x" * size)), min_size=1, max_size=OPERATIONS_MAX).map(
        tuple
    ),
    max_size=30,
)


@given(STEPS)
def test_steps_stay_whole_and_in_order_within_the_bounds(steps: list[PlanStep]) -> None:
    made = list(transactions(steps, operations_max=OPERATIONS_MAX, bytes_max=BYTES_MAX))

    assert [operation for each in made for operation in each] == [operation for step in steps for operation in step]
    ends = set()
    count = 0
    for step in steps:
        count += len(step)
        ends.add(count)
    at = 0
    for each in made:
        assert len(each) <= OPERATIONS_MAX
        assert sum(map(size_of, each)) <= BYTES_MAX
        at += len(each)
        assert at in ends, "a step was cut in two"


def test_what_fits_is_one_transaction() -> None:
    steps = [(Create(f"/{n}", b""),) for n in range(5)]
    assert len(list(transactions(steps, operations_max=5, bytes_max=BYTES_MAX))) == 1
    assert len(list(transactions(steps, operations_max=4, bytes_max=BYTES_MAX))) == 2
    assert len(list(transactions(steps, operations_max=5, bytes_max=3 * size_of(steps[0][0])))) == 2
    assert list(transactions([], operations_max=5, bytes_max=BYTES_MAX)) == []


def test_a_node_that_no_store_holds_is_refused() -> None:
    assert storable(b"x" * NODE_BYTES_MAX)
    with pytest.raises(PolicyViolation, match="more than the 524288 of one node"):
        storable(b"x" * (NODE_BYTES_MAX + 1))
