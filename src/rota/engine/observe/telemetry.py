"""What the engine reports, and who listens. Logic has no log lines: it hands an observation to an `Observer`.

`log.py` has the observer that everyone has; a terminal and metrics are others. What went wrong is put into words once,
by `trouble_of`, for all of them. An observer must be quick and must not raise; `fan_out` keeps one that does from
harming the engine or the other observers. `running_task` is the task whose handler runs here: for code that reports on
a handler's behalf.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import timedelta
from typing import NamedTuple

import msgspec

from ...domain.model import Alarm, Run, Schedule, Task
from ...domain.workflow import Step
from ..guard import name_of, text_of, traceback_of

log = logging.getLogger("rota")

running_task: ContextVar[Task | None] = ContextVar("rota_running_task", default=None)


class Observation(msgspec.Struct, frozen=True):
    """Something happened."""


class TimesHandled(Observation, frozen=True):
    """A tick fired or skipped this expected time (`task` is what it started)."""

    schedule: Schedule
    run: Run
    task: Task | None


class ScheduleStopped(Observation, frozen=True):
    """A tick completed or paused the schedule."""

    schedule: Schedule


class TaskStarted(Observation, frozen=True):
    """A worker began to run the task."""

    task: Task


class TaskMoved(Observation, frozen=True):
    """A task ended, or went back to wait: its status says which, its last line of history why."""

    task: Task


class StepRecorded(Observation, frozen=True):
    """A try at a step of the workflow `task` is recorded: it was the last, or it is to be tried again."""

    task: Task
    step: Step


class WorkflowReplayed(Observation, frozen=True):
    """The code of a workflow was run over so many recorded steps; it took so long."""

    task: Task
    steps: int
    took: timedelta


class WorkflowParked(Observation, frozen=True):
    """A workflow was given back, until one of these comes."""

    task: Task
    waits: tuple[Step, ...]


class LeaseLost(Observation, frozen=True):
    """A worker's task was no longer its own; what its handler did is not recorded."""

    task: Task


class ResultLost(Observation, frozen=True):
    """The result of a task cannot be stored, whatever is tried; its lease will run out."""

    task: Task
    error: BaseException


class ClockJumped(Observation, frozen=True):
    """The wall clock moved by this much on its own: a laptop slept, or someone set the clock."""

    by: timedelta


class ClockSetBack(Observation, frozen=True):
    """So many schedules and tasks were written by a clock that was ahead; they now count from now."""

    schedules: int
    tasks: int


class ZonesRefreshed(Observation, frozen=True):
    """New zone data moved the next time of this schedule."""

    schedule: Schedule


class LoopBlocked(Observation, frozen=True):
    """A handler keeps the event loop from running; leases cannot be renewed meanwhile."""

    blocked_for: timedelta
    kinds: tuple[str, ...]
    stack: str


class LoopFailed(Observation, frozen=True):
    """A round of a loop failed and will be tried again."""

    role: str
    error: BaseException
    again_in: timedelta


class HookFailed(Observation, frozen=True):
    """A hook of the user raised."""

    hook: str
    error: BaseException


class AlarmBegan(Observation, frozen=True):
    """Something is wrong with a schedule or with the fleet."""

    alarm: Alarm


class AlarmOver(Observation, frozen=True):
    """It is well again."""

    alarm: Alarm


class PingFailed(Observation, frozen=True):
    """A heartbeat could not be sent to a monitor outside."""

    host: str
    problem: str


class Trouble(NamedTuple):
    """A thing that went wrong: subject and words are one sentence."""

    subject: str
    words: str


def trouble_of(seen: Observation) -> Trouble | None:
    """An observation that something went wrong, in words. None: nothing did."""
    match seen:
        case LeaseLost(task):
            return Trouble(task.kind, f"lost the lease of {task.id}; what it did is not recorded")
        case ResultLost(task, error):
            return Trouble(task.kind, f"cannot store the result of {task.id}: {error}")
        case ClockSetBack(schedules, tasks):
            planned = f"{schedules} schedules are planned anew, {tasks} tasks count from now"
            return Trouble("clock", f"was set back: {planned}")
        case ClockJumped(by):
            way = "forward" if by > timedelta(0) else "back"
            return Trouble("clock", f"jumped {way} by {abs(by)}; missed runs follow their policy")
        case LoopBlocked(blocked_for, kinds):
            seconds = f"{blocked_for.total_seconds():.0f} s"
            blocking = ", ".join(kinds) or "a handler"
            return Trouble(blocking, f"has blocked the event loop for {seconds}; leases cannot be renewed")
        case LoopFailed(role, error, again_in):
            return Trouble(role, f"failed: {error}; trying again in {again_in.total_seconds():.1f} s")
        case PingFailed(host, problem):
            return Trouble("heartbeat", f"did not reach {host}: {problem}")
        case AlarmBegan(alarm):
            return Trouble(f"{alarm.subject_type} {alarm.subject}", f"alarm ({alarm.rule}): {alarm.detail}")
        case HookFailed(hook, error):
            return Trouble(hook, f"raised {name_of(error)}: {text_of(error)}")
    return None


Observer = Callable[[Observation], None]


def fan_out(observers: Iterable[Observer]) -> Observer:
    """One observer for many."""
    listeners = tuple(observers)

    def observe(seen: Observation) -> None:
        for listener in listeners:
            try:
                listener(seen)
            except BaseException as error:  # whatever it is, it is the observer's own
                log.error("an observer failed on %s\n%s", type(seen).__name__, traceback_of(error))

    return observe
