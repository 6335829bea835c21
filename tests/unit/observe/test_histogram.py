from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.histogram import Histogram

DURATIONS = st.lists(st.integers(min_value=0, max_value=10**9), max_size=50)


@given(DURATIONS)
def test_every_duration_is_counted_once_and_below_its_upper_bound(durations: list[int]) -> None:
    histogram = Histogram()
    for elapsed_us in durations:
        histogram.add(elapsed_us)

    assert histogram.count == len(durations)
    assert histogram.sum_us == sum(durations)
    for bound, at_most in histogram.cumulative():
        limit_us = float(bound) * 1_000_000
        assert at_most == sum(1 for elapsed_us in durations if elapsed_us < limit_us), bound


def test_a_merged_histogram_is_an_independent_sum() -> None:
    first, second = Histogram(), Histogram()
    first.add(10)
    second.add(1_000)

    whole = Histogram.merged((first, second))
    first.add(99)

    assert whole.count == 2
    assert whole.sum_us == 1_010
