"""The headers of schedules: what they mean, what is refused, and cron where clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.broker import BrokerConfig
from penstock.config.log import TopicConfig
from penstock.model.generated_errors import InvalidRecord
from penstock.model.ids import TopicPartition
from penstock.partition.validation import ValidationRules, validate
from penstock.schedules import cron
from penstock.schedules.firing import CATCH_UP_TIMES_MAX, MISSED_MS, CatchUp, counts_from, due_times
from penstock.schedules.headers import TIME_MAX, BadSchedule, Misfire, Recurrence, Schedule, last_gap, read
from penstock.schedules.service import why_refused
from penstock.schedules.zones import zone
from penstock.wire.records import Record, build_batch

SCHEDULES = {"cleanup.policy": "compact", "schedule.target": "orders"}
BERLIN, UTC_ZONE = "Europe/Berlin", "UTC"


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ([("penstock-deliver-at", b"1234")], 1234),
        ([("penstock-deliver-at", b"2030-01-01T00:00Z")], ms("2030-01-01T00:00+00:00")),
        (
            [("penstock-deliver-at", b"2030-07-01T00:00"), ("penstock-tz", b"Europe/Berlin")],
            ms("2030-07-01T00:00+02:00"),
        ),
        # A time that does not exist, and one that occurs twice.
        (
            [("penstock-deliver-at", b"2026-03-29T02:30"), ("penstock-tz", b"Europe/Berlin")],
            ms("2026-03-29T03:30+02:00"),
        ),
        (
            [("penstock-deliver-at", b"2026-10-25T02:30"), ("penstock-tz", b"Europe/Berlin")],
            ms("2026-10-25T02:30+02:00"),
        ),
        ([("penstock-delay-ms", b"500"), ("mine", b"x")], 1_500),
        ([("penstock-cron", b"* * * * *")], 60_000),
        ([("penstock-cron", b"* * * * *"), ("penstock-after-ms", b"60000")], 120_000),
        ([("penstock-cron", b"* * * * *"), ("penstock-paused", b"true")], None),
    ],
)
def test_a_schedule_is_due_as_its_headers_say(headers: list[tuple[str, bytes]], due: int | None) -> None:
    assert read(b"id", headers, 1_000).due_ms == due


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([], "none"),
        ([("penstock-deliver-at", b"1"), ("penstock-cron", b"* * * * *")], "one of"),
        ([("penstock-deliver-at", b"1"), ("penstock-deliver-at", b"1")], "twice"),
        ([("penstock-deliver-at", b"2030-01-01T00:00")], "offset"),
        ([("penstock-deliver-at", b"999999999999999")], "9999"),
        ([("penstock-deliver-at", None)], "no value"),
        ([("penstock-deliver-at", b"\xff")], "UTF-8"),
        ([("penstock-delay-ms", b"-5")], "milliseconds"),
        ([("penstock-cron", b"* * * * * *")], "five fields"),
        ([("penstock-cron", b"0 0 30 2 *")], "day-of-month"),
        ([("penstock-cron", b"* * */20 * 1L")], "50 years"),
        ([("penstock-cron", b"* * * * *"), ("penstock-tz", b"../UTC")], "time zone"),
        ([("penstock-cron", b"* * * * *"), ("penstock-after-ms", b"999999999999999")], "9999"),
        (
            [
                ("penstock-cron", b"* * * * *"),
                ("penstock-tz", b"Pacific/Kiritimati"),
                ("penstock-after-ms", b"%d" % TIME_MAX),
            ],
            "50 years",
        ),
        ([("penstock-delay-ms", b"5"), ("penstock-misfire", b"never")], "once, skip, all"),
        ([("penstock-delay-ms", b"5"), ("penstock-paused", b"yes")], "true nor false"),
    ],
)
def test_bad_headers_are_refused_with_a_reason(headers: list[tuple[str, bytes]], why: str) -> None:
    with pytest.raises(BadSchedule, match=why):
        read(b"id", headers, 1_000)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["penstock-deliver-at", "penstock-delay-ms", "penstock-cron", "penstock-tz", "penstock-key"]
            ),
            st.none() | st.binary(max_size=12) | st.sampled_from([b"5", b"0 0 1 1 *", b"UTC", b"2030-01-01T00:00Z"]),
        ),
        max_size=3,
    ),
    st.integers(-1, TIME_MAX),
)
def test_headers_are_a_schedule_or_refused(headers: list[tuple[str, bytes | None]], timestamp: int) -> None:
    try:
        found = read(b"id", headers, timestamp)
    except BadSchedule:
        return
    assert isinstance(found, Schedule)
    assert found.due_ms is not None
    assert 0 <= found.due_ms <= TIME_MAX


def test_every_bad_record_of_a_batch_is_named_in_the_refusal() -> None:
    rules = ValidationRules(TopicConfig.resolve(SCHEDULES, BrokerConfig()), why_refused)
    good = [("penstock-deliver-at", b"5")]
    records = [
        Record(0, 1, b"a", b"v", good),
        Record(1, 1, b"b", b"v"),
        Record(2, 1, b"c", None),
        Record(3, 1, b"d", b"v"),
    ]
    place = TopicPartition("later", 0)

    with pytest.raises(InvalidRecord) as refused:
        validate(memoryview(build_batch(records)), rules, 1, place, internal=False)

    assert [index for index, _ in refused.value.record_errors or ()] == [1, 3]


@pytest.mark.parametrize(
    ("expression", "after", "times"),
    [
        # The gap: 02:30 does not exist on that day, and the hour after it begins at 03:00.
        ("30 2 * * *", "2026-03-28T12:00+01:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
        # 02:30 occurs twice: the first of the two.
        ("30 2 * * *", "2026-10-24T12:00+02:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        # From within the second of the two hours it is the next day.
        ("45 2 * * *", "2026-10-25T02:40+01:00", ["2026-10-26T02:45+01:00"]),
        # With a star, times are counted as they pass.
        ("*/30 * * * *", "2026-03-29T01:30+01:00", ["2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00"]),
        ("0 * * * *", "2026-10-25T02:00+02:00", ["2026-10-25T02:00+01:00", "2026-10-25T03:00+01:00"]),
        ("0 9 * * MON", "2026-10-24T12:00+02:00", ["2026-10-26T09:00+01:00"]),
    ],
)
def test_cron_follows_debian_where_clocks_change(expression: str, after: str, times: list[str]) -> None:
    found = zone(BERLIN)
    assert found is not None
    at = ms(after)
    for expected in times:
        following = cron.next_after(expression, found, at)
        assert following is not None
        at = following
        assert datetime.fromtimestamp(at / 1000, UTC) == datetime.fromisoformat(expected)


@given(
    st.sampled_from(["30 2 * * *", "45 1-3 * * *", "*/20 2 * * *", "0 0 * * SUN", "59 23 31 12 *"]),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", UTC_ZONE]),
    st.integers(ms("2026-01-01T00:00+00:00"), ms("2027-12-31T00:00+00:00")),
)
def test_the_next_time_is_later_and_nothing_lies_between(expression: str, name: str, at: int) -> None:
    found = zone(name)
    assert found is not None
    following = cron.next_after(expression, found, at)
    assert following is not None
    assert following > at
    assert cron.next_after(expression, found, (at + following) // 2) == following


@pytest.mark.parametrize("expression", ["30 2 * * *", "*/20 * * * *", "15 1-3 * * SUN", "0 0 29 2 *"])
@pytest.mark.parametrize(
    ("name", "day"),
    [
        (BERLIN, "2026-03-28T22:00+00:00"),
        (BERLIN, "2026-10-24T22:00+00:00"),
        ("Australia/Lord_Howe", "2026-04-04T12:00+00:00"),
    ],
)
def test_the_gap_that_is_remembered_gives_the_same_times(expression: str, name: str, day: str) -> None:
    found = zone(name)
    assert found is not None
    recurrence = Recurrence(expression, name)
    begun = ms(day)
    forward = range(begun, begun + 10 * 3_600_000, 11 * 60_000)
    for at in (*forward, *reversed(forward)):
        assert recurrence.next_after(at) == cron.next_after(expression, found, at)


def test_schedules_of_one_expression_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands may go on at the same moment, on the event loop of their leader."""
    computed = 0
    next_after = cron.next_after

    def counted(*args: Any) -> int | None:
        nonlocal computed
        computed += 1
        return next_after(*args)

    monkeypatch.setattr(cron, "next_after", counted)
    last_gap.cache_clear()

    dues = {read(b"%d" % each, [("penstock-cron", b"0 9 * * *")], 1_000 + each).due_ms for each in range(100)}

    assert dues == {9 * 3_600_000}
    assert computed == 1


@given(
    st.tuples(
        st.sampled_from(["0", "30", "*/20"]),
        st.sampled_from(["0", "2", "*", "23"]),
        st.sampled_from(["*", "1", "29", "31", "L", "LW", "*/31", "15,28"]),
        st.sampled_from(["*", "2", "1", "4,6", "*/3"]),
        st.sampled_from(["*", "MON", "1#5", "5L", "*/2"]),
    ).map(" ".join),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", UTC_ZONE]),
    st.integers(ms("2011-12-01T00:00+00:00"), ms("2040-03-01T00:00+00:00")),
)
def test_the_next_time_is_that_of_cronsim(expression: str, name: str, at: int) -> None:
    found = zone(name)
    assert found is not None
    try:
        cron.check(expression)
    except cron.BadCron:
        return

    assert cron.next_after(expression, found, at) == cron.first_of(
        expression, datetime.fromtimestamp(at / 1000, UTC).astimezone(found), at
    )


def test_days_that_are_decades_away_are_found_with_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record of a topic of schedules may need it, on the event loop of its leader."""
    looked_at = 0
    match = CronSim.match_day

    def counted(self: CronSim, day: date) -> bool:
        nonlocal looked_at
        looked_at += 1
        return match(self, day)

    monkeypatch.setattr(CronSim, "match_day", counted)

    for expression in ("* * */2 2 3#5", "0 0 */100 * 1#5"):
        cron.days_of.cache_clear()
        looked_at = 0
        cron.next_after(expression, UTC, ms("2012-02-29T23:59:30+00:00"))
        assert looked_at < 1_500, expression


def test_a_time_that_never_exists_is_given_up_after_fifty_years(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks in Berlin go forward from two o'clock on each 31st of March that is a Sunday."""
    looked_at = 0
    first_of = cron.first_of

    def counted(*args: Any) -> int | None:
        nonlocal looked_at
        looked_at += 1
        return first_of(*args)

    monkeypatch.setattr(cron, "first_of", counted)
    with pytest.raises(BadSchedule, match="50 years"):
        read(
            b"id", [("penstock-cron", b"* 2 31 3 */7"), ("penstock-tz", b"Europe/Berlin")], ms("2026-01-01T00:00+00:00")
        )
    assert looked_at < 20


def test_missed_times_are_made_up_for_as_the_policy_says() -> None:
    minutely = Recurrence("* * * * *", UTC_ZONE)
    now = 10 * 60_000 + 5
    assert due_times(60_000, minutely, Misfire.ONCE, now) == ([60_000], 0)
    assert due_times(60_000, minutely, Misfire.ALL, now) == ([each * 60_000 for each in range(1, 11)], 0)
    assert due_times(60_000, minutely, Misfire.SKIP, now) == ([], 1)
    assert due_times(now - MISSED_MS, minutely, Misfire.SKIP, now) == ([now - MISSED_MS], 0)
    times, _ = due_times(60_000, minutely, Misfire.ALL, 10_000 * 60_000)
    assert len(times) == CATCH_UP_TIMES_MAX
    assert counts_from(Misfire.ALL, 10_000 * 60_000, times[-1], len(times)) == 10_000 * 60_000
    assert counts_from(Misfire.ALL, now, 600_000, 10) == 600_000
    assert counts_from(Misfire.ONCE, now, 60_000, 1) == now


def test_late_deliveries_have_a_rate() -> None:
    catch_up = CatchUp()
    assert catch_up.allowed(100, 0) == 100
    catch_up.used(100)
    assert catch_up.allowed(100, 0) == 0
    assert catch_up.allowed(100, 500) == 50
    assert catch_up.allowed(100, 60_000) == 100
