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
from ...stores.base import Tx, Work
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

__all__ = [
    "Recent",
    "artifacts_of",
    "count_matching",
    "named_contents",
    "one_artifact",
    "one_task",
    "recent_tasks",
    "some_tasks",
    "steps_of_task",
    "task_list",
    "task_page",
    "task_query",
    "tasks_by_beginning",
    "unread_signals",
]


LOOKED_AT = 100_000
"""Among so many tasks one is looked for by a short beginning of its id."""


def one_task(tenant: str, id: str) -> Work[Task]:
    async def work(tx: Tx) -> Task:
        return (await find_task(tx, tenant, id)).as_of(tx.now)

    return work


def tasks_by_beginning(tenant: str, beginning: str, limit: int) -> Work[list[Task]]:
    """The newest tasks whose ids begin so. Refused, if for a beginning that is short very many would be looked at."""

    async def work(tx: Tx) -> list[Task]:
        if len(beginning) < LONG_BEGINNING:
            number = await tx.count(TaskList(tenant=tenant, at=tx.now), at_most=LOOKED_AT + 1)
            if number > LOOKED_AT:
                problem = f"{shown(beginning)} is too short for the beginning of an id, among so many tasks"
                raise Invalid("task_id", problem, f"give at least {LONG_BEGINNING} characters")
        return await tx.find(TasksByBeginning(tenant=tenant, beginning=beginning), limit)

    return work


def some_tasks(tenant: str, ids: Collection[str]) -> Work[dict[str, Task]]:
    """The tasks that exist, by id."""

    async def work(tx: Tx) -> dict[str, Task]:
        found = await tx.get_many(Task, ids)
        return {id: task.as_of(tx.now) for id, task in found.items() if task.tenant == tenant}

    return work


def artifacts_of(tenant: str, id: str) -> Work[list[Artifact]]:
    """What a task left, by name; before that what its handler returned, if that is anything."""

    async def work(tx: Tx) -> list[Artifact]:
        task = await find_task(tx, tenant, id)
        found = await tx.find(ArtifactList(task_ids=(task.id,)), artifact.MOST_OF_TASK)
        result = artifact.result_of(task)
        return found if result is None else [result, *found]

    return work


def one_artifact(tenant: str, id: str, name: str) -> Work[Artifact | None]:
    async def work(tx: Tx) -> Artifact | None:
        task = await find_task(tx, tenant, id)
        if name == artifact.RESULT:
            return artifact.result_of(task)
        return await tx.get(Artifact, artifact.id_of(task.id, name))

    return work


def named_contents(keys: Sequence[str]) -> Work[set[str]]:
    """The contents that some record names."""

    async def work(tx: Tx) -> set[str]:
        found = await tx.find(ArtifactsByContent(contents=tuple(keys)), len(keys))
        return {each.content for each in found if each.content is not None}

    return work


def steps_of_task(tenant: str, id: str) -> Work[list[Step]]:
    """What a workflow did and waits for, oldest first."""

    async def work(tx: Tx) -> list[Step]:
        return await steps_of(await find_task(tx, tenant, id))(tx)

    return work


def unread_signals(tenant: str, id: str) -> Work[list[Signal]]:
    """What was sent to a workflow and not received yet, oldest first."""

    async def work(tx: Tx) -> list[Signal]:
        task = await find_task(tx, tenant, id)
        return await tx.find(SignalList(task_ids=(task.id,), unread=True), MOST_UNREAD)

    return work


def task_page(tenant: str, limit: int, **filters: Any) -> Work[list[Task]]:
    """The newest tasks that match; `schedule` is a schedule's key or id."""

    async def work(tx: Tx) -> list[Task]:
        query = await task_list(tx, tenant, filters)
        return [task.as_of(tx.now) for task in await tx.find(query, limit)]

    return work


def count_matching(tenant: str, at_most: int | None = None, **filters: Any) -> Work[int]:
    async def work(tx: Tx) -> int:
        return await tx.count(await task_list(tx, tenant, filters), at_most=at_most)

    return work


async def task_list(tx: Tx, tenant: str, filters: dict[str, Any]) -> TaskList:
    chosen = dict(filters)
    key = chosen.pop("schedule", None)
    if key is not None:
        chosen["schedule_id"] = (await find_any_schedule(tx, tenant, key)).id
    return TaskList(tenant=tenant, at=tx.now, **chosen)


def task_query(tenant: str, **filters: Any) -> Work[TaskList]:
    """The listing itself, a schedule's key resolved: for commands that act on what it finds."""

    async def work(tx: Tx) -> TaskList:
        return await task_list(tx, tenant, filters)

    return work


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOOKED_THROUGH = 10_000
"""A search looks through so many tasks. For more, the caller says how far back to look."""

WINDOWS = (timedelta(days=30), timedelta(days=7), timedelta(days=1), timedelta(hours=1), timedelta(minutes=5))


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that match, and how far back they were looked for; None: to the first."""

    tasks: list[Task]
    back: timedelta | None


def recent_tasks(tenant: str, limit: int, back: timedelta | None, **filters: Any) -> Work[Recent]:
    """The newest tasks that match, of those that were created within `back`. Without it: as far back as a bounded look
    reaches, since what matches rarely would be looked for in all tasks there are."""

    async def work(tx: Tx) -> Recent:
        query = await task_list(tx, tenant, filters)
        reach = back if back is not None else await _reach(tx, query)
        since = None if reach is None or reach >= tx.now - _EPOCH else tx.now - reach
        found = await tx.find(replace(query, since=since), limit)
        return Recent(tasks=[task.as_of(tx.now) for task in found], back=None if since is None else reach)

    return work


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
