"""A query as a statement of SQL: the name of the statement, and its parameters. The stores that speak SQL share this.

Names follow those of the queries; some queries have several statements, and the filters that are given choose one.
Parameters are the fields of the query. A bound that was not given is open: the end of time, or of all names, stands for
it, so that a statement needs no case for it. A tuple is a set of values: each is sent once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ..domain.model import Record, ScheduleStatus, TaskStatus
from .codec import search_text
from .queries import (
    LONG_BEGINNING,
    NEVER,
    RECORD_OF,
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
    SchedulesByName,
    SchedulesByNextTime,
    SinceFilter,
    TaskList,
    TasksByBeginning,
    TemplateList,
    TenantList,
    UntoldAlarms,
    WatchedSchedules,
)

MANY_PENDING = 10_000
"""Up to so many pending tasks are sorted to list them; more are found by walking all tasks, newest first."""

_UNUSUAL = {TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.ARCHIVED}
"""So few tasks have these that they have an index of their own."""

_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
_END = NEVER
_LAST = chr(0x10FFFF)
_OPEN_ENDS: dict[type[Query[Record]], dict[str, datetime | str]] = {
    DueSchedules: {"at": _END},
    LostLeases: {"at": _END},
    PastExpiry: {"at": _END},
    WatchedSchedules: {"at": _END},
    UntoldAlarms: {"at": _END},
    AlarmList: {"after_at": _END, "after_id": ""},
    TaskList: {"since": _BEGINNING, "after_at": _END, "after_id": ""},
    ScheduleList: {"after_at": _END, "after_id": ""},
    SchedulesByName: {"after": "", "last": _LAST},
    SchedulesByNextTime: {"after_at": _BEGINNING, "after_id": "", "last_at": _END, "last_id": _LAST},
    RunList: {"since": _BEGINNING, "until": _END, "after_at": _END, "after_id": ""},
    EventList: {"after_at": _BEGINNING, "after_id": ""},
    TemplateList: {"after": _LAST},
    ApiKeyList: {"after": _LAST},
    TenantList: {"after": ""},
    GateList: {"after": ""},
    NodeList: {"after": ""},
}
"""The value that stands for a bound that was not given."""

_NAMES = {each: re.sub(r"(?<!^)([A-Z])", r"_\1", each.__name__).lower() for each in RECORD_OF}


class Parameters:
    """The parameters of queries, as one database takes them. `written` has how it takes values of a type; others are
    taken as they are."""

    def __init__(self, written: Mapping[type, Callable[[Any], Any]]) -> None:
        self._written = written
        self._open_ends = {
            of_type: {name: self._value(end) for name, end in ends.items()}
            for of_type, ends in _OPEN_ENDS.items()
        }

    def of(self, query: Query[Record], limit: int | None) -> dict[str, Any]:
        values: dict[str, Any] = {"limit": limit, **self._open_ends.get(type(query), {})}
        if isinstance(query, SinceFilter):
            return values | {"tenant": self._value(query.tenant)} | self._behind(query.bound)
        for name in query.__struct_fields__:
            value = getattr(query, name)
            if value is None:
                values.setdefault(name, None)
            elif isinstance(value, Cursor):
                values |= self._behind(value)
            else:
                values[name] = self._value(search_text(value) if name == "text" else value)
        return values

    def _behind(self, cursor: Cursor) -> dict[str, Any]:
        return {"after_at": self._value(cursor.at), "after_id": self._value(cursor.id)}

    def _value(self, value: Any) -> Any:
        write = self._written.get(type(value))
        return value if write is None else write(value)


def name_of(query: Query[Record]) -> str:
    return _NAMES[type(query)]


def usual_statement(query: Query[Record]) -> str:
    """The statement that finds what the query asks for, with the best index for the filters given. For lists of tasks
    there is `task_list_statement`; queries that a store answers with several statements are its own."""
    if isinstance(query, ScheduleByKey) and query.deleted:
        return "schedule_by_key_deleted"
    if isinstance(query, TasksByBeginning) and len(query.beginning) < LONG_BEGINNING:
        return "tasks_by_short_beginning"
    if isinstance(query, EventList) and query.subject_id is not None:
        return "event_list_of_subject"
    if isinstance(query, ScheduleList | ApiKeyList | AlarmList) and query.tenant is None:
        return f"{name_of(query)}_of_all"
    if isinstance(query, ScheduleList) and query.newest is not None:
        return "schedule_list_newest"
    if isinstance(query, ScheduleList) and query.status not in (None, ScheduleStatus.ACTIVE):
        return "schedule_list_unusual"
    return name_of(query)


def task_list_statement(query: TaskList, *, many_pending: bool) -> str:
    """The statement for a list of tasks, with the best index for the filters given."""
    if query.schedule_id is not None:
        return "task_list_of_schedule"
    if query.status in _UNUSUAL:
        return "task_list_unusual"
    if query.status in (TaskStatus.EXPIRED, TaskStatus.RUNNING):
        return f"task_list_{query.status}"
    if query.status is TaskStatus.PENDING and not many_pending:
        return "task_list_pending"
    return "task_list_workflow" if query.is_workflow else "task_list"
