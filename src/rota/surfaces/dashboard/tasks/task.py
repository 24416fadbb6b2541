"""A task: what it waits for, its input and output, its error, its attempts, its history, its logs, what it left. Of a
workflow also its steps. And what can be done to it.

A workflow is drawn with one row for each step, below it what the step started, each with a bar on one time axis. A bar
is solid while something ran and hollow while it waited; one that is not over reaches to now. What waits for a time has
its end as a mark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from fastapi import Response

from ....domain.errors import NotFound, Refused
from ....domain.model import FOREVER, Schedule, StepKind, Task, TaskStatus
from ....domain.task import REPLAYABLE
from ....domain.workflow import Step, kept_steps
from ....engine.queries.workflows import RunTree
from ...attempts import Attempt, attempts_of
from ...words import counted
from ..forms import json_of
from ..texts import person, took
from ..visit import FormField, Visit

ROWS = 150
ACTIONS = ("cancel", "replay")
WIDTH = 1000
_LEAST = timedelta(milliseconds=1)
_NARROWEST = 3.0
_TICKS = 4
_SAID = {"signal": "The signal was sent.", "replay": "It runs again."}


class AttemptBar(NamedTuple):
    """An attempt on the line of all of them, in parts of a thousand: where it could begin, began and ended."""

    ready: float
    began: float
    ended: float


def _on_a_line(attempts: Sequence[Attempt], now: datetime) -> list[AttemptBar]:
    if not attempts:
        return []
    axis = Axis.over(attempts[0].ready_at, attempts[-1].began_at + attempts[-1].length(now))
    return [
        AttemptBar(
            axis.x(each.ready_at),
            axis.x(each.began_at),
            max(axis.x(each.began_at + each.length(now)), axis.x(each.began_at) + 3),
        )
        for each in attempts
    ]


async def show(visit: Visit) -> Response:
    queue = visit.queue
    task = await queue.get(visit.part("id"))
    now = await queue.now()
    may, attempts = visit.may_operate, attempts_of(task.history)
    return visit.show(
        "workflow.html" if task.is_workflow else "task.html",
        task=task,
        now=now,
        status=str(task.status),
        why=_why(task),
        waiting=await queue.waiting(task.id) if task.is_live and not task.waits_for else None,
        schedule=await _schedule_of(visit, task),
        attempts=list(zip(attempts, _on_a_line(attempts, now), strict=True)),
        artifacts=[each for each in await queue.artifacts(task.id) if each.name != "result"],
        nodes={node.id for node in await queue.nodes(dead=True)} if task.worker_id else set(),
        may_cancel=may and task.is_live and not task.cancel_requested,
        may_replay=may and task.status in REPLAYABLE,
        may_signal=may and task.is_live and task.is_workflow,
        said=_SAID.get(visit.asked("said") or ""),
        **(await _steps(visit, task, now) if task.is_workflow else {}),
    )


async def _steps(visit: Visit, task: Task, now: datetime) -> dict[str, Any]:
    """The values that the page of a workflow has more than that of a task."""
    tree = await visit.queue.run_tree(task.id)
    axis = axis_of(tree, now)
    rows = list(rows_of(tree, axis, now))
    asked, begin = visit.asked("step"), int(visit.asked("row") or 0) if _is_row(visit) else 0
    chosen = next((step for step in tree.steps if step.key == asked), None)
    return {
        "rows": rows[begin : begin + ROWS],
        "begin": begin,
        "most": ROWS,
        "number": len(rows),
        "marks": axis.marks,
        "width": WIDTH,
        "waits": [(step, waits_for(step, now)) for step in tree.steps if not step.is_over],
        "chosen": chosen,
        "chosen_child": None if chosen is None else tree.children.get(chosen.id),
    }


def _is_row(visit: Visit) -> bool:
    row = visit.asked("row") or ""
    return row.isdecimal() and len(row) < 7


async def _schedule_of(visit: Visit, task: Task) -> Schedule | None:
    if task.schedule_id is None:
        return None
    try:
        return await visit.queue.get_schedule(task.schedule_id, deleted=True)
    except NotFound:  # it is removed for good
        return None


def _why(task: Task) -> str:
    """How a task is, or how it ended. The queue says what it waits for."""
    match task.status:
        case TaskStatus.PENDING if task.waits_for:
            return "It waits, and holds no worker meanwhile."
        case TaskStatus.PENDING:
            return "It is pending."
        case TaskStatus.RUNNING if task.cancel_requested:
            return "Its handler was asked to stop."
        case TaskStatus.RUNNING:
            return "It runs."
        case TaskStatus.FAILED:
            return "It failed, and no retry is left." if task.retries else "It failed."
        case TaskStatus.CANCELLED:
            by = f" by {person(task.cancelled_by)}" if task.cancelled_by else ""
            return f"It was cancelled{by}{': ' + task.cancel_reason if task.cancel_reason else '.'}"
        case TaskStatus.EXPIRED:
            return "No worker took it before it expired."
    return ""


async def ask(visit: Visit) -> Response:
    task = await visit.queue.get(visit.part("id"))
    return await _question(visit, visit.action(*ACTIONS, "signal"), task)


async def _question(visit: Visit, action: str, task: Task, problem: str | None = None) -> Response:
    steps = await visit.queue.steps(task.id) if task.is_workflow else []
    from_step = visit.asked("from_step") or visit.given("from_step")
    fields: list[FormField] = []
    if action == "cancel":
        title, fields = "Cancel this task", [FormField("reason", "Why")]
        consequence = "It will not run."
        if task.status is TaskStatus.RUNNING or task.started_at is not None:
            consequence = "It is asked to stop; what it has done stays done, unless it undoes it."
    elif action == "signal":
        title, consequence = "Send a signal", "It is kept until the workflow receives it, once."
        names = signals_waited_for(steps)
        known = visit.given("name") or visit.asked("name") or (names[0] if names else "")
        fields = [
            FormField("name", "Name", known, choices=names),
            FormField("payload", "Payload, as JSON", visit.given("payload") or "null", "json"),
        ]
    else:
        title = "Replay this task" if from_step is None else f"Retry from {from_step}"
        consequence = _replayed(task, steps, from_step)
    return visit.ask(
        title,
        consequence,
        back=visit.url("tasks", task.id),
        fields=fields,
        hidden=[("from_step", from_step)] if from_step else [],
        problem=problem,
        nav="workflows" if task.is_workflow else "tasks",
    )


def _replayed(task: Task, steps: Sequence[Step], from_step: str | None) -> str:
    if not task.is_workflow:
        return "It runs again with the same input and fresh retries, as soon as a worker takes it."
    kept = kept_steps(task, steps, from_step)
    again = len([step for step in steps if step.is_over]) - len(kept)
    return (
        f"It goes on with the same input. {counted(len(kept), 'step is', 'steps are')} kept and not done again;"
        f" {counted(again, 'is', 'are')} dropped, and run again if the code still asks for them."
    )


async def act(visit: Visit) -> Response:
    action, id = visit.action(*ACTIONS, "signal"), visit.part("id")
    try:
        if action == "signal":
            await visit.queue.signal(
                id, visit.given("name") or "", json_of(visit.given("payload"), "payload")
            )
        elif action == "cancel":
            await visit.queue.cancel(id, visit.given("reason") or "")
        else:
            await visit.queue.replay(id, from_step=visit.given("from_step"))
    except Refused as refused:
        if isinstance(refused, NotFound):
            raise
        return await _question(visit, action, await visit.queue.get(id), str(refused))
    return visit.go(visit.url("tasks", id, said=action))


class Axis(NamedTuple):
    """The time that the bars are drawn on."""

    begins: datetime
    ends: datetime

    @classmethod
    def over(cls, begins: datetime, ends: datetime) -> Axis:
        """The axis from one time to another, which may be the same moment."""
        return cls(begins, max(ends, begins + _LEAST))

    def x(self, at: datetime) -> float:
        share = (at - self.begins) / (self.ends - self.begins)
        return round(min(max(share, 0.0), 1.0) * WIDTH, 1)

    @property
    def marks(self) -> list[str]:
        """How long after the beginning each quarter of the axis is."""
        length = self.ends - self.begins
        return [took(length * number / _TICKS) for number in range(_TICKS + 1)]


class StepRow(NamedTuple):
    """One step, or a task that a step started. `path` is its bar; `key` is the step of the run itself that it shows."""

    depth: int
    name: str
    kind: str
    status: str
    words: str
    length: str
    x: float
    width: float
    is_wait: bool
    task: Task | None
    key: str | None


def axis_of(tree: RunTree, now: datetime) -> Axis:
    task = tree.task
    begins = min([task.created_at, *(step.created_at for step in tree.steps)])
    return Axis.over(begins, task.completed_at or now)


def rows_of(tree: RunTree, axis: Axis, now: datetime, depth: int = 0) -> Iterator[StepRow]:
    for step in sorted(tree.steps, key=lambda each: (each.started_at or each.created_at, each.key)):
        child = tree.children.get(step.id)
        yield _row(step, None if child is None else child.task, axis, now, depth)
        if child is not None:
            yield from rows_of(child, axis, now, depth + 1)


def _row(step: Step, child: Task | None, axis: Axis, now: datetime, depth: int) -> StepRow:
    began = step.started_at or step.created_at
    ended = step.completed_at or now
    x = axis.x(began)
    status = "running" if step.kind in (StepKind.STEP, StepKind.UNDO) else "pending"
    if step.is_over or child is not None:
        status = str(step.status if child is None else child.status)
    return StepRow(
        depth=depth,
        name=step.key if child is None or child.kind in step.key else f"{step.key}: {child.kind}",
        kind=str(step.kind),
        status=status,
        words=str(step.error or ""),
        length=took(ended - began),
        x=min(x, WIDTH - _NARROWEST),
        width=max(axis.x(ended) - x, _NARROWEST),
        is_wait=step.kind in (StepKind.SLEEP, StepKind.RECEIVE),
        task=child,
        key=None if depth else step.key,
    )


def waits_for(step: Step, now: datetime) -> str:
    """The words for a step that is not over."""
    until = None if step.due_at is None or step.due_at == FOREVER else step.due_at
    left = "" if until is None else f" for at most {took(until - now)} more"
    match step.kind:
        case StepKind.RECEIVE:
            return f"waits for the signal {step.name}{left}"
        case StepKind.SLEEP:
            return "sleeps" if until is None else f"sleeps for {took(until - now)} more"
        case StepKind.CHILD:
            return "waits for the task that it started"
    again = "" if until is None else f", tries again in {took(until - now)}"
    return f"failed {step.attempts} times so far{again}" if step.error is not None else "runs"


def signals_waited_for(steps: Sequence[Step]) -> list[str]:
    """The names of the signals that would be received at once."""
    return [step.name for step in steps if step.kind is StepKind.RECEIVE and not step.is_over and step.name]
