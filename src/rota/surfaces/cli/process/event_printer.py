"""The printer of a running node: a line for each thing that happens, coloured in a terminal, plain in a pipe, JSON for
programs. It is an observer of `engine/observe/telemetry.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import click

from ....domain.model import ChangeType, Run, RunReason, RunStatus, Schedule, Task, TaskStatus
from ....engine.clock import Clock
from ....engine.observe.telemetry import (
    LeaseLost,
    Observation,
    ResultLost,
    ScheduleStopped,
    TaskMoved,
    TaskStarted,
    TimesHandled,
    ZonesRefreshed,
    trouble_of,
)
from ...durations import iso, relative, short
from ..session import Session

PUNCTUAL = timedelta(milliseconds=100)
_SKIPPED = {
    RunReason.OVERLAP: "the last run is still going",
    RunReason.MISSED: "nothing was there to run it in time",
    RunReason.LIMIT: "a limit was reached",
}


class EventLine(NamedTuple):
    """One thing that happened. `event` is its name for programs; the totals count by it."""

    event: str
    sign: str
    colour: str
    subject: str
    words: str
    about: Mapping[str, Any] = MappingProxyType({})


class EventPrinter:
    """An observer that prints every observation. `totals` counts the lines so far. When nobody reads the output any
    more (`| head`), it `is_unread`, and calls `on_unread`."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self.totals: Counter[str] = Counter()
        self._session = session
        self._clock = clock
        self._width = 12
        self.is_unread = False
        self.on_unread: Callable[[], None] = lambda: None

    def __call__(self, seen: Observation) -> None:
        line = _line(seen, self._clock.now())
        if line is None or self.is_unread:
            return
        try:
            self._tell(line)
        except BrokenPipeError:
            self.is_unread = True
            self.on_unread()

    def _tell(self, line: EventLine) -> None:
        self.totals[line.event] += 1
        if self._session.as_json:
            self._session.screen.json_line(
                {"at": iso(self._clock.now()), "event": line.event, "subject": line.subject, **line.about}
            )
        else:
            self._print(line)

    def _print(self, line: EventLine) -> None:
        screen = self._session.screen
        self._width = min(max(self._width, len(line.subject)), 32)
        now = self._clock.now().astimezone()
        at = now.strftime("%H:%M:%S") if screen.is_terminal else now.isoformat(timespec="milliseconds")
        sign = f"{click.style(line.sign, fg=line.colour)} " if screen.is_terminal else ""
        event = click.style(f"{line.event:<9}", fg=line.colour)
        subject = click.style(line.subject.ljust(self._width), bold=True)
        screen.say(f"{click.style(at, dim=True)}  {sign}{event} {subject}  {line.words}".rstrip())

    def summary(self) -> str:
        shown = ("fired", "completed", "retry", "failed", "skipped", "expired", "cancelled")
        words = {"retry": "retried"}
        parts = [f"{self.totals[name]:,} {words.get(name, name)}" for name in shown if self.totals[name]]
        return ", ".join(parts) or "nothing happened"


def _line(seen: Observation, now: datetime) -> EventLine | None:
    match seen:
        case TimesHandled(schedule, run, task):
            return _handled(schedule, run, task, now)
        case TaskStarted(task):
            attempt = f"attempt {task.attempt}, " if task.attempt > 1 else ""
            return EventLine("started", "▶", "blue", task.kind, _dim(f"{attempt}{task.id}"), _about(task))
        case TaskMoved(task):
            return _moved(task)
        case ScheduleStopped(schedule):
            why = schedule.completed_reason or schedule.pause_note or ""
            return EventLine("stopped", "■", "yellow", schedule.key, f"is {schedule.status}: {why}")
        case ZonesRefreshed(schedule):
            words = f"new zone data moved its next time to {schedule.next_run_at}"
            return EventLine("moved", "◔", "yellow", schedule.key, words)
    return _trouble(seen)


def _handled(schedule: Schedule, run: Run, task: Task | None, now: datetime) -> EventLine:
    next_at = schedule.next_run_at
    after = _dim(f"next {relative(next_at, now)}") if next_at is not None else _dim("no further time")
    about = {
        "schedule": schedule.key,
        "scheduled_at": iso(run.scheduled_at),
        "trigger": str(run.trigger),
        "reason": run.reason and str(run.reason),
        "task_id": task and task.id,
        "next_run_at": next_at and iso(next_at),
    }
    if run.reason is RunReason.EXPIRED:
        words = f"{task.kind if task else 'its task'} had no time to start   {after}"
        return EventLine("expired", "◌", "yellow", schedule.key, words, about)
    if run.status is RunStatus.BUFFERED:
        words = f"waits until the run before it has ended   {after}"
        return EventLine("buffered", "◔", "yellow", schedule.key, words, about)
    if run.status is RunStatus.SKIPPED:
        times = "" if run.count == 1 else f"{run.count:,} times, "
        why = _SKIPPED.get(run.reason, str(run.reason)) if run.reason else ""
        if run.reason is RunReason.MISSED:
            why = f"{run.scheduled_at.astimezone():%d %b %H:%M:%S}: {why}"
        return EventLine("skipped", "↷", "yellow", schedule.key, f"{times}{why}   {after}", about)
    if run.status is RunStatus.FAILED:
        return EventLine("failed", "✗", "red", schedule.key, f"{run.error}   {after}", about)
    late = (run.started_at or now) - run.scheduled_at
    when = "on time" if late < PUNCTUAL else f"{short(late)} late"
    what = f"{task.kind}, " if task and task.kind != schedule.key else ""
    return EventLine("fired", "●", "magenta", schedule.key, f"{what}{when}   {after}", about)


def _moved(task: Task) -> EventLine | None:
    detail = task.history[-1].detail.replace("\n", " ") if task.history else ""
    about = {**_about(task), "status": str(task.status), "detail": detail}
    match task.status:
        case TaskStatus.COMPLETED:
            took = short((task.completed_at or task.updated_at) - (task.started_at or task.updated_at))
            return EventLine("completed", "✓", "green", task.kind, f"in {took}{_output(task)}", about)
        case TaskStatus.FAILED:
            return EventLine("failed", "✗", "red", task.kind, click.style(detail, fg="red"), about)
        case TaskStatus.PENDING if task.last_change in (ChangeType.RETRIED, ChangeType.LEASE_LOST):
            return EventLine("retry", "↻", "yellow", task.kind, detail, about)
        case TaskStatus.PENDING:
            return EventLine("waiting", "○", "cyan", task.kind, detail, about)
        case TaskStatus.EXPIRED:
            return EventLine("expired", "◌", "yellow", task.kind, _dim(task.id), about)
        case TaskStatus.CANCELLED:
            return EventLine("cancelled", "⊘", "magenta", task.kind, detail or _dim(task.id), about)
    return None


def _trouble(seen: Observation) -> EventLine | None:
    trouble = trouble_of(seen)
    if trouble is None:
        return None
    about = _about(seen.task) if isinstance(seen, (LeaseLost, ResultLost)) else {}
    words = click.style(trouble.words, fg="red")
    return EventLine("trouble", "!", "red", trouble.subject, words, {"detail": trouble.words, **about})


def _about(task: Task) -> dict[str, Any]:
    return {"task_id": task.id, "task_type": task.kind, "attempt": task.attempt}


def _output(task: Task) -> str:
    if not isinstance(task.output, (str, int, float)):
        return ""
    text = str(task.output).replace("\n", " ")
    return _dim(f"   {text[:60]}")


def _dim(text: str) -> str:
    return click.style(text, dim=True)
