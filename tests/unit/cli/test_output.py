import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.measure import Latencies, Outcome
from penstock.cli.options import OutputFormat
from penstock.cli.output import Number, bytes_text, complain, counted, note, progress, say, show_rows


@pytest.mark.parametrize(
    ("records", "shown"),
    [
        ([5, 1_000], ["topic   records", "orders        5", "a          1000"]),
        ([5, None], ["topic   records", "orders        5", "a             -"]),
        ([None, None], ["topic   records", "orders        -", "a             -"]),
        (["+5", "-3"], ["topic   records", "orders       +5", "a            -3"]),
    ],
    ids=str,
)
def test_a_column_of_numbers_is_always_right_aligned(
    capsys: pytest.CaptureFixture[str], records: list[object], shown: list[str]
) -> None:
    rows = list(zip(("orders", "a"), records, strict=True))

    show_rows(OutputFormat.TABLE, ("topic", Number("records")), rows, empty="none")

    assert capsys.readouterr().out.splitlines() == shown


def test_names_cannot_break_the_table_or_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(OutputFormat.TABLE, ("group", "state"), [("evil\n\x1b[2J", "empty")], empty="none")
    say("group \x1b]0;owned\x07")
    note("group \x9b31m")
    complain(["group \r\nhint: run this"], "\x1b[31mthat")

    out, err = capsys.readouterr()
    assert out.splitlines() == ["group          state", "evil\\n\\x1b[2J  empty", "group \\x1b]0;owned\\x07"]
    assert err.splitlines() == ["group \\x9b31m", "error: group \\r\\nhint: run this", "hint: \\x1b[31mthat"]


def test_the_same_rows_are_json_objects(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(OutputFormat.JSON, ("topic", "isr"), [("orders", [1, 2])], empty="none")

    assert json.loads(capsys.readouterr().out) == [{"topic": "orders", "isr": [1, 2]}]


def test_no_rows_are_a_sentence_or_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(OutputFormat.TABLE, ("topic",), [], empty="there are no topics")
    show_rows(OutputFormat.JSON, ("topic",), [], empty="there are no topics")

    assert capsys.readouterr() == ("[]\n", "there are no topics\n")


@pytest.mark.parametrize(
    ("count", "noun", "shown"), [(1, "batch", "1 batch"), (0, "batch", "0 batches"), (2_000, "member", "2,000 members")]
)
def test_counts_agree_with_their_nouns(count: int, noun: str, shown: str) -> None:
    assert counted(count, noun) == shown


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
