"""The overview: what is wrong first, then what runs and what is coming."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fastapi import Response

from ...domain.model import Task
from ...engine.overview import AT_MOST
from .alarms import RULES
from .visit import Visit

__all__ = ["show"]

SHOWN = 10
ALARMS = 20


class _Group(NamedTuple):
    """Tasks with the same trouble: of one schedule, or of one kind."""

    tasks: list[Task]
    key: str | None

    @property
    def latest(self) -> Task:
        return self.tasks[0]


async def show(visit: Visit) -> Response:
    found = await visit.queue.overview()
    alarms = await visit.queue.alarms(limit=ALARMS)
    keys = {id: schedule.key for id, schedule in found.schedules.items()}
    return visit.show(
        "overview.html",
        found=found,
        most=AT_MOST,
        shown=SHOWN,
        alarms=alarms,
        names=RULES,
        keys=keys,
        failed=_grouped(found.failed, lambda task: (task.schedule_id, task.kind), keys),
        waiting=_grouped(found.waiting, lambda task: (task.queue, task.kind), {}),
        is_well=not (alarms or found.late or found.failed or found.waiting or found.lost),
    )


def _grouped(
    tasks: Iterable[Task], by: Callable[[Task], tuple[str | None, str]], keys: dict[str, str]
) -> list[_Group]:
    groups: dict[tuple[str | None, str], list[Task]] = {}
    for task in tasks:
        groups.setdefault(by(task), []).append(task)
    return [_Group(each, keys.get(each[0].schedule_id or "")) for each in groups.values()]
