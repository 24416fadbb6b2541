"""A workflow as it is drawn: one row for each step, below it what the step started, each with a bar on one time axis.

A bar is solid while something ran and hollow while it waited; one that is not over reaches to now. What waits for a
time has its end as a mark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ....domain.model import FOREVER, StepKind, Task
from ....domain.workflow import Step
from ....engine.queries.workflows import RunTree
from ..texts import took

WIDTH = 1000
_LEAST = timedelta(milliseconds=1)
_NARROWEST = 3.0
_TICKS = 4


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
