"""Every question that the product asks of a store, each as a work for `store.read`: about tasks, schedules and runs
first, then about tenants, their keys, their templates and the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ..domain import artifact, recurrence
from ..domain.errors import NotFound
from ..domain.model import (
    Alarm,
    AlarmRules,
    ApiKey,
    Artifact,
    Event,
    Limit,
    Run,
    RunTrigger,
    Schedule,
    Task,
    Template,
    TemplateTarget,
    Tenant,
    TenantStatus,
)
from ..domain.schedule import run
from ..domain.schedule.why import Why, check_near, explain, meant
from ..domain.serving import living, nobody_handles
from ..domain.workflow import Step
from ..stores.base import Tx, Work
from ..stores.queries import (
    AlarmList,
    ApiKeyList,
    ArtifactList,
    ArtifactsByContent,
    Cursor,
    EventList,
    GateList,
    LiveTasks,
    OpenSchedules,
    OpenTasks,
    RunList,
    ScheduleList,
    TaskList,
    TasksByBeginning,
    TemplateList,
    TenantList,
)
from .commands.chains import links_of
from .commands.line import LIVE_AT_MOST
from .commands.nodes import every_node
from .commands.shared import find_schedule, find_task, find_template
from .commands.tenants import find_tenant
from .commands.workflows import steps_of
from .serving import wait_of

__all__ = [
    "Occurrence",
    "TenantUse",
    "alarm_page",
    "alarm_rules",
    "are_gates_under",
    "artifacts_of",
    "count_matching",
    "event_page",
    "explained_runs",
    "key_page",
    "last_runs",
    "named_contents",
    "next_times",
    "one_artifact",
    "one_schedule",
    "one_task",
    "one_template",
    "one_tenant",
    "open_schedules",
    "schedule_events",
    "schedule_page",
    "schedule_runs",
    "steps_of_task",
    "task_limits",
    "task_list",
    "task_page",
    "tasks_by_beginning",
    "template_page",
    "tenants_in_use",
    "upcoming",
    "why",
]

EVENTS_AT_ONCE = 1000
GATES_AT_ONCE = 1000


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which a schedule will fire: in UTC, on the clock of its zone, and what daylight saving does to it."""

    at: datetime
    local: datetime
    dst: str | None = None


def one_task(tenant: str, id: str) -> Work[Task]:
    async def work(tx: Tx) -> Task:
        return (await find_task(tx, tenant, id)).as_of(tx.now)

    return work


def tasks_by_beginning(tenant: str, beginning: str, limit: int) -> Work[list[Task]]:
    """The newest tasks whose ids begin so."""

    async def work(tx: Tx) -> list[Task]:
        return await tx.find(TasksByBeginning(tenant=tenant, beginning=beginning), limit)

    return work


def some_tasks(tenant: str, ids: Collection[str]) -> Work[dict[str, Task]]:
    """Those that there are, by id."""

    async def work(tx: Tx) -> dict[str, Task]:
        found = await tx.get_many(Task, ids)
        return {id: task.as_of(tx.now) for id, task in found.items() if task.tenant == tenant}

    return work


def artifacts_of(tenant: str, id: str) -> Work[list[Artifact]]:
    """What a task left, by name; before that what its handler returned, if that is anything."""

    async def work(tx: Tx) -> list[Artifact]:
        task = await find_task(tx, tenant, id)
        found = await tx.find(ArtifactList(task_ids=(task.id,)), artifact.MOST_OF_TASK)
        result = artifact.result_of(task)
        return found if result is None else [result, *found]

    return work


def one_artifact(tenant: str, id: str, name: str) -> Work[Artifact | None]:
    async def work(tx: Tx) -> Artifact | None:
        task = await find_task(tx, tenant, id)
        if name == artifact.RESULT:
            return artifact.result_of(task)
        return await tx.get(Artifact, artifact.id_of(task.id, name))

    return work


def named_contents(keys: Sequence[str]) -> Work[set[str]]:
    """Those of the contents that a record names."""

    async def work(tx: Tx) -> set[str]:
        found = await tx.find(ArtifactsByContent(contents=tuple(keys)), len(keys))
        return {each.content for each in found if each.content is not None}

    return work


def steps_of_task(tenant: str, id: str) -> Work[list[Step]]:
    """What a workflow did and waits for, oldest first."""

    async def work(tx: Tx) -> list[Step]:
        return await steps_of(await find_task(tx, tenant, id))(tx)

    return work


def task_page(tenant: str, limit: int, **filters: Any) -> Work[list[Task]]:
    """The newest tasks that match; `schedule` is a schedule's key or id."""

    async def work(tx: Tx) -> list[Task]:
        query = await task_list(tx, tenant, filters)
        return [task.as_of(tx.now) for task in await tx.find(query, limit)]

    return work


def count_matching(tenant: str, at_most: int | None = None, **filters: Any) -> Work[int]:
    async def work(tx: Tx) -> int:
        return await tx.count(await task_list(tx, tenant, filters), at_most=at_most)

    return work


async def task_list(tx: Tx, tenant: str, filters: dict[str, Any]) -> TaskList:
    chosen = dict(filters)
    key = chosen.pop("schedule", None)
    if key is not None:
        chosen["schedule_id"] = (await _any_schedule(tx, tenant, key)).id
    return TaskList(tenant=tenant, at=tx.now, **chosen)


async def _any_schedule(tx: Tx, tenant: str, key: str) -> Schedule:
    """Living, or else deleted: the ledger of a deleted schedule can still be read."""
    try:
        return await find_schedule(tx, tenant, key)
    except NotFound:
        return await find_schedule(tx, tenant, key, deleted=True)


def task_query(tenant: str, **filters: Any) -> Work[TaskList]:
    """The listing itself, a schedule's key resolved: for commands that act on what it finds."""

    async def work(tx: Tx) -> TaskList:
        return await task_list(tx, tenant, filters)

    return work


def deleted_schedule(tenant: str, key: str) -> Work[Schedule]:
    async def work(tx: Tx) -> Schedule:
        return await find_schedule(tx, tenant, key, deleted=True)

    return work


def one_schedule(tenant: str, key: str) -> Work[Schedule]:
    async def work(tx: Tx) -> Schedule:
        return await find_schedule(tx, tenant, key)

    return work


def schedule_page(query: ScheduleList, limit: int) -> Work[list[Schedule]]:
    async def work(tx: Tx) -> list[Schedule]:
        return await tx.find(query, limit)

    return work


def schedule_runs(tenant: str, key: str, limit: int, **filters: Any) -> Work[list[Run]]:
    async def work(tx: Tx) -> list[Run]:
        schedule = await _any_schedule(tx, tenant, key)
        return await _ledger(tx, RunList(schedule_id=schedule.id, **filters), limit)

    return work


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
    rows = await tx.get_many(Run, expired) if expired else {}
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


def schedule_events(tenant: str, key: str) -> Work[list[Event]]:
    """Every change of the schedule, oldest first: who, when, before, after. Also of one that is deleted."""

    async def work(tx: Tx) -> list[Event]:
        schedule = await _any_schedule(tx, tenant, key)
        return await _events(tx, schedule)

    return work


async def _events(tx: Tx, schedule: Schedule) -> list[Event]:
    events: list[Event] = []
    after = None
    while True:
        query = EventList(tenant=schedule.tenant, subject_id=schedule.id, after=after)
        page = await tx.find(query, EVENTS_AT_ONCE)
        events += page
        if len(page) < EVENTS_AT_ONCE:
            return sorted(events, key=lambda event: (event.at, _version(event)))
        after = Cursor(page[-1].at, page[-1].id)


def _version(event: Event) -> int:
    """The version of the schedule that the event made: in order also where the clock stood still."""
    version: int = (event.after or event.before or {}).get("version", 0)
    return version


def upcoming(tenant: str, key: str, n: int) -> Work[list[Occurrence]]:
    """The next times of a schedule. One that is not active has those that it would have if it were resumed now."""

    async def work(tx: Tx) -> list[Occurrence]:
        return next_times(await find_schedule(tx, tenant, key), tx.now, n)

    return work


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


def why(tenant: str, key: str, at: datetime) -> Work[Why]:
    """What became of an expected time. A naive `at` is read on the clock of the schedule's zone."""

    async def work(tx: Tx) -> Why:
        schedule = await _any_schedule(tx, tenant, key)
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

    return work


async def _waiting(tx: Tx, schedule: Schedule, row: Run | None) -> str | None:
    """What the task of this row waits for; without one, that nobody handles what the schedule would start."""
    if row is not None:
        task = None if row.target_id is None else await tx.get(Task, row.target_id)
        return None if task is None else await wait_of(tx, task)
    target = schedule.target
    started = await tx.get(Template, target.template_id) if isinstance(target, TemplateTarget) else target
    if started is None:
        return None
    alive = living(await every_node(tx), tx.now)
    return nobody_handles(alive, schedule.tenant, started.kind, started.queue)


def explained_runs(tenant: str, key: str, limit: int) -> Work[list[Why]]:
    """The latest rows of the ledger, oldest first, each with what `why` says of its time."""

    async def work(tx: Tx) -> list[Why]:
        schedule = await _any_schedule(tx, tenant, key)
        rows = await _ledger(tx, RunList(schedule_id=schedule.id), limit)
        links = {row.id: await links_of(tx, schedule, row) for row in rows if row.causes or row.effects}
        return [
            explain(schedule, row.scheduled_at, row, tx.now, [], linked=links.get(row.id, ()))
            for row in reversed(rows)
        ]

    return work


def last_runs(schedules: Sequence[Schedule], limit: int) -> Work[dict[str, list[Run]]]:
    """The latest rows of the ledger of each schedule, by its id, oldest first."""

    async def work(tx: Tx) -> dict[str, list[Run]]:
        found = {}
        for schedule in schedules:
            found[schedule.id] = (await tx.find(RunList(schedule_id=schedule.id), limit))[::-1]
        return found

    return work


async def _row_at(tx: Tx, schedule: Schedule, at: datetime) -> Run | None:
    """The row for this time, or the one whose stretch covers it, or else a manual run of that second."""
    exact = await tx.get(Run, run.run_id(schedule, at))
    if exact is not None:
        return await _read_now(tx, exact)
    earlier = await tx.find(RunList(schedule_id=schedule.id, until=at + timedelta(seconds=1)), 20)
    for row in earlier:
        if row.until is not None and row.scheduled_at <= at <= row.until:
            return row
        beside = row.trigger is RunTrigger.MANUAL or isinstance(schedule.timing, recurrence.After)
        if beside and abs(row.scheduled_at - at) < timedelta(seconds=1):
            return await _read_now(tx, row)
    return None


async def _read_now(tx: Tx, row: Run) -> Run:
    task = None if row.target_id is None else await tx.get(Task, row.target_id)
    return run.as_of(row, task, tx.now)


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


def open_schedules(tenant: str) -> Work[int]:
    """How many are neither deleted nor completed: a number that every store keeps."""

    async def work(tx: Tx) -> int:
        return await tx.count(OpenSchedules(tenant=tenant))

    return work


def count_schedules(query: ScheduleList) -> Work[int]:
    async def work(tx: Tx) -> int:
        return await tx.count(query)

    return work


def template_named(tenant: str, name: str) -> Work[str]:
    """The id of the template that is called so, by id or alias; the name itself if there is none."""

    async def work(tx: Tx) -> str:
        try:
            return (await find_template(tx, tenant, name)).id
        except NotFound:
            return name

    return work


TENANTS_AT_ONCE = 1000


class TenantUse(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, and how much there is of it now: living schedules, tasks that are pending or running. One that has
    no record of its own (`version` 0) is shown with the default limits."""

    tenant: Tenant
    schedules: int
    open_tasks: int


def one_template(tenant: str, id: str) -> Work[Template]:
    async def work(tx: Tx) -> Template:
        return await find_template(tx, tenant, id)

    return work


def template_page(tenant: str, limit: int, after: str | None = None) -> Work[list[Template]]:
    """The newest first; `after` is the id of the last one seen."""

    async def work(tx: Tx) -> list[Template]:
        return await tx.find(TemplateList(tenant=tenant, after=after), limit)

    return work


def key_page(tenant: str | None, limit: int, after: str | None = None) -> Work[list[ApiKey]]:
    """The newest first, revoked ones too; of the tenant (None: of any, and those to every tenant)."""

    async def work(tx: Tx) -> list[ApiKey]:
        return await tx.find(ApiKeyList(tenant=tenant, after=after), limit)

    return work


def one_tenant(name: str) -> Work[Tenant]:
    """Its record, or what stands for one that is only used."""

    async def work(tx: Tx) -> Tenant:
        return await find_tenant(tx, name)

    return work


def tenants_in_use() -> Work[list[TenantUse]]:
    """Every tenant that has a record, a living schedule or an open task; by name."""

    async def work(tx: Tx) -> list[TenantUse]:
        known = {tenant.id: tenant for tenant in await _every_tenant(tx)}
        schedules = await tx.tally(ScheduleList(tenant=None), "tenant")
        tasks = await tx.tally(OpenTasks(), "tenant")
        names = known.keys() | {name for (name,) in (*schedules, *tasks)}
        return [
            TenantUse(
                tenant=known.get(name) or Tenant(id=name, tenant=name, created_at=tx.now),
                schedules=schedules.get((name,), 0),
                open_tasks=tasks.get((name,), 0),
            )
            for name in sorted(names)
        ]

    return work


async def _every_tenant(tx: Tx) -> list[Tenant]:
    found: list[Tenant] = []
    while True:
        after = found[-1].id if found else None
        page = await tx.find(TenantList(after=after), TENANTS_AT_ONCE)
        found += page
        if len(page) < TENANTS_AT_ONCE:
            return found


def event_page(
    tenant: str, limit: int, subject_id: str | None = None, after: Cursor | None = None
) -> Work[list[Event]]:
    """What people did, oldest first."""

    async def work(tx: Tx) -> list[Event]:
        return await tx.find(EventList(tenant=tenant, subject_id=subject_id, after=after), limit)

    return work


def alarm_page(
    tenant: str, limit: int, schedule: str | None = None, *, is_open: bool = True, after: Cursor | None = None
) -> Work[list[Alarm]]:
    """Alarms, newest first; of a schedule, by its key or id, deleted or not."""

    async def work(tx: Tx) -> list[Alarm]:
        subject = None if schedule is None else (await _any_schedule(tx, tenant, schedule)).id
        return await tx.find(
            AlarmList(tenant=tenant, subject_id=subject, is_open=is_open, after=after), limit
        )

    return work


def alarm_rules(tenant: str) -> Work[dict[str, AlarmRules]]:
    async def work(tx: Tx) -> dict[str, AlarmRules]:
        record = await tx.get(Tenant, tenant)
        return {} if record is None else dict(record.alarm_rules)

    return work


def task_limits(tenant: str) -> Work[dict[str, Limit]]:
    """The limits of its tasks, by what they limit."""

    async def work(tx: Tx) -> dict[str, Limit]:
        record = await tx.get(Tenant, tenant)
        return {} if record is None else record.limits.tasks

    return work


def are_gates_under(tenant: str, subject: str, limit: Limit) -> Work[bool]:
    """Whether every gate of the subject has this limit."""

    async def work(tx: Tx) -> bool:
        after = None
        while page := await tx.find(GateList(tenant=tenant, subject=subject, after=after), GATES_AT_ONCE):
            if any(found.limit != limit for found in page):
                return False
            after = page[-1].id
        return True

    return work
