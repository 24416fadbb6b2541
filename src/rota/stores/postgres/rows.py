"""How records become rows of PostgreSQL, and rows records.

Every row has the columns of `codec.py`, and more that people ask for. A task is its columns and a `body` of the rest
(see `task_row`), and a write that changes only columns does not send the body. Other records are whole in their body.

A write of many rows is one statement. Its parameters are arrays, one for each column; but a column that has the same
value in every row (the status, the worker, …: most of them, in most batches) is sent once, as a value. So there is a
statement for each set of columns that vary: `Writer.compose` makes it, and it is kept. With that, `submit_many` takes
44 % less processor time here and 32 % less in the server, and a task that is run takes 20 % less here.

A row to write is (id, version, fixed columns, other columns, body).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from ...domain.model import (
    Alarm,
    ApiKey,
    Artifact,
    Calendar,
    Event,
    Gate,
    NodeState,
    PausedQueue,
    Receipt,
    Record,
    Run,
    Schedule,
    Task,
)
from ...domain.task import ShortHistory, short_history
from ...domain.workflow import Signal, Step
from ..codec import TABLES, Column
from .task_row import COLUMNS_READ, are_alike, bodies_of, body_of, json_of, read_tasks

WHOLE_RECORD = "body::text"
"""The selected columns of a record whose body is all of it."""

_encode = msgspec.json.Encoder().encode


class _SqlColumn(NamedTuple):
    """A column, how to get its value from a record, and its type in PostgreSQL."""

    name: str
    get: Callable[..., Any]
    type: str = "text"
    is_of_history: bool = False
    """Made of a task and its short history."""

    @property
    def is_plain(self) -> bool:
        """Whether it is an attribute of the record, as it is."""
        return isinstance(self.get, attrgetter)


def text_of(value: str) -> str:
    """PostgreSQL's texts cannot hold U+0000."""
    return value.replace("\0", "\ufffd") if "\0" in value else value


def _error(record: Any) -> str | None:
    return None if record.error is None else text_of(str(record.error))


def _array(values: Sequence[str]) -> str | None:
    """An array as a text, since an array of arrays has to be a rectangle; None if it is empty."""
    if not values:
        return None
    quoted = ('"' + text_of(value).replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values)
    return "{" + ",".join(quoted) + "}"


def _as_json(value: Any) -> str:
    return _encode(value).decode()


def _plain(names: str, type: str = "text") -> tuple[_SqlColumn, ...]:
    return tuple(_SqlColumn(name, attrgetter(name), type) for name in names.split())


_EXTRA_COLUMNS: dict[type[Record], tuple[_SqlColumn, ...]] = {
    Task: (
        *_plain("attempt max_retries passed", "integer"),
        *_plain("started_at updated_at slot_until", "timestamptz"),
        *_plain("timeout", "interval"),
        *_plain("lease_id"),
        _SqlColumn("asks_at", lambda task: task.asks_at, "timestamptz"),
        _SqlColumn("is_parked", lambda task: bool(task.waits_for), "boolean"),
        _SqlColumn("error", _error),
        _SqlColumn("tags", lambda task: _array(task.tags) if task.tags else None, "text[]"),
        _SqlColumn("retry_policy", lambda task: json_of(task, task.retry_policy), "json"),
        _SqlColumn("output", lambda task: json_of(task, task.output), "json"),
        _SqlColumn("progress", lambda task: json_of(task, task.progress), "json"),
        _SqlColumn("changes", lambda task, history: history.number, "integer", is_of_history=True),
        _SqlColumn("actor", lambda task, history: history.actor, is_of_history=True),
        _SqlColumn("created_by", lambda task, history: history.creator, is_of_history=True),
    ),
    Schedule: (
        _SqlColumn("description", lambda schedule: text_of(schedule.description)),
        _SqlColumn("timing", lambda schedule: _as_json(schedule.timing), "json"),
        _SqlColumn("target", lambda schedule: _as_json(schedule.target), "json"),
        _SqlColumn("tags", lambda schedule: _array(getattr(schedule.target, "tags", ())), "text[]"),
        *_plain("next_run_at last_run_at updated_at", "timestamptz"),
        *_plain("run_count", "bigint"),
        *_plain("missed_run_policy overlap_policy created_by"),
    ),
    Run: (
        *_plain("trigger reason target_type target_id"),
        *_plain("started_at created_at", "timestamptz"),
        _SqlColumn("error", _error),
    ),
    Event: _plain("actor action subject_type"),
    ApiKey: (
        _SqlColumn("name", lambda key: text_of(key.name)),
        *_plain("role created_by revoked_by"),
        *_plain("created_at revoked_at", "timestamptz"),
    ),
    Receipt: _plain("status", "integer"),
    NodeState: (
        _SqlColumn("host", lambda node: text_of(node.host)),
        *_plain("pid", "bigint"),
        *_plain("release"),
    ),
    PausedQueue: (
        _SqlColumn("note", lambda paused: text_of(paused.note)),
        *_plain("paused_at", "timestamptz"),
        _SqlColumn("paused_by", lambda paused: text_of(paused.paused_by)),
    ),
    Gate: (
        _SqlColumn("key", lambda gate: None if gate.key is None else text_of(gate.key)),
        *_plain("inside", "integer"),
        *_plain("has_line", "boolean"),
        *_plain("next_at", "timestamptz"),
    ),
    Artifact: (*_plain("media_type"), *_plain("size", "bigint"), *_plain("created_at", "timestamptz")),
    Step: (
        _SqlColumn("key", lambda step: text_of(step.key)),
        *_plain("kind"),
        *_plain("due_at completed_at", "timestamptz"),
    ),
    Calendar: _plain("updated_at", "timestamptz"),
    Signal: (_SqlColumn("name", lambda signal: text_of(signal.name)),),
    Alarm: (
        *_plain("rule subject_type"),
        _SqlColumn("subject", lambda alarm: text_of(alarm.subject)),
        _SqlColumn("detail", lambda alarm: text_of(alarm.detail)),
    ),
}
_TYPES = {"priority": "smallint", "cancel_requested": "boolean", "is_workflow": "boolean"}
_GENERATED = {"returned_at"}
"""Columns that the database makes of others."""
_NAMES: dict[type[Record], str] = {Run: "schedule_run"}


def _with_type(column: Column) -> _SqlColumn:
    get = column.get
    if column.attribute is not None and column.attribute != column.name:
        get = lambda record: column.get(record)  # noqa: E731  not plain: its name is another
    if column.name in ("search", "alias_key"):
        get = lambda record: text_of(column.get(record))  # noqa: E731  a def would need the same closure
    return _SqlColumn(column.name, get, "timestamptz" if column.is_time else _TYPES.get(column.name, "text"))


Histories = dict[str, ShortHistory]
Columns = tuple[Sequence[_SqlColumn], Callable[[Any], tuple[Any, ...]]]


class Rows(NamedTuple):
    """Values for a statement: which columns vary (those are arrays), and the parameters in order."""

    varying: tuple[bool, ...]
    parameters: list[Any]
    ids: Sequence[str]


class Writer:
    """The statements and the rows of one record type."""

    def __init__(self, of_type: type[Record]) -> None:
        table = TABLES[of_type]
        columns = [column for column in table.columns if column.name not in _GENERATED]
        fixed = [_with_type(column) for column in columns if column.is_fixed]
        others = [_with_type(column) for column in columns if not column.is_fixed]
        others += _EXTRA_COLUMNS.get(of_type, ())
        self.table = table
        self.name = _NAMES.get(of_type, table.name)
        self._columns = [
            _SqlColumn("id", attrgetter("id")),
            _SqlColumn("version", attrgetter("version"), "bigint"),
            *fixed,
            *others,
            _SqlColumn("body", body_of, "json", is_of_history=True)
            if of_type is Task
            else _SqlColumn("body", lambda record: table.encode(record).decode(), "json"),
        ]
        self.types = {column.name: column.type for column in self._columns}
        self._fixed = [column.name for column in fixed]
        self._all = self._columns, _attributes(self._columns)
        self._without_body = self._columns[:-1], _attributes(self._columns[:-1])
        self._identity = self._columns[: 2 + len(fixed)], _attributes(self._columns[: 2 + len(fixed)])
        self._composed: dict[tuple[str, tuple[bool, ...]], str] = {}

    @property
    def what(self) -> str:
        """The columns that are selected to read a record."""
        return COLUMNS_READ if self.table.type is Task else WHOLE_RECORD

    def read(self, rows: Sequence[Any]) -> Iterable[Any]:
        """The records of rows that were selected so; or Corrupt."""
        if self.table.type is Task:
            return read_tasks(rows)
        return (self.table.decode(row[0]) for row in rows)

    def histories(self, records: Iterable[Record]) -> Histories:
        """The short histories of tasks, by id."""
        return {record.id: short_history(record) for record in records if isinstance(record, Task)}

    def identities(self, records: Iterable[Record]) -> Rows:
        """The columns that say which records these are: id, version, fixed columns."""
        return self._rows(records, self._identity, {})

    def rows(self, records: Iterable[Record], histories: Histories, *, with_body: bool = True) -> Rows:
        return self._rows(records, self._all if with_body else self._without_body, histories)

    def new_rows(self, records: Sequence[Any]) -> Rows:
        """The rows of records that are inserted. Tasks of a `submit_many` or a tick are mostly alike: those of a
        `submit_many` take 8 instead of 12 µs of processor time here."""
        if self.table.type is Task and are_alike(records):
            return self._alike_rows(sorted(records, key=_id))
        return self.rows(records, self.histories(records))

    def _alike_rows(self, tasks: Sequence[Task]) -> Rows:
        """The rows of tasks whose columns are the same, but for the id and the schedule."""
        first, *_ = tasks
        histories = self.histories([first])
        parameters = self.rows([first], histories).parameters
        varying = [False] * len(parameters)
        own: dict[str, list[Any]] = {
            "id": [task.id for task in tasks],
            "schedule_id": [task.schedule_id for task in tasks],
            "body": bodies_of(tasks, histories[first.id]),
        }
        for place, column in enumerate(self._columns):
            values = own.get(column.name)
            if values is not None and (place == 0 or values.count(values[0]) < len(values)):
                varying[place], parameters[place] = True, values
        return Rows(tuple(varying), parameters, own["id"])

    def _rows(self, records: Iterable[Record], which: Columns, histories: Histories) -> Rows:
        """The rows in the order of ids, so that two transactions lock rows in the same order."""
        ordered = sorted(records, key=_id)
        columns, attributes = which
        plain = zip(*map(attributes, ordered), strict=True)
        varying: list[bool] = []
        parameters: list[Any] = []
        for column in columns:
            get = column.get
            values: Any
            if column.is_plain:
                values = next(plain)
            elif column.is_of_history:
                values = [get(record, histories[record.id]) for record in ordered]
            else:
                values = [get(record) for record in ordered]
            varies = not varying or values.count(values[0]) < len(values)
            varying.append(varies)
            parameters.append(list(values) if varies else values[0])
        return Rows(tuple(varying), parameters, parameters[0])

    def compose(self, statement: str, varying: tuple[bool, ...]) -> str:
        """The statement for rows of which these columns vary."""
        found = self._composed.get((statement, varying))
        if found is None:
            found = statement
            for word, text in self._words(varying).items():
                found = found.replace(f"{{{word}}}", text)
            self._composed[statement, varying] = found
        return found

    def _words(self, varying: tuple[bool, ...]) -> dict[str, str]:
        columns = self._columns[: len(varying)]
        value = {column.name: _once(number, column) for number, column in enumerate(columns, start=1)}
        arrays = []
        for number, (column, varies) in enumerate(zip(columns, varying, strict=True), start=1):
            if varies:
                arrays.append((column.name, f"${number}::{_sent_as(column)}[]"))
                value[column.name] = _received(column)
        changing = [column.name for column in columns[2:] if column.name not in self._fixed]
        return {
            "table": self.name,
            "columns": ", ".join(column.name for column in columns),
            "values": ", ".join(value[column.name] for column in columns),
            "arrays": ", ".join(array for _, array in arrays),
            "varying": ", ".join(name for name, _ in arrays),
            "version": value["version"],
            "changes": ", ".join(f"{name} = {value[name]}" for name in changing),
            "unchanged": " and ".join(
                f"stored.{name} is not distinct from {value[name]}" for name in self._fixed
            ),
            "notified": _notified(len(columns) + 1, len(columns) + 2),
        }

    def fill_in(self, statement: str) -> str:
        """For statements without rows."""
        return statement.replace("{table}", self.name).replace("{record}", self.what)


def _attributes(columns: Sequence[_SqlColumn]) -> attrgetter[tuple[Any, ...]]:
    """The columns that are plain, of a record, in one go."""
    return attrgetter(*(column.name for column in columns if column.is_plain))


def _id(record: Record) -> str:
    return record.id


def _notified(channel: int, notice: int) -> str:
    return f"case when ${channel}::text is not null then pg_notify(${channel}::text, ${notice}::text) end"


_AS_TEXT = ("text[]", "json")
"""Sent as texts: an array of arrays has to be a rectangle, and a driver may have its own idea of JSON."""


def _sent_as(column: _SqlColumn) -> str:
    return "text" if column.type in _AS_TEXT else column.type


def _cast(column: _SqlColumn) -> str:
    return f"::{column.type}" if column.type in _AS_TEXT else ""


def _once(number: int, column: _SqlColumn) -> str:
    return f"${number}::{_sent_as(column)}{_cast(column)}"


def _received(column: _SqlColumn) -> str:
    return f"given.{column.name}{_cast(column)}"


WRITERS = {of_type: Writer(of_type) for of_type in TABLES}
