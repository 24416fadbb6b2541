"""Commits for those who cannot come back later: what may or may not have happened is repeated."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import TypeVar

from ..domain.errors import Unavailable
from ..stores.base import Store, Work
from .clock import Clock, sleep

__all__ = ["commit"]

T = TypeVar("T")
TRIES = 3
PATIENCE = timedelta(seconds=5)


async def commit(store: Store, clock: Clock, work: Work[T]) -> T:
    """Repeat what may or may not have happened: the ids are the same, so it happens once. What certainly has not
    happened is not repeated: the store has waited already."""
    give_up_at = clock.monotonic() + PATIENCE.total_seconds()
    for attempt in count(1):
        try:
            return await store.transact(work)
        except Unavailable as problem:
            if problem.is_final or attempt == TRIES or clock.monotonic() > give_up_at:
                raise
            await sleep(timedelta(milliseconds=50 * attempt))
    raise AssertionError("unreachable")
