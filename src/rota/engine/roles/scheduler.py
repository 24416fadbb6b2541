"""The scheduler: fires what is due, sleeps until the next time. Any number may run; each due time has one run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from random import Random

from ...domain.errors import StoreError
from ...domain.model import Run
from ...stores.base import PLAIN_COMMIT, CommitOptions, Store
from ..clock import sleep
from ..commands import Tick, due_now, fire_due, fire_one, refresh_zones
from ..loops import Backoff
from ..observe.telemetry import Observer, ScheduleStopped, TimesHandled, ZonesRefreshed
from .jumps_and_blocks import LookForJumps

BATCH = 500
ROWS_PER_CALL = 5_000
LOOK_AGAIN = timedelta(seconds=30)
LOCKED_AT_MOST = timedelta(seconds=1)
"""Schedules that someone else holds are most likely being fired by them: look again soon, and less and less often."""
NOW = timedelta(0)


class Scheduler:
    """`jumped` is set by the node, when it saw the clock jump; the next tick then fires at most one time per schedule.

    `claim_with_tick` is called along with a tick that will fire something: a worker in the same process claims in it.

    `early` is how much too late a timer may ring: epoll counts whole milliseconds, rounded up. The scheduler sleeps
    that much less, and lets the rest pass turn by turn. It never fires before its time."""

    def __init__(
        self,
        store: Store,
        observe: Observer,
        *,
        look_for_jumps: LookForJumps = lambda *_: None,
        early: timedelta = NOW,
    ) -> None:
        self.jumped = False
        self.claim_with_tick: Callable[[], Awaitable[None]] | None = None
        self._look_for_jumps = look_for_jumps
        self._store = store
        self._observe = observe
        self._early = early
        self._locked = Backoff(Random(), LOCKED_AT_MOST)
        self._has_zones = False
        self.rows_written = 0
        self._next_at: datetime | None = None
        self._is_behind = False

    async def run_once(self) -> timedelta:
        """One tick. At once again if it fired anything; else when the next schedule is due."""
        if not self._has_zones:
            await self._refresh_zones()
        await self._until_due()
        self._look_for_jumps("scheduler", None)  # a hint may come before whoever watches the clock does
        has_jumped = self.jumped
        tick = await self._tick_and_claim()
        if has_jumped and not tick.schedules:
            self.jumped = False  # not if it was seen meanwhile, or below: that is for the next tick
        self._look_for_jumps("scheduler", tick.at)
        if not tick.is_locked:
            self._locked.reset()
        self._is_behind = tick.is_more_due
        if tick.schedules:
            return NOW
        self._next_at = tick.next_at
        longest = self._locked.next() if tick.is_locked else LOOK_AGAIN
        if tick.next_at is None:
            return longest
        left = tick.next_at - await self._store.now()  # from now, not from the tick: that took its time, too
        return max(NOW, min(left - self._early, longest))

    async def _until_due(self) -> None:
        """The last moment before the next time that is known, if this is that moment."""
        while self._next_at is not None and NOW < self._next_at - await self._store.now() <= self._early:
            await sleep(NOW)

    async def _tick_and_claim(self) -> Tick:
        """With a claim in the same commit if this is the moment; but not batch after batch, where each would only wait
        for the other."""
        if self.claim_with_tick is None or self._next_at is None or self._is_behind:
            return await self._tick_now()
        if await self._store.now() < self._next_at:
            return await self._tick_now()
        tick, _ = await asyncio.gather(self._tick_now(), self.claim_with_tick(), return_exceptions=True)
        if isinstance(tick, BaseException):
            raise tick
        return tick

    async def _tick_now(self) -> Tick:
        lane = "scheduler" if self._is_behind else None
        return await self._fire(CommitOptions(may_be_stale=True, lane=lane))

    async def _fire(self, options: CommitOptions = PLAIN_COMMIT) -> Tick:
        """Reported at once: its observations come before those of a worker that starts the tasks."""
        try:
            tick = await self._store.transact(fire_due(BATCH, jumped=self.jumped), options)
        except StoreError:
            raise
        except Exception:
            await self._fire_one_by_one()
            raise
        self._report(tick)
        return tick

    async def _fire_one_by_one(self) -> None:
        """After a tick that failed for what is wrong with one of its schedules, or with Rota: the others have their
        turn all the same."""
        failed: RuntimeError | None = None
        for due in await self._store.read(due_now(BATCH)):
            try:
                self._report(await self._store.transact(fire_one(due.id, jumped=self.jumped)))
            except StoreError:
                raise
            except Exception as problem:
                failed = RuntimeError(
                    f"schedule {due.key!r} of tenant {due.tenant!r} cannot be fired: {problem}"
                )
                failed.__cause__ = problem
        if failed is not None:
            raise failed

    async def tick(self) -> tuple[list[Run], bool]:
        """Fire what is due now, up to about `ROWS_PER_CALL` rows; and whether more is."""
        runs: list[Run] = []
        await self._refresh_zones()
        while True:
            tick = await self._fire()
            runs += tick.runs
            if not tick.schedules:
                return runs, False
            if len(runs) >= ROWS_PER_CALL:
                return runs, bool(await self._store.read(due_now(1)))

    async def _refresh_zones(self) -> None:
        """Since the last start, the zone data may have changed."""
        seen = BATCH
        while seen == BATCH:
            seen, moved = await self._store.transact(refresh_zones(BATCH))
            for schedule in moved:
                self._observe(ZonesRefreshed(schedule))
        self._has_zones = True

    def _report(self, tick: Tick) -> None:
        self.rows_written += len(tick.runs)
        schedules = {schedule.id: schedule for schedule in tick.schedules}
        tasks = {task.run_id: task for task in tick.tasks}
        for run in tick.runs:
            self._observe(TimesHandled(schedules[run.schedule_id], run, tasks.get(run.id)))
        for schedule in tick.stopped:
            self._observe(ScheduleStopped(schedule))
