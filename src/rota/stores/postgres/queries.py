"""The queries of `stores/queries.py` as PostgreSQL statements: which one, and with which values.

Names of the statements in `statements.sql` follow those of the queries. `Statements` is the file with its
words filled in for one schema, and each `:name` numbered as PostgreSQL wants it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from ...domain.model import Record, Task
from ...domain.task import Update
from ..codec import tallied
from ..queries import Query, TaskList
from ..sql_files import load
from ..sql_parameters import Parameters, task_list_statement, usual_statement
from .rows import WHOLE_RECORD, WRITERS, text_of
from .task_row import json_of

_LOCK = "for update skip locked"
_SORT = re.compile(r"order by [^\n]* (?=limit :limit::bigint\Z)")
_LIMIT = re.compile(r"limit :limit::bigint( \{lock\})?\Z")
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_PARAMETERS = Parameters(
    {str: text_of, tuple: lambda value: [text_of(each) for each in dict.fromkeys(value)]}
)


class Statement(NamedTuple):
    """A statement, and the names of its parameters in their order."""

    sql: str
    parameters: tuple[str, ...]

    def args(self, values: Mapping[str, Any]) -> list[Any]:
        return [values[name] for name in self.parameters]


class RecordStatements(NamedTuple):
    """The statements that write one record type, with arrays as parameters; and those that read it."""

    insert: str
    replace: str
    delete: str
    insert_and_commit: str
    replace_and_commit: str
    held: str
    get: str
    get_many: str
    get_and_lock: str
    get_and_lock_free: str
    all: str
    number: str


class Statements:
    """All statements for the tables of one schema."""

    def __init__(self, schema: str) -> None:
        sql = {name: text.replace("{schema}", schema) for name, text in load("postgres").items()}
        selects = {name: text for name, text in sql.items() if "{what}" in text}
        self.plain = {name: named(text) for name, text in sql.items() if name not in selects}
        what = {name: _what(text) for name, text in selects.items()}
        self.find = {name: _select(text, what[name]) for name, text in selects.items()}
        self.locked = {name: _select(text, what[name], _LOCK) for name, text in selects.items()}
        self.plain["lock_ready_tasks"] = self.find["lock_ready_tasks"]
        self._updating = {name: selects[name] for name in ("update_ready_tasks", "update_lines")}
        self._update_of_tasks = sql["update_tasks"], sql["update_tasks_and_commit"]
        self._updates: dict[tuple[str, ...], Statement] = {}
        self._updates_of_tasks: dict[tuple[object, ...], tuple[Statement, Statement]] = {}
        self._unsorted = {name: _SORT.sub("", text) for name, text in selects.items()}
        counting = {
            name: text.replace("{what}", "1").replace("{lock}", "") for name, text in self._unsorted.items()
        }
        self.count = {
            name: named(f"select count(*) from ({text}) as found") for name, text in counting.items()
        }
        self.of: dict[type[Record], RecordStatements] = {
            of_type: RecordStatements(
                **{name: named(writer.fill_in(sql[name])).sql for name in RecordStatements._fields}
            )
            for of_type, writer in WRITERS.items()
        }

    def update(self, update: Update, name: str = "update_ready_tasks") -> Statement:
        """The statement that applies such an update to tasks that it finds. Its values are those of
        `values_of_update`."""
        fields = (name, *update.set, *update.add, *update.fill)
        if fields not in self._updates:
            sql = self._updating[name].replace("{what}", WRITERS[Task].what)
            self._updates[fields] = named(sql.replace("{changes}", _changes(update)))
        return self._updates[fields]

    def update_of_tasks(self, update: Update) -> tuple[Statement, Statement]:
        """Two statements that apply such an update to named tasks: a plain one, and one that is a whole commit. Their
        values come from `values_of_update` and `values_of_updated`."""
        fields = (*update.set, *update.add, *update.fill, *update.by_id, update.actor is None)
        if fields not in self._updates_of_tasks:
            words = {
                "{changes}": _changes(update),
                "{arrays}": "".join(f", :by_id_{name}::text[]" for name in update.by_id),
                "{varying}": "".join(f", {name}" for name in update.by_id),
            }
            plain, committing = self._update_of_tasks
            for word, text in words.items():
                plain, committing = plain.replace(word, text), committing.replace(word, text)
            self._updates_of_tasks[fields] = named(plain), named(committing)
        return self._updates_of_tasks[fields]

    def tally(self, query: Query[Record], by: Sequence[str]) -> Statement:
        """Counts what the query finds by these columns: they, and the number."""
        columns = ", ".join(column.name for column in tallied(query, by))
        found = _LIMIT.sub("", self._unsorted[statement_name(query)]).replace("{what}", columns)
        return named(f"select {columns}, count(*) from ({found}) as found group by {columns}")


@cache
def named(sql: str) -> Statement:
    """`:name` becomes `$1`, … in order of appearance."""
    numbers: dict[str, int] = {}
    text = _PARAMETER.sub(lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", sql)
    return Statement(text, tuple(numbers))


def _what(sql: str) -> str:
    return WRITERS[Task].what if ".task" in sql else WHOLE_RECORD


def _changes(update: Update) -> str:
    """The assignments of an update of tasks."""
    types = WRITERS[Task].types
    changes = ["version = task.version + 1"]
    if update.sets_status:
        changes.append("changes = task.changes + 1")
    changes += [f"{name} = :set_{name}::{_through_text(types[name])}" for name in update.set]
    changes += [f"{name} = task.{name} + :add_{name}::{types[name]}" for name in update.add]
    changes += [
        f"{name} = coalesce(task.{name}, (:fill_{name}::jsonb ->> task.kind)::{types[name]})"
        for name in update.fill
    ]
    changes += [f"{name} = given.{name}::{types[name]}" for name in update.by_id]
    if update.actor is not None:
        changes.append("actor = :actor::text")
    return ", ".join(changes)


def _through_text(type: str) -> str:
    return f"text::{type}" if type == "json" else type


def values_of_update(update: Update) -> dict[str, Any]:
    """The parameters: JSON as a text."""
    types = WRITERS[Task].types
    values: dict[str, Any] = {}
    for name, value in update.set.items():
        is_json = types[name] == "json" and value is not None
        values[f"set_{name}"] = msgspec.json.encode(value).decode() if is_json else value
    values |= {f"add_{name}": number for name, number in update.add.items()}
    values["actor"] = update.actor
    return values | {
        f"fill_{name}": msgspec.json.encode(by_kind).decode() for name, by_kind in update.fill.items()
    }


def values_of_updated(update: Update, tasks: Sequence[Task]) -> dict[str, Any]:
    """The parameters for an update of named tasks: their ids and versions, and the values by id. `tasks` are as the
    update made them."""
    values: dict[str, Any] = {
        "ids": [task.id for task in tasks],
        "versions": [task.version - 1 for task in tasks],
    }
    for name in update.by_id:
        values[f"by_id_{name}"] = [json_of(task, getattr(task, name)) for task in tasks]
    return values


def _select(sql: str, what: str, lock: str = "") -> Statement:
    return named(sql.replace("{what}", what).replace("{lock}", lock).strip())


def values_of(query: Query[Record], limit: int | None) -> dict[str, Any]:
    """The parameters: the fields of the query, as PostgreSQL takes them."""
    return _PARAMETERS.of(query, limit)


def statement_name(query: Query[Record], *, many_pending: bool = False) -> str:
    """The statement that finds what the query asks for: with the best index for the filters given."""
    if not isinstance(query, TaskList):
        return usual_statement(query)
    name = task_list_statement(query, many_pending=many_pending)
    return "task_list_any" if name == "task_list" and query.status is None else name
