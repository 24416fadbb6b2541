"""What several commands need: whose limits apply, the audit, receipts of requests that are done once, and how a task's
end reaches its run and its schedule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...domain import definition, keys, run, template, tenants
from ...domain.errors import NotFound, Refused
from ...domain.ids import derived_id
from ...domain.model import (
    ApiKey,
    Event,
    Limits,
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
from ...stores.base import Tx, Work
from ...stores.queries import OpenSchedules, ScheduleByKey, TaskList, TemplateByAlias
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
_Subject = TypeVar("_Subject", Schedule, Template, Tenant, ApiKey)
_FACTS: dict[type[Any], tuple[str, Callable[[Any], dict[str, Any]]]] = {
    Schedule: ("schedule", definition.as_facts),
    Template: ("template", template.as_facts),
    Tenant: ("tenant", tenants.as_facts),
    ApiKey: ("key", keys.as_facts),
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
    """The runs, schedules and gates of some tasks that end, wait again or are to stop. They are read before anything
    is written, and written with the tasks."""

    def __init__(self, runs: dict[str, Run], schedules: dict[str, Schedule], gates: Gates) -> None:
        self._runs = runs
        self._schedules = schedules
        self._gates = gates

    @classmethod
    async def of(cls, tx: Tx, tasks: Sequence[Task], *, new: Sequence[Task] = ()) -> RelatedRuns:
        """`tasks` are as they will be written. `new` are tasks that begin in the same commit."""
        gates = await Gates.of(tx, [*tasks, *new])
        gates.expect(new)
        of_runs = [task for task in tasks if task.run_id is not None]
        if not of_runs:
            return cls({}, {}, gates)
        runs = await tx.get_many(Run, [task.run_id for task in of_runs if task.run_id])
        may_fail = (TaskStatus.FAILED, TaskStatus.EXPIRED)
        failing = {task.schedule_id for task in of_runs if task.schedule_id and task.status in may_fail}
        return cls(runs, await tx.get_many(Schedule, failing) if failing else {}, gates)

    def put(self, tx: Tx, tasks: Sequence[Task], actor: str) -> list[Task]:
        """Write the tasks, their runs where those change, and pause schedules that ask for it on failure. Called once,
        with all of them."""
        settled = self._gates.settle(tasks)
        self._gates.put(tx)
        return [self._put_one(tx, task, actor) for task in settled]

    def admitted(self, new: Task) -> Task:
        """The new task after it has asked at its gates."""
        return self._gates.admitted.get(new.id, new)

    def _put_one(self, tx: Tx, task: Task, actor: str) -> Task:
        old = self._runs.get(task.run_id) if task.run_id is not None else None
        if old is not None:
            new = run.follow(old, task)
            if new != old:
                tx.put(new)
                if new.status is RunStatus.FAILED:
                    self._pause_if_asked(tx, new, actor)
        return tx.put(task)

    def _pause_if_asked(self, tx: Tx, failed: Run, actor: str) -> None:
        schedule = self._schedules.pop(failed.schedule_id, None)
        if schedule is None or not schedule.pause_on_failure or schedule.deleted_at is not None:
            return
        if schedule.status is ScheduleStatus.ACTIVE:
            note = f"paused because the run of {failed.scheduled_at.isoformat()} failed: {failed.error}"
            paused = tx.put(definition.pause(schedule, tx.now, actor, note))
            audit(tx, "paused", actor, schedule, paused, note)
