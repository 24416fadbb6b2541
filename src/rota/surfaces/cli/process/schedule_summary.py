"""A summary of the active schedules, printed when a process starts: how many there are, which fire first, and which
start a kind without a handler.

It reads all schedules, a page at a time, and keeps a bounded part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from ....domain.errors import NotFound
from ....domain.model import Schedule, TemplateTarget
from ....engine.app import App
from ...python.client import Queue

__all__ = ["SHOWN", "ScheduleSummary", "WithoutHandler", "summarize_schedules"]

SHOWN = 5
PAGE = 1000
KINDS = 20
"""The schedules of so many kinds without a handler are named."""


@dataclass
class WithoutHandler:
    """The schedules that start a kind without a handler: some names, and how many there are."""

    names: list[str] = field(default_factory=list)
    count: int = 0


@dataclass
class ScheduleSummary:
    """`more_lacking` counts the schedules of further kinds without a handler."""

    active: int = 0
    soonest: list[Schedule] = field(default_factory=list)
    lacking: dict[str, WithoutHandler] = field(default_factory=dict)
    more_lacking: int = 0

    def note(self, page: Sequence[Schedule]) -> None:
        self.active += len(page)
        timed = [schedule for schedule in (*self.soonest, *page) if schedule.next_run_at is not None]
        self.soonest = nsmallest(
            SHOWN, timed, key=lambda schedule: schedule.next_run_at or schedule.created_at
        )

    def note_lacking(self, kind: str, schedule: Schedule) -> None:
        if kind not in self.lacking and len(self.lacking) == KINDS:
            self.more_lacking += 1
            return
        lacking = self.lacking.setdefault(kind, WithoutHandler())
        lacking.count += 1
        if len(lacking.names) < SHOWN:
            is_default = schedule.tenant == "default"
            lacking.names.append(schedule.key if is_default else f"{schedule.key} (tenant {schedule.tenant})")


async def summarize_schedules(
    queue: Queue, *, all_tenants: bool, app: App | None, queues: Sequence[str] | None
) -> ScheduleSummary:
    """Of one tenant or all. `queues` are those served here (None: all); tasks in others are not for this app."""
    summary = ScheduleSummary()
    tenants = [use.tenant.id for use in await queue.list_tenants() if use.schedules] if all_tenants else None
    for tenant in [queue.tenant] if tenants is None else tenants:
        of_tenant = queue.for_tenant(tenant)
        async for page in _pages(of_tenant):
            summary.note(page)
            if app is not None:
                started = await _started(of_tenant, page)
                for schedule, (kind, name) in zip(page, started, strict=True):
                    if kind not in app.handlers and kind and (queues is None or name in queues):
                        summary.note_lacking(kind, schedule)
    return summary


async def _pages(queue: Queue) -> AsyncIterator[list[Schedule]]:
    cursor = None
    while True:
        page = await queue.list_schedules(status="active", limit=PAGE, cursor=cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


async def _started(queue: Queue, page: Sequence[Schedule]) -> list[tuple[str, str]]:
    """The kind and the queue of the task that each schedule starts. A deleted template starts nothing."""
    templates: dict[str, tuple[str, str]] = {}
    for schedule in page:
        if isinstance(target := schedule.target, TemplateTarget) and target.template_id not in templates:
            templates[target.template_id] = await _of_template(queue, target.template_id)
    return [
        templates[schedule.target.template_id]
        if isinstance(schedule.target, TemplateTarget)
        else (schedule.target.kind, schedule.target.queue)
        for schedule in page
    ]


async def _of_template(queue: Queue, template_id: str) -> tuple[str, str]:
    try:
        template = await queue.get_template(template_id)
    except NotFound:
        return "", ""
    return template.kind, template.queue
