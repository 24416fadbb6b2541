"""Committing a group of works as one entry of the log. Runs in the store's writer thread.

1. Catch up, unless the state was current a moment ago and nobody else is writing.
2. Run the works on a trial; take it back; encode what remains as entry N+1.
3. If nothing is to be written, the answers count if the state was current: catch up, and if something came, go to 2.
4. Append. If another node has N+1, catch up, pause for a random time that grows, and go to 2: meanwhile more
   works join the next group, so the more nodes contend, the more each commit carries.

A node that wins again and again makes a pause now and then, so that others, who are always one request behind it,
get their turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from ..domain.errors import StoreError, Unavailable
from ..domain.model import Record
from .groups import Job
from .objects_clock import Stopwatch
from .objects_entry import Header, encode
from .objects_log import Log
from .objects_replica import ObjectsTx, Replica, Trial
from .objects_segment import Segment
from .state import Row
from .works import run_work

__all__ = ["Committed", "Committer"]

_WINS_IN_A_ROW = 8


class Committed(NamedTuple):
    """What a commit changed."""

    number: int
    puts: list[Row]
    deletes: list[Record]


class _Draft(NamedTuple):
    number: int
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
        now: Callable[[], datetime],
        refresh: Callable[[], None],
        new_id: Callable[[], str],
        committed: Callable[[Committed], None],
        sleep: Callable[[float], object],
    ) -> None:
        self._replica = replica
        self._log = log
        self._watch = watch
        self._node = node
        self._now = now
        self._refresh = refresh
        self._new_id = new_id
        self._committed = committed
        self._sleep = sleep
        self._wins = 0

    def commit(self, jobs: list[Job[Any]]) -> None:
        """Answer every job."""
        jobs = sorted(jobs, key=lambda job: hasattr(job.work, "goes_last"))
        try:
            self._commit(jobs)
        except StoreError as error:
            for job in jobs:
                job.error, job.wrote = error, False

    def _commit(self, jobs: list[Job[Any]]) -> None:
        self._refresh()
        began = self._watch.mark()
        pauses = self._log.pauses()
        self._look()
        while True:
            draft = self._draft(jobs)
            if draft.is_empty:
                if self._is_current_since(began) or not self._log.catch_up():
                    return
                continue
            if self._append(draft):
                return
            self._wins = 0
            for job in jobs:
                job.wrote = False
            if pauses.exhausted:
                raise Unavailable("other nodes were faster for too long; nothing was written")
            pauses.take()
            self._log.catch_up()

    def _look(self) -> None:
        """Catch up first where a commit would probably be in vain otherwise."""
        if self._wins and self._wins % _WINS_IN_A_ROW == 0:
            self._wins += 1
            self._sleep(random.uniform(0, 2 * self._log.round_trip))
            self._log.catch_up()
        elif self._log.is_contended() or not self._log.is_fresh():
            self._log.catch_up()

    def _is_current_since(self, began: Any) -> bool:
        current_at = self._log.current_at
        return current_at is not None and current_at.steady > began.steady

    def _draft(self, jobs: list[Job[Any]]) -> _Draft:
        """Run the works on the state as it is here."""
        with self._replica.lock:
            trial = Trial(self._replica)
            try:
                for job in jobs:
                    self._run(job, trial)
                puts, deletes = trial.net()
            finally:
                trial.take_back()
            return _Draft(self._replica.number + 1, puts, deletes, trial.leave, trial.segment)

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
        commit = self._new_id()
        header = Header(
            number=draft.number,
            commit=commit,
            at=self._now(),
            node=self._node,
            snapshot=max(self._log.snapshots, default=0),
            floor=self._log.floor,
        )
        body = encode(header, draft.puts, draft.deletes, draft.leave, draft.segment)
        if not self._log.append(draft.number, commit, body):
            return False
        with self._replica.lock:
            if self._replica.number < draft.number:  # else a reader has brought it already
                gone = [(type(record), record.id) for record in draft.deletes]
                self._replica.apply(draft.number, draft.puts, gone, draft.leave, draft.segment)
        self._wins += 1
        self._committed(Committed(draft.number, draft.puts, draft.deletes))
        return True
