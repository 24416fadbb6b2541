"""What a shell completes: schedules, templates, calendars, queues, ids of tasks and workflows, kinds and zones.

Completion never fails: at worst it knows nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from .session import Session

if TYPE_CHECKING:
    from ..python.client import Queue

__all__ = ["calendars", "kinds", "queues", "schedules", "task_ids", "templates", "workflow_ids", "zones"]

AT_MOST = 1000
Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def _from_store(ask: Callable[[Queue], Awaitable[Iterable[str]]]) -> Completion:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        flags = {
            name: value
            for name, value in ctx.params.items()
            if name in ("store", "server", "key", "tenant", "profile")
        }
        try:
            found = Session({**(ctx.find_object(dict) or {}), **flags}).run(ask, may_be_long=True)
        except Exception:
            return []
        return [name for name in dict.fromkeys(found) if name.startswith(incomplete)]

    return complete


async def _schedules(queue: Queue) -> Iterable[str]:
    return [each.key for each in await queue.list_schedules(limit=AT_MOST)]


async def _templates(queue: Queue) -> Iterable[str]:
    return [each.alias for each in await queue.list_templates(limit=AT_MOST)]


async def _task_ids(queue: Queue) -> Iterable[str]:
    return [each.id for each in await queue.list(limit=AT_MOST)]


async def _workflow_ids(queue: Queue) -> Iterable[str]:
    return [each.id for each in await queue.list(limit=AT_MOST, workflow=True)]


async def _calendars(queue: Queue) -> Iterable[str]:
    return [each.name for each in await queue.list_calendars()]


async def _queues(queue: Queue) -> Iterable[str]:
    return [each.name for each in await queue.list_queues()]


async def _kinds(queue: Queue) -> Iterable[str]:
    """Those that workers have, that schedules start, and that were submitted lately."""
    handled = [kind for node in await queue.nodes(dead=True) for kind in node.kinds]
    started = [getattr(each.target, "kind", "") for each in await queue.list_schedules(limit=AT_MOST)]
    submitted = [each.kind for each in await queue.list(limit=AT_MOST)]
    return sorted({*handled, *started, *submitted} - {""})


def zones(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Any letter case; a city is enough."""
    from zoneinfo import available_timezones

    text = incomplete.lower()
    named = sorted(available_timezones())
    return [zone for zone in named if zone.lower().startswith(text)] or [
        zone for zone in named if text in zone.lower()
    ]


schedules = _from_store(_schedules)
templates = _from_store(_templates)
task_ids = _from_store(_task_ids)
kinds = _from_store(_kinds)
workflow_ids = _from_store(_workflow_ids)
calendars = _from_store(_calendars)
queues = _from_store(_queues)
