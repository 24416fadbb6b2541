"""What is chosen for daylight saving, against a walk over every minute around the clock changes of many zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise, product

import pytest

from rota.domain.recurrence import (
    Cron,
    DstFold,
    DstGap,
    RRule,
    between,
    check,
    clock_changes,
    count,
    dst_note,
    latest,
    left_out,
    next_after,
    warnings,
)
from rota.domain.recurrence.zones import zone_tzinfo

NEW_YORK = "America/New_York"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CHANGES = {
    NEW_YORK: ["2026-03-08", "2026-11-01"],
    "Europe/London": ["2026-03-29", "2026-10-25"],
    "Australia/Lord_Howe": ["2026-04-05", "2026-10-04"],
    "Pacific/Apia": ["2011-12-30"],
    "Africa/Casablanca": ["2025-02-23", "2025-04-06"],
    "Antarctica/Troll": ["2026-03-29", "2026-10-25"],
    "America/Caracas": ["2016-05-01", "2007-12-09"],
    "Africa/Cairo": ["2026-04-24", "2026-10-30"],
    "UTC": ["2026-03-29"],
}
TIMES = {"30 2": ({30}, {2}), "0,45 0-3": ({0, 45}, {0, 1, 2, 3}), "15 1": ({15}, {1}), "10 12": ({10}, {12})}
CHOICES = list(product(DstGap, DstFold))


@cache
def clock(zone: str, middle: datetime) -> list[tuple[datetime, datetime]]:
    """Every minute of five days, and what the clock shows."""
    start = middle - timedelta(hours=60)
    every = [start + n * MINUTE for n in range(120 * 60)]
    return [(at, at.astimezone(zone_tzinfo(zone)).replace(tzinfo=None)) for at in every]


@cache
def showings(zone: str, middle: datetime) -> dict[datetime, list[datetime]]:
    """When the clock shows each reading."""
    found: dict[datetime, list[datetime]] = {}
    for at, reading in clock(zone, middle):
        found.setdefault(reading, []).append(at)
    return found


@cache
def jumps(zone: str, middle: datetime) -> list[tuple[datetime, list[datetime]]]:
    """When it jumps, and over which readings."""
    return [
        (at, [before + n * MINUTE for n in range(1, (after - before) // MINUTE)])
        for (_, before), (at, after) in pairwise(clock(zone, middle))
        if after - before > MINUTE
    ]


def walked(
    minutes: set[int], hours: set[int], zone: str, gap: DstGap, fold: DstFold, middle: datetime
) -> list[datetime]:
    """Minute by minute: which readings are shown, when, and which are jumped over."""

    def named(reading: datetime) -> bool:
        return reading.minute in minutes and reading.hour in hours

    instants = [each for reading, each in showings(zone, middle).items() if named(reading)]
    chosen = {DstFold.FIRST: slice(0, 1), DstFold.SECOND: slice(-1, None), DstFold.BOTH: slice(None)}[fold]
    found = {at for each in instants for at in each[chosen]}
    for at, over in jumps(zone, middle):
        if any(named(reading) for reading in over) and gap is not DstGap.SKIP:
            found.add(at if gap is DstGap.AFTER else at - timedelta(seconds=1))
    return sorted(found)


@pytest.mark.parametrize("zone", CHANGES)
def test_choices_agree_with_a_walk_over_every_minute(zone: str) -> None:
    for day, (line, (minutes, hours)), (gap, fold) in product(CHANGES[zone], TIMES.items(), CHOICES):
        middle = datetime.fromisoformat(day).replace(tzinfo=UTC)
        cron = Cron(f"{line} * * *", zone, dst_gap=gap, dst_fold=fold)
        after, until = middle - timedelta(hours=36), middle + timedelta(hours=36)
        expected = [at for at in walked(minutes, hours, zone, gap, fold, middle) if after < at <= until]
        assert list(between(cron, after, until)) == expected, cron
        assert count(cron, after, until) == len(expected)
        assert latest(cron, after, until) == expected[-1]
        assert next_after(cron, after) == expected[0]


@pytest.mark.parametrize(("gap", "fold"), CHOICES)
def test_a_line_that_repeats_follows_what_was_chosen(gap: DstGap, fold: DstFold) -> None:
    """`*/30 1-2 * * *` keeps its rhythm, unless its owner says otherwise."""
    for day in CHANGES[NEW_YORK]:
        middle = datetime.fromisoformat(day).replace(tzinfo=UTC)
        cron = Cron("*/30 1-2 * * *", NEW_YORK, dst_gap=gap, dst_fold=fold)
        after, until = middle - timedelta(hours=36), middle + timedelta(hours=36)
        expected = [at for at in walked({0, 30}, {1, 2}, NEW_YORK, gap, fold, middle) if after < at <= until]
        assert list(between(cron, after, until)) == expected
    rhythm = Cron("*/30 1-2 * * *", NEW_YORK)
    same = Cron("*/30 1-2 * * *", NEW_YORK, dst_gap=DstGap.SKIP, dst_fold=DstFold.BOTH)
    assert list(between(rhythm, NOW, NOW + timedelta(days=365))) == list(
        between(same, NOW, NOW + timedelta(days=365))
    )


@pytest.mark.parametrize(("gap", "fold"), CHOICES)
def test_a_rule_is_as_the_cron_line(gap: DstGap, fold: DstFold) -> None:
    cron = Cron("30 1,2 * * *", NEW_YORK, dst_gap=gap, dst_fold=fold)
    rule = RRule("FREQ=DAILY;BYHOUR=1,2;BYMINUTE=30;BYSECOND=0", NOW, NEW_YORK, gap, fold)
    year = NOW + timedelta(days=365)
    assert list(between(rule, NOW, year)) == list(between(cron, NOW, year))
    assert count(rule, NOW, year) == count(cron, NOW, year)
    limited = RRule("FREQ=DAILY;BYHOUR=1,2;BYMINUTE=30;BYSECOND=0;COUNT=500", NOW, NEW_YORK, gap, fold)
    assert list(between(limited, NOW, year)) == list(between(cron, NOW, year))[:500]


def test_a_rule_in_elapsed_time_takes_no_choice() -> None:
    with pytest.raises(ValueError, match="dst_fold: a rule that is HOURLY advances in elapsed time"):
        check(RRule("FREQ=HOURLY", NOW, NEW_YORK, dst_fold=DstFold.BOTH))


def test_a_time_that_never_exists_never_fires_and_says_so_quickly() -> None:
    always_in_the_gap = Cron("30 2 8-14 3 0", NEW_YORK, dst_gap=DstGap.SKIP)
    twice = next_after(always_in_the_gap, NOW)
    assert twice is not None, "either day field matches: the other days of the second week"
    never = Cron("30 2 8 3 * # 2026", NEW_YORK, dst_gap=DstGap.SKIP)
    assert next_after(never, NOW) == datetime(2027, 3, 8, 7, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("gap", "outcome", "runs"),
    [
        (DstGap.AFTER, "it runs at 03:00 instead.", ["2026-03-08T07:00:00+00:00"]),
        (DstGap.BEFORE, "it runs at 01:59:59 instead.", ["2026-03-08T06:59:59+00:00"]),
        (DstGap.SKIP, "it does not run for it.", []),
    ],
)
def test_coming_changes_are_told_forward(gap: DstGap, outcome: str, runs: list[str]) -> None:
    cron = Cron("30 2 * * *", NEW_YORK, dst_gap=gap)
    (change,) = clock_changes(cron, NOW)
    assert (change.direction, change.reading) == ("forward", datetime(2026, 3, 8, 2, 30))
    assert [at.isoformat() for at in change.runs] == runs
    assert change.text.endswith(outcome)
    assert warnings(cron, NOW) == (change.text,)
    assert left_out(cron, change.at) == (datetime(2026, 3, 8, 2, 30) if not runs else None)
    for at in change.runs:
        assert dst_note(cron, at) == ("moved" if gap is DstGap.AFTER else "moved before")


@pytest.mark.parametrize(
    ("fold", "outcome", "notes"),
    [
        (DstFold.FIRST, "it runs once, the first time (05:30 UTC).", ["first of two"]),
        (DstFold.SECOND, "it runs once, the second time (06:30 UTC).", ["second of two"]),
        (DstFold.BOTH, "it runs both times.", ["first of two", "second of two"]),
    ],
)
def test_coming_changes_are_told_back(fold: DstFold, outcome: str, notes: list[str]) -> None:
    cron = Cron("30 1 * * *", NEW_YORK, dst_fold=fold)
    (change,) = clock_changes(cron, NOW)
    assert change.direction == "back"
    assert change.text.endswith(outcome)
    assert [dst_note(cron, at) for at in change.runs] == notes
