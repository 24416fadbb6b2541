"""Forecasts of a tenant's schedules: they are read page by page, with how long their last runs took."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta

from ...domain.model import Run, RunStatus, Schedule, ScheduleStatus
from ...domain.schedule.forecast import Forecaster
from ...stores.base import Store, Tx
from ...stores.queries import Cursor, EndedRuns, ScheduleList
from ..clock import sleep
from ..commands.shared import latest_runs
from ..work import as_work, find

AT_ONCE = 500
"""Schedules that are in memory at a time."""
LOOKED_AT = 20_000
"""Runs that are looked at for how long they took: those of the last week, or, if these are more, of a shorter time."""
LOOKED_UP = 500
"""So many schedules without such a run are asked for their own last ones."""
LAST = 5
STEPS = 5_000
"""After so many times, others have their turn."""
_BACK = (timedelta(days=7), timedelta(days=1), timedelta(hours=1))


async def forecast(store: Store, tenant: str, start: datetime, end: datetime, by: str = "hour") -> Forecaster:
    """Of all schedules of a tenant, counted."""
    made = Forecaster(start, end, by)
    known = await store.read(_took(tenant))
    left = LOOKED_UP
    async for page in _pages(store, tenant):
        missing = [each for each in page if each.id not in known and made.takes(each)][:left] if left else []
        left -= len(missing)
        took = {**known, **await store.read(_took_last(missing))} if missing else known
        for each in page:
            made.add(each, took.get(each.id))
    steps = 0
    for taken in made.count():
        steps += taken
        if steps >= STEPS:
            steps = 0
            await sleep(timedelta(0))
    return made


async def _pages(store: Store, tenant: str) -> AsyncIterator[list[Schedule]]:
    """The schedules that may fire."""
    for status in (ScheduleStatus.ACTIVE, ScheduleStatus.PAUSED):
        after: Cursor | None = None
        while True:
            query = ScheduleList(tenant=tenant, status=status, after=after)
            page = await store.read(find(query, AT_ONCE))
            yield page
            if len(page) < AT_ONCE:
                break
            after = Cursor(page[-1].created_at, page[-1].id)


@as_work
async def _took(tx: Tx, tenant: str) -> Mapping[str, float]:
    """How many seconds the last runs of each schedule took on average."""
    rows: list[Run] = []
    for back in _BACK:
        rows = await tx.find(EndedRuns(tenant=tenant, since=tx.now - back), LOOKED_AT)
        if len(rows) < LOOKED_AT:
            break
    by_schedule: dict[str, list[Run]] = {}
    for row in reversed(rows):
        by_schedule.setdefault(row.schedule_id, []).append(row)
    return _averages(by_schedule)


@as_work
async def _took_last(tx: Tx, schedules: Sequence[Schedule]) -> Mapping[str, float]:
    return _averages(await latest_runs(tx, [each.id for each in schedules], LAST))


def _averages(by_schedule: Mapping[str, Sequence[Run]]) -> Mapping[str, float]:
    """The average of the last runs that have ended by themselves; the rows are the latest first."""
    averages = {}
    for id, rows in by_schedule.items():
        ended = [
            row.completed_at - row.started_at
            for row in rows
            if row.status in (RunStatus.COMPLETED, RunStatus.FAILED) and row.started_at and row.completed_at
        ][:LAST]
        if ended:
            averages[id] = max(sum(ended, timedelta(0)) / len(ended), timedelta(0)).total_seconds()
    return averages
