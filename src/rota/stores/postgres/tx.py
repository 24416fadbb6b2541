"""A work's view of PostgreSQL, and of what the works before it in the same group have written.

Works of a group run one after the other on one line. What each wrote is kept in `Unwritten` until somebody
has to see it in the database: a `find` in that table, another write of the same record, or the commit. A
`get` looks there first, and remembers what it read: sixteen submits read their tenant once and are one insert.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

from ...domain.model import LIVE, Record, Task, TaskStatus
from ..base import BufferedTx
from ..codec import RECORD_OF, TABLES, readable
from ..queries import OpenSchedules, Query, ReadyTasks, TaskList
from .connection import Line, Puts
from .queries import MANY_PENDING, Statements, statement_name, values_of
from .rows import WRITERS, text_of

__all__ = ["PostgresTx", "Unwritten", "everything"]

R = TypeVar("R", bound=Record)


class Unwritten:
    """What works on a line have written and the database has not."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._read: dict[tuple[type[Record], str], str | None] = {}
        self._puts: Puts = {}
        self._deletes: Puts = {}
        self._has_news = False
        self.anything = False

    async def get(self, statement: str, of_type: type[Record], id: str) -> str | bytes | None:
        """The body of a record: as it was written here, or as it was read before, or from the database."""
        put = self._puts.get(of_type, {}).get(id)
        if put is not None:
            return TABLES[of_type].encode(put)
        if id in self._deletes.get(of_type, {}):
            return None
        if (of_type, id) not in self._read:
            bodies = await self._line.fetch(statement, (text_of(id),))
            self._read[of_type, id] = bodies[0] if bodies else None
        return self._read[of_type, id]

    async def add(self, tx: BufferedTx) -> None:
        """Take over what a work wrote."""
        if any(self._holds(of_type, records) for of_type, records in (*tx.puts.items(), *tx.deletes.items())):
            await self.flush()
        for gathered, into in ((tx.puts, self._puts), (tx.deletes, self._deletes)):
            for of_type, records in gathered.items():
                into.setdefault(of_type, {}).update(records)
                self.anything = True
                for id in records:
                    self._read.pop((of_type, id), None)
        self._has_news = self._has_news or _is_news(tx)

    def _holds(self, of_type: type[Record], records: dict[str, Record]) -> bool:
        held = self._puts.get(of_type, {}).keys() | self._deletes.get(of_type, {}).keys()
        return not held.isdisjoint(records)

    async def flush_for(self, of_type: type[Record]) -> None:
        """Before a query of this table."""
        if of_type in self._puts or of_type in self._deletes:
            await self.flush()

    async def flush(self, *, last: bool = False) -> None:
        puts, deletes, news = self._puts, self._deletes, self._has_news
        self._puts, self._deletes, self._has_news = {}, {}, False
        await self._line.write(deletes, puts, last=last, news=news)


def _is_news(tx: BufferedTx) -> bool:
    """Whether others may be waiting for it. Nobody waits for a task to be claimed or its lease to be renewed."""
    if tx.puts.keys() | tx.deletes.keys() != {Task}:
        return bool(tx.puts or tx.deletes)
    puts = cast("Iterable[Task]", tx.puts.get(Task, {}).values())
    return Task in tx.deletes or any(
        task.status is not TaskStatus.RUNNING or task.cancel_requested for task in puts
    )


class PostgresTx(BufferedTx):
    """Reads are statements on the line; writes are gathered."""

    def __init__(
        self,
        line: Line,
        statements: Statements,
        unwritten: Unwritten,
        now: datetime,
        *,
        writable: bool = True,
    ) -> None:
        super().__init__(now, writable=writable)
        self._line = line
        self._statements = statements
        self._unwritten = unwritten

    async def get(self, type: type[R], id: str, /) -> R | None:
        self.reading()
        body = await self._unwritten.get(self._statements.of[type].get, type, id)
        return None if body is None else cast("R", TABLES[type].decode(body))

    async def get_many(self, type: type[R], ids: Iterable[str], /) -> dict[str, R]:
        self.reading()
        await self._unwritten.flush_for(type)
        wanted = [text_of(id) for id in set(ids)]
        if not wanted:
            return {}
        decode = TABLES[type].decode
        records = [
            decode(body) for body in await self._line.fetch(self._statements.of[type].get_many, (wanted,))
        ]
        return {record.id: cast("R", record) for record in records}

    async def find(self, query: Query, /, limit: int, *, lock: bool = False) -> list[Any]:
        self.reading()
        await self._unwritten.flush_for(RECORD_OF[type(query)])
        name = statement_name(query, few_pending=await self._few_pending(query))
        free = self._statements.find[name]

        async def bodies(limit: int) -> list[str]:
            args = free.args(values_of(query, limit))
            look = partial(self._line.fetch, free.sql, args)
            if not lock or not self._writable:
                return await look()
            if isinstance(query, ReadyTasks):
                hold = partial(self._hold_ready_tasks, query, limit)
            else:
                hold = partial(self._line.fetch, self._statements.locked[name].sql, args)
            return await self._line.fetch_locked(name, look, hold)

        return await readable(query, limit, bodies, self.unreadable)

    async def _hold_ready_tasks(self, query: ReadyTasks, limit: int) -> list[str]:
        """As many as there are, up to the limit, however many in front of them others hold."""
        statement = self._statements.plain["hold_ready_tasks"]
        asked = limit
        while True:
            *held, (_, best) = await self._line.fetch_rows(
                statement.sql, *statement.args(values_of(query, asked))
            )
            if len(held) >= limit or best < asked:
                return [body for body, _ in held[:limit]]
            asked *= 2  # others hold some of the best: look behind those

    async def count(self, query: Query, /, *, at_most: int | None = None, lock: bool = False) -> int:
        self.reading()
        await self._unwritten.flush_for(RECORD_OF[type(query)])
        name = statement_name(query)
        if lock and self._writable:
            await self._line.begin()
            await self._line.fetch(
                self._statements.plain["hold_count"].sql,
                (f"{name} {text_of(getattr(query, 'tenant', None) or '')}",),
            )
        if isinstance(query, OpenSchedules):
            statement = self._statements.plain["open_schedules_number"]
        else:
            statement = self._statements.count[name]
        [number] = await self._line.fetch(statement.sql, statement.args(values_of(query, at_most)))
        assert isinstance(number, int)
        return number if at_most is None else min(number, at_most)

    async def tally(self, query: Query, /, *by: str) -> dict[tuple[str, ...], int]:
        self.reading()
        statement = self._statements.tally(query, by)
        await self._unwritten.flush_for(RECORD_OF[type(query)])
        rows = await self._line.fetch_rows(statement.sql, *statement.args(values_of(query, None)))
        return {tuple(value or "" for value in values): number for *values, number in rows}

    async def _few_pending(self, query: Query) -> bool:
        if not isinstance(query, TaskList) or query.status not in LIVE or query.schedule_id is not None:
            return True
        statement = self._statements.plain["pending_at_most"]
        [number] = await self._line.fetch(statement.sql, [MANY_PENDING + 1])
        assert isinstance(number, int)
        return number <= MANY_PENDING


async def everything(line: Line, statements: Statements) -> dict[str, list[Record]]:
    """All records, by type, each sorted by id."""
    tables = " union all ".join(statements.of[of_type].all for of_type in TABLES)
    found: dict[str, list[Record]] = {table.name: [] for table in TABLES.values()}
    kinds = {WRITERS[of_type].name: table for of_type, table in TABLES.items()}
    for name, body in await line.fetch_rows(
        f"select of, body::text from ({tables}) as everything order by id"
    ):
        found[kinds[name].name].append(kinds[name].decode(body))
    return found
