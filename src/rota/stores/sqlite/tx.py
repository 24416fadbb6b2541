"""Transactions on a SQLite connection: reads are statements, writes are gathered and flushed at the end.

`insert`, `replace` and `delete` are the same three statements for every record type; they are composed here
from the columns that `codec.py` lists, so a column is named once and cannot be forgotten in one of them. Where a work
says what a record was, only the columns that differ are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

import apsw
import msgspec

from ...domain.errors import Conflict
from ...domain.model import Record, Schedule, Task, Template
from ..base import BufferedTx, ReadSoFar
from ..codec import TABLES, Column, Table, getter, micros, readable
from ..queries import RECORD_OF, Query
from ..sql_files import load
from .queries import count, find, tally

R = TypeVar("R", bound=Record)
Row = list[Any]

_SQL = load("sqlite")
_AS_A_WHOLE: dict[type[Record], set[str]] = {
    Schedule: {"key", "status", "deleted_at"},
    Template: {"alias_key"},
}
"""A record of which one of these differs is replaced as a whole: those of unique keys, so that all of them are written
in order, and those for which there is a trigger."""
_TAKEN = {apsw.SQLITE_CONSTRAINT_PRIMARYKEY, apsw.SQLITE_CONSTRAINT_UNIQUE}


class _Replacement:
    """The statement that replaces a record of which some columns differ, and its rows: (id, version, fixed columns,
    those columns, body). Indexes are written for the columns that a statement sets, whether they differ or not. Each of
    1,000 schedules that are due at once takes 165 to 171 µs of processor time until its task has started, and 191 to
    201 if all columns are set. With a trigger each edit costs as much as all before it in the commit: 25,000 edits in
    one apply took 295 s when the columns of the trigger were set, too, and take 4."""

    def __init__(self, table: Table[Any], changed: Sequence[Column]) -> None:
        fixed = [column for column in table.columns if column.is_fixed]
        columns = [*fixed, *changed]
        number = {column.name: place for place, column in enumerate(columns, start=3)}
        changes = [
            *(f"{column.name} = ?{number[column.name]}" for column in changed),
            f"body = ?{len(columns) + 3}",
        ]
        self.statement = _SQL["replace"].format(
            table=table.name,
            changes=", ".join(changes),
            unchanged=" and ".join(f"{column.name} is ?{number[column.name]}" for column in fixed),
        )
        self._table = table
        self._values = getter(columns)
        self._times = [place for place, column in enumerate(columns, start=2) if column.is_time]

    def row(self, record: Record) -> Row:
        row = [record.id, record.version, *self._values(record), self._table.encode(record).decode()]
        for place in self._times:
            at = row[place]
            if at is not None:
                row[place] = micros(at)
        return row


class _Statements:
    """The statements for one record type. A row is (id, version, columns, body), the fixed columns first."""

    def __init__(self, table: Table[Any]) -> None:
        self.table = table
        names = [column.name for column in table.columns]
        number = {name: place for place, name in enumerate(("id", "version", *names, "body"), start=1)}
        fixed = [column.name for column in table.columns if column.is_fixed]
        assert names[: len(fixed)] == fixed, f"the fixed columns of {table.name} come first"
        words = {
            "table": table.name,
            "columns": ", ".join(names),
            "values": ", ".join(f"?{place}" for place in number.values()),
            "unchanged": " and ".join(f"{name} is ?{number[name]}" for name in fixed),
        }
        self.insert, self.delete, self.get, self.get_many, self.all, self.number = (
            _SQL[name].format(**words) for name in ("insert", "delete", "get", "get_many", "all", "number")
        )
        self._identifies = 2 + len(fixed)
        self._whole = _Replacement(table, table.columns[len(fixed) :])
        self._parts: dict[tuple[Column, ...], _Replacement] = {}
        self.replace, self.row = self._whole.statement, self._whole.row

    def identity(self, record: Record) -> Row:
        return self.row(record)[: self._identifies]

    def replacement(self, record: Record, was: Record | None) -> _Replacement:
        """The replacement for a record that was so before; None: that is not known."""
        return self._whole if was is None else self.replacement_of(self.table.changed(record, was))

    def replacement_of(self, changed: tuple[Column, ...]) -> _Replacement:
        """The replacement for records that differ in these columns."""
        found = self._parts.get(changed)
        if found is None:
            names = {column.name for column in changed}
            is_part = names.isdisjoint(_AS_A_WHOLE.get(self.table.type, ()))
            found = _Replacement(self.table, changed) if is_part else self._whole
            self._parts[changed] = found
        return found


STATEMENTS = {of_type: _Statements(table) for of_type, table in TABLES.items()}


class SqliteTx(BufferedTx):
    """A work's view of the file."""

    def __init__(self, db: apsw.Connection, now: datetime, *, writable: bool = True) -> None:
        super().__init__(now, writable=writable)
        self._db = db

    async def get(self, type: type[R], id: str, /) -> R | None:
        self.reading()
        row = self._db.execute(STATEMENTS[type].get, (id,)).fetchone()
        return None if row is None else cast("R", TABLES[type].decode(row[0]))

    async def get_many(self, type: type[R], ids: Iterable[str], /, *, lock: bool = False) -> dict[str, R]:
        self.reading()
        wanted = list(ids)
        if not wanted:
            return {}
        bodies = self._db.execute(STATEMENTS[type].get_many, (msgspec.json.encode(wanted).decode(),))
        records = [cast("R", TABLES[type].decode(body)) for (body,) in bodies]
        return {record.id: record for record in records}

    async def find(self, query: Query[Record], /, limit: int, *, lock: bool = False) -> list[Any]:
        self.reading()

        async def bodies(limit: int) -> list[str]:
            return find(self._db, query, limit)

        return await readable(
            query, limit, bodies, partial(map, TABLES[RECORD_OF[type(query)]].decode), self.unreadable
        )

    async def count(self, query: Query[Record], /, *, at_most: int | None = None, lock: bool = False) -> int:
        self.reading()
        return count(self._db, query, at_most)

    async def tally(self, query: Query[Record], /, *by: str) -> dict[tuple[str, ...], int]:
        self.reading()
        return tally(self._db, query, by)


def everything(db: apsw.Connection, report: ReadSoFar | None = None) -> dict[str, list[Record]]:
    """All records, by type, each sorted by id."""
    number = 0 if report is None else sum(db.execute(each.number).get for each in STATEMENTS.values())
    found: dict[str, list[Record]] = {}
    done = 0
    for of_type, table in TABLES.items():
        records = found[table.name] = []
        for (body,) in db.execute(STATEMENTS[of_type].all):
            records.append(table.decode(body))
            done += 1
            if report is not None and (done % 1000 == 0 or done == number):
                report(done, number)
    return found


def flush(db: apsw.Connection, tx: SqliteTx, *, alone: bool = False) -> None:
    """Write what the work gathered: all of it, or nothing and Conflict. `alone`: the transaction has no other work, and
    is itself what is taken back. In a savepoint SQLite keeps the pages as they were, and each statement that has a
    trigger walks through all of them: 25,000 schedules took four minutes instead of two seconds."""
    writes = list(_writes(tx))
    rows = sum(len(rows) for _, rows in writes)
    if rows == 1:  # a single row is all or nothing by itself
        _write(db, writes)
    elif alone:
        with _taken_back(db, "rollback", "begin_write"):
            _write(db, writes)
    elif rows:
        db.execute(_SQL["savepoint"])
        with _taken_back(db, "rollback_work", "release_work"):
            _write(db, writes)
        db.execute(_SQL["release_work"])


@contextmanager
def _taken_back(db: apsw.Connection, *statements: str) -> Iterator[None]:
    """If anything is raised, what was written is taken back. An error of SQLite takes back the whole group."""
    try:
        yield
    except apsw.Error:
        raise
    except BaseException:
        for name in statements:
            db.execute(_SQL[name])
        raise


def _writes(tx: SqliteTx) -> Iterable[tuple[str, list[Row]]]:
    """Statements with their rows, in order: deletes, replacements, inserts. Everything is encoded here."""
    for of_type, records in tx.deletes.items():
        statements = STATEMENTS[of_type]
        yield statements.delete, [statements.identity(record) for record in records.values()]
    inserts = []
    for of_type, records in tx.puts.items():
        statements = STATEMENTS[of_type]
        old = [record for record in records.values() if record.version > 1]
        if of_type is Schedule:
            old.sort(key=_lives)
        was = tx.replaced.get(of_type, {})
        updated = _updated(tx) if of_type is Task else {}
        replacements: dict[str, list[Row]] = {}
        for record in old:
            replacement = updated.get(record.id) or statements.replacement(record, was.get(record.id))
            replacements.setdefault(replacement.statement, []).append(replacement.row(record))
        yield from sorted(replacements.items(), key=lambda each: each[0] != statements.replace)
        if len(old) < len(records):
            new = [statements.row(record) for record in records.values() if record.version == 1]
            inserts.append((statements.insert, new))
    yield from inserts


def _updated(tx: SqliteTx) -> dict[str, _Replacement]:
    """How tasks are replaced that an update has changed, by id: the columns that differ are known."""
    statements = STATEMENTS[Task]
    return {
        task.id: replacement
        for update, tasks in tx.updates
        for replacement in [statements.replacement_of(statements.table.made_of(update.fields))]
        for task in tasks
    }


def _write(db: apsw.Connection, writes: list[tuple[str, list[Row]]]) -> None:
    for statement, rows in writes:
        try:
            changed = sum(_changed(db, statement, row) for row in rows)
        except apsw.ConstraintError as error:
            if getattr(error, "extendedresult", None) not in _TAKEN:
                raise
            raise Conflict(f"an id or a key is taken already ({error})") from error
        if changed != len(rows):
            ids = ", ".join(row[0] for row in rows[:10])
            raise Conflict(f"changed or removed by someone else: one of {ids}")


def _changed(db: apsw.Connection, statement: str, row: Row) -> int:
    """How many rows a statement changed, those of triggers aside. (`executemany` has only the number with those.)"""
    db.execute(statement, row)
    return db.changes()


def _lives(record: Record) -> bool:
    return isinstance(record, Schedule) and record.deleted_at is None
