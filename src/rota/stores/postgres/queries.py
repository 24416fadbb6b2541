"""The queries of `stores/queries.py` as PostgreSQL statements: which one, and with which values.

Names of the statements in `statements.sql` follow those of the queries. `Statements` is the file with its
words filled in for one schema, and each `:name` numbered as PostgreSQL wants it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import msgspec

from ...domain.model import Record, ScheduleStatus, Task, TaskStatus
from ...domain.task import Update
from ..codec import search_text, tallied
from ..queries import (
    AlarmList,
    ApiKeyList,
    Cursor,
    DueSchedules,
    EventList,
    GateList,
    LostLeases,
    NodeList,
    PastExpiry,
    Query,
    RunList,
    ScheduleByKey,
    ScheduleList,
    SinceQuery,
    TaskList,
    TemplateList,
    TenantList,
    UntoldAlarms,
    WatchedSchedules,
    begins_behind,
)
from ..sql_files import load
from .rows import WHOLE_RECORD, WRITERS, text_of

__all__ = [
    "MANY_PENDING",
    "RecordStatements",
    "Statement",
    "Statements",
    "named",
    "statement_name",
    "values_of",
    "values_of_update",
]

_LOCK = "for update skip locked"
_SORT = re.compile(r"order by [^\n]* (?=limit :limit::bigint\Z)")
_LIMIT = re.compile(r"limit :limit::bigint( \{lock\})?\Z")
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
_LAST = chr(0x10FFFF)
_OPEN_ENDS: dict[type[Query], dict[str, Any]] = {
    DueSchedules: {"at": _END},
    LostLeases: {"at": _END},
    PastExpiry: {"at": _END},
    WatchedSchedules: {"at": _END},
    UntoldAlarms: {"at": _END},
    AlarmList: {"after_at": _END, "after_id": ""},
    TaskList: {"since": _BEGINNING, "after_at": _END, "after_id": ""},
    ScheduleList: {"after_at": _END, "after_id": ""},
    RunList: {"since": _BEGINNING, "until": _END, "after_at": _END, "after_id": ""},
    EventList: {"after_at": _BEGINNING, "after_id": ""},
    TemplateList: {"after": _LAST},
    ApiKeyList: {"after": _LAST},
    TenantList: {"after": ""},
    GateList: {"after": ""},
    NodeList: {"after": ""},
}
"""What stands for a bound that was not given."""

MANY_PENDING = 10_000
"""Up to so many pending tasks are sorted to list them; more are found by walking all tasks, newest first."""

_UNUSUAL = {TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.ARCHIVED}
_NAMES = {each: re.sub(r"(?<!^)([A-Z])", r"_\1", each.__name__).lower() for each in Query.__subclasses__()}


class Statement(NamedTuple):
    """A statement, and the names of its parameters in their order."""

    sql: str
    parameters: tuple[str, ...]

    def args(self, values: Mapping[str, Any]) -> list[Any]:
        return [values[name] for name in self.parameters]


class RecordStatements(NamedTuple):
    """The statements that write one record type, with arrays as parameters; and two that read it."""

    insert: str
    replace: str
    delete: str
    insert_and_commit: str
    replace_and_commit: str
    get: str
    get_many: str
    get_and_lock: str
    all: str


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
        self._update = selects["update_ready_tasks"].replace("{what}", what["update_ready_tasks"])
        self._updates: dict[tuple[str, ...], Statement] = {}
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

    def update(self, update: Update) -> Statement:
        """The statement that applies such an update to ready tasks. Its values are those of `values_of_update`."""
        fields = (*update.set, *update.add, *update.fill)
        if fields not in self._updates:
            self._updates[fields] = named(self._update.replace("{changes}", _changes(update)))
        return self._updates[fields]

    def tally(self, query: Query, by: Sequence[str]) -> Statement:
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
    """What an update of tasks sets."""
    types = WRITERS[Task].types
    changes = ["version = task.version + 1", "changes = task.changes + 1"]
    changes += [f"{name} = :set_{name}::{_through_text(types[name])}" for name in update.set]
    changes += [f"{name} = task.{name} + :add_{name}::{types[name]}" for name in update.add]
    changes += [
        f"{name} = coalesce(task.{name}, (:fill_{name}::jsonb ->> task.kind)::{types[name]})"
        for name in update.fill
    ]
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
    return values | {
        f"fill_{name}": msgspec.json.encode(by_kind).decode() for name, by_kind in update.fill.items()
    }


def _select(sql: str, what: str, lock: str = "") -> Statement:
    return named(sql.replace("{what}", what).replace("{lock}", lock).strip())


def values_of(query: Query, limit: int | None) -> dict[str, Any]:
    """The parameters: the fields of the query, as PostgreSQL takes them, with open ends closed."""
    values: dict[str, Any] = {"limit": limit, **_OPEN_ENDS.get(type(query), {})}
    if isinstance(query, SinceQuery):
        behind = begins_behind(query)
        return values | {
            "tenant": text_of(query.tenant),
            "after_at": behind.at,
            "after_id": text_of(behind.id),
        }
    for name in query.__struct_fields__:
        value = getattr(query, name)
        if isinstance(value, Cursor):
            values |= {"after_at": value.at, "after_id": text_of(value.id)}
        elif isinstance(value, tuple):
            values[name] = [text_of(each) for each in value]
        elif isinstance(value, str):
            values[name] = text_of(search_text(value) if name == "text" else value)
        elif value is not None or name not in values:
            values[name] = value
    return values


def statement_name(query: Query, *, many_pending: bool = False) -> str:
    """The statement that finds what the query asks for: with the best index for the filters given."""
    if isinstance(query, TaskList):
        return _task_list(query, many_pending)
    if isinstance(query, ScheduleByKey) and query.deleted:
        return "schedule_by_key_deleted"
    if isinstance(query, EventList) and query.subject_id is not None:
        return "event_list_of_subject"
    if isinstance(query, ScheduleList | ApiKeyList | AlarmList) and query.tenant is None:
        return f"{_NAMES[type(query)]}_of_all"
    if isinstance(query, ScheduleList) and query.status not in (None, ScheduleStatus.ACTIVE):
        return "schedule_list_unusual"
    return _NAMES[type(query)]


def _task_list(query: TaskList, many_pending: bool) -> str:
    if query.schedule_id is not None:
        return "task_list_of_schedule"
    if query.status in _UNUSUAL:
        return "task_list_unusual"
    if query.status is TaskStatus.EXPIRED:
        return "task_list_expired"
    if query.status is TaskStatus.RUNNING:
        return "task_list_running"
    if query.status is TaskStatus.PENDING and not many_pending:
        return "task_list_pending"
    if query.is_workflow:
        return "task_list_workflow"
    return "task_list_any" if query.status is None else "task_list"
