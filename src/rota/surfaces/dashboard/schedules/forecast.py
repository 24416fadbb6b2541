"""The forecast: the next 24 hours and the week, who is in an hour, and spreading what comes all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from fastapi import Response

from ....domain.errors import Invalid, Refused
from ....domain.recurrence import zone_names
from ....domain.schedule.forecast import BusyMinute, Forecast, ForecastSpan
from ...words import counted
from ..forms import moment
from ..texts import iso, took
from ..visit import Visit

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
QUARTER = timedelta(minutes=15)
TALL = 56
LEVELS = 5
WEEK = "forecast of the week"
SPREADS = (5, 10, 15, 30, 60)
_TIME = "2026-12-01T09:00Z"


class _Bar(NamedTuple):
    """A part of a timeline: where it is, how tall, what it says, and the hour that it leads to."""

    x: int
    height: float
    words: str
    url: str


class _Cell(NamedTuple):
    """An hour of the week; without an address it has passed."""

    runs: int
    level: int
    words: str
    url: str | None


async def show(visit: Visit) -> Response:
    zone = _zone(visit)
    start = (await visit.queue.now()).replace(second=0, microsecond=0)
    week = await _made(visit, start, start + 7 * DAY, WEEK)
    if week is None:
        return await _still_made(visit)
    tomorrow = week.start + DAY
    day = [each for each in week.spans if each.at < tomorrow]
    peak = max(day, key=lambda each: each.runs)
    return visit.show(
        "forecast.html",
        week=week,
        zone=str(zone),
        runs=sum(each.runs for each in day),
        work=timedelta(seconds=sum(each.work for each in day)),
        peak=peak,
        bars=_bars(visit, day, QUARTER, zone),
        ticks=_ticks(day[0].at - day[0].at.minute % 15 * MINUTE, zone),
        rows=_rows(visit, week, zone),
        crowded=_crowded(week, zone),
        there=lambda at: at.astimezone(zone),
        said=visit.asked("said"),
    )


async def hour(visit: Visit) -> Response:
    zone, at = _zone(visit), _asked_moment(visit)
    begin = max(at, (await visit.queue.now()).replace(second=0, microsecond=0))
    if begin >= at + HOUR:
        raise Invalid("at", f"{_reading(at, zone)} has passed", "what has passed is not forecast")
    found = await _made(visit, begin, at + HOUR, f"forecast of {iso(at)}")
    if found is None:
        return await _still_made(visit)
    local = at.astimezone(zone)
    return visit.show(
        "forecast_hour.html",
        found=found,
        zone=str(zone),
        title=f"{local:%a} {local.day} {local:%b}, {local:%H:%M} to {local + HOUR:%H:%M}",
        bars=_bars(visit, found.spans, MINUTE, zone, is_linked=False),
        crowded=_crowded(found, zone),
        work=timedelta(seconds=found.work),
        there=lambda at: at.astimezone(zone),
        most=len(found.participants),
        back=visit.url("forecast", zone=_asked_zone(visit)),
    )


async def ask(visit: Visit) -> Response:
    """The question before a minute is spread: what would move."""
    zone, at = _zone(visit), _asked_moment(visit)
    found = await visit.queue.spread(at, _over(visit.asked("over")), dry_run=True)
    minutes = found.over // MINUTE
    return visit.show(
        "spread.html",
        found=found,
        zone=str(zone),
        minutes=minutes,
        reading=_reading(found.at, zone),
        sentence_of=found.sentence(_reading(found.at, zone)),
        choices=[(each, visit.here(over=each)) for each in sorted({*SPREADS, minutes})],
        there=lambda at: at.astimezone(zone),
        to=visit.url("forecast", "spread"),
        hidden={
            "at": iso(found.at),
            "over": str(minutes),
            "token": found.token or "",
            "zone": _asked_zone(visit) or "",
        },
        back=visit.url("forecast", zone=_asked_zone(visit)),
    )


async def act(visit: Visit) -> Response:
    at = moment("at", visit.given("at") or "", UTC, example=_TIME)
    zone = visit.given("zone")
    try:
        done = await visit.queue.spread(at, _over(visit.given("over")), token=visit.given("token") or None)
        said = f"{counted(done.moving, 'schedule was', 'schedules were')} spread over {done.over // MINUTE} minutes."
    except Refused as refused:
        said = f"Nothing was done: {refused}."
    visit.service.forget(WEEK, visit.tenant)
    return visit.go(visit.url("forecast", zone=zone, said=said))


async def _made(visit: Visit, start: datetime, end: datetime, name: str) -> Forecast | None:
    """The forecast of this name, minute by minute. None: those of many schedules take seconds, and it is being made."""

    async def ask() -> Forecast:
        return await visit.queue.forecast(start, end, "minute")

    found: Forecast | None = await visit.service.shared_soon((name, visit.tenant), ask)
    return found


async def _still_made(visit: Visit) -> Response:
    number = await visit.queue.open_schedules()
    return visit.being_made("Forecast", f"It is being made from {counted(number, 'schedule')}.")


def _bars(
    visit: Visit, spans: Sequence[ForecastSpan], step: timedelta, zone: ZoneInfo, *, is_linked: bool = True
) -> list[_Bar]:
    """One bar for each step, from the one that the first span is in."""
    size = step // MINUTE
    cut = spans[0].at.minute % size
    first = spans[0].at - cut * MINUTE
    parts = [spans[max(at, 0) : at + size] for at in range(-cut, len(spans), size)]
    sums = [sum(each.runs for each in part) for part in parts]
    most = max(sums)
    found = []
    for number, (part, runs) in enumerate(zip(parts, sums, strict=True)):
        at = first + number * step
        work = timedelta(seconds=sum(each.work for each in part))
        words = f"{_reading(at, zone)}: {counted(runs, 'run')}{_of_work(work)}"
        height = max(1.5, round(TALL * runs / most, 1)) if runs else 0.0
        found.append(_Bar(number, height, words, _hour_url(visit, at, zone) if is_linked else ""))
    return found


def _crowded(found: Forecast, zone: ZoneInfo) -> list[tuple[BusyMinute, str, str]]:
    """The minutes that can be spread, each as it is read, and what that would do, in words."""
    crowded = [(each, each.spread, _reading(each.at, zone)) for each in found.busiest]
    return [
        (each, reading, spread.sentence(reading)) for each, spread, reading in crowded if spread is not None
    ]


def _ticks(first: datetime, zone: ZoneInfo) -> list[str]:
    """The words below the timeline: every third hour."""
    return [f"{(first + number * HOUR).astimezone(zone):%H:%M}" for number in range(0, 25, 3)]


def _rows(visit: Visit, week: Forecast, zone: ZoneInfo) -> list[tuple[datetime, list[_Cell]]]:
    """Seven days of 24 hours on the clock of the zone. An hour that comes twice is one cell."""
    by_hour: dict[tuple[int, int], list[ForecastSpan]] = {}
    today = week.start.astimezone(zone).date()
    for span in week.spans:
        local = span.at.astimezone(zone)
        by_hour.setdefault(((local.date() - today).days, local.hour), []).append(span)
    whole = [sum(each.runs for each in spans) for spans in by_hour.values() if len(spans) >= 60]
    bounds = min(whole), max(whole)
    midnight = datetime(today.year, today.month, today.day, tzinfo=zone)
    return [
        (midnight + number * DAY, list(_cells(visit, by_hour, number, bounds, zone))) for number in range(7)
    ]


def _cells(
    visit: Visit,
    by_hour: Mapping[tuple[int, int], list[ForecastSpan]],
    day: int,
    bounds: tuple[int, int],
    zone: ZoneInfo,
) -> Iterator[_Cell]:
    for number in range(24):
        spans = by_hour.get((day, number))
        if spans is None:
            yield _Cell(0, 0, "", None)
            continue
        runs, local = sum(each.runs for each in spans), spans[0].at.astimezone(zone)
        work = timedelta(seconds=sum(each.work for each in spans))
        words = f"{local:%a} {local.day} {local:%b} {local:%H}:00: {counted(runs, 'run')}{_of_work(work)}"
        yield _Cell(runs, _level(runs, *bounds), words, _hour_url(visit, spans[0].at, zone))


def _level(runs: int, least: int, most: int) -> int:
    """How dark an hour is, from the quietest to the busiest."""
    if not runs or least == most:
        return min(runs, 1)
    return max(1, min(LEVELS, 1 + (LEVELS - 1) * (runs - least) // (most - least)))


def _of_work(work: timedelta) -> str:
    return f", {took(work)} of work" if work else ""


def _hour_url(visit: Visit, at: datetime, zone: ZoneInfo) -> str:
    """The address of the hour that a time is in, on the clock of the zone."""
    local = at.astimezone(zone)
    begin = at - timedelta(minutes=local.minute, seconds=local.second)
    return visit.url("forecast", "hour", at=iso(begin), zone=_asked_zone(visit))


def _reading(at: datetime, zone: ZoneInfo) -> str:
    local = at.astimezone(zone)
    return f"{local:%a} {local.day} {local:%b} {local:%H:%M}"


def _asked_zone(visit: Visit) -> str | None:
    zone = visit.asked("zone")
    return zone if zone in zone_names() else None


def _zone(visit: Visit) -> ZoneInfo:
    return ZoneInfo(_asked_zone(visit) or "UTC")


def _asked_moment(visit: Visit) -> datetime:
    return moment("at", visit.asked("at") or "", UTC, example=_TIME)


def _over(text: str | None) -> timedelta | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise Invalid("over", f"{text!r:.60} is no number of minutes", "give a number such as 10")
    return int(text) * MINUTE
