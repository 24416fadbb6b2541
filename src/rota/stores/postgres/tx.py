"""A work's view of PostgreSQL, and the writes that are not sent yet.

Works of a group run one after the other in one `SharedTransaction`. Their writes stay in `PendingWrites` until the
database needs them: before a `find` in that table, before another write of the same record, or at the commit. A `get`
looks there first and remembers its answers: sixteen submits read their tenant once and become one insert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from ...domain.model import LIVE, Gate, Record, Task, TaskStatus
from ..base import BufferedTx
from ..codec import RECORD_OF, TABLES, readable
from ..queries import OpenSchedules, Query, ReadyTasks, TaskList
from .queries import MANY_PENDING, Statements, statement_name, values_of
from .rows import WRITERS, text_of
from .transaction import DatabaseTransaction, Records

__all__ = ["PendingWrites", "PostgresTx", "SharedTransaction", "read_all"]

R = TypeVar("R", bound=Record)


class PendingWrites:
    """Writes of works that the database has not seen yet."""

    def __init__(self, transaction: DatabaseTransaction) -> None:
        self._transaction = transaction
        self._read: dict[tuple[type[Record], str], str | None] = {}
        self._locked: dict[tuple[type[Record], str], str | None] = {}
        self._puts: Records = {}
        self._deletes: Records = {}
        self._must_notify = False

    async def get(self, statement: str, of_type: type[Record], id: str) -> str | bytes | None:
        """The body of a record: as it was written here, as it was read before, or from the database."""
        put = self._puts.get(of_type, {}).get(id)
        if put is not None:
            return TABLES[of_type].encode(put)
        if id in self._deletes.get(of_type, {}):
            return None
        if (of_type, id) not in self._read:
            bodies = await self._transaction.fetch(statement, (text_of(id),))
            self._read[of_type, id] = bodies[0] if bodies else None
        return self._read[of_type, id]

    async def get_locked(
        self, statement: str, of_type: type[Record], ids: Iterable[str]
    ) -> list[str | bytes]:
        """The bodies of records, which stay locked. What an earlier work of the group has locked or written is known:
        so the works of a group that change the same record send it once."""
        wanted = sorted({text_of(id) for id in ids})
        written = self._puts.get(of_type, {}).keys() | self._deletes.get(of_type, {}).keys()
        unknown = [id for id in wanted if (of_type, id) not in self._locked and id not in written]
        if unknown:
            await self._transaction.begin()
            self._locked.update(dict.fromkeys(((of_type, id) for id in unknown), None))
            for body in await self._transaction.fetch(statement, (unknown,)):
                self._locked[of_type, TABLES[of_type].decode(body).id] = body
        found = [self._known(of_type, id) for id in wanted]
        return [body for body in found if body is not None]

    def _known(self, of_type: type[Record], id: str) -> str | bytes | None:
        put = self._puts.get(of_type, {}).get(id)
        if put is not None:
            return TABLES[of_type].encode(put)
        return None if id in self._deletes.get(of_type, {}) else self._locked[of_type, id]

    async def add(self, tx: BufferedTx) -> None:
        """Take over the writes of a work."""
        self._merge_gates(tx)
        if any(self._holds(of_type, records) for of_type, records in (*tx.puts.items(), *tx.deletes.items())):
            await self.flush()
        for gathered, into in ((tx.puts, self._puts), (tx.deletes, self._deletes)):
            for of_type, records in gathered.items():
                into.setdefault(of_type, {}).update(records)
                for id in records:
                    self._read.pop((of_type, id), None)
                    self._locked.pop((of_type, id), None)
        self._must_notify = self._must_notify or _concerns_others(tx)

    def _merge_gates(self, tx: BufferedTx) -> None:
        """A gate that several works of the group change is written once, as one change: nobody is told its version."""
        waiting = self._puts.get(Gate, {})
        for id, gate in list(tx.puts.get(Gate, {}).items()):
            before = waiting.get(id)
            if before is not None and gate.version == before.version + 1:
                waiting[id] = msgspec.structs.replace(gate, version=before.version)
                del tx.puts[Gate][id]

    def _holds(self, of_type: type[Record], records: dict[str, Record]) -> bool:
        held = self._puts.get(of_type, {}).keys() | self._deletes.get(of_type, {}).keys()
        return not held.isdisjoint(records)

    async def flush_before_query(self, of_type: type[Record]) -> None:
        """A query of this table must see the writes to it."""
        if of_type in self._puts or of_type in self._deletes:
            await self.flush()

    async def flush(self, *, commit: bool = False) -> None:
        """Send all writes; with `commit`, end the transaction with them."""
        puts, deletes, notify = self._puts, self._deletes, self._must_notify
        self._puts, self._deletes, self._must_notify = {}, {}, False
        await self._transaction.write(deletes, puts, commit=commit, notify=notify)


def _concerns_others(tx: BufferedTx) -> bool:
    """Whether other nodes may be waiting for these writes. Nobody waits for a claim or a renewed lease."""
    if tx.puts.keys() | tx.deletes.keys() != {Task}:
        return bool(tx.puts or tx.deletes)
    puts = cast("Iterable[Task]", tx.puts.get(Task, {}).values())
    return Task in tx.deletes or any(
        task.status is not TaskStatus.RUNNING or task.cancel_requested for task in puts
    )


class SharedTransaction:
    """A database transaction in which works run one after the other. Each sees the writes of those before it."""

    def __init__(
        self,
        database: DatabaseTransaction,
        statements: Statements,
        now: Callable[[], datetime],
        *,
        writable: bool = True,
    ) -> None:
        self.database = database
        self.pending_writes = PendingWrites(database)
        self._statements = statements
        self._now = now
        self._writable = writable

    def new_tx(self) -> PostgresTx:
        """For the next work."""
        return PostgresTx(
            self.database, self._statements, self.pending_writes, self._now(), writable=self._writable
        )


class PostgresTx(BufferedTx):
    """Reads are statements of the transaction. Writes are gathered."""

    def __init__(
        self,
        transaction: DatabaseTransaction,
        statements: Statements,
        pending_writes: PendingWrites,
        now: datetime,
        *,
        writable: bool = True,
    ) -> None:
        super().__init__(now, writable=writable)
        self._transaction = transaction
        self._statements = statements
        self._pending_writes = pending_writes

    async def get(self, type: type[R], id: str, /) -> R | None:
        self.reading()
        body = await self._pending_writes.get(self._statements.of[type].get, type, id)
        return None if body is None else cast("R", TABLES[type].decode(body))

    async def get_many(self, type: type[R], ids: Iterable[str], /, *, lock: bool = False) -> dict[str, R]:
        self.reading()
        if lock and self._writable:
            statement = self._statements.of[type].get_and_lock
            bodies = await self._pending_writes.get_locked(statement, type, ids)
            return {record.id: cast("R", record) for record in map(TABLES[type].decode, bodies)}
        await self._pending_writes.flush_before_query(type)
        wanted = [text_of(id) for id in set(ids)]
        if not wanted:
            return {}
        decode = TABLES[type].decode
        records = [
            decode(body)
            for body in await self._transaction.fetch(self._statements.of[type].get_many, (wanted,))
        ]
        return {record.id: cast("R", record) for record in records}

    async def find(self, query: Query, /, limit: int, *, lock: bool = False) -> list[Any]:
        self.reading()
        await self._pending_writes.flush_before_query(RECORD_OF[type(query)])
        name = statement_name(query, many_pending=await self._many_pending(query))
        free = self._statements.find[name]

        async def bodies(limit: int) -> list[str]:
            args = free.args(values_of(query, limit))
            fetch = partial(self._transaction.fetch, free.sql, args)
            if not lock or not self._writable:
                return await fetch()
            if isinstance(query, ReadyTasks):
                fetch_and_lock = partial(self._lock_ready_tasks, query, limit)
            else:
                fetch_and_lock = partial(self._transaction.fetch, self._statements.locked[name].sql, args)
            return await self._transaction.fetch_locked(name, fetch, fetch_and_lock)

        return await readable(query, limit, bodies, self.unreadable)

    async def _lock_ready_tasks(self, query: ReadyTasks, limit: int) -> list[str]:
        """Lock as many as there are, up to the limit, also if others hold many in front of them."""
        statement = self._statements.plain["lock_ready_tasks"]
        asked = limit
        while True:
            *locked, (_, best) = await self._transaction.fetch_rows(
                statement.sql, *statement.args(values_of(query, asked))
            )
            if len(locked) >= limit or best < asked:
                return [body for body, _ in locked[:limit]]
            asked *= 2  # others hold some of the best: look behind those

    async def count(self, query: Query, /, *, at_most: int | None = None, lock: bool = False) -> int:
        self.reading()
        await self._pending_writes.flush_before_query(RECORD_OF[type(query)])
        name = statement_name(query)
        if lock and self._writable:
            await self._transaction.begin()
            await self._transaction.fetch(
                self._statements.plain["lock_count"].sql,
                (f"{name} {text_of(getattr(query, 'tenant', None) or '')}",),
            )
        if isinstance(query, OpenSchedules):
            statement = self._statements.plain["open_schedules_number"]
        else:
            statement = self._statements.count[name]
        [number] = await self._transaction.fetch(statement.sql, statement.args(values_of(query, at_most)))
        assert isinstance(number, int)
        return number if at_most is None else min(number, at_most)

    async def tally(self, query: Query, /, *by: str) -> dict[tuple[str, ...], int]:
        self.reading()
        statement = self._statements.tally(query, by)
        await self._pending_writes.flush_before_query(RECORD_OF[type(query)])
        rows = await self._transaction.fetch_rows(statement.sql, *statement.args(values_of(query, None)))
        return {tuple(value or "" for value in values): number for *values, number in rows}

    async def _many_pending(self, query: Query) -> bool:
        if not isinstance(query, TaskList) or query.status not in LIVE or query.schedule_id is not None:
            return False
        statement = self._statements.plain["pending_at_most"]
        [number] = await self._transaction.fetch(statement.sql, [MANY_PENDING + 1])
        assert isinstance(number, int)
        return number > MANY_PENDING


async def read_all(transaction: DatabaseTransaction, statements: Statements) -> dict[str, list[Record]]:
    """All records, by type, each sorted by id."""
    tables = " union all ".join(statements.of[of_type].all for of_type in TABLES)
    found: dict[str, list[Record]] = {table.name: [] for table in TABLES.values()}
    kinds = {WRITERS[of_type].name: table for of_type, table in TABLES.items()}
    for name, body in await transaction.fetch_rows(
        f"select of, body::text from ({tables}) as everything order by id"
    ):
        found[kinds[name].name].append(kinds[name].decode(body))
    return found
