"""Waiting for a change: the part of `Store.wait` that stores share.

Changes made through this store are counted by the types of the records (`changed`): only callers that wait for one of
them wake. Changes made by other processes are seen by `look`: its value is different after each of them, and everyone
wakes. It is asked every `interval`, and only while someone waits. Timers are those of the event loop, so that virtual
time works. The injected clock says whether `until` has come, and is asked again and again, so that a jump of the clock
is noticed. A store that hears of something sooner calls `look_now`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from ..domain.model import Record
from .base import RecordTypes, VirtualTime

_LONGEST = timedelta(seconds=60)
"""The clock is asked at least this often: a timer does not run while a laptop sleeps."""

Point = tuple[int, int]
"""A point in the life of the store: how much was changed here, and how often by others. Nothing changed between two
equal points."""


_QUIET_LOOKS = 50
_QUIET_FACTOR = 2.5
"""After so many looks without a change they become this much rarer, since an idle node pays for waking up: on SQLite
0.15 % of a core, and 0.25 % without this."""


class Waiters:
    """The callers that wait on one store, on one event loop."""

    def __init__(
        self,
        now: Callable[[], datetime],
        look: Callable[[], object] = lambda: None,
        interval: timedelta | None = None,
    ) -> None:
        self._clock = now
        self._look = look
        self._interval = interval
        self._changes = 0
        self._changes_of: Counter[type[Record]] = Counter()
        self._foreign = 0
        self._seen: object = None
        self._quiet_looks = 0
        self._asleep: dict[asyncio.Future[None], RecordTypes | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def _now(self, of: RecordTypes | None) -> Point:
        self._observe(self._look())
        changes = self._changes if of is None else sum(self._changes_of[each] for each in of)
        return (changes, self._foreign)

    def _observe(self, seen: object) -> None:
        if seen != self._seen:
            self._seen = seen
            self._foreign += 1
            self._quiet_looks = 0
            self._wake(None)

    def changed(self, of: RecordTypes | None = None) -> None:
        """Records of these types were committed here; None: of any, or elsewhere. Where `look` sees our own commits
        everyone wakes."""
        self._changes += 1
        if of is None:
            self._foreign += 1
        else:
            self._changes_of.update(of)
        self._observe(self._look())
        self._wake(of)

    def look_now(self) -> None:
        """Something may have changed elsewhere."""
        self._observe(self._look())

    def close(self) -> None:
        """Everyone wakes, and nobody falls asleep again."""
        self._closed = True
        self._wake(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait(self, until: datetime | None, of: RecordTypes | None = None) -> None:
        since = self._now(of)
        await asyncio.sleep(0)
        while not self._closed and self._now(of) == since:
            left = None if until is None else until - self._clock()
            if left is not None and left <= timedelta(0):
                return
            await self._nap(left, of)

    async def _nap(self, left: timedelta | None, of: RecordTypes | None) -> None:
        """Until woken, or for the time that is left; None: for ever, without a timer."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = left and loop.call_later(min(left, _LONGEST).total_seconds(), _finish, future)
        self._asleep[future] = of
        if self._timer is None:
            self._look_later(loop)
        try:
            await future
        finally:
            if timer:
                timer.cancel()
            del self._asleep[future]

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._interval is not None:
            factor = 1 if self._quiet_looks < _QUIET_LOOKS else _QUIET_FACTOR
            self._timer = poll_later(loop, self._interval * factor, self._poll, loop)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if not self._asleep:
            return
        self._quiet_looks += 1
        self._observe(self._look())
        self._look_later(loop)

    def _wake(self, of: RecordTypes | None) -> None:
        """Wake the callers that wait for one of these types; None: all."""
        for future, awaited in self._asleep.items():
            if of is None or awaited is None or of & awaited:
                _finish(future)


def poll_later(
    loop: asyncio.AbstractEventLoop, delay: timedelta, callback: Callable[..., object], *args: Any
) -> asyncio.TimerHandle:
    """As `call_later`, for a poll."""
    later = loop.poll_later if isinstance(loop, VirtualTime) else loop.call_later
    return later(delay.total_seconds(), callback, *args)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
