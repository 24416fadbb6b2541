"""Cron against a naive walk over the clock: random expressions, around clock changes, in many zones.

The oracle knows nothing of masks: it asks of every minute (or, for times of day, of every local reading)
whether it matches, with `datetime`, `calendar` and `zoneinfo`.
"""

from __future__ import annotations

import random
import re
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest

from rota.domain.recurrence import Cron, between, check, count, latest, next_after
from rota.domain.recurrence.zones import zone_tzinfo

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
CHANGES = {
    "America/New_York": ["2026-03-08", "2026-11-01"],
    "Europe/London": ["2026-03-29", "2026-10-25"],
    "Europe/Dublin": ["2026-03-29", "2026-10-25"],
    "Australia/Lord_Howe": ["2026-04-05", "2026-10-04"],
    "Pacific/Apia": ["2011-12-30", "2012-04-01", "2012-09-30"],
    "Africa/Casablanca": ["2025-02-23", "2025-04-06"],
    "America/Sao_Paulo": ["2018-02-18", "2018-11-04"],
    "Antarctica/Troll": ["2026-03-29", "2026-10-25"],
    "America/Caracas": ["2016-05-01", "2007-12-09"],
    "Pacific/Kwajalein": ["1993-08-21"],
    "Africa/Cairo": ["2026-04-24", "2026-10-30"],
    "Asia/Kolkata": ["2026-05-01"],
    "UTC": ["2024-02-29", "2026-12-31"],
}


def expand(field: str, low: int, high: int, names: list[str]) -> set[int]:
    def value(text: str) -> int:
        return names.index(text) + low if text in names else int(text)

    found: set[int] = set()
    for item in field.upper().split(","):
        body, _, step = item.partition("/")
        if body == "*":
            first, last = low, high
        elif "-" in body:
            first, last = (value(end) for end in body.split("-"))
        else:
            first = value(body)
            last = high if step else first
        found |= set(range(first, last + 1, int(step or 1)))
    return found


def day_of_month(field: str) -> Callable[[date], bool]:
    items = field.upper().split(",")
    plain = ",".join(item for item in items if "L" not in item and "W" not in item)
    days = expand(plain, 1, 31, []) if plain else set()

    def nearest_working(day: date, target: int) -> bool:
        last = monthrange(day.year, day.month)[1]
        if target > last:
            return False
        working = [n for n in range(1, last + 1) if day.replace(day=n).weekday() < 5]
        prefer = 1 if day.replace(day=target).weekday() == 5 else -1
        return day.day == min(working, key=lambda n: (abs(n - target), prefer * n))

    def matches(day: date) -> bool:
        last = monthrange(day.year, day.month)[1]
        return day.day in days or any(
            (item == "L" and day.day == last)
            or (item.startswith("L-") and day.day == last - int(item[2:]))
            or (item == "LW" and nearest_working(day, last))
            or (item[:-1].isdigit() and item.endswith("W") and nearest_working(day, int(item[:-1])))
            for item in items
        )

    return matches


def day_of_week(field: str) -> Callable[[date], bool]:
    items = field.upper().split(",")
    plain = ",".join(item for item in items if "#" not in item and not item.endswith("L"))
    days = {number % 7 for number in expand(plain, 0, 6, WEEKDAYS)} if plain else set()

    def number(text: str) -> int:
        return WEEKDAYS.index(text) if text in WEEKDAYS else int(text) % 7

    def matches(day: date) -> bool:
        weekday = (day.weekday() + 1) % 7
        last = monthrange(day.year, day.month)[1]
        return weekday in days or any(
            (item.endswith("L") and weekday == number(item[:-1]) and day.day + 7 > last)
            or ("#" in item and weekday == number(item[:-2]) and (day.day - 1) // 7 + 1 == int(item[-1]))
            for item in items
        )

    return matches


def first_instant(reading: datetime, zone: str) -> datetime:
    """When the wall clock first shows `reading`, or jumps over it: found by halving."""
    low, high = 0, 80 * 3600
    start = reading.replace(tzinfo=UTC) - timedelta(hours=40)
    naive = reading.replace(tzinfo=zone_tzinfo(zone)).astimezone(UTC)
    if naive.astimezone(zone_tzinfo(zone)).replace(tzinfo=None) == reading:
        return naive
    while low < high:
        middle = (low + high) // 2
        shown = (start + timedelta(seconds=middle)).astimezone(zone_tzinfo(zone)).replace(tzinfo=None)
        low, high = (low, middle) if shown >= reading else (middle + 1, high)
    return start + timedelta(seconds=low)


def walk(fields: list[str], zone: str, after: datetime, until: datetime) -> list[datetime]:
    minutes, hours = expand(fields[0], 0, 59, []), expand(fields[1], 0, 23, [])
    months = expand(fields[3], 1, 12, MONTHS)
    by_month, by_week = day_of_month(fields[2]), day_of_week(fields[4])
    both = fields[2].startswith("*") or fields[4].startswith("*")

    def on(day: date) -> bool:
        found = (by_month(day), by_week(day))
        return day.month in months and (all(found) if both else any(found))

    if any(re.match(r"\*|[0-9]+/", field) for field in fields[:2]):
        first = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
        every = (first + timedelta(minutes=n) for n in range(int((until - first) / timedelta(minutes=1)) + 1))
        shown = ((instant, instant.astimezone(zone_tzinfo(zone))) for instant in every)
        return [
            i for i, local in shown if local.minute in minutes and local.hour in hours and on(local.date())
        ]
    days = [after.date() + timedelta(days=n) for n in range(-2, (until - after).days + 4)]
    readings = [datetime(d.year, d.month, d.day, h, m) for d in days if on(d) for h in hours for m in minutes]
    return sorted(i for i in {first_instant(reading, zone) for reading in readings} if after < i <= until)


def random_item(rng: random.Random, low: int, high: int, names: list[str]) -> str:
    first = rng.randint(low, high)
    last = rng.randint(first, high)
    name = rng.choice(names)[:3].title() if names and rng.random() < 0.3 else str(first)
    return rng.choice(
        ["*", f"*/{rng.randint(1, high - low + 1)}", name, f"{first}-{last}", f"{first}-{last}/3"]
    )


def random_fields(rng: random.Random) -> list[str]:
    def field(low: int, high: int, names: list[str]) -> str:
        return ",".join(random_item(rng, low, high, names) for _ in range(rng.choice([1, 1, 1, 2])))

    fields = [
        field(0, 59, []),
        field(0, 23, []),
        field(1, 31, []),
        field(1, 12, MONTHS),
        field(0, 6, WEEKDAYS),
    ]
    if rng.random() < 0.5:
        fields[:2] = [str(rng.randint(0, 59)), rng.choice(["0", "1", "2", "3", "1-3", "0,2"])]
    if rng.random() < 0.2:
        fields[2] = rng.choice(["L", "LW", "L-2,1", f"{rng.randint(1, 31)}W", "1W,15W,31W"])
    if rng.random() < 0.2:
        fields[4] = rng.choice(["FRIL", "0L,3", f"{rng.randint(0, 7)}#{rng.randint(1, 5)}", "MON#1,SUN#5"])
    for place, chance in ((2, 0.4), (3, 0.6), (4, 0.4)):
        if rng.random() < chance:
            fields[place] = "*"
    return fields


def possible(cron: Cron) -> bool:
    try:
        check(cron)
    except ValueError as refusal:
        return "never occurs" not in str(refusal)
    return True


@pytest.mark.parametrize("zone", CHANGES)
def test_cron_agrees_with_a_walk_over_the_clock(zone: str) -> None:
    rng = random.Random(f"cron {zone}")
    for _ in range(25):
        fields = random_fields(rng)
        middle = datetime.fromisoformat(rng.choice(CHANGES[zone])).replace(tzinfo=UTC)
        after = middle + timedelta(seconds=rng.randint(-30 * 3600, 30 * 3600))
        until = after + timedelta(days=2)
        cron = Cron(" ".join(fields), zone)
        expected = walk(fields, zone, after, until)
        if not expected and not possible(cron):
            continue
        assert list(between(cron, after, until)) == expected, f"{cron} after {after}"
        assert count(cron, after, until) == len(expected)
        assert latest(cron, after, until) == (expected[-1] if expected else None)
        if expected:
            assert next_after(cron, after) == expected[0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 1W * *", ["2026-08-03", "2026-09-01", "2026-10-01", "2026-11-02"]),
        ("0 0 31W * *", ["2026-07-31", "2026-08-31", "2026-10-30", "2026-12-31"]),
        ("0 0 LW * *", ["2026-07-31", "2026-08-31", "2026-09-30", "2026-10-30"]),
        ("0 0 L-1 * *", ["2026-07-30", "2026-08-30", "2026-09-29", "2026-10-30"]),
        ("0 0 * * 5#5", ["2026-07-31", "2026-10-30", "2027-01-29", "2027-04-30"]),
        ("0 0 * * 0L", ["2026-07-26", "2026-08-30", "2026-09-27", "2026-10-25"]),
        ("0 0 13 * FRI", ["2026-07-03", "2026-07-10", "2026-07-13", "2026-07-17"]),
        ("0 0 */10 * FRI", ["2026-07-31", "2026-08-21", "2026-09-11", "2026-12-11"]),
        ("0 0 13 * */5", ["2026-09-13", "2026-11-13", "2026-12-13", "2027-06-13"]),
        ("0 0 * * 5-7", ["2026-07-03", "2026-07-04", "2026-07-05", "2026-07-10"]),
    ],
)
def test_days(expression: str, expected: list[str]) -> None:
    start = datetime(2026, 7, 1, 12, tzinfo=UTC)
    found = between(Cron(expression), start, start + timedelta(days=800))
    assert [next(found).date().isoformat() for _ in expected] == expected
