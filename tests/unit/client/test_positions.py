import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.connection import Connection, parse_address, parse_addresses
from penstock.client.failures import ClientError
from penstock.client.positions import (
    At,
    AtTime,
    BeforeEnd,
    Beginning,
    Bounds,
    End,
    Position,
    PositionRange,
    Span,
    resolve,
    total,
)

HELD = Bounds(start=100, end=200, by_time={5: 150, 9: -1, 1: 100})


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (Beginning(), 100),
        (End(), 200),
        (At(150), 150),
        (At(3), 100),
        (At(999), 200),
        (BeforeEnd(10), 190),
        (BeforeEnd(1_000), 100),
        (AtTime(5), 150),
        (AtTime(9), 200),
        (AtTime(1), 100),
    ],
)
def test_a_position_resolves_to_an_offset_within_the_range(place: Position, offset: int) -> None:
    assert HELD.offset_of(place) == offset


def test_without_a_stop_reading_ends_at_the_present_end_or_never() -> None:
    wanted = PositionRange(start=Beginning())

    assert resolve(wanted, {0: HELD}, follow=False) == (Span(partition=0, start=100, stop=200),)
    assert resolve(wanted, {0: HELD}, follow=True) == (Span(partition=0, start=100, stop=None),)


def test_a_range_is_resolved_in_each_partition_and_may_be_empty() -> None:
    other = Bounds(start=0, end=5, by_time={})

    spans = resolve(PositionRange(start=At(120), stop=At(130)), {1: other, 0: HELD}, follow=False)

    assert spans == (Span(partition=0, start=120, stop=130), Span(partition=1, start=5, stop=5))
    assert [span.empty for span in spans] == [False, True]
    assert total(spans) == 10


def test_an_open_span_has_no_total() -> None:
    assert total([Span(partition=0, start=1, stop=None)]) is None


def test_the_times_to_look_up_are_those_that_are_named() -> None:
    assert PositionRange(start=AtTime(5), stop=AtTime(9)).times() == {5, 9}
    assert PositionRange(start=At(5)).times() == frozenset()


@given(
    st.integers(min_value=0, max_value=1000),
    st.integers(min_value=0, max_value=1000),
    st.one_of(
        st.builds(At, st.integers(min_value=0, max_value=2000)),
        st.builds(BeforeEnd, st.integers(min_value=0, max_value=2000)),
    ),
)
def test_every_position_is_within_the_range(start: int, length: int, place: Position) -> None:
    held = Bounds(start=start, end=start + length, by_time={})

    assert held.start <= held.offset_of(place) <= held.end


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9093", ("localhost", 9093)),
        ("host", ("host", 9092)),
        ("[::1]:9000", ("::1", 9000)),
        ("[::1]", ("::1", 9092)),
        ("PLAINTEXT://h:1", ("h", 1)),
    ],
)
def test_an_address_is_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":", "h:0", "h:65536", "h:x", ":9092"])
def test_an_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(ClientError):
        parse_addresses(text)


def test_the_users_own_properties_win() -> None:
    connection = Connection(bootstrap="b:1", properties={"client.id": "me", "acks": "0"})

    settings = connection.settings(acks="all", linger_ms=5)

    assert (settings["client.id"], settings["acks"], settings["linger.ms"]) == ("me", "0", 5)
    assert settings["bootstrap.servers"] == "b:1"
