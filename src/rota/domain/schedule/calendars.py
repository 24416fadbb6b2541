"""Calendars: what is accepted as one, and how schedules name them. Pure.

A schedule names calendars in `exclude` and `only`; a window (`22:00-06:00`) may stand where a name does. It keeps what
they cover, so that deciding about a time reads no other record; a change of a calendar brings the schedules that it
governs up to date. Which times are left is computed in `recurrence/calendars.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any

from msgspec.structs import replace

from .. import recurrence
from ..checks import changed_fields, check_fields, check_key, check_text, shown
from ..errors import Invalid
from ..ids import derived_id
from ..model import Calendar, Schedule, facts_of
from ..recurrence import Covered

MOST_NAMED = 20
MOST_ROLLING = 24
"""Times a day, of a schedule whose times roll."""
MOST_DAYS = 5_000
MOST_RULES = 50
_LIST = "give a list"


def calendar_id(tenant: str, name: str) -> str:
    return derived_id("calendar", tenant, name)


def check_calendars(field: str, value: object) -> tuple[str, ...]:
    """The names of calendars, and windows, that a schedule gives."""
    names = _listed(field, value, MOST_NAMED)
    return tuple(
        dict.fromkeys(_window(field, name) if is_window(name) else check_key(name, field) for name in names)
    )


def check_rolling(schedule: Schedule, now: datetime) -> None:
    """Times that move by days are those of schedules with few times a day."""
    if not schedule.openings.rolls:
        return
    week = now, now + timedelta(days=7)
    if recurrence.count(schedule.timing, *week) > 7 * MOST_ROLLING:
        problem = f"it has more than {MOST_ROLLING} times a day, which cannot move to another day"
        raise Invalid("excluded_policy", problem, "give skip")


def is_window(name: object) -> bool:
    """Whether this is a window, and no name: it has two clock times."""
    begin, _, end = name.partition("-") if isinstance(name, str) else ("", "", "")
    return ":" in begin and ":" in end


def names_in(fields: Mapping[str, Any], old: Schedule | None = None) -> tuple[str, ...]:
    """The calendars and windows that a schedule with these fields names."""
    named: list[str] = []
    for field in ("exclude", "only"):
        value = fields.get(field, () if old is None else getattr(old, field))
        named += check_calendars(field, value)
    return tuple(dict.fromkeys(named))


def sets_of(names: Iterable[str], known: Iterable[Calendar]) -> tuple[Covered, ...]:
    """The sets that these calendars and windows cover, in the order of the names. A name that is none of them is left
    out."""
    by_name = {calendar.name: calendar.covers for calendar in known}
    sets = [Covered(name=name, windows=(name,)) if is_window(name) else by_name.get(name) for name in names]
    return tuple(each for each in sets if each is not None)


def known_sets(
    fields: Mapping[str, Any], known: Iterable[Covered], old: Schedule | None = None
) -> tuple[Covered, ...]:
    """The sets of the calendars that a schedule with these fields will name; refused if one of them is new to it and
    not `known`."""
    by_name = {each.name: each for each in (*(() if old is None else old.calendars), *known)}
    for field in ("exclude", "only"):
        for name in check_calendars(field, fields.get(field)):
            if name not in by_name:
                raise Invalid(field, f"there is no calendar {name!r}", "create it first")
    return tuple(by_name[name] for name in names_in(fields, old))


def covering(schedule: Schedule, known: Iterable[Covered]) -> tuple[Covered, ...]:
    """The sets that the calendars of a schedule cover, in the order in which it names them. One that is gone covers
    what it did."""
    by_name = {each.name: each for each in (*schedule.calendars, *known)}
    named = dict.fromkeys((*schedule.exclude, *schedule.only))
    return tuple(by_name[each] for each in named if each in by_name)


def create(name: str, fields: Mapping[str, Any], *, tenant: str, now: datetime, actor: str) -> Calendar:
    checked = check_key(name, "name")
    if is_window(checked):
        raise Invalid("name", f"{shown(name)} reads as a window", "give a name without clock times")
    values = _checked(fields)
    new = Calendar(
        id=calendar_id(tenant, checked),
        tenant=tenant,
        name=checked,
        created_by=actor,
        updated_by=actor,
        created_at=now,
        updated_at=now,
        **values,
    )
    return _not_empty(new)


def edit(calendar: Calendar, changes: Mapping[str, Any], now: datetime, actor: str) -> Calendar:
    """The calendar with the changes; what is given as it was is no change."""
    changed = changed_fields(calendar, _checked(changes))
    if not changed:
        return calendar
    return _not_empty(replace(calendar, **changed, updated_at=now, updated_by=actor))


def as_facts(calendar: Calendar) -> dict[str, Any]:
    """A calendar as the audit shows it."""
    return facts_of(calendar, "applied")


def _not_empty(calendar: Calendar) -> Calendar:
    if not (calendar.days or calendar.rules or calendar.windows):
        raise Invalid("days", "the calendar is empty", "give days, rules or windows")
    return calendar


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    check_fields("a calendar", fields, FIELDS)
    return {name: FIELDS[name](name, value) for name, value in fields.items()}


def _listed(field: str, value: object, most: int) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise Invalid(field, f"{shown(value)} is not a list", _LIST)
    given = list(islice(value, most + 1))
    if len(given) > most:
        raise Invalid(field, "there are too many", f"the most is {most:,}")
    return given


def _days(field: str, value: object) -> tuple[date, ...]:
    return tuple(sorted({_day(field, day) for day in _listed(field, value, MOST_DAYS)}))


def _day(field: str, value: object) -> date:
    if isinstance(value, datetime) or not isinstance(value, str | date):
        raise Invalid(field, f"{shown(value)} is not a day", "accepted are such as 2027-12-24")
    try:
        return date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise Invalid(field, f"{shown(value)} is not a day", "accepted are such as 2027-12-24") from None


def _window(field: str, value: object) -> str:
    try:
        begin, end = recurrence.parse_window(value if isinstance(value, str) else shown(value))
    except ValueError as problem:
        raise Invalid(field, str(problem)) from None
    return f"{begin:%H:%M}-{end:%H:%M}"


def _windows(field: str, value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_window(field, window) for window in _listed(field, value, MOST_RULES)))


def _rules(field: str, value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_rule(field, rule) for rule in _listed(field, value, MOST_RULES)))


def _rule(field: str, value: object) -> str:
    rule = check_text(field, value, most=10_000)
    try:
        recurrence.check_rule(rule)
    except Invalid as problem:
        raise Invalid(field, problem.problem) from None
    return rule


def _timezone(field: str, value: object) -> str | None:
    if value is None:
        return None
    name = check_text(field, value)
    if name not in recurrence.zone_names():
        raise Invalid(field, f"{shown(name)} is not a time zone", "accepted are such as Europe/London")
    return name


FIELDS: dict[str, Callable[[str, object], Any]] = {
    "description": check_text,
    "days": _days,
    "rules": _rules,
    "windows": _windows,
    "timezone": _timezone,
}
"""The fields of a calendar beside its name, and how each is checked."""
