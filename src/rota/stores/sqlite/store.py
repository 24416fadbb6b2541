"""The SQLite store: a file in WAL mode, durable by default, shared by any number of processes.

Works run in one writer thread, in groups: `begin immediate`, each of several in its savepoint, one commit and one
fsync for all of them; while one group commits the next one gathers. A work that fails takes back only its
own writes. If a group as a whole fails (the disk is full, …) it is rolled back and its works are run again
one by one, so that only those that cannot be done fail. Reads have a connection and a thread of their own,
and never wait for the disk.

`wait` sees commits of this process at once, and those of others by looking at the WAL index in shared memory, which
costs no statement; where that is impossible, by a slow `pragma data_version`. On Linux it looks when another process
tells that it has committed; elsewhere, fifty times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import apsw

from ...domain.errors import Invalid, Unavailable
from ...domain.model import Record
from ..base import PLAIN_COMMIT, Clock, CommitOptions, ReadSoFar, RecordTypes, StoreOfParts, VirtualTime, Work
from ..secrets import without_secrets
from ..sql_files import load
from ..waiting import Waiters
from ..works import Groups, Job, drive, fail, run_work
from .contents import FolderContents
from .file import DataVersion, FileThread, FileWatch, Header, SqliteFile
from .schema import check, migrate, plan
from .tx import SqliteTx, everything, flush

T = TypeVar("T")

_SQL = load("sqlite")
SLOW_POLL_INTERVAL = timedelta(seconds=2)
_WATCHED_POLL_INTERVAL = timedelta(milliseconds=100)
"""Where the WAL is watched: for what the watch may not hear of, such as a file that is gone."""


def commit(db: apsw.Connection, file: SqliteFile, clock: Clock, jobs: list[Job[Any]]) -> None:
    """Run these works in one transaction, and answer every job. If the group fails as a whole, its works are run again
    one by one: only what fails by itself fails. Called in the writer thread."""
    try:
        db.execute(_SQL["begin_write"])
    except apsw.Error as error:
        return _fail_in_words(jobs, file, error)
    try:
        _run(db, clock, jobs)
        if (gone := file.gone()) is not None:
            _roll_back(db)
            return fail(jobs, gone)
        with file.committing(writes=any(job.written for job in jobs)):
            db.execute(_SQL["commit"])
        return None
    except apsw.Error as error:
        _roll_back(db)
        if len(jobs) == 1:
            return _fail_in_words(jobs, file, error)
    for job in jobs:
        commit(db, file, clock, [job])
    return None


def _run(db: apsw.Connection, clock: Clock, jobs: list[Job[Any]]) -> None:
    """Run all works. An error of SQLite ends the group, any other only the work that raised it."""
    write = partial(flush, db, alone=len(jobs) == 1)
    for job in jobs:
        job.error = None
        try:
            job.value, tx = run_work(job.work, lambda: SqliteTx(db, clock.now()), write)
            job.written = tx.written
        except apsw.Error:
            raise
        except BaseException as error:  # whatever it is belongs to the caller of this work
            fail([job], error)


def _fail_in_words(jobs: list[Job[Any]], file: SqliteFile, error: apsw.Error) -> None:
    problem = file.in_words(error)
    problem.__cause__ = error
    fail(jobs, problem)


def _roll_back(db: apsw.Connection) -> None:
    if db.in_transaction:
        db.execute(_SQL["rollback"])


class SqliteStore(StoreOfParts["_OpenFile"]):
    """One file. `busy_timeout`: how long to wait for other processes that write."""

    def __init__(
        self,
        path: str | Path,
        clock: Clock,
        *,
        busy_timeout: timedelta = timedelta(seconds=30),
        poll_interval: timedelta = timedelta(milliseconds=20),
        synchronous: str = "full",
    ) -> None:
        super().__init__()
        self.clock = clock
        self.path = Path(path)
        self.busy_timeout = busy_timeout
        self._poll_interval = poll_interval
        self._settings = _SQL["settings"].format(synchronous=synchronous)

    @classmethod
    def from_url(cls, url: str, clock: Clock) -> SqliteStore:
        """`sqlite:///relative/path`, `sqlite:////absolute/path`, with `?busy_timeout=5` (seconds)."""
        parts = urlsplit(url)
        path = unquote(parts.path).removeprefix("/")
        if parts.scheme != "sqlite" or parts.netloc or not path:
            raise Invalid(
                "store",
                f"{without_secrets(url)!r} names no file",
                "write sqlite:///relative/path or sqlite:////path",
            )
        return cls(path, clock, **_options(url, parts.query))

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def new_parts(self) -> _OpenFile:
        file = SqliteFile(self.path, self.busy_timeout, self.clock.monotonic)
        return _OpenFile(file, self.clock, self.url, self._settings, self._poll_interval)

    async def migrate(self) -> Sequence[str]:
        """Also before `open`, which would do the same without saying what it did."""
        async with self._some_parts() as parts:
            return await parts.migrate()

    async def plan(self) -> str:
        async with self._some_parts() as parts:
            return await parts.plan()

    @asynccontextmanager
    async def _some_parts(self) -> AsyncIterator[_OpenFile]:
        """The parts of the open store, or others for one use."""
        if self.is_open:
            yield self.opened
            return
        parts = self.new_parts()
        try:
            yield parts
        finally:
            await parts.close()

    async def now(self) -> datetime:
        return self.clock.now()

    async def transact(self, work: Work[T], /, options: CommitOptions = PLAIN_COMMIT) -> T:
        return await self.opened.groups.run(work, options)

    async def read(self, work: Work[T], /) -> T:
        return await self.opened.read(lambda db: drive(work, SqliteTx(db, self.clock.now(), writable=False)))

    async def wait(self, until: datetime | None, *, of: RecordTypes | None = None) -> None:
        await self.opened.waiters.wait(until, of)

    async def snapshot(self, report: ReadSoFar | None = None) -> dict[str, list[Record]]:
        return await self.opened.read(lambda db: everything(db, report))


def _options(url: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "busy_timeout":
            raise Invalid(
                "store",
                f"{without_secrets(url)!r} has an unknown option {name!r}",
                "the one option is busy_timeout",
            )
        try:
            options[name] = timedelta(seconds=float(value))
        except ValueError:
            raise Invalid("store", f"busy_timeout is {value!r}", "it is a number of seconds") from None
    return options


class _OpenFile:
    """The parts of an open store: two connections with their threads, the queue of works, and the callers that wait."""

    def __init__(
        self, file: SqliteFile, clock: Clock, url: str, settings: str, poll_interval: timedelta
    ) -> None:
        self._file = file
        self.clock = clock
        self._url = url
        self._settings = settings
        self._poll_interval = poll_interval
        self.writer = FileThread(file, "writer", lambda: self.groups.is_awaited)
        self.reader = FileThread(file, "reader")
        self.contents = FolderContents(file.path.with_name(f"{file.path.name}-artifacts"))
        self._data_version: DataVersion | None = None
        self._watch: FileWatch | None = None
        self.waiters = Waiters(clock.now)
        self.groups = Groups(self.writer.thread, self._commit, lambda written: self.waiters.changed(written))

    async def start(self, *, migrate_now: bool) -> None:
        if migrate_now:
            await self.migrate()
        else:
            await self.reader.look(lambda db: check(db, self._url), self._url)
            await self.writer.open(self._settings)
        self._file.remember_place()
        await self.reader.open(_SQL["reader_settings"])
        await self._start_looking()

    async def _start_looking(self) -> None:
        """Look for commits of others while a caller waits: at the WAL index, or else, rarely, at the data version. It
        is also seen whether the file is still there: the caller that is woken by that meets the error."""
        try:
            header = await self.reader.run(Header)
            look: Callable[[], object] = partial(self._file.commits_of_others, header)
            interval = self._poll_interval
            if self._watch_wal():
                interval = max(interval, _WATCHED_POLL_INTERVAL)
        except OSError:
            self._data_version = DataVersion(self._file)
            look, interval = self._data_version.read, SLOW_POLL_INTERVAL
        self.waiters = Waiters(self.clock.now, lambda: (look(), self._file.whereabouts()), interval)

    def _watch_wal(self) -> bool:
        """Watch the WAL file, except in virtual time, in which nothing happens by itself."""
        if isinstance(asyncio.get_running_loop(), VirtualTime):
            return False
        try:
            self._watch = FileWatch(self._file.wal, lambda: self.waiters.look_now())
        except (OSError, NotImplementedError):  # an event loop need not be able to
            return False
        return True

    async def close(self) -> None:
        await self.groups.finish()
        self.waiters.close()
        if self._watch is not None:
            self._watch.close()
        if self._data_version is not None:
            self._data_version.close()
        await self.reader.close()
        await self.writer.close()
        self.contents.close()

    async def migrate(self) -> Sequence[str]:
        await self.writer.open(self._settings)
        return await self.writer.run(lambda db: migrate(db, self._url, self.clock.now()))

    async def plan(self) -> str:
        try:
            return await self.reader.look(lambda db: plan(db, self._url), self._url)
        except Unavailable as problem:
            if "missing" not in problem.details:
                raise
            return plan(apsw.Connection(":memory:"), self._url)

    async def read(self, function: Callable[[apsw.Connection], T]) -> T:
        """One snapshot for all statements of the function."""

        def reading(db: apsw.Connection) -> T:
            db.execute(_SQL["begin_read"])
            try:
                return function(db)
            finally:
                db.execute(_SQL["commit"])

        return await self.reader.run(reading)

    def _commit(self, jobs: list[Job[Any]]) -> None:
        commit(self.writer.db, self._file, self.clock, jobs)
