"""Two roles that keep order. The janitor returns tasks of dead workers and marks expiries. The forgetter removes
records that have been kept long enough, lets the store put itself in order, and ends changes of limits that others did
not.

They are apart because the forgetter may have much to do, and an archive that cannot be read must hold up no task of a
dead worker. For the same reason each kind of record is forgotten by itself.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from msgspec.structs import replace

from ...domain.errors import StoreError, Unavailable
from ...domain.model import FOREVER
from ...stores.base import CommitOptions, Store
from ...stores.queries import LostLeases
from ..artifacts import sweep_contents
from ..clock import Clock, sleep
from ..commands import Retention, forget_nodes, forget_old, sweep
from ..limits import end_changes
from ..loops import Backoff
from ..observe.telemetry import Observer, TaskMoved
from ..work import find
from .jumps_and_blocks import LookForJumps
from .leases import LEASE

BATCH = 500
LOOK_AGAIN = timedelta(seconds=10)
HOLD_OFF = timedelta(seconds=10)
PROBE_EVERY = timedelta(seconds=1)
AFTER_OUTAGE = max(LEASE, Backoff.LONGEST + timedelta(seconds=10))
LOCKED_AT_MOST = timedelta(seconds=1)
GRACE = timedelta(seconds=2)
"""How long the holder of a lease that ran out has, from a look on that found the store free."""
NOW = timedelta(0)
FORGET_EVERY = timedelta(minutes=10)
SWEEP_EVERY = timedelta(hours=1)
NOTHING = Retention(tasks=None, runs=None, events=None, schedules=None)
PROBE = find(LostLeases(at=None), 1)
"""A small read: it fails while the store is away."""


class Janitor:
    """A lease is lost if it had run out when the janitor looked, and is not renewed for a while after. A lease may run
    out because the store was locked or slow, or the whole process stood still: then the look waited, too. When it gets
    through, workers that hold results or leases get through as well, before the janitor takes anything.

    After a jump of the clock leases look older than they are: `hold_off` gives their holders time to renew them.

    So does an outage of the store: leases ran out because nobody could renew them. Workers that held them try again
    within the longest backoff. So for longer than that, and for at least a lease, nothing is taken for lost. The looks
    become more frequent as a lease runs out: an outage that is too short for any of them to fall into it leaves the
    holders enough time."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        observe: Observer,
        *,
        look_for_jumps: LookForJumps = lambda *_: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._observe = observe
        self._look_for_jumps = look_for_jumps
        self._after_outage = AFTER_OUTAGE
        self.look_again = LOOK_AGAIN
        self.saw_outage = False
        self._locked = Backoff(Random(), LOCKED_AT_MOST)
        self._sweep_at = clock.monotonic()
        self._looked: tuple[datetime, float] | None = (
            None  # a look that found leases run out: as of when, and when
        )

    def hold_off(self, length: timedelta = HOLD_OFF) -> None:
        self._sweep_at = max(self._sweep_at, self._clock.monotonic() + length.total_seconds())

    def expect_leases(self, lease: timedelta) -> None:
        """How long leases are here: who gives short ones wants lost tasks back soon."""
        self._after_outage = max(self._after_outage, lease)
        self.look_again = min(self.look_again, lease)

    async def run_once(self) -> timedelta:
        """One sweep. At once again if it found anything; else when the next record falls due."""
        self._look_for_jumps("janitor", None)
        try:
            return await self._hold_off_or_sweep()
        except Unavailable as error:
            self.saw_outage = self.saw_outage or not error.is_busy
            raise

    async def look_twice(self) -> timedelta:
        """Sweep, and once more after the grace of leases that have run out, since `rota tick` may not come again for a
        while."""
        delay = await self.run_once()
        if self._looked is None:
            return delay
        await sleep(GRACE)
        return await self.run_once()

    async def _hold_off_or_sweep(self) -> timedelta:
        if self.saw_outage:
            await self._store.read(PROBE)
            self.saw_outage = False
            self.hold_off(self._after_outage)
        left = timedelta(seconds=self._sweep_at - self._clock.monotonic())
        if left > NOW:
            await self._store.read(PROBE)  # an outage meanwhile is another
            return min(left, PROBE_EVERY)
        return await self._sweep()

    async def _sweep(self) -> timedelta:
        ran_out_by, valid_until = self._judgement()
        work = sweep(BATCH, ran_out_by=ran_out_by, valid_until=valid_until)
        swept = await self._store.transact(work, CommitOptions(may_be_stale=True))
        self._look_for_jumps("janitor", swept.at)
        for task in (*swept.returned, *swept.expired):
            self._observe(TaskMoved(task))
        if ran_out_by is not None and not swept.returned:
            self._looked = None
        if swept.returned or swept.expired:
            return NOW
        if swept.next_in is not None and swept.next_in <= NOW:
            self._looked = self._looked or (swept.at, self._clock.monotonic())
            return self._locked.next()  # in its grace, or held by someone else
        self._locked.reset()
        if swept.next_in is None or swept.next_in <= PROBE_EVERY:
            return swept.next_in or self.look_again
        return min(max(swept.next_in / 2, PROBE_EVERY), self.look_again)

    def _judgement(self) -> tuple[datetime | None, datetime]:
        """Which leases are lost, by when they had run out; and until when that can be said. It cannot if the sweep has
        to wait for as long as the grace is."""
        if self._looked is None:
            return None, FOREVER
        at, looked = self._looked
        since = timedelta(seconds=self._clock.monotonic() - looked)
        return (at, at + since + GRACE) if since >= GRACE else (None, FOREVER)


class Forgetter:
    """Forgets, batch after batch, then rests. Now and then it removes the contents of artifacts that are gone."""

    def __init__(self, store: Store, retention: Retention, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._sweep_at = clock.monotonic()
        self._parts = (
            replace(NOTHING, tasks=retention.tasks),
            replace(NOTHING, runs=retention.runs),
            replace(NOTHING, events=retention.events),
            replace(NOTHING, schedules=retention.schedules),
        )

    async def run_once(self) -> timedelta:
        """One batch of each kind. At once again if anything went."""
        gone = 0
        problem: StoreError | None = None
        for work in (forget_nodes(), *(forget_old(part, BATCH) for part in self._parts)):
            try:
                gone += await self._store.transact(work)
            except StoreError as error:
                problem = problem or error
        if gone:
            return NOW
        await self._store.tidy()
        for do in (self._sweep_contents, self._end_changes):
            try:
                await do()
            except StoreError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return FORGET_EVERY

    async def _sweep_contents(self) -> None:
        if self._clock.monotonic() >= self._sweep_at:
            await sweep_contents(self._store)
            self._sweep_at = self._clock.monotonic() + SWEEP_EVERY.total_seconds()

    async def _end_changes(self) -> None:
        await end_changes(self._store, self._clock)
