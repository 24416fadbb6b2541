"""Works on calendars. A schedule keeps what its calendars cover: a change of one brings the schedules that name it up
to date, in the same transaction. A work that names one locks it until then, so that no schedule keeps what it covered
before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...domain.errors import Refused
from ...domain.model import Calendar, Schedule, ScheduleStatus
from ...domain.schedule import calendars as rules
from ...domain.schedule import definition
from ...stores.base import Tx, Work
from ...stores.queries import ScheduleList
from ..work import as_work
from .schedules import write_planned
from .shared import (
    audit,
    cursor_behind,
    find_calendar,
    find_every,
    limits_of,
    put_audited,
    sets_named,
)

PAGE = 10_000


@as_work
async def create_calendar(tx: Tx, tenant: str, name: str, fields: Mapping[str, Any], actor: str) -> Calendar:
    await limits_of(tx, tenant)
    new = rules.create(name, fields, tenant=tenant, now=tx.now, actor=actor)
    old = await tx.get(Calendar, new.id)
    if old is not None and rules.edit(old, fields, tx.now, actor) is old:
        return old  # the same again, or an answer was lost
    if old is not None:
        raise Refused("calendar_exists", calendar=name)
    return put_audited(tx, "created", actor, None, new)


@as_work
async def edit_calendar(
    tx: Tx, tenant: str, name: str, changes: Mapping[str, Any], actor: str, version: int | None = None
) -> Calendar:
    """Change the fields that are named, and plan the schedules that name it anew. With `version`, only if nobody else
    changed it since."""
    await limits_of(tx, tenant)
    old = await find_calendar(tx, tenant, name)
    if version is not None and version != old.version:
        raise Refused("stale_version", record="calendar", id=name, found=old.version, expected=version)
    new = rules.edit(old, changes, tx.now, actor)
    if new is old:
        return old
    await _govern(tx, new, actor)
    return put_audited(tx, "updated", actor, old, new)


async def _govern(tx: Tx, calendar: Calendar, actor: str) -> None:
    """Plan the schedules that name this calendar by what it covers now. What was due and is not fired is recorded, as
    after any change."""
    mine = await _naming(tx, calendar, deleted=True)
    known = await sets_named(
        tx, calendar.tenant, [name for each in mine for name in (*each.exclude, *each.only)]
    )
    others = [each for each in known if each.name != calendar.name]
    changes = [
        (old, definition.governed(old, rules.covering(old, (*others, calendar.covers)), tx.now))
        for old in mine
    ]
    said = f"calendar {calendar.name} was changed"
    moving = [(old, new, "replanned", said) for old, new in changes if new is not old]
    await write_planned(tx, None, moving, actor)


async def _naming(tx: Tx, calendar: Calendar, *, deleted: bool = False) -> list[Schedule]:
    every = ScheduleList(tenant=calendar.tenant, deleted=deleted)
    schedules = await find_every(tx, every, PAGE, cursor_behind)
    return [each for each in schedules if calendar.name in (*each.exclude, *each.only)]


def delete_calendar(tenant: str, name: str, actor: str) -> Work[None]:
    """Remove it; refused while a schedule names it."""
    was_there = False

    async def work(tx: Tx) -> None:
        nonlocal was_there
        if was_there and await tx.get(Calendar, rules.calendar_id(tenant, name)) is None:
            return  # an answer was lost
        old = await find_calendar(tx, tenant, name)
        was_there = True
        for each in await _naming(tx, old):
            if each.status is not ScheduleStatus.COMPLETED:
                raise Refused("calendar_in_use", calendar=name, schedule=each.key)
        tx.delete(old)
        audit(tx, "deleted", actor, old, None)

    return work
