"""The calls of a queue that are about calendars: named sets of days and windows."""

from __future__ import annotations

from typing import Unpack

from ....domain.checks import check_key
from ....domain.model import Calendar
from ....domain.schedule.calendar_options import CalendarOptions
from ....engine import commands, queries
from ....stores.queries import CalendarList
from ... import calendar_sources
from .base import Calls

MOST = 10_000


class CalendarCalls(Calls):
    """Name days and hours once, and let schedules exclude them (`exclude=`) or run in them alone (`only=`)."""

    async def create_calendar(self, name: str, **fields: Unpack[CalendarOptions]) -> Calendar:
        """Store days, rules of days (RRULEs) and windows of the day under a name. Days may also be the holidays of a
        `country`, and the all-day events of an `.ics` file, given as its text."""
        stored = await calendar_sources.with_days(fields, await self.store.now())
        return await self._commit(commands.create_calendar(self.tenant, name, stored, self.actor))

    async def get_calendar(self, name: str) -> Calendar:
        return await self.store.read(queries.one_calendar(self.tenant, _name(name)))

    async def list_calendars(self) -> list[Calendar]:
        """All of them, by name."""
        return await self.store.read(queries.find(CalendarList(tenant=self.tenant), MOST))

    async def update_calendar(
        self, name: str, *, version: int | None = None, **changes: Unpack[CalendarOptions]
    ) -> Calendar:
        """Change what is named, and plan the schedules that name this calendar anew, from now: all in one transaction.
        With `version`: only if it is still at that one."""
        known = await self.get_calendar(name)
        stored = await calendar_sources.with_days(changes, await self.store.now(), known.description)
        work = commands.edit_calendar(self.tenant, _name(name), stored, self.actor, version)
        return await self._commit(work)

    async def delete_calendar(self, name: str) -> None:
        """Remove it for good; refused while a schedule names it."""
        await self._commit(commands.delete_calendar(self.tenant, _name(name), self.actor))


def _name(value: object) -> str:
    return check_key(value, "name")
