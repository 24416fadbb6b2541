"""The next run of once, interval and cron timings: the tests that the reference documents name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.domain.recurrence import (
    Cron,
    Interval,
    Once,
    Timing,
    check,
    next_after,
    tzdata_version,
)
from rota.domain.recurrence.zones import close_zones

NEW_YORK = "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "expression",
    [
        "0 * * * *",
        "*/15 * * * *",
        "0 9 * * 1-5",
        "0 0 1 * *",
        "30 4 * * *",
        "  0\t 0  *  * * ",
        "0 0 0 1 1 *",
        "59 23 31 12 7",
        "00 09 * * *",
        "@daily",
        "@Hourly",
        "5,10-20/5,*/30 0-23 1-31 jan-DEC Sun-sat",
        "0 0 L * *",
        "0 0 LW,15W,L-30 * *",
        "0 0 lw * fril",
        "0 0 ? * ?",
        "0 0 * * MON#1,5#5,7L",
        "0 0 30 2 1",
        "0 0 31W * *",
        "5-5 * * * *",
        "57-57/70 * * * *",
        "*/60 */24 */31 */12 */8",
        "* * * * *,3",
    ],
)
def test_cron_parsing_valid_expressions(expression: str) -> None:
    check(Cron(expression))


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("", "the expression is empty"),
        ("   ", "the expression is empty"),
        ("* * * *", "has 4 fields"),
        ("*", "has 1 field;"),
        (
            "0 0 1 1 * 2026 2027 2028",
            "has 8 fields; accepted are 5 fields, 6 with seconds first, 7 with a year",
        ),
        ("* * * * *\n* * * * *", "has 9 fields"),
        ("60 * * * *", r"minute field '60' is out of range; accepted are 0-59"),
        ("61 * * * *", r"minute field '61' is out of range; accepted are 0-59"),
        ("* 24 * * *", "hour field '24' is out of range; accepted are 0-23"),
        ("* * 0 * *", "day-of-month field '0' is out of range"),
        ("* * 32 * *", "day-of-month field '32' is out of range"),
        ("* * * 13 *", "month field '13' is out of range; accepted are 1-12 and JAN-DEC"),
        ("* * * 0 *", "month field '0' is out of range"),
        ("* * * * 8", "day-of-week field '8' is out of range"),
        ("60 * * * * *", "second field '60' is out of range"),
        ("99999999999 * * * *", "minute field '99999999999' is out of range"),
        ("-1 * * * *", "minute field '-1' is not understood"),
        ("+1 * * * *", "minute field"),
        ("1.5 * * * *", "minute field '1.5' is not understood"),
        ("٣ * * * *", "minute field"),
        ("1- * * * *", "minute field '1-' is not understood"),
        ("*/ * * * *", "minute field"),
        ("/5 * * * *", "minute field"),
        ("*/0 * * * *", "minute field '[*]/0' has a step of 0"),
        ("1-5/0 * * * *", "step of 0"),
        (
            "*/100 * * * *",
            "minute field '[*]/100' has a step beyond the field; accepted are steps from 1 to 60",
        ),
        ("5//2 * * * *", "minute field"),
        ("1-5-9 * * * *", "minute field"),
        ("*-5 * * * *", "minute field"),
        ("** * * * *", "minute field"),
        ("*5 * * * *", "minute field"),
        (",1 * * * *", "minute field has an empty item"),
        ("1, * * * *", "minute field has an empty item"),
        ("1,,2 * * * *", "minute field has an empty item"),
        ("* 22-24 * * *", "hour field '22-24' is out of range; accepted are 0-23"),
        ("* * * * MONDAYS", "day-of-week field 'MONDAYS' is not understood"),
        ("* * * JA *", "month field 'JA' is not understood"),
        ("0 0 0 1 1 * 2030-2027", "year field '2030-2027' runs backwards"),
        ("0 0 0 1 1 * 1969", "year field '1969' is out of range; accepted are 1970-2099"),
        ("0 0 0 29 2 * 2027,2030", "'29' never occurs in month field '2' in year field '2027,2030'"),
        ("CRON_TZ= 0 9 * * *", "the zone in front is empty"),
        ("* * * MON *", "month field 'MON' is not understood"),
        ("* * * * JAN", "day-of-week field 'JAN' is not understood"),
        ("JAN * * * *", "minute field 'JAN' is not understood"),
        ("H * * * *", "minute field 'H' uses H"),
        ("H/15 * * * *", "uses H"),
        ("?/5 * * * *", "minute field '[?]/5' is not understood"),
        ("0 0 * * L", "day-of-week field 'L' does not say which day; write 'SAT' .* or 'SATL'"),
        (
            "0 0 L5 * *",
            "day-of-month field 'L5' is not understood; accepted with L and W are L, L-n, LW, L-nW and nW",
        ),
        ("0 0 L-31W * *", "day-of-month field 'L-31W' is out of range"),
        ("0 0 L-31 * *", "day-of-month field 'L-31' is out of range"),
        ("0 0 L-0 * *", "day-of-month field 'L-0' is out of range"),
        ("0 0 1-5W * *", "day-of-month field '1-5W' is not understood"),
        ("0 0 W * *", "day-of-month field"),
        ("0 0 32W * *", "day-of-month field '32W' is out of range"),
        ("0 0 L/2 * *", "day-of-month field 'L/2' is not understood"),
        ("0 0 * L *", "month field 'L'"),
        ("L * * * *", "minute field 'L'"),
        ("0 0 5#2 * *", "day-of-month field '5#2'"),
        ("0 0 * * 5#6", "day-of-week field '5#6' is out of range; accepted after '#' are 1 to 5"),
        ("0 0 * * 5#0", "day-of-week field '5#0' is out of range"),
        ("0 0 * * 5#", "day-of-week field '5#' is not understood"),
        ("0 0 * * #2", "day-of-week field '#2' is not understood"),
        ("0 0 * * 1-5#6", "day-of-week field '1-5#6' is not understood"),
        ("0 0 * * 1-9#1", "day-of-week field '1-9#1' is not understood"),
        ("0 0 * * 9L", "day-of-week field '9L' is out of range"),
        ("0 0 * * FOOL", "day-of-week field 'FOOL' is not understood"),
        ("@every 5m", "'@every' is not accepted; write it as an interval, '5m'"),
        ("@reboot", "'@reboot' is not accepted"),
        ("@fortnightly", "macro '@fortnightly' is not known; accepted are @yearly"),
        ("@daily 5", "macro '@daily 5' is not known"),
        ("0 0 30 2 *", "day-of-month field '30' never occurs in month field '2'"),
        ("0 0 31 4,6,9,11 ?", "day-of-month field '31' never occurs"),
        ("0 0 31W 2 *", "never occurs"),
        ("* * L-30 4 *", "never occurs"),
        (
            ",".join(["1"] * 1000) + " * * * *",
            "the expression has 2,007 characters; accepted are up to 1,000",
        ),
    ],
)
def test_cron_parsing_invalid_expressions(expression: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as refusal:
        check(Cron(expression))
    message = str(refusal.value)
    assert message.startswith("cron: ")
    assert "\n" not in message
    assert len(message) < 250


def test_next_run_calculation_once() -> None:
    once = Once(at("2026-12-31T23:59:00.5"))
    assert next_after(once, at("2026-01-01")) == at("2026-12-31T23:59:00.5")
    assert next_after(once, at("2026-12-31T23:59:00.5")) is None
    assert next_after(once, at("2027-01-01")) is None


def test_next_run_calculation_recurring() -> None:
    nine = Cron("0 9 * * 1-5")
    assert next_after(nine, at("2026-01-02T08:59:59")) == at("2026-01-02T09:00")
    assert next_after(nine, at("2026-01-02T09:00")) == at("2026-01-05T09:00"), "Friday to Monday"
    assert next_after(Cron("*/15 * * * *"), at("2026-01-02T08:59:59.999")) == at("2026-01-02T09:00")


def test_next_run_calculation_interval() -> None:
    every = Interval(timedelta(minutes=90), at("2026-01-01T00:10"))
    assert next_after(every, at("2025-06-01")) == at("2026-01-01T00:10"), "the anchor is the first"
    assert next_after(every, at("2026-01-01T00:10")) == at("2026-01-01T01:40")
    assert next_after(every, at("2026-03-08T12:00")) == at("2026-03-08T12:10")
    assert next_after(Interval(timedelta(days=1)), at("2026-03-08T12:00")) == at("2026-03-09")
    assert next_after(
        Interval(timedelta(seconds=2), at("2026-01-01T00:00:00.25")), at("2026-01-01T00:00:02")
    ) == at("2026-01-01T00:00:02.25")


def test_next_run_with_end_at() -> None:
    daily = Cron("0 9 * * *")
    end = at("2026-01-03T09:00")
    assert next_after(daily, at("2026-01-02T09:00"), end_at=end) == end, "the end is inclusive"
    assert next_after(daily, at("2026-01-02T09:00"), end_at=end - timedelta(seconds=1)) is None
    assert next_after(daily, end, end_at=end) is None
    assert next_after(Once(end), at("2026-01-01"), end_at=end) == end
    assert next_after(Interval(timedelta(hours=1)), end, end_at=end + timedelta(minutes=59)) is None


def test_next_run_with_start_at() -> None:
    daily = Cron("0 9 * * *")
    start = at("2026-06-01T09:00")
    assert next_after(daily, at("2026-01-01"), start_at=start) == start, "the start is inclusive"
    assert next_after(daily, at("2026-01-01"), start_at=start + timedelta(microseconds=1)) == at(
        "2026-06-02T09:00"
    )
    assert next_after(daily, at("2026-07-01"), start_at=start) == at("2026-07-01T09:00")


def test_next_run_with_timezone() -> None:
    assert next_after(Cron("0 9 * * *", NEW_YORK), at("2026-01-01")) == at("2026-01-01T14:00")
    assert next_after(Cron("0 9 * * *", NEW_YORK), at("2026-07-01")) == at("2026-07-01T13:00")
    assert next_after(Cron("0 9 * * *", "Asia/Kathmandu"), at("2026-07-01")) == at("2026-07-01T03:15")
    assert next_after(Cron("0 0 1 * *", "Pacific/Kiritimati"), at("2026-07-01")) == at("2026-07-31T10:00")


def test_next_run_dst_spring_forward() -> None:
    before = at("2026-03-08T05:00")
    assert next_after(Cron("0 2 * * *", NEW_YORK), before) == at("2026-03-08T07:00"), "03:00 EDT"
    assert next_after(Cron("30 2 * * *", NEW_YORK), before) == at("2026-03-08T07:00"), "03:00, not 03:30"
    assert next_after(Cron("30 2 * * *", NEW_YORK), at("2026-03-08T07:00")) == at("2026-03-09T06:30")
    several = Cron("0,15,30,45 2,3 * * *", NEW_YORK)
    assert next_after(several, at("2026-03-08T07:00")) == at("2026-03-08T07:15"), (
        "several in one gap fire once"
    )
    assert next_after(Cron("0 */2 * * *", NEW_YORK), before) == at("2026-03-08T08:00"), "02:00 is not made up"
    assert next_after(Cron("*/15 * * * *", NEW_YORK), at("2026-03-08T06:45")) == at("2026-03-08T07:00")


def test_next_run_dst_fall_back() -> None:
    early = Cron("30 1 * * *", NEW_YORK)
    assert next_after(early, at("2026-11-01T00:00")) == at("2026-11-01T05:30"), "the first of two"
    assert next_after(early, at("2026-11-01T05:30")) == at("2026-11-02T06:30"), "once"
    assert next_after(early, at("2026-11-01T06:15")) == at("2026-11-02T06:30"), "also from within the hour"
    assert next_after(early, at("2026-11-01T06:45")) == at("2026-11-02T06:30")
    assert next_after(Cron("0 2 * * *", NEW_YORK), at("2026-11-01T00:00")) == at("2026-11-01T07:00")
    repeated = Cron("*/30 * * * *", NEW_YORK)
    assert next_after(repeated, at("2026-11-01T05:30")) == at("2026-11-01T06:00"), "01:00 again, in real time"


def test_a_whole_day_may_be_skipped() -> None:
    """Samoa had no 30 December 2011."""
    apia = "Pacific/Apia"
    assert next_after(Cron("0 12 30 * *", apia), at("2011-12-30T00:00")) == at("2011-12-30T10:00")
    assert next_after(Cron("0 12 * * *", apia), at("2011-12-29T23:00")) == at("2011-12-30T10:00")
    assert next_after(Cron("0 12 * * *", apia), at("2011-12-30T10:00")) == at("2011-12-30T22:00")


def test_next_run_month_boundaries() -> None:
    assert next_after(Cron("0 0 31 * *"), at("2026-01-31")) == at("2026-03-31"), "short months are skipped"
    assert next_after(Cron("0 0 1 * *"), at("2026-12-01")) == at("2027-01-01")
    assert next_after(Cron("59 23 L * *"), at("2026-02-01")) == at("2026-02-28T23:59")
    assert next_after(Cron("0 0 30 * *"), at("2026-01-30")) == at("2026-03-30")
    assert next_after(Cron("0 0 31 12 *"), at("2026-12-31")) == at("2027-12-31")


def test_next_run_leap_years() -> None:
    assert next_after(Cron("0 0 29 2 *"), at("2026-01-01")) == at("2028-02-29")
    assert next_after(Cron("0 0 29 2 *"), at("2096-02-29")) == at("2104-02-29"), "2100 is no leap year"
    assert next_after(Cron("0 0 29 2 *"), at("1999-01-01")) == at("2000-02-29"), "2000 was one"
    assert next_after(Cron("0 0 L 2 *"), at("2028-01-01")) == at("2028-02-29")
    assert next_after(Cron("0 0 29 2 1"), at("2026-01-01")) == at("2026-02-02"), "or on Mondays in February"
    assert next_after(Cron("0 0 29 2 */7"), at("2026-01-01")) == at("2032-02-29"), "and only on a Sunday"


def test_years_far_away() -> None:
    daily = Cron("0 12 * * *", NEW_YORK)
    assert next_after(daily, at("1850-01-01")) == at("1850-01-01T16:56:02"), "local mean time"
    assert next_after(daily, at("2500-07-01")) == at("2500-07-01T16:00"), "the zone's rule holds for ever"
    assert next_after(daily, at("9999-12-31T17:00")) is None, "the horizon"
    assert next_after(Cron("* * * * *"), datetime.max.replace(tzinfo=UTC)) is None
    assert next_after(Cron("0 0 1 1 *"), datetime.min.replace(tzinfo=UTC)) == at("0002-01-01")


def test_timezone_validation() -> None:
    check(Cron("0 9 * * *", "Europe/London"))
    for name, hint in [
        ("Amerika/New_York", "did you mean America/New_York?"),
        ("europe/paris", "did you mean Europe/Paris?"),
        ("new york", "did you mean America/New_York?"),
        ("Mars/Phobos", "accepted are IANA names such as Europe/Paris"),
        ("../../etc/passwd", "accepted are IANA names"),
        ("", "accepted are IANA names"),
        ("America", "timezone: "),
        ("Etc/", "timezone: "),
        ("posixrules", "accepted are IANA names"),
        ("localtime", "accepted are IANA names"),
        ("posix/Europe/Paris", "did you mean Europe/Paris?"),
        ("right/Europe/Paris", "did you mean Europe/Paris?"),
        ("x" * 100_000, "accepted are IANA names"),
    ]:
        with pytest.raises(ValueError, match="timezone: ") as refusal:
            check(Cron("0 9 * * *", name))
        assert hint in str(refusal.value)
        assert len(str(refusal.value)) < 200
    assert close_zones("Europe/Pariss") == ("Europe/Paris",)
    assert tzdata_version()[:2] == "20"


def test_a_record_may_hold_nonsense_and_check_tells() -> None:
    naive = datetime(2026, 1, 1)
    nonsense: list[tuple[Timing, str]] = [
        (Once(naive), "once: run_at .* without a zone"),
        (Interval(timedelta(0)), "interval: every .* accepted are durations of one second or more"),
        (Interval(timedelta(seconds=-5)), "interval: every"),
        (Interval(timedelta(milliseconds=5)), "interval: every"),
        (Interval(timedelta(hours=1), naive), "interval: anchor .* without a zone"),
    ]
    for timing, sentence in nonsense:
        with pytest.raises(ValueError, match=sentence):
            check(timing)
