"""`rota tail`: every line of every task's history, as it happens.

It looks when the store says that something changed, never more often than ten times a second. New tasks
are found by the order of their creation, with an overlap (commits may be seen out of that order); the live
ones that it knows are read again. So each line is printed once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from .command import command
from .render import iso, styled
from .session import Session, with_session
from .tasks import task_filters

if TYPE_CHECKING:
    from ...domain.model import Change, Task
    from ..client import Queue

__all__ = ["tail"]

OVERLAP = timedelta(seconds=10)
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
        watch = Watch(queue, filters)
        past = [each for each in await watch.begin() if status in (None, each[1].status)]
        _print(session, past[-lines:] if lines > 0 else [])
        while not no_follow:
            _print(session, [each for each in await watch.more() if status in (None, each[1].status)])

    try:
        session.run(follow)
    except KeyboardInterrupt:
        session.screen.remark("")


def _print(session: Session, lines: Sequence[tuple[Task, Change]]) -> None:
    from ..shapes import change

    for task, line in lines:
        if session.as_json:
            session.screen.json_line({"task_id": task.id, "task_type": task.kind, **change(line)})
        else:
            session.screen.say(_text(session, task, line))


def _text(session: Session, task: Task, line: Change) -> str:
    state = session.screen.status(line.status)
    detail = f"  {line.detail}" if line.detail else ""
    at = line.at.astimezone().strftime("%H:%M:%S") if session.screen.is_terminal else iso(line.at)
    text = f"{click.style(at, dim=True)}  {task.id}  {task.kind}  {styled(state)}{detail}"
    return text.replace("\n", " ")


class Watch:
    """What has been printed: the last line of each task that may still change."""

    def __init__(self, queue: Queue, filters: dict[str, Any]) -> None:
        self._queue = queue
        self._filters = filters
        self._printed: dict[str, int] = {}
        self._recent: dict[str, datetime] = {}
        self._newest: datetime | None = None

    async def begin(self) -> list[tuple[Task, Change]]:
        """The past, oldest first; from here on only what is new."""
        tasks = {task.id: task for task in await self._queue.list(limit=PAGE, **self._filters)}
        for status in ("pending", "running"):
            live = await self._queue.list(status=status, limit=10_000, **self._filters)
            tasks |= {task.id: task for task in live}
        self._newest = max((task.created_at for task in tasks.values()), default=await self._queue.now())
        return self._taken(list(tasks.values()))

    async def more(self) -> list[tuple[Task, Change]]:
        """Wait for a change; the lines that it brought, in order of time."""
        from ...engine.clock import sleep

        changed = asyncio.ensure_future(self._queue.store.wait(None))
        try:
            await sleep(timedelta(0))  # the wait has begun: nothing that follows is missed
            tasks = {task.id: task for task in [*await self._known(), *await self._new()]}
            lines = self._taken(list(tasks.values()))
            if not lines:
                await changed
        finally:
            changed.cancel()
        await sleep(AT_MOST_EVERY)
        return lines

    def _taken(self, tasks: list[Task]) -> list[tuple[Task, Change]]:
        lines = [(task, line) for task in tasks for line in self._unprinted(task)]
        for task in tasks:
            self._note(task)
        return sorted(lines, key=lambda each: (each[1].at, each[0].id, each[1].number))

    def _unprinted(self, task: Task) -> Iterator[Change]:
        printed = self._printed.get(task.id, 0)
        return (line for line in task.history if line.number > printed)

    def _note(self, task: Task) -> None:
        assert self._newest is not None
        self._newest = max(self._newest, task.created_at)
        self._printed[task.id] = task.history[-1].number if task.history else 0
        if task.is_live:
            self._recent.pop(task.id, None)
        else:
            self._recent[task.id] = task.created_at
        for old in [each for each, at in self._recent.items() if at < self._newest - 2 * OVERLAP]:
            del self._recent[old]
            self._printed.pop(old, None)

    async def _known(self) -> list[Task]:
        from ...engine.checks import tasks_by_id

        live = [each for each in self._printed if each not in self._recent]
        return await self._queue.store.read(tasks_by_id(live)) if live else []

    async def _new(self) -> list[Task]:
        assert self._newest is not None
        found: list[Task] = []
        cursor = None
        while True:
            page = await self._queue.list(limit=PAGE, cursor=cursor, **self._filters)
            found += [task for task in page if task.created_at >= self._newest - OVERLAP]
            cursor = page.next_cursor
            if cursor is None or not page or page[-1].created_at < self._newest - OVERLAP:
                return found
