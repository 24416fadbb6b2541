"""The history of a task without the lines that its fields imply, for stores that keep no value twice.

Three lines can be told from the fields: the first, how the task was created, and the last ones, that it was claimed
and that it completed. So a claim and a completion write columns only, and most tasks keep no line at all.
"""

from __future__ import annotations

import msgspec

from ..model import Change, ChangeType, Task, TaskStatus

HISTORY_KEPT = 50


class ShortHistory(msgspec.Struct, frozen=True, gc=False):
    """A history without the lines that the fields of the task imply. `number` is that of the last line of the whole
    history. `creator` is who created the task, if that line is left out; `actor` is who completed it, likewise."""

    lines: tuple[Change, ...]
    number: int
    actor: str | None = None
    creator: str | None = None


def short_history(task: Task) -> ShortHistory:
    """The part of the history that has to be kept beside the fields."""
    lines = task.history
    if not lines:
        return ShortHistory((), 0)
    number = lines[-1].number
    left, actor = _implied_at_the_end(task, lines, number)
    kept = lines[: len(lines) - left]
    first = lines[0]
    if kept and "\0" not in first.actor and first == _created(task, first.actor):
        return ShortHistory(kept[1:], number, actor, first.actor)
    return ShortHistory(kept, number, actor)


def _implied_at_the_end(task: Task, lines: tuple[Change, ...], number: int) -> tuple[int, str | None]:
    """How many of the last lines, and who completed the task if those say so."""
    last = lines[-1]
    if task.status is TaskStatus.RUNNING and last == _claimed(task, number, task.worker_id):
        if last_number(lines[:-1]) == number - 1:
            return 1, None
    elif task.status is TaskStatus.COMPLETED and last == _completed(task, number, last.actor):
        before = lines[-2:-1] == (_claimed(task, number - 1, last.actor),)
        if before and last_number(lines[:-2]) == number - 2:
            return 2, last.actor
    return 0, None


def is_short_alike(old: Task, new: Task, short: ShortHistory) -> bool:
    """Whether `short`, the history of the new task, has the same lines as that of the old one. What usually happens (a
    renewed lease, a completion) can be seen without making that."""
    if old.started_at == new.started_at and old.attempt == new.attempt and old.expires_at == new.expires_at:
        if old.status is new.status and old.worker_id == new.worker_id and old.history is new.history:
            return old.completed_at == new.completed_at
        if old.status is TaskStatus.RUNNING and short.actor is not None and old.worker_id == short.actor:
            return old.history == new.history[:-1]
    before = short_history(old)
    return before.lines == short.lines and before.creator == short.creator


def whole_history(task: Task, short: ShortHistory) -> tuple[Change, ...]:
    """The history with the lines that the fields of the task imply. Its `history` is not looked at."""
    lines, number, actor = short.lines, short.number, short.actor
    if short.creator is not None:
        lines = (_created(task, short.creator), *lines)
    missing = number - last_number(lines)
    if missing == 1 and task.status is TaskStatus.RUNNING:
        return appended(lines, _claimed(task, number, task.worker_id))
    if missing in (1, 2) and task.status is TaskStatus.COMPLETED:
        if missing == 2:
            lines = appended(lines, _claimed(task, number - 1, actor))
        return appended(lines, _completed(task, number, actor))
    return lines


def _created(task: Task, actor: str) -> Change:
    return Change(
        number=1,
        at=task.created_at,
        status=TaskStatus.PENDING,
        actor=actor,
        type=ChangeType.CREATED,
        expires_at=task.expires_at,
    )


def _claimed(task: Task, number: int, actor: str | None) -> Change:
    return Change(
        number=number,
        at=task.started_at or task.updated_at,
        status=TaskStatus.RUNNING,
        actor=actor or "",
        type=ChangeType.CLAIMED,
        attempt=task.attempt,
    )


def _completed(task: Task, number: int, actor: str | None) -> Change:
    return Change(
        number=number,
        at=task.completed_at or task.updated_at,
        status=TaskStatus.COMPLETED,
        actor=actor or "",
        type=ChangeType.COMPLETED,
    )


def last_number(lines: tuple[Change, ...]) -> int:
    return lines[-1].number if lines else 0


def appended(history: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    """The first line is kept for good."""
    if len(history) >= HISTORY_KEPT:
        history = history[:1] + history[2 - HISTORY_KEPT :]
    return (*history, change)
