"""`rota tail`: every line of every task's history, as it happens.

It looks when the store says that something changed, never more often than ten times a second. What changed
since the look before is what `engine/changes.py` says: each line is printed once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import click

from ..command import command
from ..render import iso, styled
from ..session import Session, with_session
from .tasks import task_filters

if TYPE_CHECKING:
    from ....domain.model import Change, Task
    from ....engine.changes import Notice
    from ...python.client import Queue

    Line = tuple[Task, Change]

__all__ = ["tail"]

AT_MOST_EVERY = timedelta(milliseconds=100)
PAGE = 500


@command(
    examples=[
        "rota tail",
        "rota tail --schedule daily-report -n 20",
        "rota tail --status failed --json",
    ]
)
@task_filters
@click.option("-n", "--lines", default=10, show_default=True, help="Begin with this many earlier lines.")
@click.option("--no-follow", is_flag=True, help="Only the earlier lines.")
@with_session
def tail(session: Session, lines: int, no_follow: bool, status: str | None, **filters: Any) -> None:
    """Follow what happens to tasks, live. Ctrl-C ends it.

    --status shows only the lines that led to this state."""

    async def follow(queue: Queue) -> None:
        following = Tail(queue, filters)
        past = [each for each in await following.begin() if status in (None, each[1].status)]
        _print(session, past[-lines:] if lines > 0 else [])
        while not no_follow:
            new, too_many = await following.more()
            if too_many:
                session.screen.remark("Too much happened at once: some lines are left out.")
            _print(session, [each for each in new if status in (None, each[1].status)])

    try:
        session.run(follow)
    except KeyboardInterrupt:
        session.screen.remark("")


def _print(session: Session, lines: Sequence[Line]) -> None:
    from ...shapes import change

    for task, line in lines:
        if session.as_json:
            session.screen.json_line({"task_id": task.id, "task_type": task.kind, **change(line)})
        else:
            session.screen.say(_text(session, task, line))


def _text(session: Session, task: Task, line: Change) -> str:
    state = session.screen.status(line.status)
    detail = f"  {line.detail}" if line.detail else ""
    zone = UTC if session.screen.utc else None
    at = line.at.astimezone(zone).strftime("%H:%M:%S") if session.screen.is_terminal else iso(line.at)
    id = session.screen.ids([task.id])[task.id]
    text = f"{click.style(at, dim=True)}  {id}  {task.kind}  {styled(state)}{detail}"
    return text.replace("\n", " ")


class Tail:
    """Changes from the first look on. A change that was shown as part of the past is not shown again."""

    def __init__(self, queue: Queue, filters: dict[str, Any]) -> None:
        from ....engine.changes import ChangeFollower

        self._queue = queue
        self._filters = filters
        self._follower = ChangeFollower(queue.store, queue.tenant)
        self._shown: dict[str, int] = {}

    async def begin(self) -> list[Line]:
        """The past, oldest first; from here on only what is new."""
        await self._follower.look()
        tasks = {task.id: task for task in await self._queue.list(limit=PAGE, **self._filters)}
        for status in ("pending", "running"):
            live = await self._queue.list(status=status, limit=10_000, **self._filters)
            tasks |= {task.id: task for task in live}
        self._shown = {task.id: task.history[-1].number for task in tasks.values() if task.history}
        lines = [(task, line) for task in tasks.values() for line in task.history]
        return sorted(lines, key=lambda each: (each[1].at, each[0].id, each[1].number))

    async def more(self) -> tuple[list[Line], bool]:
        """Wait for a change; the lines that it brought, in order of time, or that they are too many (True)."""
        from ....engine.clock import sleep

        changed = asyncio.ensure_future(self._queue.store.wait(None))
        try:
            await sleep(timedelta(0))  # the wait has begun: nothing that follows is missed
            look = await self._follower.look()
            lines = [line for notice in look.notices for line in self._line(notice)]
            if not lines and not look.too_many:
                await changed
        finally:
            changed.cancel()
        await sleep(AT_MOST_EVERY)
        return lines, look.too_many

    def _line(self, notice: Notice) -> Iterator[Line]:
        from ....domain.model import Task

        task, line = notice.record, notice.line
        if not isinstance(task, Task) or line is None or not self._is_wanted(task, notice):
            return
        if line.number > self._shown.get(task.id, 0):
            yield task, line

    def _is_wanted(self, task: Task, notice: Notice) -> bool:
        schedule = (task.schedule_id, notice.schedule and notice.schedule.key)
        has = {"kind": (task.kind,), "queue": (task.queue,), "tag": task.tags, "schedule": schedule}
        return all(wanted is None or wanted in has[name] for name, wanted in self._filters.items())
