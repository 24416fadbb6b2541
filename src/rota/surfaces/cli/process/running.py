"""Running roles in this process: open the store, say what runs, run until stopped, say how it went."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import click

from .... import __version__
from ....engine.app import App
from ....engine.commands import Retention, is_anything_due
from ....engine.guard import name_of
from ....engine.node import Node, Worker
from ....engine.observe.telemetry import Observer
from ....engine.roles.scheduler import ROWS_PER_CALL
from ....engine.roles.worker import run_hooks
from ...durations import relative
from ...python.client import Queue, connect
from ...settings import Settings
from ...stores import in_role
from ..session import Session
from .event_printer import EventPrinter
from .http import ApiServer, Http, api_server_of
from .logs import logging_to
from .metrics import MonitoringOptions, collecting_metrics, observers_of
from .schedule_summary import ScheduleSummary, summarize_schedules

__all__ = ["MonitoringOptions", "Plan", "run", "run_once"]

log = logging.getLogger("rota")


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
    monitoring: MonitoringOptions = field(default_factory=MonitoringOptions)
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
        with _logs(plan.monitoring.log_level):
            _run_to_the_end(_running(session, plan), _new_loop(plan))
    except KeyboardInterrupt:
        session.screen.remark("stopped")
    finally:
        signal.signal(signal.SIGTERM, earlier)


def run_once(session: Session, plan: Plan) -> None:
    """One pass of every role."""
    with _logs(plan.monitoring.log_level):
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
    if hasattr(
        signal, "SIGURG"
    ):  # a loop is woken by signals only if it handles one itself; else one that comes just
        loop.add_signal_handler(
            signal.SIGURG, lambda: None
        )  # before it waits is seen when something else wakes it
    running = loop.create_task(work)
    try:
        _run_until_done(running, loop)
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


def _run_until_done(running: asyncio.Task[None], loop: asyncio.AbstractEventLoop) -> None:
    """asyncio lets SystemExit and KeyboardInterrupt of a callback out of the loop. Handlers may put callbacks there,
    and none of them may end the process: the loop goes on. While a node runs, a signal raises nothing: it calls it."""
    while True:
        try:
            return loop.run_until_complete(running)
        except (SystemExit, KeyboardInterrupt) as error:
            may_be_signal = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if running.done() or (may_be_signal and isinstance(error, KeyboardInterrupt)):
                raise
            log.error("a callback on the event loop raised %s; it is passed over", name_of(error))


async def _running(session: Session, plan: Plan) -> None:
    async with connect(plan.own_address, tenant=plan.settings["tenant"]) as queue:
        printer = EventPrinter(session, queue.clock)
        async with (
            api_server_of(session, plan.http, queue) as api_server,
            collecting_metrics(session, plan.monitoring, queue, is_served=api_server is not None) as buffered,
        ):
            node = _node(session, plan, queue, printer, *observers_of(buffered))
            printer.on_unread = node.stop
            await _greet(session, plan, queue, api_server)
            if api_server is None or buffered is None:
                await node.run()
            else:
                await _run_beside(node, api_server.serve(session, queue, buffered, node.stopping))
        if printer.is_unread:
            raise BrokenPipeError
        if not session.as_json:
            session.screen.remark(f"stopped: {printer.summary()}" if plan.is_engine else "stopped")


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
        "shutdown_timeout": settings["shutdown_timeout"],
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


async def _greet(session: Session, plan: Plan, queue: Queue, api_server: ApiServer | None) -> None:
    if plan.app is not None:
        await queue.declare_schedules(plan.app)
    summary = await _summary(plan, queue) if plan.scheduler else ScheduleSummary()
    _warn_of_kinds_without_handler(session, summary)
    if session.as_json:
        if api_server is not None:
            await api_server.greet(session, queue)
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
    if api_server is not None:
        await api_server.greet(session, queue)
    if plan.scheduler:
        await _say_what_comes(session, queue, summary)
    for hint in plan.hints:
        screen.say(hint)
    screen.say(click.style("Ctrl-C stops it.", dim=True))
    screen.say()


def _warn_of_kinds_without_handler(session: Session, summary: ScheduleSummary) -> None:
    """What such a schedule starts waits for ever, unless a worker somewhere else has the handler."""
    for kind, lacking in sorted(summary.lacking.items()):
        unnamed = lacking.count - len(lacking.names)
        more = f" and {unnamed:,} more" if unnamed else ""
        session.screen.warn(
            f"this app has no handler for {kind}, which is what {', '.join(lacking.names)}{more} starts:"
            " it waits for a worker that has one"
        )
    if summary.more_lacking:
        session.screen.warn(f"nor has it one for what {summary.more_lacking:,} more schedules start")


async def _summary(plan: Plan, queue: Queue) -> ScheduleSummary:
    return await summarize_schedules(
        queue, all_tenants=plan.serves_every_tenant, app=plan.app, queues=plan.settings["queues"]
    )


async def _say_what_comes(session: Session, queue: Queue, summary: ScheduleSummary) -> None:
    from .. import words

    now = await queue.now()
    if not summary.soonest:
        session.screen.say("schedules: none is active")
        return
    width = max(len(schedule.key) for schedule in summary.soonest)
    session.screen.say(f"schedules: {summary.active:,} active")
    for schedule in summary.soonest:
        when = relative(schedule.next_run_at or now, now)
        name = click.style(schedule.key.ljust(width), bold=True)
        session.screen.say(f"  {name}  {click.style(when.ljust(7), fg='cyan')}  {words.sentence(schedule)}")


async def _pass(session: Session, plan: Plan) -> None:
    async with connect(plan.own_address, tenant=plan.settings["tenant"]) as queue:
        printer = EventPrinter(session, queue.clock)
        node = _node(session, plan, queue, printer)
        if isinstance(node, Worker):
            await queue.declare_schedules(node.app)
            await run_hooks(node.app, "on_startup", (node,), node.observe)
        try:
            is_more_due = await _pass_by_pass(node, printer)
        finally:
            if isinstance(node, Worker):
                node.tasks.close()
                await run_hooks(node.app, "on_shutdown", (node,), node.observe)
    if printer.is_unread:
        raise BrokenPipeError
    if session.as_json:
        session.screen.json_line({"event": "done", "is_more_due": is_more_due})
    else:
        more = "; more is due: run it again" if is_more_due else ""
        session.screen.say(f"one pass done: {printer.summary()}{more}")


async def _pass_by_pass(node: Node, printer: EventPrinter) -> bool:
    """Until nothing is left to do; but of what is due a bounded part is fired. Whether there is more of it."""
    scheduler = node.scheduler
    while (await node.run_once()).total_seconds() <= 0 and not printer.is_unread:
        if scheduler is not None and scheduler.rows_written >= ROWS_PER_CALL:
            node.scheduler = None
    return node.scheduler is not scheduler and await node.queue.store.read(is_anything_due())


def _logs(level: str | None) -> AbstractContextManager[None]:
    """Log to stderr, unless the program set up its own logging. In a terminal the printer says already what the engine
    would log: that is logged only if a level was asked for."""
    if level is None and logging.getLogger().handlers:
        return nullcontext()
    said_already = level is None and sys.stderr.isatty()
    return logging_to(level, muted=("rota",) if said_already else ())
