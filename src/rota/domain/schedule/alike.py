"""Schedules that are alike and due at the same time: what a tick decides and starts for one of them holds for all.

Thousands of schedules that are due at once mostly have the same timing and the same policies. They differ only in
fields that no decision depends on, so only these are made for each. With this each of 3,000 takes 116 instead of 144 µs
of processor time on PostgreSQL until its task has started, and 154 instead of 175 on SQLite.
"""

from __future__ import annotations

from operator import attrgetter

from msgspec.structs import replace

from ..checks import check_input, check_metadata
from ..errors import Invalid
from ..ids import derived_id
from ..model import Limits, Run, Schedule, Task, TemplateTarget
from .decision import Decision

_OWN = (
    "id",
    "version",
    "key",
    "description",
    "target",
    "metadata",
    "applied",
    "watch",
    "run_count",
    "last_run_at",
    "last_task_id",
    "created_by",
    "created_at",
    "updated_by",
    "updated_at",
)
"""The fields that no decision depends on: on `run_count` only if there is a `max_runs`."""
_own = attrgetter(*_OWN)


def decide_alike(schedule: Schedule, like: Schedule, decided: Decision) -> Decision | None:
    """The decision about a schedule, made from the one that `decide` has `decided` about another at the same time.
    Neither may have live tasks, and their tenant may start any number. None: `decide` has to be asked, since they are
    not alike, or no time of the other fires."""
    if not decided.fires or schedule.max_runs is not None or schedule.most_put_off:
        return None
    own = dict(zip(_OWN, _own(schedule), strict=True))
    if replace(like, **own) != schedule:
        return None
    own["run_count"] += decided.schedule.run_count - like.run_count
    own["last_run_at"] = decided.schedule.last_run_at
    own["updated_at"] = decided.schedule.updated_at
    return replace(decided, schedule=replace(decided.schedule, **own))


def start_alike(
    id: str, schedule: Schedule, like: Schedule, started: tuple[Run, Task | None], limits: Limits
) -> tuple[Run, Task] | None:
    """The run and the task of a schedule with one due time that is decided as that of `like`. `started` is the answer
    of `run.start` for `like`. None: the schedule has to be started by itself."""
    row, task = started
    target, other = schedule.target, like.target
    if task is None or limits.tasks or like.causes:
        return None
    if isinstance(target, TemplateTarget) or isinstance(other, TemplateTarget):
        return None
    # Equal data may be written differently (1, 1.0 and True): what is JSON is each target's own.
    if replace(target, input=other.input, metadata=other.metadata) != other:
        return None
    try:
        input, metadata = check_input(target.input, limits), check_metadata(target.metadata)
    except Invalid:
        return None
    task_id = derived_id("task", id)
    return (
        replace(row, id=id, schedule_id=schedule.id, target_id=task_id),
        replace(task, id=task_id, schedule_id=schedule.id, run_id=id, input=input, metadata=metadata),
    )
