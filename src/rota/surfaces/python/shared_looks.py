"""Looks at tasks, shared by all who wait for one.

Whoever waits looks after each commit that it hears of. If each read by itself, a thousand who wait would make a
thousand reads for every commit: 6.0 ms of processor time for a workflow of three steps instead of 1.8.
"""

from __future__ import annotations

import asyncio

from ...domain.errors import NotFound, StoreError
from ...domain.model import Task
from ...engine import queries
from ...stores.base import Store

__all__ = ["SharedLooks"]


class SharedLooks:
    """One read at a time, for all who have asked by then."""

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._asked: list[_Look] = []

    async def look(self, store: Store, tenant: str, id: str) -> Task:
        """The task as it is now, or later."""
        look = _Look(id)
        self._asked.append(look)
        async with self._reading:
            if not look.is_done:  # nobody has looked for us, or whoever did was stopped
                await self._read(store, tenant, look)
        if look.task is None:
            raise NotFound("task", id)
        return look.task

    async def _read(self, store: Store, tenant: str, own: _Look) -> None:
        looks, self._asked = {own, *self._asked}, []
        try:
            found = await store.read(queries.some_tasks(tenant, {look.id for look in looks}))
        except StoreError:
            if len(looks) == 1:
                raise
            looks = {own}  # what cannot be read may be what another asks for
            found = await store.read(queries.some_tasks(tenant, [own.id]))
        for look in looks:
            look.task, look.is_done = found.get(look.id), True


class _Look:
    def __init__(self, id: str) -> None:
        self.id = id
        self.task: Task | None = None
        self.is_done = False
