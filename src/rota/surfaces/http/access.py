"""Access: who asks, and what they may do.

With keys in the store, every request carries one, as `Authorization: Bearer …` or `X-API-Key`. Without any, only this
machine is answered: the peer's address, the Host and the Origin must all be loopback, so that no page in a browser
and no other machine can reach it. Another tenant's things are not there: 404, before any question of roles.

The session of someone who signed in with a key comes in a cookie, which the dashboard sets: it counts only for requests
that change nothing, or that a page from here sent.

How often someone may ask: a token bucket for each, in this process.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from ipaddress import ip_address
from math import ceil
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

from fastapi import Request

from ...domain import keys
from ...domain.errors import NotFound, Unavailable
from ...domain.model import ApiKey, Role
from ...engine import commands
from ...engine.clock import Clock, new_id
from ...stores.base import Store, Tx, Work
from ...stores.queries import ApiKeyList
from .problems import Problem

CALLERS_REMEMBERED = 10_000


class Limiter:
    """`rate` requests per second on average, `burst` at once, for each name. The least recent names are forgotten
    first: a bucket that is not remembered is full."""

    def __init__(self, rate: float, burst: float, remembered: int = CALLERS_REMEMBERED) -> None:
        self._rate = rate
        self._burst = burst
        self._remembered = remembered
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, now: float) -> int | None:
        """Take one request from the bucket. None: go on; else in how many whole seconds to ask again. `now` is a
        monotonic time in seconds."""
        left, since = self._buckets.get(name, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        self._buckets[name] = (left - 1 if left >= 1 else left, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > self._remembered:
            self._buckets.popitem(last=False)
        return None if left >= 1 else max(1, ceil((1 - left) / self._rate))


T = TypeVar("T")
ALL_TENANTS = "*"
COOKIE = "rota_session"
LOCAL = "http:local"
FRESH = timedelta(seconds=2)
"""A key that was read is believed for so long: a revoked one stops working everywhere after this."""

KEYS_REMEMBERED = 10_000
GUESSES = (5.0, 50.0)
"""Wrong keys per second, and at once, from one address, before it has to wait."""

_RANK = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.ADMIN: 2}
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="rota"'}


class Caller(NamedTuple):
    """The one who asks: for a tenant (`*`: every one), in a role, under a name in the audit trail."""

    tenant: str
    role: Role
    actor: str
    key_id: str | None = None

    @property
    def is_of_all_tenants(self) -> bool:
        return self.tenant == ALL_TENANTS

    def check_role(self, role: Role, what: str = "this") -> None:
        if _RANK[self.role] < _RANK[role]:
            sentence = f"{what} needs the role {role}; the key has the role {self.role}"
            raise Problem(403, "role_needed", sentence)

    def check_all_tenants(self, what: str, otherwise: str = "") -> None:
        """Refuse a request about all tenants if the caller may act in one only. `otherwise`: what else they could
        do."""
        if not self.is_of_all_tenants:
            sentence = f"{what} about all tenants; use a key made with --tenant '*'{otherwise}"
            raise Problem(403, "role_needed", sentence)


Identify = Callable[[Request], Awaitable[Caller | None]]


class Access:
    """The check of callers. `identify` replaces keys, for applications that know their callers already."""

    def __init__(self, store: Store, clock: Clock, *, rate: float, identify: Identify | None = None) -> None:
        self._store = store
        self._clock = clock
        self._identify = identify
        self._known: OrderedDict[str, tuple[ApiKey, float]] = OrderedDict()
        self._any_keys: tuple[bool, float] | None = None
        self._requests = Limiter(rate, 2 * rate)
        self._guesses = Limiter(*GUESSES)

    @property
    def takes_keys(self) -> bool:
        """Whether callers are known by keys, and not by the application around this one."""
        return self._identify is None

    async def caller(self, request: Request, *, patience: timedelta | None = None) -> Caller:
        """The caller. With `patience`: if the store does not answer within it, a key that was read still holds."""
        if self._identify is not None:
            found = await self._identify(request)
            if found is None:
                raise _unauthorized("the application did not identify the caller")
            return found
        token = _token(request)
        if token is not None:
            return await self.by_key(token, request, patience)
        changes_nothing = request.method in ("GET", "HEAD")
        if COOKIE in request.cookies and (changes_nothing or came_from_here(request)):
            return await self._by_session(request, patience)
        if await self.has_keys(patience):
            raise _unauthorized("give an API key as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'")
        _check_local(request)
        return Caller(ALL_TENANTS, Role.ADMIN, LOCAL)

    async def allow(self, request: Request, tenant: str | None, role: Role) -> Caller:
        """The caller, if they may act as `role` in `tenant` (None: wherever they may act)."""
        caller = await self.caller(request)
        if tenant is not None and caller.tenant not in (ALL_TENANTS, tenant):
            raise NotFound("tenant", tenant)
        caller.check_role(role)
        return caller

    async def has_keys(self, patience: timedelta | None = None) -> bool:
        """Whether any key was ever made: after that, nobody is answered without one."""
        now = self._clock.monotonic()
        known = self._any_keys
        if known is None or (not known[0] and now > known[1]):
            try:
                known = (await self._read(_any_key, patience), now + FRESH.total_seconds())
            except Unavailable:
                if known is None or patience is None:
                    raise
                return known[0]
            self._any_keys = known
        return known[0]

    def forget(self, key_id: str) -> None:
        """Read this key anew: it was changed here."""
        self._known.pop(key_id, None)
        self._any_keys = None

    async def by_key(self, token: str, request: Request, patience: timedelta | None = None) -> Caller:
        now = self._clock.monotonic()
        address = request.client.host if request.client else "unknown"
        parsed = keys.parse(token)
        key = None if parsed is None else await self._key(parsed[0], now, patience)
        secret = "" if parsed is None else parsed[1]
        if not keys.matches(key, secret) or key is None:
            wait = self._guesses.take(address, now)
            if wait is not None:  # a good key from the same address is not held up
                raise _too_many("too many wrong keys came from this address", wait)
            raise _unauthorized("this API key is not valid, or was revoked")
        return self._caller(key, now)

    async def _by_session(self, request: Request, patience: timedelta | None) -> Caller:
        now = self._clock.monotonic()
        session = keys.parse_session(request.cookies[COOKIE])
        key = None if session is None else await self._key(session.key_id, now, patience)
        if session is None or key is None or not keys.is_open(session, key, self._clock.now()):
            raise _unauthorized("this session is over; sign in again")
        return self._caller(key, now)

    def _caller(self, key: ApiKey, now: float) -> Caller:
        wait = self._requests.take(key.id, now)
        if wait is not None:
            raise _too_many(f"key {key.name!r} asks too often", wait)
        return Caller(key.tenant, key.role, f"key:{key.name}", key.id)

    async def new_session(self, key_id: str, before: str | None = None) -> str | None:
        """The session of someone who signs in with this key; or the one that follows `before`: None, if that is young
        enough to stay."""
        key, now = await self._key(key_id, self._clock.monotonic(), None), self._clock.now()
        session = keys.parse_session(before)
        is_young = session is not None and now.timestamp() < session.made + keys.ROTATED.total_seconds()
        return None if key is None or is_young else keys.session(key, now, new_id(), session)

    async def sign_out(self, held: str | None) -> None:
        """End this session: here at once, on other servers within `FRESH`."""
        session = keys.parse_session(held)
        if session is not None:
            await self._store.transact(commands.sign_out(session))
            self.forget(session.key_id)

    async def _key(self, id: str, now: float, patience: timedelta | None) -> ApiKey | None:
        known = self._known.get(id)
        if known is not None and now <= known[1]:
            return known[0]
        try:
            found = await self._read(lambda tx: tx.get(ApiKey, id), patience)
        except Unavailable:
            if known is None or patience is None:
                raise
            return known[0]
        if found is None:
            return None
        self._known[id] = (found, now + FRESH.total_seconds())
        self._known.move_to_end(id)
        if len(self._known) > KEYS_REMEMBERED:
            self._known.popitem(last=False)
        return found

    async def _read(self, work: Work[T], patience: timedelta | None) -> T:
        try:
            async with asyncio.timeout(None if patience is None else patience.total_seconds()):
                return await self._store.read(work)
        except TimeoutError:
            raise Unavailable("the store did not answer in time") from None


async def _any_key(tx: Tx) -> bool:
    return await tx.count(ApiKeyList(tenant=None), at_most=1) > 0


def _token(request: Request) -> str | None:
    given = request.headers.get("x-api-key")
    if given is not None:
        return given.strip()
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    return None


def came_from_here(request: Request) -> bool:
    """Whether a page of this very server sent the request. Browsers say so, and pages cannot make them lie: by
    `Sec-Fetch-Site`, or, where they do not send that, by `Origin`."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin, host = request.headers.get("origin"), request.headers.get("host")
    return origin is not None and host is not None and _parts(origin).netloc.lower() == host.lower()


def _check_local(request: Request) -> None:
    hosts = [_parts(f"//{value}").hostname for value in request.headers.getlist("host")]
    origins = [_parts(value).hostname for value in request.headers.getlist("origin")]
    peers = [request.client.host] if request.client else []
    if not hosts or not all(_is_loopback(each) for each in (*hosts, *origins, *peers)):
        raise Problem(
            403,
            "local_only",
            "there are no API keys, so only this machine is answered; create one with:"
            " rota keys create --tenant default --role admin --name me",
        )


def _parts(url: str) -> SplitResult:
    """The parts of an address. A text that is none has none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _is_loopback(host: str | None) -> bool:
    if host is None:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", detail, headers=_CHALLENGE)


def _too_many(detail: str, seconds: int) -> Problem:
    return Problem(
        429, "rate_limited", f"{detail}; ask again in {seconds} s", headers={"Retry-After": str(seconds)}
    )
