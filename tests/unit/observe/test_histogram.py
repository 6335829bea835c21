from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.histogram import BUCKETS, Histogram

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


@given(DURATIONS, st.floats(min_value=0.01, max_value=1.0))
def test_a_quantile_is_never_understated_below_the_last_bucket(durations: list[int], share: float) -> None:
    histogram = Histogram()
    short = sorted(min(elapsed_us, 1 << (BUCKETS - 3)) for elapsed_us in durations)
    for elapsed_us in short:
        histogram.add(elapsed_us)

    shown = histogram.quantile_seconds(share)

    if not short:
        assert shown == 0.0
    else:
        exact_us = next(
            value for rank, value in enumerate(short, start=1) if rank >= share * len(short) or rank == len(short)
        )
        assert exact_us <= shown * 1_000_000 <= max(1, exact_us * 2)


def test_a_merged_histogram_has_everything_and_shares_nothing() -> None:
    first, second = Histogram(), Histogram()
    first.add(10)
    second.add(1_000)

    whole = Histogram.merged((first, second))
    first.add(99)

    assert whole.count == 2
    assert whole.sum_us == 1_010
