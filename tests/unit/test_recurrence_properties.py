"""What holds for every timing, at every time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rota.domain.recurrence import (
    Cron,
    Interval,
    Once,
    RRule,
    Timing,
    between,
    check,
    count,
    describe,
    dst_note,
    latest,
    local,
    next_after,
    warnings,
)

settings.register_profile(
    "recurrence",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
PROFILE = settings.get_profile("recurrence")

ZONES = st.sampled_from(
    ["UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Europe/Dublin"]
)
INSTANTS = st.one_of(
    st.datetimes(datetime(2011, 12, 20), datetime(2012, 1, 10)),
    st.datetimes(datetime(2026, 3, 1), datetime(2026, 4, 10)),
    st.datetimes(datetime(2026, 10, 1), datetime(2026, 11, 10)),
    st.datetimes(datetime(1995, 1, 1), datetime(2060, 1, 1)),
).map(lambda naive: naive.replace(tzinfo=UTC))
LENGTHS = st.timedeltas(timedelta(0), timedelta(days=4))
CRONS = st.builds(
    lambda *fields: " ".join(fields),
    st.sampled_from(["0", "30", "*/20", "7,37", "15-45/10", "59"]),
    st.sampled_from(["*", "2", "1", "0,3", "*/2", "1-3", "9-17", "23"]),
    st.sampled_from(["*", "*", "?", "L", "1,15", "LW", "30W", "29", "*/2"]),
    st.sampled_from(["*", "*", "*", "3", "10-12", "2"]),
    st.sampled_from(["*", "*", "?", "1-5", "SUN", "6L", "SUN#1", "*/3"]),
)
RULES = st.builds(
    lambda *parts: ";".join(part for part in parts if part),
    st.sampled_from(
        ["FREQ=DAILY", "FREQ=WEEKLY", "FREQ=MONTHLY", "FREQ=HOURLY", "FREQ=MINUTELY", "FREQ=YEARLY"]
    ),
    st.sampled_from(["", "", "INTERVAL=2", "INTERVAL=7", "INTERVAL=45"]),
    st.sampled_from(["", "", "BYDAY=MO,SU", "BYMONTHDAY=1,8,-1", "BYMONTH=3,10,11,12"]),
    st.sampled_from(["", "", "BYHOUR=1,2,3", "BYMINUTE=0,30"]),
    st.sampled_from(["", "", "", "COUNT=50", "UNTIL=20261101T060000Z"]),
)
TIMINGS: st.SearchStrategy[Timing] = st.one_of(
    st.builds(Cron, CRONS, ZONES),
    st.builds(Cron, CRONS.map(lambda line: f"*/15 {line}"), ZONES),
    st.builds(RRule, RULES, INSTANTS.map(lambda at: at.replace(microsecond=0)), ZONES),
    st.builds(Interval, st.timedeltas(timedelta(minutes=1), timedelta(days=2)), st.none() | INSTANTS),
    st.builds(Once, INSTANTS),
)


def refusal_of(timing: Timing) -> str:
    """What `check` says against it; nothing if it is acceptable."""
    try:
        check(timing)
    except ValueError as refusal:
        return str(refusal)
    return ""


VALID = TIMINGS.filter(lambda timing: refusal_of(timing) == "")


@PROFILE
@given(VALID, INSTANTS)
def test_the_next_time_is_later_and_the_first(timing: Timing, after: datetime) -> None:
    found = next_after(timing, after)
    if found is None:
        return
    assert found > after
    assert found.tzinfo is UTC
    assert next_after(timing, found - timedelta(microseconds=1)) == found
    assert count(timing, after, found) == 1
    assert latest(timing, after, found) == found
    assert next_after(timing, after, start_at=found, end_at=found) == found
    assert next_after(timing, after, end_at=found - timedelta(microseconds=1)) is None


@PROFILE
@given(VALID, INSTANTS, LENGTHS, LENGTHS)
def test_ranges_join(timing: Timing, start: datetime, first: timedelta, second: timedelta) -> None:
    middle, end = start + first, start + first + second
    whole = list(between(timing, start, end))
    assert whole == [*between(timing, start, middle), *between(timing, middle, end)]
    assert count(timing, start, end) == count(timing, start, middle) + count(timing, middle, end)


@PROFILE
@given(VALID, INSTANTS, LENGTHS)
def test_latest_and_count_agree_with_between(timing: Timing, after: datetime, length: timedelta) -> None:
    times = list(between(timing, after, after + length))
    assert times == sorted(set(times))
    assert all(after < time <= after + length for time in times)
    assert count(timing, after, after + length) == len(times)
    assert latest(timing, after, after + length) == (times[-1] if times else None)


@PROFILE
@given(VALID, INSTANTS, LENGTHS, LENGTHS)
def test_bounds_only_cut(timing: Timing, after: datetime, first: timedelta, second: timedelta) -> None:
    start, end = after + first / 2, after + first / 2 + second
    until = after + timedelta(days=4)
    expected = [time for time in between(timing, after, until) if start <= time <= end]
    assert list(between(timing, after, until, start_at=start, end_at=end)) == expected
    assert count(timing, after, until, start_at=start, end_at=end) == len(expected)
    assert latest(timing, after, until, start_at=start, end_at=end) == (expected[-1] if expected else None)


@PROFILE
@given(VALID, INSTANTS)
def test_words_never_fail(timing: Timing, now: datetime) -> None:
    assert describe(timing)
    assert all(sentence.endswith(".") for sentence in warnings(timing, now))
    found = next_after(timing, now)
    assume(found is not None)
    assert found is not None
    assert local(timing, found) == found
    assert dst_note(timing, found) in (None, "moved", "first of two", "second of two")


@PROFILE
@given(TIMINGS)
def test_records_survive_json(timing: Timing) -> None:
    assert msgspec.json.decode(msgspec.json.encode(timing), type=Timing) == timing


@PROFILE
@given(st.text(max_size=60), ZONES)
def test_no_text_breaks_the_parsers(text: str, zone: str) -> None:
    for timing in (
        Cron(text, zone),
        Cron(f"{text} * * * *", zone),
        Cron("0 0 * * *", text),
        RRule(text, datetime(2026, 1, 1, tzinfo=UTC), zone),
        RRule(f"FREQ=DAILY;BYDAY={text}", datetime(2026, 1, 1, tzinfo=UTC), zone),
        RRule(f"FREQ=DAILY\nEXDATE{text}", datetime(2026, 1, 1, tzinfo=UTC), zone),
    ):
        assert len(refusal_of(timing)) < 300


@PROFILE
@given(st.lists(st.sampled_from("0123456789*/,-LW#?SUNMONJAN "), min_size=1, max_size=30).map("".join))
def test_no_cron_like_text_breaks_the_parser(text: str) -> None:
    refusal = refusal_of(Cron(text))
    if refusal:
        assert refusal.startswith("cron: ")
    else:
        assert next_after(Cron(text), datetime(2026, 1, 1, tzinfo=UTC)) is not None
