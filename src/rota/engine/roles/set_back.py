"""A role of every node: after the clock was set back, it brings back all that was written while the clock was ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from ...stores.base import Store, Work
from ..commands import bring_back_leases, bring_back_tasks, lies_anything_ahead, replan_schedules
from ..observe.telemetry import ClockSetBack, Observer

BATCH = 500
C = TypeVar("C")
"""Where a page begins."""


class SetBack:
    """At its start it looks whether the clock was set back before. Then it waits: `stepped_back` sets `wake`."""

    def __init__(self, store: Store, observe: Observer) -> None:
        self.wake = asyncio.Event()
        self._store = store
        self._observe = observe
        self._has_looked = False
        self._is_told = False

    def stepped_back(self) -> None:
        """Someone has seen it."""
        self._is_told = True
        self.wake.set()

    async def run_once(self) -> None:
        is_told, self._is_told = self._is_told, False
        try:
            if is_told or not (self._has_looked or await self._is_nothing_ahead()):
                await self._bring_back()
        except BaseException:
            self._is_told = self._is_told or is_told
            raise
        self._has_looked = True

    async def _is_nothing_ahead(self) -> bool:
        return not await self._store.read(lies_anything_ahead(BATCH))

    async def _bring_back(self) -> None:
        schedules = await self._changed_in_pages(replan_schedules)
        tasks = await self._changed_in_pages(bring_back_tasks)
        tasks += len(await self._store.transact(bring_back_leases()))
        if schedules or tasks:
            self._observe(ClockSetBack(schedules, tasks))

    async def _changed_in_pages(
        self, change: Callable[[C | None, int], Work[tuple[C | None, list[Any]]]]
    ) -> int:
        """How many records were changed, from the first page to the last."""
        page: C | None = None
        number = 0
        while True:
            page, changed = await self._store.transact(change(page, BATCH))
            number += len(changed)
            if page is None:
                return number
