"""Notices: what a record tells of its own past, one for each change. Pure.

A task tells each line of its history, and with it what became of its run; a row without a task tells how it ended;
a line of the audit tells what someone did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..domain.model import Change, Event, Record, Run, Schedule, Task, TaskStatus

__all__ = ["Notice", "cursor", "notices_of", "time_of_cursor"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"([0-9]{1,18})-[\x20-\x7e]{0,300}")


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One change: `task.completed`, `run.skipped`, `schedule.paused`, … `record` is as it is now, which may be later
    than the change; None if it is gone. `line` is the line of the task's history, `event` that of the audit."""

    at: datetime
    type: str
    action: str
    id: str
    number: int = 1
    record: Record | None = None
    line: Change | None = None
    event: Event | None = None
    schedule: Schedule | None = None
    task_id: str | None = None
    order: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.type}.{self.action}"

    @property
    def schedule_id(self) -> str | None:
        if self.type == "schedule":
            return self.id
        return self.record.schedule_id if isinstance(self.record, (Task, Run)) else None

    @property
    def cursor(self) -> str:
        """The same for the same change, whoever tells it, and the point behind which to go on."""
        source = (
            self.id if self.event is None else self.event.id
        )  # not every line of the audit makes a version
        return cursor(self.at, f"{self.type}:{source}:{self.number}")


def cursor(at: datetime, rest: str = "") -> str:
    return f"{(at - _EPOCH) // timedelta(microseconds=1)}-{rest}"


def time_of_cursor(text: str) -> datetime | None:
    """None: it is no cursor."""
    found = _CURSOR.fullmatch(text)
    try:
        return None if found is None else _EPOCH + timedelta(microseconds=int(found[1]))
    except OverflowError:
        return None


_ENDS = {
    TaskStatus.COMPLETED: "completed",
    TaskStatus.FAILED: "failed",
    TaskStatus.CANCELLED: "cancelled",
    TaskStatus.EXPIRED: "skipped",
}
"""How a run ends when its task does (`run.follows`)."""

_AGAIN = {"retry": "retrying", "rescheduled": "rescheduled", "handed": "returned", "replayed": "replayed"}
"""How a task came to wait again, by the first word that its history has for it."""


def notices_of(record: Task | Run | Event) -> Iterator[Notice]:
    """Everything that a record tells, in order."""
    match record:
        case Task():
            yield from _of_task(record)
        case Run():
            at = record.completed_at or record.created_at
            order = (at, 0, record.id, 1, 0)
            yield Notice(
                at=at, type="run", action=str(record.status), id=record.id, record=record, order=order
            )
        case Event():
            version = _version(record)
            yield Notice(
                at=record.at,
                type=record.subject_type,
                action=record.action,
                id=record.subject_id,
                number=version,
                event=record,
                order=(record.at, 1, record.subject_id, version, 0),
            )


def _version(event: Event) -> int:
    """The version that the event made of its subject; for one that is gone, the one it would have made."""
    if event.after is not None:
        return int(event.after.get("version", 1))
    return 1 + int((event.before or {}).get("version", 0))


def _of_task(task: Task) -> Iterator[Notice]:
    at = task.created_at
    for line in task.history:
        at = max(at, line.at)  # in the order of their numbers, also where a clock was set back
        action = _action(line)
        if action is None:
            continue
        of_run = None if task.run_id is None else _run_action(task, line, action)
        places = [(0, "run", "started")] if of_run == "started" else []
        places.append((1, "task", action))
        places += [(2, "run", of_run)] if of_run not in (None, "started") else []
        for place, type, told in places:
            yield Notice(
                at=line.at,
                type=type,
                action=told,
                id=task.id if type == "task" else task.run_id or "",
                number=line.number,
                record=task if type == "task" else None,
                line=line,
                task_id=task.id,
                order=(at, 0, task.id, line.number, place),
            )


def _action(line: Change) -> str | None:
    if line.number == 1:
        return "created"
    first_word = line.detail.partition(" ")[0]
    match line.status:
        case TaskStatus.RUNNING:
            return "started" if first_word == "attempt" else "cancelling"
        case TaskStatus.PENDING:
            return _AGAIN.get(first_word, "returned")
        case TaskStatus.ARCHIVED:
            return None
        case ended:
            return str(ended)


def _run_action(task: Task, line: Change, action: str) -> str | None:
    if action == "created":
        return "started"
    if line.status is TaskStatus.EXPIRED and task.error is not None:
        return "failed"
    return "replayed" if action == "replayed" else _ENDS.get(line.status)
