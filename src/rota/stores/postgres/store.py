"""The PostgreSQL store: one database, any number of nodes.

Writes run in transactions (read committed, with versions checked by every write), in groups that share a
commit; `find` with a lock leaves out what others have locked. Reads are a snapshot of their own. The time is the
database's. `wait` is woken by NOTIFY. See `postgres_groups.py`, `postgres_tx.py`, `postgres_line.py`,
`postgres_time.py` and `postgres_listen.py` for each.

The database may go away and come back: what is asked meanwhile is `Unavailable`, connections are made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar
from uuid import uuid4

import asyncpg

from ...domain.errors import StoreError, Unavailable
from ...domain.model import Record
from ..base import PLAIN_COMMIT, Clock, CommitOptions, Store, Work
from ..waiting import Waiters
from .address import Address
from .clock import DatabaseClock
from .connection import Line, TooManyQuestions
from .errors import FAILURES, Blocked, in_words, translated
from .foreign import run_inside
from .group_commit import Groups, Lost, Turn
from .listen import Listener
from .queries import Statements
from .schema import check, migrate, plan
from .tx import PostgresTx, Unwritten, everything

__all__ = ["PostgresStore"]

T = TypeVar("T")


class PostgresStore(Store):
    """One schema of one database. `time` replaces the database's clock: for tests in virtual time."""

    def __init__(self, address: Address, clock: Clock, *, time: Clock | None = None) -> None:
        self.address = address
        self.statements = Statements(address.schema)
        self._clock = clock
        self._time = time
        self._opened: _Opened | None = None

    @classmethod
    def from_url(cls, url: str, clock: Clock) -> PostgresStore:
        return cls(Address.parse(url), clock)

    @property
    def url(self) -> str:
        return self.address.shown

    @property
    def schema(self) -> str:
        """Where in the database the tables are."""
        return self.address.schema

    async def open(self, *, migrate: bool = True) -> None:
        if self._opened is not None:
            return
        opened = _Opened(self.address, self.statements, self._clock, self._time)
        try:
            await opened.start(migrate_now=migrate)
        except BaseException:
            await opened.close()
            raise
        self._opened = opened

    async def close(self) -> None:
        """Finish what was handed in, then let go of all connections. A second call does nothing."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    async def migrate(self) -> Sequence[str]:
        """Also before `open`, which would do the same without saying what it did."""
        with translated(self.address.place, "migrating the schema"):
            async with self._connection() as connection, connection.transaction():
                return await migrate(connection, self.statements, self.address.schema, self.url)

    async def plan(self) -> str:
        """The SQL that `migrate` would run now."""
        with translated(self.address.place, "reading the schema"):
            async with self._connection() as connection, connection.transaction():
                return await plan(connection, self.statements, self.address.schema, self.url)

    async def now(self) -> datetime:
        opened = self._use()
        await opened.check_time()
        return opened.time.now()

    async def transact(self, work: Work[T], /, options: CommitOptions = PLAIN_COMMIT) -> T:
        return await self._use().groups.run(work, options)

    async def read(self, work: Work[T], /) -> T:
        opened = self._use()
        return await opened.read(
            lambda turn: work(turn.new_tx(turn.unwritten)), getattr(work, "__code__", None)
        )

    async def join(self, connection: Any, work: Work[T], /) -> T:
        """As `transact`, in the transaction of a connection that the caller brings (asyncpg or psycopg): what the
        work writes exists if and only if that commits."""
        opened = self._use()
        await opened.check_time()
        return await run_inside(connection, work, self.address, self.statements, opened.new_tx)

    async def take_role(self, role: str) -> None:
        """From here on connections say so in `pg_stat_activity`, unless the address says something else."""
        self.address = self.address.in_role(role)
        if self._opened is not None:
            await self._opened.take(self.address)

    async def wait(self, until: datetime | None) -> None:
        opened = self._use()
        opened.listener.start()
        await opened.waiters.wait(until)

    async def snapshot(self) -> dict[str, list[Record]]:
        opened = self._use()
        return await opened.read(lambda turn: everything(turn.line, self.statements), everything)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(**self.address.connect_options())
        try:
            yield connection
        finally:
            with suppress(*FAILURES):
                await connection.close(timeout=5)

    def _use(self) -> _Opened:
        if self._opened is None:
            raise Unavailable(f"the store at {self.url} is not open", is_final=True)
        return self._opened


async def _nothing(turn: Turn) -> None:
    """A turn without works: it sets the clock."""


async def _keep(connection: Any) -> None:
    """A connection comes back as it went: every line ends its own transaction."""


class _Opened:
    """What an open store has: connections, groups of works, the time, and who waits."""

    def __init__(self, address: Address, statements: Statements, clock: Clock, time: Clock | None) -> None:
        self._address = address
        self._statements = statements
        self._sender = uuid4().hex
        self._asked = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._lookahead: set[str] = set()
        self._asks_several: set[object] = {None}
        self._database_clock = DatabaseClock(clock) if time is None else None
        self.time: Clock = time or self._database_clock  # type: ignore[assignment]  # one of the two is there
        self.waiters = Waiters(self.time)
        self.groups = Groups(self.lend, max(1, address.pool - 2), self.waiters.changed)
        self.listener = Listener(address, statements, self._sender, self._heard, self._ask)
        self._pool: asyncpg.Pool[Any] = asyncpg.create_pool(
            min_size=0, max_size=address.pool, reset=_keep, **address.connect_options()
        )

    async def start(self, *, migrate_now: bool) -> None:
        place, schema, shown = self._address.place, self._address.schema, self._address.shown
        with translated(place, "connecting"):
            await self._pool
        with self._answering():
            async with self._connection() as connection:
                with translated(place, "looking at the schema"):
                    async with connection.transaction():
                        if migrate_now:
                            await migrate(connection, self._statements, schema, shown)
                        else:
                            await check(connection, self._statements, shown)
            await self.lend(_nothing)

    async def close(self) -> None:
        """A pool that is closing gives out no more connections: first come all who wait for one."""
        await self.groups.finish()
        self.waiters.close()
        await self.listener.close()
        await self._all_answered.wait()
        try:
            await asyncio.wait_for(self._pool.close(), 10)
        except FAILURES:
            self._pool.terminate()

    async def take(self, address: Address) -> None:
        """Another name for this node: connections that have the old one are replaced as they are used next."""
        if address.name_of_this_node != self._address.name_of_this_node:
            self._address = self.listener.address = address
            self._pool.set_connect_args(**address.connect_options())
            await self._pool.expire_connections()

    def _heard(self) -> None:
        """Somebody else has committed something: most likely a task, so that there is something to lock."""
        self._lookahead.discard("ready_tasks")
        self.waiters.changed()

    async def check_time(self) -> None:
        if self._database_clock is not None and not self._database_clock.is_right():
            with self._answering():
                await self.lend(_nothing)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Meanwhile the store does not close. `Lost` is between us and the groups; others are told what it was."""
        self._asked += 1
        self._all_answered.clear()
        try:
            yield
        except Lost as lost:
            raise lost.error from lost.__cause__
        finally:
            self._asked -= 1
            if not self._asked:
                self._all_answered.set()

    async def lend(self, use: Callable[[Turn], Awaitable[None]], *, patient: bool = False) -> None:
        """One group's turn: what it does not commit is rolled back."""
        begin = self._begin("begin", patient=patient)
        async with self._turn(begin, eager=patient or self._address.pgbouncer) as turn:
            await use(turn)

    def _begin(self, name: str, *, patient: bool) -> str:
        begin = self._statements.plain[name].sql + self._address.begin_suffix
        return f"{begin}; {self._statements.plain['wait_for_locks'].sql}" if patient else begin

    async def read(self, use: Callable[[Turn], Awaitable[T]], what: object) -> T:
        """A snapshot: one statement is one by itself, several need a transaction. `what` is the kind of work; it is
        remembered which kinds ask several. A connection may have died unnoticed in the pool, so that a second one is
        worth a try."""
        with self._answering():
            try:
                return await self._read(use, what)
            except Lost:
                return await self._read(use, what)
            except Blocked:  # only a migration locks out readers
                return await self._read(use, what, patient=True)

    async def _read(self, use: Callable[[Turn], Awaitable[T]], what: object, *, patient: bool = False) -> T:
        if not patient and not self._address.pgbouncer and what not in self._asks_several:
            try:
                async with self._turn("", eager=False, writable=False) as turn:
                    turn.line.allow(1)
                    return await _answer(turn, use)
            except TooManyQuestions:
                self._asks_several.add(what)
        async with self._turn(self._begin("begin_read", patient=patient), eager=True, writable=False) as turn:
            value = await _answer(turn, use)
            await turn.line.commit()
            return value

    @asynccontextmanager
    async def _turn(self, begin: str, *, eager: bool, writable: bool = True) -> AsyncIterator[Turn]:
        async with self._connection() as connection:
            line = self._line(connection, begin, eager)
            try:
                await self._keep_time_right(line)
                yield Turn(line, lambda unwritten: self.new_tx(line, unwritten, writable=writable))
            except (Exception, TooManyQuestions) as error:
                await self._end(line, connection)
                if line.is_lost and line.failure is not None:
                    raise Lost(line.failure) from error
                raise
            except BaseException:
                _throw_away(connection)  # cancelled in the middle of something
                raise
            await self._end(line, connection)

    def _line(self, connection: Any, begin: str, eager: bool) -> Line:
        return Line(
            connection,
            self._statements,
            begin=begin,
            eager=eager,
            channel=self._address.channel,
            sender=self._sender,
            lookahead=self._lookahead,
            place=self._address.place,
        )

    def new_tx(self, line: Line, unwritten: Unwritten, *, writable: bool = True) -> PostgresTx:
        return PostgresTx(line, self._statements, unwritten, self.time.now(), writable=writable)

    async def _keep_time_right(self, line: Line) -> None:
        if self._database_clock is not None:
            await self._database_clock.keep_right(line.clock)

    async def _end(self, line: Line, connection: Any) -> None:
        """Leave the connection as it was found, or throw it away; with it, those that share its fate."""
        with suppress(StoreError):
            await line.roll_back()
        if line.is_lost:
            _throw_away(connection)
            with suppress(asyncpg.InterfaceError):
                await self._pool.expire_connections()

    async def _ask(self, use: Callable[[Any], Awaitable[Any]], *, alone: bool = False) -> Any:
        with self._answering():
            async with self._connection() as connection:
                if alone:
                    return await use(connection)
                async with connection.transaction():
                    return await use(connection)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """One of the pool."""
        timeout = self._address.connect_timeout.total_seconds() + 5
        try:
            connection = await self._pool.acquire(timeout=timeout)
        except FAILURES as error:
            raise Lost(in_words(error, self._address.place, "connecting")) from error
        try:
            yield connection
        finally:
            with suppress(*FAILURES):
                await self._pool.release(connection)


async def _answer(turn: Turn, use: Callable[[Turn], Awaitable[T]]) -> T:
    value = await use(turn)
    if turn.line.failure is not None:
        raise turn.line.failure
    return value


def _throw_away(connection: Any) -> None:
    with suppress(asyncpg.InterfaceError):  # it is closed, so the pool has thrown it away already
        connection.terminate()
