"""The observer that everyone has: observations as records of the standard `rota` logger.

What went wrong is a warning or an error, the rest is info or debug. Each record carries the ids that it is about as
attributes (`extra`): tenant, schedule, run, task and worker, where they apply. Inputs and results are never logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ...domain.errors import Unavailable
from ...domain.model import Alarm, Run, RunStatus, Schedule, Task, TaskStatus
from ..guard import traceback_of
from .telemetry import (
    AlarmBegan,
    AlarmOver,
    ClockJumped,
    ClockSetBack,
    HookFailed,
    LeaseLost,
    LoopBlocked,
    LoopFailed,
    Observation,
    PingFailed,
    ResultLost,
    ScheduleStopped,
    TaskMoved,
    TaskStarted,
    TimesHandled,
    ZonesRefreshed,
    trouble_of,
)

log = logging.getLogger("rota")

FIELDS = (
    "tenant",
    "schedule",
    "schedule_key",
    "run",
    "task",
    "task_type",
    "queue",
    "attempt",
    "worker",
    "trace",
)


def log_observation(seen: Observation) -> None:
    _TELL.get(type(seen), _log_trouble)(seen)


def ids_of_task(task: Task) -> dict[str, Any]:
    """The ids that a record about this task carries."""
    ids: dict[str, Any] = {
        "tenant": task.tenant,
        "task": task.id,
        "task_type": task.kind,
        "queue": task.queue,
    }
    if task.attempt:
        ids["attempt"] = task.attempt
    worker = task.worker_id or _last_worker(task)
    if worker is not None:
        ids["worker"] = worker
    if task.schedule_id is not None:
        ids["schedule"] = task.schedule_id
    if task.run_id is not None:
        ids["run"] = task.run_id
    if task.trace is not None:
        ids["trace"] = task.trace.split("-")[1] if task.trace.count("-") == 3 else task.trace
    return ids


def _last_worker(task: Task) -> str | None:
    """Who ran it, if its last line of history is about an attempt."""
    if not task.attempt or task.status is TaskStatus.EXPIRED or not task.history:
        return None
    return task.history[-1].actor


def _ids_of_schedule(schedule: Schedule, run: Run | None = None, task: Task | None = None) -> dict[str, Any]:
    ids = {"tenant": schedule.tenant, "schedule": schedule.id, "schedule_key": schedule.key}
    if run is not None:
        ids["run"] = run.id
    return ids if task is None else {**ids_of_task(task), **ids}


def _task_started(seen: TaskStarted) -> None:
    if log.isEnabledFor(logging.DEBUG):
        task = seen.task
        log.debug("started %s %s (attempt %d)", task.kind, task.id, task.attempt, extra=ids_of_task(task))


def _task_moved(seen: TaskMoved) -> None:
    task = seen.task
    level = logging.WARNING if task.status is TaskStatus.FAILED or task.error else logging.DEBUG
    if log.isEnabledFor(level):
        detail = task.history[-1].detail if task.history else ""
        log.log(level, "%s %s is %s: %s", task.kind, task.id, task.status, detail, extra=ids_of_task(task))


def _times_handled(seen: TimesHandled) -> None:
    schedule, run = seen.schedule, seen.run
    level = logging.WARNING if run.status is RunStatus.FAILED else logging.INFO
    what = f"{run.status} ({run.reason})" if run.reason else "fired"
    about = _ids_of_schedule(schedule, run, seen.task)
    log.log(level, "schedule %s, %s: %s", schedule.key, run.scheduled_at.isoformat(), what, extra=about)


def _schedule_stopped(seen: ScheduleStopped) -> None:
    schedule = seen.schedule
    why = schedule.completed_reason or schedule.pause_note
    about = _ids_of_schedule(schedule)
    log.info("schedule %s is %s: %s", schedule.key, schedule.status, why, extra=about)


def _zones_refreshed(seen: ZonesRefreshed) -> None:
    schedule = seen.schedule
    about = _ids_of_schedule(schedule)
    log.info("new zone data: schedule %s is next due at %s", schedule.key, schedule.next_run_at, extra=about)


def _ids_of_alarm(alarm: Alarm) -> dict[str, Any]:
    ids = {"tenant": alarm.tenant}
    return ids | ({"schedule": alarm.subject_id} if alarm.subject_type == "schedule" else {})


def _alarm_began(seen: AlarmBegan) -> None:
    trouble = trouble_of(seen)
    if trouble is not None:
        log.warning("%s: %s", *trouble, extra=_ids_of_alarm(seen.alarm))


def _alarm_over(seen: AlarmOver) -> None:
    alarm = seen.alarm
    log.info(
        "%s %s: alarm over (%s)", alarm.subject_type, alarm.subject, alarm.rule, extra=_ids_of_alarm(alarm)
    )


def _log_trouble(seen: Observation) -> None:
    trouble = trouble_of(seen)
    if trouble is None:
        return
    level = logging.WARNING if isinstance(seen, (ClockJumped, ClockSetBack, PingFailed)) else logging.ERROR
    about = ids_of_task(seen.task) if isinstance(seen, (LeaseLost, ResultLost)) else None
    where, error = _where(seen)
    log.log(level, "%s %s%s", *trouble, where, exc_info=error, extra=about)


def _where(seen: Observation) -> tuple[str, BaseException | None]:
    """Where in the code it happened: lines to add, or the error to log. A store that is away is an event, not a defect:
    the sentence says it all, and an outage has many of them."""
    match seen:
        case LoopBlocked():
            return f"\n{seen.stack}", None
        case HookFailed():
            return f"\n{traceback_of(seen.error)}", None
        case ResultLost():
            return "", seen.error
        case LoopFailed() if not isinstance(seen.error, Unavailable):
            return "", seen.error
    return "", None


_TELL: dict[type[Observation], Callable[[Any], None]] = {
    TaskStarted: _task_started,
    TaskMoved: _task_moved,
    TimesHandled: _times_handled,
    ScheduleStopped: _schedule_stopped,
    ZonesRefreshed: _zones_refreshed,
    AlarmBegan: _alarm_began,
    AlarmOver: _alarm_over,
}
