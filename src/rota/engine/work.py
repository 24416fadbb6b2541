"""Works, written as functions of a transaction. `commit` repeats one for callers that have no later round to do so.
`tally_open` is a part that several share."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..domain.errors import Unavailable
from ..domain.model import Record
from ..stores.base import Store, Tx, Work
from ..stores.queries import OpenTasks, PastExpiry, Query
from .clock import Clock, sleep

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=Record)
TRIES = 3
PATIENCE = timedelta(seconds=5)


def as_work(function: Callable[Concatenate[Tx, P], Awaitable[T]]) -> Callable[P, Work[T]]:
    """Called without its `tx`, the function gives a work: `store.read(one_task(tenant, id))`. One that remembers
    something from one run to the next, or makes something before the first, is written out instead."""

    @wraps(function)
    def work_of(*args: P.args, **kwargs: P.kwargs) -> Work[T]:
        def work(tx: Tx) -> Awaitable[T]:
            return function(tx, *args, **kwargs)

        work.__qualname__ = function.__qualname__  # who looks at a work sees which one it is
        return work

    return work_of


@as_work
async def find(tx: Tx, query: Query[R], limit: int) -> list[R]:
    """All that one query finds, up to a limit."""
    return await tx.find(query, limit)


@as_work
async def count(tx: Tx, query: Query[Record]) -> int:
    """How many one query finds."""
    return await tx.count(query)


async def tally_open(tx: Tx, *by: str, at: datetime | None = None) -> Counter[tuple[str, ...]]:
    """The number of open tasks by their values in these columns, as of `at` (None: now). What has expired by then is
    not open, swept or not."""
    every = await tx.tally(OpenTasks(), *by)
    return Counter(every) - Counter(await tx.tally(PastExpiry(at=at or tx.now), *by))


async def commit(store: Store, clock: Clock, work: Work[T]) -> T:
    """Repeat what may or may not have happened: the ids are the same, so it happens once. What certainly has not
    happened is not repeated: the store has waited already."""
    give_up_at = clock.monotonic() + PATIENCE.total_seconds()
    for attempt in itertools.count(1):
        try:
            return await store.transact(work)
        except Unavailable as problem:
            if problem.is_final or attempt == TRIES or clock.monotonic() > give_up_at:
                raise
            await sleep(timedelta(milliseconds=50 * attempt))
    raise AssertionError("unreachable")


async def commit_pages(store: Store, clock: Clock, page: Callable[[Any], Work[Any]]) -> None:
    """Commit page by page. Each work answers where the next page begins; None: there is none. If this is interrupted,
    it can be done again."""
    after = await commit(store, clock, page(None))
    while after is not None:
        after = await commit(store, clock, page(after))
