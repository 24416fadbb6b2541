"""Committing a group of works as one entry of the log. Runs in the store's writer thread.

1. Catch up, unless the state was current a moment ago and nobody else is writing (then the append finds out).
2. Run the works on a trial; take it back; encode what remains as entry N+1.
3. If nothing is to be written, the answers count if the state was current: catch up, and if something came, go to 2.
   (Works that `may_be_stale` are content with a fresh state: loops that find nothing to do ask for nothing.)
4. If another thread has read on meanwhile, or we slept, go to 2: the draft belongs to a place that is no longer ours.
5. Append. If another node has N+1, pause (`objects_turns`), catch up, and go to 2.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ...domain.errors import StoreError, Unavailable
from ...domain.model import Record
from ..group_commit import Job
from ..memory.state import Row
from ..works import run_work
from .archive.lookups import Away
from .archive.segment import Segment
from .entry import Header, encode
from .log import Log, Place
from .replica import ObjectsTx, Replica, Trial
from .service.clock import Mark, Stopwatch

__all__ = ["Committed", "Committer"]

_LOSSES = 4
"""Fewer are no contention, however long they took: the node may have been asleep."""


class Committed(NamedTuple):
    """What a commit changed."""

    number: int
    puts: list[Row]
    deletes: list[Record]


class _Draft(NamedTuple):
    """What is to be written behind `place`. The header is made with it: what it says is true there."""

    place: Place
    header: Header
    puts: list[Row]
    deletes: list[Record]
    leave: dict[str, list[str]]
    segment: Segment | None

    @property
    def is_empty(self) -> bool:
        return not (self.puts or self.deletes or self.segment)


class Committer:
    """`committed` is called with every commit, in the writer thread."""

    def __init__(
        self,
        replica: Replica,
        log: Log,
        watch: Stopwatch,
        *,
        node: str,
        patience: timedelta,
        now: Callable[[], datetime],
        refresh: Callable[[], None],
        new_id: Callable[[], str],
        committed: Callable[[Committed], None],
    ) -> None:
        self._replica = replica
        self._log = log
        self._turns = log.turns
        self._patience = patience
        self._watch = watch
        self._node = node
        self._now = now
        self._refresh = refresh
        self._new_id = new_id
        self._committed = committed

    def commit(self, jobs: list[Job[Any]]) -> None:
        """Answer every job."""
        jobs = sorted(jobs, key=lambda job: job.options.last_of_group)
        try:
            self._commit(jobs)
        except StoreError as error:
            for job in jobs:
                job.error, job.wrote = error, False

    def _commit(self, jobs: list[Job[Any]]) -> None:
        self._refresh()
        began = self._watch.mark()
        losses = 0
        has_looked = not self._log.is_fresh(self._log.current_at)
        if has_looked:
            self._log.look_before_commit(always=True)
        while True:
            draft, current_at = self._draft(jobs)
            if draft.is_empty:
                if self._may_be_answered(jobs, current_at, began):
                    return
                self._log.catch_up()
                if self._replica.number == draft.place.number:
                    return
                continue
            if not has_looked and self._turns.give_way():
                has_looked = True
                self._log.look_before_commit(always=self._turns.is_busy)
            if not self._log.trusts(draft.place):
                self._log.catch_up()
                continue
            if self._replica.number != draft.place.number:  # whoever it was that read on
                continue
            if self._append(draft):
                return
            losses += 1
            if losses >= _LOSSES and self._watch.since(began) > self._patience:
                raise Unavailable(
                    f"other nodes wrote to {self._log.name} faster for too long; nothing was written"
                )
            self._turns.lost(losses)
            self._log.catch_up()

    def _may_be_answered(self, jobs: list[Job[Any]], current_at: Mark | None, began: Mark) -> bool:
        """Nothing was written: was the state that answered current when they asked, or need it not have been?"""
        if current_at is not None and current_at.steady > began.steady:
            return True
        if all(isinstance(job.error, Away) for job in jobs):
            return True  # it is asked again
        content = all(job.options.may_be_stale and job.error is None for job in jobs)
        return content and self._log.is_fresh(current_at)

    def _draft(self, jobs: list[Job[Any]]) -> tuple[_Draft, Mark | None]:
        """Run the works on the state as it is here, and say when that was last seen to be current."""
        with self._replica.lock:
            trial = Trial(self._replica)
            try:
                for job in jobs:
                    self._run(job, trial)
                puts, deletes = trial.net()
            finally:
                trial.take_back()
            place = self._log.place()
            draft = _Draft(place, self._header(place), puts, deletes, trial.leave, trial.segment)
            return draft, self._log.current_at

    def _header(self, place: Place) -> Header:
        return Header(
            number=place.number + 1,
            commit=self._new_id(),
            at=self._now(),
            node=self._node,
            snapshot=self._log.snapshot,
            floor=self._log.next_floor,
        )

    def _run(self, job: Job[Any], trial: Trial) -> None:
        wrote = False

        def flush(tx: ObjectsTx) -> None:
            nonlocal wrote
            trial.flush(tx)
            wrote = bool(tx.puts or tx.deletes or tx.moved)

        job.error = None
        try:
            job.value = run_work(job.work, lambda: ObjectsTx(self._replica, self._now()), flush)
            job.wrote = wrote
        except BaseException as error:  # whatever it is belongs to the caller of this work
            job.error, job.wrote = error, False

    def _append(self, draft: _Draft) -> bool:
        header = draft.header
        body = encode(header, draft.puts, draft.deletes, draft.leave, draft.segment)
        if not self._log.append(draft.place, header.commit, body):
            return False
        with self._replica.lock:
            self._log.learn(0, header.floor)
            if self._replica.number == draft.place.number:  # else a reader has brought it already
                gone = [(type(record), record.id) for record in draft.deletes]
                self._replica.apply(header.number, draft.puts, gone, draft.leave, draft.segment)
        self._turns.won()
        self._committed(Committed(header.number, draft.puts, draft.deletes))
        return True
