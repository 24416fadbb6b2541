"""The service behind every route: the store's queue in the caller's name, and how an answer is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import msgspec
from fastapi import Depends, Header, Path, Query, Request, Response

from ...domain.checks import check_key
from ...domain.errors import Invalid, NotFound, RotaError, Unavailable
from ...domain.ids import derived_id
from ...domain.model import ApiKey, NodeState, Role, Tenant
from ...domain.serving import as_told_to
from ...domain.task import check_function_kind
from ...engine import commands
from ...engine.app import App
from ...engine.clock import Clock, SystemClock
from ...engine.commands import once
from ...engine.queries.health import check_serving
from ...stores.base import Store, Tx, Work
from .. import redaction
from ..python.client import Queue
from ..stores import open_store
from .access import ALL_TENANTS, Access, Caller, Identify
from .fields import SLASH
from .problems import wrong

if TYPE_CHECKING:
    from ...engine.observe.metrics import Metrics

T = TypeVar("T")
DEFAULT_TENANT = "default"
LOOK_AGAIN = timedelta(seconds=10)
SHARE = 20
LONGEST_SHARED = timedelta(minutes=1)
ANSWERS_REMEMBERED = 1000
SOON = timedelta(seconds=0.1)
"""How long a page waits for a shared answer, before it says that it is being made."""
_SAFE = "/:@!$&'()*+,;=~"
TenantName = Annotated[
    str, Path(description="Whose schedules and tasks.", min_length=1, max_length=255, examples=["acme"])
]
_encode = msgspec.json.Encoder().encode


class Service:
    """One store, and who may reach it. Opened by the lifespan of the application, or else by the first request."""

    def __init__(
        self,
        store: Store | str | None,
        *,
        app: App | None = None,
        strict: bool = False,
        allow_shell: bool = False,
        clock: Clock | None = None,
        rate: float,
        identify: Identify | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._given = store
        self._opening = asyncio.Lock()
        self._rate = rate
        self._identify = identify
        self.clock: Clock = clock or SystemClock()
        self.app = app
        self.allow_shell = allow_shell
        self._is_strict = strict and app is not None
        self.metrics = metrics
        self.queue: Queue | None = None
        self._access: Access | None = None
        self._alarms: list[str] = []
        self._looked_at: float | None = None
        self._answers: dict[tuple[str, str], tuple[float, Any]] = {}
        self._asked: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def open(self) -> Queue:
        async with self._opening:
            if self.queue is None:
                self.queue = await self._opened()
        return self.queue

    async def _opened(self) -> Queue:
        given = self._given
        store = await open_store(given, self.clock) if given is None or isinstance(given, str) else given
        if self.metrics is not None:
            store = self.metrics.observed(store)
        self._access = Access(store, self.clock, rate=self._rate, identify=self._identify)
        return Queue(store, actor="http", clock=self.clock, app=self.app)

    async def close(self) -> None:
        """Close the store, unless it was given: then it stays open."""
        for each in list(self._asked.values()):
            each.cancel()
        if self.queue is not None and (self._given is None or isinstance(self._given, str)):
            await self.queue.close()
        self.queue = None

    async def opened(self) -> Queue:
        """The queue for a request. A store that cannot be opened counts as one that does not answer."""
        try:
            return await self.open()
        except RotaError as error:
            raise Unavailable(str(error)) from error

    async def alarms(self) -> list[str]:
        """The work that nobody seems to do, as of a moment ago: to ask for it often costs the store little."""
        now = self.clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_AGAIN.total_seconds():
            self._alarms = (await (await self.opened()).store.read(check_serving())).alarms
            self._looked_at = now
        return self._alarms

    async def shared(self, name: tuple[str, str], ask: Callable[[], Awaitable[Any]], rest: timedelta) -> Any:
        """One answer for all. It is kept for `rest`, or for `SHARE` times as long as it took to make (a minute at
        most), whichever is longer."""
        until, answer = self._answers.get(name, (-inf, None))
        if self.clock.monotonic() < until:
            return answer
        return await asyncio.shield(self._asking(name, ask, rest))

    async def shared_soon(
        self, name: tuple[str, str], ask: Callable[[], Awaitable[Any]], rest: timedelta = timedelta(0)
    ) -> Any | None:
        """A shared answer for pages that must not wait. If it takes longer than `SOON` to make, the last one is given,
        or None if that is long past its time. A later request finds the new one."""
        until, answer = self._answers.get(name, (-inf, None))
        if self.clock.monotonic() < until:
            return answer
        asking = self._asking(name, ask, rest)
        await asyncio.wait({asking}, timeout=SOON.total_seconds())
        if asking.done():
            return asking.result()
        until, answer = self._answers.get(name, (-inf, None))
        return answer if self.clock.monotonic() < until + LONGEST_SHARED.total_seconds() else None

    def _asking(
        self, name: tuple[str, str], ask: Callable[[], Awaitable[Any]], rest: timedelta
    ) -> asyncio.Task[Any]:
        """The question, which is asked once for all who wait for its answer."""
        task = self._asked.get(name)
        if task is None:
            task = self._asked[name] = asyncio.create_task(self._ask(name, ask, rest))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # told to whoever waits
        return task

    async def _ask(self, name: tuple[str, str], ask: Callable[[], Awaitable[Any]], rest: timedelta) -> Any:
        began = self.clock.monotonic()
        try:
            answer = await ask()
        finally:
            is_forgotten = self._asked.get(name) is not asyncio.current_task()  # it was forgotten meanwhile
            if not is_forgotten:
                del self._asked[name]
        ended = self.clock.monotonic()
        if len(self._answers) >= ANSWERS_REMEMBERED:
            self._answers.clear()
        if not is_forgotten:
            kept = max(rest, min(SHARE * timedelta(seconds=ended - began), LONGEST_SHARED))
            self._answers[name] = (ended + kept.total_seconds(), answer)
        return answer

    def forget(self, name: str, tenant: str) -> None:
        """Ask anew for a shared answer: what it tells of was changed here."""
        self._answers.pop((name, tenant), None)
        self._asked.pop((name, tenant), None)

    async def access(self) -> Access:
        if self._access is None:
            await self.opened()
        assert self._access is not None
        return self._access

    def check_known(self, field: str, given: object, *, is_workflow: bool) -> None:
        """Refuse a kind that can only be run by a template, or is registered here as something else; in strict mode,
        one that is not registered, too."""
        kind = check_function_kind(given, field)
        handler = None if self.app is None else self.app.handlers.get(kind)
        may_be = handler is None or handler.is_workflow == is_workflow
        if self.app is None or (may_be and not self._is_strict):
            return
        kinds = sorted(each.kind for each in self.app.handlers.values() if each.is_workflow == is_workflow)
        if kind not in kinds:
            what = "workflow" if is_workflow else "task"
            registered = f"registered are: {', '.join(kinds) or 'none'}"
            raise Invalid(field, f"no {what} is registered as {kind!r}", registered)

    async def acting(self, request: Request, tenant: str | None, role: Role) -> Acting:
        """The tenant's queue in the caller's name, if the caller may use it. None: their own tenant, or `default` if
        they may act in all of them."""
        caller = await (await self.access()).allow(request, tenant, role)
        assert self.queue is not None
        if tenant is None:
            tenant = DEFAULT_TENANT if caller.is_of_all_tenants else caller.tenant
        try:
            check_key(tenant, "tenant")
        except ValueError:
            raise NotFound("tenant", tenant) from None
        return Acting(self.queue, tenant, caller, request)


class Replayed(Exception):
    """The request was answered before."""

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.body = body


class Acting(Queue):
    """A queue in the name of the caller of a request."""

    def __init__(self, queue: Queue, tenant: str, caller: Caller, request: Request) -> None:
        super().__init__(
            queue.store,
            tenant=tenant,
            actor=caller.actor,
            clock=queue.clock,
            new_id=queue._new_id,
            app=queue.app,
        )
        self._known_nodes = queue._known_nodes
        self.caller = caller
        self.warnings: list[str] = []
        self._request = request
        self._receipt: tuple[str, Callable[[Any], Any], int] | None = None

    def once(self, key: str | None, made: Callable[[Any], Any], status: int = 200) -> None:
        """The next commit is done once for this Idempotency-Key: it leaves a receipt with the answer that is `made` of
        its result, or raises `Replayed` if there is one."""
        self._receipt = None if key is None else (key, made, status)

    async def nodes(self, *, dead: bool = False) -> list[NodeState]:
        """The nodes that work for the tenant. Only callers who may see all tenants are told what shared nodes run."""
        found = await super().nodes(dead=dead)
        return found if self.caller.is_of_all_tenants else as_told_to(self.tenant, found)

    async def revoke_key(self, key_id: str, *, every_tenant: bool = False) -> ApiKey:
        """Revoke a key, unless it is the one that the request was made with, by whichever of its names."""
        tenant = None if every_tenant else self.tenant
        revoke = commands.revoke_key(tenant, check_key(key_id, "id"), self.actor)

        async def work(tx: Tx) -> ApiKey:
            revoked = await revoke(tx)
            if revoked.id == self.caller.key_id:
                raise Invalid(
                    "id", "this is the key that the request was made with", "revoke it with another one"
                )
            return revoked

        return await self._commit(work)

    async def _warn_of_unhandled(self, *asked: tuple[str, str]) -> None:
        """Keep the warnings for the answer, which tells them."""
        self.warnings += await self._known_nodes.unhandled(self.store, self.clock, self.tenant, asked)

    async def _commit(self, work: Work[T]) -> T:
        """Commit, and forget what this process remembers of a key or of the tenants, if that was changed."""
        receipt, self._receipt = self._receipt, None
        done = await (super()._commit(work) if receipt is None else self._commit_once(work, *receipt))
        match done:
            case ApiKey(id=id):
                (await of(self._request).access()).forget(id)
            case Tenant():
                of(self._request).forget("tenants", ALL_TENANTS)
        return done

    async def _commit_once(self, work: Work[T], key: str, made: Callable[[Any], Any], status: int) -> T:
        asked, content = self._request, await self._request.body()
        receipt_id, fingerprint = receipt_of(self.tenant, key, asked.method, asked.url.path, content)
        done: list[T] = []

        def noted(result: T) -> tuple[int, Any]:
            done.append(result)
            return status, msgspec.to_builtins(made(result))

        kept = once(receipt_id, self.tenant, fingerprint, work, noted)

        async def anew(tx: Tx) -> tuple[int, Any]:
            done.clear()
            return await kept(tx)

        receipt = await super()._commit(anew)
        if not done:
            raise Replayed(*receipt)
        return done[0]


def receipt_of(tenant: str, key: str, method: str, path: str, body: bytes) -> tuple[str, str]:
    """The id of the receipt that a request leaves, and a fingerprint of the request, by which another one under the
    same key is told apart."""
    digest = sha256(b"\n".join([method.encode(), path.encode(), body]))
    return derived_id("receipt", tenant, path, key), digest.hexdigest()


def of(request: Request) -> Service:
    service: Service = request.app.state.rota
    return service


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(redaction.document(body)), status, headers, media_type="application/json")


def place_of(request: Request, id: str) -> dict[str, str]:
    """The header that says where a new record is: below the address of the request, in ASCII."""
    path = quote(request.scope["path"].rstrip("/"), safe=_SAFE).replace(quote(SLASH), "%2F")
    return {"Location": f"{path}/{id}"}


async def replayed(request: Request, error: Replayed) -> Response:
    return answer(error.body, error.status, {"Idempotency-Replayed": "true"})


def _needing(role: Role) -> Callable[[Request, str], Awaitable[Acting]]:
    async def acting(request: Request, tenant: TenantName) -> Acting:
        return await of(request).acting(request, tenant, role)

    return acting


def _own_needing(role: Role) -> Callable[[Request], Awaitable[Acting]]:
    async def acting(request: Request) -> Acting:
        return await of(request).acting(request, None, role)

    return acting


Viewer = Annotated[Acting, Depends(_needing(Role.VIEWER))]
Operator = Annotated[Acting, Depends(_needing(Role.OPERATOR))]
Admin = Annotated[Acting, Depends(_needing(Role.ADMIN))]
OwnViewer = Annotated[Acting, Depends(_own_needing(Role.VIEWER))]
OwnOperator = Annotated[Acting, Depends(_own_needing(Role.OPERATOR))]
OwnAdmin = Annotated[Acting, Depends(_own_needing(Role.ADMIN))]
OnceKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="Repeat the request with the same key and it is done once; the answer is the same.",
    ),
]
IfMatch = Annotated[str | None, Header(description="Only if it is still at the version of this ETag.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=300, description="The nextCursor of the page before.")]


def wanted_version(if_match: str | None, version: int | None) -> int | None:
    """The version that the caller knows, from `If-Match: "3"` or a `version` in the body."""
    if if_match is None or if_match.strip() == "*":
        return version
    text = if_match.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise wrong("If-Match", f"If-Match: {if_match!r:.60} is not a version; give the ETag of an answer")
    if version is not None and version != int(text):
        raise wrong("version", "version: it contradicts If-Match; give one of them")
    return int(text)
