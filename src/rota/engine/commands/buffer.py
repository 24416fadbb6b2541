"""The buffer of a schedule: times that wait (`Schedule.buffered`) until nothing of it is live, oldest first.

A buffer moves on with the commit that ends the last live task of its schedule. What begins to wait marks the tasks that
it waits for (`Task.awaited`), so only the end of a marked task costs a look. No end is missed: the commit that adds to
a buffer writes the live tasks or finds them marked, the commit that ends a marked task writes the schedule, and of two
at the same time one meets another version and runs again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ...domain.model import (
    Run,
    RunReason,
    RunStatus,
    Schedule,
    ScheduleStatus,
    Task,
)
from ...domain.schedule import brought_back, definition, released, run
from ...stores.base import Tx
from .shared import Starter, live_tasks

SCHEDULER = "scheduler"
_AT_REST = (ScheduleStatus.PAUSED, ScheduleStatus.DRAFT)


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a buffer: the schedule as it is to be written, rows and new tasks, and live tasks that are marked."""

    schedule: Schedule
    rows: Sequence[Run] = ()
    starts: Sequence[Task] = ()
    marked: Sequence[Task] = ()


class Buffers(msgspec.Struct, frozen=True):
    """The buffers of some schedules, with all that is needed to move them on."""

    _live: Mapping[str, Sequence[Task]]
    _rows: Mapping[str, Run]
    _starter: Starter

    @classmethod
    async def of(cls, tx: Tx, schedules: Sequence[Schedule], tasks: Sequence[Task] = ()) -> Buffers:
        """`tasks` are written in the same work, as they are here."""
        waiting = [schedule for schedule in schedules if schedule.buffered]
        if not waiting:
            return cls({}, {}, Starter(tx.now, {}, {}))
        rows = [run.run_id(schedule, at) for schedule in waiting for at in schedule.buffered]
        return cls(
            await live_tasks(tx, waiting, tasks),
            await tx.get_many(Run, rows),
            await Starter.of(tx, waiting),
        )

    def moved_on(self, schedule: Schedule, now: datetime) -> Move:
        """Start the first that waits, if nothing is live and the schedule is not at rest."""
        if not schedule.buffered or schedule.deleted_at is not None or schedule.status in _AT_REST:
            return Move(schedule=schedule)
        if live := self._live.get(schedule.id):
            unmarked = [replace(task, awaited=True) for task in live if not task.awaited]
            return Move(schedule=schedule, marked=unmarked)
        if self._starter.is_suspended(schedule.tenant):
            return self.dropped(schedule, RunReason.SUSPENDED, now)
        return self._started(schedule, now)

    def dropped(self, schedule: Schedule, reason: RunReason, now: datetime) -> Move:
        """Nothing of the buffer will start, and its rows say why."""
        waiting = [self._waiting(schedule, at) for at in schedule.buffered]
        rows = [run.dropped(row, reason, now) for row in waiting if row is not None]
        left = definition.uncounted(schedule, len(schedule.buffered), now)
        return Move(schedule=replace(left, buffered=()), rows=rows)

    def _started(self, schedule: Schedule, now: datetime) -> Move:
        """One that cannot start says so in its row, and the next has its turn."""
        schedule = brought_back(schedule, now)
        rows: list[Run] = []
        while schedule.buffered:
            at, *rest = schedule.buffered
            schedule = replace(schedule, buffered=tuple(rest), updated_at=now)
            waited = self._waiting(schedule, at)
            if waited is not None:
                start = self._starter.start
                row, task = start(waited.id, schedule, at, waited.trigger, SCHEDULER, waited=waited)
                rows.append(row)
                if task is not None:
                    started = replace(schedule, last_run_at=now, last_task_id=task.id)
                    return Move(schedule=released(started), rows=rows, starts=[task])
            schedule = definition.uncounted(schedule, 1, now)
        return Move(schedule=released(schedule), rows=rows)

    def _waiting(self, schedule: Schedule, at: datetime) -> Run | None:
        row = self._rows.get(run.run_id(schedule, at))
        return row if row is not None and row.status is RunStatus.BUFFERED else None
