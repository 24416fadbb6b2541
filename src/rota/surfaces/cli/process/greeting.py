"""The greeting of a process that starts: what runs here, where, which schedules fire first, and which start a kind that
has no handler.

It reads all schedules for that, a page at a time, and keeps a bounded part."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING

import click

from .... import __version__
from ....domain.model import Schedule
from ....domain.runtimes import SHELL_KIND
from ....domain.serving import handlers_of
from ....engine.runtimes.runtimes import Runtimes
from ... import words
from ...durations import relative
from ...python.client import Queue, all_pages
from ...python.known_nodes import started_by
from ..render import prose_for
from ..session import Session

if TYPE_CHECKING:
    from .http import ApiServer
    from .running import ProcessOptions

SHOWN = 5
PAGE = 1000
KINDS = 20
"""The schedules of so many kinds without a handler are named."""


async def greet(
    session: Session, options: ProcessOptions, queue: Queue, api_server: ApiServer | None
) -> None:
    summary = ScheduleSummary()
    if options.scheduler or options.app is not None:
        summary = await _summarize(
            queue,
            all_tenants=options.serves_every_tenant,
            handled=_handled(options),
            queues=options.settings["queues"],
        )
    _warn_of_kinds_without_handler(session, summary)
    if not session.as_json:
        _say_what_runs(session, options, queue)
    if api_server is not None:
        await api_server.greet(session, queue)
    if session.as_json:
        return
    if options.scheduler:
        await _say_what_comes(session, queue, summary)
    for hint in options.hints:
        session.screen.say(hint)
    session.screen.say(click.style("Ctrl-C stops it.", dim=True))
    session.screen.say()


def _handled(options: ProcessOptions) -> Collection[str] | None:
    """The kinds that are run here; None: no tasks are."""
    if options.app is None:
        return None
    return Runtimes(options.app, allow_shell=options.settings["allow_shell"]).defaults().keys()


def _say_what_runs(session: Session, options: ProcessOptions, queue: Queue) -> None:
    name = click.style("rota", bold=True, fg="cyan")
    said = prose_for(sys.stdout, f"rota {__version__}  {options.roles}  on {queue.store.url}")
    session.screen.say(name + said.removeprefix("rota"))
    if options.app is not None:
        commands = ["shell commands"] * options.settings["allow_shell"]
        kinds = ", ".join([*sorted(options.app.handlers), *commands]) or "none"
        queues = ", ".join(options.settings["queues"] or ()) or "all"
        tenants = "all" if options.serves_every_tenant else queue.tenant
        concurrency = options.settings["concurrency"]
        session.screen.prose(f"tasks: {kinds}  queues: {queues}  tenants: {tenants}  at once: {concurrency}")
    elif options.is_engine:
        session.screen.say(
            "no tasks are run here: give module:app for that, or --allow-shell for shell commands"
        )
    else:
        session.screen.say("schedules and tasks run elsewhere, such as in `rota up`; with --engine, here too")


def _warn_of_kinds_without_handler(session: Session, summary: ScheduleSummary) -> None:
    """Such a schedule starts tasks that wait until there is a worker with the handler."""
    for kind, lacking in sorted(summary.lacking.items()):
        unnamed = lacking.count - len(lacking.names)
        more = f" and {unnamed:,} more" if unnamed else ""
        names = f"{', '.join(lacking.names)}{more}"
        session.screen.warn(
            f"shell commands are not run here without --allow-shell, and {names} starts one"
            if kind == SHELL_KIND
            else f"this app has no handler for {kind}, which is what {names} starts:"
            " it waits for a worker that has one"
        )
    if summary.more_lacking:
        session.screen.warn(f"nor has it one for what {summary.more_lacking:,} more schedules start")


async def _say_what_comes(session: Session, queue: Queue, summary: ScheduleSummary) -> None:
    now = await queue.now()
    if not summary.soonest:
        session.screen.say("schedules: none is active")
        return
    times = [relative(schedule.next_run_at or now, now) for schedule in summary.soonest]
    width, room = max(len(schedule.key) for schedule in summary.soonest), max(map(len, times))
    session.screen.say(f"schedules: {summary.active:,} active")
    for schedule, when in zip(summary.soonest, times, strict=True):
        name = click.style(schedule.key.ljust(width), bold=True)
        session.screen.say(
            f"  {name}  {click.style(when.ljust(room), fg='cyan')}  {words.sentence(schedule)}"
        )


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


async def _summarize(
    queue: Queue, *, all_tenants: bool, handled: Collection[str] | None, queues: Sequence[str] | None
) -> ScheduleSummary:
    """The schedules of one tenant or all. `queues` are those served here (None: all); tasks in others are not for this
    app. A kind that another live node handles is not lacking."""
    summary = ScheduleSummary()
    tenants = [use.tenant.id for use in await queue.list_tenants() if use.schedules] if all_tenants else None
    for tenant in [queue.tenant] if tenants is None else tenants:
        of_tenant = queue.for_tenant(tenant)
        nodes = await of_tenant.nodes()
        async for page in all_pages(of_tenant.list_schedules, status="active", limit=PAGE):
            summary.note(page)
            if handled is not None:
                started = await started_by(queue.store, tenant, [each.target for each in page])
                for schedule, task in zip(page, started, strict=True):
                    kind, name = task or ("", "")  # a template that is gone starts nothing
                    is_lacking = kind not in handled and kind and (queues is None or name in queues)
                    if is_lacking and not handlers_of(nodes, tenant, kind, name):
                        summary.note_lacking(kind, schedule)
    return summary
