"""The addresses of the dashboard, and what they answer when a page cannot be shown.

`/` leads to the caller's own tenant, `/ui/{tenant}/…` are the pages, `/assets/…` their style and script."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from ...domain.errors import Refused, RotaError
from ...domain.model import Role
from ...domain.recurrence import Cron
from ..http.problems import Problem, status_of
from ..http.reading import BareRoute
from ..words import timing_words
from . import admin, alarms, fleet, overview, sign_in, tenants
from .schedules import backfill, calendars, editor, forecast, schedule
from .schedules import listing as schedules
from .tasks import listing as tasks
from .tasks import task
from .texts import TEMPLATES
from .visit import HEADERS, Visit, render

log = logging.getLogger("rota.http")

Page = Callable[[Visit], Awaitable[Response]]
_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_ASSETS = {
    path.name: path.read_bytes()
    for path in resources.files(__package__).joinpath("static").iterdir()
    if path.name.rpartition(".")[2] in _KINDS
}
VERSION = sha256(b"".join(content for _, content in sorted(_ASSETS.items()))).hexdigest()[:12]
"""A digest of the assets. It is part of their addresses, so that browsers may keep them."""

TEMPLATES.globals["assets_version"] = VERSION

PAGES: list[tuple[str, str, Page, Role]] = [
    ("GET", "", overview.show, Role.VIEWER),
    ("GET", "/schedules", schedules.show, Role.VIEWER),
    ("POST", "/schedules", schedules.act, Role.OPERATOR),
    ("GET", "/schedules/{key}", schedule.show, Role.VIEWER),
    ("GET", "/schedules/{key}/runs", schedule.runs, Role.VIEWER),
    ("GET", "/schedules/{key}/versions", schedule.versions, Role.VIEWER),
    ("GET", "/new", editor.new, Role.ADMIN),
    ("POST", "/new", editor.create, Role.ADMIN),
    ("GET", "/schedules/{key}/edit", editor.edit, Role.ADMIN),
    ("POST", "/schedules/{key}/edit", editor.save, Role.ADMIN),
    ("GET", "/schedules/{key}/put-back", schedule.ask_to_put_back, Role.ADMIN),
    ("POST", "/schedules/{key}/put-back", schedule.put_back, Role.ADMIN),
    ("GET", "/calendars", calendars.show, Role.VIEWER),
    ("GET", "/calendars/new", calendars.new, Role.ADMIN),
    ("POST", "/calendars/new", calendars.create, Role.ADMIN),
    ("GET", "/calendars/{name}", calendars.show_one, Role.VIEWER),
    ("GET", "/calendars/{name}/edit", calendars.edit, Role.ADMIN),
    ("POST", "/calendars/{name}/edit", calendars.change, Role.ADMIN),
    ("GET", "/calendars/{name}/delete", calendars.ask_to_delete, Role.ADMIN),
    ("POST", "/calendars/{name}/delete", calendars.delete, Role.ADMIN),
    ("GET", "/tenants", tenants.show, Role.ADMIN),
    ("POST", "/tenants", tenants.create, Role.ADMIN),
    ("GET", "/tenants/{name}/{action}", tenants.ask, Role.ADMIN),
    ("POST", "/tenants/{name}/{action}", tenants.act, Role.ADMIN),
    ("GET", "/keys", admin.keys, Role.ADMIN),
    ("POST", "/keys", admin.make_key, Role.ADMIN),
    ("GET", "/keys/{id}/revoke", admin.ask_to_revoke, Role.ADMIN),
    ("POST", "/keys/{id}/revoke", admin.revoke_key, Role.ADMIN),
    ("GET", "/audit", admin.audit, Role.ADMIN),
    ("GET", "/schedules/{key}/backfill", backfill.ask, Role.OPERATOR),
    ("POST", "/schedules/{key}/backfill", backfill.act, Role.OPERATOR),
    ("GET", "/schedules/{key}/backfill/cancel", backfill.ask_to_cancel, Role.OPERATOR),
    ("POST", "/schedules/{key}/backfill/cancel", backfill.cancel, Role.OPERATOR),
    ("GET", "/schedules/{key}/{action}", schedule.ask, Role.OPERATOR),
    ("POST", "/schedules/{key}/{action}", schedule.act, Role.OPERATOR),
    ("GET", "/tasks", tasks.show, Role.VIEWER),
    ("POST", "/tasks", tasks.act, Role.OPERATOR),
    ("GET", "/tasks/{id}", task.show, Role.VIEWER),
    ("GET", "/tasks/{id}/{action}", task.ask, Role.OPERATOR),
    ("POST", "/tasks/{id}/{action}", task.act, Role.OPERATOR),
    ("GET", "/workflows", tasks.workflows, Role.VIEWER),
    ("GET", "/alarms", alarms.show, Role.VIEWER),
    ("GET", "/forecast", forecast.show, Role.VIEWER),
    ("GET", "/forecast/hour", forecast.hour, Role.VIEWER),
    ("GET", "/forecast/spread", forecast.ask, Role.ADMIN),
    ("POST", "/forecast/spread", forecast.act, Role.ADMIN),
    ("GET", "/nodes", fleet.nodes, Role.VIEWER),
    ("GET", "/nodes/{id}", fleet.one_node, Role.VIEWER),
    ("GET", "/queues", fleet.queues, Role.VIEWER),
    ("GET", "/queues/{name}/{action}", fleet.ask_about_queue, Role.OPERATOR),
    ("POST", "/queues/{name}/{action}", fleet.act_on_queue, Role.OPERATOR),
]
"""Method, place below `/ui/{tenant}`, what answers, and the role that it needs."""


def install(api: FastAPI) -> None:
    for method, place, page, role in PAGES:
        _add(api, f"/ui/{{tenant}}{place}", page, role, method)
    _add(api, "/", _home, Role.VIEWER)
    for method, path, endpoint in (
        ("GET", "/sign-in", sign_in.show),
        ("POST", "/sign-in", sign_in.sign_in),
        ("POST", "/sign-out", sign_in.sign_out),
        ("GET", "/assets/{name}", _asset),
        ("GET", "/ui/{rest:path}", _nothing),
    ):
        api.router.routes.append(BareRoute(path, _told(endpoint), method))


def prepare() -> None:
    """Compile every template, and import what puts cron lines into words (0.4 s of the processor), so that the first
    who looks waits for neither."""
    for name in TEMPLATES.list_templates():
        TEMPLATES.get_template(name)
    timing_words(Cron("0 9 * * *", "UTC"))


def _add(api: FastAPI, path: str, page: Page, role: Role, method: str = "GET") -> None:
    async def endpoint(request: Request) -> Response:
        visit = request.state.visit = await Visit.begin(request, role)
        answer = await page(visit)
        await sign_in.rotate(request, visit.queue.caller, answer)
        return answer

    api.router.routes.append(BareRoute(path, _told(endpoint), method))


def _told(endpoint: Callable[[Request], Awaitable[Response]]) -> Any:
    """The endpoint with its errors as pages."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (Problem, RotaError) as error:
            return await _page_of(error, request)

    return answer


async def _page_of(error: Problem | RotaError, request: Request) -> Response:
    if isinstance(error, Problem) and error.status == 401:
        return await sign_in.needed(request, error)
    status, sentence = error.status if isinstance(error, Problem) else status_of(error), str(error)
    if not isinstance(error, (Problem, Refused)):  # which store, and what is wrong with it, is for the log
        log.warning("%s %s: %s", request.method, request.url.path, error)
        sentence = "what is stored cannot be read; the server's log has it"
        if status == 503:
            sentence = "the store does not answer; nothing is known to be lost, so try again"
    visit: Visit | None = getattr(request.state, "visit", None)  # None: they may not visit, and get no menu
    return render(request, "error.html", status, visit, sentence=sentence)


async def _home(visit: Visit) -> Response:
    return visit.go(visit.url())


async def _nothing(request: Request) -> Response:
    sentence = f"there is no page at {request.url.path}"
    return render(request, "error.html", 404, sentence=sentence)


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise HTTPException(404)
    kind = _KINDS[name.rpartition(".")[2]]
    cached = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
    return Response(_ASSETS[name], headers=cached, media_type=kind)
