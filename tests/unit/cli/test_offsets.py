import contextlib
from datetime import datetime

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.offsets import OffsetsParser
from penstock.client.positions import At, AtTime, BeforeEnd, Beginning, End, Position, PositionRange

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
PARSER = OffsetsParser(NOW_MS)


def local_ms(*when: int) -> int:
    return int(datetime(*when).timestamp() * 1000)  # type: ignore[arg-type, misc]  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [
        ("beginning", Beginning(), None),
        ("end", End(), None),
        ("42", At(42), None),
        ("-10", BeforeEnd(10), None),
        ("@-1h", AtTime(NOW_MS - HOUR_MS), None),
        ("@-1.5h", AtTime(NOW_MS - HOUR_MS * 3 // 2), None),
        ("@-250ms", AtTime(NOW_MS - 250), None),
        ("@1700000000000", AtTime(1_700_000_000_000), None),
        ("@1970-01-01T00:00:01Z", AtTime(1_000), None),
        ("@2026-11-01T08:30", AtTime(local_ms(2026, 11, 1, 8, 30)), None),
        ("10:20", At(10), At(20)),
        (":20", Beginning(), At(20)),
        ("10:", At(10), None),
        (":", Beginning(), None),
        ("-20:-10", BeforeEnd(20), BeforeEnd(10)),
        ("@-2h:@-1h", AtTime(NOW_MS - 2 * HOUR_MS), AtTime(NOW_MS - HOUR_MS)),
        ("@-1h:end", AtTime(NOW_MS - HOUR_MS), End()),
        ("@2026-11-01T08:30:end", AtTime(local_ms(2026, 11, 1, 8, 30)), End()),
        (
            "@2026-11-01T08:30:@2026-11-01T09:00:05",
            AtTime(local_ms(2026, 11, 1, 8, 30)),
            AtTime(local_ms(2026, 11, 1, 9, 0, 5)),
        ),
    ],
)
def test_positions_and_ranges_are_read(text: str, start: Position, stop: Position | None) -> None:
    assert PARSER.parse(text) == PositionRange(start=start, stop=stop)


@pytest.mark.parametrize("text", ["", "soon", "1.5", "@", "@-1y", "@2026-13-01", "1:2:3", "--5", "@9999999-01-01"])
def test_an_invalid_position_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="a position is beginning, end"):
        PARSER.parse(text)


def test_a_time_before_the_epoch_is_the_epoch() -> None:
    assert PARSER.parse("@-99999w").start == AtTime(0)
    assert PARSER.parse("@1950-01-01T00:00:00Z").start == AtTime(0)


@given(st.integers(min_value=0, max_value=2**63 - 1), st.integers(min_value=0, max_value=2**63 - 1))
def test_every_pair_of_offsets_is_a_range(first: int, second: int) -> None:
    assert PARSER.parse(f"{first}:{second}") == PositionRange(start=At(first), stop=At(second))


@given(st.text(max_size=30))
def test_no_text_crashes_the_parser(text: str) -> None:
    with contextlib.suppress(typer.BadParameter):
        assert isinstance(PARSER.parse(text), PositionRange)


@pytest.mark.parametrize("text", ["@-" + "9" * 400 + "w", "@" + "9" * 5_000, "@0001-01-01", "٣", "@-٣h", ""])
def test_times_and_offsets_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a position"):
        OffsetsParser(1).parse(text)
