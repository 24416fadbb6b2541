"""The contract between the engine and a store. A store keeps records. It knows no rule.

The engine decides what a record becomes; a store reads and writes it. Each store is a subclass of `Store`, and one
suite of tests (`tests/conformance`) holds all of them to this page.

**Works.** A work is an `async def work(tx)`. Every write is `await store.transact(work)`. The work reads records
through `tx`, then puts records. The store may run it again after a conflict, and may commit it together with other
works. So a work does nothing else: it awaits nothing but `tx`, does no I/O, and makes no ids and no times. Ids are made
before the work; the time is `tx.now`. A work may remember that it has run before, and only that: its first run may
trust what versions and ids will disprove, and a later run looks.

**Reads come first.** A work may not read after its first `put`, `delete` or `emit`. Writes are buffered, and the store
flushes them when the work ends, one statement per table. A read could not see them, so every store refuses it.

**Versions.** `version` counts the writes of a record; the store moves it by one. A put of version 0 inserts the record.
A put of any other version replaces the stored record, if that still has the same version. `put` returns the record as
it will be stored. A work puts a record at most once.

**Conflicts.** A conflict is a version that is stale, an id that exists already, the key of another living schedule, or
the alias of another template. So is a put that changes a *fixed* column of `codec.py`: the tenant, the `created_at` of
a task, and others that never change. The store raises `Conflict` inside, and runs the work again from the start, with
fresh reads. After a few runs `Conflict` reaches the caller.

**Tenants hold.** A tenant that a work has read, or looked for and not found, is the same when the work's writes are
made; if not, that is a conflict. So no task is written under limits that were changed before. Other records that a work
reads and does not write may have changed by then.

**Order of writes.** The writes of a work are done in this order: deletes, replacements, inserts. Among schedules that
are replaced, the deleted ones come first. So one work can free a key and give it to another schedule.

**Answers.** When `transact` returns, the commit is durable. When it raises `Conflict`, `Corrupt` or an exception of the
work itself, nothing of that work was written; other works of the same commit are unaffected. When it raises
`Unavailable`, the outcome is unknown: the caller repeats the work with the same ids. A store raises nothing else.

**Options.** `transact(work, CommitOptions(...))` says what the caller wants of the commit. The options are hints about
speed and waiting. They change no answer but the age of a read, and a store may ignore each of them.

**Reading.** `store.read(work)` runs a work that only reads: on one consistent snapshot, without a lock or a commit.

**Time.** `store.now()` is the store's own clock, and all nodes of a store agree on it. `tx.now` is that clock when the
run of the work began. If the run had to wait for what it reads, `tx.now` is the time at which the wait began.

**Waiting.** `store.wait(until)` returns at `until`, or sooner if something may have changed since the call. It is a
hint. It may return early for no reason, and it may see a change of another process late, by at most the store's poll
interval. A caller that looks first and waits then misses a change in between, so it starts to wait, then looks. With
`of`, a caller says which types of records it waits for: a store that knows that a commit wrote none of them lets it
wait on. Tasks that run and are not to be cancelled do not count: nobody waits for a claim or a renewed lease. Workers
wait for `PendingTask`: the end of a task is nothing to them.

**Queries.** `tx.find` takes a query type of `queries.py`: each names its filter and its order. Every order ends with
`id`, so that all stores give the same answer. With `lock`, the rows found are locked until the commit, and rows that
another transaction has locked are left out (on stores where transactions overlap).

**Unreadable records.** A record may have been damaged, or written by another program. `get`, `get_many`, `snapshot` and
the queries ScheduleByKey and SchedulesByKeys raise `Corrupt` for it. Every other `find` leaves it out, fills its place
with the next record, logs it once, and adds it to `tx.unreadable`: one bad record never stops a batch. `count` and
`tally` count it.

**Contents.** `store.contents` keeps bytes that are too many for a record, each under a key that is written once. It
knows no records and takes no part in transactions: content is durable when `write` returns, and a record that names it
is written after that. Content that no record names is removed by the janitor.

**What only some stores can do.** `join` works inside a transaction of the caller, `wait_for_writers` outlasts the
transactions of others, `take_role` names this node to the server, `tidy` does upkeep, `prove` and `prove_upkeep` try
the service under the store. `Store` has a default for each. Nobody asks what kind of store it is.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from ..domain.errors import Corrupt, Invalid, Unavailable
from ..domain.model import Event, Record, Task, TaskStatus
from ..domain.task import Update
from .codec import TABLES
from .queries import Query, ReadyTasks, TasksInLine

R = TypeVar("R", bound=Record)
T = TypeVar("T")

RecordTypes = AbstractSet[type[Record]]

RECORD_TYPES = tuple(TABLES)


class PendingTask(Record, frozen=True, kw_only=True):
    """Stands in `of` for those tasks that a worker has something to do for: they are pending, or run and are to be
    cancelled. No record has this type."""


class Clock(Protocol):
    """A wall clock with a stopwatch beside it. A store that has no clock of its own gets the time from it.
    `engine/clock.py` has the real one."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float:
        """Seconds that never step."""
        ...


@runtime_checkable
class VirtualTime(Protocol):
    """An event loop that has its own time, as that of `rota.testing`. Time stands still while someone holds it, and a
    poll is told from a timer after which something happens by itself."""

    def hold(self) -> AbstractContextManager[None]: ...

    def poll_later(
        self, delay: float, callback: Callable[..., object], /, *args: Any
    ) -> asyncio.TimerHandle: ...


class Tx(Protocol):
    """A work's way to the records: it reads, then writes."""

    @property
    def now(self) -> datetime: ...

    @property
    def unreadable(self) -> Sequence[Corrupt]:
        """The records that `find` has left out so far."""
        ...

    async def get(self, type: type[R], id: str, /) -> R | None: ...

    async def get_many(self, type: type[R], ids: Iterable[str], /, *, lock: bool = False) -> dict[str, R]:
        """The records that are there, by id. No ids are no question: nothing is sent. With `lock`, other works that get
        one of them with `lock` wait until this one is committed (on stores where transactions overlap). That is for
        records that many works change: without it, they would meet in conflicts."""
        ...

    async def find(self, query: Query[R], /, limit: int, *, lock: bool = False) -> list[R]: ...

    async def count(self, query: Query[Record], /, *, at_most: int | None = None, lock: bool = False) -> int:
        """How many records `find` would give without a limit. With `at_most` the counting stops there. With `lock`,
        other works that count the same for the same tenant with `lock` wait until this one is committed: among them,
        the number cannot grow unseen."""
        ...

    async def tally(self, query: Query[Record], /, *by: str) -> dict[tuple[str, ...], int]:
        """How many records `find` would give without a limit, by the values of these columns of `codec.py`. A value is
        a text; none is the empty text. For OpenTasks, PastExpiry and ScheduleList."""
        ...

    async def update(
        self, query: ReadyTasks, update: Update, limit: int, /, *, limited: Collection[str] = ()
    ) -> list[Task] | None:
        """Apply an update to the tasks that the query finds, at most `limit` of them. The answer: the tasks as they are
        stored then. None: nothing was changed, since one of them has its `asks_at` at `query.at` or before, or is of
        one of the kinds `limited` and has passed no gate. It does what `find` with a lock, `applied_to` and `put` would
        do; a store may do it in one statement, and commit that at once. So it is the last write of a work."""
        ...

    async def update_lines(self, lines: Mapping[str, int], update: Update, /) -> list[Task] | None:
        """Apply an update, which takes tasks out of their lines, to the first tasks of each of these lines, as many as
        `lines` says, in the order of `TasksInLine` at `tx.now`. The answer: the tasks as they are stored then, in any
        order. None: nothing was changed, since one of them has an `asks_at`, is not available at `tx.now`, or cannot be
        read; the last may be a conflict instead. It does what `find`, `applied_to` and `put` would do; a store may do
        it in one statement. A work asks for it in its first run only, and in a later one finds the tasks."""
        ...

    def put(self, record: R, /, *, was: R | None = None) -> R:
        """Store the record. `was` is the record that it replaces, if the caller has that: then a store need write only
        what differs."""
        ...

    def put_updated(self, tasks: Sequence[Task], update: Update, /) -> list[Task]:
        """Store tasks as they are after the update. They are given as they are stored, and have not ended. It does what
        `applied_to` and `put` of each would do; a store may send the update instead of the tasks."""
        ...

    def delete(self, record: Record, /) -> None: ...

    def emit(self, event: Event, /) -> None:
        """Add an event to the audit."""
        ...


Work = Callable[[Tx], Awaitable[T]]


ReadSoFar = Callable[[int, int], None]
"""Called now and then, in any thread, with how many records have been read, and of how many; of a bucket, how many of
the objects that hold them."""


class CommitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Wishes of a caller about a commit. A store ignores one that makes no difference to it."""

    may_be_stale: bool = False
    """A work that writes nothing may be answered from a state that is as old as the poll interval. The loops of the
    engine allow it: if their answer was too old, a hint follows."""
    own_transaction: bool = False
    """The work shares its commit only with works that ask for the same, so that it waits for no others."""
    fail_if_locked: bool = False
    """If another transaction has locked a row, the work soon raises `Unavailable` (with `is_busy`) instead of a long
    wait."""
    lane: str | None = None
    """Works of different lanes gain nothing from a common commit. Where transactions can overlap, theirs do."""


class Contents(Protocol):
    """Bytes under keys. A key is used for one writing and is never written again."""

    async def write(self, key: str, chunks: Iterator[bytes]) -> None:
        """Keep the bytes. The chunks are taken in another thread, one after the other."""
        ...

    def read(self, key: str, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` up to `stop`, in pieces. `Corrupt` if they are not there."""
        ...

    async def keys(self) -> list[str]:
        """Every key, those of unfinished writings, too."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove contents. It is no error if they are not there."""
        ...


class Proof(NamedTuple):
    """One promise that a store needs of the service under it, tried on the live service: what was tried, whether it
    holds, and what was found."""

    behaviour: str
    holds: bool
    found: str


PLAIN_COMMIT = CommitOptions()
HEARTBEAT = timedelta(seconds=30)


def no_store(url: str) -> Unavailable:
    """The error of `open(migrate=False)` where there is no store."""
    return Unavailable(f"there is no store at {url}", is_final=True, missing=url)


def no_content(url: str, key: str) -> Corrupt:
    """The error of a read where a record names content that is not there."""
    return Corrupt(f"the content {key} is missing in {url}", key=key)


class Store(Protocol):
    """A place that keeps records. Stores inherit from this class, for its defaults."""

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        ...

    async def open(self, *, migrate: bool = True) -> None:
        """Connect. The store is made if there is none, and its schema is brought up to date. With `migrate=False`
        nothing is made or changed: where there is no store, `no_store` is raised."""
        ...

    async def close(self) -> None: ...

    async def migrate(self) -> Sequence[str]:
        """Bring the schema up to date. The answer names the migrations that were applied now. Works before `open`. A
        store without a schema has none."""
        return ()

    async def plan(self) -> str:
        """The SQL that `migrate` would run now, for people to read; empty: nothing. Works before `open`."""
        return ""

    async def now(self) -> datetime: ...

    async def transact(self, work: Work[T], /, options: CommitOptions = PLAIN_COMMIT) -> T: ...

    async def read(self, work: Work[T], /) -> T: ...

    async def wait(self, until: datetime | None, *, of: RecordTypes | None = None) -> None: ...

    @property
    def contents(self) -> Contents:
        """The bytes of large artifacts."""
        ...

    async def snapshot(self, report: ReadSoFar | None = None) -> dict[str, list[Record]]:
        """The whole state, by record type, each sorted by id: for tests and repairs. `report` hears how far it is."""
        ...

    @property
    def heartbeat(self) -> timedelta:
        """How often a node writes down that it is alive: so rarely that an idle store stays idle."""
        return HEARTBEAT

    @property
    def schema(self) -> str | None:
        """The schema of a database that holds the tables, where a database can have several."""
        return None

    async def join(self, connection: Any, work: Work[T], /) -> T:
        """Run a work inside a transaction that the caller has open on a connection. The writes of the work exist if
        and only if that transaction commits. PostgreSQL can; other stores refuse."""
        raise Invalid("connection", f"{self.url} has none to join", "it is for stores at postgresql://")

    async def wait_for_writers(self, at_most: timedelta) -> bool:
        """Wait until every transaction has ended that is writing tasks now; whether all have, within `at_most`. They
        may have read tenants before the last commit. Stores that commit one work after the other have no such
        transactions."""
        return True

    async def take_role(self, role: str) -> None:
        """Tell the server what this node does ("worker"), where a server shows who is connected to it."""
        return

    async def tidy(self) -> None:
        """Do the upkeep that is due: bring up to date what the store keeps beside its records. The engine calls
        it now and then, and nothing depends on when."""
        return

    async def prove(self) -> Sequence[Proof]:
        """Try whether the service under the store keeps the promises that the store relies on. Empty: there is none."""
        return ()

    async def prove_upkeep(self) -> Sequence[Proof]:
        """Try whether the upkeep is done, and whether the caller has the rights to do it."""
        return ()


class OpenParts(Protocol):
    """The parts of a store, which exist while it is open."""

    @property
    def contents(self) -> Contents: ...

    async def start(self, *, migrate_now: bool) -> None:
        """As `Store.open`. If it fails, `close` is called."""
        ...

    async def close(self) -> None:
        """Answer all works that were given, then let go of everything."""
        ...


P = TypeVar("P", bound=OpenParts)


class StoreOfParts(Store, Generic[P]):
    """A store whose parts exist while it is open: `opened`."""

    def __init__(self) -> None:
        self._opened: P | None = None

    @abstractmethod
    def new_parts(self) -> P: ...

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @property
    def opened(self) -> P:
        if self._opened is None:
            raise Unavailable(f"the store at {self.url} is not open", is_final=True)
        return self._opened

    @property
    def contents(self) -> Contents:
        return self.opened.contents

    async def open(self, *, migrate: bool = True) -> None:
        if self._opened is not None:
            return
        parts = self.new_parts()
        try:
            await parts.start(migrate_now=migrate)
        except BaseException:
            await parts.close()
            raise
        self._opened = parts

    async def close(self) -> None:
        """A second call does nothing."""
        parts, self._opened = self._opened, None
        if parts is not None:
            await parts.close()


class BufferedTx(ABC):
    """The part of a `Tx` that all stores share. Writes are checked and gathered here; the store flushes them when the
    work ends."""

    def __init__(self, now: datetime, *, writable: bool = True) -> None:
        self.now = now
        self.unreadable: list[Corrupt] = []
        self.puts: dict[type[Record], dict[str, Record]] = {}
        self.deletes: dict[type[Record], dict[str, Record]] = {}
        self.replaced: dict[type[Record], dict[str, Record]] = {}
        self.updates: list[tuple[Update, list[Task]]] = []  # which made some of the puts
        self.written: set[type[Record]] = set()  # Record: what nobody waits for
        self._writable = writable

    async def update(
        self, query: ReadyTasks, update: Update, limit: int, /, *, limited: Collection[str] = ()
    ) -> list[Task] | None:
        """Found, then changed. A store with statements of its own does better."""
        found = await self.find(query, limit, lock=True)
        for task in found:
            if (not task.passed and task.kind in limited) or (task.asks_at and task.asks_at <= query.at):
                return None
        return self.put_updated(found, update)

    async def update_lines(self, lines: Mapping[str, int], update: Update, /) -> list[Task] | None:
        """Found, then changed. A store with statements of its own does better."""
        found: list[Task] = []
        before = len(self.unreadable)
        for most in sorted(set(lines.values())):
            gates = tuple(sorted(id for id, number in lines.items() if number == most))
            found += await self.find(TasksInLine(gates=gates, most=most, at=self.now), most * len(gates))
        has_other = any(task.asks_at or task.available_at > self.now for task in found)
        if has_other or len(self.unreadable) > before:
            return None
        return self.put_updated(found, update)

    @abstractmethod
    async def find(self, query: Query[Record], /, limit: int, *, lock: bool = False) -> list[Any]:
        """As `Tx.find`."""

    def put(self, record: R, /, *, was: R | None = None) -> R:
        stored = msgspec.structs.replace(record, version=record.version + 1)
        self._gather(self.puts, record, stored)
        if was is not None:
            self.replaced.setdefault(type(record), {})[record.id] = was
        return stored

    def put_updated(self, tasks: Sequence[Task], update: Update, /) -> list[Task]:
        counted = msgspec.structs.replace(update, add={**update.add, "version": 1})
        stored = counted.applied_to(tasks)
        for task in stored:
            self._gather(self.puts, task, task)
        self.updates.append((update, stored))
        return stored

    def delete(self, record: Record, /) -> None:
        self._gather(self.deletes, record, record)

    def emit(self, event: Event, /) -> None:
        self.put(event)

    def reading(self) -> None:
        """Called by every read."""
        if self.written:
            raise AssertionError("a work reads before it writes: what it wrote cannot be read back")

    def writing(self) -> None:
        """Called before every write."""
        if not self._writable:
            raise AssertionError("a work given to read() does not write")

    def _gather(self, into: dict[type[Record], dict[str, Record]], record: Record, stored: Record) -> None:
        self.writing()
        of_type, id = type(record), record.id
        if id in self.puts.get(of_type, ()) or id in self.deletes.get(of_type, ()):
            raise AssertionError(f"a work writes a record once: {of_type.__name__} {id} was written before")
        into.setdefault(of_type, {})[id] = stored
        awaited = awaited_as(stored) if isinstance(stored, Task) else {of_type}
        if not awaited <= self.written:
            self.written |= awaited


_CLAIMED: RecordTypes = frozenset({Record})
_PENDING: RecordTypes = frozenset({Task, PendingTask})
_ENDED: RecordTypes = frozenset({Task})


def awaited_as(task: Task) -> RecordTypes:
    """The types that callers wait for to hear of this task, as it is now. Nobody waits for a claim or a lease."""
    if task.status is TaskStatus.RUNNING and not task.cancel_requested:
        return _CLAIMED
    return _PENDING if task.is_live else _ENDED
