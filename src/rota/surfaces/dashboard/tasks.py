"""The list of tasks, and a task: its input and output, its error, its attempts, its history, its logs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fastapi import Response

from ...domain.errors import Invalid, NotFound, Refused
from ...domain.model import Change, ChangeType, Task, TaskStatus
from .texts import counted
from .visit import Visit

__all__ = ["act", "ask", "cancel_or_replay", "show", "show_one"]

LIMIT = 50
FILTERS = ("status", "kind", "queue", "schedule", "tag")
ACTIONS = {"cancel": "Cancel", "replay": "Replay"}
_BEGINS = ChangeType.CLAIMED
_REPLAYABLE = (TaskStatus.FAILED, TaskStatus.CANCELLED)


async def show(visit: Visit) -> Response:
    filters: dict[str, Any] = {name: visit.asked(name) for name in FILTERS}
    page = await visit.queue.list(limit=LIMIT, cursor=visit.asked("cursor"), **filters)
    return visit.show(
        "tasks.html",
        page=page,
        now=await visit.queue.now(),
        statuses=[str(each) for each in TaskStatus],
        said=_said(visit),
        is_filtered=any(filters.values()),
    )


class Attempt(NamedTuple):
    """One time that a worker took a task: when it could have begun, when it began, when and how it ended."""

    number: int
    ready_at: datetime
    began_at: datetime
    ended: Change | None

    def length(self, now: datetime) -> timedelta:
        return (self.ended.at if self.ended else now) - self.began_at


async def show_one(visit: Visit) -> Response:
    task = await visit.queue.get(visit.part("id"))
    now = await visit.queue.now()
    return visit.show(
        "task.html",
        task=task,
        now=now,
        status=str(task.status),
        why=_why(task, now),
        key=await _schedule_key(visit, task),
        attempts=attempts_of(task.history),
        may_cancel=visit.may_operate and task.is_live and not task.cancel_requested,
        may_replay=visit.may_operate and task.status in _REPLAYABLE,
    )


async def _schedule_key(visit: Visit, task: Task) -> str | None:
    try:
        return None if task.schedule_id is None else (await visit.queue.get_schedule(task.schedule_id)).key
    except NotFound:  # it is deleted
        return None


def _why(task: Task, now: datetime) -> str:
    """What a task does, or waits for."""
    match task.status:
        case TaskStatus.PENDING if task.available_at > now:
            again = " again" if task.attempt else ""
            return f"It waits for its time, to run{again} then."
        case TaskStatus.PENDING:
            return (
                f"It is ready, and waits for a worker that has kind {task.kind} and takes queue {task.queue}."
            )
        case TaskStatus.RUNNING if task.cancel_requested:
            return "Its handler was asked to stop."
        case TaskStatus.RUNNING:
            return f"Worker {task.worker_id} runs it."
        case TaskStatus.FAILED:
            return "It failed, and no retry is left." if task.retries else "It failed."
        case TaskStatus.CANCELLED:
            by = f" by {task.cancelled_by}" if task.cancelled_by else ""
            return f"It was cancelled{by}{': ' + task.cancel_reason if task.cancel_reason else '.'}"
        case TaskStatus.EXPIRED:
            return "No worker took it before it expired."
    return ""


def attempts_of(history: Sequence[Change]) -> list[Attempt]:
    """From the lines of the history: each claim, and the line after it."""
    found: list[Attempt] = []
    for place, line in enumerate(history):
        if line.type is not _BEGINS:
            continue
        later = [each for each in history[place + 1 :] if each.status is not TaskStatus.RUNNING]
        before = history[place - 1] if place else line
        ready = min(before.at + before.delay, line.at)
        found.append(Attempt(line.attempt or len(found) + 1, ready, line.at, later[0] if later else None))
    return found


async def ask(visit: Visit) -> Response:
    action, task = _action(visit.part("action")), await visit.queue.get(visit.part("id"))
    consequence = {
        "cancel": "It is asked to stop; what it has done stays done."
        if task.status is TaskStatus.RUNNING
        else "It will not run.",
        "replay": "It runs again with the same input and fresh retries, as soon as a worker takes it.",
    }[action]
    return _question(visit, action, [task.id], f"{ACTIONS[action]} this task", consequence)


def _question(visit: Visit, action: str, ids: list[str], title: str, consequence: str) -> Response:
    return visit.show(
        "confirm_tasks.html",
        title=title,
        consequence=consequence,
        action=action,
        verb=title,
        ids=ids,
        back=visit.url("tasks", ids[0]) if len(ids) == 1 else visit.url("tasks"),
    )


async def cancel_or_replay(visit: Visit) -> Response:
    await _deed(visit, _action(visit.part("action")), visit.part("id"))
    return visit.go(visit.url("tasks", visit.part("id")))


async def act(visit: Visit) -> Response:
    """The same for many: first the question with the number, then the deed."""
    action, ids = _action(visit.given("action") or ""), list(dict.fromkeys(visit.all_given("id")))
    if not ids:
        return visit.go(visit.url("tasks", said="none"))
    if visit.given("confirmed") is None:
        found = [await visit.queue.get(id) for id in ids]
        can = [each for each in found if (each.is_live if action == "cancel" else each.status in _REPLAYABLE)]
        rest = len(found) - len(can)
        words = f"{len(can)} of them can be; {rest} {'is' if rest == 1 else 'are'} left as they are."
        return _question(visit, action, ids, f"{ACTIONS[action]} {counted(len(found), 'task')}", words)
    done = 0
    for id in ids:
        try:
            await _deed(visit, action, id)
            done += 1
        except Refused:  # the question said that those stay as they are
            continue
    return visit.go(visit.url("tasks", said=action, number=done))


async def _deed(visit: Visit, action: str, id: str) -> None:
    if action == "cancel":
        await visit.queue.cancel(id, visit.given("reason") or "")
    else:
        await visit.queue.replay(id)


def _action(given: str) -> str:
    if given not in ACTIONS:
        raise Invalid("action", f"{given!r:.60} is not known", f"accepted are {', '.join(ACTIONS)}")
    return given


def _said(visit: Visit) -> str | None:
    said, number = visit.asked("said"), visit.asked("number") or ""
    if said == "none":
        return "No task was selected, so nothing was done."
    if said not in ACTIONS or not (number.isdecimal() and len(number) < 7):
        return None
    done = {"cancel": "cancelled, or asked to stop", "replay": "run again"}[said]
    return f"{counted(int(number), 'task')} {done}."
