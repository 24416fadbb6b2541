"""Running roles in this process: open the store, say what runs, run until stopped, say how it went."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import click

from ... import __version__
from ...engine.app import App
from ...engine.commands import Retention
from ...engine.loops import Role, keep_running
from ...engine.node import Deaf, Node, Worker
from ...engine.telemetry import LoopFailed, Observer
from ...engine.worker import run_hooks
from ..client import Queue, connect
from ..durations import relative
from ..logs import logging_to
from ..settings import Settings
from .feed import Feed
from .session import Session

__all__ = ["Plan", "Watch", "run", "run_once"]

SHOWN = 5


@dataclass(frozen=True)
class Watch:
    """How a running process can be watched: where its metrics are served (port None: nowhere), and from which level on
    it logs."""

    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    log_level: str | None = None


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
    watch: Watch = Watch()

    def with_app(self, app: App | None) -> Plan:
        return replace(self, app=app)

    @property
    def address(self) -> str:
        return self.store or str(self.settings["store"])

    @property
    def roles(self) -> str:
        names = (
            ["scheduler"] * self.scheduler + ["worker"] * (self.app is not None) + ["janitor"] * self.janitor
        )
        return " + ".join(names)


def run(session: Session, plan: Plan) -> None:
    """Until SIGINT or SIGTERM; then the exit code is 0."""
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)  # also while things are being set up
    try:
        with _logs(plan.watch.log_level):
            _run_to_the_end(_running(session, plan))
    except KeyboardInterrupt:
        session.screen.remark("stopped")
    finally:
        signal.signal(signal.SIGTERM, earlier)


def run_once(session: Session, plan: Plan) -> None:
    """One pass of every role."""
    with _logs(plan.watch.log_level):
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
    async with connect(plan.address, tenant=plan.settings["tenant"]) as queue:
        feed = Feed(session, queue.clock)
        async with _measured(session, plan.watch, queue) as observers:
            node = _node(session, plan, queue, feed, *observers)
            await _greet(session, plan, queue)
            await node.run()
        if not session.as_json:
            session.screen.remark(f"stopped: {feed.summary()}")


@asynccontextmanager
async def _measured(session: Session, watch: Watch, queue: Queue) -> AsyncIterator[tuple[Observer, ...]]:
    """Serves the metrics of this process meanwhile, if asked to; gives the observers that they need."""
    if watch.metrics_port is None:
        yield ()
        return
    from ..metrics_port import make_metrics, metrics_served

    metrics = make_metrics("metrics_port")
    queue.store = metrics.observed(queue.store)
    lagging = asyncio.create_task(_keep_measuring(metrics.loop_lag, metrics.observe), name="rota-loop-lag")
    try:
        serving = metrics_served(metrics, queue.store, watch.metrics_host, watch.metrics_port)
        async with serving as address:
            session.screen.remark(f"metrics: {address}")
            yield (metrics.observe,)
    finally:
        lagging.cancel()


async def _keep_measuring(role: Role, observe: Observer) -> None:
    def failed(error: BaseException, again_in: timedelta) -> None:
        observe(LoopFailed("loop lag", error, again_in))

    await keep_running(role, Deaf(), stop=asyncio.Event(), on_error=failed)


def _node(session: Session, plan: Plan, queue: Queue, *observers: Observer) -> Node:
    settings = plan.settings
    keep = Retention(tasks=settings["keep_tasks"], runs=settings["keep_runs"], events=settings["keep_events"])
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
    async with connect(plan.address, tenant=plan.settings["tenant"]) as queue:
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


def _logs(level: str | None) -> AbstractContextManager[None]:
    """To stderr, unless the program has set up its own. In a terminal the feed says already what the engine would log:
    that is logged only if a level was asked for."""
    if level is None and logging.getLogger().handlers:
        return nullcontext()
    said_already = level is None and sys.stderr.isatty()
    return logging_to(level, muted=("rota",) if said_already else ())
