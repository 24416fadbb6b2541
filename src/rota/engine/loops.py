"""The one loop of the product. A role supplies `run_once() -> delay`; `keep_running` owns the `while`.

**A round** is one `run_once`. The next one follows after the delay that it returned (counted from its
return; None: nothing is planned), or sooner: when the store hints at a change, or when the role's own
`wake` event is set. A delay of zero or less means "there is more": the next round follows at once, after
the others had a turn.

**No hint is lost.** The wait for the store (`store.wait(None)`, the delay is our own timer) starts *before*
the round, and has taken its first step when the round begins. So a change is either seen by the round, or
comes after the wait began and ends it. It costs no more: a wait that ended no pause stays for the next
round, and rounds without a pause start none. What follows: a role that writes is hinted by its own write,
and has one more round in which it finds nothing to do. `wake` is cleared before the round too, so setting
it during a round leads to another.

**No failure ends the loop.** An exception of a round is given to `on_error` with the time until the next
try, which grows (0.1 s to 15 s or what the caller allows, with jitter) until a round succeeds; neither hints
nor `wake` cut it short. `stop` does, and so does another loop of the same node that has failed too and now
succeeds (`Recovery`). If `store.wait` fails, rounds go on: by their delays, and at least as often as the wait
is tried again (same backoff). Only `stop`, which lets a round finish, and cancellation, which does not, end
the loop; and an `on_error` that raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any, Protocol

from ..domain.model import Record
from ..stores.base import Store
from . import clock

OnError = Callable[[BaseException, timedelta], None]

_NOW = timedelta(0)
LULL = timedelta(milliseconds=20)


class Loop(Protocol):
    """One round of work at a time, and the delay before the next."""

    async def run_once(self) -> timedelta | None:
        """Do what can be done now. Return how long until there is more. None: not before something changes."""
        ...


class Hints(Protocol):
    """The part of a store that tells when something may have changed since the call."""

    async def wait(self, until: datetime | None) -> None: ...


class NoHints:
    """For roles that follow only their own delay."""

    async def wait(self, until: datetime | None) -> None:
        await asyncio.Event().wait()


class HintsOf:
    """For roles that act on records of some types only."""

    def __init__(self, store: Store, *of: type[Record]) -> None:
        self._store = store
        self._of = frozenset(of)

    async def wait(self, until: datetime | None) -> None:
        await self._store.wait(until, of=self._of)


class MergedHints:
    """For roles that are punctual by their own plan: a hint reaches them a little later, and many commits in a row are
    one hint. Without it, the scheduler would look for due schedules after every commit of a busy worker."""

    def __init__(self, hints: Hints, lull: timedelta = LULL) -> None:
        self._hints = hints
        self._lull = lull

    async def wait(self, until: datetime | None) -> None:
        await self._hints.wait(until)
        await clock.sleep(self._lull)


class Backoff:
    """Growing delays: each from the upper half of a range that doubles, between 0.1 s and 15 s (or `longest`)."""

    SHORTEST = timedelta(seconds=0.1)
    LONGEST = timedelta(seconds=15)

    def __init__(self, random: Random, longest: timedelta = LONGEST) -> None:
        self._random = random
        self._longest = longest
        self.reset()

    def reset(self) -> None:
        self._ceiling = 2 * self.SHORTEST

    def next(self, at_most: timedelta = LONGEST) -> timedelta:
        delay = min(self._ceiling, at_most) * self._random.uniform(0.5, 1.0)
        self._ceiling = min(2 * self._ceiling, self._longest)
        return delay


class Recovery:
    """Tells the loops of a node that the store is back. Those that rest after a failure try again, each a little later
    than the other."""

    WITHIN = timedelta(seconds=0.25)

    def __init__(self) -> None:
        self._resting: set[asyncio.Event] = set()

    def tell(self) -> None:
        for resting in self._resting:
            resting.set()

    @contextmanager
    def heard(self) -> Iterator[asyncio.Event]:
        back = asyncio.Event()
        self._resting.add(back)
        try:
            yield back
        finally:
            self._resting.discard(back)


async def keep_running(
    role: Loop,
    store: Hints,
    *,
    stop: asyncio.Event,
    on_error: OnError,
    wake: asyncio.Event | None = None,
    random: Random | None = None,
    recovery: Recovery | None = None,
    longest_rest: Callable[[], timedelta] = lambda: Backoff.LONGEST,
) -> None:
    """Run `role` in rounds until `stop` is set."""
    recovery = recovery or Recovery()
    has_failed = False
    random = random or Random()  # a backoff needs no secrecy, only that nodes differ
    backoff = Backoff(random)
    pauses = _Pauses(store, stop, wake or asyncio.Event(), on_error, Backoff(random))
    try:
        await pauses.open()
        while not stop.is_set():
            try:
                delay = await role.run_once()
            except Exception as error:
                has_failed = True
                delay = backoff.next(longest_rest())
                on_error(error, delay)
                await pauses.rest(delay, recovery, random)
            else:
                backoff.reset()
                if has_failed:
                    has_failed = False
                    recovery.tell()
                await pauses.pause(delay)
    finally:
        await pauses.close()


class _Pauses:
    """The pauses between rounds. Three waiters can end one: stop, wake and hint. Each is kept until it ends one."""

    def __init__(
        self, store: Hints, stop: asyncio.Event, wake: asyncio.Event, on_error: OnError, backoff: Backoff
    ) -> None:
        self._store = store
        self._stop = stop
        self._wake = wake
        self._on_error = on_error
        self._backoff = backoff
        self._waiters: dict[str, asyncio.Task[Any]] = {}

    async def open(self) -> None:
        self._start("stop", self._stop.wait())
        self._listen_for_wake()
        self._start("hint", self._hint())
        await clock.sleep(_NOW)  # their first step: from here on, nothing is missed

    async def pause(self, delay: timedelta | None) -> None:
        """Until `delay` has passed or something was heard; then listen anew."""
        if delay is not None and delay <= _NOW:
            await clock.sleep(_NOW)
        elif await clock.wait_for_any(*self._waiters.values(), at_most=delay):
            await self._listen_anew()

    async def rest(self, delay: timedelta, recovery: Recovery, random: Random) -> None:
        """Until `delay` has passed, or the store is back, or it is time to stop."""
        with recovery.heard() as back:
            waiting = asyncio.create_task(back.wait(), name="rota-recovery")
            try:
                await clock.wait_for_any(self._waiters["stop"], waiting, at_most=delay)
            finally:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
        if back.is_set():
            within = min(delay, Recovery.WITHIN) * random.random()
            await clock.wait_for_any(self._waiters["stop"], at_most=within)

    async def close(self) -> None:
        for waiter in self._waiters.values():
            waiter.cancel()
        await asyncio.gather(*self._waiters.values(), return_exceptions=True)

    async def _listen_anew(self) -> None:
        if self._waiters["wake"].done():
            self._listen_for_wake()
        if self._waiters["hint"].done():
            self._waiters["hint"].result()  # fails only if on_error did
            self._start("hint", self._hint())
            await clock.sleep(_NOW)

    def _listen_for_wake(self) -> None:
        self._wake.clear()
        self._start("wake", self._wake.wait())

    async def _hint(self) -> None:
        """One `store.wait`. A failed one is a hint too, after its backoff: without hints, the role polls."""
        try:
            await self._store.wait(None)
            self._backoff.reset()
        except Exception as error:
            delay = self._backoff.next()
            self._on_error(error, delay)
            await clock.sleep(delay)

    def _start(self, name: str, waiting: Coroutine[Any, Any, Any]) -> None:
        self._waiters[name] = asyncio.create_task(waiting, name=f"rota-{name}")
