"""Running works, on the stores that never suspend inside one: memory, SQLite, buckets.

`run_work` does what the contract says about conflicts. Each try has a fresh transaction, runs the work straight
through, and gives its writes to `flush`. Nothing of a failed try remains.

`Groups` is group commit: works that arrive while one group is being committed form the next group. Many callers share
one commit and one fsync. The queue of works lives on the event loop. `commit` is a plain function of the store: it runs
in the store's one writer thread, and leaves in each job its value or its error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from ..domain.errors import Conflict
from .base import CommitOptions, RecordTypes, Work
from .threads import Threads

ATTEMPTS = 5
"""How often a work is run before its conflict reaches the caller."""
_LARGEST = 256

T = TypeVar("T")
X = TypeVar("X")


def drive(work: Work[T], tx: Any) -> T:
    """Run a work to its end without an event loop. A work that waits for anything but its `tx` is a mistake."""
    steps: Generator[Any, Any, T] = work(tx).__await__()
    try:
        steps.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    steps.close()
    raise AssertionError(f"a work waits for nothing but its tx: {work} awaited something else")


def run_work(work: Work[T], begin: Callable[[], X], flush: Callable[[X], None]) -> tuple[T, X]:
    """Run the work and flush its writes. After a conflict it is tried again from the start. The answer is that of the
    work, with the transaction of the run that counts."""
    for left in reversed(range(ATTEMPTS)):
        tx = begin()
        try:
            value = drive(work, tx)
            flush(tx)
            break
        except Conflict:
            if not left:
                raise
    return value, tx


class Job(Generic[T]):
    """A work that was given to `transact`. The commit sets `value` or `error`, and which records the work wrote."""

    def __init__(self, work: Work[T], options: CommitOptions, future: asyncio.Future[T]) -> None:
        self.work = work
        self.options = options
        self.future = future
        self.value: T | None = None
        self.error: BaseException | None = None
        self.written: RecordTypes = frozenset()

    def settle(self) -> None:
        """Answer the caller, if it still waits."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)  # type: ignore[arg-type]  # a job without an error has its value


def fail(jobs: Iterable[Job[Any]], error: BaseException) -> None:
    """Note in each job why nothing of its work was written."""
    for job in jobs:
        job.error, job.written = error, frozenset()


def answer(
    jobs: Iterable[Job[Any]], changed: Callable[[RecordTypes], None], failure: BaseException | None = None
) -> None:
    """Answer the callers of these jobs, each with its own error or with this failure. `changed` hears before that what
    was written."""
    if written := {of_type for job in jobs if job.error is None for of_type in job.written}:
        changed(written)
    for job in jobs:
        job.error = failure or job.error
        job.settle()


class Groups:
    """Gathers jobs into groups and has them committed one group at a time."""

    def __init__(
        self,
        thread: Threads,
        commit: Callable[[list[Job[Any]]], None],
        changed: Callable[[RecordTypes], None],
    ) -> None:
        self._thread = thread
        self._commit = commit
        self._changed = changed
        self._waiting: list[Job[Any]] = []
        self._committing: list[Job[Any]] = []
        self._busy = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, work: Work[T], options: CommitOptions) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append(Job(work, options, future))
        if not self._busy:
            self._busy = True
            self._idle.clear()
            loop.call_soon(self._next_group, loop)  # later in this turn: others may join
        return await future

    @property
    def is_awaited(self) -> bool:
        """Whether anyone still waits for what the thread does now. The thread itself may ask."""
        jobs = self._committing
        return self._thread.is_awaited and not (jobs and all(job.future.done() for job in jobs))

    async def finish(self) -> None:
        """Wait until every job is answered."""
        await self._idle.wait()

    def _next_group(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = [job for job in self._waiting[:_LARGEST] if not job.future.done()]
        del self._waiting[:_LARGEST]
        if not jobs and not self._waiting:
            self._busy = False
            self._idle.set()
            return
        self._committing = jobs
        committed = self._thread.call(self._commit, jobs)
        committed.add_done_callback(lambda done: self._settle(loop, jobs, done))

    def _settle(
        self, loop: asyncio.AbstractEventLoop, jobs: list[Job[Any]], done: asyncio.Future[None]
    ) -> None:
        self._committing = []
        failure = asyncio.CancelledError() if done.cancelled() else done.exception()
        answer(jobs, self._changed, failure)
        self._next_group(loop)
