"""The only place of the product that reads time, waits for it, or makes ids from it.

**Reading.** A clock has `now()` (the wall clock: aware UTC, microseconds) and `monotonic()` (seconds that never step,
for measuring). `SystemClock` is the real one. `LoopClock` of `rota.testing` follows the running event loop. Both may be
read from any thread.

**Jumps.** `JumpDetector.observe()` tells how far the wall clock moved away from monotonic time since the last call:
forward after a laptop slept or a clock was set ahead, backward after a clock was set back. Timers follow monotonic
time, which does not count suspension on Linux and macOS. After a sleep they are late by its length, so a jump is a
reason to wake the loops that are waiting.

**Waiting.** `sleep`, `wait_for_any` and `is_done` take a `timedelta`. Zero or less gives other tasks one turn.

**Ids.** `new_id` makes UUIDv7 text, in order of creation. Ids are made before a work runs, never inside it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from uuid_utils import uuid7

from ..domain.model import aware as aware
from ..stores.base import Clock as Clock
from ..stores.base import VirtualTime


class SystemClock:
    """The time of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class LoopClock:
    """The time of an event loop (the running one, unless given): `epoch` at creation, plus `skew`."""

    def __init__(
        self,
        epoch: datetime,
        skew: timedelta = timedelta(0),
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._origin = self._loop.time()
        self._epoch = aware(epoch) + skew

    def now(self) -> datetime:
        return self._epoch + timedelta(seconds=self._loop.time() - self._origin)

    def monotonic(self) -> float:
        return self._loop.time()

    def step(self, delta: timedelta) -> None:
        """Move the wall and nothing else: what a suspended laptop or a set clock looks like."""
        self._epoch += delta


class JumpDetector:
    """Compares the wall with monotonic time. A difference up to `tolerance` is drift and reads as zero."""

    def __init__(self, clock: Clock, tolerance: timedelta = timedelta(seconds=2)) -> None:
        self._clock = clock
        self._tolerance = tolerance
        self._wall, self._steady = clock.now(), clock.monotonic()

    def observe(self) -> timedelta:
        """How far the wall jumped since the last call (at first: since creation). Negative: it went back."""
        wall, steady = self._clock.now(), self._clock.monotonic()
        jump = (wall - self._wall) - timedelta(seconds=steady - self._steady)
        self._wall, self._steady = wall, steady
        return jump if abs(jump) > self._tolerance else timedelta(0)


def is_virtual() -> bool:
    """Whether the running event loop has its own time, whatever clock is used on it. There no hint is late, and to look
    again and again would hide that nothing can happen any more."""
    return isinstance(asyncio.get_running_loop(), VirtualTime)


async def sleep(delay: timedelta) -> None:
    """Let `delay` pass, by the loop's own time."""
    await asyncio.sleep(delay.total_seconds())


async def wait_for_any(*waiters: asyncio.Future[Any], at_most: timedelta | None) -> set[asyncio.Future[Any]]:
    """Wait until one of `waiters` is done, or `at_most` has passed (None: however long it takes).

    Returns those that are done; none, if the time was up first. The others go on: nothing is started or
    cancelled here, so the same waiters can be waited for again.
    """
    seconds = None if at_most is None else max(0.0, at_most.total_seconds())
    done, _ = await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return done


async def is_done(
    task: asyncio.Task[None], *, at_most: timedelta, unless: asyncio.Event | None = None
) -> bool:
    """Wait for a task, for a while, or until something else happens. It goes on."""
    happening = asyncio.create_task((unless or asyncio.Event()).wait())
    try:
        await wait_for_any(task, happening, at_most=at_most)
    finally:
        happening.cancel()
        await asyncio.gather(happening, return_exceptions=True)
    return task.done()


NewId = Callable[[], str]


def new_id() -> str:
    return str(uuid7())
