"""The contract between the engine and a store. A store knows records, versions and indexes; it knows no rule.

**Works.** Every write is `await store.transact(work)`. `work(tx)` is an `async def` that reads, then puts;
it may be run again after a conflict, and may share its commit with other works, so it does nothing else: no
I/O, no waiting on anything but `tx`, no ids or times of its own making. Ids are made before; the time is
`tx.now`. (All that it may remember is that it was run before: the first run may take for granted what versions and ids
will disprove, and later ones look.)

**Reads come first.** After the first `put`, `delete` or `emit` a work may not read: what it wrote is
buffered and flushed when the work ends, one statement per table, so a read could not see it. All stores
enforce this.

**Versions.** A record with `version` 0 is inserted; any other replaces the stored one only if that still
has the same version. The store moves the version by one; `put` returns the record as it will be stored. A
version that is stale, an id that exists already, a living schedule key or a template's alias that is taken raises
`Conflict` inside the store, and the work is run again from the start with fresh reads (a bounded number of times; then
`Conflict` reaches the caller). A record is put at most once in a work. What identifies a record never
changes: its tenant, a task's `created_at` and `schedule_id`, … (the *fixed* columns of `codec.py`); a put
that changes one is a `Conflict`, too. The writes of a work are done in the order: deletes, replacements,
inserts; of schedules that are replaced, first those that are deleted (so a key can be freed and taken in one work).

**Answers.** When `transact` returns, the commit is durable. When it raises `Conflict`, `Corrupt` or any
exception that the work itself raised, nothing of that work was written (other works of the same commit are
unaffected). When it raises `Unavailable`, the outcome is unknown: repeat with the same ids. A store raises
nothing else.

**Options.** `transact(work, CommitOptions(…))` says what the caller wants of the commit: see there.

**Reads.** `store.read(work)` is `transact` for works that only read: one consistent snapshot, no lock, no
write.

**Time.** `store.now()` is the store's own clock; all nodes of a store agree on it. `tx.now` is that clock
when the work's (re-)run began (of a run that had to wait for what it reads: when it began to).

**wait(until)** returns at `until`, or sooner if something may have changed since the call. It is a hint: it
may return early for no reason, and a change elsewhere may be seen late, by at most the store's poll
interval. Whoever looks first and waits then would miss what changed in between: start to wait, then look.

**snapshot()** is the whole state, by record type, each sorted by id: for tests and repairs.

**Indexes** are the query types of `queries.py`: each names its filter and its order. With `lock`, rows that another
transaction holds locked are left out (on stores where transactions overlap), and the rows returned are held
until the commit. Orders end with `id`, so that every store gives the same answer.

**What cannot be read** (a record that something else wrote or damaged) is `Corrupt` where it is asked for by itself:
`get`, `get_many`, ScheduleByKey, `snapshot`. Every other `find` leaves it out, gives what lies behind it instead, says
so once in the log, and notes it in `tx.unreadable`: one bad record never stops a batch. `count` and `tally` count it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import msgspec

from ..domain.errors import Corrupt, Invalid, Unavailable
from ..domain.model import ApiKey, Event, Receipt, Record, Run, Schedule, Step, Task, Template, Tenant
from .queries import (
    ApiKeyList,
    EventQuery,
    OldReceipts,
    Query,
    RunQuery,
    ScheduleQuery,
    TaskQuery,
    TemplateQuery,
    TenantList,
)

__all__ = [
    "PLAIN_COMMIT",
    "RECORD_TYPES",
    "BufferedTx",
    "Clock",
    "CommitOptions",
    "Proof",
    "Store",
    "Tx",
    "Work",
    "no_store",
]

R = TypeVar("R", bound=Record)
T = TypeVar("T")

RECORD_TYPES: tuple[type[Record], ...] = (
    Task,
    Schedule,
    Run,
    Event,
    Template,
    Step,
    Tenant,
    ApiKey,
    Receipt,
)


class Clock(Protocol):
    """Where a store gets the time from, if it has no clock of its own. `engine/clock.py` has the real one."""

    def now(self) -> datetime: ...


class Tx(Protocol):
    """What a work may do."""

    @property
    def now(self) -> datetime: ...

    @property
    def unreadable(self) -> Sequence[Corrupt]:
        """What `find` has left out so far."""
        ...

    async def get(self, type: type[R], id: str, /) -> R | None: ...

    async def get_many(self, type: type[R], ids: Iterable[str], /) -> dict[str, R]: ...

    @overload
    async def find(self, query: TaskQuery, /, limit: int, *, lock: bool = False) -> list[Task]: ...
    @overload
    async def find(self, query: ScheduleQuery, /, limit: int, *, lock: bool = False) -> list[Schedule]: ...
    @overload
    async def find(self, query: RunQuery, /, limit: int, *, lock: bool = False) -> list[Run]: ...
    @overload
    async def find(self, query: EventQuery, /, limit: int, *, lock: bool = False) -> list[Event]: ...

    @overload
    async def find(self, query: TemplateQuery, /, limit: int, *, lock: bool = False) -> list[Template]: ...
    @overload
    async def find(self, query: ApiKeyList, /, limit: int, *, lock: bool = False) -> list[ApiKey]: ...
    @overload
    async def find(self, query: TenantList, /, limit: int, *, lock: bool = False) -> list[Tenant]: ...
    @overload
    async def find(self, query: OldReceipts, /, limit: int, *, lock: bool = False) -> list[Receipt]: ...

    async def count(self, query: Query, /, *, at_most: int | None = None, lock: bool = False) -> int:
        """How many `find` would give without a limit. With `at_most` the counting stops there. With `lock`, whoever
        else counts the same for the same tenant with `lock` waits until this work is committed: among those who do, the
        number cannot grow unseen."""
        ...

    async def tally(self, query: Query, /, *by: str) -> dict[tuple[str, ...], int]:
        """How many `find` would give without a limit, by the values of these columns of `codec.py` (texts; none is
        the empty text). For OpenTasks, PastExpiry and ScheduleList."""
        ...

    def put(self, record: R, /) -> R: ...

    def delete(self, record: Record, /) -> None: ...

    def emit(self, event: Event, /) -> None: ...


Work = Callable[[Tx], Awaitable[T]]


class CommitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants of a commit. A store for which one of them makes no difference takes no notice of it."""

    may_be_stale: bool = False
    """A work that writes nothing may be answered from a state as old as the poll interval. Loops ask so: when their
    answer was too old, a hint follows."""
    own_transaction: bool = False
    """The work shares its commit only with works that ask for the same, so that it waits for no others."""
    fail_if_locked: bool = False
    """A row that somebody else holds is `Unavailable` (with `is_busy`) soon, instead of a long wait."""
    lane: str | None = None
    """Works of different lanes gain nothing from a common commit. Where transactions can overlap, they do."""


class Proof(NamedTuple):
    """One thing that a store needs of the service under it, tried on the live service."""

    behaviour: str
    holds: bool
    found: str


PLAIN_COMMIT = CommitOptions()


def no_store(url: str) -> Unavailable:
    """What `open(migrate=False)` raises where there is no store."""
    return Unavailable(f"there is no store at {url}", is_final=True, missing=url)


class Store(Protocol):
    """One place to keep everything. `url` says which, without secrets.

    Stores inherit from this class: what only some of them can do (from `join` on) has its default here."""

    @property
    def url(self) -> str: ...

    async def open(self, *, migrate: bool = True) -> None:
        """Connect. The store is made if there is none, and its schema is brought up to date, unless told not to
        `migrate`: then what is there stays as it is, and where nothing is, `no_store` is raised."""
        ...

    async def close(self) -> None: ...

    async def migrate(self) -> Sequence[str]:
        """Bring the schema up to date; the names of the migrations that were applied now."""
        ...

    async def plan(self) -> str:
        """What `migrate` would run now, for people to read; empty: nothing. Works before `open`, as `migrate` does."""
        ...

    async def now(self) -> datetime: ...

    async def transact(self, work: Work[T], /, options: CommitOptions = PLAIN_COMMIT) -> T: ...

    async def read(self, work: Work[T], /) -> T: ...

    async def wait(self, until: datetime | None) -> None: ...

    async def snapshot(self) -> dict[str, list[Record]]: ...

    async def join(self, connection: Any, work: Work[T], /) -> T:
        """As `transact`, inside a transaction that is open on a connection of the caller's: what the work writes
        exists if and only if that transaction commits."""
        raise Invalid("connection", f"{self.url} has none to join", "it is for stores at postgresql://")

    async def take_role(self, role: str) -> None:
        """Tell the server what this node does, where a server shows who is connected to it."""
        return

    async def tidy(self) -> None:
        """Put right what the store keeps beside its records. The janitor asks for it now and then."""
        return

    async def prove(self) -> Sequence[Proof]:
        """Try whether the service keeps the promises that the store relies on."""
        return ()

    async def prove_upkeep(self) -> Sequence[Proof]:
        """Try whether housekeeping is done, and may be done by whoever asks."""
        return ()


class BufferedTx:
    """What all stores share: writes gather here, checked, until the work ends and the store flushes them."""

    def __init__(self, now: datetime, *, writable: bool = True) -> None:
        self.now = now
        self.unreadable: list[Corrupt] = []
        self.puts: dict[type[Record], dict[str, Record]] = {}
        self.deletes: dict[type[Record], dict[str, Record]] = {}
        self._writable = writable
        self._wrote = False

    def put(self, record: R, /) -> R:
        stored = msgspec.structs.replace(record, version=record.version + 1)
        self._gather(self.puts, record, stored)
        return stored

    def delete(self, record: Record, /) -> None:
        self._gather(self.deletes, record, record)

    def emit(self, event: Event, /) -> None:
        self.put(event)

    def reading(self) -> None:
        """Called by every read."""
        if self._wrote:
            raise AssertionError("a work reads before it writes: what it wrote cannot be read back")

    def _gather(self, into: dict[type[Record], dict[str, Record]], record: Record, stored: Record) -> None:
        if not self._writable:
            raise AssertionError("a work given to read() does not write")
        of_type = type(record)
        if record.id in self.puts.get(of_type, ()) or record.id in self.deletes.get(of_type, ()):
            raise AssertionError(
                f"a work writes a record once: {of_type.__name__} {record.id} was written before"
            )
        into.setdefault(of_type, {})[record.id] = stored
        self._wrote = True
