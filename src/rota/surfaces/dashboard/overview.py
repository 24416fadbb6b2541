"""The overview: what is wrong first, then what runs and what is coming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fastapi import Response

from ...domain.model import Alarm, NodeState, Task
from ...domain.serving import busy_slots, is_alive
from ...engine.queries.overview import AT_MOST, Hour, Overview
from ..python.client import Page
from ..words import counted
from .alarms import RULES
from .texts import took
from .visit import Visit

SHOWN = 10
ALARMS = 20
SHARED_FOR = timedelta(seconds=2)
DAY_SHARED_FOR = timedelta(minutes=1)
"""The last day changes slowly, and many look at it."""

ROLES = ("scheduler", "worker", "janitor")
STORES = {"memory": "memory, gone when the process ends", "sqlite": "SQLite", "postgresql": "PostgreSQL"}


class _SameTrouble(NamedTuple):
    """Tasks with the same trouble: of one schedule, or of one kind."""

    tasks: list[Task]
    key: str | None

    @property
    def latest(self) -> Task:
        return self.tasks[0]


class DayChart(NamedTuple):
    """A bar for each of the last hours, in a box of 24 by 40. `bars` are (x, y, height, when, words)."""

    title: str
    words: str
    bars: list[tuple[int, float, float, datetime, str]]


def _charts(hours: Sequence[Hour]) -> list[DayChart]:
    """The charts of the last day; none, if it brought no task."""
    created = sum(hour.created for hour in hours)
    if not created:
        return []
    about = "about " if any(hour.is_estimate for hour in hours) else ""
    late = [hour.late for hour in hours if hour.late is not None]
    depths = [hour.depth for hour in hours if hour.depth is not None]
    return [
        _chart(
            "Throughput", f"{about}{counted(created, 'task')} in the last day", hours,
            [(h.created, f"{'about ' if h.is_estimate else ''}{counted(h.created, 'task')}") for h in hours],
        ),
        _chart(
            "Lateness", f"worst hour {took(max(late))}" if late else "no schedule ran", hours,
            [(None, "") if h.late is None else (h.late.total_seconds(), took(h.late)) for h in hours],
        ),
        _chart(
            "Queue depth", f"most {_depth(max(depths))} waiting at a time" if depths else "nothing began", hours,
            [(None, "") if h.depth is None else (h.depth, f"{_depth(h.depth)} waiting") for h in hours],
        ),
    ]  # fmt: skip


def _depth(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}" if number >= 0.05 else "0"


def _chart(
    title: str, words: str, hours: Sequence[Hour], values: Sequence[tuple[float | None, str]]
) -> DayChart:
    """A chart as high as its highest bar, and at least as one task or one second: less than that is no trouble."""
    top = max([1.0, *(value for value, _ in values if value is not None)])
    bars = []
    for place, (hour, (value, text)) in enumerate(zip(hours, values, strict=True)):
        if value is not None:
            height = max(round(38 * value / top, 1), 0.8)
            bars.append((place, 40 - height, height, hour.begins, text))
    return DayChart(title, words, bars)


class Seen(NamedTuple):
    """The store's part of the page, and how long the store took to tell it."""

    found: Overview
    alarms: Page[Alarm]
    nodes: list[NodeState]
    took: timedelta


async def seen_of(visit: Visit) -> Seen | None:
    """The store's part of the page, as of a moment ago: many keep it open, and all of a tenant who may see the same
    share one answer. None: the store is still being asked."""
    name = f"overview for {visit.queue.caller.tenant}"

    async def ask() -> Seen:
        began = visit.queue.clock.monotonic()
        found, alarms = await visit.queue.overview(), await visit.queue.alarms(limit=ALARMS)
        nodes = await visit.queue.nodes(dead=True)
        return Seen(found, alarms, nodes, timedelta(seconds=visit.queue.clock.monotonic() - began))

    return await visit.service.shared_soon((name, visit.tenant), ask, SHARED_FOR)


async def show(visit: Visit) -> Response:
    day = visit.service.shared_soon(("day", visit.tenant), visit.queue.last_day, DAY_SHARED_FOR)
    seen, hours = await asyncio.gather(seen_of(visit), day)
    if seen is None:
        return visit.being_made("Overview", "The store is being asked what is wrong.")
    found, alarms, nodes, took = seen
    keys = {id: schedule.key for id, schedule in found.schedules.items()}
    alive = [node for node in nodes if is_alive(node, found.at)]
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
        charts=None if hours is None else _charts(hours),
        is_well=not (alarms or found.late or found.failed or found.waiting or found.lost),
        alive=alive,
        silent=[node for node in nodes if node not in alive],
        roles=[(role, sum(role in node.roles for node in alive)) for role in ROLES],
        busy=None if any(node.running is None for node in alive) else busy_slots(alive),
        slots=sum(node.slots for node in alive if "worker" in node.roles),
        store=STORES.get(visit.queue.store.url.partition(":")[0].partition("+")[0], "a bucket"),
        answered_in=took,
    )


def _grouped(
    tasks: Iterable[Task], by: Callable[[Task], tuple[str | None, str]], keys: dict[str, str]
) -> list[_SameTrouble]:
    groups: dict[tuple[str | None, str], list[Task]] = {}
    for task in tasks:
        groups.setdefault(by(task), []).append(task)
    return [_SameTrouble(each, keys.get(each[0].schedule_id or "")) for each in groups.values()]
