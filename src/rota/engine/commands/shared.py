"""Parts that several commands need: whose limits apply, finding a record by what people call it, the audit, and
receipts of requests that are done once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ...domain import alarm, keys, serving, template, tenants, workflow
from ...domain.errors import NotFound, Refused
from ...domain.ids import derived_id
from ...domain.model import (
    Alarm,
    ApiKey,
    Calendar,
    Event,
    Limits,
    PausedQueue,
    Receipt,
    Record,
    Run,
    RunStatus,
    RunTrigger,
    Schedule,
    Task,
    TaskStatus,
    Template,
    TemplateTarget,
    Tenant,
    TenantStatus,
)
from ...domain.recurrence import Covered
from ...domain.schedule import calendars, definition, run
from ...domain.workflow import Step, Tries
from ...stores.base import Tx, Work
from ...stores.queries import (
    Cursor,
    LatestRuns,
    LiveTasks,
    OpenSchedules,
    Query,
    ScheduleByKey,
    TaskList,
    TemplateByAlias,
)
from ..work import as_work

R = TypeVar("R", bound=Record)
DEFAULT_LIMITS = Limits()
LIVE_AT_MOST = 10_000
"""So many live tasks of a schedule are looked at."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def find_every(
    tx: Tx, query: Query[R], page: int = 1000, behind: Callable[[R], str | Cursor] = attrgetter("id")
) -> list[R]:
    """All that a listing finds, read page by page; `behind` is where a listing goes on after a record."""
    found: list[R] = []
    while True:
        some = await tx.find(query, page)
        found += some
        if len(some) < page:
            return found
        query = replace(query, after=behind(some[-1]))


async def latest_runs(tx: Tx, schedule_ids: Sequence[str], most: int) -> dict[str, list[Run]]:
    """Of each of these schedules the latest rows of the ledger, at most so many, latest first."""
    rows: dict[str, list[Run]] = {id: [] for id in schedule_ids}
    query = LatestRuns(schedule_ids=tuple(schedule_ids), most=most)
    for row in await tx.find(query, most * len(rows)) if rows else ():
        rows[row.schedule_id].append(row)
    return rows


async def read_now(tx: Tx, rows: Sequence[Run]) -> list[Run]:
    """The rows as they read now: one whose task has expired says so, whether or not that was swept yet."""
    ids = [row.target_id for row in rows if row.status is RunStatus.RUNNING and row.target_id is not None]
    tasks = await tx.get_many(Task, ids) if ids else {}
    return [run.as_of(row, tasks.get(row.target_id or ""), tx.now) for row in rows]


def cursor_behind(record: Schedule | Task) -> Cursor:
    return Cursor(at=record.created_at, id=record.id)


def next_page(page: Sequence[Schedule | Task], limit: int) -> Cursor | None:
    """Where the page after this one begins; None: this was the last."""
    return cursor_behind(page[-1]) if len(page) == limit else None


def check_version(record: str, id: str, found: int, expected: int | None) -> None:
    """Refused, if someone else has changed the record since the version that the caller saw (None: any)."""
    if expected is not None and expected != found:
        raise Refused("stale_version", record=record, id=id, found=found, expected=expected)


async def limits_of(tx: Tx, tenant: str) -> Limits:
    """The limits of a tenant that may act; a tenant without a record has the default ones."""
    record = await tx.get(Tenant, tenant)
    return DEFAULT_LIMITS if record is None else tenants.limits_of(record)


async def room_for_tasks(tx: Tx, tenant: str, limits: Limits) -> int | None:
    """How many more tasks may be pending; None: any number. Only a tenant with such a limit pays for the count."""
    most = limits.pending_tasks
    if most is None:
        return None
    pending = TaskList(tenant=tenant, at=tx.now, status=TaskStatus.PENDING)
    return most - await tx.count(pending, at_most=most)


async def check_room_for_tasks(tx: Tx, tenant: str, limits: Limits, wanted: int = 1) -> None:
    room = await room_for_tasks(tx, tenant, limits) if wanted else None
    if room is not None and room < wanted:
        assert limits.pending_tasks is not None
        raise tenants.limit_reached(tenant, "pending tasks", limits.pending_tasks, wanted if room else 1)


async def check_room_for_schedules(tx: Tx, tenant: str, limits: Limits, wanted: int) -> None:
    """Schedules are counted with a lock, so that many that are added at once cannot pass the limit together."""
    if wanted:
        room = limits.schedules - await tx.count(OpenSchedules(tenant=tenant), lock=True)
        if room < wanted:
            raise tenants.limit_reached(tenant, "schedules", limits.schedules, wanted if room > 0 else 1)


async def live_tasks(
    tx: Tx, schedules: Iterable[Schedule], written: Iterable[Task] = ()
) -> dict[str, list[Task]]:
    """The live tasks of these schedules, by the id of the schedule. `written` are as this work will write them."""
    live: dict[str, list[Task]] = defaultdict(list, {schedule.id: [] for schedule in schedules})
    if not live:
        return live
    found = await tx.find(LiveTasks(schedule_ids=tuple(live)), LIVE_AT_MOST)
    for task in {task.id: task for task in (*found, *written)}.values():
        if task.schedule_id in live and task.as_of(tx.now).is_live:
            live[task.schedule_id].append(task)
    return live


async def find_task(tx: Tx, tenant: str, id: str) -> Task:
    task = await tx.get(Task, id)
    if task is None or task.tenant != tenant:
        raise NotFound("task", id)
    return task


async def find_schedule(tx: Tx, tenant: str, key: str, *, deleted: bool = False) -> Schedule:
    """The schedule with this key, or this id. What looks like an id is one first, whatever another is called; what does
    not may still be one that a program made."""
    lookups = (_by_id, _by_key) if _ID.fullmatch(key) else (_by_key, _by_id)
    for look_up in lookups:
        found = await look_up(tx, tenant, key, deleted)
        if found is not None:
            return found
    raise NotFound("schedule", key)


async def _by_id(tx: Tx, tenant: str, id: str, deleted: bool) -> Schedule | None:
    found = await tx.get(Schedule, id)
    is_it = found is not None and found.tenant == tenant and (found.deleted_at is not None) == deleted
    return found if is_it else None


async def _by_key(tx: Tx, tenant: str, key: str, deleted: bool) -> Schedule | None:
    found = await tx.find(ScheduleByKey(tenant=tenant, key=key, deleted=deleted), 1)
    return found[0] if found else None


async def find_any_schedule(tx: Tx, tenant: str, key: str) -> Schedule:
    """Living, or else deleted: the ledger of a deleted schedule can still be read."""
    try:
        return await find_schedule(tx, tenant, key)
    except NotFound:
        return await find_schedule(tx, tenant, key, deleted=True)


async def find_template(tx: Tx, tenant: str, id: str) -> Template:
    """The template with this id, or else with this alias."""
    by_id = await tx.get(Template, id)
    if by_id is not None and by_id.tenant == tenant:
        return by_id
    found = await tx.find(TemplateByAlias(tenant=tenant, alias_key=template.alias_key(id)), 1)
    if not found:
        raise NotFound("template", id)
    return found[0]


async def find_calendar(tx: Tx, tenant: str, name: str, *, lock: bool = True) -> Calendar:
    id = calendars.calendar_id(tenant, name)
    found = (await tx.get_many(Calendar, [id], lock=lock)).get(id)
    if found is None:
        raise NotFound("calendar", name)
    return found


async def templates_of(tx: Tx, due: Sequence[Schedule]) -> dict[str, Template]:
    ids = {found.target.template_id for found in due if isinstance(found.target, TemplateTarget)}
    return await tx.get_many(Template, ids)


def template_of(found: Schedule, templates: Mapping[str, Template]) -> Template | None:
    if not isinstance(found.target, TemplateTarget):
        return None
    template = templates.get(found.target.template_id)
    return template if template is not None and template.tenant == found.tenant else None


class Starter(msgspec.Struct, frozen=True):
    """Starts runs of some schedules at `now`: it has their templates, and their tenants with their limits."""

    now: datetime
    tenants: Mapping[str, Tenant]
    _templates: Mapping[str, Template]

    @classmethod
    async def of(cls, tx: Tx, schedules: Sequence[Schedule]) -> Starter:
        tenants = await tx.get_many(Tenant, {each.tenant for each in schedules})
        return cls(tx.now, tenants, await templates_of(tx, schedules))

    def start(
        self,
        id: str,
        of: Schedule,
        at: datetime,
        trigger: RunTrigger,
        actor: str,
        before: int = 0,
        *,
        waited: Run | None = None,
    ) -> tuple[Run, Task | None]:
        template, limits = template_of(of, self._templates), self.limits(of.tenant)
        return run.start(id, of, at, trigger, template, self.now, limits, actor, before, waited=waited)

    def limits(self, tenant: str) -> Limits:
        known = self.tenants.get(tenant)
        return DEFAULT_LIMITS if known is None else known.limits

    def is_suspended(self, tenant: str) -> bool:
        return tenant in self.tenants and self.tenants[tenant].status is TenantStatus.SUSPENDED


async def sets_named(tx: Tx, tenant: str, names: Iterable[str]) -> tuple[Covered, ...]:
    """The days and windows that the calendars of these names cover. A name that is no calendar is left out. The
    calendars are locked: a work that changes one waits, and then finds the records that this work writes."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return ()
    known = await tx.get_many(Calendar, [calendars.calendar_id(tenant, each) for each in wanted], lock=True)
    return calendars.sets_of(wanted, known.values())


T = TypeVar("T")
_Subject = TypeVar("_Subject", Schedule, Template, Tenant, ApiKey, PausedQueue, Calendar, Alarm)
_FACTS: dict[type[Any], tuple[str, Callable[[Any], dict[str, Any]]]] = {
    Schedule: ("schedule", definition.as_facts),
    Template: ("template", template.as_facts),
    Tenant: ("tenant", tenants.as_facts),
    ApiKey: ("key", keys.as_facts),
    PausedQueue: ("queue", serving.as_facts),
    Calendar: ("calendar", calendars.as_facts),
    Alarm: ("alarm", alarm.as_facts),
}


def put_audited(
    tx: Tx,
    action: str,
    actor: str,
    before: _Subject | None,
    after: _Subject,
    detail: str = "",
    *,
    act: str = "",
) -> _Subject:
    """Write it, with one line of its history."""
    stored = tx.put(after, was=before)
    audit(tx, action, actor, before, stored, detail, act=act)
    return stored


def audit(
    tx: Tx,
    action: str,
    actor: str,
    before: _Subject | None,
    after: _Subject | None,
    detail: str = "",
    *,
    act: str = "",
) -> None:
    """One line of the subject's history. Its id follows from the new version of the subject, or from `act`, an id of
    the deed, if there is no new version. So it is harmless to repeat."""
    subject = after or before
    assert subject is not None
    what, facts = _FACTS[type(subject)]
    version = subject.version if after is not None else subject.version + 1
    about: tuple[str, ...] = (
        () if what == "schedule" else (what,)
    )  # a tenant's id is a name, and might be anyone's
    if isinstance(subject, Calendar):
        about = (
            what,
            subject.created_at.isoformat(),
        )  # its id follows from its name, which can be given again
    tx.emit(
        Event(
            id=derived_id(*about, subject.id, action, act or str(version)),
            tenant=subject.tenant,
            at=tx.now,
            actor=actor,
            action=action,
            subject_type=what,
            subject_id=subject.id,
            detail=detail,
            before=None if before is None else facts(before),
            after=None if after is None else facts(after),
        )
    )


@as_work
async def once(
    tx: Tx,
    receipt_id: str,
    tenant: str,
    fingerprint: str,
    work: Work[T],
    answer: Callable[[T], tuple[int, Any]],
) -> tuple[int, Any]:
    """Do the work and keep its answer (a status and JSON, made by `answer`, which is pure); or, if this was done
    before, only give the answer again. `receipt_id` follows from tenant and key, `fingerprint` from the request: the
    same key for another request is refused. What is refused leaves no receipt."""
    known = await tx.get(Receipt, receipt_id)
    if known is not None:
        if known.tenant != tenant or known.fingerprint != fingerprint:
            raise Refused("idempotency_reused", receipt=receipt_id)
        return known.status, known.answer
    status, body = answer(await work(tx))
    tx.put(
        Receipt(id=receipt_id, tenant=tenant, at=tx.now, fingerprint=fingerprint, status=status, answer=body)
    )
    return status, body


@as_work
async def write_receipt(tx: Tx, id: str) -> Receipt:
    """Write a receipt for no request, to see whether writing works. `remove_receipt` takes it away again; retention
    would, too."""
    return tx.put(Receipt(id=id, at=tx.now, fingerprint="doctor", status=200))


@as_work
async def remove_receipt(tx: Tx, receipt: Receipt) -> None:
    tx.delete(receipt)


class RecordedSteps:
    """The steps that were tried, as they are recorded. The first run of a work trusts what the worker knows, since
    versions and ids will disprove it (that saves PostgreSQL 2 of 11 statements for a workflow of three steps); a later
    run reads them."""

    def __init__(self, tried: Iterable[tuple[Task, Tries]]) -> None:
        tried = [each for each in tried if each[1].results]
        self._ids = [workflow.step_id(task, result.key) for task, tries in tried for result in tries.results]
        self._known = {step.id: step for _, tries in tried for step in tries.known}
        self._is_first = True

    async def read(self, tx: Tx) -> Mapping[str, Step]:
        trusts, self._is_first = self._is_first, False
        if trusts or not self._ids:
            return self._known
        return await tx.get_many(Step, self._ids)
