"""The role that looks for alarms: by any node that is alive, once across the fleet.

A schedule says when it has to be looked at next (`domain/schedule/watching.py`), so a round takes those that are due
and sleeps until the next is. Every minute the role also takes a step through the ledger, and asks whether anybody does
the work: that is a few reads, and nothing is written unless something is wrong.
"""

from __future__ import annotations

from datetime import timedelta

from ...domain.alarm import FLEET
from ...domain.model import Alarm
from ...domain.tenants import EVERY_TENANT
from ...stores.base import CommitOptions, Store
from ...stores.queries import AlarmList, Cursor
from ..clock import Clock
from ..commands import check_fleet, look_for_alarms, scan_ledger
from ..observe.telemetry import AlarmBegan, AlarmOver, Observer
from ..work import find
from .pings import Pings

BATCH = 50
PAGE = 200
SCAN_EVERY = timedelta(minutes=1)
NOW = timedelta(0)
KEPT = timedelta(days=1)
OPEN_OF_FLEET = AlarmList(tenant=EVERY_TENANT, subject_id=FLEET, is_open=True)
_READING = CommitOptions(may_be_stale=True)


class AlarmWatch:
    """`kept` is how long rows of the ledger are kept (None: for good; then only the last day is relied on). Times that
    are overdue are remembered from one scan to the next: an alarm needs two, since a laptop that slept wakes up late by
    itself. `pings` hear whether the fleet is well, on one node of those that would tell."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        observe: Observer,
        *,
        kept: timedelta | None = None,
        scan_every: timedelta = SCAN_EVERY,
        pings: Pings | None = None,
        node_id: str | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._observe = observe
        self._kept = KEPT if kept is None else kept
        self._scan_every = scan_every
        self._pings = pings
        self._node_id = node_id
        self._scan_at = clock.monotonic() + scan_every.total_seconds()
        self._has_begun = False
        self._after: Cursor | None = None
        self._overdue: frozenset[str] = frozenset()

    async def run_once(self) -> timedelta:
        """What is due to be looked at. At once again if there was any; else when the next is, or the next scan."""
        looked = await self._store.transact(look_for_alarms(BATCH, self._kept), _READING)
        self._report(looked.alarms)
        if not self._has_begun:
            await self._tell_of_beginning()
            self._has_begun = True
        if looked.number:
            return NOW
        if self._clock.monotonic() >= self._scan_at:
            await self.scan()
        left = max(timedelta(seconds=self._scan_at - self._clock.monotonic()), NOW)
        return left if looked.next_in is None else max(min(left, looked.next_in), NOW)

    async def _tell_of_beginning(self) -> None:
        """The store answers: a monitor outside hears that at once, from each node that begins. Whether the fleet is
        well is judged by the first scan, since what waited while nobody ran needs a while; until then, alarms that
        are open count."""
        if self._pings is not None and self._pings.has_fleet_url:
            known = await self._store.read(find(OPEN_OF_FLEET, 1))
            self._pings.tell_of_fleet(is_well=not known)

    async def look_at_all(self) -> timedelta:
        """Look until nothing is due, since `rota tick` may not come again for a while; how long until the next is."""
        while (delay := await self.run_once()) <= NOW:
            pass  # each look moves the next one of a schedule on
        return delay

    async def scan(self) -> None:
        """One step through the ledger, and a look at the fleet."""
        self._scan_at = self._clock.monotonic() + self._scan_every.total_seconds()
        fleet = await self._store.transact(check_fleet(), _READING)
        self._report(fleet.alarms)
        if self._pings is not None and fleet.teller in (None, self._node_id):
            self._pings.tell_of_fleet(is_well=fleet.is_well)
        work = scan_ledger(self._after, PAGE, self._kept, self._overdue)
        scanned = await self._store.transact(work, _READING)
        self._after, self._overdue = scanned.after, scanned.overdue
        self._report(scanned.alarms)

    def _report(self, alarms: list[Alarm]) -> None:
        for alarm in alarms:
            self._observe(AlarmBegan(alarm) if alarm.is_open else AlarmOver(alarm))
