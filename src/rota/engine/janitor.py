"""The janitor: returns tasks of dead workers, marks expiries, and forgets what has been kept long enough."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random

from ..stores.base import Store, at_leisure
from .clock import SteadyClock
from .commands import Retention, forget_old, sweep
from .loops import Backoff
from .telemetry import Observer, TaskMoved

__all__ = ["Janitor"]

BATCH = 500
LOOK_AGAIN = timedelta(seconds=10)
HOLD_OFF = timedelta(seconds=10)
FORGET_EVERY = timedelta(minutes=10)
HELD_UP_AT_MOST = timedelta(seconds=1)
NOW = timedelta(0)


class Janitor:
    """After a jump of the clock leases look older than they are: `hold_off` gives their holders time to renew them."""

    def __init__(
        self,
        store: Store,
        clock: SteadyClock,
        observe: Observer,
        *,
        retention: Retention | None = None,
        look_for_jumps: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._observe = observe
        self._retention = retention or Retention()
        self._look_for_jumps = look_for_jumps
        self._held_up = Backoff(Random(), HELD_UP_AT_MOST)
        self._forget_at = self._sweep_at = clock.monotonic()

    def hold_off(self) -> None:
        self._sweep_at = self._clock.monotonic() + HOLD_OFF.total_seconds()

    async def run_once(self) -> timedelta:
        """One sweep. At once again if it found anything; else when the next record falls due."""
        self._look_for_jumps()
        if self._clock.monotonic() < self._sweep_at:
            return timedelta(seconds=self._sweep_at - self._clock.monotonic())
        if self._clock.monotonic() >= self._forget_at:
            if await self._store.transact(forget_old(self._retention, BATCH)):
                return NOW
            await self._tidy()
            self._forget_at = self._clock.monotonic() + FORGET_EVERY.total_seconds()
        swept = await self._store.transact(at_leisure(sweep(BATCH)))
        for task in (*swept.returned, *swept.expired):
            self._observe(TaskMoved(task))
        if swept.next_in is not None and swept.next_in <= NOW:
            return self._held_up.next()  # due, and held by someone else
        self._held_up.reset()
        if swept.returned or swept.expired:
            return NOW
        return LOOK_AGAIN if swept.next_in is None else min(swept.next_in, LOOK_AGAIN)

    async def _tidy(self) -> None:
        """Some stores have more to keep in order than records: a bucket has its views."""
        tidy = getattr(self._store, "tidy", None)
        if tidy is not None:
            await tidy()
