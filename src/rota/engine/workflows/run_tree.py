"""A workflow and what it started, as a tree: its steps, and below a step that started a task that task with its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...domain.model import Task
from ...domain.workflow import Step
from ...stores.base import Tx, Work
from ..commands.shared import find_task
from ..commands.workflows import steps_of

__all__ = ["Branch", "tree_of"]

DEPTH = 5
MOST_CHILDREN = 200
"""So many tasks are looked up below a workflow; of the others the step is shown, which has their id."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A task, its steps in the order in which its code got the answers, and by the id of the step those that it
    started. A task that is no workflow has no steps."""

    task: Task
    steps: Sequence[Step] = ()
    children: dict[str, Branch] = msgspec.field(default_factory=dict)


def tree_of(tenant: str, id: str) -> Work[Branch]:
    async def work(tx: Tx) -> Branch:
        task = (await find_task(tx, tenant, id)).as_of(tx.now)
        return await _branch(tx, task, DEPTH, [MOST_CHILDREN])

    return work


async def _branch(tx: Tx, task: Task, depth: int, left: list[int]) -> Branch:
    steps = await steps_of(task)(tx) if task.is_workflow else []
    started = {step.child_id: step.id for step in steps if step.child_id is not None}
    wanted = list(started)[: left[0]] if depth else []
    left[0] -= len(wanted)
    found = await tx.get_many(Task, wanted) if wanted else {}
    children = {
        started[id]: await _branch(tx, child.as_of(tx.now), depth - 1, left) for id, child in found.items()
    }
    return Branch(task=task, steps=steps, children=children)
