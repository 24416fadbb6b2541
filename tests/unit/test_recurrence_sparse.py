"""Sparse rules take short cuts through the calendar's cycle; here the answers are checked the long way."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest

from rota.domain.recurrence import RRule, between, count, latest, next_after
from rota.domain.recurrence.rrule.steps import Course, hits_of
from rota.domain.recurrence.zones import zone, zone_tzinfo

START = date(1996, 2, 5)  # a Monday
UNTIL = date(2800, 1, 1)
WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
SHOWN = 25


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def chosen_days(frequency: str, interval: int) -> list[date]:
    """Every day of the periods that INTERVAL leaves, from START on."""
    period: Callable[[date], int] = {
        "DAILY": lambda day: day.toordinal() - START.toordinal(),
        "WEEKLY": lambda day: (day.toordinal() - START.toordinal()) // 7,
        "MONTHLY": lambda day: (day.year - START.year) * 12 + day.month - START.month,
        "YEARLY": lambda day: day.year - START.year,
    }[frequency]
    days = (date.fromordinal(number) for number in range(START.toordinal(), UNTIL.toordinal()))
    return [day for day in days if period(day) % interval == 0]


@pytest.mark.parametrize(
    ("frequency", "intervals"),
    [
        ("DAILY", [29, 32, 97, 365, 367, 773]),
        ("WEEKLY", [2, 5, 9, 52, 53]),
        ("MONTHLY", [5, 7]),
        ("YEARLY", [3]),
    ],
)
def test_sparse_rules_agree_with_a_walk_over_all_days(frequency: str, intervals: list[int]) -> None:
    rng = random.Random(f"sparse {frequency}")
    for interval in intervals:
        candidates = chosen_days(frequency, interval)
        for _ in range(3):
            months = set(rng.choice([[2], [2, 12], [1, 2, 3], range(1, 13)]))
            of_month, weekdays = {rng.choice([29, 31, 13, 1])}, set(rng.sample(range(7), rng.randint(1, 7)))
            expected = [
                midnight(day)
                for day in candidates
                if day.month in months and day.day in of_month and day.weekday() in weekdays
            ]
            if not expected:
                continue
            parts = {
                "BYMONTH": ",".join(str(month) for month in sorted(months)),
                "BYMONTHDAY": ",".join(str(day) for day in of_month),
                "BYDAY": ",".join(WEEKDAYS[day] for day in sorted(weekdays)),
            }
            rule = f"FREQ={frequency};INTERVAL={interval};" + ";".join(f"{k}={v}" for k, v in parts.items())
            timing, end = RRule(rule, midnight(START)), midnight(UNTIL) - timedelta(seconds=1)
            before = midnight(START) - timedelta(seconds=1)
            assert list(between(timing, before, expected[:SHOWN][-1])) == expected[:SHOWN], rule
            assert count(timing, before, end) == len(expected), rule
            assert latest(timing, before, end) == expected[-1], rule
            counted = RRule(f"{rule};COUNT={len(expected)}", midnight(START))
            assert next_after(counted, expected[-1]) is None, rule
            assert latest(counted, before, end + timedelta(days=9999)) == expected[-1], rule


@pytest.mark.parametrize("week_start", ["MO", "WE", "SU"])
@pytest.mark.parametrize("days", [{1, 11, 21}, {29, 1}, {30, 31, 1, 2}, {28, 29, 3}])
def test_places_in_a_week_that_few_weeks_have(week_start: str, days: set[int]) -> None:
    first = START.toordinal() + WEEKDAYS.index(week_start)
    expected = []
    for week in range(first, first + 7 * 3000, 7):
        inside = [date.fromordinal(week + place) for place in range(7)]
        inside = [day for day in inside if day.day in days and day.month not in (5, 6)]
        expected += inside[1:2]
    listed = ",".join(str(day) for day in days)
    months = "1,2,3,4,7,8,9,10,11,12"
    rule = f"FREQ=WEEKLY;BYMONTH={months};BYMONTHDAY={listed};BYSETPOS=2;WKST={week_start}"
    start, end = midnight(date.fromordinal(first)), midnight(date.fromordinal(first + 7 * 3000 - 1))
    if not expected:
        with pytest.raises(ValueError, match="never fires"):
            next_after(RRule(rule, start), start)
        return
    timing, before = RRule(rule, start), start - timedelta(seconds=1)
    assert list(between(timing, before, end)) == [midnight(day) for day in expected]
    assert count(timing, before, end) == len(expected)


def test_the_course_of_a_step_rule_is_what_single_steps_meet() -> None:
    rng = random.Random("course")
    for _ in range(40):
        unit = rng.choice([3600, 60, 1])
        size = 86_400 // unit
        hours, minute, second = rng.getrandbits(24) or 1, rng.getrandbits(60) or 1, rng.getrandbits(60) or 1
        minutes, seconds = minute if unit < 3600 else 0, second if unit < 60 else 0
        course = Course(unit, hours, minutes, seconds, rng.randrange(size), rng.randrange(size))
        hits = hits_of(course)
        for step in rng.sample(range(200_000), 200):
            at = (course.start + step * course.stride) % size * unit
            allowed = hours >> at // 3600 & 1
            allowed &= minutes >> at // 60 % 60 & 1 if minutes else 1
            allowed &= seconds >> at % 60 & 1 if seconds else 1
            assert hits[step % len(hits)] == allowed, (course, step)


@pytest.mark.parametrize("name", ["America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "Asia/Gaza"])
def test_clocks_change_by_the_same_rule_until_the_end_of_time(name: str) -> None:
    place, reference, rng = zone(name), zone_tzinfo(name), random.Random(name)
    for _ in range(200):
        year = rng.randint(2030, 9990)
        instant = int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) + rng.randrange(366 * 86_400)
        start, end, offset = place.stretch(instant)
        for moment, known in ((instant, offset), (start, offset), (end - 1, offset)):
            shown = datetime.fromtimestamp(moment, UTC).astimezone(reference).utcoffset()
            assert shown == timedelta(seconds=known), (name, moment)
        assert place.offset(end) != offset
        assert place.resolve(place.reached(instant)) <= instant
