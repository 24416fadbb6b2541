"""Works on workflows: record steps and waits, park, wake up, send signals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ...domain import task as life
from ...domain import workflow
from ...domain.checks import check_input
from ...domain.errors import Refused
from ...domain.model import (
    Failure,
    LogLine,
    StepKind,
    Task,
    TaskStatus,
    Tenant,
)
from ...domain.task import Submission, check_held
from ...domain.workflow import Signal, Step, StepStatus, Tries, Wait
from ...stores.base import Tx, Work
from ...stores.queries import Cursor, SignalList, StepList, TaskList
from ..work import as_work
from .ending import Ending
from .gates import Gates
from .shared import DEFAULT_LIMITS, RecordedSteps, check_room_for_tasks, find_task, limits_of, next_page
from .tasks import submission_id, submit_tasks

EVERY_STEP = 1_000_000


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The steps as they are recorded now, and the task."""

    task: Task
    steps: list[Step]


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """The last reports of the code before the task is parked, and whether it knows that it is to be cancelled."""

    progress: Any = None
    logs: tuple[LogLine, ...] = ()
    is_cancelled: bool = False


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """Some waits as they are by now, as of when; and whether the task was parked."""

    task: Task
    steps: list[Step]
    at: datetime
    is_parked: bool = False


@as_work
async def steps_of(tx: Tx, task: Task) -> list[Step]:
    """The steps that are recorded of the run, in the order in which its code got the answers."""
    found = await tx.find(StepList(task_ids=(task.id,)), EVERY_STEP)
    mine = [step for step in found if step.rewinds == task.rewinds]
    return sorted(mine, key=lambda step: (step.number is None, step.number or 0, step.created_at, step.key))


def record_steps(held: Task, tries: Tries, delivered: Sequence[Step]) -> Work[Recorded]:
    """Record how steps ended, under the lease; the first result of each counts. `delivered` are answers that the code
    got meanwhile: their places are written along."""
    recorded = RecordedSteps([(held, tries)])

    async def work(tx: Tx) -> Recorded:
        task = await _held(tx, held)
        stored = await recorded.read(tx)
        for step in delivered:
            tx.put(step)
        steps = workflow.after_tries(task, stored, tries, tx.now)
        steps = [step if step is stored.get(step.id) else tx.put(step) for step in steps]
        new = workflow.recorded(task)
        return Recorded(task=task if new is task else tx.put(new), steps=steps)

    return work


@as_work
async def wait_or_park(
    tx: Tx, held: Task, waits: Sequence[Wait], number: int, delivered: Sequence[Step], parting: Parting | None
) -> Waited:
    """Record the waits of a workflow, and answer those that can be answered already. If none can, and `parting` is
    given, park the task until an answer comes."""
    task = await _held(tx, held)
    stored = await tx.get_many(Step, [workflow.step_id(task, wait.key) for wait in waits])
    unread: list[Signal] = []
    if task.unread_signals and any(wait.kind is StepKind.RECEIVE for wait in waits):
        unread = await tx.find(SignalList(task_ids=(task.id,), unread=True), workflow.MOST_UNREAD)
    tenant = await tx.get(Tenant, task.tenant) if any(wait.child for wait in waits) else None
    waiting = _Waits(task, stored, unread, tx.now, DEFAULT_LIMITS if tenant is None else tenant.limits)
    for wait in waits:
        waiting.add(wait)
    parking = [] if parting is None else [replace(task, status=TaskStatus.PENDING)]
    gates = await Gates.of(tx, parking, again=parking)
    return waiting.put(tx, waits, number, delivered, parting, gates)


class _Waits:
    """The waits of one task: each is opened, and answered if it can be."""

    def __init__(
        self, task: Task, stored: dict[str, Step], unread: Sequence[Signal], now: datetime, limits: Any
    ) -> None:
        self.task = task
        self.stored = stored
        self.now = now
        self.limits = limits
        self.unread = unread
        self.steps: list[Step] = []
        self.children: list[Task] = []

    def add(self, wait: Wait) -> None:
        step = self.stored.get(workflow.step_id(self.task, wait.key))
        if step is None:
            step = self._opened(wait)
        self.steps.append(step)

    def _opened(self, wait: Wait) -> Step:
        step = workflow.open_wait(self.task, wait, self.now)
        if wait.child is None:
            return step
        child = workflow.start_child(self.task, step, wait.child, self.now, self.limits)
        if isinstance(child, Failure):
            return replace(step, status=StepStatus.FAILED, error=child, completed_at=self.now)
        self.children.append(child)
        return step

    def put(
        self,
        tx: Tx,
        waits: Sequence[Wait],
        number: int,
        delivered: Sequence[Step],
        parting: Parting | None,
        gates: Gates,
    ) -> Waited:
        for step in delivered:
            tx.put(step)
        answered, signal = workflow.answer(self.steps, self.unread, number, self.now)
        steps = [step if step is self.stored.get(step.id) else tx.put(step) for step in answered]
        if signal is not None:
            tx.put(workflow.receive(signal, self.now))
        for child in self.children:
            tx.put(child)
        task = self._task(0 if signal is None else 1)
        ends = workflow.deadline(task)
        is_late = ends is not None and self.now >= ends
        due = any(step.due_at is not None and step.due_at <= self.now for step in steps)
        goes_on = due or is_late or any(step.is_over for step in steps)
        if parting is None or goes_on or (task.cancel_requested and not parting.is_cancelled):
            stored = task if task is self.task else tx.put(task)
            return Waited(task=stored, steps=steps, at=self.now)
        parked = workflow.park(task, waits, steps, self.now, parting.progress, parting.logs)
        [parked] = gates.settle([parked])
        gates.put(tx)
        return Waited(task=tx.put(parked), steps=steps, at=self.now, is_parked=True)

    def _task(self, received: int) -> Task:
        changes = {
            "unread_signals": self.task.unread_signals - received,
            "live_children": self.task.live_children + len(self.children),
        }
        same = all(getattr(self.task, name) == value for name, value in changes.items())
        return self.task if same else replace(self.task, **changes)


async def _held(tx: Tx, held: Task) -> Task:
    task = await tx.get(Task, held.id)
    if task is None:
        raise Refused("lease_lost", task=held.id)
    check_held(task, held.lease_id or "")
    return task


def start_workflow(
    id: str, asked: Submission, signals: Sequence[Signal], tenant: str, actor: str
) -> Work[Task]:
    """Start a workflow with signals that it finds when it begins. If it is there already, they are sent to it."""
    submit = submit_tasks([(id, replace(asked, is_workflow=True))], tenant, actor)
    if not signals:
        return _first_of(submit)

    async def work(tx: Tx) -> Task:
        known_id = submission_id(tenant, id, asked)
        known = await tx.get(Task, known_id)
        known_signals = await tx.get_many(Signal, [signal.id for signal in signals])
        limits = await limits_of(tx, tenant)
        if known is None:
            await check_room_for_tasks(tx, tenant, limits)
            task = life.admit(known_id, replace(asked, is_workflow=True), tenant, tx.now, limits, actor)
        else:
            task = known
        for signal in signals:
            if signal.id not in known_signals:
                sent = replace(signal, task_id=task.id, at=tx.now)
                task = workflow.send(task, sent, tx.now)
                tx.put(sent)
        return task if task is known else tx.put(task)

    return work


@as_work
async def _first_of(tx: Tx, submit: Work[list[Task]]) -> Task:
    [task] = await submit(tx)
    return task


@as_work
async def send_signal(tx: Tx, tenant: str, signal: Signal) -> Task:
    """Send a signal. Its id makes sure that it comes once, however often this is repeated."""
    task = await find_task(tx, tenant, signal.task_id)
    if await tx.get(Signal, signal.id) is not None:
        return task
    limits = await limits_of(tx, tenant)
    sent = replace(signal, at=tx.now, payload=check_input(signal.payload, limits, "payload"))
    new = tx.put(workflow.send(task, sent, tx.now))
    tx.put(sent)
    return new


@as_work
async def restart_workflow(tx: Tx, held: Task, input: Any) -> Task:
    """Begin the run again with another input. Its steps go; children that still run are cancelled."""
    task = await _held(tx, held)
    steps = await tx.find(StepList(task_ids=(task.id,)), EVERY_STEP)
    new = workflow.restart(task, input, tx.now)
    related = await Ending.of(tx, [new], "worker", left=[task])
    for step in steps:
        tx.delete(step)
    return related.put(tx, [new])[0]


@as_work
async def replay_task(tx: Tx, tenant: str, id: str, actor: str, from_step: str | None = None) -> Task:
    """Run a task that failed or was cancelled again. A workflow keeps the steps before `from_step`; without it, all but
    the one that failed."""
    await check_room_for_tasks(tx, tenant, await limits_of(tx, tenant))
    [replayed] = await _replayed(tx, [await find_task(tx, tenant, id)], actor, from_step)
    return replayed


@as_work
async def replay_tasks(
    tx: Tx, query: TaskList, ended_since: datetime | None, limit: int, actor: str, *, dry_run: bool = False
) -> tuple[int, int, Cursor | None]:
    """Replay the tasks on one page of a listing that may be, and that ended since then (None: whenever): (how many, of
    how many, where the next page begins, if there is one). `dry_run`: only count them."""
    page = await tx.find(query, limit)
    found = [
        task
        for task in page
        if life.may_replay(task, tx.now)
        and (ended_since is None or (task.completed_at is not None and task.completed_at >= ended_since))
    ]
    if found and not dry_run:
        await check_room_for_tasks(tx, query.tenant, await limits_of(tx, query.tenant), len(found))
        await _replayed(tx, found, actor)
    return len(found), len(page), next_page(page, limit)


async def _replayed(tx: Tx, tasks: Sequence[Task], actor: str, from_step: str | None = None) -> list[Task]:
    """The tasks, as they wait again. All that is to be read is read before anything is written."""
    replayed: list[Task] = []
    old: list[Step] = []
    again: list[Step] = []
    for task in tasks:
        new = life.replay(task, tx.now, actor)
        if task.workflow_version is not None or from_step is not None:
            steps = await tx.find(StepList(task_ids=(task.id,)), EVERY_STEP)
            new, kept = workflow.rewind(new, workflow.kept_steps(task, steps, from_step))
            old += steps
            again += kept
        replayed.append(new)
    related = await Ending.of(tx, replayed, actor)
    for step in old:
        tx.delete(step)
    for step in again:
        tx.put(step)
    return related.put(tx, replayed)
