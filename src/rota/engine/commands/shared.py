"""What several commands need: whose limits apply, the audit, receipts of requests that are done once, and how a task's
end reaches its run and its schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ...domain import alarm, keys, serving, template, tenants, workflow
from ...domain import task as life
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
    Run,
    RunStatus,
    Schedule,
    ScheduleStatus,
    Task,
    TaskStatus,
    Template,
    Tenant,
)
from ...domain.recurrence import Covered
from ...domain.schedule import after, backfill, calendars, definition, run, watching
from ...domain.workflow import Step
from ...stores.base import Tx, Work
from ...stores.queries import OpenSchedules, RunList, ScheduleByKey, StepList, TaskList, TemplateByAlias
from .chains import Told
from .gates import Gates
from .line import LIVE_AT_MOST, Move, WaitingLines

__all__ = [
    "RelatedRuns",
    "audit",
    "check_room_for_schedules",
    "check_room_for_tasks",
    "find_any_schedule",
    "find_schedule",
    "find_task",
    "find_template",
    "limits_of",
    "once",
    "room_for_tasks",
    "sets_named",
]

DEFAULT_LIMITS = Limits()
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


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
    """Whoever adds schedules counts with a lock, so that many at once cannot pass the limit together."""
    if wanted:
        room = limits.schedules - await tx.count(OpenSchedules(tenant=tenant), lock=True)
        if room < wanted:
            raise tenants.limit_reached(tenant, "schedules", limits.schedules, wanted if room > 0 else 1)


async def find_task(tx: Tx, tenant: str, id: str) -> Task:
    task = await tx.get(Task, id)
    if task is None or task.tenant != tenant:
        raise NotFound("task", id)
    return task


async def find_schedule(tx: Tx, tenant: str, key: str, *, deleted: bool = False) -> Schedule:
    """By its key, or by its id; what looks like an id is one first, whatever another schedule is called."""
    if _ID.fullmatch(key):
        by_id = await tx.get(Schedule, key)
        if by_id is not None and by_id.tenant == tenant and (by_id.deleted_at is not None) == deleted:
            return by_id
    found = await tx.find(ScheduleByKey(tenant=tenant, key=key, deleted=deleted), 1)
    if found:
        return found[0]
    schedule = await tx.get(Schedule, key)
    if schedule is None or schedule.tenant != tenant or (schedule.deleted_at is not None) != deleted:
        raise NotFound("schedule", key)
    return schedule


async def find_any_schedule(tx: Tx, tenant: str, key: str) -> Schedule:
    """Living, or else deleted: the ledger of a deleted schedule can still be read."""
    try:
        return await find_schedule(tx, tenant, key)
    except NotFound:
        return await find_schedule(tx, tenant, key, deleted=True)


async def find_template(tx: Tx, tenant: str, id: str) -> Template:
    """By its id, or else by its alias."""
    by_id = await tx.get(Template, id)
    if by_id is not None and by_id.tenant == tenant:
        return by_id
    found = await tx.find(TemplateByAlias(tenant=tenant, alias_key=template.alias_key(id)), 1)
    if not found:
        raise NotFound("template", id)
    return found[0]


async def sets_named(tx: Tx, tenant: str, names: Iterable[str]) -> tuple[Covered, ...]:
    """What the calendars of these names cover, and the windows among them. A name that is no calendar is left out. Who
    changes one of them meanwhile waits, and finds what is written here."""
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
    """One line of the subject's history. Its id follows from the version that it makes, or from `act`, the id of what
    was done, if that makes none: repeating is harmless."""
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


def once(
    receipt_id: str, tenant: str, fingerprint: str, work: Work[T], answer: Callable[[T], tuple[int, Any]]
) -> Work[tuple[int, Any]]:
    """Do the work and keep its answer (a status and JSON, made by `answer`, which is pure); or, if this was done
    before, only give the answer again. `receipt_id` follows from tenant and key, `fingerprint` from the request: the
    same key for another request is refused. What is refused leaves no receipt."""

    async def wrapped(tx: Tx) -> tuple[int, Any]:
        known = await tx.get(Receipt, receipt_id)
        if known is not None:
            if known.tenant != tenant or known.fingerprint != fingerprint:
                raise Refused("idempotency_reused", receipt=receipt_id)
            return known.status, known.answer
        status, body = answer(await work(tx))
        tx.put(
            Receipt(
                id=receipt_id, tenant=tenant, at=tx.now, fingerprint=fingerprint, status=status, answer=body
            )
        )
        return status, body

    return wrapped


class RelatedRuns:
    """What follows from the end of tasks, whatever the reason of it: their runs say how they ended, schedules pause if
    they are to, times that wait begin, schedules that come after them are told, a workflow gets the answer of its
    child, the children of a workflow do not outlive it, and the gates of limits let in the next. All of it is read
    before anything is written, and written with the tasks."""

    def __init__(
        self,
        runs: dict[str, Run],
        schedules: Sequence[_Following],
        told: Told,
        family: _Family,
        gates: Gates,
        marked: Sequence[Task],
        actor: str,
    ) -> None:
        self._actor = actor
        self._runs = runs
        self._schedules = schedules
        self._told = told
        self._family = family
        self._gates = gates
        self._marked = {task.id: task for task in marked}

    @classmethod
    async def of(
        cls,
        tx: Tx,
        tasks: Sequence[Task],
        actor: str,
        *,
        left: Sequence[Task] = (),
        new: Sequence[Task] = (),
        marked: Sequence[Task] = (),
        written: Collection[str] = (),
        ended: Sequence[Run] = (),
    ) -> RelatedRuns:
        """`tasks` are as they will be written. `left` are workflows that leave their children behind; `new` are tasks
        that begin in the same commit, and `marked` others that change in it. `written` are the ids of schedules that
        the caller writes: what waits in them stays as it is, and they are told by `tell`. `ended` are new rows
        that have ended without a task."""
        family = await _Family.of(tx, tasks, left)
        of_runs = [task for task in tasks if task.run_id is not None]
        runs = await tx.get_many(Run, [task.run_id for task in of_runs if task.run_id]) if of_runs else {}
        following, told = await _following(tx, of_runs, runs, actor, written, ended)
        starts = [task for each in following for task in each.move.starts]
        marks = [task for each in following for task in each.move.marked]
        gates = await Gates.of(tx, [*tasks, *family.children, *new, *starts])
        gates.expect([*new, *starts])
        return cls(runs, following, told, family, gates, (*marked, *marks), actor)

    def put(
        self, tx: Tx, tasks: Sequence[Task], was: Mapping[str, Task] = MappingProxyType({})
    ) -> list[Task]:
        """Write the tasks, their runs where those change, and what follows for their schedules. `was` has tasks as they
        were before, by id. Called once, with all of them."""
        tasks = [replace(task, awaited=True) if task.id in self._marked else task for task in tasks]
        tasks, woken = self._family.answer(tx, tasks)
        given = {task.id for task in tasks}
        woken |= {id: task for id, task in self._marked.items() if id not in given}
        moved = self._gates.settle([*tasks, *self._family.children], woken)
        self._gates.put(tx)
        for other in (*moved[len(tasks) :], *woken.values()):
            tx.put(other)
        for each in self._schedules:
            self._put_schedule(tx, each)
        return [self._put_one(tx, task, was.get(task.id)) for task in moved[: len(tasks)]]

    def admitted(self, new: Task) -> Task:
        """The new task after it has asked at its gates. Asked for after `put`."""
        return self._gates.admitted.get(new.id, new)

    def tell(self, tx: Tx, schedule: Schedule) -> Schedule:
        """A schedule that the caller writes, told of the ends of those that it comes after."""
        return self._told.tell(schedule, tx.now)

    def _put_one(self, tx: Tx, task: Task, was: Task | None) -> Task:
        old = self._runs.get(task.run_id) if task.run_id is not None else None
        if old is not None:
            new = run.follow(old, task)
            if new != old:
                tx.put(new)
        return tx.put(task, was=was)

    def _put_schedule(self, tx: Tx, following: _Following) -> None:
        for row in following.move.rows:
            tx.put(row)
        for task in following.move.starts:
            tx.put(self.admitted(task))
        stored = tx.put(backfill.awake(following.move.schedule, tx.now))
        if following.note:
            audit(tx, "paused", self._actor, following.old, stored, following.note)
        elif stored.status is ScheduleStatus.COMPLETED and following.old.enabled:
            audit(tx, "completed", self._actor, None, stored, stored.completed_reason or "")


class _Following(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a schedule because tasks of it have ended. `note`: why it is paused, if it is."""

    old: Schedule
    note: str
    move: Move


async def _following(
    tx: Tx,
    tasks: Sequence[Task],
    runs: Mapping[str, Run],
    actor: str,
    written: Collection[str],
    failed: Sequence[Run],
) -> tuple[list[_Following], Told]:
    """The schedules that change: those whose own runs have ended, and those that come after them. `failed` are rows
    that have ended without a task."""
    concerned = {task.schedule_id for task in tasks if task.schedule_id and _concerns_schedule(task)}
    concerned |= {row.schedule_id for row in failed}
    found = await tx.get_many(Schedule, concerned) if concerned else {}
    if not found:
        return [], Told({}, {})
    followed = [run.follow(runs[task.run_id or ""], task) for task in tasks if task.run_id in runs]
    own = [found[id] for id in found.keys() - set(written)]
    following = await _ended(tx, own, tasks, runs, followed, actor)
    rows = [row for row in followed if row != runs[row.id]]
    rows += [*failed, *(row for each in following for row in each.move.rows)]
    told = await Told.of(tx, [row for row in rows if after.has_ended(row)], found, written)
    still = [_Following(old=old, note="", move=Move(schedule=old)) for old in told.others.values()]
    following = [
        replace(each, move=replace(each.move, schedule=told.tell(each.move.schedule, tx.now)))
        for each in (*following, *still)
    ]
    return [each for each in following if each.old.awaits_ends or each.move.schedule is not each.old], told


async def _ended(
    tx: Tx,
    schedules: Sequence[Schedule],
    tasks: Sequence[Task],
    runs: Mapping[str, Run],
    followed: Sequence[Run],
    actor: str,
) -> list[_Following]:
    """Schedules whose own runs have ended: they ask to be paused on failure, or to have their alarms looked at, or
    times wait in them. The latter are always written: see `line.py`."""
    earlier = await _failed_before(tx, schedules)
    lines = await WaitingLines.of(tx, schedules, tasks)
    following = []
    for old in schedules:
        rows = {row.id: row for row in (*earlier, *followed) if row.schedule_id == old.id}
        failed = [row for row in followed if row.schedule_id == old.id and row.status is RunStatus.FAILED]
        failed = [row for row in failed if row != runs[row.id]]
        note = definition.too_many_failures(old, failed, rows.values()) if failed else ""
        new = definition.pause(old, tx.now, actor, note) if note else old
        if failed and old.enabled and not note:
            new = watching.with_failure(old, tx.now)
        following.append(_Following(old=old, note=note, move=lines.moved_on(new, tx.now)))
    return following


async def _failed_before(tx: Tx, schedules: Collection[Schedule]) -> list[Run]:
    """The last rows of those that pause after several failures: as many that failed, and the last that completed."""
    rows: list[Run] = []
    for schedule in schedules:
        if (most := int(schedule.pause_on_failure)) > 1:
            rows += await tx.find(RunList(schedule_id=schedule.id, status=RunStatus.FAILED), most)
            rows += await tx.find(RunList(schedule_id=schedule.id, status=RunStatus.COMPLETED), 1)
    return rows


def _concerns_schedule(task: Task) -> bool:
    may_have_failed = task.status in (TaskStatus.FAILED, TaskStatus.EXPIRED)
    return may_have_failed or (task.awaited and not task.is_live)


class _Family:
    """The parents and children of some tasks, as far as their end concerns them. The children are cancelled."""

    def __init__(self, parents: dict[str, Task], steps: dict[str, Step], children: list[Task]) -> None:
        self._parents = parents
        self._steps = steps
        self.children = children

    @classmethod
    async def of(cls, tx: Tx, tasks: Sequence[Task], left: Sequence[Task]) -> _Family:
        ended = [task for task in tasks if not task.is_live]
        leaving = tuple(task.id for task in (*ended, *left) if task.live_children)
        children: list[Task] = []
        if leaving:
            steps = await tx.find(StepList(task_ids=leaving), LIVE_AT_MOST)
            ids = [step.child_id for step in steps if step.child_id is not None and not step.is_over]
            found = await tx.get_many(Task, ids) if ids else {}
            written = {task.id for task in tasks}
            live = (child for child in found.values() if child.as_of(tx.now).is_live)
            children = [
                life.cancel(child, tx.now, "workflow", "the workflow that started it has ended")
                for child in live
                if child.id not in written and not child.cancel_requested
            ]
        of_parents = [
            task for task in ended if task.parent_step is not None and task.parent_id not in leaving
        ]
        if not of_parents:
            return cls({}, {}, children)
        parents = await tx.get_many(Task, {task.parent_id for task in of_parents if task.parent_id})
        answered = await tx.get_many(Step, [task.parent_step for task in of_parents if task.parent_step])
        return cls(parents, answered, children)

    def answer(self, tx: Tx, tasks: Sequence[Task]) -> tuple[list[Task], dict[str, Task]]:
        """Write the answers of children that have ended. The tasks, as they are to be written, since a parent may be
        among them; and the other parents, as they go on."""
        written = {task.id: task for task in tasks}
        woken: dict[str, Task] = {}
        for task in tasks:
            step = self._steps.get(task.parent_step) if task.parent_step is not None else None
            if step is None or task.is_live or task.parent_id is None:
                continue
            parent = written.get(task.parent_id) or woken.get(task.parent_id)
            parent = parent or self._parents.get(task.parent_id)
            if parent is None:
                continue
            new, answered = workflow.child_ended(parent, step, task, tx.now)
            if answered is not step:
                (written if parent.id in written else woken)[parent.id] = new
                tx.put(answered)
        return [written[task.id] for task in tasks], woken
