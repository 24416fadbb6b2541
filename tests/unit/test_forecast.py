"""Forecasts: how many runs in which minute, compared with the times that each schedule will have; and spreading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from rota.domain.errors import Invalid
from rota.domain.model import Limits, Schedule, TaskTarget
from rota.domain.recurrence import After, Covered, Cron, DstFold, Interval, Once, RRule, Several, Timing
from rota.domain.schedule import definition, forecast
from rota.domain.schedule.decision import resumed
from rota.domain.schedule.expected import expected
from rota.domain.schedule.forecast import Forecaster
from rota.domain.schedule.spread import can_move

NOW = datetime(2026, 10, 24, 8, 13, 20, tzinfo=UTC)  # a Saturday; the next night clocks go back in Europe
HOUR, MINUTE, TICK = timedelta(hours=1), timedelta(minutes=1), timedelta(microseconds=1)
DAY = 24 * HOUR


def schedule(key: str, timing: Timing, now: datetime = NOW, **fields: Any) -> Schedule:
    calendars = fields.pop("calendars", ())
    return definition.create(
        f"id-{key}",
        key,
        timing,
        TaskTarget(kind="work"),
        fields,
        tenant="default",
        now=now,
        actor="test",
        limits=Limits(),
        calendars=calendars,
    )


def counted(
    schedules: Iterable[Schedule], start: datetime = NOW, end: datetime = NOW + DAY, by: str = "hour"
) -> Forecaster:
    made = Forecaster(start, end, by)
    for each in schedules:
        made.add(each, 2.0)
    for _ in made.count():
        pass
    return made


def dues(each: Schedule, start: datetime, end: datetime) -> list[datetime]:
    """When it will be due, from the start on; from now on, since each time uses up one of `max_runs`."""
    return [time.due for time in expected(each, NOW - TICK, end - TICK) if time.due >= start]


CASES: dict[str, tuple[Timing, dict[str, Any]]] = {
    "daily": (Cron("30 9 * * *", "Asia/Kolkata"), {}),
    "at night": (Cron("30 2 * * *", "Europe/Berlin", dst_fold=DstFold.BOTH), {}),
    "every 20 s at nine": (Cron("*/20 * 9 * * *"), {}),
    "interval": (Interval(timedelta(minutes=7), NOW + timedelta(seconds=3.5)), {}),
    "short interval": (Interval(timedelta(seconds=47)), {}),
    "odd interval": (Interval(timedelta(seconds=100, microseconds=1)), {}),
    "once": (Once(NOW + 3 * HOUR), {}),
    "once with jitter": (Once(NOW + 3 * HOUR), {"jitter": 2 * HOUR}),
    "rule": (RRule("FREQ=HOURLY;BYMINUTE=5,50", NOW.replace(microsecond=0), "Europe/London"), {}),
    "several": (Several((Cron("0 9 * * *"), Cron("*/30 9 * * *", "Europe/Paris"))), {}),
    "jitter": (Cron("0 * * * *"), {"jitter": 20 * MINUTE}),
    "much jitter": (Interval(timedelta(minutes=10), NOW), {"jitter": HOUR}),
    "offset": (Cron("0 9,12 * * *"), {"offset": 20 * MINUTE}),
    "offset and jitter": (Cron("0 * * * *"), {"offset": 20 * MINUTE, "jitter": HOUR}),
    "offset to the next": (Cron("0,7 9-20 * * *"), {"offset": 10 * MINUTE}),
    "offset of seconds": (Interval(timedelta(seconds=47)), {"offset": timedelta(seconds=30)}),
    "offset of an interval": (Interval(2 * HOUR, NOW), {"offset": 90 * MINUTE, "end_at": NOW + 9 * HOUR}),
    "ends": (Cron("0 * * * *"), {"end_at": NOW.replace(hour=15, minute=0, second=0)}),
    "begins": (Cron("0 * * * *"), {"start_at": NOW + 5 * HOUR}),
    "few": (Cron("*/10 * * * *"), {"max_runs": 9}),
    "few of an interval": (Interval(timedelta(minutes=50), NOW), {"max_runs": 4}),
    "not at night": (
        Cron("0 * * * *"),
        {"exclude": ["21:00-06:00"], "calendars": (Covered(name="21:00-06:00", windows=("21:00-06:00",)),)},
    ),
    "on mondays instead": (
        Cron("0 7,9 * * *"),
        {
            "exclude": ["sun"],
            "excluded_policy": "next",
            "jitter": HOUR,
            "calendars": (Covered(name="sun", days=(date(2026, 10, 25),)),),
        },
    ),
    "not on sundays": (
        Interval(HOUR, NOW),
        {"exclude": ["sun"], "calendars": (Covered(name="sun", days=(date(2026, 10, 25),)),)},
    ),
}


def made(name: str, key: str | None = None) -> Schedule:
    timing, fields = CASES[name]
    return schedule(key or name.replace(" ", "-").replace(":", ""), timing, **fields)


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=30, seconds=17)])
def test_runs_are_those_that_each_schedule_will_have(ahead: timedelta) -> None:
    everyone = [made(name, f"{name[:3].strip()}-{n}-{at}") for at, name in enumerate(CASES) for n in range(2)]
    start, end = NOW + ahead, NOW + ahead + DAY
    found = counted(everyone, start, end)
    wanted: Counter[int] = Counter()
    by_minute: dict[int, set[str]] = {}
    for each in everyone:
        for time in dues(each, start, end):
            minute = (time - start.replace(second=0)) // MINUTE
            wanted[minute] += 1
            by_minute.setdefault(minute, set()).add(each.key)
    assert {minute: runs for minute, runs in enumerate(found.runs) if runs} == dict(wanted)
    assert {m: number for m, number in enumerate(found.schedules) if number} == {
        m: len(keys) for m, keys in by_minute.items()
    }
    result = found.result()
    assert (result.runs, result.work, result.unknown) == (wanted.total(), 2.0 * wanted.total(), 0)
    assert sum(span.runs for span in result.spans) == result.runs
    for busy in result.busiest:
        keys = by_minute[(busy.at - start.replace(second=0)) // MINUTE]
        assert (busy.schedules, set(busy.keys) <= keys) == (len(keys), True)
        assert len(busy.keys) == min(len(keys), forecast.NAMED)
    totals = Counter({each.key: len(dues(each, start, end)) for each in everyone})
    assert len([1 for number in totals.values() if number]) == result.schedules
    most = result.participants[0]
    assert totals[most.key] == most.runs == max(totals.values())


def test_schedules_that_do_not_fire_and_those_that_come_after_others() -> None:
    hourly = schedule("a", Cron("0 * * * *"))
    paused = definition.pause(hourly, NOW, "test", until=NOW + 5 * HOUR)
    back = resumed(paused, NOW + 5 * HOUR)
    found = counted([paused]).result()
    assert found.runs == len(list(expected(back, NOW, NOW + DAY))) == 19
    assert counted([definition.pause(hourly, NOW, "test")]).result().runs == 0
    after = schedule("b", After(("a",)))
    told = replace(after, next_run_at=NOW + HOUR, due_at=NOW + HOUR)
    found = counted([after, told]).result()
    assert (found.runs, found.schedules, found.following) == (1, 1, 1)
    nobody = Forecaster(NOW, NOW + DAY)
    nobody.add(hourly, None)
    assert list(nobody.count()) == [24]
    assert (nobody.result().unknown, nobody.result().work) == (1, 0.0)


def test_very_many_with_jitter_are_shared_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "EXACTLY", 100)
    many = [schedule(f"s{n}", Cron("0 12 * * *"), jitter=10 * MINUTE) for n in range(205)]
    found = counted(many)
    noon = (NOW.replace(hour=12, minute=0, second=0) - NOW.replace(second=0)) // MINUTE
    assert sum(found.runs) == 205
    assert set(found.runs[noon : noon + 10]) == {20, 21}


def test_spans_are_hours_and_days_on_the_clock_of_the_start() -> None:
    quarter = schedule("a", Cron("*/15 * * * *"))
    berlin = NOW.astimezone(ZoneInfo("Europe/Berlin"))
    days = counted([quarter], berlin, berlin + 3 * DAY, "day").result().spans
    assert [(each.at.isoformat(), each.runs) for each in days] == [
        ("2026-10-24T00:00:00+02:00", 4 * 13 + 3),
        ("2026-10-25T00:00:00+02:00", 4 * 25),
        ("2026-10-26T00:00:00+01:00", 4 * 24),
        ("2026-10-27T00:00:00+01:00", 4 * 10 + 1),
    ]
    kolkata = NOW.astimezone(ZoneInfo("Asia/Kolkata"))
    hours = counted([quarter], kolkata, kolkata + 2 * HOUR).result().spans
    assert [(f"{each.at:%H:%M}", each.runs) for each in hours] == [("13:00", 1), ("14:00", 4), ("15:00", 3)]


def test_spreading_takes_the_peak_to_what_the_forecast_then_shows() -> None:
    at = NOW.replace(hour=9, minute=0, second=0)
    crowd = [schedule(f"s{n}", Cron("0 9 * * *")) for n in range(41)]
    others = [schedule("often", Cron("*/5 * * * *")), schedule("put-off", Cron("0 9 * * *"), jitter=MINUTE)]
    found = counted([*crowd, *others])
    [first, *_] = found.result().busiest
    assert (first.at, first.schedules) == (at, 43)
    spread = found.spread(at, 10 * MINUTE)
    assert spread is not None
    assert (spread.schedules, spread.moving, spread.before) == (43, 40, 43)
    moving = {each.id for each in [*crowd, *others] if can_move(each, at, 10 * MINUTE)}
    offsets = {each.id: each.offset for each in found.moves(spread)}
    assert moving == {each.id for each in crowd}
    assert set(offsets) == moving - {crowd[0].id}, "the first stays where it is"
    moved = [definition.edit(each, {"offset": offsets[each.id]}, NOW, "test", Limits()) for each in crowd[1:]]
    after = counted([crowd[0], *moved, *others])
    assert max(after.runs) == spread.after == 5, "44 in ten minutes: no minute has more than its even share"
    assert {each.id: each.after for each in found.moves(spread)} == {each.id: each.due_at for each in moved}
    assert spread.sentence("09:00") == (
        f"43 schedules fire at 09:00; spreading 40 of them over 10 minutes takes the peak from 43 to {spread.after}"
    )
    assert first.spread is not None
    assert first.spread.after <= -(-first.spread.before // 4), "the least while that takes it to a quarter"
    assert after.spread(at) is None, "one stays where it was, which is not worth spreading"


def test_intervals_that_share_a_minute_move_from_their_own_times() -> None:
    random = Random(5)
    begins = [NOW + timedelta(seconds=random.randrange(40), microseconds=n) for n in range(20)]
    crowd = [schedule(f"s{n}", Interval(2 * HOUR, begin)) for n, begin in enumerate(begins)]
    found = counted(crowd)
    at = NOW.replace(second=0)
    spread = found.spread(at, HOUR)
    assert spread is not None
    assert (spread.moving, spread.before, spread.after) == (19, 20, 1)
    moves = found.moves(spread)
    assert sorted((each.after - at) // MINUTE for each in moves) == list(range(1, 20))
    assert {each.key: each.before for each in moves} == {each.key: each.next_run_at for each in crowd[1:]}


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (NOW, NOW, "end: .* is not within 31 days after start"),
        (NOW, NOW + 32 * DAY, "end: .* is not within 31 days after start"),
        (NOW.replace(tzinfo=None), NOW, "start: .* is no time with a zone"),
    ],
)
def test_ranges_that_are_refused(start: datetime, end: datetime, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        Forecaster(start, end)
