"""Committing a group of works in one SQLite transaction. Runs in the writer thread."""

from __future__ import annotations

from typing import Any

import apsw

from ..domain.errors import StoreError
from .base import Clock
from .groups import Job
from .sqlite_file import SqliteFile
from .sqlite_tx import SqliteTx, flush
from .statements import load
from .works import run_work

__all__ = ["commit"]

_SQL = load("sqlite")


def commit(db: apsw.Connection, file: SqliteFile, clock: Clock, jobs: list[Job[Any]]) -> None:
    """Answer every job. If the group fails as a whole, its works are run again one by one: only what fails
    by itself fails."""
    try:
        db.execute(_SQL["begin_write"])
    except apsw.Error as error:
        return _fail(jobs, file, error)
    try:
        _run(db, clock, jobs)
        if (gone := file.gone()) is not None:
            _roll_back(db)
            return _answer(jobs, gone)
        db.execute(_SQL["commit"])
        return None
    except apsw.Error as error:
        _roll_back(db)
        if len(jobs) == 1:
            return _fail(jobs, file, error)
    for job in jobs:
        commit(db, file, clock, [job])
    return None


def _run(db: apsw.Connection, clock: Clock, jobs: list[Job[Any]]) -> None:
    """All works. An error of SQLite ends the group, any other only the work that raised it."""
    for job in jobs:
        job.error = None
        try:
            job.value, job.wrote = _run_one(db, clock, job)
        except apsw.Error:
            raise
        except BaseException as error:  # whatever it is belongs to the caller of this work
            job.error, job.wrote = error, False


def _run_one(db: apsw.Connection, clock: Clock, job: Job[Any]) -> tuple[Any, bool]:
    before = db.total_changes()
    value = run_work(job.work, lambda: SqliteTx(db, clock.now()), lambda tx: flush(db, tx))
    return value, db.total_changes() != before


def _fail(jobs: list[Job[Any]], file: SqliteFile, error: apsw.Error) -> None:
    problem = file.in_words(error)
    problem.__cause__ = error
    _answer(jobs, problem)


def _answer(jobs: list[Job[Any]], problem: StoreError) -> None:
    for job in jobs:
        job.error, job.wrote = problem, False


def _roll_back(db: apsw.Connection) -> None:
    if db.in_transaction:
        db.execute(_SQL["rollback"])
