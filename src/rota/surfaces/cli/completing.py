"""The names in a store: what a shell completes, and what may have been meant by one that is not there.

Completion never fails: at worst it knows nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from zoneinfo import available_timezones

import click

from ...domain.errors import NotFound
from .session import Session

if TYPE_CHECKING:
    from ..python.client import Queue

AT_MOST = 1000
"""The number of names that are looked through."""
Names = Callable[["Queue"], Awaitable[list[str]]]
Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def _from_store(ask: Names) -> Completion:
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


def _names(ask: Callable[[Queue], Awaitable[Iterable[Any]]], field: str) -> Names:
    """The names of the records that are asked for, which they have in this field."""
    named = attrgetter(field)

    async def names(queue: Queue) -> list[str]:
        return [named(each) for each in await ask(queue)]

    return names


async def _keys(queue: Queue) -> list[str]:
    return [each.name for each in await queue.list_keys(limit=AT_MOST) if each.revoked_at is None]


_NAMES: Mapping[str, Names] = {
    "schedule": _names(lambda queue: queue.list_schedules(limit=AT_MOST), "key"),
    "template": _names(lambda queue: queue.list_templates(limit=AT_MOST), "alias"),
    "calendar": _names(lambda queue: queue.list_calendars(), "name"),
    "tenant": _names(lambda queue: queue.list_tenants(), "tenant.id"),
    "key": _keys,
}
schedules = _from_store(_NAMES["schedule"])
templates = _from_store(_NAMES["template"])
calendars = _from_store(_NAMES["calendar"])
queues = _from_store(_names(lambda queue: queue.list_queues(), "name"))
task_ids = _from_store(_names(lambda queue: queue.list(limit=AT_MOST), "id"))
workflow_ids = _from_store(_names(lambda queue: queue.list(limit=AT_MOST, workflow=True), "id"))


@_from_store
async def kinds(queue: Queue) -> list[str]:
    """The kinds that workers have, that schedules start, and that were submitted lately."""
    handled = [kind for node in await queue.nodes(dead=True) for kind in node.kinds]
    started = [getattr(each.target, "kind", "") for each in await queue.list_schedules(limit=AT_MOST)]
    submitted = [each.kind for each in await queue.list(limit=AT_MOST)]
    return sorted({*handled, *started, *submitted} - {""})


def zones(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Any letter case; a city is enough."""
    text = incomplete.lower()
    named = sorted(available_timezones())
    return [zone for zone in named if zone.lower().startswith(text)] or [
        zone for zone in named if text in zone.lower()
    ]


async def suggested(queue: Queue, problem: NotFound) -> NotFound:
    """The same problem. If it is about a schedule that was deleted, that is said; else, if there is a name close to the
    one that was looked for, it is named."""
    from difflib import get_close_matches

    for what, name in problem.details.items():
        if what == "schedule" and (deleted := await _deletion(queue, str(name))) is not None:
            problem.args = (f"{problem}; {deleted}",)
            continue
        near = get_close_matches(str(name), await _NAMES[what](queue), 2) if what in _NAMES else []
        if near:
            meant = " or ".join(repr(each) for each in near)
            problem.args = (f"{problem}; did you mean {meant}?",)
    return problem


async def _deletion(queue: Queue, name: str) -> str | None:
    """When a schedule was deleted, and how it is restored. None: it was not."""
    try:
        last = (await queue.schedule_history(name))[-1]
    except NotFound:
        return None
    if last.action != "deleted":
        return None
    shown = f"`rota schedule history {name}` shows it, `rota schedule restore {name}` brings it back"
    return f"one with the id {last.subject_id} was deleted at {last.at:%Y-%m-%d %H:%M} UTC: {shown}"
