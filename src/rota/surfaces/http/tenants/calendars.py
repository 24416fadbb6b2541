"""`/api/tenants/{tenant}/calendars`: named sets of days and windows."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import Path, Response

from ....domain.model import Calendar
from ...shapes import Answer, ItemsAnswer, Time, listed, shaped
from ..openapi import documented
from ..reading import Router
from ..service import Admin, IfMatch, OnceKey, Viewer, answer, wanted_version
from . import schemas

router = Router(prefix="/api/tenants/{tenant}", tags=["calendars"])

Name = Annotated[str, Path(description="The name of the calendar.", min_length=1, max_length=255)]


class CalendarAnswer(Answer, frozen=True, kw_only=True):
    """A calendar: the days that it lists, the days on which its rules fall, and its windows of every day."""

    name: str
    description: str
    days: tuple[date, ...]
    rules: tuple[str, ...]
    windows: tuple[str, ...]
    timezone: str | None
    version: int
    created_by: str | None
    updated_by: str | None
    created_at: Time
    updated_at: Time


class CalendarsAnswer(ItemsAnswer[CalendarAnswer], frozen=True, kw_only=True):
    """All calendars of a tenant, by name."""


@router.post("/calendars", **documented(201, CalendarAnswer))
async def create(queue: Admin, body: schemas.CalendarBody, once: OnceKey = None) -> Response:
    """Store days and windows under a name, for schedules to exclude or to require."""
    queue.once(once, lambda made: shaped(CalendarAnswer, made), 201)
    fields = body.model_dump(exclude_unset=True)
    return _one(await queue.create_calendar(fields.pop("name"), **fields), 201)


@router.get("/calendars", **documented(200, CalendarsAnswer))
async def list_all(queue: Viewer) -> Response:
    """All calendars, by name."""
    return answer(listed(CalendarsAnswer, await queue.list_calendars()))


@router.get("/calendars/{name}", **documented(200, CalendarAnswer))
async def get(queue: Viewer, name: Name) -> Response:
    """One calendar."""
    return _one(await queue.get_calendar(name))


@router.patch("/calendars/{name}", **documented(200, CalendarAnswer))
async def change(queue: Admin, name: Name, body: schemas.CalendarPatch, if_match: IfMatch = None) -> Response:
    """Change what is named; the rest stays. The schedules that name the calendar are planned anew, from now."""
    fields = body.model_dump(exclude_unset=True)
    version = wanted_version(if_match, fields.pop("version", None))
    return _one(await queue.update_calendar(name, version=version, **fields))


@router.delete("/calendars/{name}", **documented(204))
async def delete(queue: Admin, name: Name) -> Response:
    """Delete the calendar; refused while a schedule names it."""
    await queue.delete_calendar(name)
    return Response(status_code=204)


def _one(found: Calendar, status: int = 200) -> Response:
    return answer(shaped(CalendarAnswer, found), status, {"ETag": f'"{found.version}"'})
