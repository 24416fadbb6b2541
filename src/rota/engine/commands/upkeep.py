"""Works of the janitor: what time alone does to records."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr, replace

from ...domain import task as life
from ...domain import unique
from ...domain.checks import check_duration
from ...domain.model import FOREVER, Duration, Record, Run, Schedule, Task
from ...stores.base import Tx
from ...stores.queries import (
    ArtifactList,
    FinishedTasks,
    IdleGates,
    LiveTasks,
    LostLeases,
    OldAlarms,
    OldEvents,
    OldReceipts,
    OldRuns,
    OldSchedules,
    PastExpiry,
    RunList,
    SignalList,
    StepList,
)
from ..work import as_work
from .ending import Ending
from .shared import LIVE_AT_MOST, audit

JANITOR = "janitor"
PARTS_AT_ONCE = 1000
RECEIPTS_KEPT = timedelta(hours=24)
GATES_KEPT = timedelta(hours=1)


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended records are kept; None: for good. `runs`: alarms, too. `schedules`: those that
    have completed, with their ledgers."""

    tasks: timedelta | None = timedelta(days=7)
    runs: timedelta | None = timedelta(days=90)
    events: timedelta | None = timedelta(days=365)
    schedules: timedelta | None = timedelta(days=30)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            tasks: Duration | None = ...,
            runs: Duration | None = ...,
            events: Duration | None = ...,
            schedules: Duration | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            given = getattr(self, name)
            if given is not None:
                force_setattr(self, name, check_duration(name, given))


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one sweep, and as of when. If it did nothing: how soon the next record falls due (None: none is
    known)."""

    at: datetime
    returned: list[Task] = []
    expired: list[Task] = []
    next_in: timedelta | None = None


@as_work
async def sweep(
    tx: Tx, limit: int, *, ran_out_by: datetime | None = None, valid_until: datetime = FOREVER
) -> Sweep:
    """Return tasks whose lease ran out by then and was not renewed since (None: return none), and mark those that
    expired. A sweep whose time comes after `valid_until` returns none: it waited for the store, and so did the worker
    that wanted to renew."""
    lost: list[Task] = []
    if ran_out_by is not None and tx.now <= valid_until:
        lost = await tx.find(LostLeases(at=min(ran_out_by, tx.now)), limit, lock=True)
    [expiry] = [task.expires_at for task in await tx.find(PastExpiry(at=None), 1)] or [None]
    past: list[Task] = []
    if expiry is not None and expiry <= tx.now:
        past = await tx.find(PastExpiry(at=tx.now), limit, lock=True)
    if not lost and not past:
        leases = [task.lease_expires_at for task in await tx.find(LostLeases(at=None), 1)]
        next_at = min((at for at in (*leases, expiry) if at is not None), default=None)
        return Sweep(at=tx.now, next_in=None if next_at is None else next_at - tx.now)
    returned = [life.lose(task, tx.now) for task in lost]
    expired = [life.expire(task, tx.now, JANITOR) for task in past]
    swept = [*returned, *expired]
    related = await Ending.of(tx, swept, JANITOR)
    stored = related.put(tx, swept)
    return Sweep(at=tx.now, returned=stored[: len(returned)], expired=stored[len(returned) :])


@as_work
async def forget_old(tx: Tx, retention: Retention, limit: int) -> int:
    """Delete what has been kept long enough, up to `limit` of each kind; how many went."""
    completed: list[Schedule] = []
    receipts = await tx.find(OldReceipts(before=tx.now - RECEIPTS_KEPT), limit)
    holders = await tx.get_many(Task, {unique.holder_of(receipt) for receipt in receipts} - {""})
    live = {task.id for task in holders.values() if task.as_of(tx.now).is_live}
    kept = [receipt for receipt in receipts if unique.holder_of(receipt) in live]
    old: list[Record] = [receipt for receipt in receipts if receipt not in kept]
    old += await tx.find(IdleGates(before=tx.now - GATES_KEPT), limit)
    if retention.tasks is not None:
        old += await _ended_tasks(tx, tx.now - retention.tasks, limit)
    if retention.runs is not None:
        old += await tx.find(OldRuns(before=tx.now - retention.runs), limit)
        old += await tx.find(OldAlarms(before=tx.now - retention.runs), limit)
    if retention.events is not None:
        old += await tx.find(OldEvents(before=tx.now - retention.events), limit)
    if retention.schedules is not None:
        rows, completed = await _completed_schedules(tx, tx.now - retention.schedules, limit)
        old += [*rows, *completed]
    for receipt in kept:
        tx.put(replace(receipt, at=tx.now))
    for record in old:
        tx.delete(record)
    for schedule in completed:
        audit(tx, "purged", JANITOR, schedule, None, "it had completed, and was kept long enough")
    return len(old)


async def _ended_tasks(tx: Tx, before: datetime, limit: int) -> list[Record]:
    """Ended tasks with their artifacts, steps and signals. If these are too many for one work, some of them go first: a
    task goes with the last of them."""
    tasks = await tx.find(FinishedTasks(before=before), limit)
    if not tasks:
        return []
    parts: list[Record] = []
    parts += await tx.find(ArtifactList(task_ids=tuple(task.id for task in tasks)), PARTS_AT_ONCE)
    if ids := tuple(task.id for task in tasks if task.workflow_version is not None or task.is_workflow):
        parts += await tx.find(StepList(task_ids=ids), PARTS_AT_ONCE)
        parts += await tx.find(SignalList(task_ids=ids), PARTS_AT_ONCE)
    return parts if len(parts) >= PARTS_AT_ONCE else [*tasks, *parts]


async def _completed_schedules(tx: Tx, before: datetime, limit: int) -> tuple[list[Run], list[Schedule]]:
    """Rows of ledgers, up to `limit`, and the schedules that have no row left after these are removed. One whose last
    task still runs is kept, and so is one that others come after: it may be activated again."""
    found = await tx.find(OldSchedules(before=before), limit)
    ids = tuple(schedule.id for schedule in found)
    live = await tx.find(LiveTasks(schedule_ids=ids), LIVE_AT_MOST) if found else []
    busy = {task.schedule_id for task in live}
    ids = tuple(id for schedule in found for id in schedule.followers)
    followers = await tx.get_many(Schedule, ids)
    rows: list[Run] = []
    gone: list[Schedule] = []
    for schedule in found:
        if schedule.id in busy or not followers.keys().isdisjoint(schedule.followers):
            continue
        rows += await tx.find(RunList(schedule_id=schedule.id), limit - len(rows))
        if len(rows) == limit:
            break
        gone.append(schedule)
    return rows, gone
