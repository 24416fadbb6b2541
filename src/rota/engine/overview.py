"""How a tenant is doing, from a few bounded questions: what is wrong, what runs, what is coming."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from ..domain.model import Record, Schedule, Task, TaskStatus
from ..stores.base import Tx, Work
from ..stores.queries import DueSchedules, LostLeases, OpenSchedules, ReadyTasks, TaskList

__all__ = ["Overview", "overview"]

R = TypeVar("R", bound=Record)
AT_MOST = 100
"""So many of each are looked at: the rest is counted nowhere, since to count costs as much as there are."""

LOOKED_AT = 500
"""Schedules due and leases past belong to all tenants: so many are looked at to find those of one."""

LATE = timedelta(seconds=5)
WAITS_LONG = timedelta(minutes=1)
RECENT = timedelta(days=1)
SOON = timedelta(hours=1)


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """How a tenant is doing at `at`. Each list has `AT_MOST` at most.

    Wrong: `late` schedules were due more than 5 s ago, `waiting` tasks could have begun a minute ago
    and nobody took them, `lost` tasks run under a lease that is past, `failed` tasks of the last day ended so. Else:
    what is `running`, and the schedules `coming` within the hour, soonest first. `open_schedules` are neither deleted
    nor completed; `schedules` are those that the tasks belong to, by id."""

    at: datetime
    open_schedules: int
    late: list[Schedule]
    waiting: list[Task]
    lost: list[Task]
    failed: list[Task]
    running: list[Task]
    coming: list[Schedule]
    schedules: dict[str, Schedule]


def overview(tenant: str) -> Work[Overview]:
    async def work(tx: Tx) -> Overview:
        now = tx.now
        due = _of(tenant, await tx.find(DueSchedules(at=now + SOON), LOOKED_AT))
        due = [each for each in due if each.next_run_at is not None]  # others only end their pause then
        failed = await tx.find(TaskList(tenant=tenant, at=now, status=TaskStatus.FAILED), AT_MOST)
        running = await tx.find(TaskList(tenant=tenant, at=now, status=TaskStatus.RUNNING), AT_MOST)
        ids = {task.schedule_id for task in (*failed, *running) if task.schedule_id is not None}
        return Overview(
            at=now,
            open_schedules=await tx.count(OpenSchedules(tenant=tenant)),
            late=[each for each in due if each.due_at and each.due_at <= now - LATE][:AT_MOST],
            waiting=await tx.find(ReadyTasks(at=now - WAITS_LONG, tenant=tenant), AT_MOST),
            lost=_of(tenant, await tx.find(LostLeases(at=now), LOOKED_AT))[:AT_MOST],
            failed=[each for each in failed if each.updated_at > now - RECENT],
            running=running,
            coming=[each for each in due if each.due_at and each.due_at > now - LATE][:AT_MOST],
            schedules=await tx.get_many(Schedule, ids) if ids else {},
        )

    return work


def _of(tenant: str, found: Iterable[R]) -> list[R]:
    return [each for each in found if each.tenant == tenant]
