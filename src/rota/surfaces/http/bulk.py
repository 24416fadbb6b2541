"""The same change to many schedules: those that match now, each in a transaction of its own."""

from __future__ import annotations

from typing import Any

from ...domain.errors import Refused
from ..client import Queue

__all__ = ["change_schedules"]

AT_ONCE = 500


async def change_schedules(queue: Queue, action: str, note: str | None, **filters: Any) -> tuple[int, int]:
    """(changed, left): left are those that refuse it, such as a completed one that is to be resumed."""
    changed = left = 0
    for id in await _matching(queue, filters):
        try:
            await _change(queue, action, id, note)
            changed += 1
        except Refused:
            left += 1
    return changed, left


async def _matching(queue: Queue, filters: dict[str, Any]) -> list[str]:
    """All of them before the first is changed: a change may move one out of the filter."""
    page = await queue.list_schedules(limit=AT_ONCE, **filters)
    ids = [each.id for each in page]
    while page.next_cursor is not None:
        page = await queue.list_schedules(limit=AT_ONCE, cursor=page.next_cursor, **filters)
        ids += [each.id for each in page]
    return ids


async def _change(queue: Queue, action: str, id: str, note: str | None) -> None:
    match action:
        case "pause":
            await queue.pause_schedule(id, note)
        case "resume":
            await queue.resume_schedule(id)
        case _:
            await queue.delete_schedule(id)
