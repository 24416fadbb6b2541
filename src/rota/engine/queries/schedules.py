"""Questions about schedules: their pages, their ledgers, their next times, and why a time was as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from ...domain import recurrence
from ...domain.errors import NotFound
from ...domain.model import (
    Event,
    Run,
    RunTrigger,
    Schedule,
    Task,
    Template,
    TemplateTarget,
    Tenant,
    TenantStatus,
)
from ...domain.schedule import run
from ...domain.schedule.why import Why, check_near, explain, meant
from ...domain.serving import nobody_handles
from ...stores.base import Tx
from ...stores.queries import (
    Cursor,
    EventList,
    LiveTasks,
    RunList,
    ScheduleList,
    SchedulesByBeginning,
    SchedulesByName,
    SchedulesByNextTime,
)
from ..commands.chains import links_of
from ..commands.serving import every_node
from ..commands.shared import (
    LIVE_AT_MOST,
    find_any_schedule,
    find_every,
    find_schedule,
    latest_runs,
    read_now,
)
from ..work import as_work
from .serving import wait_of

OrderedSchedules = ScheduleList | SchedulesByName | SchedulesByNextTime


class ScheduleOrder(StrEnum):
    """The order in which schedules are listed: the newest first, by name, or by when they are due next."""

    NEWEST = "newest"
    NAME = "name"
    NEXT = "next"


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which a schedule will fire: in UTC, on the clock of its zone, and what daylight saving does to it."""

    at: datetime
    local: datetime
    dst: str | None = None


@as_work
async def deleted_schedule(tx: Tx, tenant: str, key: str) -> Schedule:
    return await find_schedule(tx, tenant, key, deleted=True)


@as_work
async def one_schedule(tx: Tx, tenant: str, key: str, *, deleted: bool = False) -> Schedule:
    """A living one, by its key or its id; with `deleted`, a deleted one too: by its id, since its key is free."""
    found = await find_any_schedule(tx, tenant, key) if deleted else await find_schedule(tx, tenant, key)
    if found.deleted_at is not None and found.id != key:
        raise NotFound("schedule", key)
    return found


@as_work
async def number_of_runs(tx: Tx, tenant: str, key: str) -> int:
    """How long the ledger of a schedule is, living or else deleted."""
    found = await find_any_schedule(tx, tenant, key)
    return await tx.count(RunList(schedule_id=found.id))


@as_work
async def schedules_by_beginning(tx: Tx, tenant: str, beginning: str, limit: int) -> list[Schedule]:
    """The schedules whose ids begin so, living or deleted; none, if this is the name or the id of one."""
    try:
        await find_any_schedule(tx, tenant, beginning)
    except NotFound:
        return await tx.find(SchedulesByBeginning(tenant=tenant, beginning=beginning), limit)
    return []


LOOKED_THROUGH = 10_000
"""A search looks through so many schedules, the first in its order, before one has to ask for all of them."""


@as_work
async def first_schedules(tx: Tx, query: OrderedSchedules, limit: int) -> tuple[list[Schedule], int | None]:
    """The first schedules that match, and among how many of the first they were looked for; None: among all. A filter
    that rarely matches would read every schedule there is: without one, the first page is found at once."""
    first = None
    if _may_match_rarely(query):
        every = ScheduleList(tenant=query.tenant, deleted=True)
        if await tx.count(every, at_most=LOOKED_THROUGH + 1) > LOOKED_THROUGH:
            first = LOOKED_THROUGH
    if isinstance(query, ScheduleList):
        return await tx.find(replace(query, newest=first), limit), first
    return await tx.find(replace(query, first=first), limit), first


def _may_match_rarely(query: OrderedSchedules) -> bool:
    """By status only the newest have an index."""
    has_status = query.status is not None and not isinstance(query, ScheduleList)
    named = (query.kind, query.template_id, query.tag, query.timezone, query.text)
    return has_status or any(named)


@as_work
async def schedule_runs(tx: Tx, /, tenant: str, key: str, limit: int, **filters: Any) -> list[Run]:
    schedule = await find_any_schedule(tx, tenant, key)
    return await _ledger(tx, RunList(schedule_id=schedule.id, **filters), limit)


async def _ledger(tx: Tx, query: RunList, limit: int) -> list[Run]:
    """The rows as they read now: a row whose task has expired says so, whether or not that was swept yet. A filter by
    status goes by what is read."""
    moved = await _unswept(tx, query.schedule_id)
    if not moved:
        return await tx.find(query, limit)
    rows = {row.id: row for row in await tx.find(query, limit + len(moved))}
    rows |= {row.id: row for row in moved if row.id in rows or _is_in(row, query)}
    read = [row for row in rows.values() if query.status in (None, row.status)]
    return sorted(read, key=lambda row: (row.scheduled_at, row.id), reverse=True)[:limit]


async def _unswept(tx: Tx, schedule_id: str) -> list[Run]:
    """The rows that read as ended because their tasks have expired, though nobody has marked them."""
    live = await tx.find(LiveTasks(schedule_ids=(schedule_id,)), LIVE_AT_MOST)
    expired = {task.run_id: task for task in live if task.run_id and task.is_expired_at(tx.now)}
    rows = await tx.get_many(Run, expired)
    return [run.as_of(row, expired[row.id], tx.now) for row in rows.values()]


def _is_in(row: Run, query: RunList) -> bool:
    """Whether a listing that asks for the status of this row would have it on its first page."""
    after = query.after
    return (
        query.status is row.status
        and (query.since is None or row.scheduled_at >= query.since)
        and (query.until is None or row.scheduled_at <= query.until)
        and (after is None or (row.scheduled_at, row.id) < (after.at, after.id))
    )


@as_work
async def schedule_events(tx: Tx, tenant: str, key: str) -> list[Event]:
    """Every change of the schedule, oldest first: who, when, before, after. Also of one that is deleted."""
    schedule = await find_any_schedule(tx, tenant, key)
    return await _events(tx, schedule)


async def _events(tx: Tx, schedule: Schedule) -> list[Event]:
    query = EventList(tenant=schedule.tenant, subject_id=schedule.id)
    events = await find_every(tx, query, behind=lambda event: Cursor(event.at, event.id))
    return sorted(events, key=lambda event: (event.at, _version(event)))


def _version(event: Event) -> int:
    """The version of the schedule that the event made: in order also where the clock stood still."""
    version: int = (event.after or event.before or {}).get("version", 0)
    return version


@as_work
async def upcoming(tx: Tx, tenant: str, key: str, n: int) -> list[Occurrence]:
    """The next times of a schedule. If it is not active: its next times if it were resumed now."""
    return next_times(await find_schedule(tx, tenant, key), tx.now, n)


def next_times(schedule: Schedule, now: datetime, n: int) -> list[Occurrence]:
    left = n if schedule.max_runs is None else min(n, schedule.max_runs - schedule.run_count)
    after = now
    if schedule.pause_until is not None:
        after = max(now, schedule.pause_until)
    if schedule.next_run_at is not None:
        after = schedule.next_run_at - timedelta(microseconds=1)
    if isinstance(schedule.timing, recurrence.After):
        at = schedule.next_run_at
        return [] if at is None else [Occurrence(at=at, local=at)]
    return _occurrences(schedule.timing, after, left, schedule.next_occurrence)


def occurrences(
    timing: recurrence.Timing,
    after: datetime,
    n: int,
    start_at: datetime | None = None,
    end_at: datetime | None = None,
) -> list[Occurrence]:
    bounds = {"start_at": start_at, "end_at": end_at}
    return _occurrences(timing, after, n, lambda since: recurrence.next_after(timing, since, **bounds))


def _occurrences(
    timing: recurrence.Timing, after: datetime, n: int, following: Callable[[datetime], datetime | None]
) -> list[Occurrence]:
    found: list[Occurrence] = []
    while len(found) < n:
        at = following(after)
        if at is None:
            break
        found.append(
            Occurrence(at=at, local=recurrence.local(timing, at), dst=recurrence.dst_note(timing, at))
        )
        after = at
    return found


@as_work
async def why(tx: Tx, tenant: str, key: str, at: datetime) -> Why:
    """The explanation of an expected time. A naive `at` is read on the clock of the schedule's zone."""
    schedule = await find_any_schedule(tx, tenant, key)
    instant = at if at.tzinfo else recurrence.on_clock(at, schedule.timezone)
    check_near(schedule, instant, tx.now)
    instant = meant(schedule, instant)
    row = await _row_at(tx, schedule, instant)
    pauses = _pauses(await _events(tx, schedule))
    owner = await tx.get(Tenant, tenant)
    suspended = owner is not None and owner.status is TenantStatus.SUSPENDED
    waiting = await _waiting(tx, schedule, row)
    linked = [] if row is None else await links_of(tx, schedule, row)
    return explain(
        schedule, instant, row, tx.now, pauses, suspended=suspended, waiting=waiting, linked=linked
    )


async def _waiting(tx: Tx, schedule: Schedule, row: Run | None) -> str | None:
    """Why the task of this row waits. Without a row: a sentence if no worker handles the kind that the schedule
    starts."""
    if row is not None:
        task = None if row.target_id is None else await tx.get(Task, row.target_id)
        return None if task is None else await wait_of(tx, task)
    target = schedule.target
    started = await tx.get(Template, target.template_id) if isinstance(target, TemplateTarget) else target
    if started is None:
        return None
    return nobody_handles(await every_node(tx), tx.now, schedule.tenant, started.kind, started.queue)


@as_work
async def explained_runs(tx: Tx, tenant: str, key: str, limit: int) -> list[Why]:
    """The latest rows of the ledger, oldest first, each with what `why` says of its time."""
    schedule = await find_any_schedule(tx, tenant, key)
    rows = await _ledger(tx, RunList(schedule_id=schedule.id), limit)
    links = {row.id: await links_of(tx, schedule, row) for row in rows if row.causes or row.effects}
    return [
        explain(schedule, row.scheduled_at, row, tx.now, [], linked=links.get(row.id, ()))
        for row in reversed(rows)
    ]


@as_work
async def last_runs(tx: Tx, schedules: Sequence[Schedule], limit: int) -> dict[str, list[Run]]:
    """The latest rows of the ledger of each schedule, by its id, oldest first."""
    found = await latest_runs(tx, [each.id for each in schedules], limit)
    rows: dict[str, list[Run]] = {id: [] for id in found}
    for row in await read_now(tx, [row for latest in found.values() for row in reversed(latest)]):
        rows[row.schedule_id].append(row)
    return rows


async def _row_at(tx: Tx, schedule: Schedule, at: datetime) -> Run | None:
    """The row for this time, or the one whose stretch covers it, or else a manual run of that second."""
    exact = await tx.get(Run, run.run_id(schedule, at))
    if exact is not None:
        return (await read_now(tx, [exact]))[0]
    earlier = await tx.find(RunList(schedule_id=schedule.id, until=at + timedelta(seconds=1)), 20)
    for row in earlier:
        if row.until is not None and row.scheduled_at <= at <= row.until:
            return row
        beside = row.trigger is RunTrigger.MANUAL or isinstance(schedule.timing, recurrence.After)
        if beside and abs(row.scheduled_at - at) < timedelta(seconds=1):
            return (await read_now(tx, [row]))[0]
    return None


def _pauses(events: Sequence[Event]) -> list[tuple[datetime, datetime | None, str, str | None]]:
    """The stretches in which the schedule was not active, from its history."""
    stretches: list[tuple[datetime, datetime | None, str, str | None]] = []
    since: Event | None = None
    for event in events:
        after = event.after or {}
        active = after.get("status", "active") == "active" and after.get("deleted_at") is None
        if active and since is not None:
            stretches.append((since.at, event.at, since.actor, since.detail or since.action))
            since = None
        elif not active and since is None:
            since = event
    if since is not None:
        stretches.append((since.at, None, since.actor, since.detail or since.action))
    return stretches
