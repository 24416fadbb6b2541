"""The base of all calls of a queue: whose they are, how they commit, how a listing is paged."""

from __future__ import annotations

import getpass
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from ....domain.checks import check_number, check_text
from ....domain.errors import Refused
from ....domain.model import Run
from ....domain.tenants import check_tenant
from ....engine.app import App
from ....engine.clock import Clock, NewId, SystemClock, new_id
from ....engine.work import commit
from ....stores.base import Store, Work
from .. import arguments
from ..known_nodes import KnownNodes, UnhandledKind

T = TypeVar("T")
LIMIT = 100
MOST = 10_000
CANDIDATES = 5
"""As many are named where the beginning of an id is that of several."""


class Page(list[T], Generic[T]):
    """A list, and where the next one begins (`next_cursor`; None: this was the last)."""

    next_cursor: str | None = None


class Batch(msgspec.Struct, frozen=True):
    """What one commit of a bulk call did: how many it changed, of how many that it looked at, and where the next begins
    (`next_cursor`; None: this was the last)."""

    changed: int
    seen: int
    next_cursor: str | None = None


Report = Callable[[int], None]
"""A function that a bulk call tells how far it is."""


class DueRuns(list[Run]):
    """The rows that one call of `run_due` wrote, and whether more is due (`is_more_due`): then call it again."""

    def __init__(self, runs: Iterable[Run] = (), *, is_more_due: bool = False) -> None:
        super().__init__(runs)
        self.is_more_due = is_more_due


class Calls:
    """One tenant's view of one store. With an `app`, the inputs of the tasks that it has are checked."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = "default",
        actor: str | None = None,
        clock: Clock | None = None,
        new_id: NewId = new_id,
        app: App | None = None,
    ) -> None:
        self.store = store
        self.app = app
        self.clock: Clock = clock or SystemClock()
        self.tenant = check_tenant(tenant)
        self.actor = check_actor(actor) or _whoami()
        self._new_id = new_id
        self._known_nodes = KnownNodes()

    async def now(self) -> datetime:
        """The store's clock, which all nodes share."""
        return await self.store.now()

    def _check_input(self, kind: object, input: Any) -> None:
        """Refuse an input that the handler cannot be called with, where the handler is known."""
        handler = self.app.handlers.get(kind) if self.app is not None and isinstance(kind, str) else None
        if handler is not None:
            handler.signature.check(input)

    async def _warn_of_unhandled(self, *asked: tuple[str, str]) -> None:
        """Warn the caller's caller of each (kind, queue) that no live worker handles."""
        for sentence in await self._known_nodes.unhandled(self.store, self.clock, self.tenant, asked):
            warnings.warn(sentence, UnhandledKind, stacklevel=3)

    async def _commit(self, work: Work[T]) -> T:
        return await commit(self.store, self.clock, work)


async def all_pages(ask: Callable[..., Awaitable[Page[T]]], **options: Any) -> AsyncIterator[Page[T]]:
    """Every page of a listing, such as `queue.list_schedules` with these options."""
    page = await ask(**options)
    yield page
    while page.next_cursor is not None:
        page = await ask(cursor=page.next_cursor, **options)
        yield page


def page_of(found: list[Any], limit: int, at: Callable[[Any], datetime] | None = None) -> Page[Any]:
    """A page. The next begins behind the id of the last record; in a listing by time, behind its time (`at`), too."""
    page: Page[Any] = Page(found)
    if len(found) == limit:
        last = found[-1]
        page.next_cursor = last.id if at is None else arguments.cursor_text(at(last), last.id)
    return page


def only_one(what: str, beginning: str, found: Mapping[str, str]) -> str | None:
    """The one id that was found, if any. If there are several, they are named, each with what is said of it."""
    if len(found) > 1:
        candidates = ", ".join(f"{id} ({about})" for id, about in list(found.items())[:CANDIDATES])
        count = f"more than {CANDIDATES}" if len(found) > CANDIDATES else len(found)
        raise Refused("ambiguous_id", what=what, beginning=beginning, count=count, candidates=candidates)
    return next(iter(found), None)


def check_limit(value: object) -> int:
    return check_number("limit", value, 1, MOST)


def check_actor(value: object) -> str:
    return "" if value is None else check_text("actor", value, most=255)


def _whoami() -> str:
    try:
        return f"user:{getpass.getuser()}"
    except (KeyError, OSError):  # a process without a user name
        return "user:unknown"
