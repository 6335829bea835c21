import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.measure import Latencies, Outcome
from penstock.cli.options import OutputFormat
from penstock.cli.output import bytes_text, progress, show_rows


def test_a_table_is_aligned_with_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(OutputFormat.TABLE, ("topic", "records"), [("orders", 5), ("a", 1_000)])

    assert capsys.readouterr().out.splitlines() == ["topic   records", "orders        5", "a          1000"]


def test_the_same_rows_are_json_objects(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(OutputFormat.JSON, ("topic", "isr"), [("orders", [1, 2])])

    assert json.loads(capsys.readouterr().out) == [{"topic": "orders", "isr": [1, 2]}]


def test_no_rows_are_a_heading_or_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(OutputFormat.TABLE, ("topic",), [])
    show_rows(OutputFormat.JSON, ("topic",), [])

    assert capsys.readouterr().out.splitlines() == ["topic", "[]"]


@pytest.mark.parametrize(("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes_are_shown_in_their_unit(count: int, shown: str) -> None:
    assert bytes_text(count) == shown


def test_progress_is_silent_away_from_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 10) as bar:
        bar.advance(5, "half")

    assert capsys.readouterr() == ("", "")


@given(st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=300))
def test_percentiles_are_values_that_were_seen_in_order(seconds: list[float]) -> None:
    latencies = Latencies()
    for each in seconds:
        latencies.add(each)

    shown = latencies.millis()

    assert list(shown.values()) == sorted(shown.values())
    assert set(shown.values()) <= {round(each * 1000, 3) for each in seconds}
    assert shown["max"] == round(max(seconds) * 1000, 3)


def test_a_long_run_keeps_a_bounded_sample_spread_over_all_of_it() -> None:
    latencies = Latencies(samples_max=100)
    for number in range(10_000):
        latencies.add(number)

    assert len(latencies) == 10_000
    assert latencies.millis()["p50"] == pytest.approx(5_000_000, rel=0.1)
    assert latencies.millis()["max"] == 9_999_000


def test_an_outcome_gives_rates() -> None:
    outcome = Outcome(work="produce", topic="t", records=500, bytes=5_000_000, seconds=2.0, latency_ms={"p50": 1.5})

    assert outcome.facts()["records_per_second"] == 250
    assert outcome.facts()["megabytes_per_second"] == 2.5
    assert "250 records/s, 2.5 MB/s" in outcome.sentence()
    assert "p50 1.5" in outcome.sentence()
