"""Where the days of a calendar may come from: the holidays of a country, and the all-day events of an `.ics` file.

Both become days when they are given, up to the end of a year ahead: a calendar is what it lists on every node, whatever
is installed there. Give the source again to go on, or to take over what has changed in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Any

from ..domain import recurrence
from ..domain.checks import shown
from ..domain.errors import Invalid
from ..domain.recurrence import RRule
from ..domain.schedule.calendar_options import SOURCES, YEARS, sources_in

MOST_DAYS = 5_000
_DAY = timedelta(days=1)
Event = Any
"""An event of icalendar, whose types allow any value for any property."""
_MADE = re.compile("Public holidays of |All-day events of ")
_INSTALL = "install it with: pip install 'rota[calendars]'"


async def with_days(fields: Mapping[str, Any], now: datetime, described: str = "") -> dict[str, Any]:
    """The fields of a calendar as they are stored: sources have become days, beside those that are given. They are its
    description, too, unless it has another that a person `described` it with."""
    given = sources_in(fields)
    stored = {name: value for name, value in fields.items() if name not in SOURCES}
    if not given:
        return stored
    found = await asyncio.to_thread(days_of, given, now.date())
    return {
        "description": _description(given) if not described or _MADE.match(described) else described,
        **stored,
        "days": [*(stored.get("days") or ()), *sorted(found)],
    }


def days_of(sources: Mapping[str, Any], today: date) -> set[date]:
    """The days of this year and of those ahead; single events are of any year."""
    end = today.year + sources.get("years", YEARS)
    found: set[date] = set()
    if "country" in sources:
        found |= _holidays(sources["country"], sources.get("subdivision"), today.year, end)
    if "ics" in sources:
        found |= _events(sources["ics"], date(today.year, 1, 1), date(end, 12, 31))
    return found


def _description(sources: Mapping[str, Any]) -> str:
    place = "-".join(sources[name] for name in ("country", "subdivision") if name in sources)
    parts = [f"Public holidays of {place}"] * bool(place) + ["All-day events of an .ics file"] * (
        "ics" in sources
    )
    return "; ".join(parts)


def _holidays(country: str, subdivision: str | None, first: int, last: int) -> set[date]:
    try:
        import holidays
    except ModuleNotFoundError:
        raise Invalid("country", "this needs the library holidays", _INSTALL) from None
    known = holidays.list_supported_countries()
    if country not in known:
        near = f", such as {country.upper()}" if country.upper() in known else ", such as GB, DE or US"
        raise Invalid("country", f"{shown(country)} is not known", f"give a code of ISO 3166{near}")
    if subdivision is not None and subdivision not in known[country]:
        accepted = f"accepted are {', '.join(known[country])}" if known[country] else f"{country} has none"
        raise Invalid("subdivision", f"{shown(subdivision)} is not known", accepted)
    return set(holidays.country_holidays(country, subdiv=subdivision, years=range(first, last + 1)))


def _events(text: str, first: date, last: date) -> set[date]:
    """The days of all-day events. An event that changes one repetition of another takes its place."""
    try:
        import icalendar
    except ModuleNotFoundError:
        raise Invalid("ics", "this needs the library icalendar", _INSTALL) from None
    try:
        events: list[Event] = list(icalendar.Calendar.from_ical(text).walk("VEVENT"))
    except ValueError as problem:
        said = " ".join(str(problem).split())[:120]
        raise Invalid("ics", f"it is not the text of an .ics file: {said}") from None
    moved = {
        (str(event.get("UID")), event["RECURRENCE-ID"].dt) for event in events if "RECURRENCE-ID" in event
    }
    days: set[date] = set()
    all_day = [event for event in events if _begins(event) is not None]
    for event in all_day:
        if str(event.get("STATUS")) == "CANCELLED":
            continue
        length = _length(event)
        for begin in _begins_of(event, first, last):
            if "RECURRENCE-ID" in event or (str(event.get("UID")), begin) not in moved:
                days |= {begin + number * _DAY for number in range(length)}
            if len(days) > MOST_DAYS:
                raise Invalid("ics", "it has too many days", f"the most is {MOST_DAYS:,}")
    if not all_day:
        raise Invalid(
            "ics", "it has no all-day events", "events with hours are not days; give windows for them"
        )
    return days


def _begins(event: Event) -> date | None:
    """The day on which it begins, if it is an all-day event. What cannot be read is refused."""
    for name, problem in event.errors:
        if name in ("DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID"):
            raise Invalid("ics", f"{name} of the event {_name(event)} cannot be read: {str(problem)[:120]}")
    if "DTSTART" not in event:
        raise Invalid("ics", f"the event {_name(event)} has no DTSTART")
    begin = event["DTSTART"].dt
    return begin if isinstance(begin, date) and not isinstance(begin, datetime) else None


def _name(event: Event) -> str:
    return shown(str(event.get("SUMMARY") or event.get("UID") or "without a name"))


def _length(event: Event) -> int:
    """How many days it takes; its end is not one of them."""
    length = 1
    if "DTEND" in event and not isinstance(event["DTEND"].dt, datetime):
        length = (event["DTEND"].dt - event["DTSTART"].dt).days
    elif "DURATION" in event:
        length = event["DURATION"].dt.days
    if length > MOST_DAYS:
        raise Invalid("ics", f"the event {_name(event)} is too long", f"the most is {MOST_DAYS:,} days")
    return max(length, 1)


def _begins_of(event: Event, first: date, last: date) -> set[date]:
    begin = event["DTSTART"].dt
    begins = {begin, *_dates(event, "RDATE")}
    rules = event.get("RRULE", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        begins |= set(_repeated(event, rule.to_ical().decode(), begin, first, last))
    return begins - set(_dates(event, "EXDATE"))


def _repeated(event: Event, rule: str, begin: date, first: date, last: date) -> Iterator[date]:
    timing = RRule(rule, datetime.combine(begin, time(0), UTC))
    after = datetime.combine(first, time(0), UTC) - _DAY
    try:
        for at in islice(
            recurrence.between(timing, after, datetime.combine(last, time(0), UTC)), MOST_DAYS + 1
        ):
            yield at.date()
    except ValueError as problem:
        raise Invalid(
            "ics", f"RRULE of the event {_name(event)} is not accepted: {str(problem)[:120]}"
        ) from None


def _dates(event: Event, name: str) -> list[date]:
    lists = event.get(name, [])
    return [
        each.dt.date() if isinstance(each.dt, datetime) else each.dt
        for listed in (lists if isinstance(lists, list) else [lists])
        for each in listed.dts
    ]
