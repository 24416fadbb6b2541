"""The database's clock, read without asking it each time.

The database is asked at `before` and has answered at `after`, by the event loop's clock, which never steps. Its time
was taken between the two. An estimate that lies between them, too, is as good as the answer and stays; any other is
moved just inside. So a slow answer does no harm, and drift is followed as soon as it can be seen. The estimate is
checked again after `GOOD_FOR` seconds, and at once when the machine's own clock has jumped (it may have slept).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from ..base import Clock

GOOD_FOR = 5.0
_JUMP = timedelta(seconds=1)
_UNNOTICED = timedelta(seconds=1)
"""A step back of less than this is our own error: then time stands still for a moment."""


class DatabaseClock:
    """`now` is the estimate of the database's time. `check_if_due` asks the database now and then."""

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._origin: datetime | None = None
        self._checked_at = 0.0
        self._checked_wall: datetime | None = None
        self._last: datetime | None = None

    def now(self) -> datetime:
        assert self._origin is not None, "check_if_due comes first"
        now = self._origin + timedelta(seconds=_loop_time())
        if self._last is not None and timedelta(0) < self._last - now < _UNNOTICED:
            return self._last
        self._last = now
        return now

    def was_checked_lately(self) -> bool:
        """Whether the estimate was checked lately, and nothing happened to this machine since."""
        if self._origin is None or self._checked_wall is None:
            return False
        passed = _loop_time() - self._checked_at
        jump = self._machine.now() - self._checked_wall - timedelta(seconds=passed)
        return passed < GOOD_FOR and abs(jump) < _JUMP

    async def check_if_due(self, ask: Callable[[], Awaitable[datetime]]) -> None:
        if self.was_checked_lately():
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
