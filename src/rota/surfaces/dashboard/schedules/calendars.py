"""Calendars: days and windows under a name, which schedules leave out or keep to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from ....domain import recurrence
from ....domain.errors import Refused
from ....domain.model import Calendar, Schedule
from ...words import counted
from ..visit import Visit

COMING = 12
LOOKED_AT = 1000
"""The number of schedules, the newest, that are looked through for those that name a calendar."""
_FIELDS = ("name", "days", "rules", "windows", "timezone", "description", "version")
_DONE = {
    "create": "The calendar is saved.",
    "edit": "The calendar is saved, and its schedules are planned anew. Nothing ran because of it.",
    "delete": "The calendar is deleted.",
}


async def show(visit: Visit) -> Response:
    return visit.show(
        "calendars.html",
        calendars=[(each, covers(each)) for each in await visit.queue.list_calendars()],
        said=_DONE.get(visit.asked("said") or ""),
        now=await visit.queue.now(),
    )


def covers(calendar: Calendar) -> str:
    """`12 days, 1 rule, 22:00-06:00`."""
    parts = [
        counted(len(values), what)
        for values, what in ((calendar.days, "day"), (calendar.rules, "rule"))
        if values
    ]
    return ", ".join([*parts, *calendar.windows])


async def show_one(visit: Visit) -> Response:
    calendar = await visit.queue.get_calendar(visit.part("name"))
    now = await visit.queue.now()
    named, is_partial = await _who_names(visit, calendar)
    return visit.show(
        "calendar.html",
        calendar=calendar,
        coming=recurrence.covered_days(calendar.covers, now.date(), COMING),
        named=named,
        is_partial=is_partial,
        said=_DONE.get(visit.asked("said") or ""),
        now=now,
    )


async def _who_names(visit: Visit, calendar: Calendar) -> tuple[list[Schedule], bool]:
    """The schedules that name it, and whether there may be more."""
    page = await visit.queue.list_schedules(limit=LOOKED_AT)
    found = [each for each in page if calendar.name in (*each.exclude, *each.only)]
    return found, page.next_cursor is not None


async def new(visit: Visit) -> Response:
    return _form(visit, None, {})


async def create(visit: Visit) -> Response:
    values = dict(visit.form)
    try:
        made = await visit.queue.create_calendar(values.get("name", "").strip(), **_given(values))
    except Refused as refused:
        return _form(visit, None, values, str(refused))
    return visit.go(visit.url("calendars", made.name, said="create"))


async def edit(visit: Visit) -> Response:
    calendar = await visit.queue.get_calendar(visit.part("name"))
    named, is_partial = await _who_names(visit, calendar)
    return _form(visit, calendar, _stored(calendar), named=len(named), is_partial=is_partial)


async def change(visit: Visit) -> Response:
    calendar, values = await visit.queue.get_calendar(visit.part("name")), dict(visit.form)
    known = values.get("version", "")
    try:
        version = int(known) if known.isdecimal() else None
        await visit.queue.update_calendar(calendar.name, version=version, **_given(values))
    except Refused as refused:
        return _form(visit, calendar, {**values, "version": str(calendar.version)}, str(refused))
    return visit.go(visit.url("calendars", calendar.name, said="edit"))


async def ask_to_delete(visit: Visit) -> Response:
    calendar = await visit.queue.get_calendar(visit.part("name"))
    return visit.ask(
        f"Delete the calendar {calendar.name}",
        "It is removed for good. That is refused while a schedule names it.",
        back=visit.url("calendars", calendar.name),
        verb="Delete",
        is_danger=True,
    )


async def delete(visit: Visit) -> Response:
    await visit.queue.delete_calendar(visit.part("name"))
    return visit.go(visit.url("calendars", said="delete"))


def _given(values: Mapping[str, str]) -> dict[str, Any]:
    return {
        "days": values.get("days", "").replace(",", " ").split(),
        "rules": [line.strip() for line in values.get("rules", "").splitlines() if line.strip()],
        "windows": values.get("windows", "").replace(",", " ").split(),
        "timezone": values.get("timezone", "").strip() or None,
        "description": values.get("description", "").strip(),
    }


def _stored(calendar: Calendar) -> dict[str, str]:
    return {
        "name": calendar.name,
        "days": "\n".join(day.isoformat() for day in calendar.days),
        "rules": "\n".join(calendar.rules),
        "windows": ", ".join(calendar.windows),
        "timezone": calendar.timezone or "",
        "description": calendar.description,
        "version": str(calendar.version),
    }


def _form(
    visit: Visit,
    calendar: Calendar | None,
    values: Mapping[str, str],
    problem: str | None = None,
    named: int = 0,
    is_partial: bool = False,
) -> Response:
    return visit.show(
        "calendar_form.html",
        200 if problem is None else 422,
        calendar=calendar,
        values={name: values.get(name, "") for name in _FIELDS},
        problem=problem,
        named=named,
        is_partial=is_partial,
        zones=recurrence.zone_names(),
    )
