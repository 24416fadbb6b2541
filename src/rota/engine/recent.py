"""Tasks for people who wait: looked for among the recent ones first, so that no look reads all there are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from ..domain.model import Task, TaskStatus
from ..stores.base import Tx, Work
from ..stores.queries import TaskList
from .queries import task_list

__all__ = ["Recent", "recent_tasks"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOOKED_THROUGH = 10_000
"""So many tasks are looked through for those that match, before one has to say how far back to look."""

WINDOWS = (timedelta(days=30), timedelta(days=7), timedelta(days=1), timedelta(hours=1), timedelta(minutes=5))


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that match, and how far back they were looked for; None: to the first."""

    tasks: list[Task]
    back: timedelta | None


def recent_tasks(tenant: str, limit: int, back: timedelta | None, **filters: Any) -> Work[Recent]:
    """The newest tasks that match, of those that were created within `back`. Without it: as far back as a bounded look
    reaches, since what matches rarely would be looked for in all tasks there are."""

    async def work(tx: Tx) -> Recent:
        query = await task_list(tx, tenant, filters)
        reach = back if back is not None else await _reach(tx, query)
        since = None if reach is None or reach >= tx.now - _EPOCH else tx.now - reach
        found = await tx.find(replace(query, since=since), limit)
        return Recent(tasks=[task.as_of(tx.now) for task in found], back=None if since is None else reach)

    return work


async def _reach(tx: Tx, query: TaskList) -> timedelta | None:
    """The widest window with few enough tasks. What has an index of its own needs none."""
    is_indexed = query.schedule_id is not None or query.is_workflow
    is_scanned = query.kind or query.queue or query.tag or query.status is TaskStatus.COMPLETED
    if is_indexed or not is_scanned:
        return None
    every = TaskList(tenant=query.tenant, at=query.at)
    for window in (None, *WINDOWS):
        wide = replace(every, since=None if window is None else tx.now - window)
        if await tx.count(wide, at_most=LOOKED_THROUGH) < LOOKED_THROUGH:
            return window
    return WINDOWS[-1]
