"""Running roles in this process: open the store, say what runs, run until stopped, say how it went."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import click

from .... import __version__
from ....domain.model import Schedule, TemplateTarget
from ....engine.app import App
from ....engine.commands import Retention, is_anything_due
from ....engine.node import Node, Worker
from ....engine.observe.telemetry import Observer
from ....engine.roles.scheduler import ROWS_PER_CALL
from ....engine.roles.worker import run_hooks
from ...durations import relative
from ...python.client import Queue, connect
from ...settings import Settings
from ...stores import in_role
from ..session import Session
from .feed import Feed
from .http import Door, Http, opened
from .logs import logging_to
from .measuring import Watch, measured, observers_of

__all__ = ["Plan", "Watch", "run", "run_once"]

SHOWN = 5
LOOKED_AT = 1000


@dataclass(frozen=True)
class Plan:
    """Which roles run, with which settings. Without an app no tasks are run."""

    settings: Settings
    scheduler: bool
    janitor: bool
    all_tenants: bool = False
    app: App | None = None
    store: str | None = None
    hints: tuple[str, ...] = ()
    watch: Watch = field(default_factory=Watch)
    http: Http | None = None

    def with_app(self, app: App | None) -> Plan:
        http = None if self.http is None else replace(self.http, app=app)
        return replace(self, app=app, http=http)

    @property
    def address(self) -> str:
        return self.store or str(self.settings["store"])

    @property
    def own_address(self) -> str:
        return in_role(self.address, self.roles.replace(" + ", "-"))

    @property
    def roles(self) -> str:
        names = (
            ["scheduler"] * self.scheduler + ["worker"] * (self.app is not None) + ["janitor"] * self.janitor
        )
        return " + ".join(names) or "http"

    @property
    def serves_every_tenant(self) -> bool:
        """Unless one was named: schedules of all tenants fire here, and somebody must run what they start."""
        return self.all_tenants or self.settings.is_default("tenant")

    @property
    def is_engine(self) -> bool:
        """Whether anything is fired, run or kept in order here."""
        return self.scheduler or self.janitor or self.app is not None


def run(session: Session, plan: Plan) -> None:
    """Until SIGINT or SIGTERM; then the exit code is 0."""
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)  # also while things are being set up
    try:
        with _logs(plan.watch.log_level):
            _run_to_the_end(_running(session, plan), _new_loop(plan))
    except KeyboardInterrupt:
        session.screen.remark("stopped")
    finally:
        signal.signal(signal.SIGTERM, earlier)


def run_once(session: Session, plan: Plan) -> None:
    """One pass of every role."""
    with _logs(plan.watch.log_level):
        _run_to_the_end(_pass(session, plan), asyncio.new_event_loop())


def _new_loop(plan: Plan) -> asyncio.AbstractEventLoop:
    """uvloop, if it is there, where there are no handlers that might mind."""
    if not plan.is_engine and plan.http is not None and find_spec("uvloop") is not None:
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


def _run_to_the_end(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
    """As `asyncio.run`, but it does not wait for threads: a handler that never ends must not keep the
    process."""
    asyncio.set_event_loop(loop)
    running = loop.create_task(work)
    try:
        loop.run_until_complete(running)
    except KeyboardInterrupt:
        running.cancel()
        loop.run_until_complete(asyncio.wait({running}, timeout=5))
        raise
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


async def _running(session: Session, plan: Plan) -> None:
    async with connect(plan.own_address, tenant=plan.settings["tenant"]) as queue:
        feed = Feed(session, queue.clock)
        async with (
            opened(session, plan.http, queue) as door,
            measured(session, plan.watch, queue, is_served=door is not None) as measures,
        ):
            node = _node(session, plan, queue, feed, *observers_of(measures))
            feed.on_unread = node.stop
            await _greet(session, plan, queue, door)
            if door is None or measures is None:
                await node.run()
            else:
                await _run_beside(node, door.serve(session, queue, measures, node.stopping))
        if feed.is_unread:
            raise BrokenPipeError
        if not session.as_json:
            session.screen.remark(f"stopped: {feed.summary()}" if plan.is_engine else "stopped")


async def _run_beside(node: Node, serving: Coroutine[Any, Any, None]) -> None:
    """The one ends with the other. What is being answered is answered while handlers come to their end."""
    served = asyncio.create_task(serving, name="rota-http")
    served.add_done_callback(lambda _: node.stop() if _has_failed(served) else None)
    try:
        await node.run()
    finally:
        node.stop()
        await served


def _has_failed(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is not None


def _node(session: Session, plan: Plan, queue: Queue, *observers: Observer) -> Node:
    settings = plan.settings
    kinds = ("tasks", "runs", "events", "schedules")
    keep = Retention(**{kind: settings[f"keep_{kind}"] for kind in kinds})
    shared: dict[str, Any] = {
        "scheduler": plan.scheduler,
        "janitor": plan.janitor,
        "observers": observers,
        "retention": keep,
    }
    if plan.app is None:
        return Node(queue, **shared)
    return StoppingWorker(
        session,
        queue,
        plan.app,
        queues=settings["queues"],
        concurrency=settings["concurrency"],
        lease=settings["lease"],
        shutdown_timeout=settings["shutdown_timeout"],
        all_tenants=plan.serves_every_tenant,
        **shared,
    )


class StoppingWorker(Worker):
    """Says what it waits for when it is asked to stop."""

    def __init__(self, session: Session, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._session = session

    def _signalled(self) -> None:
        kinds = ", ".join(self.tasks.kinds_running)
        if kinds and not self._stop.is_set():
            self._session.screen.remark(
                f"\nstopping: waiting for {kinds}; Ctrl-C again hands it back at once"
            )
        super()._signalled()


async def _greet(session: Session, plan: Plan, queue: Queue, door: Door | None) -> None:
    if plan.app is not None:
        await queue.declare_schedules(plan.app)
    active = await _active_schedules(plan, queue) if plan.scheduler else []
    _warn_of_kinds_without_handler(session, plan, active)
    if session.as_json:
        if door is not None:
            await door.greet(session, queue)
        return
    screen = session.screen
    screen.say(
        f"{click.style('rota', bold=True, fg='cyan')} {__version__}  {plan.roles}  on {queue.store.url}"
    )
    if plan.app is not None:
        kinds = ", ".join(sorted(plan.app.handlers)) or "none"
        queues = ", ".join(plan.settings["queues"] or ()) or "all"
        tenants = "all" if plan.serves_every_tenant else queue.tenant
        screen.say(
            f"tasks: {kinds}  queues: {queues}  tenants: {tenants}  at once: {plan.settings['concurrency']}"
        )
    elif plan.is_engine:
        screen.say("no tasks are run here: give module:app to `rota up` or `rota worker` for that")
    else:
        screen.say("schedules and tasks run elsewhere, such as in `rota up`; with --engine, here too")
    if door is not None:
        await door.greet(session, queue)
    if plan.scheduler:
        await _say_what_comes(session, queue, active)
    for hint in plan.hints:
        screen.say(hint)
    screen.say(click.style("Ctrl-C stops it.", dim=True))
    screen.say()


async def _active_schedules(plan: Plan, queue: Queue) -> list[Schedule]:
    """Those of the tenants that are served here; of very many, some."""
    if not plan.serves_every_tenant:
        return await queue.list_schedules(status="active", limit=LOOKED_AT)
    found: list[Schedule] = []
    for use in await queue.list_tenants():
        if use.schedules and len(found) < LOOKED_AT:
            left = LOOKED_AT - len(found)
            found += await queue.for_tenant(use.tenant.id).list_schedules(status="active", limit=left)
    return found


def _warn_of_kinds_without_handler(session: Session, plan: Plan, active: Sequence[Schedule]) -> None:
    """What such a schedule starts waits for ever, unless a worker somewhere else has the handler."""
    if plan.app is None:
        return
    lacking: dict[str, list[str]] = {}
    for schedule in active:
        kind = None if isinstance(schedule.target, TemplateTarget) else schedule.target.kind
        if kind is not None and kind not in plan.app.handlers and _is_served(plan, schedule):
            name = (
                schedule.key if schedule.tenant == "default" else f"{schedule.key} (tenant {schedule.tenant})"
            )
            lacking.setdefault(kind, []).append(name)
    for kind, names in sorted(lacking.items()):
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        session.screen.warn(
            f"this app has no handler for {kind}, which is what {', '.join(names[:SHOWN])}{more} starts:"
            " it waits for a worker that has one"
        )


def _is_served(plan: Plan, schedule: Schedule) -> bool:
    queues = plan.settings["queues"]
    return queues is None or getattr(schedule.target, "queue", None) in queues


async def _say_what_comes(session: Session, queue: Queue, active: Sequence[Schedule]) -> None:
    from .. import words

    soonest = sorted((s for s in active if s.next_run_at), key=lambda s: s.next_run_at or s.created_at)
    now = await queue.now()
    if not soonest:
        session.screen.say("schedules: none is active")
        return
    width = max(len(schedule.key) for schedule in soonest[:SHOWN])
    session.screen.say(f"schedules: {len(active)} active")
    for schedule in soonest[:SHOWN]:
        when = relative(schedule.next_run_at or now, now)
        name = click.style(schedule.key.ljust(width), bold=True)
        session.screen.say(f"  {name}  {click.style(when.ljust(7), fg='cyan')}  {words.sentence(schedule)}")


async def _pass(session: Session, plan: Plan) -> None:
    async with connect(plan.own_address, tenant=plan.settings["tenant"]) as queue:
        feed = Feed(session, queue.clock)
        node = _node(session, plan, queue, feed)
        if isinstance(node, Worker):
            await queue.declare_schedules(node.app)
            await run_hooks(node.app, "on_startup", (node,), node.observe)
        try:
            is_more_due = await _pass_by_pass(node, feed)
        finally:
            if isinstance(node, Worker):
                node.tasks.close()
                await run_hooks(node.app, "on_shutdown", (node,), node.observe)
    if feed.is_unread:
        raise BrokenPipeError
    if session.as_json:
        session.screen.json_line({"event": "done", "is_more_due": is_more_due})
    else:
        more = "; more is due: run it again" if is_more_due else ""
        session.screen.say(f"one pass done: {feed.summary()}{more}")


async def _pass_by_pass(node: Node, feed: Feed) -> bool:
    """Until nothing is left to do; but of what is due a bounded part is fired. Whether there is more of it."""
    scheduler = node.scheduler
    while (await node.run_once()).total_seconds() <= 0 and not feed.is_unread:
        if scheduler is not None and scheduler.rows_written >= ROWS_PER_CALL:
            node.scheduler = None
    return node.scheduler is not scheduler and await node.queue.store.read(is_anything_due())


def _logs(level: str | None) -> AbstractContextManager[None]:
    """To stderr, unless the program has set up its own. In a terminal the feed says already what the engine would log:
    that is logged only if a level was asked for."""
    if level is None and logging.getLogger().handlers:
        return nullcontext()
    said_already = level is None and sys.stderr.isatty()
    return logging_to(level, muted=("rota",) if said_already else ())
