"""Calendars: which times they leave, what a tick records of the others, and what is refused."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from rota.domain.errors import Invalid
from rota.domain.model import Limits, RunReason, RunTrigger, Schedule, ScheduleStatus, TaskTarget
from rota.domain.recurrence import Covered, Cron, Interval, Once, Openings, Timing
from rota.domain.schedule import calendars as rules
from rota.domain.schedule import decide, definition, given_up, run
from rota.domain.schedule.why import explain

WEDNESDAY = datetime(2026, 12, 23, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
DAILY = Cron("0 9 * * *")
XMAS = Covered(name="xmas", days=(date(2026, 12, 25), date(2026, 12, 26)))
WEEKENDS = Covered(name="weekends", rules=("FREQ=WEEKLY;BYDAY=SA,SU",))
WEEKDAYS = Covered(name="weekdays", rules=("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR",))
NIGHTS = Covered(name="nights", windows=("22:00-06:00",))
IN_TOKYO = Covered(name="tokyo", days=(date(2026, 12, 25),), timezone="Asia/Tokyo")
MONTH_END = Covered(name="month-end", rules=("FREQ=MONTHLY;BYMONTHDAY=-1",))


def schedule(
    timing: Timing = DAILY, *calendars: Covered, only: tuple[Covered, ...] = (), **fields: Any
) -> Schedule:
    names = {"exclude": [each.name for each in calendars], "only": [each.name for each in only]}
    return definition.create(
        "s1",
        "report",
        timing,
        TaskTarget(kind="send"),
        {**names, **fields},
        tenant="default",
        now=WEDNESDAY,
        actor="ann",
        limits=Limits(),
        calendars=(*calendars, *only),
    )


@pytest.mark.parametrize(
    ("timing", "only", "exclude", "days"),
    [
        (DAILY, (), (XMAS,), [24, 27, 28, 29, 30]),
        (DAILY, (), (XMAS, WEEKENDS), [24, 28, 29, 30]),
        (DAILY, (WEEKDAYS,), (XMAS,), [24, 28, 29, 30]),
        (DAILY, (XMAS,), (), [25, 26]),
        (DAILY, (XMAS, WEEKDAYS), (), [25]),
        (DAILY, (), (NIGHTS,), [24, 25, 26, 27, 28, 29, 30]),
        (Cron("0 23 * * *"), (), (NIGHTS,), []),
        (Cron("0 16 * * *"), (), (IN_TOKYO,), [23, 25, 26, 27, 28, 29, 30]),
        (DAILY, (), (MONTH_END,), [24, 25, 26, 27, 28, 29, 30]),
        (Interval(DAY, WEDNESDAY), (), (XMAS,), [24, 27, 28, 29, 30]),
    ],
)
def test_which_days_are_left(
    timing: Timing, only: tuple[Covered, ...], exclude: tuple[Covered, ...], days: list[int]
) -> None:
    openings = Openings(timing, only, exclude, "UTC")
    until = datetime(2026, 12, 31, 23, tzinfo=UTC)
    found = list(openings.between(WEDNESDAY, until))
    assert [at.day for at in found if at.day < 31] == days
    assert openings.latest(WEDNESDAY, until) == (found[-1] if found else None)
    assert openings.number(WEDNESDAY, until) == len(found)


@pytest.mark.parametrize(
    ("timing", "exclude", "rolls", "times"),
    [
        (DAILY, (XMAS, WEEKENDS), 1, ["24 09", "28 09", "29 09", "30 09"]),
        (DAILY, (XMAS, WEEKENDS), -1, ["24 09", "28 09", "29 09", "30 09"]),
        (Cron("0 9 26 * *"), (XMAS, WEEKENDS), 1, ["28 09"]),
        (Cron("0 9 26 * *"), (XMAS, WEEKENDS), -1, ["24 09"]),
        (Cron("0 9,17 26,27 * *"), (XMAS, WEEKENDS), 1, ["28 09", "28 17"]),
        (Cron("0 9,23 26 * *"), (XMAS, NIGHTS), 1, ["27 09"]),
        (Once(datetime(2026, 12, 25, 9, tzinfo=UTC)), (XMAS,), 1, ["27 09"]),
        (Interval(DAY, WEDNESDAY), (XMAS,), -1, ["24 12", "27 12", "28 12", "29 12", "30 12"]),
    ],
)
def test_where_excluded_times_go(
    timing: Timing, exclude: tuple[Covered, ...], rolls: int, times: list[str]
) -> None:
    openings = Openings(timing, (), exclude, "UTC", rolls=rolls)
    until = datetime(2026, 12, 30, 23, tzinfo=UTC)
    found = list(openings.between(WEDNESDAY, until))
    assert [f"{at:%d %H}" for at in found] == times
    assert openings.number(WEDNESDAY, until) == len(found)
    back, at = [], openings.latest(WEDNESDAY, until)
    while at is not None:
        back.append(at)
        at = openings.latest(WEDNESDAY, at - timedelta(microseconds=1))
    assert back[::-1] == found


@pytest.mark.parametrize(("policy", "day"), [("skip", 26), ("next", 28), ("previous", 24)])
def test_what_a_schedule_does_with_an_excluded_time(policy: str, day: int) -> None:
    found = schedule(Cron("0 9 26 * *"), XMAS, WEEKENDS, excluded_policy=policy).next_run_at
    assert found == datetime(
        2027 if policy == "skip" else 2026, 1 if policy == "skip" else 12, day, 9, tzinfo=UTC
    )


def test_a_time_that_moves_keeps_its_clock_through_a_change_of_clocks() -> None:
    free = Covered(name="free", days=(date(2026, 10, 24),))
    openings = Openings(Cron("30 1 24 * *", "Europe/London"), (), (free,), "Europe/London", rolls=1)
    at = openings.next_after(datetime(2026, 10, 1, tzinfo=UTC))
    assert at == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


def test_windows_of_a_dense_timing_in_both_directions() -> None:
    openings = Openings(Cron("*/10 * * * *", "Europe/London"), (), (NIGHTS,), "Europe/London")
    begin, end = datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 26, 12, tzinfo=UTC)
    found = list(openings.between(begin, end))
    local = [at.astimezone(ZoneInfo("Europe/London")) for at in found]
    assert {at.hour for at in local} == set(range(6, 22))
    assert openings.number(begin, end) == len(found)
    back, until = [], end
    while (at := openings.latest(begin, until)) is not None:
        back.append(at)
        until = at - timedelta(microseconds=1)
    assert back[::-1] == found


def test_a_tick_records_what_calendars_took_away() -> None:
    made = schedule(DAILY, XMAS, WEEKENDS)
    first = decide(made, WEDNESDAY + 21 * HOUR, ())
    assert (len(first.fires), first.skips) == (1, ())
    waiting = first.schedule
    monday = datetime(2026, 12, 28, 9, tzinfo=UTC)
    assert (waiting.next_run_at, waiting.excluded_from) == (monday, monday - 3 * DAY)
    assert decide(waiting, monday - DAY, ()).skips == ()
    second = decide(waiting, monday, ())
    assert [fire.scheduled_at for fire in second.fires] == [monday]
    assert [(skip.scheduled_at.day, skip.count, skip.calendar) for skip in second.skips] == [
        (25, 2, "xmas"),
        (27, 1, "weekends"),
    ]
    assert {skip.reason for skip in second.skips} == {RunReason.EXCLUDED}
    assert second.schedule.run_count == 2
    assert second.schedule.excluded_from is None


def test_a_tick_records_where_a_time_went() -> None:
    made = schedule(Cron("0 9 26 * *"), XMAS, WEEKENDS, excluded_policy="next")
    saturday, monday = datetime(2026, 12, 26, 9, tzinfo=UTC), datetime(2026, 12, 28, 9, tzinfo=UTC)
    assert (made.next_run_at, made.excluded_from) == (monday, saturday)
    decision = decide(made, monday, ())
    assert [fire.scheduled_at for fire in decision.fires] == [monday]
    assert [(skip.scheduled_at, skip.calendar) for skip in decision.skips] == [(saturday, "xmas")]
    row = run.skipped(made, decision.skips[0], monday)
    assert "it moves to 2026-12-28 09:00 UTC (excluded_policy is next)" in explain(
        made, saturday, row, monday, []
    )
    assert "it moves to 2026-12-28 09:00 UTC" in explain(made, saturday, None, WEDNESDAY, [])
    fired, _ = run.start("r1", made, monday, RunTrigger.SCHEDULED, None, monday, Limits(), "ann")
    told = explain(made, monday, fired, monday + HOUR, [])
    assert "on time, instead of 2026-12-26 09:00 UTC, which a calendar excludes" in told


def test_a_dense_schedule_cannot_move_its_times() -> None:
    with pytest.raises(Invalid, match="excluded_policy: it has more than 24 times a day"):
        schedule(Cron("*/10 * * * *"), XMAS, excluded_policy="next")


def test_an_outage_over_excluded_days() -> None:
    made = schedule(DAILY, WEEKENDS)
    decision = decide(made, WEDNESDAY + 14 * DAY, ())
    rows = sorted((skip.scheduled_at.day, str(skip.reason), skip.count) for skip in decision.skips)
    assert [row for row in rows if row[1] == "excluded"] == [(2, "excluded", 2), (26, "excluded", 2)]
    assert sum(skip.count for skip in decision.skips) + len(decision.fires) == 14


def test_who_changes_a_schedule_loses_no_excluded_time() -> None:
    waiting = decide(schedule(DAILY, XMAS), WEDNESDAY + 21 * HOUR, ()).schedule
    [skip] = given_up(waiting, WEDNESDAY + 3 * DAY)
    assert (skip.scheduled_at.day, skip.count, skip.calendar) == (25, 2, "xmas")
    assert definition.pause(waiting, WEDNESDAY + 3 * DAY, "ann").excluded_from is None


def test_why_counts_no_time_that_a_calendar_takes_away() -> None:
    """The 25th and the 26th use up no run: the second and last of two is on the 27th."""
    made = schedule(DAILY, XMAS, max_runs=2)
    second, third = (datetime(2026, 12, day, 9, tzinfo=UTC) for day in (27, 28))
    assert explain(made, second, None, WEDNESDAY, []).status == "upcoming"
    assert explain(made, third, None, WEDNESDAY, []).status == "not_expected"


def test_why_names_no_time_before_it_that_a_calendar_takes_away() -> None:
    told = explain(schedule(DAILY, XMAS), datetime(2026, 12, 26, 10, tzinfo=UTC), None, WEDNESDAY, [])
    assert "the one before it is 2026-12-24 09:00 UTC and the one after it is 2026-12-27 09:00 UTC" in told


def test_why_names_the_calendar() -> None:
    made = schedule(DAILY, XMAS)
    ahead = explain(made, datetime(2026, 12, 25, 9, tzinfo=UTC), None, WEDNESDAY, [])
    assert ahead.status == "excluded"
    assert "It is left out, because calendar xmas excludes it; its next time is 2026-12-27 09:00 UTC" in ahead
    waiting = decide(made, WEDNESDAY + 21 * HOUR, ()).schedule
    [skip] = decide(waiting, WEDNESDAY + 3 * DAY + 21 * HOUR, ()).skips
    row = run.skipped(waiting, skip, WEDNESDAY + 4 * DAY)
    told = explain(waiting, datetime(2026, 12, 26, 9, tzinfo=UTC), row, WEDNESDAY + 4 * DAY, [])
    assert (told.status, row.calendar) == ("skipped", "xmas")
    assert "that were skipped, because of calendar xmas" in told


def test_a_schedule_without_a_day_is_refused_at_once() -> None:
    everything = Covered(name="all", rules=("FREQ=DAILY",))
    before = time.thread_time()
    with pytest.raises(Invalid, match="would never fire, because its calendars leave none of its times"):
        schedule(Cron("* * * * * *", "Europe/London"), everything)
    assert time.thread_time() - before < 1


def test_a_change_of_a_calendar_plans_anew_and_completes_only_for_a_while() -> None:
    made = schedule(DAILY, XMAS)
    later = definition.governed(made, (Covered(name="xmas", days=(date(2026, 12, 24),)),), WEDNESDAY)
    assert later.next_run_at == datetime(2026, 12, 25, 9, tzinfo=UTC)
    over = definition.governed(made, (Covered(name="xmas", rules=("FREQ=DAILY",)),), WEDNESDAY)
    assert over.status is ScheduleStatus.COMPLETED
    again = definition.governed(over, (XMAS,), WEDNESDAY)
    assert (again.status, again.next_run_at) == (ScheduleStatus.ACTIVE, made.next_run_at)
    assert definition.governed(made, made.calendars, WEDNESDAY) is made


def test_whether_a_schedule_goes_on_depends_on_no_sentence() -> None:
    """It goes on if it was its calendars that ended it, however the reason is worded."""
    made = schedule(DAILY, XMAS)
    over = definition.governed(made, (Covered(name="xmas", rules=("FREQ=DAILY",)),), WEDNESDAY)
    reworded = replace(over, completed_reason="every one of its days is a holiday")
    assert definition.governed(reworded, (XMAS,), WEDNESDAY) == definition.governed(over, (XMAS,), WEDNESDAY)
    set_so = definition.edit(made, {"status": ScheduleStatus.COMPLETED}, WEDNESDAY, "ann", Limits())
    alike = replace(set_so, completed_reason=over.completed_reason)
    assert definition.governed(alike, (XMAS,), WEDNESDAY).status is ScheduleStatus.COMPLETED


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "days: the calendar is empty"),
        ({"days": ["2026-02-30"]}, "days: '2026-02-30' is not a day"),
        ({"days": "2026-02-28"}, "days: '2026-02-28' is not a list"),
        ({"rules": ["FREQ=HOURLY"]}, "rules: 'FREQ=HOURLY' is not one of days"),
        ({"rules": ["nonsense"]}, "rules: "),
        ({"windows": ["22-6"]}, "windows: '22-6' is not a window"),
        ({"windows": ["09:00-09:00"]}, "windows: '09:00-09:00' begins when it ends"),
        ({"timezone": "Mars/Base"}, "timezone: 'Mars/Base' is not a time zone"),
        ({"color": "red"}, "color: a calendar has no such field"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid) as refused:
        rules.create("free", fields, tenant="default", now=WEDNESDAY, actor="ann")
    assert words in str(refused.value)


def test_a_name_that_reads_as_a_window_and_one_that_is_not_known() -> None:
    with pytest.raises(Invalid, match="reads as a window"):
        rules.create("22:00-06:00", {"days": ["2026-12-24"]}, tenant="t", now=WEDNESDAY, actor="ann")
    with pytest.raises(Invalid, match="exclude: there is no calendar 'uk'"):
        rules.known_sets({"exclude": ["uk"]}, ())
