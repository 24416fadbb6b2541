"""What may have been meant: the names in the store that are close to one that is not there."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from ...domain.errors import NotFound

if TYPE_CHECKING:
    from ..python.client import Queue

__all__ = ["suggested"]

AT_MOST = 1000
"""So many names are looked through."""


async def suggested(queue: Queue, problem: NotFound) -> NotFound:
    """The same problem. If there is a name close to the one that was looked for, it is named."""
    for what, name in problem.details.items():
        near = get_close_matches(str(name), await _names(queue, what), 2)
        if near:
            meant = " or ".join(repr(each) for each in near)
            problem.args = (f"{problem}; did you mean {meant}?",)
    return problem


async def _names(queue: Queue, what: str) -> list[str]:
    match what:
        case "schedule":
            return [each.key for each in await queue.list_schedules(limit=AT_MOST)]
        case "template":
            return [each.alias for each in await queue.list_templates(limit=AT_MOST)]
        case "calendar":
            return [each.name for each in await queue.list_calendars()]
        case "tenant":
            return [each.tenant.id for each in await queue.list_tenants()]
        case "key":
            return [each.name for each in await queue.list_keys(limit=AT_MOST) if each.revoked_at is None]
    return []
