"""Several timings in one: the union of their times, each once, each on its own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.domain.recurrence import (
    Cron,
    Interval,
    Once,
    RRule,
    Several,
    Simple,
    between,
    check,
    clock_changes,
    count,
    describe,
    dst_note,
    latest,
    local,
    next_after,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PARTS: list[Simple] = [
    Cron("0 9 * * 1-5", "Europe/London"),
    Cron("0 9 * * *", "America/New_York"),
    Cron("*/20 1-3 * * *", "America/New_York"),
    RRule("FREQ=WEEKLY;BYDAY=SU;BYHOUR=9;BYMINUTE=0;BYSECOND=0", NOW, "Europe/London"),
    Interval(timedelta(hours=3), NOW + timedelta(microseconds=7)),
    Interval(timedelta(hours=1), NOW),
    Once(NOW + timedelta(days=8, hours=9)),
]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=4),
    st.integers(0, 20_000),
    st.integers(0, 6_000),
)
def test_it_is_the_union(parts: list[Simple], begin: int, length: int) -> None:
    several = Several(tuple(parts))
    after = NOW + timedelta(minutes=begin)
    until = after + timedelta(minutes=length)
    expected = sorted({at for part in parts for at in between(part, after, until)})
    assert list(between(several, after, until)) == expected
    assert count(several, after, until) == len(expected)
    assert latest(several, after, until) == (expected[-1] if expected else None)
    following = [at for at in (next_after(part, after) for part in parts) if at is not None]
    assert next_after(several, after) == min(following, default=None)


def test_words_and_clocks() -> None:
    several = Several((Cron("0 9 * * 1-5", "Europe/London"), Cron("30 2 * * *", "America/New_York")))
    assert describe(several) == (
        "At 09:00, Monday through Friday in Europe/London; and at 02:30 in America/New_York"
    )
    assert describe(Several((Cron("0 9 * * *"), Interval(timedelta(hours=1))))) == "At 09:00; and every hour"
    moved = datetime(2026, 3, 8, 7, tzinfo=UTC)
    assert local(several, moved).isoformat() == "2026-03-08T03:00:00-04:00"
    assert dst_note(several, moved) == "moved"
    assert local(several, datetime(2026, 3, 9, 9, tzinfo=UTC)).isoformat() == "2026-03-09T09:00:00+00:00"
    assert [change.reading.hour for change in clock_changes(several, NOW)] == [2]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="timings: there are 0; accepted are 1 to 20"):
        check(Several(()))
    with pytest.raises(ValueError, match="minute field '61' is out of range"):
        check(Several((Cron("0 9 * * *"), Cron("61 * * * *"))))


def test_counting_stays_quick() -> None:
    several = Several((Cron("* * * * * *"), Interval(timedelta(seconds=1), NOW)))
    begun = thread_time()
    assert count(several, NOW, NOW + timedelta(days=3650)) > 300_000_000
    assert latest(several, NOW, NOW + timedelta(days=3650)) == NOW + timedelta(days=3650)
    assert thread_time() - begun < 1
