"""`rota tail`: every line of every task's history, and every step of a workflow, as it happens.

It looks when the store says that something changed, never more often than ten times a second. What changed
since the look before is what `engine/changes.py` says: each line is printed once. Over a server, its stream of events
says which tasks changed, and those are asked for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ....domain.errors import NotFound, Unavailable
from ....domain.model import Change, Task
from ...durations import iso
from ..render import prose_for, styled
from ..session import Session, command
from .tasks import task_filters

if TYPE_CHECKING:
    from ....domain.workflow import Step
    from ....engine.changes import Notice
    from ...python.client import Queue
    from ...remote.queue import RemoteQueue

    Line = tuple[Task, Change | Step]

AT_MOST_EVERY = timedelta(milliseconds=100)
PAGE = 500
AT_ONCE = 100
"""The number of tasks that a server is asked for at once."""
SHORTEST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(seconds=30)
"""Pauses before a server that was lost is asked again."""


@command(
    examples=["rota tail", "rota tail --schedule daily-report -n 20", "rota tail --status failed --json"]
)
@task_filters
@click.option("-n", "--lines", default=10, show_default=True, help="Begin with this many earlier lines.")
@click.option("--no-follow", is_flag=True, help="Only the earlier lines.")
def tail(session: Session, lines: int, no_follow: bool, status: str | None, **filters: Any) -> None:
    """Follow what happens to tasks and the steps of workflows, live. Ctrl-C ends it.

    --status shows only the lines of tasks that led to this state."""

    async def follow(queue: Queue) -> None:
        with closing(_following(queue, filters, session.screen.remark)) as following:
            past = [each for each in await following.begin() if status in (None, each[1].status)]
            _print(session, past[-lines:] if lines > 0 else [])
            while not no_follow:
                new, too_many = await following.more()
                if too_many:
                    session.screen.remark("Too much happened at once: some lines are left out.")
                _print(session, [each for each in new if status is None or _led_to(each[1], status)])

    try:
        session.run(follow, may_be_long=True)
    except KeyboardInterrupt:
        session.screen.remark("")


def _following(queue: Queue, filters: dict[str, Any], remark: Callable[[str], None]) -> Tail | RemoteTail:
    from ...remote.queue import RemoteQueue

    return RemoteTail(queue, filters, remark) if isinstance(queue, RemoteQueue) else Tail(queue, filters)


def _led_to(line: Change | Step, status: str) -> bool:
    return isinstance(line, Change) and line.status == status


def _print(session: Session, lines: Sequence[Line]) -> None:
    from ....domain.workflow import Step
    from ...shapes import plain

    for task, line in lines:
        if session.as_json:
            shape = {"step": line} if isinstance(line, Step) else plain(line)
            session.screen.json_line({"task_id": task.id, "task_type": task.kind, **shape})
        else:
            session.screen.say(_text(session, task, line))


def _text(session: Session, task: Task, line: Change | Step) -> str:
    from ....domain.workflow import Step

    if isinstance(line, Step):
        when, what, detail = line.updated_at, f"{task.kind}  {line.key}", _detail(line)
    else:
        when, what, detail = line.at, task.kind, line.detail or ""
    state = session.screen.status(line.status)
    at = session.screen.local(when).strftime("%H:%M:%S") if session.screen.is_terminal else iso(when)
    id = session.screen.ids([task.id])[task.id]
    text = f"{click.style(at, dim=True)}  {id}  {what}  {styled(state)}  {detail}"
    return text.rstrip().replace("\n", " ")


def _detail(step: Step) -> str:
    tries = f"try {step.attempts}" if step.attempts > 1 or (step.attempts and not step.is_over) else ""
    until = f"until {iso(step.due_at)}" if step.due_at is not None and not step.is_over else ""
    return ", ".join(each for each in (tries, until, str(step.error or "")) if each)


class _Lines:
    """Lines of the tasks that fit the filters. What was shown as part of the past is not shown again."""

    def __init__(self, queue: Queue, filters: dict[str, Any]) -> None:
        self._queue = queue
        self._filters = filters
        self._schedule_id: str | None = None
        self._shown: dict[str, int] = {}

    def close(self) -> None:
        """End what runs meanwhile: on a store, nothing."""

    async def begin(self) -> list[Line]:
        """The past, oldest first; from here on only what is new."""
        tasks = {task.id: task for task in await self._queue.list(limit=PAGE, **self._filters)}
        for status in ("pending", "running"):
            live = await self._queue.list(status=status, limit=10_000, **self._filters)
            tasks |= {task.id: task for task in live}
        self._shown = {task.id: task.history[-1].number for task in tasks.values() if task.history}
        lines = [(task, line) for task in tasks.values() for line in task.history]
        lines.sort(key=lambda each: (each[1].at, each[0].id, each[1].number))
        return [*lines]

    def _is_wanted(self, task: Task, schedule: str | None = None) -> bool:
        """Whether the task fits the filters. `schedule` is the key of the one that started it, where that is known."""
        names = [task.schedule_id, schedule]
        if task.schedule_id is not None and task.schedule_id == self._schedule_id:
            names.append(self._filters["schedule"])
        has = {"kind": (task.kind,), "queue": (task.queue,), "tag": task.tags, "schedule": names}
        return all(wanted is None or wanted in has[name] for name, wanted in self._filters.items())


class RemoteTail(_Lines):
    """Behind a server. A task that changed is asked for, and tells the lines that are new. If the server is lost, it
    goes on from where it was."""

    def __init__(self, queue: RemoteQueue, filters: dict[str, Any], remark: Callable[[str], None]) -> None:
        super().__init__(queue, filters)
        self._server = queue
        self._remark = remark
        self._position: str | None = None
        self._changed: dict[str, set[str]] = {}
        self._told: dict[str, datetime] = {}
        self._has_gap = False
        self._hears = asyncio.Event()
        self._rings = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())
        self._listening.add_done_callback(lambda _: self._hears.set())
        self._listening.add_done_callback(lambda _: self._rings.set())

    def close(self) -> None:
        self._listening.cancel()

    async def begin(self) -> list[Line]:
        await self._hears.wait()
        if self._listening.done():
            await self._listening  # it says why
        if self._filters.get("schedule") is not None:
            self._schedule_id = (await self._queue.get_schedule(self._filters["schedule"])).id
        return await super().begin()

    async def _listen(self) -> None:
        """Note which tasks change, and which of their steps. A stream that is lost is asked for again."""
        from ....engine.clock import sleep

        pause = SHORTEST_PAUSE
        while True:
            try:
                async with self._server.stream("task,step", self._position) as heard:
                    self._hears.set()
                    async for self._position, record in heard:
                        pause = SHORTEST_PAUSE
                        self._note(record)
            except Unavailable as problem:
                if not self._hears.is_set():
                    raise
                if pause == SHORTEST_PAUSE:
                    said = f"{problem}: trying again, to go on from here; Ctrl-C ends it"
                    self._remark(prose_for(sys.stderr, said))
            await sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _note(self, record: dict[str, Any] | None) -> None:
        if record is None:
            return
        if "taskId" in record:
            self._changed.setdefault(record["taskId"], set()).add(record["id"])
        elif "id" in record:
            self._changed.setdefault(record["id"], set())
        else:
            self._has_gap = True  # more happened than the server can tell
        self._rings.set()

    async def more(self) -> tuple[list[Line], bool]:
        from ....engine.clock import sleep

        await self._rings.wait()
        self._rings.clear()
        if self._listening.done():
            await self._listening  # it says why
        await sleep(AT_MOST_EVERY)
        changed, self._changed = self._changed, {}
        asked = list(changed)[-AT_ONCE:]
        found = await asyncio.gather(*(self._of_task(id, changed[id]) for id in asked))
        lines = [line for each in found for line in each]
        too_many, self._has_gap = self._has_gap or len(asked) < len(changed), False
        return sorted(lines, key=_at), too_many

    async def _of_task(self, id: str, steps: set[str]) -> list[Line]:
        from ....engine.clock import sleep

        try:
            task = await self._queue.get(id)
            found = await self._queue.steps(id) if steps else []
        except NotFound:
            return []
        except Unavailable:  # the stream says so
            await sleep(SHORTEST_PAUSE)
            self._changed.setdefault(id, set()).update(steps)
            self._rings.set()
            return []
        if not self._is_wanted(task):
            return []
        new = [line for line in task.history if line.number > self._shown.get(id, 0)]
        self._shown[id] = task.history[-1].number if task.history else 0
        told = [step for step in found if step.id in steps and self._told.get(step.id) != step.updated_at]
        self._told |= {step.id: step.updated_at for step in told}
        return [*((task, line) for line in new), *((task, step) for step in told)]


def _at(line: Line) -> datetime:
    from ....domain.workflow import Step

    return line[1].updated_at if isinstance(line[1], Step) else line[1].at


class Tail(_Lines):
    """On a store: changes from the first look on."""

    def __init__(self, queue: Queue, filters: dict[str, Any]) -> None:
        from ....engine.changes import ChangeFollower

        super().__init__(queue, filters)
        self._follower = ChangeFollower(queue.store, queue.tenant)
        self._tasks: dict[str, Task] = {}

    async def begin(self) -> list[Line]:
        from ....engine.queries import task_query

        await self._follower.look()
        if self._filters.get("schedule") is not None:
            named = task_query(self._queue.tenant, schedule=self._filters["schedule"])
            self._schedule_id = (await self._queue.store.read(named)).schedule_id
        return await super().begin()

    async def more(self) -> tuple[list[Line], bool]:
        """Wait for a change; the lines that it brought, in order of time, or that they are too many (True)."""
        from ....engine.clock import sleep

        changed = asyncio.ensure_future(self._queue.store.wait(None))
        try:
            await sleep(timedelta(0))  # the wait has begun: nothing that follows is missed
            look = await self._follower.look()
            await self._meet(look.notices)
            lines = [line for notice in look.notices for line in self._line(notice)]
            if not lines and not look.too_many:
                await changed
        finally:
            changed.cancel()
        await sleep(AT_MOST_EVERY)
        return lines, look.too_many

    async def _meet(self, notices: Sequence[Notice]) -> None:
        """Know the workflows whose steps are told; those that ended long ago are forgotten."""
        wanted = {each.task_id for each in notices if each.type == "step" and each.task_id is not None}
        self._tasks = {id: task for id, task in self._tasks.items() if id in wanted}
        for id in wanted - self._tasks.keys():
            with suppress(NotFound):
                self._tasks[id] = await self._queue.get(id)

    def _line(self, notice: Notice) -> Iterator[Line]:
        from ....domain.workflow import Step

        task, line = notice.record, notice.line
        schedule = None if notice.schedule is None else notice.schedule.key
        if isinstance(task, Step):
            of = self._tasks.get(task.task_id)
            if of is not None and self._is_wanted(of, schedule):
                yield of, task
            return
        if not isinstance(task, Task) or line is None or not self._is_wanted(task, schedule):
            return
        if line.number > self._shown.get(task.id, 0):
            yield task, line
