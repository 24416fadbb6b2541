"""What the engine reports, and who listens. Logic has no log lines: it hands a signal to an `Observer`.

`log_signals` is the observer that everyone has; a terminal, metrics or traces are others. An observer must be
quick and must not raise; `fan_out` keeps one that does from harming the engine or the other observers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta

import msgspec

from ..domain.model import Run, RunStatus, Schedule, Task, TaskStatus

__all__ = [
    "ClockJumped",
    "HookFailed",
    "LeaseLost",
    "LoopBlocked",
    "LoopFailed",
    "Observer",
    "ResultLost",
    "ScheduleStopped",
    "Signal",
    "TaskMoved",
    "TaskStarted",
    "TimesHandled",
    "ZonesRefreshed",
    "fan_out",
    "log_signals",
]

log = logging.getLogger("rota")


class Signal(msgspec.Struct, frozen=True):
    """Something happened."""


class TimesHandled(Signal, frozen=True):
    """A tick fired or skipped this expected time (`task` is what it started)."""

    schedule: Schedule
    run: Run
    task: Task | None


class ScheduleStopped(Signal, frozen=True):
    """A tick completed or paused the schedule."""

    schedule: Schedule


class TaskStarted(Signal, frozen=True):
    """A worker began to run the task."""

    task: Task


class TaskMoved(Signal, frozen=True):
    """A task ended, or went back to wait: its status says which, its last line of history why."""

    task: Task


class LeaseLost(Signal, frozen=True):
    """A worker's task was no longer its own; what its handler did is not recorded."""

    task: Task


class ResultLost(Signal, frozen=True):
    """The result of a task cannot be stored, whatever is tried; its lease will run out."""

    task: Task
    error: BaseException


class ClockJumped(Signal, frozen=True):
    """The wall clock moved by this much on its own: a laptop slept, or someone set the clock."""

    by: timedelta


class ZonesRefreshed(Signal, frozen=True):
    """New zone data moved the next time of this schedule."""

    schedule: Schedule


class LoopBlocked(Signal, frozen=True):
    """A handler keeps the event loop from running; leases cannot be renewed meanwhile."""

    blocked_for: timedelta
    kinds: tuple[str, ...]
    stack: str


class LoopFailed(Signal, frozen=True):
    """A round of a loop failed and will be tried again."""

    role: str
    error: BaseException
    again_in: timedelta


class HookFailed(Signal, frozen=True):
    """A hook of the user raised."""

    hook: str
    error: BaseException


Observer = Callable[[Signal], None]


def fan_out(observers: Iterable[Observer]) -> Observer:
    """One observer for many."""
    listeners = tuple(observers)

    def observe(signal: Signal) -> None:
        for listener in listeners:
            try:
                listener(signal)
            except Exception:
                log.exception("an observer failed on %s", type(signal).__name__)

    return observe


def _is_routine(signal: Signal) -> bool:
    if isinstance(signal, TaskMoved):
        return signal.task.status is not TaskStatus.FAILED and not signal.task.error
    return isinstance(signal, TaskStarted)


def log_signals(signal: Signal) -> None:
    """To the standard `rota` logger: what went wrong as warnings or errors, the rest as info or debug."""
    if _is_routine(signal) and not log.isEnabledFor(logging.DEBUG):
        return  # two for each task
    match signal:
        case TaskStarted(task):
            log.debug("started %s %s (attempt %d)", task.kind, task.id, task.attempt)
        case TaskMoved(task):
            level = logging.WARNING if task.status is TaskStatus.FAILED or task.error else logging.DEBUG
            detail = task.history[-1].detail if task.history else ""
            log.log(level, "%s %s is %s: %s", task.kind, task.id, task.status, detail)
        case TimesHandled(schedule, run, _):
            level = logging.WARNING if run.status is RunStatus.FAILED else logging.INFO
            what = f"{run.status} ({run.reason})" if run.reason else "fired"
            log.log(level, "schedule %s, %s: %s", schedule.key, run.scheduled_at.isoformat(), what)
        case ScheduleStopped(schedule):
            why = schedule.completed_reason or schedule.pause_note
            log.info("schedule %s is %s: %s", schedule.key, schedule.status, why)
        case LeaseLost(task):
            log.error("lost the lease of %s %s; its result is not recorded", task.kind, task.id)
        case ResultLost(task, error):
            log.error("the result of %s %s cannot be stored: %s", task.kind, task.id, error, exc_info=error)
        case ClockJumped(by):
            log.warning("the clock jumped by %s; missed runs follow their policy", by)
        case ZonesRefreshed(schedule):
            log.info("new zone data: schedule %s is next due at %s", schedule.key, schedule.next_run_at)
        case LoopBlocked(blocked_for, kinds, stack):
            seconds = blocked_for.total_seconds()
            names = ", ".join(kinds) or "a handler"
            log.error(
                "%s has blocked the event loop for %.0f s; leases cannot be renewed\n%s",
                names,
                seconds,
                stack,
            )
        case LoopFailed(role, error, again_in):
            log.error("%s: %s; trying again in %.1f s", role, error, again_in.total_seconds(), exc_info=error)
        case HookFailed(hook, error):
            log.error("the hook %s raised %r", hook, error, exc_info=error)
