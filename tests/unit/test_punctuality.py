"""A scheduler wakes a little before the time, because timers ring late, and never fires before it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from rota.engine.commands import Tick
from rota.engine.roles.scheduler import Scheduler
from rota.stores.base import Store

START = datetime(2026, 1, 1, tzinfo=UTC)
DUE = START + timedelta(seconds=1)
EARLY = timedelta(milliseconds=2)
STEP = timedelta(microseconds=300)


class Ticking:
    """A store whose time passes as it is asked for; it only notes when it was ticked."""

    def __init__(self) -> None:
        self.at = START
        self.ticked: list[datetime] = []

    async def now(self) -> datetime:
        self.at += STEP
        return self.at

    async def transact(self, work: Any, options: Any = None) -> Any:
        if "refresh_zones" in work.__qualname__:
            return 0, []
        self.ticked.append(self.at)
        return Tick(at=self.at, next_at=DUE)

    async def read(self, work: Any) -> bool:
        return False  # nothing was written by a clock that was ahead


def test_it_asks_to_be_woken_early_and_ticks_at_the_time() -> None:
    async def main() -> None:
        store = Ticking()
        scheduler = Scheduler(cast("Store", store), lambda signal: None, early=EARLY)
        delay = await scheduler.run_once()
        assert DUE - store.at - 2 * EARLY < delay <= DUE - store.at - EARLY + STEP
        store.at = DUE - EARLY + STEP  # the timer was punctual
        await scheduler.run_once()
        assert DUE <= store.ticked[-1] <= DUE + 3 * STEP

    asyncio.run(main())


def test_a_hint_long_before_the_time_is_not_held_up() -> None:
    async def main() -> None:
        store = Ticking()
        scheduler = Scheduler(cast("Store", store), lambda signal: None, early=EARLY)
        await scheduler.run_once()
        await scheduler.run_once()
        assert store.ticked[-1] < DUE - EARLY

    asyncio.run(main())
