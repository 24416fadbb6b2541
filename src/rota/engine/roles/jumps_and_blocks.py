"""Two watchers of a running node: one for a clock that jumps, one for handlers that block the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta

from ..clock import Clock, JumpDetector, SystemClock
from ..observe.telemetry import ClockJumped, LoopBlocked, Observer

EVERY = timedelta(seconds=1)
NO_STEP = timedelta(seconds=2)
LookForJumps = Callable[[str, datetime | None], None]
"""A role names itself, and says as of when the store has answered it, if it has."""


class JumpWatch:
    """A role: looks once a second whether the wall clock moved on its own. Timers cannot: they follow the other one."""

    def __init__(self, clock: Clock, observe: Observer, on_jump: Callable[[timedelta], None]) -> None:
        self.every = EVERY
        self._detector = JumpDetector(clock)
        self._observe = observe
        self._on_jump = on_jump
        self._answered_at: dict[str, datetime] = {}

    async def run_once(self) -> timedelta:
        self.look("jump watch")
        return self.every

    def look(self, role: str, answered_at: datetime | None = None) -> None:
        """A role that is about to compare times with the clock calls it, too, since it cannot wait for the next
        round. `answered_at` is as of when the store answered it: its clock may be another, and be set back. Only the
        rounds of one role come one after the other; those of two may be answered in any order."""
        jump = self._detector.observe()
        before = self._answered_at.get(role)
        if answered_at:
            self._answered_at[role] = answered_at
        if jump:
            self._observe(ClockJumped(jump))
        elif answered_at and before and answered_at < before - NO_STEP:
            jump = answered_at - before
        if jump:
            self._answered_at.clear()
            self._on_jump(jump)


class BlockWatch:
    """A thread that notices when the event loop stops turning, and says which handlers were running and where.

    A blocked loop renews no leases: if it lasts longer than the lease, another worker gets the tasks, and what
    these handlers do is not recorded. That must not go unnoticed."""

    def __init__(
        self, kinds_running: Callable[[], tuple[str, ...]], observe: Observer, tolerated: timedelta
    ) -> None:
        self._kinds_running = kinds_running
        self._observe = observe
        self._tolerated = tolerated.total_seconds()
        self._clock = SystemClock()
        self._beat = self._clock.monotonic()
        self._stopped = threading.Event()
        self._watched = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="rota-block-watch", daemon=True)

    async def run(self) -> None:
        """Watch until cancelled."""
        self._thread.start()
        try:
            while True:
                self._beat = self._clock.monotonic()
                await asyncio.sleep(EVERY.total_seconds())
        finally:
            self._stopped.set()

    def _watch(self) -> None:
        reported = 0.0
        while not self._stopped.wait(EVERY.total_seconds()):
            blocked = self._clock.monotonic() - self._beat
            if blocked < self._tolerated:
                reported = 0.0
            elif blocked >= 2 * reported:
                reported = blocked
                frame = sys._current_frames().get(self._watched)
                stack = "".join(traceback.format_stack(frame)) if frame else ""
                self._observe(LoopBlocked(timedelta(seconds=blocked), self._kinds_running(), stack))
