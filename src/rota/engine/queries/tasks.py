"""Questions about tasks, the steps of workflows, and what tasks left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...domain import artifact
from ...domain.model import (
    Artifact,
    Task,
)
from ...domain.workflow import MOST_UNREAD, Signal, Step
from ...stores.base import Tx, Work
from ...stores.queries import (
    ArtifactList,
    ArtifactsByContent,
    SignalList,
    TaskList,
    TasksByBeginning,
)
from ..commands.shared import find_any_schedule, find_task
from ..commands.workflows import steps_of

__all__ = [
    "artifacts_of",
    "count_matching",
    "named_contents",
    "one_artifact",
    "one_task",
    "some_tasks",
    "steps_of_task",
    "task_list",
    "task_page",
    "task_query",
    "tasks_by_beginning",
    "unread_signals",
]


def one_task(tenant: str, id: str) -> Work[Task]:
    async def work(tx: Tx) -> Task:
        return (await find_task(tx, tenant, id)).as_of(tx.now)

    return work


def tasks_by_beginning(tenant: str, beginning: str, limit: int) -> Work[list[Task]]:
    """The newest tasks whose ids begin so."""

    async def work(tx: Tx) -> list[Task]:
        return await tx.find(TasksByBeginning(tenant=tenant, beginning=beginning), limit)

    return work


def some_tasks(tenant: str, ids: Collection[str]) -> Work[dict[str, Task]]:
    """Those that there are, by id."""

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
    """Those of the contents that a record names."""

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
