"""Cron as people write it elsewhere: each spelling against the plain one, words and refusals included."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain.recurrence import Cron, DayMatch, between, check, describe, next_after, warnings, with_zone

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AHEAD = timedelta(days=500)
PROFILE = settings(derandomize=True, deadline=None, max_examples=200)


def times(cron: Cron) -> list[datetime]:
    return list(between(cron, NOW, NOW + AHEAD))


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("0 9 * * MON-SUN", "0 9 * * 1-7"),
        ("0 9 * * FRI-SUN", "0 9 * * 5,6,0"),
        ("0 9 * * SAT-SUN", "0 9 * * 6,0"),
        ("0 9 * * SUN-SUN", "0 9 * * 0"),
        ("0 9 * * MON-SUN/2", "0 9 * * 1,3,5,7"),
        ("0 9 * * FRI-MON", "0 9 * * 5,6,0,1"),
        ("0 9 * * FRI-TUE/2", "0 9 * * 5,0,2"),
        ("0 9 * * 7-MON", "0 9 * * 0,1"),
        ("0 9 * * 7-3", "0 9 * * 0-3"),
        ("? 9 ? ? ?", "* 9 * * *"),
        ("0 0 9 ? * MON", "0 9 * * 1"),
        ("0 9 * * FRI#L", "0 9 * * 5L"),
        ("0 9 * * 5#L", "0 9 * * 5L"),
        ("0 9 * * L5", "0 9 * * 5L"),
        ("0 9 * * LFRI", "0 9 * * 5L"),
        ("0 9 * * FridayL", "0 9 * * 5L"),
        ("0 9 * * L0,MON#1", "0 9 * * 0L,1#1"),
        ("0 9 * * MON-FRI#1", "0 9 * * 1#1,2#1,3#1,4#1,5#1"),
        ("0 9 * * SAT-MON#2", "0 9 * * 6#2,0#2,1#2"),
        ("0 9 * * FRI-SUN#L", "0 9 * * 5L,6L,0L"),
        ("0 9 * SEPT TUES", "0 9 * 9 2"),
        ("0 9 * September-Nov Monday,wednesday", "0 9 * 9-11 1,3"),
        ("0 9 * June,JULY Thurs#2", "0 9 * 6,7 4#2"),
        ("0 9 * * * # every morning", "0 9 * * *"),
        ("0 9 * * MON#1 #first", "0 9 * * 1#1"),
        ("@daily # at midnight", "0 0 * * *"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("0 22-4/3 * * *", "0 22,1,4 * * *"),
        ("50-10/10 * * * *", "50,0,10 * * * *"),
        ("45-14 3 * * *", "45-59,0-14 3 * * *"),
        ("0 9 1 NOV-MAR *", "0 9 1 11,12,1,2,3 *"),
        ("0 0 28-3 * *", "0 0 28-31,1-3 * *"),
        ("0 0 9 * * * *", "0 9 * * *"),
        ("0 0 9 * * ? 2020-2099", "0 9 * * *"),
    ],
)
def test_the_same_as(written: str, plain: str) -> None:
    assert times(Cron(written)) == times(Cron(plain))
    assert times(Cron(written))
    assert describe(Cron(written))


@pytest.mark.parametrize(
    ("cron", "sentence"),
    [
        (Cron("0 9 * * MON-SUN"), "At 09:00, Monday through Sunday"),
        (Cron("0 9 * * FRI-MON"), "At 09:00, only on Friday, Saturday, Sunday, and Monday"),
        (Cron("0 9 * * L5"), "At 09:00, on the last Friday of the month"),
        (Cron("0 9 * * MON-TUE#1"), "At 09:00, on the 1st Monday and the 1st Tuesday of the month"),
        (Cron("0 9 L-3W * *"), "At 09:00, on the weekday nearest the 4th to last day of the month"),
        (Cron("0 9 * SEPT TUES"), "At 09:00, only on Tuesday, only in September"),
        (Cron("0 22-0 * * *"), "At 22:00, 23:00 and 00:00"),
        (Cron("0 9 * NOV-JAN *"), "At 09:00, only in November, December, and January"),
        (Cron("0 0 9 1 1 * 2027"), "At 09:00, on day 1 of the month, only in January, only in 2027"),
        (Cron("0 0 9 * * * 2027-2029,2031"), "At 09:00, only in 2027 to 2029 and 2031"),
        (
            Cron("0 9 1 * MON", day_match=DayMatch.AND),
            "At 09:00, on day 1 of the month, and only on Monday",
        ),
        (
            Cron("0 9 1-7 * MON-FRI"),
            "At 09:00, on days 1-7 of the month, or on Monday through Friday",
        ),
        (
            Cron("0 9 L * FRI#L", day_match=DayMatch.AND),
            "At 09:00, on the last day of the month, and only on the last Friday of the month",
        ),
        (Cron("0 9 * * * # CRON_TZ"), "At 09:00"),
    ],
)
def test_words(cron: Cron, sentence: str) -> None:
    assert describe(cron) == sentence


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        (Cron("0 0 L-3W * *"), ["2026-01-28", "2026-02-25", "2026-03-27", "2026-04-27", "2026-05-28"]),
        (
            Cron("0 0 13 * FRI", day_match=DayMatch.AND),
            ["2026-02-13", "2026-03-13", "2026-11-13", "2027-08-13"],
        ),
        (
            Cron("0 0 1-7 * MON", day_match=DayMatch.AND),
            ["2026-01-05", "2026-02-02", "2026-03-02", "2026-04-06"],
        ),
        (Cron("0 0 0 1 1,7 * 2027,2030"), ["2027-01-01", "2027-07-01", "2030-01-01", "2030-07-01"]),
        (Cron("0 0 0 29 2 * 2030/2"), ["2032-02-29", "2036-02-29", "2040-02-29"]),
    ],
)
def test_days(cron: Cron, expected: list[str]) -> None:
    found = between(cron, NOW, NOW + timedelta(days=6000))
    assert [next(found).date().isoformat() for _ in expected] == expected


def test_a_year_ends_the_line() -> None:
    cron = Cron("0 0 9 31 12 * 2027", "America/New_York")
    last = next_after(cron, NOW)
    assert last == datetime(2027, 12, 31, 14, tzinfo=UTC)
    assert next_after(cron, last) is None
    wild = Cron("0 */30 * * * * 2026", "America/New_York")
    assert list(between(wild, datetime(2027, 1, 1, 4, tzinfo=UTC), NOW + AHEAD * 9)) == [
        datetime(2027, 1, 1, 4, 30, tzinfo=UTC)
    ]


@pytest.mark.parametrize("prefix", ["CRON_TZ=", "TZ=", "cron_tz="])
def test_a_zone_in_front(prefix: str) -> None:
    written = Cron(f"{prefix}Europe/Paris 0 9 * * *")
    assert with_zone(written) == Cron("0 9 * * *", "Europe/Paris")
    assert times(written) == times(Cron("0 9 * * *", "Europe/Paris"))
    assert with_zone(Cron(f"{prefix}Europe/Paris @daily", "Europe/Paris")) == Cron("@daily", "Europe/Paris")
    with pytest.raises(
        ValueError, match="timezone: 'Asia/Tokyo' is not the zone that the cron line begins with"
    ):
        check(Cron(f"{prefix}Europe/Paris 0 9 * * *", "Asia/Tokyo"))
    with pytest.raises(ValueError, match="timezone: 'Mars/Base' is not a known time zone"):
        check(Cron(f"{prefix}Mars/Base 0 9 * * *"))


def test_warnings_and_choices() -> None:
    (sentence,) = warnings(Cron("0 0 1 * MON"), NOW)
    assert sentence.endswith("not only on those that match both (day_match 'and').")
    assert warnings(Cron("0 0 1 * MON", day_match=DayMatch.AND), NOW) == ()


ITEMS = st.lists(
    st.sampled_from(
        [
            "*",
            "?",
            "L",
            "W",
            "#",
            "-",
            "/",
            "1",
            "5",
            "7",
            "12",
            "31",
            "60",
            "99",
            "MON",
            "FRIDAY",
            "SEPT",
            "H",
            "LW",
        ]
    ),
    min_size=1,
    max_size=5,
).map("".join)
PROPOSED = re.compile(r"write '([^']+)'|such as ([A-Z0-9#]+)\b")


@PROFILE
@given(st.integers(0, 4), ITEMS)
def test_what_a_refusal_proposes_is_accepted(place: int, item: str) -> None:
    """Every spelling that a refusal tells people to write is accepted in the same field."""
    fields = ["0", "9", "*", "*", "*"]
    fields[place] = item
    try:
        check(Cron(" ".join(fields)))
    except ValueError as refusal:
        for found in PROPOSED.finditer(str(refusal)):
            fields[place] = found[1] or found[2]
            check(Cron(" ".join(fields)))
    else:
        assert describe(Cron(" ".join(fields)))


def test_what_a_refusal_proposes_means_what_it_says() -> None:
    with pytest.raises(ValueError, match=r"write it as an interval, '1h30m'$"):
        check(Cron("@every 1h30m"))
    for text in ("0s", "905900h"):  # no interval is that short, or longer than a hundred years
        with pytest.raises(ValueError, match=r"write it as an interval, such as '5m'$"):
            check(Cron(f"@every {text}"))
    with pytest.raises(ValueError, match=r"write 'SAT' for every Saturday.*'SATL' for the last of the month"):
        check(Cron("0 9 * * L"))
    assert describe(Cron("0 9 * * SAT")) == "At 09:00, only on Saturday"
    assert describe(Cron("0 9 * * SATL")) == "At 09:00, on the last Saturday of the month"
