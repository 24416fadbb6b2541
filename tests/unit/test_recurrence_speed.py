"""No question takes long, however sparse or hostile the timing.

Walls, not races: each limit is 20 or more times what is measured, so that a busy machine passes and a walk
from DTSTART, or through every second of a year, does not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from rota.domain.recurrence import (
    Cron,
    Interval,
    RRule,
    Timing,
    between,
    check,
    count,
    latest,
    next_after,
)

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

    sys.setprofile(counted)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert made <= limit


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
    every_second = between(Cron("* * * * * *"), LONG_AGO, datetime(9999, 1, 1, tzinfo=UTC))
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
