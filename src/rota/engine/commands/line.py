"""The line of a schedule: the times that wait (`Schedule.buffered`) until nothing of it is live, oldest first.

A line moves on with the commit that ends the last live task of its schedule. What begins to wait marks the tasks that
it waits for (`Task.awaited`), so only the end of a marked task costs a look. Nobody misses an end: whoever adds to a
line writes the live tasks or finds them marked, whoever ends a marked task writes the schedule, and a version that was
moved meanwhile runs the work again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from ...domain.model import (
    Limits,
    Run,
    RunReason,
    RunStatus,
    Schedule,
    ScheduleStatus,
    Task,
    Template,
    TemplateTarget,
    Tenant,
    TenantStatus,
)
from ...domain.schedule import run
from ...stores.base import Tx
from ...stores.queries import LiveTasks

__all__ = ["LIVE_AT_MOST", "Lines", "template_of", "templates_of"]

LIVE_AT_MOST = 10_000
SCHEDULER = "scheduler"
_AT_REST = (ScheduleStatus.PAUSED, ScheduleStatus.DRAFT)


class Lines:
    """The lines of some schedules, with all that is needed to move them on."""

    def __init__(
        self,
        live: Mapping[str, Sequence[Task]],
        written: Mapping[str, Task],
        rows: Mapping[str, Run],
        templates: Mapping[str, Template],
        tenants: Mapping[str, Tenant],
    ) -> None:
        self._live = live
        self._written = written
        self._rows = rows
        self._templates = templates
        self._tenants = tenants

    @classmethod
    async def of(cls, tx: Tx, schedules: Sequence[Schedule], tasks: Sequence[Task] = ()) -> Lines:
        """`tasks` are written in the same work, as they are here."""
        waiting = [schedule for schedule in schedules if schedule.buffered]
        written = {task.id: task for task in tasks}
        if not waiting:
            return cls({}, written, {}, {}, {})
        ids = tuple(schedule.id for schedule in waiting)
        found = {task.id: task for task in await tx.find(LiveTasks(schedule_ids=ids), LIVE_AT_MOST)}
        found |= {task.id: task for task in tasks if task.schedule_id in ids}
        live: dict[str, list[Task]] = defaultdict(list)
        for task in found.values():
            if task.schedule_id is not None and task.as_of(tx.now).is_live:
                live[task.schedule_id].append(task)
        rows = [run.run_id(schedule, at) for schedule in waiting for at in schedule.buffered]
        return cls(
            live,
            written,
            await tx.get_many(Run, rows),
            await templates_of(tx, waiting),
            await tx.get_many(Tenant, {schedule.tenant for schedule in waiting}),
        )

    def marked(self, task: Task) -> Task:
        """A task that is written anyway: marked, if a line waits for it."""
        is_awaited = any(task.id == other.id for other in self._live.get(task.schedule_id or "", ()))
        return replace(task, awaited=True) if is_awaited else task

    def moved_on(self, tx: Tx, schedule: Schedule) -> Schedule:
        """Start the first that waits, if nothing is live and the schedule is not at rest. The schedule, as the caller
        is to write it."""
        if not schedule.buffered or schedule.deleted_at is not None or schedule.status in _AT_REST:
            return schedule
        if live := self._live.get(schedule.id):
            for task in live:
                if task.id not in self._written and not task.awaited:
                    tx.put(replace(task, awaited=True))
            return schedule
        tenant = self._tenants.get(schedule.tenant)
        if tenant is not None and tenant.status is TenantStatus.SUSPENDED:
            return self.dropped(tx, schedule, RunReason.SUSPENDED)
        return self._started(tx, schedule, Limits() if tenant is None else tenant.limits)

    def dropped(self, tx: Tx, schedule: Schedule, reason: RunReason) -> Schedule:
        """Nothing of the line will start, and its rows say why."""
        for at in schedule.buffered:
            if (row := self._waiting(schedule, at)) is not None:
                tx.put(run.dropped(row, reason, tx.now))
        return replace(schedule, buffered=(), run_count=schedule.run_count - len(schedule.buffered))

    def _started(self, tx: Tx, schedule: Schedule, limits: Limits) -> Schedule:
        """One that cannot start says so in its row, and the next has its turn."""
        template = template_of(schedule, self._templates)
        while schedule.buffered:
            at, *rest = schedule.buffered
            schedule = replace(schedule, buffered=tuple(rest), updated_at=tx.now)
            waited = self._waiting(schedule, at)
            if waited is not None:
                row, task = run.start(
                    waited.id,
                    schedule,
                    at,
                    waited.trigger,
                    template,
                    tx.now,
                    limits,
                    SCHEDULER,
                    waited=waited,
                )
                tx.put(row)
                if task is not None:
                    tx.put(task)
                    return replace(schedule, last_run_at=tx.now, last_task_id=task.id)
            schedule = replace(schedule, run_count=schedule.run_count - 1)
        return schedule

    def _waiting(self, schedule: Schedule, at: datetime) -> Run | None:
        row = self._rows.get(run.run_id(schedule, at))
        return row if row is not None and row.status is RunStatus.BUFFERED else None


async def templates_of(tx: Tx, due: Sequence[Schedule]) -> dict[str, Template]:
    ids = {found.target.template_id for found in due if isinstance(found.target, TemplateTarget)}
    return await tx.get_many(Template, ids) if ids else {}


def template_of(found: Schedule, templates: Mapping[str, Template]) -> Template | None:
    if not isinstance(found.target, TemplateTarget):
        return None
    template = templates.get(found.target.template_id)
    return template if template is not None and template.tenant == found.tenant else None
