"""Works on backfills: what people do to them, and how a tick moves them on (`Fillings`).

A tick looks at a schedule with a backfill as at one that is due: `due_at` is set for it. With `buffer_all` that is when
the last live task ends, since that task is marked (`buffer.py`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ...domain.errors import NotFound
from ...domain.model import (
    Backfill,
    OverlapPolicy,
    Run,
    RunStatus,
    RunTrigger,
    Schedule,
    Task,
)
from ...domain.schedule import backfill, brought_back, run
from ...stores.base import Tx
from ...stores.queries import RunList
from ..work import as_work
from .shared import Starter, find_schedule, limits_of, put_audited


@as_work
async def begin_backfill(
    tx: Tx,
    id: str,
    tenant: str,
    key: str,
    start: datetime,
    end: datetime,
    policy: OverlapPolicy,
    at_most: int,
    actor: str,
    *,
    dry_run: bool = False,
) -> Backfill:
    """The backfill as it begins; of a dry run, as it would end: nothing is written."""
    await limits_of(tx, tenant)
    old = await find_schedule(tx, tenant, key)
    if old.backfill is not None and old.backfill.id == id:
        return old.backfill
    new = backfill.begin(id, old, start, end, policy, at_most, tx.now, actor)
    if dry_run:
        rows = await tx.find(RunList(schedule_id=old.id, since=new.start, until=new.end), 2 * new.total)
        times = {run.run_id(old, row.scheduled_at) for row in rows if row.status is not RunStatus.SKIPPED}
        passed = sum(row.id in times for row in rows)
        return replace(new, passed=passed, started=new.total - passed)
    words = f"{new.total:,} times from {new.start.isoformat()} to {new.end.isoformat()}"
    changed = replace(brought_back(old, tx.now), backfill=new, updated_at=tx.now, updated_by=actor)
    put_audited(tx, "backfilled", actor, old, backfill.awake(changed, tx.now), words)
    return new


@as_work
async def cancel_backfill(tx: Tx, tenant: str, key: str, actor: str) -> Backfill:
    """End a backfill. Its runs that were started go on. One that has ended stays as it is."""
    old = await find_schedule(tx, tenant, key)
    if old.backfill is None:
        raise NotFound("backfill", key)
    new = backfill.cancel(old.backfill, tx.now, f"cancelled by {actor}")
    if new is not old.backfill:
        words = f"after {new.started:,} of {new.total:,} times"
        changed = replace(brought_back(old, tx.now), backfill=new, updated_at=tx.now, updated_by=actor)
        put_audited(tx, "backfill cancelled", actor, old, backfill.own_times(changed), words)
    return new


class Fillings(msgspec.Struct, frozen=True):
    """The backfills of the schedules of a tick, with the rows that their next times have."""

    _rows: Mapping[str, Mapping[str, Run]]
    _stretches: Mapping[str, Sequence[Run]]

    @classmethod
    async def of(cls, tx: Tx, due: Sequence[Schedule]) -> Fillings:
        rows: dict[str, Mapping[str, Run]] = {}
        stretches: dict[str, list[Run]] = defaultdict(list)
        for schedule in due:
            if not (times := backfill.upcoming(schedule)):
                continue
            ids = [run.run_id(schedule, at) for at in times]
            rows[schedule.id] = await tx.get_many(Run, ids)
            before = RunList(schedule_id=schedule.id, status=RunStatus.SKIPPED, until=times[0])
            found = [*rows[schedule.id].values(), *await tx.find(before, 1)]
            stretches[schedule.id] = list({row.id: row for row in found if row.until is not None}.values())
        return cls(rows, stretches)

    def awaited(self, schedule: Schedule, live: Sequence[Task]) -> list[Task]:
        """The live tasks for whose end its backfill waits, marked: those that are not marked yet."""
        filling = schedule.backfill
        if filling is None or not filling.is_open or filling.overlap_policy is OverlapPolicy.ALLOW:
            return []
        return [replace(task, awaited=True) for task in live if not task.awaited]

    def moved_on(self, schedule: Schedule, starter: Starter, room: int | None, is_live: bool) -> Filled:
        """The next step of the backfill of this schedule. `room` is how many tasks its tenant may still start."""
        now = starter.now
        filling = schedule.backfill
        if filling is None or not filling.is_open:
            return Filled(backfill=filling)
        if starter.is_suspended(schedule.tenant):
            return Filled(backfill=backfill.cancel(filling, now, "the tenant was suspended"))
        known = self._rows.get(schedule.id, {})
        step = backfill.step(schedule, filling, known, now, is_live=is_live, room=room)
        going_on = replace(schedule, backfill=step.backfill)
        rows: list[Run] = self._left_over(schedule, step.starts, now)
        tasks: list[Task] = []
        for number, at in enumerate(step.starts, 1):
            id, after = run.run_id(schedule, at), len(step.starts) - number
            by, had = filling.created_by, known.get(id)
            row, task = starter.start(id, going_on, at, RunTrigger.BACKFILL, by, after, waited=had)
            rows.append(row)
            tasks += [] if task is None else [task]
        return Filled(
            backfill=step.backfill,
            look_at=_look_at(step.backfill, room, is_live, tasks, now),
            rows=rows,
            starts=tasks,
        )

    def _left_over(self, schedule: Schedule, starts: Sequence[datetime], now: datetime) -> list[Run]:
        """Rows for the parts of skipped stretches that are left beside the times that start now."""
        rest: list[Run] = []
        for row in self._stretches.get(schedule.id, ()):
            taken = [at for at in starts if row.until is not None and row.scheduled_at <= at <= row.until]
            if taken:
                rest += backfill.carved(row, schedule, taken[0], taken[-1], now)
        return rest


def _look_at(
    filling: Backfill, room: int | None, is_live: bool, started: Sequence[Task], now: datetime
) -> datetime | None:
    """When the next tick is to look at it; None: the end of what is live wakes it, or it is over."""
    if not filling.is_open:
        return None
    if filling.overlap_policy is OverlapPolicy.BUFFER_ALL and (is_live or started):
        return None
    has_room = room is None or room > len(started)
    return now if has_room else now + backfill.NO_ROOM


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a backfill: how it is then, when to look again, and what is written along."""

    backfill: Backfill | None
    look_at: datetime | None = None
    rows: Sequence[Run] = ()
    starts: Sequence[Task] = ()


NOT_FILLED = Filled(backfill=None)
