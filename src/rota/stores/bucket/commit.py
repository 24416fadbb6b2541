"""Committing a group of works as one entry of the log. This runs in the store's writer thread.

1. Read the log if the state is not fresh, or other nodes write, and there is probably something to read (`ReadOdds`).
   A read that was wrongly left out costs a lost append, and nothing else.
2. Run the works on a trial, undo the trial, and encode the changes as entry N+1.
3. If there are no changes, the answers count if the state was current. So catch up, and if an entry came, go to 2.
   (Works that `may_be_stale` accept a fresh state: a loop that finds nothing to do makes no request.)
4. If another thread has read on meanwhile, or the node slept, go to 2: the draft belongs to an old position.
5. Append. If another node has written N+1, pause (`Contention`), catch up, and go to 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import uuid_utils

from ...domain.errors import StoreError, Unavailable
from ...domain.model import Record, Task
from ..memory.state import Row
from ..works import Job, fail, run_work
from .archive.lookups import NeedsArchive
from .archive.segments import Segment
from .formats import EntryHeader, encode
from .log import Log, LogPosition
from .replica import BucketTx, MoveToArchive, Trial
from .service.clock import Moment

_LOSSES = 4
"""Fewer losses are no contention, however long they took: the node may have been asleep."""


class Committed(NamedTuple):
    """The changes of one commit."""

    number: int
    puts: list[Row]
    deletes: list[Record]


class _Draft(NamedTuple):
    """The entry to be written behind `position`. Its header is made at the same position."""

    position: LogPosition
    header: EntryHeader
    puts: list[Row]
    deletes: list[Record]
    leave: dict[str, list[str]]
    segment: Segment | None

    @property
    def is_empty(self) -> bool:
        return not (self.puts or self.deletes or self.segment)


class Committer:
    """`on_commit` is called with every commit, in the writer thread."""

    def __init__(self, log: Log, on_commit: Callable[[Committed], None]) -> None:
        self._log = log
        self._replica = log.replica
        self._time = log.time
        self.on_commit = on_commit

    def commit(self, jobs: list[Job[Any]]) -> None:
        """Answer every job."""
        # The move to the archive comes last: works before it may change its records.
        jobs = sorted(jobs, key=lambda job: isinstance(job.work, MoveToArchive))
        try:
            self._commit(jobs)
        except StoreError as error:
            fail(jobs, error)

    def _commit(self, jobs: list[Job[Any]]) -> None:
        self._time.refresh()
        began = self._time.stopwatch.moment()
        losses = 0
        has_looked = not self._log.is_fresh(self._log.current_at)
        if has_looked:
            self._log.look_before_commit()
        while True:
            draft, current_at = self.draft(jobs)
            if draft.is_empty:
                if self._may_be_answered(jobs, current_at, began):
                    return
                self._log.catch_up()
                if self._replica.number == draft.position.number:
                    return
                continue
            if not has_looked and self._log.contention.give_way():
                has_looked = True
                self._log.look_before_commit()
            if not self._log.is_trusted(draft.position):
                self._log.catch_up()
                continue
            if self._replica.number != draft.position.number:  # another thread has read on
                continue
            if self._append(draft):
                return
            losses += 1
            if losses >= _LOSSES and self._time.stopwatch.since(began) > self._log.tuning.give_up_after:
                raise Unavailable(
                    f"other nodes wrote to {self._log.bucket.name} faster for too long; nothing was written"
                )
            self._log.contention.lost(losses)
            self._log.catch_up()

    def _may_be_answered(self, jobs: list[Job[Any]], current_at: Moment | None, began: Moment) -> bool:
        """Whether answers that write nothing may be given: the state was current when they were asked for, or it need
        not be."""
        if current_at is not None and current_at.steady > began.steady:
            return True
        if all(isinstance(job.error, NeedsArchive) for job in jobs):
            return True  # the work is run again
        may_be_stale = all(job.options.may_be_stale and job.error is None for job in jobs)
        return may_be_stale and self._log.is_fresh(current_at)

    def draft(self, jobs: list[Job[Any]]) -> tuple[_Draft, Moment | None]:
        """Run the works on the replica. Returns also when the replica was last seen to be current."""
        with self._replica.lock:
            trial = Trial(self._replica)
            try:
                for job in jobs:
                    self.run_job(job, trial)
                puts, deletes = trial.net()
            finally:
                trial.undo()
            position = self._log.position()
            draft = _Draft(position, self._header(position), puts, deletes, trial.leave, trial.segment)
            return draft, self._log.current_at

    def _header(self, position: LogPosition) -> EntryHeader:
        return EntryHeader(
            number=position.number + 1,
            commit=str(uuid_utils.uuid7()),
            at=self._time.now(),
            node=self._log.node,
            snapshot=self._log.snapshot,
            floor=self._log.next_floor,
        )

    def run_job(self, job: Job[Any], trial: Trial) -> None:
        job.error = None
        try:
            job.value, tx = run_work(job.work, lambda: BucketTx(self._replica, self._time.now()), trial.flush)
            job.written = tx.written or ({Task} if tx.moved else frozenset())
        except BaseException as error:  # it belongs to the caller of this work
            fail([job], error)

    def _append(self, draft: _Draft) -> bool:
        header = draft.header
        body = encode(header, draft.puts, draft.deletes, draft.leave, draft.segment)
        if not self._log.append(draft.position, header.commit, body):
            return False
        with self._replica.lock:
            self._log.learn(0, header.floor)
            if self._replica.number == draft.position.number:  # otherwise a reader has applied it already
                gone = [(type(record), record.id) for record in draft.deletes]
                self._replica.apply(header.number, draft.puts, gone, draft.leave, draft.segment)
        self._log.contention.won()
        self.on_commit(Committed(header.number, draft.puts, draft.deletes))
        return True
