"""The HTTP API beside the roles of a process.

The port is opened at once: a port that is in use is known before anything begins, and early clients wait. The server
takes most of a second to import. A thread does that, while schedules fire already."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from ....domain import recurrence
from ....domain.errors import Invalid
from ....engine.app import App
from ....stores.threads import Threads
from ...listening import PortTaken, find, is_installed, listen, url_of
from ...python.client import Queue
from ...settings import Settings
from ..session import Session
from .monitoring import BufferedMetrics

if TYPE_CHECKING:
    from ....engine.observe.metrics import Metrics
    from ...http.server.serving import Server

T = TypeVar("T")
SWITCH_INTERVAL = timedelta(milliseconds=0.5)
EXTRA = "pip install 'rota[server]'"
MAKE_KEY = "rota keys create --tenant default --role admin --name me"


@dataclass(frozen=True)
class HttpOptions:
    """How the API is served. `is_all`: the process does nothing else, and ends if it cannot serve. `app` has the
    handlers; `strict` refuses kinds that it does not have."""

    settings: Settings
    is_all: bool = False
    app: App | None = None
    strict: bool = False


@asynccontextmanager
async def api_server_of(
    session: Session, options: HttpOptions | None, queue: Queue
) -> AsyncIterator[ApiServer | None]:
    """A server that already accepts connections. None: none is wanted, or none is possible and the user was told."""
    api_server = None if options is None else await _open(session, options, queue)
    try:
        yield api_server
    finally:
        if api_server is not None:
            api_server.close()


async def _open(session: Session, options: HttpOptions, queue: Queue) -> ApiServer | None:
    if not is_installed():
        if options.is_all:
            raise Invalid("serve", "the HTTP API needs FastAPI and uvicorn", f"install them with: {EXTRA}")
        session.screen.remark(f"http: not served, since it is not installed; install it with: {EXTRA}")
        return None
    place = find(options.settings["host"], options.settings["port"])
    if not place.is_local:
        from ...http.server.serving import check_reach

        await check_reach(place, queue.store, queue.clock)
    try:
        return ApiServer(options, listen(place))
    except PortTaken:
        if options.is_all or not options.settings.is_default("port"):
            raise
        session.screen.remark(f"http: not served, since {place} is taken; choose another with --port")
        return None


class ApiServer:
    def __init__(self, options: HttpOptions, listening: socket.socket) -> None:
        self.url = url_of(listening)
        self.is_all = options.is_all
        self._options = options
        self._listening = listening

    async def greet(self, session: Session, queue: Queue) -> None:
        if session.as_json:
            return session.screen.remark(f"http: {self.url}")
        session.screen.prose(f"http: {self.url}  documentation: {self.url}/docs")
        if find_spec("jinja2") is not None:
            session.screen.say(f"dashboard: {self.url}/")
        if self.is_all:
            session.screen.say(f"keys: {await _about_keys(queue)}")
        return None

    async def serve(
        self, session: Session, queue: Queue, buffered: BufferedMetrics, until: asyncio.Event
    ) -> None:
        """Serve until then. If the process does other things, too, a failure is printed and not raised."""
        try:
            await self._serve(queue, buffered, until)
        except Exception as problem:
            if self.is_all:
                raise
            session.screen.warn(f"http: not served any more: {type(problem).__name__}: {problem}")

    def close(self) -> None:
        self._listening.close()

    async def _serve(self, queue: Queue, buffered: BufferedMetrics, until: asyncio.Event) -> None:
        stopping = asyncio.create_task(until.wait())
        thread = Threads(1, "rota-http-import")
        making = thread.call(_switching_often, lambda: self._make(queue, buffered, until))
        thread.close()
        await asyncio.wait({stopping, making}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not making.done():
            making.cancel()
            return
        server, metrics = making.result()
        if buffered.metrics is None:
            buffered.arrived(metrics)
        await server.serve([self._listening])

    def _make(self, queue: Queue, buffered: BufferedMetrics, until: asyncio.Event) -> tuple[Server, Metrics]:
        """Everything that takes long: the imports, and the application."""
        from ....engine.observe.metrics import Metrics
        from ...http import create_app
        from ...http.server.serving import PATIENCE, prepared

        metrics = buffered.metrics or Metrics(clock=queue.clock)
        settings = self._options.settings
        api = create_app(
            buffered.store,
            app=self._options.app,
            strict=self._options.strict,
            allow_shell=self._options.settings["allow_shell"],
            clock=queue.clock,
            metrics=metrics,
            rate=settings["rate_limit"],
            most_body=settings["max_body"],
            redact=settings["redact_fields"],
        )
        api.openapi()  # made now: the first request for it would hold up the whole loop
        recurrence.describe(recurrence.Cron("@daily"))  # so with the words for schedules
        patience = min(PATIENCE, settings["shutdown_timeout"])
        return prepared(api, until=until, patience=patience), metrics


async def _about_keys(queue: Queue) -> str:
    from ...http.access import Access

    if await Access(queue.store, queue.clock, rate=1).has_keys():
        return "every request needs one, as `Authorization: Bearer KEY`"
    return f"there are none, so only this machine is answered; make one with: {MAKE_KEY}"


def _switching_often(function: Callable[[], T]) -> T:
    """Call the function. Threads are switched more often meanwhile, since something may be due on the event loop."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL.total_seconds())
    try:
        return function()
    finally:
        sys.setswitchinterval(usual)
