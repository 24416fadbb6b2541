"""Schedules that come after others: what the end of a run is to them. Pure.

The commit that ends a run tells the followers of its schedule. A follower remembers the latest end of each schedule
that it comes after (`causes`). When it has one of each, it gets a time: that moment, and its delay. Ends that
come before that time are part of the same run. When it has been handled, the follower begins anew.

| case | outcome |
| --- | --- |
| `on` is success, failure or end | completed; failed; completed, failed or cancelled |
| a run by hand, or of a backfill | counts as any other |
| a time that was skipped, or a task that expired before anyone took it | did not run, so it does not count |
| the follower is paused, draft, completed or deleted | the end is not heard, and not made up for |
| the follower is paused with causes in hand | they are forgotten |
| before its start_at | the end is not heard |
| its time would be after its end_at | it is completed |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from ..model import Cause, Run, RunStatus, Schedule
from ..recurrence import MICROSECOND, After, AfterOn
from .decision import due_time, ended

_ENDS = {
    AfterOn.SUCCESS: (RunStatus.COMPLETED,),
    AfterOn.FAILURE: (RunStatus.FAILED,),
    AfterOn.END: (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED),
}


def upstream_of(schedule: Schedule | None) -> tuple[str, ...]:
    """The keys of those that a living schedule comes after."""
    if schedule is None or schedule.deleted_at is not None or not isinstance(schedule.timing, After):
        return ()
    return schedule.timing.schedules


def has_ended(run: Run) -> bool:
    """Whether it ran, and is over."""
    return run.status in _ENDS[AfterOn.END]


def heard(schedule: Schedule, key: str, run: Run, now: datetime) -> Schedule:
    """The follower, told that this run of the schedule `key` has just ended."""
    timing = schedule.timing
    if not isinstance(timing, After) or not schedule.enabled or key not in timing.schedules:
        return schedule
    if run.status not in _ENDS[timing.on] or (schedule.start_at is not None and now < schedule.start_at):
        return schedule
    if schedule.next_run_at is None and schedule.has_reached_end_date(now + timing.delay):
        return replace(ended(schedule), causes=(), updated_at=now)
    others = tuple(cause for cause in schedule.causes if cause.key != key)
    told = replace(schedule, causes=(*others, Cause(key=key, run_id=run.id)))
    if schedule.next_run_at is not None or len(told.causes) < len(timing.schedules):
        return told
    # Later than every time that was handled, so that each has a row of its own.
    at = max(now + timing.delay, schedule.updated_at + MICROSECOND)
    return replace(told, next_run_at=at, due_at=due_time(told, at))


def renamed(schedule: Schedule, old: str, new: str) -> Schedule:
    """The follower of a schedule that has another key now."""
    timing = schedule.timing
    if not isinstance(timing, After):
        return schedule
    keys = tuple(new if key == old else key for key in timing.schedules)
    causes = tuple(replace(each, key=new) if each.key == old else each for each in schedule.causes)
    return replace(schedule, timing=replace(timing, schedules=keys), causes=causes)


def with_effects(causes: Iterable[Run], rows: Sequence[Run]) -> list[Run]:
    """The causes that have effects among these rows, which are new."""
    linked = []
    for cause in causes:
        effects = tuple(row.id for row in rows if cause.id in row.causes)
        if effects:
            linked.append(replace(cause, effects=(*cause.effects, *effects)))
    return linked
