"""The forgetter: removes what has been kept long enough, and lets the store put itself in order.

It is a role of its own beside the janitor: it may have much to do, and what it meets (an archive that cannot be read)
is to hold up no task of a dead worker. Kinds of records are forgotten apart, so that one holds up no other.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from ...domain.errors import StoreError
from ...stores.base import Store
from ..commands import Retention, forget_old

__all__ = ["Forgetter"]

BATCH = 500
FORGET_EVERY = timedelta(minutes=10)
NOW = timedelta(0)
NOTHING = Retention(tasks=None, runs=None, events=None, schedules=None)


class Forgetter:
    """Forgets, batch after batch, then rests."""

    def __init__(self, store: Store, retention: Retention) -> None:
        self._store = store
        self._parts = (
            replace(NOTHING, tasks=retention.tasks),
            replace(NOTHING, runs=retention.runs),
            replace(NOTHING, events=retention.events),
            replace(NOTHING, schedules=retention.schedules),
        )

    async def run_once(self) -> timedelta:
        """One batch of each kind. At once again if anything went."""
        gone = 0
        problem: StoreError | None = None
        for part in self._parts:
            try:
                gone += await self._store.transact(forget_old(part, BATCH))
            except StoreError as error:
                problem = problem or error
        if gone:
            return NOW
        await self._store.tidy()
        if problem is not None:
            raise problem
        return FORGET_EVERY
