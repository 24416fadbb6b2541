"""No question takes long, however sparse or hostile the timing.

Walls, not races: each limit is 20 or more times what is measured, so that a busy machine passes and a walk
from DTSTART, or through every second of a year, does not.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from rota.domain.recurrence import (
    Cron,
    DstFold,
    DstGap,
    Interval,
    RRule,
    Timing,
    between,
    check,
    count,
    latest,
    next_after,
)
from rota.domain.recurrence.occurrences import compiled

NEW_YORK = "America/New_York"
NOW = datetime(2026, 5, 5, 5, 5, 5, tzinfo=UTC)
LONG_AGO = datetime(1973, 1, 1, 9, tzinfo=UTC)


def refusal_of(timing: Timing) -> str:
    """What `check` says against it; nothing if it is acceptable."""
    try:
        check(timing)
    except ValueError as refusal:
        return str(refusal)
    return ""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Of this thread's own time, which no other process disturbs."""
    start = time.thread_time()
    yield
    assert time.thread_time() - start < seconds


@contextmanager
def calls(limit: int) -> Iterator[None]:
    """At most so many Python calls: a measure of work that no other process disturbs."""
    made = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event == "call"
        assert made <= limit  # at once: the question may have no end

    sys.setprofile(counted)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    "timing",
    [
        Cron("0 0 30 2 *"),
        Cron(",".join(["1-59/2"] * 140) + " * * * *"),
        Cron("1 " * 400),
        Cron("9" * 999 + " * * * *"),
        RRule("FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", LONG_AGO),
        RRule("FREQ=HOURLY;INTERVAL=7;BYHOUR=9;BYDAY=SU", LONG_AGO, NEW_YORK),
        RRule("FREQ=SECONDLY;INTERVAL=604800;BYDAY=SU", LONG_AGO, NEW_YORK),
        RRule(
            "FREQ=SECONDLY;INTERVAL=86399;BYHOUR=9;BYMINUTE=0;BYSECOND=0;BYMONTH=2;BYMONTHDAY=29",
            LONG_AGO,
            NEW_YORK,
        ),
        RRule("FREQ=YEARLY;BYDAY=MO;BYSETPOS=54", LONG_AGO),
        RRule("FREQ=MONTHLY;BYDAY=MO;BYSETPOS=6", LONG_AGO),
        RRule("FREQ=WEEKLY;BYDAY=MO,TU;BYMONTHDAY=1,11,21;BYSETPOS=2", LONG_AGO),
        RRule("FREQ=YEARLY;BYYEARDAY=366;BYWEEKNO=20", LONG_AGO),
        RRule("FREQ=WEEKLY;BYDAY=MO;BYMONTH=1,2,3,4,5,6,7,8,9,10,11;BYSETPOS=2", LONG_AGO),
        RRule("FREQ=WEEKLY;INTERVAL=999999999;BYDAY=SU", LONG_AGO),
        RRule("FREQ=DAILY;BYMONTHDAY=" + ",".join(["32"] * 3000), LONG_AGO),
        RRule("FREQ=DAILY;COUNT=" + "9" * 9000, LONG_AGO),
    ],
    ids=lambda timing: str(timing)[:60],
)
def test_hostile_timings_are_answered_quickly(timing: Timing) -> None:
    with within(1.0):
        assert len(refusal_of(timing)) < 300


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        (Cron("0 0 29 2 */7"), "2032-02-29T00:00"),
        (Cron("* * 29 2 */7", NEW_YORK), "2032-02-29T05:00"),
        (RRule("FREQ=SECONDLY", LONG_AGO), "2026-05-05T05:05:06"),
        (RRule("FREQ=MINUTELY;INTERVAL=7", LONG_AGO, NEW_YORK), "2026-05-05T05:11"),
        (RRule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO", LONG_AGO), "2044-02-29T09:00"),
        (RRule("FREQ=YEARLY;INTERVAL=7;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO", LONG_AGO), "2512-02-29T09:00"),
        (
            RRule("FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;BYHOUR=3;BYMINUTE=7", LONG_AGO),
            "2044-02-29T03:07",
        ),
        (
            RRule("FREQ=SECONDLY;INTERVAL=7;BYMONTH=2;BYMONTHDAY=29;BYHOUR=3;BYMINUTE=7", LONG_AGO),
            "2028-02-29T03:07:06",
        ),
        (RRule("FREQ=DAILY;COUNT=1000000000", LONG_AGO), "2026-05-05T09:00"),
        (RRule("FREQ=SECONDLY;COUNT=1000000000", LONG_AGO), None),
        (RRule("FREQ=SECONDLY;BYHOUR=9;BYDAY=MO;COUNT=900000000", LONG_AGO), "2026-05-11T09:00"),
        (RRule("FREQ=YEARLY;COUNT=8000", LONG_AGO), "2027-01-01T09:00"),
        (RRule("FREQ=YEARLY;INTERVAL=999999999", LONG_AGO), None),
        (RRule("FREQ=DAILY;INTERVAL=365;BYMONTH=2;BYMONTHDAY=29", LONG_AGO), "3236-02-29T09:00"),
        (RRule("FREQ=DAILY;INTERVAL=367;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO", LONG_AGO), "4512-02-29T09:00"),
        (RRule("FREQ=HOURLY;INTERVAL=52870;BYMONTH=2;BYMONTHDAY=29", LONG_AGO, NEW_YORK), "2196-02-29T07:00"),
        (RRule("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2;COUNT=1000", LONG_AGO), "2026-05-28T09:00"),
        (RRule("FREQ=HOURLY;INTERVAL=33;BYDAY=WE;COUNT=1000000", LONG_AGO), "2026-05-20T21:00"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_sparse_and_old_timings_are_answered_without_a_walk(timing: Timing, expected: str | None) -> None:
    with calls(40_000):
        found = next_after(timing, NOW)
    assert found == (None if expected is None else datetime.fromisoformat(expected).replace(tzinfo=UTC))
    with calls(2_000):
        next_after(timing, NOW)


@pytest.mark.parametrize(
    "timing",
    [
        Cron("* * * * * *", NEW_YORK),
        Cron("*/5 9-17 * * 1-5", NEW_YORK),
        Interval(timedelta(seconds=1)),
        RRule("FREQ=SECONDLY", LONG_AGO, NEW_YORK),
        RRule("FREQ=SECONDLY;BYHOUR=9;BYDAY=MO", LONG_AGO, NEW_YORK),
        RRule("FREQ=MINUTELY;INTERVAL=7;BYHOUR=9,10", LONG_AGO),
        RRule("FREQ=DAILY;BYHOUR=1,2;BYMINUTE=3,4", LONG_AGO, NEW_YORK),
    ],
    ids=str,
)
def test_millions_are_counted_without_going_through_them(timing: Timing) -> None:
    check(timing)
    with calls(5_000):
        month = count(timing, NOW, NOW + timedelta(days=31))
        last = latest(timing, LONG_AGO, NOW)
    assert month > 0
    assert last is not None
    assert last <= NOW
    with calls(40_000):
        assert count(timing, LONG_AGO, NOW) > month


def test_seconds_that_wander_through_the_day_are_counted_a_day_at_a_time() -> None:
    """To count from the beginning of the pattern for each day took ten times as long."""
    timing = RRule("FREQ=SECONDLY;INTERVAL=7919;BYDAY=TU,TH,SU;BYSECOND=56", NOW)
    check(timing)
    with within(0.4):
        found = count(timing, NOW, NOW + timedelta(days=75 * 365))
    assert found == pytest.approx(75 * 365 * 3 / 7 * 86_400 / 7919 / 60, rel=0.05)


def test_between_is_lazy() -> None:
    timing = Cron("* * * * * *")
    check(timing)
    every_second = between(timing, LONG_AGO, datetime(9999, 1, 1, tzinfo=UTC))
    with calls(100):
        assert next(every_second) == LONG_AGO + timedelta(seconds=1)


@pytest.mark.parametrize("expression", ["*/5 * * * *", "0 9 * * 1-5", "0 0 29 2 *", "0 0 L * *"])
def test_a_chain_of_fires_makes_few_calls(expression: str) -> None:
    """What the rate of 250,000 a second rests on. The first time through makes tables; the second is it."""
    timing = Cron(expression, NEW_YORK)

    def chain() -> None:
        at = NOW
        for _ in range(100):
            found = next_after(timing, at)
            assert found is not None
            at = found

    chain()
    with calls(100 * 30):
        chain()


WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def within_the_day(seed: int) -> RRule:
    """Some rule that repeats within the day."""
    chance = random.Random(seed)
    interval = chance.choice((1, 7, 33, chance.randint(2, 100), chance.randint(2, 10_000)))
    parts = [f"FREQ={chance.choice(('HOURLY', 'MINUTELY', 'SECONDLY'))}", f"INTERVAL={interval}"]
    if chance.random() < 0.5:
        parts.append("BYDAY=" + ",".join(chance.sample(WEEKDAYS, chance.randint(1, 5))))
    for name, values, odds in (
        ("BYMONTH", range(1, 13), 0.25),
        ("BYMONTHDAY", range(1, 29), 0.25),
        ("BYYEARDAY", range(1, 366), 0.1),
        ("BYWEEKNO", range(1, 53), 0.1),
        ("BYHOUR", range(24), 0.3),
        ("BYMINUTE", range(60), 0.3),
        ("BYSECOND", range(60), 0.3),
    ):
        if chance.random() < odds:
            chosen = chance.sample(values, chance.randint(1, 4))
            parts.append(f"{name}=" + ",".join(map(str, chosen)))
    parts += chance.choice(
        (
            [f"COUNT={chance.choice((10, 1000, 1_000_000, 1_000_000_000))}"],
            [f"COUNT={chance.choice((10, 1000, 1_000_000, 1_000_000_000))}"],
            [f"UNTIL={chance.choice((2030, 2500, 9990))}0101T000000Z"],
            [],
        )
    )
    return RRule(";".join(parts), LONG_AGO, chance.choice(("UTC", NEW_YORK, "Australia/Lord_Howe")))


@pytest.mark.parametrize("seed", range(40))
def test_no_question_about_far_years_takes_long(seed: int) -> None:
    """It is answered, or refused in one sentence."""
    timing = within_the_day(seed)
    with calls(300_000):
        if refusal_of(timing):
            return
    for year in (1970, 2026, 2100, 9990):
        at = datetime(year, 5, 5, tzinfo=UTC)
        with calls(300_000):
            next_after(timing, at)
        with calls(300_000):
            latest(timing, LONG_AGO, at)
        with calls(300_000):
            try:
                count(timing, LONG_AGO, at)
            except ValueError as refusal:
                assert str(refusal).startswith("count: the range is too long"), timing  # noqa: PT017
                assert year > 2026, timing


def by_the_calendar(seed: int) -> RRule:
    """Some rule with a COUNT that names times of day, read on clocks that change, mostly with a choice for that."""
    chance = random.Random(seed)
    frequency = chance.choice(("YEARLY", "MONTHLY", "WEEKLY", "DAILY"))
    parts = [f"FREQ={frequency}", f"INTERVAL={chance.choice((1, 1, 2, 5))}"]
    if chance.random() < 0.6:
        parts.append("BYDAY=" + ",".join(chance.sample(WEEKDAYS, chance.randint(1, 5))))
    for name, values, odds in (
        ("BYMONTH", range(1, 13), 0.2),
        ("BYHOUR", range(24), 0.5),
        ("BYMINUTE", range(60), 0.5),
        ("BYSECOND", range(60), 0.3),
    ):
        if chance.random() < odds:
            parts.append(f"{name}=" + ",".join(map(str, chance.sample(values, chance.randint(1, 4)))))
    if chance.random() < 0.4:
        parts.append(f"BYSETPOS={chance.choice(('1', '-1', '1,-1', '2'))}")
    parts.append(f"COUNT={chance.choice((10, 1000, 20_000, 100_000, 1_000_000))}")
    gap = chance.choice((None, DstGap.BEFORE, DstGap.SKIP))
    fold = chance.choice((None, DstFold.SECOND, DstFold.BOTH))
    return RRule(";".join(parts), LONG_AGO, chance.choice((NEW_YORK, "Australia/Lord_Howe")), gap, fold)


WORST = [
    RRule(f"{rule};COUNT={times}", LONG_AGO, "Australia/Lord_Howe", *choices)
    for rule, times in (
        ("FREQ=WEEKLY;INTERVAL=5;BYDAY=SU;BYMINUTE=17,43;BYSETPOS=1", 100_000),
        ("FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=1", 410_000),
        ("FREQ=YEARLY;BYDAY=MO;BYSETPOS=1,-1", 16_000),
        ("FREQ=DAILY;INTERVAL=2", 1_450_000),
    )
    for choices in ((None, None), (DstGap.BEFORE, None), (None, DstFold.SECOND))
]


@pytest.mark.parametrize("timing", [*map(by_the_calendar, range(40)), *WORST], ids=lambda timing: timing.rule)
def test_no_count_of_a_calendar_rule_takes_long(timing: RRule) -> None:
    """Each question is answered, or refused in one sentence. All that has been counted is remembered."""
    compiled.cache_clear()
    with calls(600_000):  # a tenth of a second, for all of them
        if refusal_of(timing):
            return
        for year in (2026, 2100, 2300, 2400, 5000, 9000, 9990):
            at = datetime(year, 5, 5, tzinfo=UTC)
            for question in (next_after, lambda timing, at: latest(timing, LONG_AGO, at)):
                try:
                    question(timing, at)
                except ValueError as refusal:
                    is_slow = timing.dst_gap or timing.dst_fold or "BYSETPOS" in timing.rule
                    said = (
                        f"COUNT would have to be counted over more than {'400' if is_slow else '2,000'} years"
                    )
                    assert said in str(refusal)  # noqa: PT017
                    assert year > (2370 if is_slow else 3970)


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=SECONDLY;INTERVAL=7919;BYDAY=TU,TH,SU;COUNT=1000000",
        "FREQ=HOURLY;INTERVAL=33;BYDAY=WE;COUNT=1000000",
    ],
)
def test_the_end_of_a_large_count_is_found_without_a_walk(rule: str) -> None:
    timing = RRule(rule, NOW)
    with calls(40_000):
        next_after(timing, datetime(9990, 1, 1, tzinfo=UTC))
        found = count(timing, NOW, datetime(9998, 1, 1, tzinfo=UTC))
    assert 0 < found < 1_000_000


def test_weekdays_are_counted_by_the_week_as_they_are_by_the_day() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        unit = chance.choice(("HOURLY", "MINUTELY", "SECONDLY"))
        days = ",".join(chance.sample(WEEKDAYS, chance.randint(1, 5)))
        rule = f"FREQ={unit};INTERVAL={chance.randint(2, 9000)};BYDAY={days}"
        if chance.random() < 0.5:
            rule += f";BYHOUR={chance.randint(0, 11)},{chance.randint(12, 23)}"
        timing = RRule(rule, LONG_AGO, chance.choice(("UTC", NEW_YORK)))
        if refusal_of(timing):
            continue
        start = LONG_AGO + timedelta(hours=chance.randint(0, 9000))
        months = [start + timedelta(days=30 * month) for month in range(25)]
        by_day = sum(count(timing, low, high) for low, high in pairwise(months))
        assert count(timing, start, months[-1]) == by_day, timing


def test_a_count_that_would_take_long_to_reach_is_refused() -> None:
    rule = "FREQ=SECONDLY;INTERVAL=7919;BYMONTH=3;COUNT="
    assert refusal_of(RRule(rule + "1000", NOW)) == ""
    assert refusal_of(RRule(rule + "1000000", NOW)) == (
        "rrule: COUNT 1000000 is not reached within 100 years; accepted is UNTIL, or a smaller COUNT"
    )
