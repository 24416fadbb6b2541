"""A work's view of PostgreSQL, and the writes that are not sent yet.

Works of a group run one after the other in one `SharedTransaction`. Their writes stay in `PendingWrites` until the
database needs them: before a `find` in that table, before another write of the same record, or at the commit. A `get`
looks there first and remembers its answers: sixteen submits read their tenant once and become one insert. So do sixteen
new schedules, though each looks for its key and counts the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from ...domain.errors import Conflict
from ...domain.model import LIVE, Gate, NodeState, PausedQueue, Record, Schedule, Task
from ...domain.task import Update
from ..base import BufferedTx, PendingTask, ReadSoFar, RecordTypes, awaited_as
from ..codec import TABLES, read_each, readable
from ..queries import RECORD_OF, OpenSchedules, Query, ReadyTasks, ScheduleByKey, SchedulesByKeys, TaskList
from ..sql_parameters import MANY_PENDING
from .queries import Statement, statement_name, values_of, values_of_update
from .rows import WRITERS, text_of
from .task_row import are_columns, read_tasks
from .transaction import DatabaseTransaction, LockedElsewhere, Records, Updates, Writes

R = TypeVar("R", bound=Record)
_OF_NO_CONCERN: RecordTypes = {Record, NodeState}
"""What no other node waits for: claims, renewed leases, heartbeats."""


class PendingWrites:
    """Writes of works that the database has not seen yet."""

    def __init__(self, transaction: DatabaseTransaction) -> None:
        self._transaction = transaction
        self._read: dict[tuple[type[Record], str], Any] = {}
        self._locked: dict[tuple[type[Record], str], Record | None] = {}
        self._least_locked: dict[type[Record], str] = {}
        self.is_first_work = True
        self._puts: Records = {}
        self._replaced: Records = {}
        self._updates: Updates = []
        self._deletes: Records = {}
        self._held: dict[type[Record], dict[str, int]] = {}
        self._told: set[type[Record]] = set()
        self._pending: set[str] = set()
        self.open_schedules: dict[str, int] = {}
        """How many the database has, by tenant, while nobody else may add one."""

    async def get(self, of_type: type[Record], id: str) -> Record | None:
        """A record: as it was written here, as it was read before, or from the database. A new copy each time. (16
        clients submit a task in 95 instead of 191 µs of processor time here, and 38 instead of 84 in the server.)"""
        put = self._puts.get(of_type, {}).get(id)
        if put is not None:
            return cast("Record", TABLES[of_type].decode(TABLES[of_type].encode(put)))
        if id in self._deletes.get(of_type, {}):
            return None
        if (of_type, id) not in self._read:
            statement = self._transaction.statements.of[of_type].get
            rows = await self._transaction.fetch_rows(statement, text_of(id))
            self._read[of_type, id] = rows[0] if rows else None
        row = self._read[of_type, id]
        found = None if row is None else next(iter(WRITERS[of_type].read([row])))
        self.hold(of_type, [id], {} if found is None else {id: found})
        return found

    def hold(self, of_type: type[Record], ids: Iterable[str], found: Mapping[str, Record]) -> None:
        """A work has read these in the database. If they are records that hold, they must be the same whenever writes
        are sent from now on."""
        if TABLES[of_type].holds:
            versions = {text_of(id): found[id].version if id in found else 0 for id in ids}
            self._held.setdefault(of_type, {}).update(versions)

    async def get_locked(self, of_type: type[Record], ids: Iterable[str]) -> list[Record]:
        """Records that stay locked. What an earlier work of the group has locked or written is known: so the works of a
        group that change the same record send it once."""
        wanted = sorted({text_of(id) for id in ids})
        written = self._puts.get(of_type, {}).keys() | self._deletes.get(of_type, {}).keys()
        unknown = [id for id in wanted if (of_type, id) not in self._locked and id not in written]
        if unknown:
            await self._transaction.begin()
            rows = await self._lock(of_type, unknown)
            self._locked.update(dict.fromkeys(((of_type, id) for id in unknown), None))
            self._locked.update({(of_type, found.id): found for found in WRITERS[of_type].read(rows)})
            self._least_locked[of_type] = min(unknown[0], self._least_locked.get(of_type, unknown[0]))
        found = [self._known(of_type, id) for id in wanted]
        return [record for record in found if record is not None]

    async def _lock(self, of_type: type[Record], ids: Sequence[str]) -> list[Any]:
        """The rows with these ids, which are sorted. Every transaction locks the greatest id first. But the works of a
        group come in any order: one that would have to wait out of order begins the next transaction, else two groups
        would wait for each other, up to a second. (1,920 submits of 20 keys by three processes, on a busy machine, took
        25 to 29 s with 75 to 91 transactions rolled back, and take 10 to 15 s with 6 to 11.)"""
        statements = self._transaction.statements.of[of_type]
        least = self._least_locked.get(of_type)
        if self.is_first_work or least is None or ids[-1] < least:
            return await self._transaction.fetch_rows(statements.get_and_lock, ids)
        rows = await self._transaction.fetch_rows(statements.get_and_lock_free, ids)
        if len(rows) < len(ids):
            there = await self._transaction.fetch_rows(statements.get_many, ids)
            if len(there) > len(rows):
                raise LockedElsewhere
        return rows

    def _known(self, of_type: type[Record], id: str) -> Record | None:
        put = self._puts.get(of_type, {}).get(id)
        if put is not None or id in self._deletes.get(of_type, {}):
            return put
        return self._locked[of_type, id]

    async def add(self, tx: BufferedTx) -> None:
        """Take over the writes of a work."""
        self._merge_gates(tx)
        if any(
            self._writes(of_type, records) for of_type, records in (*tx.puts.items(), *tx.deletes.items())
        ):
            await self.flush()
        for of_type, replaced in tx.replaced.items():
            self._replaced.setdefault(of_type, {}).update(replaced)
        self._updates += tx.updates
        for gathered, into in ((tx.puts, self._puts), (tx.deletes, self._deletes)):
            for of_type, records in gathered.items():
                into.setdefault(of_type, {}).update(records)
                for id in records:
                    self._read.pop((of_type, id), None)
                    self._locked.pop((of_type, id), None)
                    self._held.get(of_type, {}).pop(id, None)
        self._told |= tx.written - _OF_NO_CONCERN - {PendingTask}
        if PendingTask in tx.written or self._pending:
            self.note_pending(cast("Iterable[Task]", tx.puts.get(Task, {}).values()))

    def note_pending(self, tasks: Iterable[Task]) -> None:
        """Other workers are told of tasks that are pending when all works are done. Those that a worker has let in by
        its results, and claimed along, are not: else every commit of one worker on limited tasks would wake the others
        for nothing: three took 1.4 to 2 times as long as one, and take 1.1 to 1.3 times as long."""
        for task in tasks:
            (self._pending.add if PendingTask in awaited_as(task) else self._pending.discard)(task.id)

    def claimed(self, tasks: Iterable[Task]) -> None:
        """These were claimed by a statement of its own."""
        self._pending.difference_update(task.id for task in tasks)

    def _merge_gates(self, tx: BufferedTx) -> None:
        """A gate that several works of the group change is written once, as one change: nobody is told its version. (A
        task that waits in a line takes 106 instead of 125 µs of processor time here, and one that 16 clients submit for
        one key 159 instead of 204.)"""
        waiting = self._puts.get(Gate, {})
        for id, gate in list(tx.puts.get(Gate, {}).items()):
            before = waiting.get(id)
            if before is not None and gate.version == before.version + 1:
                waiting[id] = replace(gate, version=before.version)
                del tx.puts[Gate][id]

    def _writes(self, of_type: type[Record], records: dict[str, Record]) -> bool:
        written = self._puts.get(of_type, {}).keys() | self._deletes.get(of_type, {}).keys()
        return not written.isdisjoint(records)

    async def flush_before_query(self, *of_types: type[Record]) -> None:
        """A query of these tables must see the writes to them."""
        if any(of_type in self._puts or of_type in self._deletes for of_type in of_types):
            await self.flush()

    def new_schedules(self) -> list[Schedule] | None:
        """The schedules that are to be inserted; None if others are to be replaced or deleted."""
        if Schedule in self._deletes:
            return None
        schedules = cast("dict[str, Schedule]", self._puts.get(Schedule, {})).values()
        return list(schedules) if all(each.version == 1 for each in schedules) else None

    async def flush(self, *, commit: bool = False) -> None:
        """Send all writes; with `commit`, end the transaction with them."""
        writes = Writes(self._deletes, self._puts, self._replaced, self._updates, self._held)
        told, self._told = self._told, set()
        if commit and self._pending:
            told.add(PendingTask)
        self._puts, self._deletes, self._replaced, self._updates = {}, {}, {}, []
        self.open_schedules.clear()
        await self._transaction.write(writes, commit=commit, told=told)


def _tables_of(query: Query[Record]) -> tuple[type[Record], ...]:
    found = RECORD_OF[type(query)]
    return (found, PausedQueue) if isinstance(query, ReadyTasks) else (found,)


class SharedTransaction:
    """A database transaction in which works run one after the other. Each sees the writes of those before it."""

    def __init__(
        self,
        database: DatabaseTransaction,
        now: Callable[[], datetime],
        *,
        writable: bool = True,
    ) -> None:
        self.database = database
        self.pending_writes = PendingWrites(database)
        self.now = now
        self.writable = writable

    def new_tx(self, *, is_alone: bool = False) -> PostgresTx:
        """For the next work. `is_alone`: it is the only one of the transaction."""
        return PostgresTx(self, is_alone=is_alone)


class PostgresTx(BufferedTx):
    """Reads are statements of the transaction. Writes are gathered."""

    def __init__(self, shared: SharedTransaction, *, is_alone: bool) -> None:
        super().__init__(shared.now(), writable=shared.writable)
        self._is_alone = is_alone
        self._transaction = shared.database
        self._statements = shared.database.statements
        self._pending_writes = shared.pending_writes
        self.has_sent = False
        """Whether writes of this work are in the database by now."""

    async def get(self, type: type[R], id: str, /) -> R | None:
        self.reading()
        return cast("R | None", await self._pending_writes.get(type, id))

    async def get_many(self, type: type[R], ids: Iterable[str], /, *, lock: bool = False) -> dict[str, R]:
        self.reading()
        if lock and self._writable:
            found = await self._pending_writes.get_locked(type, ids)
            return {record.id: cast("R", record) for record in found}
        wanted = [text_of(id) for id in set(ids)]
        if not wanted:
            return {}
        await self._pending_writes.flush_before_query(type)
        rows = await self._transaction.fetch_rows(self._statements.of[type].get_many, wanted)
        records: dict[str, R] = {record.id: record for record in WRITERS[type].read(rows)}
        self._pending_writes.hold(type, wanted, records)
        return records

    async def find(self, query: Query[Record], /, limit: int, *, lock: bool = False) -> list[Any]:
        self.reading()
        if not self._is_found_without_writes(query):
            await self._pending_writes.flush_before_query(*_tables_of(query))
        name = statement_name(query, many_pending=await self._many_pending(query))
        free = self._statements.find[name]

        async def rows(limit: int) -> list[Any]:
            args = free.args(values_of(query, limit))
            fetch = partial(self._transaction.fetch_rows, free.sql, *args)
            if not lock or not self._writable:
                return await fetch()
            if isinstance(query, ReadyTasks):
                fetch_and_lock = partial(self._lock_ready_tasks, query, limit)
            else:
                fetch_and_lock = partial(
                    self._transaction.fetch_rows, self._statements.locked[name].sql, *args
                )
            return await self._transaction.fetch_locked(name, fetch, fetch_and_lock)

        read = WRITERS[RECORD_OF[type(query)]].read
        return await readable(query, limit, rows, read, self.unreadable)

    def _is_found_without_writes(self, query: Query[Record]) -> bool:
        """Whether what is to be written makes no difference to the query: new schedules have other keys."""
        if not isinstance(query, ScheduleByKey | SchedulesByKeys):
            return False
        new = self._pending_writes.new_schedules()
        keys = {query.key} if isinstance(query, ScheduleByKey) else set(query.keys)
        return new is not None and not any(each.tenant == query.tenant and each.key in keys for each in new)

    async def update(
        self, query: ReadyTasks, update: Update, limit: int, /, *, limited: Collection[str] = ()
    ) -> list[Task] | None:
        """One statement, which is the whole commit if there are no other works. (A task that is run takes 31 instead of
        43 µs of processor time here.)"""
        self.reading()
        self.writing()
        await self._pending_writes.flush_before_query(Task)
        statement, values = self._statements.update(update), values_of_update(update)
        changed: list[Task] = []
        asked = limit
        while True:
            limits = {"most": limit - len(changed), "limited": list(limited)}
            args = statement.args(values_of(query, asked) | values | limits)
            rows = await self._transaction.update(statement.sql, args, commit=self._is_alone)
            self.has_sent = True
            if rows[0][1]:
                return changed or None
            found = [row[2:] for row in rows if row[2] is not None]
            if found:
                self.written.add(Record)
            read = read_each(found, read_tasks, self.unreadable)
            changed += read
            self._pending_writes.claimed(read)
            if len(changed) >= limit or (rows[0][0] < asked and len(read) == len(found)):
                return changed
            asked *= 2  # others hold some of the best, or some cannot be read: look behind those

    async def update_lines(self, lines: Mapping[str, int], update: Update, /) -> list[Task] | None:
        """One statement. It may change a task that cannot be read, or meet one that is changed by someone else: that is
        a conflict. Of lines with such a task, that is remembered."""
        self.reading()
        self.writing()
        if not self._transaction.damaged_lines.isdisjoint(lines):
            return None
        await self._pending_writes.flush_before_query(Task)
        statement, values = self._statements.update(update, "update_lines"), values_of_update(update)
        values |= {"gates": list(lines), "numbers": list(lines.values()), "at": self.now}
        rows = await self._transaction.update(statement.sql, statement.args(values), commit=False)
        self.has_sent = True
        number, has_to_ask = rows[0][:2]
        if has_to_ask:
            return None
        changed = read_each([row[2:] for row in rows if row[2] is not None], read_tasks, self.unreadable)
        if self.unreadable:
            self._transaction.damaged_lines.update(lines)
        if len(changed) < number:
            raise self._transaction.fail(Conflict("a task in a line was changed, or cannot be read"))
        if changed:
            self.written |= {Task, PendingTask}
            self._pending_writes.note_pending(changed)
        return changed

    def put_updated(self, tasks: Sequence[Task], update: Update, /) -> list[Task]:
        """The update is sent if all that it changes are columns, else the tasks are. (A task that is run takes 31
        instead of 38 µs of processor time here.)"""
        if are_columns(update.fields):
            return super().put_updated(tasks, update)
        changed = update.applied_to(tasks)
        return [self.put(task, was=was) for task, was in zip(changed, tasks, strict=True)]

    async def _lock_ready_tasks(self, query: ReadyTasks, limit: int) -> list[Any]:
        """Lock as many as there are, up to the limit, also if others hold many in front of them."""
        statement = self._statements.plain["lock_ready_tasks"]
        asked = limit
        while True:
            args = statement.args(values_of(query, asked) | {"most": limit})
            rows = await self._transaction.fetch_rows(statement.sql, *args)
            locked = [row[1:] for row in rows if row[1] is not None]
            if len(locked) >= limit or rows[0][0] < asked:
                return locked
            asked *= 2  # others hold some of the best: look behind those

    async def count(self, query: Query[Record], /, *, at_most: int | None = None, lock: bool = False) -> int:
        self.reading()
        name = statement_name(query)
        is_locked = lock and self._writable
        if is_locked:
            await self._transaction.lock_count(f"{name} {text_of(getattr(query, 'tenant', None) or '')}")
        if isinstance(query, OpenSchedules):
            number = await self._number_of_open_schedules(query, is_locked)
        else:
            await self._pending_writes.flush_before_query(*_tables_of(query))
            number = await self._number(self._statements.count[name], values_of(query, at_most))
        return number if at_most is None else min(number, at_most)

    async def _number_of_open_schedules(self, query: OpenSchedules, is_locked: bool) -> int:
        """The number that the database keeps, plus the schedules of this group that are not flushed yet. The works of a
        group that add schedules ask for it once: that saves a third of the statements of 32 that are created at
        once."""
        new = self._pending_writes.new_schedules()
        if new is None:
            await self._pending_writes.flush()
            new = []
        known = self._pending_writes.open_schedules
        number = known.get(query.tenant) if is_locked else None
        if number is None:
            statement = self._statements.plain["open_schedules_number"]
            number = await self._number(statement, values_of(query, None))
        if is_locked:
            known[query.tenant] = number
        return number + sum(each.is_open and each.tenant == query.tenant for each in new)

    async def _number(self, statement: Statement, values: dict[str, Any]) -> int:
        [number] = await self._transaction.fetch(statement.sql, statement.args(values))
        assert isinstance(number, int)
        return number

    async def tally(self, query: Query[Record], /, *by: str) -> dict[tuple[str, ...], int]:
        self.reading()
        statement = self._statements.tally(query, by)
        await self._pending_writes.flush_before_query(*_tables_of(query))
        rows = await self._transaction.fetch_rows(statement.sql, *statement.args(values_of(query, None)))
        return {tuple(value or "" for value in values): number for *values, number in rows}

    async def _many_pending(self, query: Query[Record]) -> bool:
        if not isinstance(query, TaskList) or query.status not in LIVE or query.schedule_id is not None:
            return False
        statement = self._statements.plain["pending_at_most"]
        return await self._number(statement, {"limit": MANY_PENDING + 1}) > MANY_PENDING


AT_ONCE = 5000


async def read_all(
    transaction: DatabaseTransaction, report: ReadSoFar | None = None
) -> dict[str, list[Record]]:
    """All records, by type, each sorted by id, page by page."""
    statements = transaction.statements
    number = 0
    if report is not None:
        for of_type in TABLES:
            number += (await transaction.fetch_rows(statements.of[of_type].number))[0][0]
    found: dict[str, list[Record]] = {}
    for of_type, table in TABLES.items():
        records = found[table.name] = []
        page, after = AT_ONCE, ""
        while page == AT_ONCE:
            rows = await transaction.fetch_rows(statements.of[of_type].all, after, AT_ONCE)
            records += WRITERS[of_type].read(rows)
            page, after = len(rows), records[-1].id if records else ""
            if report is not None:
                report(sum(map(len, found.values())), number)
    return found
