"""Schedules and templates that are named by the beginning of an id. It is made whole before a command begins.

A name has no beginnings: `rota schedule delete report` is not to delete `report-2`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeGuard

import click

from ...domain.errors import NotFound, Refused

if TYPE_CHECKING:
    from ..python.client import Queue

__all__ = ["SCHEDULE", "TEMPLATE", "Named"]

AT_ONCE = 1000
CANDIDATES = 5
_BEGINNING = re.compile("[0-9a-f][0-9a-f-]{0,34}")


class Named(click.ParamType[str]):
    """A parameter that is the name or the id of a record: of a `schedule` or of a `template`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def may_begin(self, value: object) -> TypeGuard[str]:
        """An id may begin so."""
        return isinstance(value, str) and _BEGINNING.fullmatch(value) is not None

    async def whole(self, queue: Queue, value: str) -> str:
        """The id of the one whose id begins so; if there are several, they are named. A name that is there comes first.
        What is not found is taken as it is: the command says so."""
        try:
            await (queue.get_schedule(value) if self.name == "schedule" else queue.get_template(value))
            return value
        except NotFound:
            found = await self._begun(queue, value)
        if len(found) > 1:
            candidates = ", ".join(f"{id} ({name})" for id, name in found[:CANDIDATES])
            raise Refused(
                "ambiguous_id", what=self.name, beginning=value, count=len(found), candidates=candidates
            )
        return found[0][0] if found else value

    async def _begun(self, queue: Queue, value: str) -> list[tuple[str, str]]:
        """Ids and names of those whose ids begin so, or only that which has this name, if it is deleted."""
        found = []
        cursor = None
        while True:
            page, cursor = await self._page(queue, cursor)
            if any(name == value for _, name in page):
                return []
            found += [(id, name) for id, name in page if id.startswith(value)]
            if cursor is None:
                return found

    async def _page(self, queue: Queue, cursor: str | None) -> tuple[list[tuple[str, str]], str | None]:
        if self.name == "schedule":
            schedules = await queue.list_schedules(limit=AT_ONCE, cursor=cursor, deleted=True)
            return [(each.id, each.key) for each in schedules], schedules.next_cursor
        templates = await queue.list_templates(limit=AT_ONCE, cursor=cursor)
        return [(each.id, each.alias) for each in templates], templates.next_cursor


SCHEDULE = Named("schedule")
TEMPLATE = Named("template")
