"""What several commands need: whose limits apply, and how a task's end reaches its run and its schedule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...domain import definition, run
from ...domain.errors import NotFound, Refused
from ...domain.ids import derived_id
from ...domain.model import (
    Event,
    Limits,
    Run,
    RunStatus,
    Schedule,
    ScheduleStatus,
    Task,
    TaskStatus,
    Tenant,
    TenantStatus,
)
from ...stores.base import ScheduleByKey, Tx

__all__ = ["Endings", "audit", "find_schedule", "find_task", "limits_of"]

DEFAULT_LIMITS = Limits()


async def limits_of(tx: Tx, tenant: str) -> Limits:
    """The limits of a tenant that may act; a tenant without a record has the default ones."""
    record = await tx.get(Tenant, tenant)
    if record is None:
        return DEFAULT_LIMITS
    if record.status is TenantStatus.SUSPENDED:
        raise Refused("tenant_suspended", tenant=tenant)
    return record.limits


async def find_task(tx: Tx, tenant: str, id: str) -> Task:
    task = await tx.get(Task, id)
    if task is None or task.tenant != tenant:
        raise NotFound("task", id)
    return task


async def find_schedule(tx: Tx, tenant: str, key: str, *, deleted: bool = False) -> Schedule:
    """By its key, or by its id."""
    found = await tx.find(ScheduleByKey(tenant=tenant, key=key, deleted=deleted), 1)
    if found:
        return found[0]
    schedule = await tx.get(Schedule, key)
    if schedule is None or schedule.tenant != tenant or (schedule.deleted_at is not None) != deleted:
        raise NotFound("schedule", key)
    return schedule


def audit(
    tx: Tx, action: str, actor: str, before: Schedule | None, after: Schedule | None, detail: str = ""
) -> None:
    """One line of the schedule's history. Its id follows from the version that it makes: repeating is harmless."""
    subject = after or before
    assert subject is not None
    version = subject.version if after is not None else subject.version + 1
    tx.emit(
        Event(
            id=derived_id(subject.id, action, str(version)),
            tenant=subject.tenant,
            at=tx.now,
            actor=actor,
            action=action,
            subject_type="schedule",
            subject_id=subject.id,
            detail=detail,
            before=_facts(before),
            after=_facts(after),
        )
    )


def _facts(schedule: Schedule | None) -> dict[str, Any] | None:
    return None if schedule is None else definition.as_facts(schedule)


class Endings:
    """The runs and schedules behind some tasks, read before anything is written, then moved along with them."""

    def __init__(self, runs: dict[str, Run], schedules: dict[str, Schedule]) -> None:
        self._runs = runs
        self._schedules = schedules

    @classmethod
    async def of(cls, tx: Tx, tasks: Iterable[Task]) -> Endings:
        """`tasks` are as they will be written."""
        of_runs = [task for task in tasks if task.run_id is not None]
        if not of_runs:
            return cls({}, {})
        runs = await tx.get_many(Run, [task.run_id for task in of_runs if task.run_id])
        ended_badly = (TaskStatus.FAILED, TaskStatus.EXPIRED)
        failing = {task.schedule_id for task in of_runs if task.schedule_id and task.status in ended_badly}
        return cls(runs, await tx.get_many(Schedule, failing) if failing else {})

    def put(self, tx: Tx, tasks: Sequence[Task], actor: str) -> list[Task]:
        """Write the tasks, their runs where those change, and pause schedules that ask for it on failure."""
        return [self._put_one(tx, task, actor) for task in tasks]

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
