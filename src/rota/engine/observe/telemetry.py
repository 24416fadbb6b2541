"""What the engine reports, and who listens. Logic has no log lines: it hands a signal to an `Observer`.

`logged.py` has the observer that everyone has; a terminal and metrics are others. An observer must be quick and must
not raise; `fan_out` keeps one that does from harming the engine or the other observers. `running_task` is the task
whose handler runs here: for whoever reports on a handler's behalf.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import timedelta

import msgspec

from ...domain.model import Run, Schedule, Task
from ..guard import traceback_of

__all__ = [
    "ClockJumped",
    "ClockSetBack",
    "HookFailed",
    "LeaseLost",
    "LoopBlocked",
    "LoopFailed",
    "Observation",
    "Observer",
    "ResultLost",
    "ScheduleStopped",
    "TaskMoved",
    "TaskStarted",
    "TimesHandled",
    "ZonesRefreshed",
    "fan_out",
    "running_task",
]

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


Observer = Callable[[Observation], None]


def fan_out(observers: Iterable[Observer]) -> Observer:
    """One observer for many."""
    listeners = tuple(observers)

    def observe(signal: Observation) -> None:
        for listener in listeners:
            try:
                listener(signal)
            except BaseException as error:  # whatever it is, it is the observer's own
                log.error("an observer failed on %s\n%s", type(signal).__name__, traceback_of(error))

    return observe
