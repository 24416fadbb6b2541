"""RRULE against other ways of getting the answer: python-dateutil, and a walk over elapsed time."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from dateutil.rrule import rrulestr

from rota.domain.recurrence import RRule, between, check, count, latest
from rota.domain.recurrence.zones import zone_tzinfo

WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
SPANS = {"YEARLY": 4000, "MONTHLY": 1000, "WEEKLY": 900, "DAILY": 500}
UNITS = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
CHANGES = {
    "America/New_York": ["2026-03-08", "2026-11-01"],
    "Australia/Lord_Howe": ["2026-04-04", "2026-10-03"],
    "Pacific/Apia": ["2011-12-30"],
    "Africa/Casablanca": ["2025-02-23", "2025-04-06"],
    "Antarctica/Troll": ["2026-03-29"],
    "UTC": ["2026-02-28"],
}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def possible(timing: RRule) -> bool:
    try:
        check(timing)
    except ValueError as refusal:
        return "no date that ever comes" not in str(refusal)
    return True


def agree(timing: RRule, until: datetime, expected: list[datetime]) -> None:
    before = timing.dtstart - timedelta(seconds=1)
    if not expected and not possible(timing):
        return
    assert list(between(timing, before, until)) == expected, f"{timing} until {until}"
    assert count(timing, before, until) == len(expected), f"{timing} until {until}"
    assert latest(timing, before, until) == (expected[-1] if expected else None), f"{timing} until {until}"


def some(rng: random.Random, low: int, high: int, signs: tuple[int, ...] = (1,)) -> str:
    return ",".join({str(rng.choice(signs) * rng.randint(low, high)) for _ in range(rng.randint(1, 4))})


def random_rule(rng: random.Random, frequency: str) -> str:
    numbered = frequency in ("MONTHLY", "YEARLY") and rng.random() < 0.5
    weekdays = {(str(rng.randint(1, 5)) if numbered else "") + rng.choice(WEEKDAYS) for _ in range(2)}
    options = {
        "INTERVAL": (0.5, str(rng.choice([2, 3, 4, 5, 7, 10, 12, 24]))),
        "BYMONTH": (0.25, some(rng, 1, 12)),
        "BYMONTHDAY": (0.25, some(rng, 1, 31, (1, 1, -1))),
        "BYYEARDAY": (0.1, some(rng, 1, 366, (1, 1, -1))),
        "BYDAY": (0.3, ",".join(weekdays)),
        "BYHOUR": (0.2, some(rng, 0, 23)),
        "BYMINUTE": (0.2, some(rng, 0, 59)),
        "BYSECOND": (0.1, some(rng, 0, 59)),
        "WKST": (0.2, rng.choice(["SU", "TH"])),
        "BYSETPOS": (0.2 if frequency in ("MONTHLY", "YEARLY") else 0, some(rng, 1, 4, (1, -1))),
        "COUNT": (0.2, str(rng.randint(1, 40))),
    }
    chosen = [f"{name}={value}" for name, (chance, value) in options.items() if rng.random() < chance]
    return ";".join([f"FREQ={frequency}", *chosen])


@pytest.mark.parametrize("frequency", SPANS)
def test_calendar_rules_agree_with_dateutil(frequency: str) -> None:
    """In UTC, where no clock changes. COUNT is applied to its answer, which UNTIL keeps short."""
    rng = random.Random(f"rrule {frequency}")
    for _ in range(18):
        rule = random_rule(rng, frequency)
        start = at(rng.choice(["1997-09-02T09:00", "2024-02-29T01:30", "2023-12-31T23:59:59", "2026-01-01"]))
        until = start + timedelta(days=SPANS[frequency])
        if not possible(RRule(rule, start)):
            continue  # dateutil would walk to the year 9999 to find nothing
        bare, _, limit = rule.partition(";COUNT=")
        expected = list(rrulestr(f"{bare};UNTIL={until:%Y%m%dT%H%M%SZ}", dtstart=start))
        agree(RRule(rule, start), until, expected[: int(limit or len(expected))])


def walk(
    rule: dict[str, set[int]], unit: int, interval: int, start: datetime, until: datetime, zone: str
) -> list[datetime]:
    """Every `interval` units of elapsed time from `start`, if the local clock then reads what the parts allow."""
    found = []
    for place in range(int((until - start).total_seconds()) // (unit * interval) + 1):
        instant = start + timedelta(seconds=place * unit * interval)
        local = instant.astimezone(zone_tzinfo(zone))
        reading = {
            "BYHOUR": local.hour,
            "BYMINUTE": local.minute,
            "BYSECOND": local.second,
            "BYMONTHDAY": local.day,
        }
        if all(reading[name] in allowed for name, allowed in rule.items()):
            found.append(instant)
    return found


@pytest.mark.parametrize("frequency", UNITS)
def test_step_rules_agree_with_a_walk_over_elapsed_time(frequency: str) -> None:
    rng = random.Random(f"steps {frequency}")
    unit = UNITS[frequency]
    parts = {"BYHOUR": 23, "BYMINUTE": 59, "BYSECOND": 59}
    filters = [*list(parts)[: list(UNITS).index(frequency) + 1], "BYMONTHDAY"]  # finer ones would expand
    for _ in range(40):
        zone = rng.choice(list(CHANGES))
        change = at(rng.choice(CHANGES[zone]))
        start = change - timedelta(seconds=rng.randint(0, 6_000 if unit == 1 else 300_000))
        until = change + timedelta(days=3 if unit > 1 else 0, seconds=9_000)
        interval = rng.choice([1, 2, 3, 5, 7, 24, 25, 60, 90, 100, 1440])
        rule = {
            name: {rng.randint(1, parts.get(name, 31)) for _ in range(rng.randint(4, 20))}
            for name in filters
            if rng.random() < 0.4
        }
        text = [f"{name}={','.join(str(value) for value in sorted(values))}" for name, values in rule.items()]
        timing = RRule(";".join([f"FREQ={frequency};INTERVAL={interval}", *text]), start, zone)
        agree(timing, until, walk(rule, unit, interval, start, until, zone))
