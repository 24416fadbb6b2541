"""Works on calendars. A schedule keeps what its calendars cover: after a change of one, `govern_schedules` brings up to
date those that name it, a page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...domain.errors import NotFound, Refused
from ...domain.model import Calendar, Schedule, ScheduleStatus
from ...domain.recurrence import Covered
from ...domain.schedule import calendars as rules
from ...domain.schedule import definition
from ...stores.base import Tx, Work
from ...stores.queries import CalendarList, Cursor, ScheduleList
from .schedules import given_up
from .shared import audit, limits_of, sets_named

__all__ = [
    "all_calendars",
    "create_calendar",
    "delete_calendar",
    "edit_calendar",
    "govern_schedules",
    "one_calendar",
]

PAGE = 500
CALENDARS_AT_MOST = 10_000


def create_calendar(tenant: str, name: str, fields: Mapping[str, Any], actor: str) -> Work[Calendar]:
    async def work(tx: Tx) -> Calendar:
        await limits_of(tx, tenant)
        new = rules.create(name, fields, tenant=tenant, now=tx.now, actor=actor)
        old = await tx.get(Calendar, new.id)
        if old is not None and rules.edit(old, fields, tx.now, actor) is old:
            return old  # the same again, or an answer was lost
        if old is not None:
            raise Refused("calendar_exists", calendar=name)
        created = tx.put(new)
        audit(tx, "created", actor, None, created)
        return created

    return work


def edit_calendar(
    tenant: str, name: str, changes: Mapping[str, Any], actor: str, version: int | None = None
) -> Work[Calendar]:
    """Change the fields that are named. With `version`, only if nobody else changed it since."""

    async def work(tx: Tx) -> Calendar:
        await limits_of(tx, tenant)
        old = await _find(tx, tenant, name)
        if version is not None and version != old.version:
            raise Refused("stale_version", record="calendar", id=name, found=old.version, expected=version)
        new = rules.edit(old, changes, tx.now, actor)
        if new is old:
            return old
        stored = tx.put(new)
        audit(tx, "updated", actor, old, stored)
        return stored

    return work


def govern_schedules(
    tenant: str, name: str, actor: str, after: Cursor | None = None
) -> Work[tuple[Cursor | None, int]]:
    """Plan the schedules of a page that name this calendar by what it covers now: (where the next page begins, None:
    that was the last; how many changed). What was due and is not fired is recorded, as after any change."""

    async def work(tx: Tx) -> tuple[Cursor | None, int]:
        page = await tx.find(ScheduleList(tenant=tenant, deleted=True, after=after), PAGE)
        mine = [each for each in page if name in (*each.exclude, *each.only)]
        known = await sets_named(
            tx, tenant, [other for each in mine for other in (*each.exclude, *each.only)]
        )
        changes = [(old, definition.governed(old, _covering(old, known), tx.now)) for old in mine]
        moving = [(old, new) for old, new in changes if new is not old]
        rows = await given_up(tx, moving)
        for old, new in moving:
            audit(tx, "replanned", actor, old, tx.put(new), f"calendar {name} was changed")
        for row in rows:
            tx.put(row)
        last = page[-1] if len(page) == PAGE else None
        return None if last is None else Cursor(at=last.created_at, id=last.id), len(moving)

    return work


def delete_calendar(tenant: str, name: str, actor: str) -> Work[None]:
    """Remove it; refused while a schedule names it."""
    was_there = False

    async def work(tx: Tx) -> None:
        nonlocal was_there
        if was_there and await tx.get(Calendar, rules.calendar_id(tenant, name)) is None:
            return  # an answer was lost
        old = await _find(tx, tenant, name)
        was_there = True
        after: Cursor | None = None
        while True:
            page = await tx.find(ScheduleList(tenant=tenant, after=after), PAGE)
            for each in page:
                if name in (*each.exclude, *each.only) and each.status is not ScheduleStatus.COMPLETED:
                    raise Refused("calendar_in_use", calendar=name, schedule=each.key)
            if len(page) < PAGE:
                break
            after = Cursor(at=page[-1].created_at, id=page[-1].id)
        tx.delete(old)
        audit(tx, "deleted", actor, old, None)

    return work


def one_calendar(tenant: str, name: str) -> Work[Calendar]:
    async def work(tx: Tx) -> Calendar:
        return await _find(tx, tenant, name)

    return work


def all_calendars(tenant: str) -> Work[list[Calendar]]:
    """By name."""

    async def work(tx: Tx) -> list[Calendar]:
        return await tx.find(CalendarList(tenant=tenant), CALENDARS_AT_MOST)

    return work


async def _find(tx: Tx, tenant: str, name: str) -> Calendar:
    found = await tx.get(Calendar, rules.calendar_id(tenant, name))
    if found is None:
        raise NotFound("calendar", name)
    return found


def _covering(schedule: Schedule, known: Iterable[Covered]) -> tuple[Covered, ...]:
    """In the order in which the schedule names them. One that is gone covers what it did."""
    by_name = {each.name: each for each in (*schedule.calendars, *known)}
    named = dict.fromkeys((*schedule.exclude, *schedule.only))
    return tuple(by_name[each] for each in named if each in by_name)
