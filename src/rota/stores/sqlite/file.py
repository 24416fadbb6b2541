"""A SQLite file: it is opened and set up, its failures are put into words, and changes by others are seen.

Failures are told in one sentence that names the file and what to do: `Unavailable` where trying again may
help, `Corrupt` where the file is not what it should be.

`Header` reads how many commits the WAL index has counted, of any process. SQLite keeps that in shared memory
(https://sqlite.org/walformat.html#the_wal_index_header). It asks SQLite itself for the address (the documented
`xShmMap` of the file's methods). Opening the `-shm` file by hand would work, too, until it is closed: closing *any*
descriptor of a file drops all POSIX locks that the process has on it, SQLite's included. Our own commits are counted
here, and the rest are the commits of others. A process that has committed opens the `-wal` file and closes it again
(SQLite has no locks on that one), so that a `FileWatch` of another process hears of the commit when it can be seen.

A file that was deleted, moved or replaced while it is open can still be written, and nobody would find what was
written. So each commit and each read looks whether the path, and the paths of its -wal and -shm, still lead to the
files that were opened (a few microseconds). While it is open, SQLite keeps all three.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Event, Lock
from typing import TypeVar

import apsw

from ...domain.errors import Corrupt, StoreError, Unavailable
from ..base import no_store
from ..sql_files import load
from ..threads import Threads

T = TypeVar("T")

_SQL = load("sqlite")
_RETRY = timedelta(milliseconds=10)
_PAUSE = timedelta(milliseconds=1)
_creating = Lock()

Identity = tuple[int, int] | None
"""The device and the number of a file; None if none can be found."""


class SqliteFile:
    """Which file, and how long to wait for others that write to it (by the stopwatch, if there is one)."""

    def __init__(
        self, path: Path, busy_timeout: timedelta, stopwatch: Callable[[], float] | None = None
    ) -> None:
        self.path = path
        self.busy_timeout = busy_timeout
        self._stopwatch = stopwatch or (lambda: 0.0)
        self._opened: dict[str, Identity] = {}
        self._own_commits = 0
        self._is_committing = False
        self._others_seen = 0

    def connect(self, settings: str, is_awaited: Callable[[], bool] = lambda: True) -> apsw.Connection:
        if not self.path.parent.is_dir():
            problem = f"the folder of {self.path} does not exist: create {self.path.parent} first"
            raise Unavailable(problem, is_final=True)
        self._create()
        db = apsw.Connection(str(self.path), statementcachesize=200)
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else statements are planned anew for other values
        try:
            db.execute(settings).fetchall()
        except BaseException:
            db.close()
            raise
        db.set_busy_handler(_Patience(self.busy_timeout, self._stopwatch, is_awaited))
        return db

    def _create(self) -> None:
        """A new file is readable by its owner only; SQLite gives -wal and -shm the mode of the file."""
        path = os.path.realpath(self.path)
        try:
            with (
                _creating
            ):  # else closing it could drop the locks of a connection that another thread has just made
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return
        except OSError as error:
            raise apsw.CantOpenError(str(error)) from error

    def remember_place(self) -> None:
        """Remember the files as they are now, for `gone`. Called when the file is open, before it is used."""
        real = os.path.realpath(self.path)
        paths = [os.path.abspath(self.path), f"{real}-wal", f"{real}-shm"]
        self._opened = {path: _identity(path) for path in paths}

    def whereabouts(self) -> list[Identity]:
        """A value that changes when something happens to one of the files."""
        return [_identity(path) for path in self._opened]

    def gone(self) -> Unavailable | None:
        """The error, if the path of the file, its -wal or its -shm leads to another file by now, or to none."""
        for path, identity in self._opened.items():
            if _identity(path) != identity:
                return Unavailable(
                    f"{path} was deleted, moved or replaced while it was open, so nothing is written to it: put it"
                    " back, or stop what uses the old one and open the store anew",
                    is_final=True,
                )
        return None

    @contextmanager
    def committing(self, *, writes: bool) -> Iterator[None]:
        """Count a commit of our own, and tell the processes that watch the file."""
        self._is_committing = True
        try:
            yield
            self._own_commits += writes
        finally:
            self._is_committing = False
        if writes:
            self._tell()

    def _tell(self) -> None:
        with suppress(OSError):  # then others see it at their next look
            os.close(os.open(self.wal, os.O_RDONLY | os.O_CLOEXEC))

    def commits_of_others(self, header: Header) -> int:
        """The number of commits by other processes, counted from any start. It stays while we commit, since nobody else
        can."""
        if not self._is_committing:
            self._others_seen = header.commits() - self._own_commits
        return self._others_seen

    @property
    def wal(self) -> str:
        """The file to which SQLite writes first."""
        return f"{os.path.realpath(self.path)}-wal"

    def look(self, function: Callable[[apsw.Connection], T], url: str, is_awaited: Callable[[], bool]) -> T:
        """Call a function that reads, with a connection that changes nothing: no file is made, none is put into WAL
        mode."""
        if not self.path.exists():
            raise no_store(url)
        with self.told_in_words():
            db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                db.set_busy_handler(_Patience(self.busy_timeout, self._stopwatch, is_awaited))
                return function(db)
            finally:
                db.close()

    @contextmanager
    def told_in_words(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise self.in_words(error) from error

    def in_words(self, error: apsw.Error) -> StoreError:
        """The error of the contract: what went wrong with the file, and what to do."""
        if (gone := self.gone()) is not None:
            return gone
        path = self.path
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            waited = f"{self.busy_timeout.total_seconds():g} s"
            return Unavailable(
                f"{path} was locked by another process for {waited}: close what holds it, or allow a longer"
                " busy_timeout",
                is_final=True,
            )
        if isinstance(error, apsw.NotADBError):
            return Corrupt(f"{path} is not a SQLite database: choose another file, or move this one away")
        if isinstance(error, apsw.CorruptError):
            return Corrupt(f"{path} is damaged ({error}): restore it from a copy")
        if isinstance(error, apsw.FullError):
            return Unavailable(
                f"there is no space left to write {path}: free some, then try again", is_final=True
            )
        if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.CantOpenError):
            return Unavailable(
                f"{path} cannot be written: the file and its folder must be writable for this user",
                is_final=True,
            )
        return Unavailable(f"reading or writing {path} failed ({error}): check its disk, then try again")


def _identity(path: str) -> Identity:
    try:
        found = os.stat(path)
    except OSError:  # also where it may not be looked at, or leads in a circle
        return None
    return found.st_dev, found.st_ino


class _Patience:
    """Waits for a lock: asks again soon. SQLite's own handler waits ever longer, and loses against processes that come
    later. A pause takes longer than it should, so it is the stopwatch that tells when the time is up; but one that
    stands still, as in virtual time, must not make it wait for ever. When nobody waits for the answer any more, it
    gives up at once: a process that is to end does not wait for the lock."""

    def __init__(
        self, at_most: timedelta, stopwatch: Callable[[], float], is_awaited: Callable[[], bool]
    ) -> None:
        self._at_most = at_most
        self._stopwatch = stopwatch
        self._is_awaited = is_awaited
        self._began = 0.0
        self._never = Event()

    def __call__(self, tries: int) -> bool:
        now = self._stopwatch()
        if tries == 0:
            self._began = now
        is_over = max(tries * _PAUSE, timedelta(seconds=now - self._began)) >= self._at_most
        if is_over or not self._is_awaited():
            return False
        self._never.wait(_PAUSE.total_seconds())
        return True


class FileThread:
    """A connection, and the one thread that uses it. `is_awaited`: whether anyone still waits for what it does."""

    def __init__(self, file: SqliteFile, name: str, is_awaited: Callable[[], bool] | None = None) -> None:
        self.file = file
        self.thread = Threads(1, f"rota-sqlite-{name}")
        self._is_awaited = is_awaited or (lambda: self.thread.is_awaited)
        self._db: apsw.Connection | None = None

    @property
    def db(self) -> apsw.Connection:
        assert self._db is not None, "the connection was opened"
        return self._db

    async def open(self, settings: str) -> None:
        """Open the file in WAL mode, unless it is open. That does not wait for others by itself: it is tried until it
        works or the time is over."""
        tries = int(self.file.busy_timeout / _RETRY)
        with self.file.told_in_words():
            while self._db is None:
                try:
                    self._db = await self.thread.call(self.file.connect, settings, self._is_awaited)
                except apsw.BusyError:
                    if tries <= 0:
                        raise
                    tries -= 1
                    await asyncio.sleep(_RETRY.total_seconds())

    async def look(self, function: Callable[[apsw.Connection], T], url: str) -> T:
        """The same as `SqliteFile.look`, in the thread, before the file is opened."""
        return await self.thread.call(self.file.look, function, url, self._is_awaited)

    async def run(self, function: Callable[[apsw.Connection], T]) -> T:
        """Call a function with the connection, in the thread."""
        return await self.thread.call(self._call, function)

    def _call(self, function: Callable[[apsw.Connection], T]) -> T:
        with self.file.told_in_words():
            value = function(self.db)
        if (gone := self.file.gone()) is not None:
            raise gone
        return value

    async def close(self) -> None:
        """Close the connection, in its own thread, so that all calls before this one are done first."""
        if self._db is not None:
            with self.file.told_in_words():
                await self.thread.call(self._close)
        self.thread.close(wait=True)

    def _close(self) -> None:
        db, self._db = self.db, None
        db.close()


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, up to `xShmMap` (version 2)."""

    _fields_ = [  # ctypes reads it, nobody changes it
        ("version", ctypes.c_int),
        *(
            (name, ctypes.c_void_p)
            for name in ["close", "read", "write", "truncate", "sync", "size", "lock", "unlock"]
        ),
        *(
            (name, ctypes.c_void_p)
            for name in ["check_reserved", "control", "sector_size", "characteristics"]
        ),
        (
            "shm_map",
            ctypes.CFUNCTYPE(
                ctypes.c_int,
                ctypes.c_void_p,
                ctypes.c_int,
                ctypes.c_int,
                ctypes.c_int,
                ctypes.POINTER(ctypes.c_void_p),
            ),
        ),
    ]


class Header:
    """The header of the WAL index of an open connection."""

    _REGION = 32768
    _COUNTER = 8  # where it is in the header

    def __init__(self, db: apsw.Connection) -> None:
        """Raises OSError if there is no such header here: the file is not in WAL mode, or on a strange
        system."""
        file = ctypes.c_void_p()
        db.file_control("main", apsw.SQLITE_FCNTL_FILE_POINTER, ctypes.addressof(file))
        if not file.value:
            raise OSError("the connection has no file")
        methods = ctypes.cast(file, ctypes.POINTER(ctypes.POINTER(_Methods))).contents.contents
        region = ctypes.c_void_p()
        if methods.version < 2 or not methods.shm_map:
            raise OSError("the file system layer has no shared memory")
        if (
            methods.shm_map(file, 0, self._REGION, 0, ctypes.byref(region)) != apsw.SQLITE_OK
            or not region.value
        ):
            raise OSError("the WAL index is not mapped")
        self._address = region.value

    def commits(self) -> int:
        """The number of commits by all processes, counted from any start. Only while the connection is open."""
        return ctypes.c_uint32.from_address(self._address + self._COUNTER).value


_IN_OPEN = 0x20


class FileWatch:
    """Calls `heard` on the event loop when any process has opened a file. Linux only (inotify)."""

    def __init__(self, path: str, heard: Callable[[], None]) -> None:
        """Raises OSError where there is no inotify."""
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError("this system has no inotify")
        self._heard = heard
        self._number: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._number < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be used")
        if libc.inotify_add_watch(self._number, os.fsencode(path), _IN_OPEN) < 0:
            os.close(self._number)
            raise OSError(ctypes.get_errno(), "the file cannot be watched", path)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._number, self._read)

    def _read(self) -> None:
        os.read(self._number, 65536)
        self._heard()

    def close(self) -> None:
        self._loop.remove_reader(self._number)
        os.close(self._number)


class DataVersion:
    """The commits of others by a statement, where there is no header. It needs a connection of its own."""

    def __init__(self, file: SqliteFile) -> None:
        self._db = file.connect(_SQL["reader_settings"])

    def read(self) -> int:
        version: int = self._db.execute(_SQL["data_version"]).get
        return version

    def close(self) -> None:
        self._db.close()
