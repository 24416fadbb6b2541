"""What people read: descriptions, warnings, notes, durations; and the rule that is given field by field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fire_times import parse_duration
from rota.domain.recurrence import (
    Cron,
    DayOfWeek,
    Frequency,
    Interval,
    MonthOfYear,
    Once,
    RecurrenceRule,
    RRule,
    Timing,
    describe,
    dst_note,
    local,
    next_after,
    on_clock,
    warnings,
)

NEW_YORK = "America/New_York"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
START = datetime(2026, 1, 5, 14, tzinfo=UTC)  # Monday, 09:00 in New York


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("timing", "sentence"),
    [
        (Once(at("2026-12-31T23:59")), "Once, at 2026-12-31 23:59 UTC"),
        (Interval(timedelta(minutes=5)), "Every 5 minutes"),
        (Interval(timedelta(hours=1)), "Every hour"),
        (Interval(timedelta(minutes=90)), "Every 1 hour 30 minutes"),
        (Interval(timedelta(days=7), START), "Every week, from 2026-01-05 14:00 UTC"),
        (Cron("0 9 * * 1-5"), "At 09:00, Monday through Friday"),
        (Cron("0 9 * * 1-5", NEW_YORK), "At 09:00, Monday through Friday"),
        (Cron("*/5 * * * *"), "Every 5 minutes"),
        (Cron("@daily"), "At 00:00"),
        (Cron("0 0 L * *"), "At 00:00, on the last day of the month"),
        (Cron("0 0 1,L * *"), "At 00:00, on day 1 and the last day of the month"),
        (Cron("0 9 * * SAT#1,SUN#2"), "At 09:00, on the 1st Saturday and the 2nd Sunday of the month"),
        (Cron("0 0 1 * 1"), "At 00:00, on day 1 of the month, or on Monday"),
        (Cron("0 0 */2 * 1"), "At 00:00, every 2 days, and only on Monday"),
        (RRule("FREQ=DAILY", START, NEW_YORK), "Every day at 09:00"),
        (RRule("FREQ=WEEKLY", START, NEW_YORK), "Every week on Monday at 09:00"),
        (
            RRule("FREQ=WEEKLY;INTERVAL=2;BYDAY=FR,MO;COUNT=10", START, NEW_YORK),
            "Every 2 weeks on Monday and Friday at 09:00, 10 times",
        ),
        (RRule("FREQ=MONTHLY;BYDAY=-1FR", START), "Every month on the last Friday at 14:00"),
        (
            RRule("FREQ=MONTHLY;BYMONTHDAY=-1,15", START),
            "Every month on the 15th and last day of the month at 14:00",
        ),
        (RRule("FREQ=YEARLY", START), "Every year on 5 January at 14:00"),
        (RRule("FREQ=MINUTELY;INTERVAL=7;BYHOUR=9,10", START), "Every 7 minutes in hour 9 and 10"),
        (
            RRule("FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1;UNTIL=20270101", START),
            "Every month on Monday and Tuesday at 14:00, only the last of these each month, until 2027-01-01",
        ),
        (
            RRule("FREQ=DAILY\nEXDATE:20260109T140000Z\nRDATE:20260110T000000Z", START),
            "Every day at 14:00, also at 2026-01-10 00:00 UTC, except 2026-01-09 14:00 UTC",
        ),
    ],
)
def test_describe(timing: Timing, sentence: str) -> None:
    assert describe(timing) == sentence


def test_describe_refuses_what_check_refuses() -> None:
    with pytest.raises(ValueError, match="minute field"):
        describe(Cron("61 * * * *"))


def test_warning_about_both_day_fields() -> None:
    (sentence,) = warnings(Cron("0 0 1 * 1"), NOW)
    assert sentence.startswith("Both day fields are given: it runs on days that match either")
    (sentence,) = warnings(Cron("0 0 */2 * 1"), NOW)
    assert sentence.startswith(
        "'*/2' in one day field narrows the other: it runs only on days that match both"
    )
    assert warnings(Cron("0 0 1 * *"), NOW) == ()
    assert warnings(Cron("0 0 ? * 1"), NOW) == ()


def test_warning_about_daylight_saving() -> None:
    assert warnings(Cron("30 2 * * *", NEW_YORK), NOW) == (
        "On 2026-03-08 the time 02:30 does not exist in America/New_York, where clocks go forward; "
        "it runs at 03:00 instead.",
    )
    assert warnings(Cron("30 1 * * *", NEW_YORK), NOW) == (
        "On 2026-11-01 the time 01:30 comes twice in America/New_York, where clocks go back; "
        "it runs once, the first time (05:30 UTC).",
    )
    assert warnings(Cron("0 */2 * * *", NEW_YORK), NOW) == (
        "On 2026-03-08 the time 02:00 does not exist in America/New_York, where clocks go forward; "
        "it does not run for it.",
    )
    assert len(warnings(RRule("FREQ=DAILY;BYHOUR=1,2", START, NEW_YORK), NOW)) == 2
    assert warnings(RRule("FREQ=DAILY;BYHOUR=2;UNTIL=20260201", START, NEW_YORK), NOW) == (), "it ends before"
    assert warnings(Cron("*/5 * * * *", NEW_YORK), NOW) == ()
    assert warnings(Cron("30 2 * * *"), NOW) == ()
    assert warnings(Cron("0 9 * * *", NEW_YORK), NOW) == ()


def test_warning_about_number() -> None:
    assert warnings(Cron("* * * * *"), NOW) == ("It runs 1,440 times a day.",)
    assert warnings(Interval(timedelta(seconds=1)), NOW) == ("It runs 86,400 times a day.",)
    assert warnings(Interval(timedelta(minutes=2)), NOW) == ()
    assert warnings(Once(START), NOW) == ()
    assert warnings(Once(START), datetime(2027, 1, 1, tzinfo=UTC)) == ()


def test_local_and_dst_note() -> None:
    moved = Cron("30 2 * * *", NEW_YORK)
    time = next_after(moved, at("2026-03-08"))
    assert time is not None
    assert local(moved, time).isoformat() == "2026-03-08T03:00:00-04:00"
    assert dst_note(moved, time) == "moved"
    assert dst_note(Cron("0 3 * * *", NEW_YORK), time) is None, "asked for 03:00 and got it"
    assert dst_note(moved, at("2026-03-09T06:30")) is None
    twice = Cron("30 1 * * *", NEW_YORK)
    assert dst_note(twice, at("2026-11-01T05:30")) == "first of two"
    assert dst_note(twice, at("2026-11-02T06:30")) is None
    assert dst_note(Cron("*/30 * * * *", NEW_YORK), at("2026-11-01T06:30")) == "second of two"
    assert dst_note(Once(START), START) is None
    assert local(Once(START), START).isoformat() == "2026-01-05T14:00:00+00:00"


def test_on_clock_is_the_way_back_from_local() -> None:
    assert on_clock(datetime(2026, 7, 1, 9), NEW_YORK) == at("2026-07-01T13:00")
    assert on_clock(datetime(2026, 3, 8, 2, 30), NEW_YORK) == at("2026-03-08T07:00"), "after the gap"
    assert on_clock(datetime(2026, 11, 1, 1, 30), NEW_YORK) == at("2026-11-01T05:30"), "the first of two"
    assert on_clock(datetime(2026, 7, 1, 9), "UTC") == at("2026-07-01T09:00")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT5M", 300),
        ("P1D", 86_400),
        ("P1DT12H", 129_600),
        ("P2W", 1_209_600),
        ("P1W1DT1H1M1S", 694_861),
        ("PT90M", 5_400),
        ("PT1.5S", 1.5),
        ("pt1h", 3_600),
    ],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "5M",
        "PT5",
        "PT0S",
        "-PT5M",
        "P-1D",
        "P1Y",
        "P1M",
        "PT1H1H",
        "PT1M1H",
        "five",
        "P999999999W",
    ],
)
def test_refused_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"interval: .*; accepted are"):
        parse_duration(text)


def next_of(rule: RecurrenceRule, now: datetime = NOW, zone: str = "UTC") -> datetime | None:
    timing, start, end = rule.timing(now, zone)
    return next_after(timing, now, start_at=start, end_at=end)


def test_recurrence_rule_frequencies() -> None:
    """Every frequency of the document; without a start it counts from now."""
    steps = {"secondly": 3, "minutely": 180, "hourly": 3 * 3600, "daily": 3 * 86_400, "weekly": 21 * 86_400}
    for frequency, seconds in steps.items():
        assert next_of(RecurrenceRule.of(frequency, interval=3)) == NOW + timedelta(seconds=seconds)
    assert next_of(RecurrenceRule(Frequency.MONTHLY, 3)) == at("2026-04-01")
    assert next_of(RecurrenceRule(Frequency.YEARLY)) == at("2027-01-01")
    assert next_of(RecurrenceRule.of("none", starts_at="2026-05-01 09:00:00")) == at("2026-05-01T09:00")


def test_recurrence_rule_fields() -> None:
    daily = RecurrenceRule.of("daily", starts_at="2025-01-01 09:00:00")
    assert next_of(daily) == at("2026-01-01T09:00")
    assert next_of(daily, zone=NEW_YORK) == at("2026-01-01T14:00"), "a naive start is local time"
    weekly = RecurrenceRule(Frequency.WEEKLY, days_of_week=(DayOfWeek.MONDAY, DayOfWeek.FRIDAY))
    assert next_of(weekly) == at("2026-01-02")
    assert RecurrenceRule.of("Weekly", days_of_week=["MO", "fri"]) == weekly
    monthly = RecurrenceRule.of(
        "monthly", days_of_month=[-1], months_of_year=[MonthOfYear.FEBRUARY, "june", 9]
    )
    assert monthly.months_of_year == (MonthOfYear.FEBRUARY, MonthOfYear.JUNE, MonthOfYear.SEPTEMBER)
    assert next_of(monthly) == at("2026-02-28")
    ended = RecurrenceRule.of("daily", starts_at="2025-01-01 09:00:00", ends_at="2025-12-31")
    assert next_of(ended) is None
    assert next_of(ended, at("2025-12-30T10:00")) == at("2025-12-31T09:00"), "a date alone is the whole day"
    aware = RecurrenceRule(Frequency.DAILY, starts_at=datetime(2026, 1, 1, 5, tzinfo=UTC))
    assert next_of(aware, zone=NEW_YORK) == at("2026-01-01T05:00")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"frequency": "dayly"}, "frequency has 'dayly'; accepted are none, secondly"),
        ({"frequency": "none"}, "starts_at is missing"),
        ({"frequency": "none", "starts_at": "2026-01-01", "days_of_month": [1]}, "days_of_month is given"),
        ({"frequency": "daily", "interval": 0}, "interval is 0; accepted are whole numbers from 1"),
        ({"frequency": "daily", "interval": True}, "interval is True"),
        ({"frequency": "daily", "interval": "2"}, "interval is 2"),
        ({"frequency": "daily", "starts_at": "soon"}, "starts_at has 'soon'"),
        ({"frequency": "daily", "ends_at": 5}, "ends_at has '5'"),
        (
            {"frequency": "daily", "starts_at": "2026-01-02", "ends_at": "2026-01-01"},
            "ends_at is before starts_at",
        ),
        ({"frequency": "weekly", "days_of_week": ["t"]}, "days_of_week has 't'; accepted are monday"),
        ({"frequency": "weekly", "days_of_week": ["someday"]}, "days_of_week has 'someday'"),
        ({"frequency": "monthly", "days_of_month": [0]}, "days_of_month has 0"),
        ({"frequency": "monthly", "days_of_month": [32]}, "days_of_month is 32"),
        ({"frequency": "yearly", "months_of_year": [13]}, "months_of_year has '13'; accepted are january"),
        ({"frequency": "yearly", "months_of_year": ["ju"]}, "months_of_year has 'ju'"),
        ({"frequency": "monthly", "days_of_month": [30], "months_of_year": [2]}, "no date that ever comes"),
    ],
)
def test_refused_recurrence_rules(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RecurrenceRule(**fields).timing(NOW)
