"""Running roles in this process: open the store, say what runs, run until stopped, say how it went."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

import click

from ... import __version__
from ...engine.app import App
from ...engine.commands import Retention
from ...engine.node import Node, Worker
from ...engine.worker import run_hooks
from ..client import Queue, connect
from ..durations import relative
from ..settings import Settings
from ..stores import in_role
from .feed import Feed
from .session import Session

__all__ = ["Plan", "run", "run_once"]

SHOWN = 5


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

    def with_app(self, app: App | None) -> Plan:
        return replace(self, app=app)

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
        return " + ".join(names)


def run(session: Session, plan: Plan) -> None:
    """Until SIGINT or SIGTERM; then the exit code is 0."""
    _quiet_logs()
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)  # also while things are being set up
    try:
        _run_to_the_end(_running(session, plan))
    except KeyboardInterrupt:
        session.screen.remark("stopped")
    finally:
        signal.signal(signal.SIGTERM, earlier)


def run_once(session: Session, plan: Plan) -> None:
    """One pass of every role."""
    _quiet_logs()
    _run_to_the_end(_pass(session, plan))


def _run_to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, but it does not wait for threads: a handler that never ends must not keep the
    process."""
    loop = asyncio.new_event_loop()
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
        node = _node(session, plan, queue, feed)
        await _greet(session, plan, queue)
        await node.run()
        if not session.as_json:
            session.screen.remark(f"stopped: {feed.summary()}")


def _node(session: Session, plan: Plan, queue: Queue, feed: Feed) -> Node:
    settings = plan.settings
    keep = Retention(tasks=settings["keep_tasks"], runs=settings["keep_runs"], events=settings["keep_events"])
    shared: dict[str, Any] = {
        "scheduler": plan.scheduler,
        "janitor": plan.janitor,
        "observers": (feed,),
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
        all_tenants=plan.all_tenants,
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


async def _greet(session: Session, plan: Plan, queue: Queue) -> None:
    if plan.app is not None:
        await queue.declare_schedules(plan.app)
    if session.as_json:
        return
    screen = session.screen
    screen.say(
        f"{click.style('rota', bold=True, fg='cyan')} {__version__}  {plan.roles}  on {queue.store.url}"
    )
    if plan.app is not None:
        kinds = ", ".join(sorted(plan.app.handlers)) or "none"
        queues = ", ".join(plan.settings["queues"] or ()) or "all"
        screen.say(f"tasks: {kinds}  queues: {queues}  at once: {plan.settings['concurrency']}")
    else:
        screen.say("no tasks are run here: give module:app to `rota up` or `rota worker` for that")
    if plan.scheduler:
        await _say_what_comes(session, queue)
    for hint in plan.hints:
        screen.say(hint)
    screen.say(click.style("Ctrl-C stops it.", dim=True))
    screen.say()


async def _say_what_comes(session: Session, queue: Queue) -> None:
    from . import words

    active = await queue.list_schedules(status="active", limit=1000)
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
            while (await node.run_once()).total_seconds() <= 0:
                pass
        finally:
            if isinstance(node, Worker):
                node.tasks.close()
                await run_hooks(node.app, "on_shutdown", (node,), node.observe)
    if not session.as_json:
        session.screen.say(f"one pass done: {feed.summary()}")


def _quiet_logs() -> None:
    """The feed says it all; without this the log would say it again."""
    log = logging.getLogger("rota")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
        log.propagate = False
