"""The whole state in memory: records, versions and indexes. It knows nothing of transactions or time.

`prepare` checks a set of writes against the versions, the fixed columns and the living keys, and encodes them. It
changes nothing. `apply` puts prepared writes in place, and cannot fail. The memory store calls one after the other. The
bucket store prepares, writes its log, and then applies, on every node.

A record is kept as JSON, together with the record object. The object is only for the indexes, which look at values that
cannot be mutated. Every answer is decoded anew, so nobody shares a dict with the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar, cast

from ...domain.errors import Conflict
from ...domain.model import Record, Schedule, Template
from ...domain.template import alias_key
from ..base import RECORD_TYPES
from ..codec import TABLES, Table
from .indexes import INDEXES, Index, IndexEntry

R = TypeVar("R", bound=Record)
Writes = Mapping[type[Record], Mapping[str, Record]]
"""The writes of a transaction: records by type and id."""


class Row(NamedTuple):
    """A record as it is kept: its JSON, and the object for the indexes."""

    record: Record
    body: bytes

    @property
    def table(self) -> Table[Any]:
        return TABLES[type(self.record)]


class Changes(NamedTuple):
    """Writes that were checked and encoded."""

    puts: list[Row]
    deletes: list[Record]


class State:
    """All records of all types."""

    def __init__(self) -> None:
        self._rows: dict[type[Record], dict[str, Row]] = {each: {} for each in RECORD_TYPES}
        self._indexes: dict[type[Record], list[Index]] = {each: [] for each in RECORD_TYPES}
        self.index: dict[str, Index] = {}
        for name, indexed in INDEXES.items():
            self.index[name] = Index(indexed)
            self._indexes[indexed.type].append(self.index[name])

    def peek(self, type: type[R], id: str) -> R:
        """The record as the indexes see it. It is for filters, and is never handed out."""
        return cast("R", self._rows[type][id].record)

    def with_key(self, tenant: str, key: str) -> Iterator[IndexEntry]:
        """The entry of the living schedule that has this key, if there is one."""
        entries = self.index["living_key"].ascending((tenant,), (key,))
        return takewhile(lambda entry: entry[0] == key, entries)

    def prepare(self, puts: Writes, deletes: Writes) -> Changes:
        """The writes, checked and encoded; Conflict if they do not fit the state."""
        gone = [record for of_type in deletes.values() for record in of_type.values()]
        rows = [
            Row(record, TABLES[of_type].encode(record))
            for of_type, records in puts.items()
            for record in records.values()
        ]
        for record in gone:
            self._check_stored(record, record.version)
        for record, _ in rows:
            self._check_put(record)
        self._check_names(gone, [row.record for row in rows])
        return Changes(rows, gone)

    def apply(self, changes: Changes) -> None:
        for record in changes.deletes:
            of_type = type(record)
            self._reindex(of_type, self._rows[of_type].pop(record.id).record, None)
        for row in changes.puts:
            of_type = type(row.record)
            rows = self._rows[of_type]
            old = rows.get(row.record.id)
            rows[row.record.id] = row
            self._reindex(of_type, None if old is None else old.record, row.record)

    def row(self, type: type[Record], id: str) -> Row | None:
        """The record as it is kept."""
        return self._rows[type].get(id)

    def row_of(self, record: Record) -> Row:
        """A record of an index, as it is kept."""
        return self._rows[type(record)][record.id]

    def rows(self, type: type[Record]) -> list[Row]:
        """Every record of a type as it is kept, in no order."""
        return list(self._rows[type].values())

    def all_rows(self) -> list[Row]:
        return [row for rows in self._rows.values() for row in rows.values()]

    def reverse_of(self, changes: Changes) -> Changes:
        """The changes that undo `changes`. Called before these are applied."""
        touched = [*changes.deletes, *(row.record for row in changes.puts)]
        found = [self.row(type(record), record.id) for record in touched]
        inserted = [row.record for row in changes.puts if self.row(type(row.record), row.record.id) is None]
        return Changes([row for row in found if row is not None], inserted)

    def _reindex(self, of_type: type[Record], old: Record | None, new: Record | None) -> None:
        for index in self._indexes[of_type]:
            index.move(old, new)

    def _check_put(self, record: Record) -> None:
        if record.version > 1:
            self._check_stored(record, record.version - 1)
        elif record.id in self._rows[type(record)]:
            raise Conflict(f"{_name(record)} exists already", id=record.id)

    def _check_stored(self, record: Record, version: int) -> None:
        """Check that the record is here, at this version, with the same tenant, creation time, …"""
        row = self._rows[type(record)].get(record.id)
        if row is None:
            raise Conflict(f"{_name(record)} does not exist any more", id=record.id)
        if row.record.version != version:
            raise Conflict(f"{_name(record)} is at version {row.record.version}, not {version}", id=record.id)
        table: Table[Any] = TABLES[type(record)]
        if table.identity(row.record) != table.identity(record):
            raise Conflict(f"{_name(record)} differs in what cannot change", id=record.id)

    def _check_names(self, deletes: list[Record], puts: list[Record]) -> None:
        """A key belongs to one living schedule, and an alias to one template. Deletes are checked first, then
        replacements, then inserts."""
        if not any(isinstance(record, Schedule | Template) for record in puts):
            return
        is_taken: dict[UniqueName, bool] = {}
        for record in deletes:
            is_taken |= dict.fromkeys(self._names_held_by(record), False)
        for record in sorted(puts, key=_order_of_check):
            is_taken |= dict.fromkeys(self._names_held_by(record), False)
            for name in _unique_names(record):
                if is_taken.get(name, self._is_held(name)):
                    raise Conflict(f"{_name(record)}: {name[-1]!r} is taken", id=record.id)
                is_taken[name] = True

    def _names_held_by(self, record: Record) -> list[UniqueName]:
        row = self.row(type(record), record.id)
        return [] if row is None else _unique_names(row.record)

    def _is_held(self, name: UniqueName) -> bool:
        of_type, tenant, text = name
        if of_type is Template:
            return (tenant, text) in self.index["alias"].groups
        return any(self.with_key(tenant, text))


UniqueName = tuple[type[Record], str, str]
"""A name that one record has at a time: its type, its tenant, and the key or the alias."""


def _unique_names(record: Record) -> list[UniqueName]:
    match record:
        case Template():
            return [(Template, record.tenant, alias_key(record.alias))]
        case Schedule(deleted_at=None):
            return [(Schedule, record.tenant, record.key)]
    return []


def _order_of_check(record: Record) -> int:
    """Deleted records come first, then other replacements, then new records."""
    if record.version == 1:
        return 2
    return 1 if _unique_names(record) else 0


def by_table(rows: Iterable[Row]) -> dict[str, list[Record]]:
    """The records of these rows by type, each sorted by id: as `Store.snapshot` gives them."""
    found: dict[str, list[Record]] = {table.name: [] for table in TABLES.values()}
    for row in sorted(rows, key=lambda row: row.record.id):
        found[row.table.name].append(row.table.decode(row.body))
    return found


def _name(record: Record) -> str:
    return f"{type(record).__name__.lower()} {record.id}"
