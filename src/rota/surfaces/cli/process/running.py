"""Running roles in this process: open the store, say what runs, run until stopped, say how it went."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from ....engine.app import App
from ....engine.commands import Retention, due_now
from ....engine.guard import name_of
from ....engine.node import Node, Worker
from ....engine.observe.telemetry import Observer
from ....engine.roles.scheduler import ROWS_PER_CALL
from ....engine.roles.worker import run_hooks
from ...python.client import Queue, connect
from ...settings import Settings
from ...stores import in_role
from ..session import Session
from .event_printer import EventPrinter
from .greeting import greet
from .http import HttpOptions, api_server_of
from .monitoring import MonitoringOptions, collecting_metrics, logging_to
from .supervision import under_supervision

log = logging.getLogger("rota.process")


@dataclass(frozen=True)
class ProcessOptions:
    """Which roles run in a process, with which settings. Without an app no tasks are run. `number`: which of several
    supervised processes it is."""

    settings: Settings
    scheduler: bool = False
    janitor: bool = False
    all_tenants: bool = False
    app: App | None = None
    store: str | None = None
    hints: tuple[str, ...] = ()
    monitoring: MonitoringOptions = field(default_factory=MonitoringOptions)
    http: HttpOptions | None = None
    number: int | None = None

    def with_app(self, app: App | None) -> ProcessOptions:
        http = None if self.http is None else replace(self.http, app=app)
        return replace(self, app=app, http=http)

    def with_commands(self) -> ProcessOptions:
        """An app without functions, if there is none and shell commands may run: then those of templates do."""
        return replace(self, app=App()) if self.app is None and self.settings["allow_shell"] else self

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
        """True unless a tenant was named: schedules of all tenants fire here, and somebody must run what they start."""
        return self.all_tenants or self.settings.is_default("tenant")

    @property
    def is_engine(self) -> bool:
        """Whether anything is fired, run or kept in order here."""
        return self.scheduler or self.janitor or self.app is not None


def run(session: Session, options: ProcessOptions) -> None:
    """Run the roles until SIGINT or SIGTERM; then the exit code is 0."""
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)  # also while things are being set up
    try:
        with _logs(options.monitoring.log_level):
            _run_to_the_end(_running(session, options), _new_loop(options))
    except KeyboardInterrupt:
        session.screen.remark("stopped")
    finally:
        signal.signal(signal.SIGTERM, earlier)


def run_once(session: Session, options: ProcessOptions) -> None:
    with _logs(options.monitoring.log_level):
        _run_to_the_end(_pass(session, options), asyncio.new_event_loop())


def _new_loop(options: ProcessOptions) -> asyncio.AbstractEventLoop:
    """uvloop if it is installed and no handlers run here: theirs may depend on asyncio's own loop."""
    if not options.is_engine and options.http is not None and find_spec("uvloop") is not None:
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


def _run_to_the_end(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
    """As `asyncio.run`, but without waiting for threads: a handler that never ends must not keep the process."""
    asyncio.set_event_loop(loop)
    # A loop is woken by signals only if it handles one itself. Else a signal that comes just before it waits is seen
    # when something else wakes it.
    if hasattr(signal, "SIGURG"):
        loop.add_signal_handler(signal.SIGURG, lambda: None)
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
    """Run the loop on when a callback raises SystemExit or KeyboardInterrupt: asyncio lets both out of the loop, and a
    callback of a handler must not end the process. While a node runs, SIGINT and SIGTERM call the node and raise
    nothing. Before, either may; SIGINT is ignored where a script has started the process in the background."""
    while True:
        try:
            return loop.run_until_complete(running)
        except (SystemExit, KeyboardInterrupt) as error:
            handled = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
            may_be_signal = signal.default_int_handler in handled
            if running.done() or (may_be_signal and isinstance(error, KeyboardInterrupt)):
                raise
            log.error("a callback on the event loop raised %s; it is passed over", name_of(error))


async def _running(session: Session, options: ProcessOptions) -> None:
    async with connect(options.own_address, tenant=options.settings["tenant"]) as queue:
        printer = EventPrinter(session, queue.clock)
        async with (
            api_server_of(session, options.http, queue) as api_server,
            collecting_metrics(
                session, options.monitoring, queue, is_served=api_server is not None
            ) as buffered,
        ):
            observers = (printer,) if buffered is None else (printer, buffered.observe)
            node = _node(session, options, queue, *observers)
            node.serves_http = api_server is not None
            printer.on_unread = node.stop
            if options.app is not None:
                await queue.declare_schedules(options.app)
            if not options.number:  # the first of several speaks for all
                await greet(session, options, queue, api_server)
            if options.number is not None:
                under_supervision(node.stop)
            if api_server is None or buffered is None:
                await node.run()
            else:
                await _run_beside(node, api_server.serve(session, queue, buffered, node.stopping))
        if printer.is_unread:
            raise BrokenPipeError
        if not session.as_json:
            session.screen.remark(f"stopped: {printer.summary()}" if options.is_engine else "stopped")


async def _run_beside(node: Node, serving: Coroutine[Any, Any, None]) -> None:
    """Run the node and the server: each ends with the other. Requests under way are answered while handlers finish."""
    served = asyncio.create_task(serving, name="rota-http")
    served.add_done_callback(lambda _: node.stop() if _has_failed(served) else None)
    try:
        await node.run()
    finally:
        node.stop()
        await served


def _has_failed(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is not None


def _node(session: Session, options: ProcessOptions, queue: Queue, *observers: Observer) -> Node:
    settings = options.settings
    kinds = ("tasks", "runs", "events", "schedules")
    keep = Retention(**{kind: settings[f"keep_{kind}"] for kind in kinds})
    shared: dict[str, Any] = {
        "scheduler": options.scheduler,
        "janitor": options.janitor,
        "observers": observers,
        "retention": keep,
        "shutdown_timeout": settings["shutdown_timeout"],
        "notify": settings["alarms_notify"],
        "notices_per_hour": settings["alarms_per_hour"],
        "heartbeat_url": settings["heartbeat_url"],
        "allow_private_addresses": settings["allow_private_addresses"],
    }
    if options.app is None:
        return Node(queue, **shared)
    return StoppingWorker(
        session,
        queue,
        options.app,
        queues=settings["queues"],
        concurrency=settings["concurrency"],
        lease=settings["lease"],
        all_tenants=options.serves_every_tenant,
        allow_shell=settings["allow_shell"],
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


async def _pass(session: Session, options: ProcessOptions) -> None:
    async with connect(options.own_address, tenant=options.settings["tenant"]) as queue:
        printer = EventPrinter(session, queue.clock)
        node = _node(session, options, queue, printer)
        if isinstance(node, Worker):
            await queue.declare_schedules(node.app)
            await run_hooks(node.app, "on_startup", (node,), node.observe)
        passes = _Passes(node, printer)
        try:
            is_whole = await node.run_passes(passes.run())
        finally:
            await node.pings.finish()
            if isinstance(node, Worker):
                node.tasks.close()
                await node.tasks.runtimes.close()
                await run_hooks(node.app, "on_shutdown", (node,), node.observe)
    if printer.is_unread:
        raise BrokenPipeError
    if not is_whole:
        if not session.as_json:
            session.screen.remark(f"stopped: {printer.summary()}")
        raise KeyboardInterrupt  # either signal ends it as Ctrl-C ends any command: it did not do all it was asked for
    if session.as_json:
        session.screen.json_line({"event": "done", "is_more_due": passes.is_more_due})
    else:
        more = "; more is due: run it again" if passes.is_more_due else ""
        session.screen.say(f"one pass done: {printer.summary()}{more}")


class _Passes:
    """Passes until nothing is left to do, or the node is asked to stop; but they fire a bounded part of what is due."""

    is_more_due = False

    def __init__(self, node: Node, printer: EventPrinter) -> None:
        self._node = node
        self._printer = printer

    async def run(self) -> None:
        node, scheduler = self._node, self._node.scheduler
        while (await node.run_once()).total_seconds() <= 0 and not self._is_over:
            if scheduler is not None and scheduler.rows_written >= ROWS_PER_CALL:
                node.scheduler = None
        if node.scheduler is not scheduler:
            self.is_more_due = bool(await node.queue.store.read(due_now(1)))

    @property
    def _is_over(self) -> bool:
        return self._printer.is_unread or self._node.stopping.is_set()


def _logs(level: str | None) -> AbstractContextManager[None]:
    """Log to stderr, unless the program set up its own logging. The printer already says what the engine would log, so
    that is logged only if a level was asked for."""
    if level is None and logging.getLogger().handlers:
        return nullcontext()
    return logging_to(level, muted=("rota",) if level is None else ())
