"""The end of tasks, whatever its reason: all that follows from it is written in the same commit.

Every command that ends tasks does so through `Ending`: it was settled, cancelled, expired, lost or replayed. Tasks that
complete, and whose end concerns only their runs and gates, are completed by an update instead (`settle_tasks`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from ...domain import task as life
from ...domain import workflow
from ...domain.model import Run, RunStatus, Schedule, ScheduleStatus, Task, TaskStatus
from ...domain.schedule import after, backfill, definition, run, watching
from ...domain.workflow import Step
from ...stores.base import Tx
from ...stores.queries import RunList, StepList
from .buffer import Buffers, Move
from .chains import Told
from .gates import Gates
from .shared import LIVE_AT_MOST, audit


class Ending(msgspec.Struct, frozen=True):
    """All that follows from the end of tasks, whatever its reason. Their runs say how they ended. Schedules pause if
    they are to. Buffered times start. Schedules that follow are told. A workflow gets the answer of its child, and
    children end with their workflow. Gates let in the next task. All of it is read before the first write, and written
    with the tasks."""

    _runs: dict[str, Run]
    _schedules: Sequence[_Following]
    _told: Told
    _family: _Family
    _gates: Gates
    _marked: Mapping[str, Task]
    _actor: str

    @classmethod
    async def of(
        cls,
        tx: Tx,
        tasks: Sequence[Task],
        actor: str,
        *,
        left: Sequence[Task] = (),
        new: Sequence[Task] = (),
        completing: Sequence[Task] = (),
        marked: Sequence[Task] = (),
        written: Collection[str] = (),
        ended: Sequence[Run] = (),
    ) -> Ending:
        """`tasks` are as they will be written. `left` are workflows that leave their children behind; `new` are tasks
        that begin in the same commit, and `marked` others that change in it. `completing` are tasks that the caller
        completes: they leave their gates. `written` are the ids of schedules that the caller writes: what waits in them
        stays as it is, and they are told by `tell`. `ended` are new rows that have ended without a task."""
        family = await _Family.of(tx, tasks, left)
        of_runs = [task for task in tasks if task.run_id is not None]
        runs = await tx.get_many(Run, [task.run_id for task in of_runs if task.run_id])
        following, told = await _following(tx, of_runs, runs, actor, written, ended)
        starts = [task for each in following for task in each.move.starts]
        marks = [*marked, *(task for each in following for task in each.move.marked)]
        gates = await Gates.of(tx, [*tasks, *family.children, *new, *starts], completing, again=tasks)
        gates.expect([*new, *starts])
        return cls(runs, following, told, family, gates, {task.id: task for task in marks}, actor)

    def put(
        self, tx: Tx, tasks: Sequence[Task], was: Mapping[str, Task] = MappingProxyType({})
    ) -> list[Task]:
        """Write the tasks, their runs where those change, and what follows for their schedules. `was` has tasks as they
        were before, by id. Called once, with all of them."""
        tasks = [replace(task, awaited=True) if task.id in self._marked else task for task in tasks]
        tasks, woken = self._family.answer(tx, tasks)
        given = {task.id for task in tasks}
        woken |= {id: task for id, task in self._marked.items() if id not in given}
        moved = self._gates.settle([*tasks, *self._family.children], woken)
        self._gates.put(tx)
        for other in (*moved[len(tasks) :], *woken.values()):
            tx.put(other)
        for each in self._schedules:
            self._put_schedule(tx, each)
        return [self._put_one(tx, task, was.get(task.id)) for task in moved[: len(tasks)]]

    def admitted(self, new: Task) -> Task:
        """The new task after it has asked at its gates. Asked for after `put`."""
        return self._gates.admitted.get(new.id, new)

    def tell(self, tx: Tx, schedule: Schedule) -> Schedule:
        """Tell a schedule, which the caller writes, that runs of its causes have ended."""
        return self._told.tell(schedule, tx.now)

    def _put_one(self, tx: Tx, task: Task, was: Task | None) -> Task:
        old = self._runs.get(task.run_id) if task.run_id is not None else None
        if old is not None:
            new = run.follow(old, task)
            if new != old:
                tx.put(new)
        return tx.put(task, was=was)

    def _put_schedule(self, tx: Tx, following: _Following) -> None:
        for row in following.move.rows:
            tx.put(row)
        for task in following.move.starts:
            tx.put(self.admitted(task))
        stored = tx.put(backfill.awake(following.move.schedule, tx.now))
        if following.note:
            audit(tx, "paused", self._actor, following.old, stored, following.note)
        elif stored.status is ScheduleStatus.COMPLETED and following.old.enabled:
            audit(tx, "completed", self._actor, None, stored, stored.completed_reason or "")
        elif stored.enabled and following.old.status is ScheduleStatus.COMPLETED:
            audit(tx, "resumed", self._actor, following.old, stored, "a time that waited did not start")


class _Following(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that changes because tasks of it have ended. `note`: why it is paused, if it is."""

    old: Schedule
    note: str
    move: Move


async def _following(
    tx: Tx,
    tasks: Sequence[Task],
    runs: Mapping[str, Run],
    actor: str,
    written: Collection[str],
    failed: Sequence[Run],
) -> tuple[list[_Following], Told]:
    """The schedules that change: schedules whose runs have ended, and schedules that follow these. `failed` are rows
    that have ended without a task."""
    concerned = {task.schedule_id for task in tasks if task.schedule_id and _concerns_schedule(task)}
    concerned |= {row.schedule_id for row in failed}
    found = await tx.get_many(Schedule, concerned)
    if not found:
        return [], Told({}, {})
    followed = [run.follow(runs[task.run_id or ""], task) for task in tasks if task.run_id in runs]
    own = [found[id] for id in found.keys() - set(written)]
    following = await _ended(tx, own, tasks, runs, followed, actor)
    rows = [row for row in followed if row != runs[row.id]]
    rows += [*failed, *(row for each in following for row in each.move.rows)]
    told = await Told.of(tx, [row for row in rows if after.has_ended(row)], found, written)
    still = [_Following(old=old, note="", move=Move(schedule=old)) for old in told.others.values()]
    following = [
        replace(each, move=replace(each.move, schedule=told.tell(each.move.schedule, tx.now)))
        for each in (*following, *still)
    ]
    return [each for each in following if each.old.awaits_ends or each.move.schedule is not each.old], told


async def _ended(
    tx: Tx,
    schedules: Sequence[Schedule],
    tasks: Sequence[Task],
    runs: Mapping[str, Run],
    followed: Sequence[Run],
    actor: str,
) -> list[_Following]:
    """Schedules whose own runs have ended: they ask to be paused on failure, or to have their alarms looked at, or
    times wait in them. The latter are always written: see `buffer.py`."""
    earlier = await _failed_before(tx, schedules)
    buffers = await Buffers.of(tx, schedules, tasks)
    following = []
    for old in schedules:
        rows = {row.id: row for row in (*earlier, *followed) if row.schedule_id == old.id}
        failed = [row for row in followed if row.schedule_id == old.id and row.status is RunStatus.FAILED]
        failed = [row for row in failed if row != runs[row.id]]
        note = definition.too_many_failures(old, failed, rows.values()) if failed else ""
        new = definition.pause(old, tx.now, actor, note) if note else old
        if failed and old.enabled and not note:
            new = watching.with_failure(old, tx.now)
        following.append(_Following(old=old, note=note, move=buffers.moved_on(new, tx.now)))
    return following


async def _failed_before(tx: Tx, schedules: Collection[Schedule]) -> list[Run]:
    """The last rows of those that pause after several failures: as many that failed, and the last that completed."""
    rows: list[Run] = []
    for schedule in schedules:
        if (most := int(schedule.pause_on_failure)) > 1:
            rows += await tx.find(RunList(schedule_id=schedule.id, status=RunStatus.FAILED), most)
            rows += await tx.find(RunList(schedule_id=schedule.id, status=RunStatus.COMPLETED), 1)
    return rows


def _concerns_schedule(task: Task) -> bool:
    may_have_failed = task.status in (TaskStatus.FAILED, TaskStatus.EXPIRED)
    return may_have_failed or (task.awaited and not task.is_live)


class _Family(msgspec.Struct, frozen=True):
    """The parents and children of some tasks, as far as their end concerns them. The children are cancelled."""

    _parents: dict[str, Task]
    _steps: dict[str, Step]
    children: list[Task]

    @classmethod
    async def of(cls, tx: Tx, tasks: Sequence[Task], left: Sequence[Task]) -> _Family:
        ended = [task for task in tasks if not task.is_live]
        leaving = tuple(task.id for task in (*ended, *left) if task.live_children)
        children: list[Task] = []
        if leaving:
            steps = await tx.find(StepList(task_ids=leaving), LIVE_AT_MOST)
            ids = [step.child_id for step in steps if step.child_id is not None and not step.is_over]
            found = await tx.get_many(Task, ids)
            written = {task.id for task in tasks}
            live = (child for child in found.values() if child.as_of(tx.now).is_live)
            children = [
                life.cancel(child, tx.now, "workflow", "the workflow that started it has ended")
                for child in live
                if child.id not in written and not child.cancel_requested
            ]
        of_parents = [
            task for task in ended if task.parent_step is not None and task.parent_id not in leaving
        ]
        if not of_parents:
            return cls({}, {}, children)
        parents = await tx.get_many(Task, {task.parent_id for task in of_parents if task.parent_id})
        answered = await tx.get_many(Step, [task.parent_step for task in of_parents if task.parent_step])
        return cls(parents, answered, children)

    def answer(self, tx: Tx, tasks: Sequence[Task]) -> tuple[list[Task], dict[str, Task]]:
        """Write the answers of children that have ended. The tasks, as they are to be written, since a parent may be
        among them; and the other parents, as they go on."""
        written = {task.id: task for task in tasks}
        woken: dict[str, Task] = {}
        for task in tasks:
            step = self._steps.get(task.parent_step) if task.parent_step is not None else None
            if step is None or task.is_live or task.parent_id is None:
                continue
            parent = written.get(task.parent_id) or woken.get(task.parent_id)
            parent = parent or self._parents.get(task.parent_id)
            if parent is None:
                continue
            new, answered = workflow.child_ended(parent, step, task, tx.now)
            if answered is not step:
                (written if parent.id in written else woken)[parent.id] = new
                tx.put(answered)
        return [written[task.id] for task in tasks], woken
