"""What several commands need: whose limits apply, the audit, receipts of requests that are done once, and how a task's
end reaches its run and its schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from ...domain import keys, serving, template, tenants, workflow
from ...domain import task as life
from ...domain.errors import NotFound, Refused
from ...domain.ids import derived_id
from ...domain.model import (
    ApiKey,
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
from ...domain.schedule import definition, run, watching
from ...domain.workflow import Step
from ...stores.base import Tx, Work
from ...stores.queries import OpenSchedules, ScheduleByKey, StepList, TaskList, TemplateByAlias
from .gates import Gates

__all__ = [
    "RelatedRuns",
    "audit",
    "check_room_for_schedules",
    "check_room_for_tasks",
    "find_schedule",
    "find_task",
    "find_template",
    "limits_of",
    "once",
    "room_for_tasks",
]

DEFAULT_LIMITS = Limits()
LIVE_AT_MOST = 10_000
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


async def find_template(tx: Tx, tenant: str, id: str) -> Template:
    """By its id, or else by its alias."""
    by_id = await tx.get(Template, id)
    if by_id is not None and by_id.tenant == tenant:
        return by_id
    found = await tx.find(TemplateByAlias(tenant=tenant, alias_key=template.alias_key(id)), 1)
    if not found:
        raise NotFound("template", id)
    return found[0]


T = TypeVar("T")
_Subject = TypeVar("_Subject", Schedule, Template, Tenant, ApiKey, PausedQueue)
_FACTS: dict[type[Any], tuple[str, Callable[[Any], dict[str, Any]]]] = {
    Schedule: ("schedule", definition.as_facts),
    Template: ("template", template.as_facts),
    Tenant: ("tenant", tenants.as_facts),
    ApiKey: ("key", keys.as_facts),
    PausedQueue: ("queue", serving.as_facts),
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
    about = () if what == "schedule" else (what,)  # a tenant's id is a name, and might be anyone's
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
    they are to, a workflow gets the answer of its child, the children of a workflow do not outlive it, and the gates of
    limits let in the next. All of it is read before anything is written, and written with the tasks."""

    def __init__(
        self, runs: dict[str, Run], schedules: dict[str, Schedule], family: _Family, gates: Gates
    ) -> None:
        self._runs = runs
        self._schedules = schedules
        self._family = family
        self._gates = gates

    @classmethod
    async def of(
        cls, tx: Tx, tasks: Sequence[Task], *, left: Sequence[Task] = (), new: Sequence[Task] = ()
    ) -> RelatedRuns:
        """`tasks` are as they will be written. `left` are workflows that leave their children behind; `new` are tasks
        that begin in the same commit."""
        family = await _Family.of(tx, tasks, left)
        gates = await Gates.of(tx, [*tasks, *family.children, *new])
        gates.expect(new)
        of_runs = [task for task in tasks if task.run_id is not None]
        if not of_runs:
            return cls({}, {}, family, gates)
        runs = await tx.get_many(Run, [task.run_id for task in of_runs if task.run_id])
        may_fail = (TaskStatus.FAILED, TaskStatus.EXPIRED)
        failing = {task.schedule_id for task in of_runs if task.schedule_id and task.status in may_fail}
        return cls(runs, await tx.get_many(Schedule, failing) if failing else {}, family, gates)

    def put(
        self, tx: Tx, tasks: Sequence[Task], actor: str, was: Mapping[str, Task] = MappingProxyType({})
    ) -> list[Task]:
        """Write the tasks, their runs where those change, and pause schedules that ask for it on failure. `was` has
        tasks as they were before, by id. Called once, with all of them."""
        tasks, woken = self._family.answer(tx, tasks)
        moved = self._gates.settle([*tasks, *self._family.children], woken)
        self._gates.put(tx)
        for other in (*moved[len(tasks) :], *woken.values()):
            tx.put(other)
        return [self._put_one(tx, task, actor, was.get(task.id)) for task in moved[: len(tasks)]]

    def admitted(self, new: Task) -> Task:
        """The new task after it has asked at its gates. Asked for after `put`."""
        return self._gates.admitted.get(new.id, new)

    def _put_one(self, tx: Tx, task: Task, actor: str, was: Task | None) -> Task:
        old = self._runs.get(task.run_id) if task.run_id is not None else None
        if old is not None:
            new = run.follow(old, task)
            if new != old:
                tx.put(new)
                if new.status is RunStatus.FAILED:
                    self._tell_schedule(tx, new, actor)
        return tx.put(task, was=was)

    def _tell_schedule(self, tx: Tx, failed: Run, actor: str) -> None:
        """It pauses if it is asked to, or has its alarms looked at."""
        schedule = self._schedules.pop(failed.schedule_id, None)
        if (
            schedule is None
            or schedule.deleted_at is not None
            or schedule.status is not ScheduleStatus.ACTIVE
        ):
            return
        if not schedule.pause_on_failure:
            looked_at = watching.with_failure(schedule, tx.now)
            if looked_at is not schedule:
                tx.put(looked_at)
        else:
            note = f"paused because the run of {failed.scheduled_at.isoformat()} failed: {failed.error}"
            paused = tx.put(definition.pause(schedule, tx.now, actor, note))
            audit(tx, "paused", actor, schedule, paused, note)


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
