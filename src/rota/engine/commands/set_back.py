"""Works for a clock that was set back: what was written while it was ahead lies in the future.

Schedules are planned anew from now, and tasks become ready when they would have. Times that had their run keep it: its
id is derived from the time. What was skipped of the times that are now to come again was skipped too soon: those rows
go. Each work takes one page and says where the next begins (None: that was the last).
"""

from __future__ import annotations

from datetime import datetime

from ...domain import run, schedule
from ...domain import task as life
from ...domain.model import Run, RunStatus, Schedule, ScheduleStatus, Task, is_from_the_future
from ...stores.base import Tx, Work
from ...stores.queries import Cursor, DueSchedules, LostLeases, RunList, ScheduleList, UpcomingTasks
from .shared import audit

__all__ = ["bring_back_leases", "bring_back_tasks", "lies_anything_ahead", "replan_schedules"]

SCHEDULER = "scheduler"
ROWS_OF_ONE = 1_000
LEASES = 10_000


def lies_anything_ahead(limit: int) -> Work[bool]:
    """A quick look, at those that are next: after a step back they are likely to be among what it left behind."""

    async def work(tx: Tx) -> bool:
        found: list[Schedule | Task] = [*await tx.find(DueSchedules(at=None), limit)]
        found += await tx.find(UpcomingTasks(after=tx.now), limit)
        found += await tx.find(LostLeases(at=None), limit)
        return any(is_from_the_future(record.updated_at, tx.now) for record in found)

    return work


def replan_schedules(after: Cursor | None, limit: int) -> Work[tuple[Cursor | None, list[Schedule]]]:
    """(where the next page begins, the schedules that were planned anew)"""

    async def work(tx: Tx) -> tuple[Cursor | None, list[Schedule]]:
        page = await tx.find(ScheduleList(tenant=None, status=ScheduleStatus.ACTIVE, after=after), limit)
        ahead = [found for found in page if is_from_the_future(found.updated_at, tx.now)]
        rows = [await _skipped_too_soon(tx, found) for found in ahead]
        planned = [
            _put(tx, old, too_soon, spanning) for old, (too_soon, spanning) in zip(ahead, rows, strict=True)
        ]
        if any(each is None for each in planned):
            following = after  # some had more rows than one work takes
        else:
            following = Cursor(at=page[-1].created_at, id=page[-1].id) if len(page) == limit else None
        return following, [each for each in planned if each is not None]

    return work


async def _skipped_too_soon(tx: Tx, of: Schedule) -> tuple[list[Run], list[Run]]:
    """(rows of times after now that were skipped; the row of a stretch that reaches beyond now, if there is one)"""
    skipped = RunStatus.SKIPPED
    too_soon = await tx.find(RunList(schedule_id=of.id, status=skipped, since=tx.now), ROWS_OF_ONE)
    last = await tx.find(RunList(schedule_id=of.id, status=skipped, until=tx.now), 1)
    return (
        [row for row in too_soon if row.scheduled_at > tx.now],
        [row for row in last if row.until is not None and row.until > tx.now],
    )


def _put(tx: Tx, old: Schedule, too_soon: list[Run], spanning: list[Run]) -> Schedule | None:
    for row in too_soon:
        tx.delete(row)
    if len(too_soon) == ROWS_OF_ONE:
        return None
    for row in spanning:
        tx.put(run.cut_short(row, old, tx.now))
    new = tx.put(schedule.replanned(old, tx.now))
    audit(tx, "replanned", SCHEDULER, old, new, "the clock was set back: planned anew from now")
    return new


def bring_back_tasks(after: datetime | None, limit: int) -> Work[tuple[datetime | None, list[Task]]]:
    """(where the next page begins, the tasks that became ready sooner)"""

    async def work(tx: Tx) -> tuple[datetime | None, list[Task]]:
        begin = tx.now if after is None else after
        page = await tx.find(UpcomingTasks(after=begin), limit)
        moved = _bring_back(tx, page)
        if len(page) < limit:
            return None, moved
        return (begin if moved else page[-1].available_at), moved

    return work


def bring_back_leases() -> Work[list[Task]]:
    """A worker that died while the clock was ahead is not waited for any longer than usual."""

    async def work(tx: Tx) -> list[Task]:
        return _bring_back(tx, await tx.find(LostLeases(at=None), LEASES))

    return work


def _bring_back(tx: Tx, found: list[Task]) -> list[Task]:
    ahead = [task for task in found if is_from_the_future(task.updated_at, tx.now)]
    changed = [(task, life.brought_back(task, tx.now)) for task in ahead]
    return [tx.put(new) for old, new in changed if new is not old]
