"""Keeps the leases of a worker: a task stays the worker's own while its lease is renewed in time.

Renewing is a role of its own, with a transaction of its own. It waits for no result and no claim: a store that is slow
with one of those, or a row that someone else holds, costs no lease. Leases are renewed after a third of their length.
Progress and logs of handlers are written with a renewal, or a second after the first report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from math import isqrt
from typing import Protocol, TypeVar

from ...domain.errors import Refused, Unavailable
from ...stores.base import CommitOptions, Store
from ..app import App
from ..clock import Clock
from ..commands import Renewal, renew_leases
from ..executor import Execution, Reports, StopReason
from ..observe.telemetry import LeaseLost, Observer

T = TypeVar("T")

LEASE = timedelta(seconds=30)
REPORT_EVERY = timedelta(seconds=1)
NOTHING: Reports = (None, None, ())
INSTANT = 1e-6
"""Seconds; a shorter delay would be none, and so a round without end."""
_RENEWING = CommitOptions(own_transaction=True, fail_if_locked=True)


class QueueLike(Protocol):
    """The part of a program's queue that the engine needs."""

    @property
    def store(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def tenant(self) -> str: ...

    def for_tenant(self, tenant: str) -> QueueLike: ...

    async def declare_schedules(self, app: App) -> None: ...

    async def declare_limits(self, app: App) -> None: ...


class Leases:
    """The leases of what is `running`. `wake` is set whenever a round would have something to do."""

    def __init__(
        self,
        queue: QueueLike,
        running: Collection[Execution],
        lease: timedelta,
        observe: Observer,
        renewed: Callable[[], None],
    ) -> None:
        self.wake = asyncio.Event()
        self._renewed = renewed
        self._queue = queue
        self._running = running
        self._lease = lease
        self._observe = observe
        self._is_resting = True
        self._reporting: set[Execution] = set()
        self._renew_at = self._report_at = queue.clock.monotonic()

    async def run_once(self) -> timedelta | None:
        """Renew what is due; how long until the next is."""
        if not self._running:
            self._is_resting = True
            return None
        now = self._queue.clock.monotonic() + INSTANT
        if now >= self._renew_at:
            self._renew_at = now + self._lease.total_seconds() / 3
            await self._renew_all(now)
        elif self._reporting and now >= self._report_at:
            await self._renew([execution for execution in self._reporting if self._holds(execution)])
        at = min(self._renew_at, self._report_at) if self._reporting else self._renew_at
        return max(timedelta(seconds=at - self._queue.clock.monotonic()), timedelta(0))

    def started(self) -> None:
        """There is something to keep."""
        if self._is_resting:
            self._is_resting = False
            self._renew_at = self._queue.clock.monotonic() + self._lease.total_seconds() / 3
            self.wake.set()

    def renew_soon(self) -> None:
        self._renew_at = self._queue.clock.monotonic()
        self.wake.set()

    def forget(self, execution: Execution) -> None:
        self._reporting.discard(execution)

    def note_report(self, execution: Execution) -> None:
        if not self._reporting:
            self._report_at = self._queue.clock.monotonic() + REPORT_EVERY.total_seconds()
            self.wake.set()
        if self._holds(execution):
            self._reporting.add(execution)

    async def flush(self, execution: Execution) -> None:
        if self._holds(execution):
            await self._renew_now([execution])

    def _holds(self, execution: Execution) -> bool:
        return execution in self._running and execution.stopping is not StopReason.LEASE_LOST

    async def _renew_all(self, now: float) -> None:
        try:
            await self._renew([execution for execution in self._running if self._holds(execution)])
        except BaseException:
            self._renew_at = now  # it is due still
            raise

    async def _renew(self, due: Sequence[Execution]) -> None:
        """All at once; if someone else holds one of them, around it."""
        try:
            await self._renew_now(due)
        except Unavailable as error:
            if not error.is_busy:
                raise
            if len(due) == 1:
                self._renew_at = min(self._renew_at, self._soon())
            else:
                for piece in pieces(due):
                    await self._renew([execution for execution in piece if self._holds(execution)])

    def _soon(self) -> float:
        return self._queue.clock.monotonic() + self._lease.total_seconds() / 10

    async def _renew_now(self, due: Sequence[Execution]) -> None:
        if not due:
            return
        self._reporting.difference_update(due)
        reports = [execution.taken_reports() for execution in due]
        renewals = [
            Renewal(task=execution.task, lease=lease or self._lease, progress=progress, logs=logs)
            for execution, (lease, progress, logs) in zip(due, reports, strict=True)
        ]
        for execution in due:
            execution.renewals += 1
        try:
            answers = await self._queue.store.transact(renew_leases(renewals), _RENEWING)
        except BaseException:
            for execution, taken in zip(due, reports, strict=True):
                execution.put_back(taken)
                if taken != NOTHING and self._holds(execution):
                    self._reporting.add(execution)
            self._report_at = self._queue.clock.monotonic() + REPORT_EVERY.total_seconds()
            raise
        finally:
            for execution in due:
                execution.renewals -= 1
            self._renewed()
        for execution, answer in zip(due, answers, strict=True):
            if isinstance(answer, Refused):
                if self._holds(execution):  # else its result will be refused, too
                    execution.stop(StopReason.LEASE_LOST)
                    self._observe(LeaseLost(execution.task))
            else:
                execution.task = answer
                if answer.cancel_requested:
                    execution.stop(StopReason.CANCEL)


def pieces(batch: Sequence[T]) -> Iterator[Sequence[T]]:
    """A batch in about as many parts as each part has members: three tries lead to the one that is in the way."""
    size = isqrt(len(batch) - 1) + 1 if len(batch) > 3 else 1
    for start in range(0, len(batch), size):
        yield batch[start : start + size]
