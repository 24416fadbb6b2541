"""A task as a row: its columns, and a `body` of the rest. Nothing is stored twice.

Lines of a history are not stored where the columns imply them (`domain/task`, `short_history`). So a claim and a
completion change columns only, and their statements neither send nor parse the body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC
from operator import attrgetter
from typing import Any

import msgspec

from ...domain.errors import Corrupt, Invalid
from ...domain.model import RetryPolicy, Task, TaskStatus
from ...domain.task import ShortHistory, is_short_alike, whole_history

_IN_COLUMNS = (
    "id",
    "schedule_id",
    "line",
    "tenant",
    "version",
    "kind",
    "is_workflow",
    "queue",
    "priority",
    "created_at",
    "available_at",
    "expires_at",
    "started_at",
    "completed_at",
    "updated_at",
    "attempt",
    "max_retries",
    "timeout",
    "lease_id",
    "lease_expires_at",
    "worker_id",
    "cancel_requested",
    "passed",
    "slot_until",
    "status",
    "tags",
    "retry_policy",
    "output",
    "progress",
)
"""The fields that are columns. Those before `tenant` are a task's own, even if tasks are alike. Those from `status` on
are not read as they are."""
_OWN = _IN_COLUMNS.index("tenant")
_PLAIN = _IN_COLUMNS.index("status")
_OUTPUT = _IN_COLUMNS.index("output")
_TIMES = [name for name in _IN_COLUMNS if name.endswith(("_at", "_until"))]
_AS_TEXT = ("retry_policy", "output", "progress", "body")


def _read_as(name: str) -> str:
    if name == "available_at":  # that of a task in a line is the end of time, for the index
        return "coalesce(task.lined_at, task.available_at)"
    return f"task.{name}::text" if name in _AS_TEXT else f"task.{name}"


COLUMNS_READ = ", ".join(map(_read_as, (*_IN_COLUMNS, "changes", "actor", "created_by", "body")))
"""The columns that are read of a task. JSON is read as a text: on a connection of the caller's, the driver may decode
it."""


def are_columns(fields: AbstractSet[str]) -> bool:
    """Whether an update of these fields is one of the columns that are called so. From the line follow others."""
    return fields.isdisjoint((*_REST_NAMES, "line"))


_REST = [field for field in msgspec.structs.fields(Task) if field.name not in (*_IN_COLUMNS, "history")]
_REST_NAMES = [field.name for field in _REST]
_rest_of = attrgetter(*_REST_NAMES)
_OWN_REST = ("input", "metadata", "run_id", "limit_key", "gates")
_shared = attrgetter(*(name for name in (*_REST_NAMES, "history") if name not in _OWN_REST))


def _body_type() -> type[Any]:
    fields: list[Any] = [
        (
            field.name,
            field.type,
            msgspec.field(default_factory=dict) if field.default_factory is dict else field.default,
        )
        for field in msgspec.structs.fields(Task)
        if field.name in (*_REST_NAMES, "history")
    ]
    return msgspec.defstruct("TaskBody", fields, frozen=True, omit_defaults=True, gc=False)


_Body = _body_type()
"""The fields that no column has. The history comes last, and is a short one."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_policy = msgspec.json.Decoder(RetryPolicy).decode
_STATUS = {str(status): status for status in TaskStatus}


def json_of(task: Task, value: Any) -> str | None:
    """None is NULL."""
    if value is None:
        return None
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"task {task.id}", f"cannot be written as JSON ({error})") from error


def body_of(task: Task, short: ShortHistory) -> str:
    body = json_of(task, _Body(*_rest_of(task), short.lines))
    assert body is not None
    return body


def are_alike(tasks: Sequence[Task]) -> bool:
    """Whether several new tasks differ in their ids, inputs and metadata only, and in what schedules and runs they are
    of. (Equal JSON may be written differently, as 1, 1.0 and True are; of a new task, nothing else of it is JSON,
    unless it has a command.)"""
    first = tasks[0]
    if len(tasks) == 1 or (first.output, first.progress, first.command) != (None, None, None):
        return False
    own = {name: getattr(first, name) for name in ("id", "schedule_id", "input", "metadata", "run_id")}
    return all(msgspec.structs.replace(task, **own) == first for task in tasks)


def bodies_of(tasks: Sequence[Task], short: ShortHistory) -> list[str]:
    """The bodies of tasks that are alike. `short` is the history of each."""
    like = _Body(*_rest_of(tasks[0]), short.lines)
    bodies = []
    for task in tasks:
        own = msgspec.structs.replace(like, input=task.input, metadata=task.metadata, run_id=task.run_id)
        body = json_of(task, own)
        assert body is not None
        bodies.append(body)
    return bodies


def has_same_body(old: Task, new: Task, short: ShortHistory) -> bool:
    """Whether only columns differ. `short` is the history of the new one."""
    return bool(_rest_of(old) == _rest_of(new)) and is_short_alike(old, new, short)


def read_tasks(rows: Sequence[Sequence[Any]]) -> Iterator[Task]:
    """The tasks of rows with `COLUMNS_READ`; or Corrupt. Tasks of a batch are mostly alike: what a row has in common
    with the row before it is not read again. With this a task that is run takes 41 µs of processor time here, without
    it 52 to 57 (`bench/postgres_costs.py`). Limited tasks are alike, too, though each key has its gate: one that waited
    in a line takes 68 instead of 82 µs at best, on a busy machine (the drain of `bench/limits.py`, 500 slots)."""
    like: Task | None = None
    columns: Sequence[Any] = ()
    rest: tuple[Any, ...] = ()
    for row in rows:
        try:
            body = _decode_body(row[-1])
            if like is None or row[_OWN:-1] != columns or _shared(body) != rest:
                columns, rest = row[_OWN:-1], _shared(body)
                like = _read(row, body)
            yield msgspec.structs.replace(
                like,
                id=row[0],
                schedule_id=row[1],
                line=row[2],
                input=body.input,
                metadata=body.metadata,
                run_id=body.run_id,
                limit_key=body.limit_key,
                gates=body.gates,
                **_json_columns(row),
            )
        except (msgspec.DecodeError, LookupError, ValueError, RecursionError) as error:
            raise Corrupt(f"task {row[0]} cannot be read: {error}", table="task") from error


def _read(row: Sequence[Any], body: Any) -> Task:
    status, tags, policy, _, _, changes, actor, creator, _ = row[_PLAIN:]
    columns = dict(zip(_IN_COLUMNS, row[:_PLAIN], strict=False))
    for name in _TIMES:
        if columns[name] is not None and columns[name].tzinfo is None:  # the end of time, in asyncpg's words
            columns[name] = columns[name].replace(tzinfo=UTC)
    task = Task(
        status=_STATUS[status],
        tags=tuple(tags) if tags else (),
        retry_policy=None if policy is None else _decode_policy(policy),
        **columns,
        **msgspec.structs.asdict(body),
    )
    history = whole_history(task, ShortHistory(body.history, changes, actor, creator))
    return msgspec.structs.replace(task, history=history)


def _json_columns(row: Sequence[Any]) -> dict[str, Any]:
    """Each task gets its own."""
    output, progress = row[_OUTPUT], row[_OUTPUT + 1]
    if output is None and progress is None:
        return {}
    return {
        "output": None if output is None else _decode(output),
        "progress": None if progress is None else _decode(progress),
    }
