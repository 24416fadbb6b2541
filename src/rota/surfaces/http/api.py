"""The application: routes, what stands before them, and what they say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

from ... import __version__
from ...engine.app import App
from ...engine.clock import Clock
from ...stores.base import Store
from . import openapi, operations, problems
from .access import Identify
from .events import live
from .server.middleware import MOST_BODY, Guard, Head, Redaction, RequestRecorder
from .service import Replayed, Service, replayed
from .tenants import (
    alarms,
    calendars,
    calls,
    executions,
    fast_routes,
    forecasts,
    keys,
    plans,
    schedules,
    serving,
    templates,
)
from .v1 import jobs, tasks

if TYPE_CHECKING:
    from ...engine.observe.metrics import Metrics

RATE = 500.0
_ABOUT = """A durable scheduler and task queue: what to run, when, and for every expected run what became of it.

Every error is an RFC 9457 problem document with a stable `code`. Fields are accepted in camelCase and in snake_case;
fields that are not known are refused. Times without a zone are UTC."""

PARTS = (
    *(schedules, plans, forecasts, executions, templates, calendars, serving),
    *(alarms, keys, calls, live, operations),
    *(tasks, jobs),
)
"""The modules that have routes, in the order of the document."""


def create_app(
    store: Store | str | None = None,
    *,
    app: App | None = None,
    strict: bool = False,
    allow_shell: bool = False,
    identify: Identify | None = None,
    metrics: Metrics | bool = True,
    rate: float = RATE,
    most_body: int = MOST_BODY,
    clock: Clock | None = None,
    dashboard: bool = True,
    redact: Iterable[str] = (),
) -> FastAPI:
    """An ASGI application on a store: an address (None: as the settings say), which is opened at start-up or by the
    first request and closed at shutdown; or a store that is open already, and stays so.

    `app`: the handlers that are known here; a python template must then name one of them, and with
    `strict` every execution and every target of a schedule. `allow_shell`: its workers run shell commands, so that
    templates may have them. `identify`: who asks, if the application around this one knows it better than an API key
    does. `metrics`: those of this process, if it has some already; False: none. `rate`: requests per second and key.
    `dashboard`: pages for people, at `/`, if Jinja2 is installed. `redact`: names of fields of inputs and outputs that
    are shown to nobody."""
    service = Service(
        store,
        app=app,
        strict=strict,
        allow_shell=allow_shell,
        clock=clock,
        rate=rate,
        identify=identify,
        metrics=_metrics(metrics, clock),
    )
    has_pages = dashboard and find_spec("jinja2") is not None
    api = FastAPI(
        title="Rota",
        version=__version__,
        description=_ABOUT,
        lifespan=_lifespan(service, has_pages=has_pages),
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    api.state.rota = service
    problems.install(api)
    api.exception_handler(Replayed)(replayed)
    for part in PARTS:  # as they are: `include_router` would build every one of them again
        api.router.routes.extend(part.router.routes)
    fast_routes.install(api)
    openapi.install(api)
    if has_pages:
        from ..dashboard import install

        install(api)
    api.add_middleware(Guard, most_body=most_body)
    api.add_middleware(Head)
    api.add_middleware(RequestRecorder, service=service)
    api.add_middleware(Redaction, fields=tuple(redact))
    return api


def _metrics(given: Metrics | bool, clock: Clock | None) -> Metrics | None:
    if not isinstance(given, bool):
        return given
    if not given:
        return None
    from ...engine.observe.metrics import Metrics

    return Metrics(clock=clock)


def _lifespan(service: Service, *, has_pages: bool) -> Any:
    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        await service.open()
        if has_pages:
            from ..dashboard import prepare

            await asyncio.to_thread(prepare)
        try:
            yield
        finally:
            await live.broadcasts_of(api).close()
            await service.close()

    return lifespan
