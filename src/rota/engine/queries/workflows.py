"""Questions about workflows: one and what it started, as a tree; and which of them will not go on by themselves, for
`rota doctor`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...domain import workflow
from ...domain.model import NodeState, Task, TaskStatus
from ...domain.serving import living
from ...domain.workflow import Step
from ...stores.base import Tx
from ...stores.queries import SignalList, StepList, TaskList
from ..commands.serving import every_node
from ..commands.shared import find_task
from ..commands.workflows import steps_of
from ..work import as_work

DEPTH = 5
MOST_CHILDREN = 200
"""So many tasks are looked up below a workflow; of the others the step is shown, which has their id."""
LOOKED_AT = 5000
EVERY = 1_000_000


class RunTree(msgspec.Struct, frozen=True, kw_only=True):
    """A task, its steps in the order in which its code got the answers, and its children by the id of the step that
    started them. A task that is no workflow has no steps."""

    task: Task
    steps: Sequence[Step] = ()
    children: dict[str, RunTree] = msgspec.field(default_factory=dict)


@as_work
async def tree_of(tx: Tx, tenant: str, id: str) -> RunTree:
    task = (await find_task(tx, tenant, id)).as_of(tx.now)
    return await _tree(tx, task, DEPTH, [MOST_CHILDREN])


async def _tree(tx: Tx, task: Task, depth: int, left: list[int]) -> RunTree:
    steps = await steps_of(task)(tx) if task.is_workflow else []
    started = {step.child_id: step.id for step in steps if step.child_id is not None}
    wanted = list(started)[: left[0]] if depth else []
    left[0] -= len(wanted)
    found = await tx.get_many(Task, wanted)
    children = {
        started[id]: await _tree(tx, child.as_of(tx.now), depth - 1, left) for id, child in found.items()
    }
    return RunTree(task=task, steps=steps, children=children)


@as_work
async def check_workflows(tx: Tx, tenant: str) -> list[str]:
    """Which will not go on, and why, one sentence each. Live runs are read by their index, up to `LOOKED_AT`; of those
    only the steps and signals of the runs that can have such trouble."""
    runs: list[Task] = []
    for status in (TaskStatus.PENDING, TaskStatus.RUNNING):
        query = TaskList(tenant=tenant, at=tx.now, status=status, is_workflow=True)
        runs += await tx.find(query, LOOKED_AT)
    alive = living(await every_node(tx), tx.now)
    return [*_stranded(runs, alive), *await _never_ending(tx, runs), *await _unheard(tx, runs)]


def _stranded(runs: Sequence[Task], alive: Sequence[NodeState]) -> list[str]:
    """One sentence for all runs of a kind and version."""
    groups: dict[str, list[Task]] = {}
    for run in runs:
        sentence = workflow.stranded(run, alive)
        if sentence is not None:
            groups.setdefault(sentence, []).append(run)
    return [f"{sentence} ({len(found):,}, {found[0].id} first)" for sentence, found in groups.items()]


async def _never_ending(tx: Tx, runs: Sequence[Task]) -> list[str]:
    waiting = {run.id: run for run in runs if workflow.may_wait_in_vain(run, tx.now)}
    if not waiting:
        return []
    steps = [
        step
        for step in await tx.find(StepList(task_ids=tuple(waiting)), EVERY)
        if not step.is_over and step.rewinds == waiting[step.task_id].rewinds
    ]
    children = await tx.get_many(Task, [step.child_id for step in steps if step.child_id is not None])
    found = [
        workflow.waits_in_vain(waiting[step.task_id], step, children.get(step.child_id or ""), tx.now)
        for step in steps
    ]
    return [each for each in found if each is not None]


async def _unheard(tx: Tx, runs: Sequence[Task]) -> list[str]:
    addressed = {run.id: run for run in runs if run.unread_signals}
    if not addressed:
        return []
    signals = await tx.find(SignalList(task_ids=tuple(addressed), unread=True), EVERY)
    found = [workflow.unheard(addressed[signal.task_id], signal, tx.now) for signal in signals]
    return [each for each in found if each is not None]
