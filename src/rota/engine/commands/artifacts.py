"""Works on artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...domain import artifact as rules
from ...domain.errors import Invalid
from ...domain.model import Artifact, Task
from ...stores.base import Tx, Work
from ...stores.queries import ArtifactList
from .shared import find_task

__all__ = ["leave_artifact"]


def leave_artifact(held: Task, name: str, facts: Mapping[str, Any]) -> Work[Artifact]:
    """Record what the holder of a task leaves under a name. The task is written with it: if another has it by now, or
    it is gone, that is a conflict, so a stale worker leaves nothing."""

    async def work(tx: Tx) -> Artifact:
        task = await find_task(tx, held.tenant, held.id)
        old = await tx.get(Artifact, rules.id_of(task.id, name))
        most = rules.MOST_OF_TASK
        if old is None and await tx.count(ArtifactList(task_ids=(task.id,)), at_most=most) >= most:
            raise Invalid("name", f"task {task.id} has left {most:,} artifacts", "that is the most")
        left = rules.leave(task, held.lease_id or "", old, name, tx.now, **facts)
        if left is old:
            return old
        tx.put(task)
        return tx.put(left)

    return work
