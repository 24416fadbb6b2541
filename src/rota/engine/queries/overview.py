"""How a tenant is doing, from a few bounded questions: what is wrong, what runs, what is coming."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ...domain.model import Record, Schedule, Task, TaskStatus
from ...stores.base import Tx
from ...stores.queries import Cursor, DueSchedules, LostLeases, OpenSchedules, ReadyTasks, TaskList
from ..work import as_work

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


@as_work
async def overview(tx: Tx, tenant: str) -> Overview:
    now = tx.now
    due = _of(tenant, await tx.find(DueSchedules(at=now + SOON), LOOKED_AT))
    due = [each for each in due if each.next_run_at is not None]  # others only end their pause then
    failed = await tx.find(TaskList(tenant=tenant, at=now, status=TaskStatus.FAILED), AT_MOST)
    running = await tx.find(TaskList(tenant=tenant, at=now, status=TaskStatus.RUNNING), AT_MOST)
    waiting = await tx.find(ReadyTasks(at=now - WAITS_LONG, tenant=tenant), LOOKED_AT)
    ids = {task.schedule_id for task in (*failed, *running) if task.schedule_id is not None}
    return Overview(
        at=now,
        open_schedules=await tx.count(OpenSchedules(tenant=tenant)),
        late=[each for each in due if each.due_at and each.due_at <= now - LATE][:AT_MOST],
        waiting=[each for each in waiting if not each.is_expired_at(now)][:AT_MOST],
        lost=_of(tenant, await tx.find(LostLeases(at=now), LOOKED_AT))[:AT_MOST],
        failed=[each for each in failed if each.updated_at > now - RECENT],
        running=running,
        coming=[each for each in due if each.due_at and each.due_at > now - LATE][:AT_MOST],
        schedules=await tx.get_many(Schedule, ids),
    )


COUNTED = 500
SAMPLED = 20
"""Of each hour so many tasks are counted at most, and so many looked at, its latest."""

_HOUR = timedelta(hours=1)
_LEAST = timedelta(microseconds=1)
_STRETCHES = (_HOUR, timedelta(minutes=5), timedelta(seconds=20), timedelta(seconds=1))


class Hour(msgspec.Struct, frozen=True, kw_only=True):
    """An hour of the last day. `created` is how many tasks it brought; if they are more than 500, it follows from how
    many came in a part of it (`is_estimate`). The other two are about its latest 20 tasks; None, if none of them had
    begun. `late` is the median of how long after their times scheduled ones began. `waited` is how long they waited for
    a worker, on average."""

    begins: datetime
    created: int
    is_estimate: bool = False
    late: timedelta | None = None
    waited: timedelta | None = None

    @property
    def depth(self) -> float | None:
        """How many waited at a time, on average: as many as come while one waits."""
        return None if self.waited is None else self.created * (self.waited / _HOUR)


@as_work
async def last_hours(tx: Tx, tenant: str) -> list[Hour]:
    """The last 24 hours, oldest first, the one that has begun too."""
    last = tx.now.replace(minute=0, second=0, microsecond=0)
    return [await _hour(tx, tenant, last - _HOUR * back) for back in reversed(range(24))]


async def _hour(tx: Tx, tenant: str, begins: datetime) -> Hour:
    ends = min(begins + _HOUR, tx.now)
    of_it = TaskList(tenant=tenant, at=tx.now, since=begins, after=Cursor(ends, ""))
    created, is_estimate = 0, False
    for stretch in _STRETCHES:
        since = max(begins, ends - stretch)
        number = await tx.count(replace(of_it, since=since), at_most=COUNTED)
        created = round(number * ((ends - begins) / max(ends - since, _LEAST)))
        is_estimate = since > begins
        if number < COUNTED:
            break
    begun = [task for task in await tx.find(of_it, SAMPLED) if task.started_at] if created else []
    late = sorted(_since(task.scheduled_at, task) for task in begun if task.scheduled_at)
    waits = [_since(task.available_at, task) for task in begun]
    return Hour(
        begins=begins,
        created=created,
        is_estimate=is_estimate,
        late=late[len(late) // 2] if late else None,
        waited=sum(waits, timedelta(0)) / len(waits) if waits else None,
    )


def _since(at: datetime, task: Task) -> timedelta:
    assert task.started_at is not None, "it has begun"
    return max(task.started_at - at, timedelta(0))


def _of(tenant: str, found: Iterable[R]) -> list[R]:
    return [each for each in found if each.tenant == tenant]
