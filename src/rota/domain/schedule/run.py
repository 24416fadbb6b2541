"""The ledger: rows for what fired, was skipped or could not start, and how a row follows its task."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import takewhile
from typing import Any

from msgspec.structs import asdict, replace

from .. import template
from ..errors import Invalid
from ..ids import derived_id
from ..model import (
    Limits,
    Run,
    RunReason,
    RunStatus,
    RunTrigger,
    Schedule,
    Target,
    Task,
    TaskStatus,
    TaskTarget,
    Template,
    TemplateTarget,
    WorkflowTarget,
)
from ..recurrence import MICROSECOND
from ..task import Submission, admit
from .decision import Fire, Skip

_FOLLOWS = {
    TaskStatus.PENDING: RunStatus.RUNNING,
    TaskStatus.RUNNING: RunStatus.RUNNING,
    TaskStatus.COMPLETED: RunStatus.COMPLETED,
    TaskStatus.FAILED: RunStatus.FAILED,
    TaskStatus.CANCELLED: RunStatus.CANCELLED,
    TaskStatus.EXPIRED: RunStatus.SKIPPED,
}


def run_id(schedule: Schedule, scheduled_at: datetime) -> str:
    """Derived: two nodes that fire this time of this schedule write the same row."""
    return derived_id(schedule.id, scheduled_at)


def is_by_hand(task: Task) -> bool:
    """Whether someone triggered the run of this task: only the id of an expected time is derived from it."""
    if task.run_id is None or task.schedule_id is None or task.scheduled_at is None:
        return False
    return task.run_id != derived_id(task.schedule_id, task.scheduled_at)


def start(
    id: str,
    schedule: Schedule,
    scheduled_at: datetime,
    trigger: RunTrigger,
    stored: Template | None,
    now: datetime,
    limits: Limits,
    actor: str,
    before: int = 0,
    *,
    waited: Run | None = None,
) -> tuple[Run, Task | None]:
    """A run and the task that it starts; or a failed run and no task, if the target cannot work, or a skipped one, if
    its template is disabled. It is available now,
    whenever it was scheduled: it does not overtake what has waited. `before` is how many of the same schedule start
    with it and are to run after it. `waited` is the row that it has had since it was buffered, or was skipped. One that
    was skipped since its task expired gets another."""
    expired = None if waited is None else waited.target_id
    known: dict[str, Any] = {
        "created_at": now,
        "causes": () if trigger is RunTrigger.MANUAL else _causes(schedule),
    }
    if waited is not None:
        known = {"version": waited.version, "created_at": waited.created_at, "causes": waited.causes}
    if stored is not None and not stored.enabled:
        skip = Skip(scheduled_at=scheduled_at, reason=RunReason.DISABLED)
        row = replace(skipped(schedule, skip, now), id=id, trigger=trigger, actor=actor, **known)
        return replace(row, target_id=expired), None
    task, problem = None, ""
    try:
        asked = _submission(schedule, stored, id, scheduled_at)
        task = admit(derived_id("task", expired or id), asked, schedule.tenant, now, limits, actor)
        # By hand always: who triggers it does not write the schedule, and would miss a follower that is new.
        awaited = bool(schedule.awaits_ends or schedule.followers or trigger is RunTrigger.MANUAL)
        if awaited or before:
            task = replace(task, available_at=now - before * MICROSECOND, awaited=awaited)
    except Invalid as refused:
        problem = str(refused)
    run = Run(
        id=id,
        tenant=schedule.tenant,
        schedule_id=schedule.id,
        scheduled_at=scheduled_at,
        trigger=trigger,
        target_type=target_type(schedule.target),
        target_id=None if task is None else task.id,
        started_at=now,
        actor=actor,
        **known,
    )
    return (_failed(run, problem, now) if task is None else run), task


def buffered(schedule: Schedule, fire: Fire, now: datetime) -> Run:
    """A row for a due time that waits for the end of what runs."""
    return Run(
        id=run_id(schedule, fire.scheduled_at),
        tenant=schedule.tenant,
        schedule_id=schedule.id,
        scheduled_at=fire.scheduled_at,
        trigger=fire.trigger,
        status=RunStatus.BUFFERED,
        reason=RunReason.OVERLAP,
        target_type=target_type(schedule.target),
        causes=_causes(schedule),
        created_at=now,
    )


def dropped(row: Run, reason: RunReason, now: datetime) -> Run:
    """A row that waited, and will not start."""
    return replace(row, status=RunStatus.SKIPPED, reason=reason, completed_at=now)


def skipped(schedule: Schedule, skip: Skip, now: datetime) -> Run:
    """A row for a due time (or a stretch of them) that started nothing."""
    return Run(
        id=run_id(schedule, skip.scheduled_at),
        tenant=schedule.tenant,
        schedule_id=schedule.id,
        scheduled_at=skip.scheduled_at,
        until=skip.until,
        count=skip.count,
        status=RunStatus.SKIPPED,
        reason=skip.reason,
        calendar=skip.calendar,
        target_type=target_type(schedule.target),
        causes=_causes(schedule),
        completed_at=now,
        created_at=now,
    )


def cut_short(row: Run, schedule: Schedule, now: datetime) -> Run:
    """A stretch that was skipped, without its times after now: the clock was set back, and they are still to come."""
    times = schedule.openings.nominal if row.reason is RunReason.EXCLUDED else schedule.openings
    begin = row.scheduled_at
    last = times.latest(begin, now) or begin
    return replace(row, until=last, count=1 + times.number(begin, last))


def as_of(run: Run, task: Task | None, now: datetime) -> Run:
    """How a run reads at `now`, given its task: what has expired is over, swept or not."""
    if run.status is not RunStatus.RUNNING or task is None or task.as_of(now) is task:
        return run
    return follow(run, task.as_of(now))


def follows(task: Task) -> RunStatus:
    """The status of a task's run. An expiry is no failure, unless an attempt had failed before it."""
    if task.status is TaskStatus.EXPIRED and task.error is not None:
        return RunStatus.FAILED
    return _FOLLOWS[task.status]


def follow(run: Run, task: Task) -> Run:
    """A run is `running` until its task ends, and then says how it ended. A task that expired before may be none of it
    any more."""
    if run.target_id != task.id:
        return run
    if task.status is not TaskStatus.ARCHIVED:
        return _following(run, task)
    if run.status is not RunStatus.RUNNING:
        return run
    expired = replace(task, status=TaskStatus.EXPIRED)  # put away before the sweep that would have marked it
    return _following(run, expired)


def failures_in_a_row(rows: Iterable[Run]) -> int:
    """How many runs have failed since the last one that completed, by the times that they were for."""
    ended = [row for row in rows if row.status in (RunStatus.COMPLETED, RunStatus.FAILED)]
    latest_first = sorted(ended, key=lambda row: row.scheduled_at, reverse=True)
    return sum(1 for _ in takewhile(lambda row: row.status is RunStatus.FAILED, latest_first))


def target_type(target: Target) -> str:
    match target:
        case TaskTarget():
            return "task"
        case WorkflowTarget():
            return "workflow"
        case TemplateTarget():
            return "template"


def _causes(schedule: Schedule) -> tuple[str, ...]:
    return tuple(cause.run_id for cause in schedule.causes)


def _following(run: Run, task: Task) -> Run:
    status = follows(task)
    return replace(
        run,
        status=status,
        completed_at=_ended_at(task),
        reason=RunReason.EXPIRED if task.status is TaskStatus.EXPIRED else None,
        error=str(task.error) if task.error and status is RunStatus.FAILED else None,
    )


def _ended_at(task: Task) -> datetime | None:
    """What has expired did so at its expiry (an attempt may have gone on beyond it), whenever that is marked."""
    if task.status is not TaskStatus.EXPIRED or task.expires_at is None:
        return task.completed_at
    waits = [change.at for change in task.history if change.status is TaskStatus.PENDING]
    expired_at = max([task.expires_at, *waits])
    return expired_at if task.completed_at is None else min(expired_at, task.completed_at)


def _failed(run: Run, error: str, now: datetime) -> Run:
    return replace(run, status=RunStatus.FAILED, reason=RunReason.BAD_TARGET, error=error, completed_at=now)


def _submission(
    schedule: Schedule, stored: Template | None, run_id: str, scheduled_at: datetime
) -> Submission:
    target = schedule.target
    of_run: dict[str, Any] = {
        "schedule_id": schedule.id,
        "run_id": run_id,
        "scheduled_at": scheduled_at,
    }
    match target:
        case TemplateTarget():
            if stored is None or stored.tenant != schedule.tenant:
                problem = f"there is no template {target.template_id!r}"
                raise Invalid("target.template_id", problem, "create it first")
            asked = template.submission(stored, template.overlaid(stored, target.input, "target.input"))
            return replace(asked, **of_run)
        case TaskTarget() | WorkflowTarget():
            return Submission(is_workflow=isinstance(target, WorkflowTarget), **asdict(target), **of_run)
