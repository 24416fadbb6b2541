"""The database's clock, read without asking it each time.

Asked at `before`, answered at `after` (by the event loop's clock, which never steps), the database's time lies
between the two. As long as our estimate does, too, it is as good as the answer and stays; otherwise it moves
just inside. So a slow answer does no harm, and drift is followed as soon as it can be seen. The estimate is
checked again after `GOOD_FOR`, and at once when the machine's own clock has jumped (it may have slept).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from ..base import Clock

__all__ = ["DatabaseClock"]

GOOD_FOR = 5.0
_JUMP = timedelta(seconds=1)
_UNNOTICED = timedelta(seconds=1)
"""A step back of less than this is our own error: then time stands still for a moment."""


class DatabaseClock:
    """`now()` is the estimate. `keep_right(ask)` asks the database if that is due."""

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._origin: datetime | None = None
        self._checked_at = 0.0
        self._checked_wall: datetime | None = None
        self._last: datetime | None = None

    @property
    def is_set(self) -> bool:
        return self._origin is not None

    def now(self) -> datetime:
        assert self._origin is not None, "keep_right comes first"
        now = self._origin + timedelta(seconds=_loop_time())
        if self._last is not None and timedelta(0) < self._last - now < _UNNOTICED:
            return self._last
        self._last = now
        return now

    def is_right(self) -> bool:
        """Whether the estimate was checked lately, and nothing happened to this machine since."""
        if self._origin is None or self._checked_wall is None:
            return False
        passed = _loop_time() - self._checked_at
        jump = self._machine.now() - self._checked_wall - timedelta(seconds=passed)
        return passed < GOOD_FOR and abs(jump) < _JUMP

    async def keep_right(self, ask: Callable[[], Awaitable[datetime]]) -> None:
        if self.is_right():
            return
        before = _loop_time()
        answer = await ask()
        self.learn(answer, before, _loop_time())

    def learn(self, answer: datetime, before: float, after: float) -> None:
        earliest, latest = answer - timedelta(seconds=after), answer - timedelta(seconds=before)
        if self._origin is None:
            self._origin = earliest + (latest - earliest) / 2
        else:
            self._origin = min(max(self._origin, earliest), latest)
        self._checked_at, self._checked_wall = after, self._machine.now()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
