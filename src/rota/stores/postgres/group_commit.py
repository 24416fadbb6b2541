"""Group commit: works that arrive while others are being committed share one transaction, and one fsync.

Works of a group run one after the other; each sees what those before it wrote. A work that fails takes back
only its own. If the group as a whole fails (a conflict, …), its works are run again one by one, each up to ATTEMPTS
times, so that only what cannot be done by itself fails; each is answered as soon as it is done.

A group waits a second at most for a lock that somebody else holds (a transaction of the user's, say, with the same
idempotency key). Then its works are run again, a few at a time; those that again wait in vain come last, each
patiently in a transaction of its own. So the works that merely happened to be beside them are not held up.

A few groups run at a time, so that one can gather while others wait for the disk. A group that waits for
longer (another transaction holds a row that it wants) does not count: others pass it, as far as there are
connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any, Protocol, TypeVar

from ...domain.errors import Conflict, StoreError
from ..base import CommitOptions, Work
from ..group_commit import Job
from ..works import ATTEMPTS
from .connection import Line
from .errors import Blocked
from .tx import PostgresTx, Unwritten

__all__ = ["Groups", "Lost", "Turn"]

T = TypeVar("T")
_LARGEST = 256
_AT_ONCE = 2
_SLOW = 0.05
_BESIDE = 3


class Turn:
    """One connection with what runs on it: made by the store for each group."""

    def __init__(self, line: Line, new_tx: Callable[[Unwritten], PostgresTx]) -> None:
        self.line = line
        self.unwritten = Unwritten(line)
        self.new_tx = new_tx


class Lend(Protocol):
    """Calls a function with a turn. What it does not commit is rolled back. Raises `Lost` if there is no connection
    to do anything with; else only errors of the contract, and those of works. If `patient`, it waits for locks as long
    as a statement may take; else it is `Blocked` before that."""

    async def __call__(self, use: Callable[[Turn], Awaitable[None]], *, patient: bool = False) -> None: ...


class Lost(Exception):
    """There is no connection, or not any more: trying again at once is of no use."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class Groups:
    """Gathers jobs into groups and runs them."""

    def __init__(self, lend: Lend, most: int, changed: Callable[[], None]) -> None:
        self._lend = lend
        self._most = most
        self._changed = changed
        self._waiting: list[Job[Any]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._slow = 0
        self._is_called = False
        self._random = Random()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, work: Work[T], options: CommitOptions) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._waiting.append(Job(work, options, answer))
        self._idle.clear()
        self._call(loop)
        return await answer

    async def finish(self) -> None:
        """Until everything that was handed in is answered."""
        await self._idle.wait()
        while self._running:  # answered, and about to end
            await asyncio.wait(self._running)

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        if (
            not self._is_called
            and len(self._running) - self._slow < _AT_ONCE
            and len(self._running) < self._most
        ):
            self._is_called = True
            loop.call_soon(self._start, loop)  # later in this turn: others may join

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_called = False
        jobs = self._next_jobs()
        if jobs:
            group = _Group(jobs, self._lend, self._random, self._settle)
            running = loop.create_task(group.run(), name="rota-commit")
            self._running.add(running)
            timer = loop.call_later(_SLOW, self._is_slow, loop, group)
            running.add_done_callback(lambda done: self._ended(loop, group, done, timer))
        if self._waiting:
            self._call(loop)
        elif not self._running:
            self._idle.set()

    def _next_jobs(self) -> list[Job[Any]]:
        """The first that wait, without those that are to run beside them: they are the next."""
        waiting = [job for job in self._waiting if not job.future.done()]
        if hurried := [job for job in waiting if job.options.own_transaction]:
            self._waiting = [job for job in waiting if not job.options.own_transaction]
            return hurried
        lanes = {lane for job in waiting if (lane := job.options.lane) is not None}
        if len(lanes) < 2:
            self._waiting = waiting[_LARGEST:]
            return waiting[:_LARGEST]
        first = next(lane for job in waiting if (lane := job.options.lane) is not None)
        jobs = [job for job in waiting if job.options.lane in (first, None)][:_LARGEST]
        taken = {id(job) for job in jobs}
        self._waiting = [job for job in waiting if id(job) not in taken]
        return jobs

    def _is_slow(self, loop: asyncio.AbstractEventLoop, group: _Group) -> None:
        group.is_slow = True
        self._slow += 1
        if self._waiting:
            self._call(loop)

    def _ended(
        self,
        loop: asyncio.AbstractEventLoop,
        group: _Group,
        done: asyncio.Task[None],
        timer: asyncio.TimerHandle,
    ) -> None:
        timer.cancel()
        self._slow -= group.is_slow
        self._running.discard(done)
        failure = asyncio.CancelledError() if done.cancelled() else done.exception()
        self._settle(group.unanswered, failure)
        if self._waiting:
            self._call(loop)
        elif not self._running:
            self._idle.set()

    def _settle(self, jobs: Iterable[Job[Any]], failure: BaseException | None = None) -> None:
        if any(job.wrote and job.error is None for job in jobs):
            self._changed()
        for job in jobs:
            job.error = failure or job.error
            job.settle()


class _Group:
    """Some jobs on their way together."""

    def __init__(
        self,
        jobs: list[Job[Any]],
        lend: Lend,
        random: Random,
        settle: Callable[[Iterable[Job[Any]]], None],
    ) -> None:
        self.unanswered = list(jobs)
        self.is_slow = False
        self._lend = lend
        self._random = random
        self._settle = settle

    async def run(self) -> None:
        """Do every job, or find out why it cannot be done. Those still unanswered at the end are the caller's."""
        jobs, tries = list(self.unanswered), ATTEMPTS
        try:
            return await self._lend(lambda turn: self._together(turn, jobs))
        except Lost as lost:
            return _fail(jobs, lost.error)
        except Blocked:
            if len(jobs) > 1:
                jobs = await self._beside(jobs)
            return await self._patiently(jobs)
        except Exception as error:
            if len(jobs) == 1:
                tries -= 1
                _fail(jobs, error)
                if not isinstance(error, Conflict):
                    return None
        return await self._patiently([job for job in jobs if await self._is_blocked(job, tries)])

    async def _beside(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run each by itself, a few at a time; those that are blocked by others."""
        slots = asyncio.Semaphore(_BESIDE)

        async def run(job: Job[Any]) -> bool:
            async with slots:
                return await self._is_blocked(job, ATTEMPTS)

        blocked = await asyncio.gather(*(run(job) for job in jobs))
        return [job for job, is_blocked in zip(jobs, blocked, strict=True) if is_blocked]

    async def _patiently(self, jobs: list[Job[Any]]) -> None:
        slots = asyncio.Semaphore(_BESIDE)

        async def run(job: Job[Any]) -> None:
            async with slots:
                await self._alone(job, ATTEMPTS, patient=not job.options.fail_if_locked)

        await asyncio.gather(*(run(job) for job in jobs))

    async def _is_blocked(self, job: Job[Any], tries: int) -> bool:
        try:
            await self._alone(job, tries)
        except Blocked:
            return True
        return False

    async def _alone(self, job: Job[Any], tries: int, *, patient: bool = False) -> None:
        """Until it succeeds or fails for good; a little later each time, so that those who met part."""
        for attempt in range(1, tries + 1):
            try:
                await self._lend(lambda turn: self._together(turn, [job]), patient=patient)
                break
            except Lost as lost:
                _fail([job], lost.error)
                break
            except Exception as error:
                if isinstance(error, Blocked) and not patient and not job.options.fail_if_locked:
                    raise
                _fail([job], error)
                if not isinstance(error, Conflict):
                    break
            await asyncio.sleep(0.002 * attempt * self._random.random())
        self.unanswered.remove(job)
        self._settle([job])

    async def _together(self, turn: Turn, jobs: list[Job[Any]]) -> None:
        for job in jobs:
            job.error, job.wrote = None, False
            tx = turn.new_tx(turn.unwritten)
            try:
                job.value = await job.work(tx)
            except Exception as error:
                if turn.line.failure is None:
                    job.error = error  # it belongs to the caller of this work
                    continue
            if turn.line.failure is not None:
                raise turn.line.failure
            if tx.puts or tx.deletes:
                job.wrote = True
                await turn.unwritten.add(tx)
        await turn.unwritten.flush(last=True)


def _fail(jobs: list[Job[Any]], error: BaseException) -> None:
    for job in jobs:
        job.error, job.wrote = error, False
