"""Records as `/api/v1` answers them, field by field, in snake_case, and their OpenAPI schemas. A test holds the two
together."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, JsonValue, RootModel

from ....domain.model import Failure, Schedule, Task, TaskStatus, Template, TemplateTarget
from ....domain.options import TemplateOptions, options_of
from ....domain.recurrence import Cron, Interval, Once, RRule, Timing
from ...shapes import fields_of, text
from ..fields import body_name

__all__ = ["job", "page", "schedule", "started", "template", "template_id_of"]

_ENDED_WITH_ARTIFACT = (TaskStatus.COMPLETED, TaskStatus.FAILED)


class TemplateAnswer(BaseModel):
    """A stored task."""

    id: str
    command: str
    task_type: Literal["python", "shell", "http"]
    name: str
    parameters: dict[str, JsonValue]
    queue: str
    priority: int
    max_retries: int | None
    max_reschedules: int | None
    retry_policy: dict[str, float] | None
    timeout_seconds: float | None
    ttl_seconds: float | None
    enabled: bool
    tags: list[str]
    metadata: dict[str, JsonValue]
    version: int
    created_at: datetime
    updated_at: datetime


class TaskScheduleAnswer(BaseModel):
    """Of the fields that say when, only the one of its type is there."""

    id: str
    task_id: str
    schedule_type: Literal["once", "interval", "cron", "rrule"]
    run_at: datetime | None = None
    interval_seconds: float | None = None
    cron_expression: str | None = None
    rrule: str | None = None
    timezone: str | None = None
    enabled: bool
    next_run_at: datetime | None
    last_run_at: datetime | None
    created_at: datetime
    updated_at: datetime


class TaskSchedulesAnswer(RootModel[list[TaskScheduleAnswer]]):
    """A list."""


class StartedAnswer(BaseModel):
    """What `$execute` started."""

    job_id: str
    status: str


class TaskSnapshot(BaseModel):
    """What was run."""

    id: str | None
    command: str
    task_type: Literal["python"]
    parameters: JsonValue


class JobFailureAnswer(BaseModel):
    type: str
    message: str
    traceback: str | None


class ArtifactAnswer(BaseModel):
    """What came of it: a result, or an error with its traceback."""

    task: TaskSnapshot
    result: JsonValue
    error: JobFailureAnswer | None


class JobAnswer(BaseModel):
    """One execution. `artifact` is there when it has completed or failed."""

    id: str
    status: Literal["pending", "running", "completed", "failed", "canceled", "expired"]
    task_id: str | None
    schedule_id: str | None
    submitted_at: datetime
    available_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    artifact: ArtifactAnswer | None


class _PageAnswer(BaseModel):
    total: int
    page: int
    size: int
    pages: int


class JobsAnswer(_PageAnswer):
    items: list[JobAnswer]


class TemplatesAnswer(_PageAnswer):
    items: list[TemplateAnswer]


_TEMPLATE_OPTIONS = [
    body_name(TemplateOptions, name) for name in options_of(TemplateOptions) if name != "command"
]


def template(record: Template) -> dict[str, Any]:
    shape = fields_of(record)
    return {
        "id": record.id,
        "command": record.command or record.kind,
        "task_type": str(record.runtime),
        "name": record.alias,
        "parameters": record.parameters,
        **{name: shape[name] for name in _TEMPLATE_OPTIONS},
        "version": record.version,
        "created_at": text(record.created_at),
        "updated_at": text(record.updated_at),
    }


def schedule(record: Schedule) -> dict[str, Any]:
    target = record.target
    return {
        "id": record.id,
        "task_id": target.template_id if isinstance(target, TemplateTarget) else None,
        **_timing(record.timing),
        "enabled": record.enabled,
        "next_run_at": record.next_run_at and text(record.next_run_at),
        "last_run_at": record.last_run_at and text(record.last_run_at),
        "created_at": text(record.created_at),
        "updated_at": text(record.updated_at),
    }


def _timing(of: Timing) -> dict[str, Any]:
    match of:
        case Once(run_at):
            return {"schedule_type": "once", "run_at": text(run_at)}
        case Interval(every):
            seconds = every.total_seconds()
            whole = int(seconds) if seconds.is_integer() else seconds
            return {"schedule_type": "interval", "interval_seconds": whole}
        case Cron(expression, zone):
            return {"schedule_type": "cron", "cron_expression": expression, **_zone(zone)}
        case RRule(rule, _, zone):
            return {"schedule_type": "rrule", "rrule": rule, **_zone(zone)}


def _zone(name: str) -> dict[str, str]:
    return {} if name == "UTC" else {"timezone": name}


def started(record: Task) -> dict[str, Any]:
    return {"job_id": record.id, "status": _status(record)}


def job(record: Task) -> dict[str, Any]:
    status = _status(record)
    return {
        "id": record.id,
        "status": status,
        "task_id": template_id_of(record),
        "schedule_id": record.schedule_id,
        "submitted_at": text(record.created_at),
        "available_at": text(record.available_at),
        "started_at": record.started_at and text(record.started_at),
        "finished_at": _finished_at(record),
        "error": _error(record, status),
        "artifact": _artifact(record) if status in _ENDED_WITH_ARTIFACT else None,
    }


def template_id_of(record: Task) -> str | None:
    found = record.metadata.get("template_id")
    return found if isinstance(found, str) else None


def _status(record: Task) -> str:
    """In the document's words; what was put away later is shown as it ended."""
    status = record.status
    if status is TaskStatus.ARCHIVED:
        ends = (change.status for change in reversed(record.history) if change.status is not status)
        status = next(ends, TaskStatus.COMPLETED)
        if status is TaskStatus.PENDING:  # it had expired before anyone marked it so
            status = TaskStatus.EXPIRED
    return "canceled" if status is TaskStatus.CANCELLED else str(status)


def _finished_at(record: Task) -> str | None:
    at = record.completed_at or record.expired_at
    if at is None and record.status is TaskStatus.EXPIRED:
        at = record.expires_at
    return None if at is None else text(at)


def _error(record: Task, status: str) -> str | None:
    """Of one that will be tried again: what went wrong the last time."""
    if status == "canceled":
        return record.cancel_reason or None
    return None if status == "completed" or record.error is None else str(record.error)


def _artifact(record: Task) -> dict[str, Any]:
    return {
        "task": {
            "id": template_id_of(record),
            "command": record.kind,
            "task_type": "python",
            "parameters": record.input,
        },
        "result": record.output,
        "error": None if record.error is None else _failure(record.error),
    }


def _failure(of: Failure) -> dict[str, Any]:
    return {"type": of.type, "message": of.message, "traceback": of.traceback}


def page(items: list[dict[str, Any]], total: int, number: int, size: int) -> dict[str, Any]:
    return {"items": items, "total": total, "page": number, "size": size, "pages": -(-total // size)}
