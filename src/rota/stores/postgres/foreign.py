"""Works inside somebody else's transaction: on a connection of asyncpg or psycopg that the caller brings.

What the work writes exists if and only if the caller's transaction commits; so does its notification. Nothing is
committed or rolled back here, except to a savepoint when the work has to be run again. A connection in autocommit,
outside a transaction, commits each statement by itself, as it does for its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ...domain.errors import Conflict, Invalid
from ..base import Work
from ..works import ATTEMPTS
from .address import Address
from .connection import Line
from .queries import Statements
from .tx import PostgresTx, Unwritten

__all__ = ["run_inside"]

T = TypeVar("T")
_TAKEN = "23505"


class Guest(Protocol):
    """What a foreign connection can do for us: as asyncpg says it."""

    @property
    def in_transaction(self) -> bool: ...

    async def fetch(self, sql: str, *args: Any) -> list[Any]: ...

    async def fetchval(self, sql: str, *args: Any) -> Any: ...

    async def execute(self, sql: str, *args: Any) -> Any: ...


class _Asyncpg:
    def __init__(self, connection: Any) -> None:
        self.fetch = connection.fetch
        self.fetchval = connection.fetchval
        self.execute = connection.execute
        self._connection = connection

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())


class _Psycopg:
    """Either kind: the calls of a synchronous connection are made in a thread."""

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
        """Without autocommit the first statement begins one."""
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

    async def fetchval(self, sql: str, *args: Any) -> Any:
        return (await self.fetch(sql, *args))[0][0]

    async def execute(self, sql: str, *args: Any) -> Any:
        await self.fetch(sql, *args)


def _check_psycopg(connection: Any, psycopg: Any) -> None:
    """What it is asked for has to come back at once, and any text has to fit."""
    if connection.closed:
        return  # psycopg says so itself
    if connection.info.pipeline_status != psycopg.pq.PipelineStatus.OFF:
        raise Invalid("connection", "it is in pipeline mode", "submit outside the pipeline")
    if connection.info.encoding != "utf-8":
        raise Invalid(
            "connection", f"its client_encoding is {connection.info.encoding}", "give one with UTF8"
        )


def _guest(connection: Any) -> Guest:
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


async def run_inside(
    connection: Any,
    work: Work[T],
    address: Address,
    statements: Statements,
    new_tx: Callable[[Line, Unwritten], PostgresTx],
) -> T:
    """The work's answer, its writes done on the connection; tried again while it meets conflicts."""
    guest = _guest(connection)

    async def attempt() -> T:
        line = _line(guest, address, statements)
        unwritten = Unwritten(line)
        tx = new_tx(line, unwritten)
        value = await work(tx)
        if tx.puts or tx.deletes:
            await unwritten.add(tx)
            await unwritten.flush()
            await guest.fetch(statements.plain["notify"].sql, address.channel, "")
        return value

    for _ in range(ATTEMPTS - 1):
        try:
            return await _in_savepoint(guest, statements, attempt)
        except Conflict:
            continue
    return await _in_savepoint(guest, statements, attempt)


async def _in_savepoint(guest: Guest, statements: Statements, attempt: Callable[[], Awaitable[T]]) -> T:
    """A failed statement spoils a transaction, but not beyond its savepoint."""
    if not guest.in_transaction:
        return await attempt()
    await guest.execute(statements.plain["savepoint"].sql)
    try:
        value = await attempt()
    except Exception:
        await guest.execute(statements.plain["rollback_to_savepoint"].sql)
        raise
    await guest.execute(statements.plain["release_savepoint"].sql)
    return value


def _line(guest: Guest, address: Address, statements: Statements) -> Line:
    """A line whose transaction is open already, and is not ours to end."""
    line = Line(
        guest,
        statements,
        begin="",
        eager=False,
        channel=address.channel,
        sender="",
        lookahead=set(),
        place=address.place,
    )
    line.is_open = True
    return line
