"""A visit: one request for a page, with the queue in the caller's name and the addresses of other pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from fastapi import Request, Response

from ...domain.errors import NotFound
from ...domain.model import Role, Schedule
from ..http.access import COOKIE, LOCAL, came_from_here
from ..http.fields import SLASH
from ..http.problems import Problem
from ..http.service import Acting, Service, of
from .texts import TEMPLATES

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""The headers of every page: nothing from elsewhere, no code in the page, no framing, no copy that outlives the
session."""

_DOTS = (".", "..")
_SLASH = quote(SLASH)


def address(request: Request, *parts: str, **query: Any) -> str:
    """The address of a page below the place where the application is mounted. Empty values are left out."""
    root: str = request.scope.get("root_path", "").rstrip("/")
    path = "/".join(quote(part, safe="") for part in parts)
    return f"{root}/{path}{_query(query)}"


def _query(values: Mapping[str, Any]) -> str:
    given = {name: value for name, value in values.items() if value not in (None, "", False)}
    return f"?{urlencode(given)}" if given else ""


def path_of(request: Request) -> str:
    """The path that was asked for, as it is written in an address."""
    return quote(request.scope["path"], safe="/").replace(_SLASH, "%2F")


def render(
    request: Request, template: str, code: int = 200, visit: Visit | None = None, **values: Any
) -> Response:
    html = TEMPLATES.get_template(template).render(
        visit=visit, address=lambda *parts, **query: address(request, *parts, **query), **values
    )
    return Response(html, code, HEADERS, media_type="text/html")


class FormField(NamedTuple):
    """A field of the question before an action. The type `json` is a text of several lines, `select` one of `options`
    (value and words), `moment` a day and a time of day; `choices` are only suggested."""

    name: str
    label: str
    value: str = ""
    type: str = "text"
    choices: Sequence[str] = ()
    options: Mapping[str, str] = MappingProxyType({})


class Visit:
    """One request for a page. Every page is given it."""

    def __init__(self, request: Request, queue: Acting, form: Sequence[tuple[str, str]]) -> None:
        self.request = request
        self.queue = queue
        self.tenant = queue.tenant
        self.form = form

    @classmethod
    async def begin(cls, request: Request, role: Role) -> Visit:
        """Begin a visit. It is refused if the caller lacks the role, or if a form came from a page of another site."""
        if request.method == "POST" and not came_from_here(request):
            sentence = (
                "this form came from another site, so nothing was done; open the page here, and send it again"
            )
            raise Problem(403, "cross_site", sentence)
        tenant = request.path_params.get("tenant")
        queue = await of(request).acting(request, None if tenant is None else _whole(tenant), role)
        body = await request.body() if request.method == "POST" else b""
        return cls(request, queue, parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))

    @property
    def service(self) -> Service:
        """The service, which all requests share, and with it the answers that are kept for all."""
        return of(self.request)

    @property
    def actor(self) -> str:
        return self.queue.caller.actor

    @property
    def is_local(self) -> bool:
        """Whether nobody had to sign in, since there are no keys."""
        return self.actor == LOCAL

    @property
    def is_signed_in(self) -> bool:
        return COOKIE in self.request.cookies

    @property
    def may_operate(self) -> bool:
        return self.queue.caller.role is not Role.VIEWER

    @property
    def is_admin(self) -> bool:
        return self.queue.caller.role is Role.ADMIN

    def need_all_tenants(self) -> None:
        """Refuse callers of one tenant. To them, pages that reach beyond it are not there."""
        if not self.queue.caller.is_of_all_tenants:
            raise NotFound("page", "tenants")

    def events(self, **about: str) -> str:
        """The address where the browser hears of changes: of all, or of one task or schedule."""
        types = "task,run,schedule"
        return address(self.request, "api", "tenants", self.tenant, "events", types=types, **about)

    def part(self, name: str) -> str:
        """A part of the address, such as a schedule's key."""
        return _whole(self.request.path_params[name])

    def action(self, *accepted: str) -> str:
        """The action that the address names. For others there is no page."""
        action = self.part("action")
        if action not in accepted:
            raise NotFound("page", action)
        return action

    def asked(self, name: str) -> str | None:
        """A value of the query; None, if it is empty."""
        return self.request.query_params.get(name) or None

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    def given(self, name: str) -> str | None:
        """A value of the form; None, if it is empty."""
        return next((value for each, value in self.form if each == name and value), None)

    def all_given(self, name: str) -> list[str]:
        return [value for each, value in self.form if each == name and value]

    def moment(self, name: str) -> str:
        """A time of the query or the form: its day and its time of day come as two values of one name."""
        both = self.all_given(name) or [each for each in self.request.query_params.getlist(name) if each]
        return "T".join(each.zfill(5) if ":" in each else each for each in both[:2])

    def url(self, *parts: str, **query: Any) -> str:
        return address(self.request, "ui", self.tenant, *parts, **query)

    def here(self, **changes: Any) -> str:
        """This page with another query."""
        return path_of(self.request) + _query({**self.query, **changes})

    def schedule_url(self, schedule: Schedule | str, *parts: str, **query: Any) -> str:
        """The address of a schedule, by its key. It has its id instead, if browsers would take the key for a folder, or
        if it is deleted, because its key is free then."""
        key = schedule if isinstance(schedule, str) else schedule.key
        if not isinstance(schedule, str) and (key in _DOTS or schedule.deleted_at is not None):
            key = schedule.id
        return self.url("schedules", key, *parts, **query)

    def show(self, template: str, code: int = 200, **values: Any) -> Response:
        return render(self.request, template, code, self, **values)

    def being_made(self, title: str, sentence: str) -> Response:
        """The page that stands for one whose answer takes a while. It asks again every second."""
        return self.show("being_made.html", title=title, sentence=sentence, nav=title.lower())

    def ask(
        self,
        title: str,
        consequence: str,
        *,
        back: str,
        verb: str | None = None,
        hidden: Sequence[tuple[str, str]] = (),
        fields: Sequence[FormField] = (),
        listed: Sequence[str] = (),
        changes: Sequence[tuple[str, Any, Any]] = (),
        problem: str | None = None,
        is_danger: bool = False,
        nav: str | None = None,
        method: str = "post",
    ) -> Response:
        """The question before a deed: what it does, in words; what else has to be known; and the two ways out. The
        answer goes to the address of the question. With the method `get` it leads to another question."""
        code = 200 if problem is None else 422
        nav = nav or self.request.scope["route"].path.split("/")[3]  # /ui/{tenant}/schedules/…
        return self.show(
            "ask.html", code, title=title, consequence=consequence, to=path_of(self.request), back=back,
            verb=verb or title, hidden=hidden, fields=fields, listed=listed,
            changes=changes, problem=problem, is_danger=is_danger, nav=nav, method=method,
        )  # fmt: skip

    def go(self, url: str) -> Response:
        """After a form: another page, by a request of its own, so that nothing is done twice."""
        return Response(status_code=303, headers={"Location": url, **HEADERS})


def _whole(part: str) -> str:
    return part.replace(SLASH, "/")
