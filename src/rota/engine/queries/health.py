"""The health of a store: what is late, lost, stuck, missed or cannot be read.

Each check is a work for `store.read`, and looks only where an index leads, so it is quick on any store;
`broken_records` looks at everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from ...domain.alarm import PATIENCE, broken_run
from ...domain.model import (
    LIVE,
    NodeState,
    Record,
    Run,
    RunStatus,
    Schedule,
    ScheduleStatus,
    Task,
    TaskStatus,
    is_from_the_future,
)
from ...domain.recurrence import After
from ...domain.schedule.run import run_id
from ...domain.serving import living, nobody_handles, silent_scheduler
from ...stores.base import Tx
from ...stores.queries import (
    AlarmList,
    DueSchedules,
    OpenTasks,
    ScheduleList,
    TaskList,
    UpcomingTasks,
)
from ..commands.alarms import find_stuck
from ..commands.serving import every_node
from ..work import as_work, tally_open

ENOUGH = 1000
OPEN = AlarmList(tenant=None, is_open=True)
LOOKED_AT = 5000
"""So many open tasks, tasks and schedules are read to see whether they can be."""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """Who is there, and who is missed. `unhandled` has a sentence for each kind that has pending tasks and that no live
    worker handles, with their number. `silent_scheduler` is the last scheduler of a store whose schedules need one and
    have none alive; None, if it said that it stopped. `open_rules` are the rules of the open alarms."""

    alive: Sequence[NodeState]
    silent: Sequence[NodeState]
    unhandled: Mapping[str, int]
    silent_scheduler: NodeState | None
    at: datetime
    open_rules: Sequence[str] = ()

    @property
    def alarms(self) -> list[str]:
        """Codes, for programs, that tell nobody's names."""
        found = {
            "scheduler_silent": self.silent_scheduler is not None,
            "kind_unhandled": bool(self.unhandled),
        }
        codes = [code for code, is_so in found.items() if is_so]
        return list(dict.fromkeys((*codes, *self.open_rules)))


@as_work
async def check_serving(tx: Tx) -> Serving:
    """Of all tenants."""
    nodes = await every_node(tx)
    alive = living(nodes, tx.now)
    unhandled: Counter[str] = Counter()
    if nodes:
        found = await tally_open(tx, "tenant", "kind", "queue", "status")
        for (tenant, kind, queue, status), number in found.items():
            sentence = nobody_handles(nodes, tx.now, tenant, kind, queue)
            if status == TaskStatus.PENDING and sentence is not None:
                unhandled[sentence] += number
    silent = silent_scheduler(nodes, tx.now)
    if silent is not None and not await tx.find(DueSchedules(at=None), 1):
        silent = None
    return Serving(
        alive=alive,
        silent=[node for node in nodes if node not in alive],
        unhandled=unhandled,
        silent_scheduler=silent,
        at=tx.now,
        open_rules=sorted({str(alarm.rule) for alarm in await tx.find(OPEN, ENOUGH)}),
    )


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a look at the indexes; up to ENOUGH of each."""

    overdue: Sequence[Schedule]
    lost: Sequence[Task]
    unswept: Sequence[Task]
    waiting: Sequence[Task]
    tasks: Mapping[str, int]
    schedules: Mapping[str, int]
    unknown_tasks: int
    unknown_schedules: int
    ahead: Sequence[Schedule | Task] = ()
    unreadable: Sequence[str] = ()


@as_work
async def check_health(tx: Tx, tenant: str) -> Health:
    """Everything that is late by more than a minute: nobody seems to do it. Counts are those of `tenant`."""
    stuck = await find_stuck(tx, ENOUGH)
    tasks = {
        str(status): await tx.count(TaskList(tenant=tenant, at=tx.now, status=status))
        for status in TaskStatus
    }
    schedules = {
        str(status): await tx.count(ScheduleList(tenant=tenant, status=status)) for status in ScheduleStatus
    }
    all_tasks = await tx.count(TaskList(tenant=tenant, at=tx.now))
    all_schedules = await tx.count(ScheduleList(tenant=tenant))
    await tx.find(OpenTasks(), LOOKED_AT)
    newest = await tx.find(TaskList(tenant=tenant, at=tx.now), LOOKED_AT)
    upcoming = await tx.find(UpcomingTasks(after=tx.now), LOOKED_AT)
    listed = await tx.find(ScheduleList(tenant=None), LOOKED_AT)
    read: list[Schedule | Task] = [*listed, *{task.id: task for task in (*newest, *upcoming)}.values()]
    return Health(
        overdue=[
            each for each in await tx.find(DueSchedules(at=tx.now - PATIENCE), ENOUGH) if each.is_due(tx.now)
        ],
        lost=stuck.lost,
        unswept=stuck.unswept,
        waiting=stuck.waiting,
        tasks=tasks,
        schedules=schedules,
        unknown_tasks=all_tasks - sum(tasks.values()),
        unknown_schedules=all_schedules - sum(schedules.values()),
        ahead=[each for each in read if _is_ahead(each, tx.now)][:ENOUGH],
        unreadable=list(dict.fromkeys(str(problem) for problem in tx.unreadable)),  # by all of the above
    )


def _is_ahead(record: Schedule | Task, now: datetime) -> bool:
    return is_from_the_future(max(record.created_at, record.updated_at), now)


def broken_records(snapshot: Mapping[str, Sequence[Record]]) -> list[str]:
    """The invariants that do not hold, one sentence each."""
    records = [record for of_type in snapshot.values() for record in of_type]
    tasks = {record.id: record for record in records if isinstance(record, Task)}
    waiting = {
        run_id(record, at) for record in records if isinstance(record, Schedule) for at in record.buffered
    }
    problems: list[str] = []
    for record in records:
        match record:
            case Schedule():
                problems += _broken_schedule(record)
            case Task():
                problems += _broken_task(record)
            case Run():
                problems += _broken_run(record, tasks, waiting)
    return problems


def _broken_schedule(schedule: Schedule) -> Iterable[str]:
    has_times = not isinstance(schedule.timing, After)
    if schedule.enabled and has_times and (schedule.next_run_at is None or schedule.due_at is None):
        yield f"schedule {schedule.key} is active and has no next time: pause and resume it"


def _broken_task(task: Task) -> Iterable[str]:
    if task.status is TaskStatus.RUNNING and (task.lease_id is None or task.lease_expires_at is None):
        yield f"task {task.id} is running without a lease: cancel it"
    if task.status not in LIVE and task.lease_id is not None:
        yield f"task {task.id} is {task.status} and still has a lease: archive it"


def _broken_run(run: Run, tasks: Mapping[str, Task], waiting: Collection[str]) -> Iterable[str]:
    if (run.status is RunStatus.BUFFERED) != (run.id in waiting):
        yield f"run {run.id} is {run.status}, and its schedule has {'' if run.id in waiting else 'not '}it in its line"
    words = broken_run(run, tasks.get(run.target_id or ""))
    if words is not None:
        yield words
