"""Questions about tasks, the steps of workflows, and what tasks left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from ...domain import artifact
from ...domain.checks import shown
from ...domain.errors import Invalid
from ...domain.model import (
    Artifact,
    Task,
    TaskStatus,
)
from ...domain.workflow import MOST_UNREAD, Signal, Step
from ...stores.base import Tx
from ...stores.queries import (
    LONG_BEGINNING,
    ArtifactList,
    ArtifactsByContent,
    SignalList,
    TaskList,
    TasksByBeginning,
)
from ..commands.shared import find_any_schedule, find_task
from ..commands.workflows import steps_of
from ..work import as_work

LOOKED_AT = 100_000
"""Among so many tasks one is looked for by a short beginning of its id."""


@as_work
async def one_task(tx: Tx, tenant: str, id: str) -> Task:
    return (await find_task(tx, tenant, id)).as_of(tx.now)


@as_work
async def tasks_by_beginning(tx: Tx, tenant: str, beginning: str, limit: int) -> list[Task]:
    """The newest tasks whose ids begin so. Refused, if for a beginning that is short very many would be looked at."""
    if len(beginning) < LONG_BEGINNING:
        number = await tx.count(TaskList(tenant=tenant, at=tx.now), at_most=LOOKED_AT + 1)
        if number > LOOKED_AT:
            problem = f"{shown(beginning)} is too short for the beginning of an id, among so many tasks"
            raise Invalid("task_id", problem, f"give at least {LONG_BEGINNING} characters")
    return await tx.find(TasksByBeginning(tenant=tenant, beginning=beginning), limit)


@as_work
async def some_tasks(tx: Tx, tenant: str, ids: Collection[str]) -> dict[str, Task]:
    """The tasks that exist, by id."""
    found = await tx.get_many(Task, ids)
    return {id: task.as_of(tx.now) for id, task in found.items() if task.tenant == tenant}


@as_work
async def artifacts_of(tx: Tx, tenant: str, id: str) -> list[Artifact]:
    """The artifacts of a task, by name; before them the result of its handler, if there is one."""
    task = await find_task(tx, tenant, id)
    found = await tx.find(ArtifactList(task_ids=(task.id,)), artifact.MOST_OF_TASK)
    result = artifact.result_of(task)
    return found if result is None else [result, *found]


@as_work
async def one_artifact(tx: Tx, tenant: str, id: str, name: str) -> Artifact | None:
    task = await find_task(tx, tenant, id)
    if name == artifact.RESULT:
        return artifact.result_of(task)
    return await tx.get(Artifact, artifact.id_of(task.id, name))


@as_work
async def named_contents(tx: Tx, keys: Sequence[str]) -> set[str]:
    """The contents that some record names."""
    found = await tx.find(ArtifactsByContent(contents=tuple(keys)), len(keys))
    return {each.content for each in found if each.content is not None}


@as_work
async def steps_of_task(tx: Tx, tenant: str, id: str) -> list[Step]:
    """The steps of a workflow, done and waited for, oldest first."""
    return await steps_of(await find_task(tx, tenant, id))(tx)


@as_work
async def unread_signals(tx: Tx, tenant: str, id: str) -> list[Signal]:
    """The signals to a workflow that it has not received yet, oldest first."""
    task = await find_task(tx, tenant, id)
    return await tx.find(SignalList(task_ids=(task.id,), unread=True), MOST_UNREAD)


@as_work
async def task_page(tx: Tx, /, tenant: str, limit: int, **filters: Any) -> list[Task]:
    """The newest tasks that match; `schedule` is a schedule's key or id."""
    query = await task_list(tx, tenant, filters)
    return [task.as_of(tx.now) for task in await tx.find(query, limit)]


@as_work
async def count_matching(tx: Tx, /, tenant: str, at_most: int | None = None, **filters: Any) -> int:
    return await tx.count(await task_list(tx, tenant, filters), at_most=at_most)


async def task_list(tx: Tx, tenant: str, filters: dict[str, Any]) -> TaskList:
    chosen = dict(filters)
    key = chosen.pop("schedule", None)
    if key is not None:
        chosen["schedule_id"] = (await find_any_schedule(tx, tenant, key)).id
    return TaskList(tenant=tenant, at=tx.now, **chosen)


@as_work
async def task_query(tx: Tx, /, tenant: str, **filters: Any) -> TaskList:
    """The listing itself, a schedule's key resolved: for commands that act on what it finds."""
    return await task_list(tx, tenant, filters)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOOKED_THROUGH = 10_000
"""A search looks through so many tasks. For more, the caller says how far back to look."""

WINDOWS = (timedelta(days=30), timedelta(days=7), timedelta(days=1), timedelta(hours=1), timedelta(minutes=5))


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that match, and how far back they were looked for; None: to the first."""

    tasks: list[Task]
    back: timedelta | None


@as_work
async def recent_tasks(tx: Tx, /, tenant: str, limit: int, back: timedelta | None, **filters: Any) -> Recent:
    """The newest tasks that match, of those that were created within `back`. Without it: as far back as a bounded look
    reaches, since what matches rarely would be looked for in all tasks there are."""
    query = await task_list(tx, tenant, filters)
    reach = back if back is not None else await _reach(tx, query)
    since = None if reach is None or reach >= tx.now - _EPOCH else tx.now - reach
    found = await tx.find(replace(query, since=since), limit)
    return Recent(tasks=[task.as_of(tx.now) for task in found], back=None if since is None else reach)


async def _reach(tx: Tx, query: TaskList) -> timedelta | None:
    """The widest window with few enough tasks. What has an index of its own needs none."""
    is_indexed = query.schedule_id is not None or query.is_workflow
    is_scanned = query.kind or query.queue or query.tag or query.status is TaskStatus.COMPLETED
    if is_indexed or not is_scanned:
        return None
    every = TaskList(tenant=query.tenant, at=query.at)
    for window in (None, *WINDOWS):
        wide = replace(every, since=None if window is None else tx.now - window)
        if await tx.count(wide, at_most=LOOKED_THROUGH) < LOOKED_THROUGH:
            return window
    return WINDOWS[-1]
