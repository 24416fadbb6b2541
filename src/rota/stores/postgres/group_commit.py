"""Group commit: works that arrive while others are being committed share one transaction, and one fsync.

Works of a group run one after the other. Each sees the writes of those before it, and an error of its own fails it
alone. If the group as a whole fails (a conflict, …), its works are run again one by one, each up to ATTEMPTS times. So
only works that cannot be done by themselves fail, and each is answered as soon as it is done.

All transactions wait for locks in one order. A work that would wait in another one, behind other works of its group,
begins the next transaction (`LockedElsewhere`).

A group waits for a lock for a second at most. The lock may belong to a transaction of the user's that has the same
idempotency key. Then the works are run again, each in its own transaction, a few at a time. Works that are blocked
again are run last and wait as long as a statement may take. So one blocked work does not hold up the rest of its group.

Two groups run at a time: one gathers and writes while the other waits for the disk. A group that takes long (it waits
for a lock) does not count, so that others can pass it, as far as there are connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Protocol, TypeVar

from ...domain.errors import Conflict, StoreError
from ..base import CommitOptions, RecordTypes, Work
from ..works import ATTEMPTS, Job, answer, fail
from .errors import Blocked
from .transaction import LockedElsewhere
from .tx import SharedTransaction

T = TypeVar("T")
_LARGEST_GROUP = 256
_GROUPS_AT_ONCE = 2
_SLOW_AFTER = 0.05
_RETRIES_AT_ONCE = 3


class RunInTransaction(Protocol):
    """Calls a function with a transaction, and rolls back what the function does not commit.

    Raises `ConnectionLost` if there is no connection, else errors of the contract or of works. With `wait_for_locks` a
    statement waits for locks as long as it may take; without, it is `Blocked` sooner."""

    async def __call__(
        self, use: Callable[[SharedTransaction], Awaitable[None]], *, wait_for_locks: bool = False
    ) -> None: ...


class ConnectionLost(Exception):
    """There is no connection to the server. Trying again at once is of no use."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(str(error))
        self.error = error


class GroupCommit:
    """Gathers jobs into groups and runs them, at most `most` groups at a time. `changed` is called after commits."""

    def __init__(
        self, run_in_transaction: RunInTransaction, most: int, changed: Callable[[RecordTypes], None]
    ) -> None:
        self._run_in_transaction = run_in_transaction
        self._most = most
        self._changed = changed
        self._waiting: list[Job[Any]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._slow = 0
        self._is_start_scheduled = False
        self._random = Random()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, work: Work[T], options: CommitOptions) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append(Job(work, options, future))
        self._idle.clear()
        self._schedule_start(loop)
        return await future

    async def finish(self) -> None:
        """Wait until every job is answered."""
        await self._idle.wait()
        while self._running:  # their jobs are answered, the tasks are about to end
            await asyncio.wait(self._running)

    def _schedule_start(self, loop: asyncio.AbstractEventLoop) -> None:
        if (
            not self._is_start_scheduled
            and len(self._running) - self._slow < _GROUPS_AT_ONCE
            and len(self._running) < self._most
        ):
            self._is_start_scheduled = True
            loop.call_soon(self._start, loop)  # later in this round of the loop: other jobs may join

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_start_scheduled = False
        jobs = self._next_jobs()
        if jobs:
            group = _Group(jobs, self._run_in_transaction, self._random, self._changed)
            running = loop.create_task(group.run(), name="rota-commit")
            self._running.add(running)
            timer = loop.call_later(_SLOW_AFTER, self._mark_slow, loop, group)
            running.add_done_callback(lambda done: self._ended(loop, group, done, timer))
        self._go_on(loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting:
            self._schedule_start(loop)
        elif not self._running:
            self._idle.set()

    def _next_jobs(self) -> list[Job[Any]]:
        """Jobs with `own_transaction` come first. A group has at most one lane; the others are next.

        Without lanes a tick and a claim wait for each other's commit: 3,000 schedules that are due at once have all
        started 28 % sooner with them."""
        waiting = [job for job in self._waiting if not job.future.done()]
        if own := [job for job in waiting if job.options.own_transaction]:
            self._waiting = [job for job in waiting if not job.options.own_transaction]
            return own
        lanes = {lane for job in waiting if (lane := job.options.lane) is not None}
        if len(lanes) < 2:
            self._waiting = waiting[_LARGEST_GROUP:]
            return waiting[:_LARGEST_GROUP]
        first = next(lane for job in waiting if (lane := job.options.lane) is not None)
        jobs = [job for job in waiting if job.options.lane in (first, None)][:_LARGEST_GROUP]
        taken = {id(job) for job in jobs}
        self._waiting = [job for job in waiting if id(job) not in taken]
        return jobs

    def _mark_slow(self, loop: asyncio.AbstractEventLoop, group: _Group) -> None:
        group.is_slow = True
        self._slow += 1
        if self._waiting:
            self._schedule_start(loop)

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
        answer(group.unanswered, self._changed, failure)
        self._go_on(loop)


class _Group:
    """Jobs that are run together, and again one by one if that fails."""

    def __init__(
        self,
        jobs: list[Job[Any]],
        run_in_transaction: RunInTransaction,
        random: Random,
        changed: Callable[[RecordTypes], None],
    ) -> None:
        self.unanswered = list(jobs)
        self._to_run = list(jobs)
        self.is_slow = False
        self._run_in_transaction = run_in_transaction
        self._random = random
        self._changed = changed

    async def run(self) -> None:
        """Run every job, or leave in it why it failed. The caller answers jobs that are still in `unanswered`."""
        while self._to_run:
            jobs, self._to_run = self._to_run, []
            await self._run(jobs)
            if self._to_run:
                self._answer([job for job in jobs if job not in self._to_run])

    async def _run(self, jobs: list[Job[Any]]) -> None:
        tries = ATTEMPTS
        try:
            return await self._run_in_transaction(lambda shared: self._commit_together(shared, jobs))
        except ConnectionLost as lost:
            return fail(jobs, lost.error)
        except Blocked:
            if len(jobs) > 1:
                jobs = await self._commit_each(jobs)
            return await self._commit_waiting_for_locks(jobs)
        except Exception as error:
            if len(jobs) == 1:
                tries -= 1
                fail(jobs, error)
                if not isinstance(error, Conflict):
                    return None
        blocked: list[Job[Any]] = []
        for job in jobs:
            if not await self._commit_unless_blocked(job, tries):
                blocked.append(job)
        return await self._commit_waiting_for_locks(blocked)

    async def _commit_each(self, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Run each job in its own transaction, a few at a time. The answer: the jobs that are blocked even then."""
        answered = await _few_at_a_time(jobs, lambda job: self._commit_unless_blocked(job, ATTEMPTS))
        return [job for job, is_answered in zip(jobs, answered, strict=True) if not is_answered]

    async def _commit_waiting_for_locks(self, jobs: list[Job[Any]]) -> None:
        def run(job: Job[Any]) -> Awaitable[None]:
            return self._commit_alone(job, ATTEMPTS, wait_for_locks=not job.options.fail_if_locked)

        await _few_at_a_time(jobs, run)

    async def _commit_unless_blocked(self, job: Job[Any], tries: int) -> bool:
        """Whether the job was answered. If not, it was blocked, and is still to be run."""
        try:
            await self._commit_alone(job, tries)
        except Blocked:
            return False
        return True

    async def _commit_alone(self, job: Job[Any], tries: int, *, wait_for_locks: bool = False) -> None:
        """Try until the job succeeds or fails for good. The random pause parts works that met in a conflict."""
        for attempt in range(1, tries + 1):
            try:
                await self._run_in_transaction(
                    lambda shared: self._commit_together(shared, [job]), wait_for_locks=wait_for_locks
                )
                break
            except ConnectionLost as lost:
                fail([job], lost.error)
                break
            except Exception as error:
                if isinstance(error, Blocked) and not wait_for_locks and not job.options.fail_if_locked:
                    raise
                fail([job], error)
                if not isinstance(error, Conflict):
                    break
            await asyncio.sleep(0.002 * attempt * self._random.random())
        self._answer([job])

    def _answer(self, jobs: list[Job[Any]]) -> None:
        self.unanswered = [job for job in self.unanswered if job not in jobs]
        answer(jobs, self._changed)

    async def _commit_together(self, shared: SharedTransaction, jobs: list[Job[Any]]) -> None:
        """Run the works of these jobs in one transaction, and commit it. If one has to wait, it and those behind it are
        left to run."""
        left: list[Job[Any]] = []
        for number, job in enumerate(jobs):
            job.error, job.written = None, frozenset()
            tx = shared.new_tx(is_alone=len(jobs) == 1)
            shared.pending_writes.is_first_work = number == 0
            try:
                job.value = await job.work(tx)
            except LockedElsewhere:
                left = jobs[number:]
                break
            except Exception as error:
                if shared.database.failure is None:
                    if tx.has_sent:
                        raise  # none of it may be committed
                    job.error = error  # it belongs to the caller of this work
                    continue
            if shared.database.failure is not None:
                raise shared.database.failure
            job.written = tx.written
            await shared.pending_writes.add(tx)
        await shared.pending_writes.flush(commit=True)
        self._to_run = left


async def _few_at_a_time(jobs: list[Job[Any]], run: Callable[[Job[Any]], Awaitable[T]]) -> list[T]:
    slots = asyncio.Semaphore(_RETRIES_AT_ONCE)

    async def run_in_slot(job: Job[Any]) -> T:
        async with slots:
            return await run(job)

    return await asyncio.gather(*map(run_in_slot, jobs))
