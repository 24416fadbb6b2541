"""Works inside a transaction of the caller's, on a connection of asyncpg or psycopg that the caller has open.

The writes of the work, and its notification, exist if and only if the caller's transaction commits. Nothing is
committed or rolled back here, except to a savepoint when the work has to be run again. A connection in autocommit,
outside a transaction, commits each statement by itself, as it does for its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from ...domain.errors import Conflict, Invalid
from ..base import Work
from ..works import ATTEMPTS
from .address import Address
from .queries import Statements
from .transaction import DatabaseTransaction
from .tx import SharedTransaction

T = TypeVar("T")
_TAKEN = "23505"


class ForeignConnection(Protocol):
    """A connection of the caller's, with the methods of asyncpg."""

    @property
    def in_transaction(self) -> bool: ...

    async def fetch(self, sql: str, *args: Any) -> list[Any]: ...

    async def execute(self, sql: str, *args: Any) -> Any: ...


class _Asyncpg:
    def __init__(self, connection: Any) -> None:
        self.fetch = connection.fetch
        self.execute = connection.execute
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())


class _Psycopg:
    """A connection of psycopg 3. The calls of a synchronous one are made in a thread."""

    def __init__(self, connection: Any) -> None:
        import psycopg

        _check_psycopg(connection, psycopg)
        self._rows = psycopg.rows.tuple_row
        self._connection = connection
        self._is_sync = isinstance(connection, psycopg.Connection)
        self._cursor: Any = psycopg.RawCursor if self._is_sync else psycopg.AsyncRawCursor
        self._error = psycopg.Error

    @property
    def in_transaction(self) -> bool:
        """Without autocommit the first statement begins a transaction."""
        return not self._connection.autocommit or self._connection.info.transaction_status != 0

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        try:
            if self._is_sync:
                return await asyncio.to_thread(self._fetch, sql, args)
            async with self._cursor(self._connection, row_factory=self._rows) as cursor:
                await cursor.execute(sql, args or None)
                return list(await cursor.fetchall()) if cursor.description else []
        except self._error as error:
            if getattr(error, "sqlstate", None) == _TAKEN:
                raise Conflict(f"an id or a key is taken already ({error})") from error
            raise

    def _fetch(self, sql: str, args: tuple[Any, ...]) -> list[Any]:
        with self._cursor(self._connection, row_factory=self._rows) as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall()) if cursor.description else []

    async def execute(self, sql: str, *args: Any) -> Any:
        await self.fetch(sql, *args)


def _check_psycopg(connection: Any, psycopg: Any) -> None:
    """Refuse connections that do not answer at once, or cannot take every text."""
    if connection.closed:
        return  # psycopg says so itself
    if connection.info.pipeline_status != psycopg.pq.PipelineStatus.OFF:
        raise Invalid("connection", "it is in pipeline mode", "submit outside the pipeline")
    if connection.info.encoding != "utf-8":
        raise Invalid(
            "connection", f"its client_encoding is {connection.info.encoding}", "give one with UTF8"
        )


def _adapted(connection: Any) -> ForeignConnection:
    library = type(connection).__module__.partition(".")[0]
    if library == "asyncpg":
        return _Asyncpg(connection)
    if library == "psycopg" or any(
        base.__module__.startswith("psycopg") for base in type(connection).__mro__
    ):
        return _Psycopg(connection)
    raise Invalid(
        "connection",
        f"{type(connection).__name__} is not one that is known",
        "give a connection of asyncpg or psycopg 3",
    )


async def run_in_foreign_transaction(
    connection: Any, work: Work[T], address: Address, statements: Statements, now: Callable[[], datetime]
) -> T:
    """The work's answer, its writes sent on the connection. After a conflict the work is run again."""
    foreign = _adapted(connection)

    async def attempt() -> T:
        # The caller's transaction is open already, and not ours to end.
        database = DatabaseTransaction(
            foreign, statements, address, found_nothing=set(), damaged_lines=set(), is_open=True
        )
        shared = SharedTransaction(database, now)
        tx = shared.new_tx()
        value = await work(tx)
        if tx.puts or tx.deletes:
            await shared.pending_writes.add(tx)
            await shared.pending_writes.flush()
            await foreign.fetch(statements.plain["notify"].sql, address.channel, "")
        return value

    for _ in range(ATTEMPTS - 1):
        try:
            return await _in_savepoint(foreign, statements, attempt)
        except Conflict:
            continue
    return await _in_savepoint(foreign, statements, attempt)


async def _in_savepoint(
    foreign: ForeignConnection, statements: Statements, attempt: Callable[[], Awaitable[T]]
) -> T:
    """A failed statement spoils the transaction only back to the savepoint."""
    if not foreign.in_transaction:
        return await attempt()
    await foreign.execute(statements.plain["savepoint"].sql)
    try:
        value = await attempt()
    except Exception:
        await foreign.execute(statements.plain["rollback_to_savepoint"].sql)
        raise
    await foreign.execute(statements.plain["release_savepoint"].sql)
    return value
