"""Which workflows will not go on by themselves, and why: for `rota doctor`.

A look reads live runs by their index, up to `LOOKED_AT`, and of those only the steps and signals of the runs that can
have such trouble."""

from __future__ import annotations

from collections.abc import Sequence

from ...domain import workflow
from ...domain.model import NodeState, Task, TaskStatus
from ...domain.serving import living
from ...domain.workflow import Step
from ...stores.base import Tx, Work
from ...stores.queries import SignalList, StepList, TaskList
from ..commands.nodes import every_node

__all__ = ["check_workflows"]

LOOKED_AT = 5000
EVERY = 1_000_000


def check_workflows(tenant: str) -> Work[list[str]]:
    """The troubles, one sentence each."""

    async def work(tx: Tx) -> list[str]:
        runs: list[Task] = []
        for status in (TaskStatus.PENDING, TaskStatus.RUNNING):
            query = TaskList(tenant=tenant, at=tx.now, status=status, is_workflow=True)
            runs += await tx.find(query, LOOKED_AT)
        alive = living(await every_node(tx), tx.now)
        return [*_stranded(runs, alive), *await _never_ending(tx, runs), *await _unheard(tx, runs)]

    return work


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
    found = [_in_vain(waiting[step.task_id], step, children, tx) for step in steps]
    return [each for each in found if each is not None]


def _in_vain(run: Task, step: Step, children: dict[str, Task], tx: Tx) -> str | None:
    return workflow.waits_in_vain(run, step, children.get(step.child_id or ""), tx.now)


async def _unheard(tx: Tx, runs: Sequence[Task]) -> list[str]:
    addressed = {run.id: run for run in runs if run.unread_signals}
    if not addressed:
        return []
    signals = await tx.find(SignalList(task_ids=tuple(addressed), unread=True), EVERY)
    found = [workflow.unheard(addressed[signal.task_id], signal, tx.now) for signal in signals]
    return [each for each in found if each is not None]
